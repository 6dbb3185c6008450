//! The engine: holds every live job in memory and decides.
//!
//! `apply` takes one command at one time, changes memory, and appends what follows to `Effects`. Nothing of that leaves the
//! process before the caller has made it durable. Each folder holds one subject; `apply.rs` says which function carries out
//! which command.

mod apply;
mod capacity;
mod check;
mod collections;
mod configure;
mod counts;
mod jobs;
mod leases;
mod queue;
mod random;
mod recover;
mod retention_clock;
mod schedules;
mod sessions;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod tick;
mod timers;
mod tokens;
mod webhooks;
mod workers;
mod workflows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use capacity::readings::{CapacityView, LeaseView};
pub use collections::fresh::BatchNumber;
pub use counts::Counts;
pub use jobs::recorded_rejections::{RECORDED_REJECTION_BYTES_PER_MINUTE, RECORDED_REJECTIONS_PER_MINUTE};
pub use queue::explain::{Explanation, Hold, Lacks};
pub use recover::{Recovery, Restart, StoreCounters};
pub use sessions::state::SessionView;
pub use stats::{AgentStats, LaneStats, Stats};
pub use webhooks::deliveries::DeliveryStats;

use capacity::readings::Capacity;
use collections::fresh::Fresh;
use collections::index::{Hashing, Index};
use collections::slab::{Interned, Ix, Pool, Slab, Table};
use counts::Forgotten;
use queue::shares::Share;
use random::rng::Rng;
use retention_clock::RetentionClock;
use schedules::commands::Schedules;
use sessions::eviction::IdleSessions;
use state::{
    AgentQueue, Bin, BinKey, Class, ClassKey, Demand, Executor, Job, KeyEntry, KeyName, KeySet, Kind, Lane,
    Open, SessionEntry, Tenant,
};
use timers::Timers;
use tokens::Tokens;
use webhooks::deliveries::Deliveries;
use workers::pool::{PlacementRule, Worker, WorkerPool};
use workflows::chain_limits::Chains;
use workflows::runs::Runs;

use crate::capacity::Hours;
use crate::settings::{LaneSettings, MAIN_LANE};
use crate::{
    Command, Effects, JobId, JobState, Mono, Name, Now, Prior, Reply, RetryPolicy, Seed, Settings, Span, Wall,
};

/// The engine. One loop owns it.
pub struct Engine {
    settings: Settings,
    tokens: Tokens,
    draining: bool,
    /// Nothing new is admitted; what waits still starts.
    closed: bool,
    storage_low: bool,

    jobs: Slab<Job>,
    /// Open attempts; a job points at its own.
    attempts: Slab<Open>,
    hashing: Hashing,
    by_id: Index<Job>,
    bins: Pool<BinKey, Bin>,
    lanes: Table<Lane>,
    lane_of: BTreeMap<Name, Ix<Lane>>,
    /// Lanes that are named no more, with how long their ended jobs are kept.
    removed_lanes: BTreeMap<Name, Span>,
    /// The removed lane that was swept last.
    removed_lane_swept: Option<Name>,
    /// By lane, tenant and name.
    agent_queues: Pool<(Ix<Lane>, Ix<Tenant>, Name), AgentQueue>,
    /// Agents without jobs, by when they were last served.
    idle_agent_queues: BTreeSet<(u64, Ix<AgentQueue>)>,
    tenants: Pool<Name, Tenant>,
    kinds: Pool<Name, Kind>,
    /// By tenant and kind; shared classes by tenant and place.
    classes: Pool<ClassKey, Class>,
    executors: Pool<Name, Executor>,
    /// By tenant and name.
    sessions: Pool<(Ix<Tenant>, Name), SessionEntry>,
    /// Sessions without jobs of which something is remembered, by when that last changed.
    idle_sessions: IdleSessions,
    keys: Pool<KeyName, KeyEntry>,
    keysets: Interned<KeySet>,
    policies: Interned<RetryPolicy>,
    demands: Interned<Demand>,
    hours: Interned<Hours>,
    placements: Interned<PlacementRule>,
    /// Workers that hold attempts or are registered, by tenant and name.
    workers: Pool<(Ix<Tenant>, Name), Worker>,
    pool: WorkerPool,
    capacity: Capacity,
    /// Idempotency keys that the store does not know yet.
    fresh_keys: Fresh<(Name, Name), Prior>,
    /// The batch that commands are applied for.
    batch: BatchNumber,
    schedules: Schedules,
    deliveries: Deliveries,
    /// Hosts of callbacks, each kept once.
    callback_hosts: Interned<Arc<str>>,
    /// Which host a live job calls back, by the job's number.
    host_of: BTreeMap<u64, Ix<Arc<str>>>,
    runs: Runs,
    chains: Chains,
    /// Counts of agents that are not remembered any more.
    forgotten: Forgotten,

    timers: Timers,
    /// What tenants have reserved of the server's queue.
    queue_share: Share,
    /// When old rows are looked for next.
    sweep_at: Mono,
    /// What the age of old rows is counted by.
    retention_clock: RetentionClock,
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
            tokens: Tokens::default(),
            draining: false,
            closed: false,
            storage_low: false,
            jobs: Slab::new(),
            attempts: Slab::new(),
            hashing,
            by_id: Index::new(),
            bins: Pool::new(hashing),
            lanes: Table::new(),
            lane_of: BTreeMap::new(),
            removed_lanes: BTreeMap::new(),
            removed_lane_swept: None,
            agent_queues: Pool::new(hashing),
            idle_agent_queues: BTreeSet::new(),
            tenants: Pool::new(hashing),
            kinds: Pool::new(hashing),
            classes: Pool::new(hashing),
            executors: Pool::new(hashing),
            sessions: Pool::new(hashing),
            idle_sessions: IdleSessions::default(),
            keys: Pool::new(hashing),
            keysets: Interned::new(hashing),
            policies: Interned::new(hashing),
            demands: Interned::new(hashing),
            hours: Interned::new(hashing),
            placements: Interned::new(hashing),
            workers: Pool::new(hashing),
            pool: WorkerPool::new(hashing),
            capacity: Capacity::default(),
            fresh_keys: Fresh::default(),
            batch: BatchNumber::default(),
            schedules: Schedules::default(),
            deliveries: Deliveries::default(),
            callback_hosts: Interned::new(hashing),
            host_of: BTreeMap::new(),
            runs: Runs::default(),
            chains: Chains::default(),
            forgotten: Forgotten::default(),
            timers: Timers::default(),
            queue_share: Share::default(),
            sweep_at: now.mono,
            retention_clock: RetentionClock::new(now, None),
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
        engine.recount_shares();
        engine
    }

    /// Takes one command at one time and runs dispatch to quiescence. Effects are appended.
    pub fn apply(&mut self, now: Now, command: Command, effects: &mut Effects) -> Reply {
        if now.wall < self.retention_clock.wall() {
            self.look_at_clock(now, effects);
        }
        let reply = self.carry_out(now, command, effects);
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

    /// Ends a batch: what is applied from now on belongs to the next one. Gives its number, for [`Engine::committed`].
    pub fn end_batch(&mut self) -> BatchNumber {
        let number = self.batch;
        self.batch = number.next();
        number
    }

    /// A batch and those before it are durable: from now on the store answers for their idempotency keys.
    pub fn committed(&mut self, batch: BatchNumber) {
        self.fresh_keys.committed(batch);
        self.runs.fresh_keys.committed(batch);
        self.deliveries.fresh.committed(batch);
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
