//! The engine: holds every live job in memory and decides.
//!
//! `apply` takes one command at one time, changes memory, and appends what follows to `Effects`. One file per verb; the
//! shapes they share are in `engine/state.rs`, how jobs wait in `engine/waiting.rs`, who runs next in
//! `engine/dispatch.rs`. Nothing here is told to anybody before the caller has made it durable.

mod calls;
mod cancel;
mod capacity;
mod chacha;
mod chains;
mod check;
mod claim;
mod configure;
mod counts;
mod create;
mod decide;
mod deliveries;
mod dispatch;
mod explain;
mod facts;
mod finish;
mod firing;
mod fleet;
mod gates;
mod graph;
mod held;
mod idle;
mod index;
mod lease;
mod lines;
mod members;
mod needs;
mod placing;
mod record;
mod recover;
mod refuse;
mod register;
mod rng;
mod runs;
mod schedules;
mod serving;
mod sessions;
mod shared;
mod shelves;
mod slab;
mod sorted;
mod state;
mod stats;
mod stop;
mod submit;
#[cfg(test)]
mod tests;
mod tick;
mod timers;
mod tokens;
mod waiting;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use capacity::{CapacityView, LeaseView};
pub use counts::Counts;
pub use deliveries::DeliveryStats;
pub use explain::{Explanation, Hold, Lacks};
pub use facts::SessionView;
pub use recover::{Head, Recovery, Restart};
pub use refuse::{RECORDED_REFUSAL_BYTES_PER_MINUTE, RECORDED_REFUSALS_PER_MINUTE};
pub use stats::{AgentStats, LaneStats, Stats};

use capacity::Capacity;
use chains::Chains;
use counts::Forgotten;
use deliveries::Deliveries;
use fleet::{Fleet, Want, Worker};
use idle::IdleSessions;
use index::{Hashing, Index};
use rng::Rng;
use runs::Runs;
use schedules::Schedules;
use slab::{Ix, Pool, Slab};
use state::{
    Bin, BinKey, Class, ClassKey, Job, KeyEntry, KeyName, Kind, Lane, Need, Node, Open, Place, SessionEntry,
    Tenant,
};
use timers::Timers;

use crate::capacity::Hours;
use crate::settings::{LaneSettings, MAIN_LANE};
use crate::{
    Command, Effects, JobId, JobState, Mono, Name, Now, Prior, Reply, RetryPolicy, Seed, Settings,
    TokenRecord, Wall,
};

/// The engine. One loop owns it.
pub struct Engine {
    settings: Settings,
    tokens: BTreeMap<Name, TokenRecord>,
    draining: bool,
    storage_low: bool,

    jobs: Slab<Job>,
    /// Open attempts; a job points at its own.
    attempts: Slab<Open>,
    hashing: Hashing,
    by_id: Index,
    bins: Pool<BinKey, Bin>,
    lanes: Vec<Lane>,
    lane_of: BTreeMap<Name, Ix>,
    /// By lane, tenant and name.
    nodes: Pool<(Ix, Ix, Name), Node>,
    /// Agents without jobs, by when they were last served.
    idle_nodes: BTreeSet<(u64, Ix)>,
    tenants: Pool<Name, Tenant>,
    kinds: Pool<Name, Kind>,
    /// By tenant and kind; shelves by tenant and place.
    classes: Pool<ClassKey, Class>,
    places: Pool<Name, Place>,
    /// By tenant and name.
    sessions: Pool<(Ix, Name), SessionEntry>,
    /// Sessions without jobs of which something is remembered, by when that last changed.
    idle_sessions: IdleSessions,
    keys: Pool<KeyName, KeyEntry>,
    keysets: Pool<Box<[Ix]>, ()>,
    policies: Pool<RetryPolicy, ()>,
    needs: Pool<Need, ()>,
    hours: Pool<Hours, ()>,
    wants: Pool<Want, ()>,
    /// Workers that hold attempts or are registered, by tenant and name.
    workers: Pool<(Ix, Name), Worker>,
    fleet: Fleet,
    capacity: Capacity,
    /// Idempotency keys that the store does not know yet.
    fresh_keys: BTreeMap<(Name, Name), Prior>,
    schedules: Schedules,
    deliveries: Deliveries,
    /// Hosts of callbacks, each kept once.
    callback_hosts: Pool<Arc<str>, ()>,
    /// Which host a live job calls back, by the job's number.
    host_of: BTreeMap<u64, Ix>,
    runs: Runs,
    chains: Chains,
    /// Counts of agents that are not remembered any more.
    forgotten: Forgotten,

