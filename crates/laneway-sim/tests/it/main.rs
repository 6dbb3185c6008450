//! The simulator itself: it finds nothing where nothing is, and chance comes from the seed alone. That it finds every bug of
//! the zoo is shown by `scripts/test sim`, in a release build: some bugs need thousands of worlds. What it found while the
//! house was built is told again in `stories.rs`.

mod slots;
mod stories;

use laneway_core::zoo::Bug;
use laneway_sim::{Fleet, Plan, StoreKind, World};

/// Worlds for every run of the tests; `cargo run -p laneway-sim` is for more.
const SEEDS: u64 = 150;
const STEPS: u32 = 500;
/// A common bug must be caught within this many worlds.
const SEEDS_FOR_A_BUG: u64 = 2_000;

#[test]
fn no_bug_no_alarm() {
    let fleet =
        Fleet { first: 0, end: SEEDS, steps: STEPS, threads: 2, time: None, store: StoreKind::Memory };
    let tally = fleet.run(&|_| ());
    if let Some((seed, violation)) = tally.broken {
        panic!("seed {seed} breaks {violation}\nreplay: cargo run -p laneway-sim -- --seed {seed}");
    }
    assert_eq!(tally.seeds, SEEDS);
    assert_eq!(tally.steps, SEEDS * u64::from(STEPS));
    // A world in which little happens proves little.
    assert!(tally.decisions > SEEDS * 20, "only {} decisions were compared", tally.decisions);
    assert!(tally.restarts > SEEDS, "only {} restarts", tally.restarts);
}

/// The same worlds on real files: what SQLite holds is what the changes said.
#[test]
fn no_alarm_on_sqlite() {
    let fleet = Fleet { first: 0, end: 6, steps: 200, threads: 2, time: None, store: StoreKind::Sqlite };
    let tally = fleet.run(&|_| ());
    if let Some((seed, violation)) = tally.broken {
        panic!(
            "seed {seed} breaks {violation}\nreplay: cargo run -p laneway-sim -- --sqlite --seed {seed} --steps 200"
        );
    }
    assert_eq!(tally.seeds, 6);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run =
        |seed| World::run(Plan { seed, steps: 200, diary: 0, fingerprint: true, store: StoreKind::Memory });
    for seed in 1_000..1_010 {
        let (one, other) = (run(seed), run(seed));
        assert_eq!(one.fingerprint, other.fingerprint, "seed {seed}");
        assert_eq!((one.turns, one.decisions, one.jobs), (other.turns, other.decisions, other.jobs));
    }
    assert_ne!(run(1_000).fingerprint, run(1_001).fingerprint);
}

#[test]
fn a_failing_seed_tells_its_story() {
    laneway_core::zoo::let_out(Some(Bug::RenewWithoutEpoch));
    let failing = (0..SEEDS_FOR_A_BUG)
        .map(|seed| {
            World::run(Plan { seed, steps: STEPS, diary: 50, fingerprint: false, store: StoreKind::Memory })
        })
        .find(|outcome| outcome.violation.is_some());
    laneway_core::zoo::let_out(None);
    let outcome = failing.expect("the bug is caught");
    assert!(!outcome.diary.is_empty() && outcome.diary.len() <= 50);
    assert!(outcome.diary.iter().any(|line| line.contains("Heartbeat")), "{:#?}", outcome.diary);
}
