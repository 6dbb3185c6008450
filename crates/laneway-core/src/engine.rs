//! The engine: keeps every live job in memory and makes all decisions.
//!
//! `apply` takes one command at one time, changes memory, and appends what follows to `Effects`. Nothing of that leaves the
//! process before the caller has made it durable. Each folder is one room: it owns a struct whose fields only that folder
//! touches. `Engine` wires the rooms together. `apply.rs` lists which function carries out
//! which command.

mod apply;
mod capacity;
mod check;
mod clock;
mod collections;
mod configure;
mod jobs;
mod kept_keys;
mod leases;
mod numbers;
mod queue;
mod random;
mod records;
mod recover;
mod schedules;
mod server;
mod sessions;
mod stats;
#[cfg(test)]
mod tests;
mod tick;
mod timers;
mod tokens;
mod webhooks;
mod workers;
mod workflows;

pub use capacity::readings::{CapacityView, LoadSample};
pub use collections::fresh::BatchNumber;
pub use jobs::recorded_rejections::{RECORDED_REJECTION_BYTES_PER_MINUTE, RECORDED_REJECTIONS_PER_MINUTE};
pub use leases::view::LeaseView;
pub use queue::counts::Counts;
pub use queue::explain::{Explanation, Hold, Lacks};
pub use queue::stats::{AgentStats, LaneDepth, LaneStats};
pub use recover::{Recovery, Restart, StoreCounters};
pub use sessions::state::SessionView;
pub use stats::Stats;
pub use webhooks::deliveries::DeliveryStats;

use capacity::Capacity;
use clock::EngineClock;
use collections::index::Hashing;
use jobs::Jobs;
use kept_keys::Keepers;
use leases::Leases;
use numbers::Numbers;
use queue::Queue;
use records::Records;
use schedules::Schedules;
use server::ServerState;
use sessions::Sessions;
use timers::Timers;
use tokens::Tokens;
use webhooks::Webhooks;
use workers::Workers;
use workflows::Workflows;

use crate::settings::{LaneSettings, MAIN_LANE};
use crate::{Command, Effects, JobId, JobState, Mono, Name, Now, Reply, Seed, Settings, Wall};

/// The engine. One loop owns it.
pub struct Engine {
    settings: Settings,
    server: ServerState,
    numbers: Numbers,
    clock: EngineClock,
    timers: Timers,
    jobs: Jobs,
    queue: Queue,
    sessions: Sessions,
    schedules: Schedules,
    workflows: Workflows,
    workers: Workers,
    leases: Leases,
    capacity: Capacity,
    webhooks: Webhooks,
    tokens: Tokens,
    keepers: Keepers,
    records: Records,
}

/// When the engine must look at the clock again: at the first of these times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wakeup {
    /// On the monotonic clock.
    pub mono: Option<Mono>,
    /// On the wall clock.
    pub wall: Option<Wall>,
}

impl Engine {
    /// An empty engine.
    pub fn new(settings: Settings, seed: impl Into<Seed>, now: Now) -> Engine {
        Engine::empty(settings, seed.into(), now, None)
    }

    fn empty(mut settings: Settings, seed: Seed, now: Now, clock_seen: Option<Wall>) -> Engine {
        settings.lanes.entry(Name::fixed(MAIN_LANE)).or_default();
        let lanes: Vec<(Name, LaneSettings)> = settings.lanes.clone().into_iter().collect();
        let mut numbers = Numbers::new(seed);
        let hashing = Hashing { seed: numbers.secret() };
        let mut engine = Engine {
            settings,
            server: ServerState::default(),
            numbers,
            clock: EngineClock::new(now, clock_seen),
            timers: Timers::default(),
            jobs: Jobs::new(hashing),
            queue: Queue::new(hashing),
            sessions: Sessions::new(hashing),
            schedules: Schedules::default(),
            workflows: Workflows::default(),
            workers: Workers::new(hashing),
            leases: Leases::default(),
            capacity: Capacity::default(),
            webhooks: Webhooks::new(hashing),
            tokens: Tokens::default(),
            keepers: Keepers::default(),
            records: Records::default(),
        };
        for (name, settings) in lanes {
            engine.queue.add_lane(&name, settings);
        }
        engine.recount_shares();
        engine
    }

    /// Takes one command at one time and runs dispatch to quiescence. Effects are appended.
    pub fn apply(&mut self, now: Now, command: Command, effects: &mut Effects) -> Reply {
        if now.wall < self.clock.seen() {
            self.look_at_clock(now, effects);
        }
        let reply = self.carry_out(now, command, effects);
        loop {
            self.settle_runs(now, effects);
            self.settle_schedules(now, effects);
            self.dispatch(now, effects);
            // A job that expires on its way to a start may be a run that a slot waits for, or a member that others do.
            if self.workflows.is_settled() && (self.schedules.is_settled() || self.server.is_draining()) {
                break;
            }
        }
        self.webhooks.hand_out(now, &self.settings.webhooks, effects);
        reply
    }

    /// Ends a batch: what is applied from now on belongs to the next one. Gives its number, for [`Engine::committed`].
    pub fn end_batch(&mut self) -> BatchNumber {
        self.numbers.end_batch()
    }

    /// A batch and those before it are durable: from now on the store answers for their idempotency keys.
    pub fn committed(&mut self, batch: BatchNumber) {
        self.jobs.committed(batch);
        self.workflows.committed(batch);
        self.webhooks.committed(batch);
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The state of a live job.
    pub fn state_of(&self, job: JobId) -> Option<JobState> {
        let state = self.jobs[self.jobs.find(job)?].state();
        (!state.is_terminal()).then_some(state)
    }
}