    timers: Timers,
    /// When old rows are looked for next.
    sweep_at: Mono,
    /// When the clock was last looked at.
    looked_at: Mono,
    /// When the engine was built.
    born: Now,
    /// No lease ends before this time: the process did not run for a while.
    lease_floor: Mono,

    rng: Rng,
    last_seq: u64,
    last_event: u64,
    /// Engine time for ordering when the engine was built: the wall clock, or later where a stored job is. From then on
    /// it follows the monotonic clock, so that a wall clock that is set makes no job older or younger than another.
    rank_base: u64,
    /// Attempts opened since the start; dates whose turn it was.
    starts: u64,
    /// Jobs that wait, server-wide.
    waiting: u32,
    /// Open attempts, server-wide.
    open: u32,
}

/// When the engine wants to look at the clock again: whichever comes first.
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
        Engine::empty(settings, seed.into(), now)
    }

    fn empty(mut settings: Settings, seed: Seed, now: Now) -> Engine {
        settings.lanes.entry(Name::fixed(MAIN_LANE)).or_default();
        let lanes: Vec<(Name, LaneSettings)> = settings.lanes.clone().into_iter().collect();
        let mut rng = Rng::new(seed);
        let hashing = Hashing { seed: rng.secret() };
        let mut engine = Engine {
            settings,
            tokens: BTreeMap::new(),
            draining: false,
            storage_low: false,
            jobs: Slab::new(),
            attempts: Slab::new(),
            hashing,
            by_id: Index::new(),
            bins: Pool::new(hashing),
            lanes: Vec::new(),
            lane_of: BTreeMap::new(),
            nodes: Pool::new(hashing),
            idle_nodes: BTreeSet::new(),
            tenants: Pool::new(hashing),
            kinds: Pool::new(hashing),
            classes: Pool::new(hashing),
            places: Pool::new(hashing),
            sessions: Pool::new(hashing),
            idle_sessions: IdleSessions::default(),
            keys: Pool::new(hashing),
            keysets: Pool::new(hashing),
            policies: Pool::new(hashing),
            needs: Pool::new(hashing),
            hours: Pool::new(hashing),
            wants: Pool::new(hashing),
            workers: Pool::new(hashing),
            fleet: Fleet::new(hashing),
            capacity: Capacity::default(),
            fresh_keys: BTreeMap::new(),
            schedules: Schedules::default(),
            deliveries: Deliveries::default(),
            callback_hosts: Pool::new(hashing),
            host_of: BTreeMap::new(),
            runs: Runs::default(),
            chains: Chains::default(),
            forgotten: Forgotten::default(),
            timers: Timers::default(),
            sweep_at: now.mono,
            looked_at: now.mono,
            born: now,
            lease_floor: Mono(0),
            rng,
            last_seq: 0,
            last_event: 0,
            rank_base: u64::try_from(now.wall.0).unwrap_or(0),
            starts: 0,
            waiting: 0,
            open: 0,
        };
        for (name, settings) in lanes {
            engine.add_lane(&name, settings);
        }
        engine
    }

    /// Takes one command at one time and runs dispatch to quiescence. Effects are appended.
    pub fn apply(&mut self, now: Now, command: Command, effects: &mut Effects) -> Reply {
        let reply = self.decide(now, command, effects);
        loop {
            self.settle_runs(now, effects);
            self.settle_schedules(now, effects);
            self.dispatch(now, effects);
            // A job that expires on its way to a start may be a run that a slot waits for, or a member that others do.
            if self.runs.is_settled() && (self.schedules.ended.is_empty() || self.draining) {
                break;
            }
        }
        self.deliver(now, effects);
        reply
    }

    /// Everything so far is durable: the store answers for idempotency keys from here on.
    pub fn committed(&mut self) {
        self.fresh_keys.clear();
        self.runs.fresh_keys.clear();
        self.deliveries.committed();
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The state of a live job.
    pub fn state_of(&self, job: JobId) -> Option<JobState> {
        let state = self.jobs[self.find_job(job)?].state;
        (!state.is_terminal()).then_some(state)
    }
}
