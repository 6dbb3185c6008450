//! Many worlds on several threads: counts what they did, and stops at the first broken rule.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::faulty::StoreKind;
use crate::violation::Violation;
use crate::world::{Outcome, Plan, World};

/// One seed of this many is run twice, to see that chance comes from the seed alone.
const TWICE_EVERY: u64 = 100;

/// Worlds to run.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The first seed.
    pub first: u64,
    /// The seed after the last one.
    pub end: u64,
    /// Steps with faults in each world.
    pub steps: u32,
    /// Threads.
    pub threads: usize,
    /// Stop after this long, whatever is left.
    pub time: Option<Duration>,
    /// What the disks are made of.
    pub store: StoreKind,
}

/// What a series did.
#[derive(Debug, Default)]
pub struct Totals {
    /// Worlds that came to their end.
    pub seeds: u64,
    /// Steps with faults.
    pub steps: u64,
    /// Batches of the server.
    pub batches: u64,
    /// Decisions compared with the reference.
    pub decisions: u64,
    /// Jobs stored.
    pub jobs: u64,
    /// Starts after a crash or a stop.
    pub restarts: u64,
    /// The broken rule with the lowest seed among those found.
    pub broken: Option<(u64, Violation)>,
}

#[derive(Default)]
struct Counters {
    next: AtomicU64,
    seeds: AtomicU64,
    steps: AtomicU64,
    batches: AtomicU64,
    decisions: AtomicU64,
    jobs: AtomicU64,
    restarts: AtomicU64,
    stop: AtomicBool,
}

impl Series {
    /// Runs all worlds. `progress` is called now and then with the number of worlds done.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Totals {
        let counters = Counters { next: AtomicU64::new(self.first), ..Counters::default() };
        let began = Instant::now();
        let broken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads.max(1))
                .map(|_| scope.spawn(|| self.run_seeds(&counters, began, progress)))
                .collect();
            let found =
                threads.into_iter().filter_map(|thread| thread.join().expect("a world's panic is caught"));
            found.min_by_key(|(seed, _)| *seed)
        });
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            seeds: count(&counters.seeds),
            steps: count(&counters.steps),
            batches: count(&counters.batches),
            decisions: count(&counters.decisions),
            jobs: count(&counters.jobs),
            restarts: count(&counters.restarts),
            broken,
        }
    }

    fn run_seeds(
        &self,
        counters: &Counters,
        began: Instant,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Option<(u64, Violation)> {
        loop {
            let seed = counters.next.fetch_add(1, Ordering::Relaxed);
            let late = self.time.is_some_and(|time| began.elapsed() >= time);
            if seed >= self.end || late || counters.stop.load(Ordering::Relaxed) {
                return None;
            }
            let outcome = run_checked(seed, self.steps, self.store);
            let done = counters.seeds.fetch_add(1, Ordering::Relaxed) + 1;
            counters.steps.fetch_add(u64::from(outcome.steps), Ordering::Relaxed);
            counters.batches.fetch_add(outcome.batches, Ordering::Relaxed);
            counters.decisions.fetch_add(outcome.decisions, Ordering::Relaxed);
            counters.jobs.fetch_add(outcome.jobs, Ordering::Relaxed);
            counters.restarts.fetch_add(u64::from(outcome.restarts), Ordering::Relaxed);
            if let Some(violation) = outcome.violation {
                counters.stop.store(true, Ordering::Relaxed);
                return Some((seed, violation));
            }
            progress(done);
        }
    }
}

/// Runs one world; every hundredth one twice, and both must be equal byte for byte.
pub fn run_checked(seed: u64, steps: u32, store: StoreKind) -> Outcome {
    let twice = seed.is_multiple_of(TWICE_EVERY);
    let plan = Plan { seed, steps, log_lines: 0, fingerprint: twice, store };
    let mut outcome = World::run(plan);
    if twice && outcome.violation.is_none() {
        let again = World::run(plan);
        if again.fingerprint != outcome.fingerprint {
            let story = format!("seed {seed} gives {:x}, then {:x}", outcome.fingerprint, again.fingerprint);
            outcome.violation = Some(Violation::new("C1", story));
        }
    }
    outcome
}
