//! The engine: holds every live job in memory and decides.
//!
//! `apply` takes one command at one time, changes memory, and appends what follows to `Effects`. One file per verb; the
//! shapes they share are in `engine/state.rs`, how jobs wait in `engine/waiting.rs`, who runs next in
//! `engine/dispatch.rs`. Nothing here is told to anybody before the caller has made it durable.

mod cancel;
mod capacity;
mod chacha;
mod check;
mod claim;
mod configure;
mod counts;
mod deliveries;
mod dispatch;
mod explain;
mod facts;
mod finish;
mod firing;
mod fleet;
mod gates;
mod held;
mod idle;
mod index;
mod lease;
mod lines;
mod needs;
mod placing;
mod record;
mod recover;
mod refuse;
mod register;
mod rng;
mod schedules;
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
use counts::Forgotten;
use deliveries::Deliveries;
use fleet::{Fleet, Want, Worker};
use idle::IdleSessions;
use index::{Hashing, Index};
use rng::Rng;
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
            self.settle_schedules(now, effects);
            self.dispatch(now, effects);
            // A job that expires on its way to a start may be a run that a slot waits for.
            if self.schedules.ended.is_empty() || self.draining {
                break;
            }
        }
        self.deliver(now, effects);
        reply
    }

    fn decide(&mut self, now: Now, command: Command, effects: &mut Effects) -> Reply {
        match command {
            Command::Submit(submission) => match self.submit(now, *submission, effects) {
                Ok(submitted) => Reply::Submitted(submitted),
                Err(refusal) => Reply::Refused(refusal),
            },
            Command::SubmitBatch { items, atomic } => self.submit_batch(now, items, atomic, effects),
            Command::Start(fence) => self.start(now, &fence, effects),
            Command::Heartbeat(fence) => self.heartbeat(now, &fence, effects),
            Command::Finish(fence, outcome) => self.finish(now, &fence, outcome, effects),
            Command::Log(fence, lines) => self.log(&fence, lines, effects),
            Command::Cancel { tenant, job, origin } => {
                self.cancel(now, tenant.as_ref(), job, &origin, effects)
            }
            Command::Configure { settings, overrides, detail, origin } => {
                self.configure(now, *settings, overrides, detail, &origin, effects)
            }
            Command::Offer(offer) if matches!(offer.place.as_str(), held::LEASES | workers::WORKERS) => {
                let message = format!(
                    "place: the name {:?} is taken by the house; choose another",
                    offer.place.as_str()
                );
                Reply::Refused(submit::refuse(crate::RefusalCode::Invalid, message))
            }
            Command::Offer(offer) => self.offer_place(offer),
            Command::Withdraw(place) => self.withdraw_place(&place),
            Command::PutToken(token, origin) => self.put_token(now, *token, &origin, effects),
            Command::RevokeToken { id, tenant, origin } => {
                self.revoke_token(now, &id, tenant.as_ref(), &origin, effects)
            }
            Command::Note { kind, tenant, detail, origin } => {
                let detail = record::cut_note(detail);
                self.house_event(now, kind, tenant, Some(&origin), detail, effects);
                Reply::Done
            }
            Command::Publish { tenant, detail } => self.publish(now, tenant, detail, effects),
            Command::StopSession { tenant, key, what, origin } => {
                self.stop_session(now, &tenant, &key, what, &origin, effects)
            }
            Command::SessionUsage { tenant, key, tokens, window } => {
                self.session_usage(now, &tenant, &key, (tokens, window), effects)
            }
            Command::ResetSessions { origin } => self.reset_sessions(now, &origin, effects),
            Command::PutSchedule(spec, origin) => self.put_schedule(now, *spec, &origin, effects),
            Command::UpdateSchedule { tenant, id, patch, origin } => {
                self.update_schedule(now, tenant.as_ref(), id, *patch, &origin, effects)
            }
            Command::DeleteSchedule { tenant, id, origin } => {
                self.delete_schedule(now, tenant.as_ref(), id, &origin, effects)
            }
            Command::ToggleSchedule { tenant, id, enabled, origin } => {
                self.toggle_schedule(now, tenant.as_ref(), id, enabled, &origin, effects)
            }
            Command::RunSchedule { tenant, id, mode, origin } => {
                self.run_schedule(now, tenant.as_ref(), id, mode, &origin, effects)
            }
            Command::DeliveryTried { seq, number, took, outcome } => {
                self.delivery_tried(now, seq, number, took, &outcome, effects)
            }
            Command::Redeliver { tenant, job, stored, origin } => {
                self.redeliver(now, tenant.as_ref(), job, stored.map(|row| *row), &origin, effects)
            }
            Command::Claim(claim) => self.claim(now, &claim, effects),
            Command::RequestLease(request) => self.request_lease(now, *request, effects),
            Command::Lease(word) => self.lease_word(now, *word, effects),
            Command::Register(register) => self.register(now, *register, effects),
            Command::Worker(word) => self.worker_word(now, *word, effects),
            Command::DrainWorker { tenant, worker, drain, origin } => {
                self.drain_worker(now, &tenant, &worker, drain, &origin, effects)
            }
            Command::Load(reading) => self.take_reading(now, reading),
            Command::Forget { lane, finished_before } => {
                self.forget_ended(now, lane, finished_before, effects)
            }
            Command::StorageLow(low) => {
                self.storage_low = low;
                Reply::Done
            }
            Command::Drain => self.drain(now, effects),
            Command::Tick => {
                self.tick(now, effects);
                Reply::Done
            }
        }
    }

    /// Everything so far is durable: the store answers for idempotency keys from here on.
    pub fn committed(&mut self) {
        self.fresh_keys.clear();
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
