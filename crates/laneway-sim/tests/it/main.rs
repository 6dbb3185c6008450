//! The simulator itself: it reports no violation where there is none, chance comes from the seed alone, and a violation is
//! reported with its log. `scripts/test sim` shows that it catches every mutant, in a release build: some need thousands of
//! worlds. Earlier findings are scenarios in `stories.rs`.

mod mutants;
mod slots;
mod stories;

use std::sync::Arc;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, TokenRecord};
use laneway_sim::{Plan, Series, StoreKind, World};
use laneway_store::{Epoch, Keys, Loaded, MemoryStore, Priors, Reader, Store, StoreError};

/// Worlds for every run of the tests; `cargo run -p laneway-sim` is for more.
const SEEDS: u64 = 150;
const STEPS: u32 = 500;

#[test]
fn no_bug_no_alarm() {
    let series =
        Series { first: 0, end: SEEDS, steps: STEPS, threads: 2, time: None, store: StoreKind::Memory };
    let totals = series.run(&|_| ());
    if let Some((seed, violation)) = totals.broken {
        panic!("seed {seed} breaks {violation}\nreplay: cargo run -p laneway-sim -- --seed {seed}");
    }
    assert_eq!(totals.seeds, SEEDS);
    assert_eq!(totals.steps, SEEDS * u64::from(STEPS));
    // A world in which little happens proves little.
    assert!(totals.decisions > SEEDS * 20, "only {} decisions were compared", totals.decisions);
    assert!(totals.restarts > SEEDS, "only {} restarts", totals.restarts);
}

/// The same worlds on real files: the rows of SQLite agree with the changes.
#[test]
fn no_alarm_on_sqlite() {
    let series = Series { first: 0, end: 6, steps: 200, threads: 2, time: None, store: StoreKind::Sqlite };
    let totals = series.run(&|_| ());
    if let Some((seed, violation)) = totals.broken {
        panic!(
            "seed {seed} breaks {violation}\nreplay: cargo run -p laneway-sim -- --sqlite --seed {seed} --steps 200"
        );
    }
    assert_eq!(totals.seeds, 6);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run = |seed| {
        World::run(Plan { seed, steps: 200, log_lines: 0, fingerprint: true, store: StoreKind::Memory })
    };
    for seed in 1_000..1_010 {
        let (one, other) = (run(seed), run(seed));
        assert_eq!(one.fingerprint, other.fingerprint, "seed {seed}");
        assert_eq!((one.batches, one.decisions, one.jobs), (other.batches, other.decisions, other.jobs));
    }
    assert_ne!(run(1_000).fingerprint, run(1_001).fingerprint);
}

/// A store that does not write one commit and reports success.
struct ForgetfulStore {
    store: MemoryStore,
    commits: u32,
}

/// The commit that is not written. Every world has some more.
const FORGOTTEN: u32 = 30;

impl ForgetfulStore {
    fn make() -> Box<dyn Store> {
        Box::new(ForgetfulStore { store: MemoryStore::new(), commits: 0 })
    }
}

impl Store for ForgetfulStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.store.load(visit)
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.store.counters()
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.store.tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.store.overrides()
    }

    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        self.commits += 1;
        if self.commits == FORGOTTEN { Ok(()) } else { self.store.commit(epoch, effects) }
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.store.priors(keys)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.store.reader()
    }
}

#[test]
fn a_violation_is_reported_with_its_log() {
    let store = StoreKind::Other(ForgetfulStore::make);
    let run = |seed| World::run(Plan { seed, steps: STEPS, log_lines: 50, fingerprint: false, store });
    // Not every commit has something in it that is missed: of these worlds, the first in which it is.
    let outcome = (1..=8).map(run).find(|outcome| outcome.violation.is_some());
    let outcome = outcome.expect("the forgotten commit is noticed in one of eight worlds");
    let violation = outcome.violation.as_ref().expect("it was just looked for");
    assert!(outcome.steps < STEPS, "it is noticed only at the end");
    assert!(!violation.story.is_empty() && violation.to_string().starts_with(violation.rule));
    assert_eq!(outcome.log.len(), 50, "{:#?}", outcome.log);
    assert!(outcome.log.iter().any(|line| line.contains("-> ")), "no reply is in {:#?}", outcome.log);
}
