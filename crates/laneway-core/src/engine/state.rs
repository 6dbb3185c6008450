//! What the engine remembers: jobs, and the things that jobs share.
//!
//! Only shapes and their smallest helpers live here. How waiting jobs hang in the tree of heads is in `queue/tree.rs`.

use crate::engine::workers::pool::{PlacementRule, Route, Worker};
use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::{Hours, QuietRule};
use crate::engine::collections::slab::Ix;
use crate::engine::collections::sorted::Sorted;
use crate::engine::counts::Counts;
use crate::engine::jobs::recorded_rejections::RejectionWindow;
use crate::engine::queue::shares::Share;
use crate::settings::KindSettings;
use crate::worker::Affinity;
use crate::{
    AttemptEnd, AttemptId, ExecutorMode, JobId, JobState, LaneSettings, Mono, Name, RetryPolicy, Span, Wall,
};

/// A live job, or an ended one whose run has not ended yet. Holds no strings.
pub(in crate::engine) struct Job {
    pub(in crate::engine) id: JobId,
    pub(in crate::engine) seq: u64,
    pub(in crate::engine) rank_time: u64,
    pub(in crate::engine) last_event: u64,
    pub(in crate::engine) created_at: Wall,
    pub(in crate::engine) deadline: MaybeWall,
    /// For a scheduled job: when it becomes queued.
    pub(in crate::engine) wake: Option<Wake>,
    /// Until when its first attempt must open.
    pub(in crate::engine) queue_until: MaybeMono,
    /// When its deadline is near; none once it is, or where that means nothing.
    pub(in crate::engine) near_at: MaybeWall,
    /// For a queued job: when its hours end.
    pub(in crate::engine) hours_end: MaybeWall,
    pub(in crate::engine) timeout_ms: u64,
    pub(in crate::engine) queue_timeout_ms: u64,
    pub(in crate::engine) priority: i32,
    pub(in crate::engine) node: Ix<AgentQueue>,
    pub(in crate::engine) class: Ix<Class>,
    pub(in crate::engine) session: Option<Ix<SessionEntry>>,
    pub(in crate::engine) keyset: Option<Ix<KeySet>>,
    pub(in crate::engine) policy: Ix<RetryPolicy>,
    /// The bin it waits in.
    pub(in crate::engine) bin: Option<Ix<Bin>>,
    pub(in crate::engine) session_max: u32,
    /// It ended the jobs of its session that came before it, and waits for the last of their runs.
    pub(in crate::engine) interrupts: bool,
    pub(in crate::engine) attempts: u32,
    pub(in crate::engine) failures: u32,
    pub(in crate::engine) losses: u32,
    pub(in crate::engine) rejections: u32,
    /// The hours in which it starts.
    pub(in crate::engine) hours: Option<Ix<Hours>>,
    pub(in crate::engine) state: JobState,
    /// True when somebody is owed the news of its end.
    pub(in crate::engine) has_callback: bool,
    /// How often a younger job started while others' units alone held this one back.
    pub(in crate::engine) bypassed: u8,
    /// True once its deadline is near.
    pub(in crate::engine) near: bool,
    /// True: only for a worker that holds nothing else, where workers ask.
    pub(in crate::engine) unique: bool,
    /// True for a member of a run; what its run knows of it is in a map of its own.
    pub(in crate::engine) in_run: bool,
    /// The open attempt.
    pub(in crate::engine) open: Option<Ix<Open>>,
    /// Its entries in the timers.
    pub(in crate::engine) armed: Armed,
}

impl Job {
    /// Its open attempt. It must have one.
    pub(in crate::engine) fn attempt(&self) -> Ix<Open> {
        self.open.expect("the job has an open attempt")
    }
}

/// When a scheduled job becomes queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Wake {
    /// Not before this time.
    NotBefore(Wall),
    /// Not before this backoff has passed.
    Backoff(Mono),
    /// Not before this debounce window has passed; others may still join it.
    Debounce(Mono),
    /// Not before other nodes of its run have ended well.
    Upstream,
    /// Not before another node of its run calls it.
    Called,
}

/// What the timers hold for a job.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::engine) struct Armed {
    pub(in crate::engine) mono: MaybeMono,
    pub(in crate::engine) wall: MaybeWall,
}

/// A point of the monotonic clock or none, in one word: there are a million of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct MaybeMono(u64);

/// A point of the wall clock or none, in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct MaybeWall(i64);

impl MaybeMono {
    pub(in crate::engine) const NONE: MaybeMono = MaybeMono(u64::MAX);

    pub(in crate::engine) fn get(self) -> Option<Mono> {
        (self != MaybeMono::NONE).then_some(Mono(self.0))
    }

    pub(in crate::engine) fn is_due(self, now: Mono) -> bool {
        self != MaybeMono::NONE && self.0 <= now.0
    }
}

impl MaybeWall {
    pub(in crate::engine) const NONE: MaybeWall = MaybeWall(i64::MAX);

    pub(in crate::engine) fn get(self) -> Option<Wall> {
        (self != MaybeWall::NONE).then_some(Wall(self.0))
    }

    pub(in crate::engine) fn is_due(self, now: Wall) -> bool {
        self != MaybeWall::NONE && self.0 <= now.0
    }
}

impl Default for MaybeMono {
    fn default() -> MaybeMono {
        MaybeMono::NONE
    }
}

impl Default for MaybeWall {
    fn default() -> MaybeWall {
        MaybeWall::NONE
    }
}

impl From<Option<Mono>> for MaybeMono {
    fn from(at: Option<Mono>) -> MaybeMono {
        MaybeMono(at.map_or(u64::MAX, |at| at.0))
    }
}

impl From<Option<Wall>> for MaybeWall {
    fn from(at: Option<Wall>) -> MaybeWall {
        MaybeWall(at.map_or(i64::MAX, |at| at.0))
    }
}

/// An open attempt.
pub(in crate::engine) struct Open {
    pub(in crate::engine) job: Ix<Job>,
    pub(in crate::engine) attempt_id: AttemptId,
    pub(in crate::engine) lease_epoch: u32,
    pub(in crate::engine) executor: Ix<Executor>,
    pub(in crate::engine) opened_at: Wall,
    pub(in crate::engine) started_at: Option<Wall>,
    /// The longest lease that its runner was told.
    pub(in crate::engine) lease: Span,
    /// Until when it must be heard of. `None`: it is attached and needs no lease.
    pub(in crate::engine) lease_until: Option<Mono>,
    /// Until when it may run.
    pub(in crate::engine) timeout_at: Option<Mono>,
    /// Why it was told to stop, and until when it may take to do so.
    pub(in crate::engine) stopping: Option<(AttemptEnd, Mono)>,
    /// True: workers ask for it, and somebody may find it by its id.
    pub(in crate::engine) pull: bool,
    /// The worker that asked for it or was told of it.
    pub(in crate::engine) worker: Option<Ix<Worker>>,
    /// For a worker that was told: it said that it took it, over the connection it has now. Only then its signs of life keep
    /// the attempt alive.
    pub(in crate::engine) acked: bool,
    /// That worker's process.
    pub(in crate::engine) pid: Option<u32>,
    /// How many attempts were opened up to it, since the start; 0 for one from before.
    pub(in crate::engine) number: u64,
    /// Which attempt of its run it is; outside of runs, of its job.
    pub(in crate::engine) dispatch_seq: u64,
    /// Until when the call that it waits for must be answered.
    pub(in crate::engine) next_until: Option<Mono>,
}

impl Open {
    /// True for an attempt that a worker was told of.
    pub(in crate::engine) fn is_pushed(&self) -> bool {
        self.pushed_to().is_some()
    }

    /// The worker that was told of it.
    pub(in crate::engine) fn pushed_to(&self) -> Option<Ix<Worker>> {
        self.worker.filter(|_| !self.pull)
    }

    /// How it lives and dies. Fixed when it opened: a place may change its mode while its attempts go on.
    pub(in crate::engine) fn mode(&self) -> ExecutorMode {
        if self.lease_until.is_some() { ExecutorMode::Leased } else { ExecutorMode::Attached }
    }
}

/// A lane and its tree of heads.
pub(in crate::engine) struct Lane {
    pub(in crate::engine) name: Name,
    pub(in crate::engine) settings: LaneSettings,
    pub(in crate::engine) open: u32,
    pub(in crate::engine) waiting: u32,
    /// What tenants have reserved of its queue.
    pub(in crate::engine) share: Share,
    pub(in crate::engine) served: u64,
    /// Jobs that ended since the last retention sweep.
    pub(in crate::engine) ended: u32,
    /// Rejections that it has kept lately.
    pub(in crate::engine) rejections: RejectionWindow,
    pub(in crate::engine) sources: Sources<Source>,
    pub(in crate::engine) classes: BTreeMap<Ix<Class>, ClassHeads>,
    /// The visible heads of jobs that ask nothing of the machine; the first one is next.
    pub(in crate::engine) heads: BTreeSet<QueueHead>,
    /// The visible heads of all others, by their demands.
    pub(in crate::engine) by_demand: BTreeMap<Ix<Demand>, BTreeSet<QueueHead>>,
    /// Jobs that are reserved for workers and that nobody has taken, in the order they were.
    pub(in crate::engine) reserved: BTreeSet<(u64, Ix<Job>)>,
}

/// An agent in a lane.
pub(in crate::engine) struct AgentQueue {
    pub(in crate::engine) lane: Ix<Lane>,
    pub(in crate::engine) weight: u32,
    pub(in crate::engine) open: u32,
    pub(in crate::engine) waiting: u32,
    /// When it was last served, as a count of starts; for one that never was, when it came.
    pub(in crate::engine) served: u64,
    /// True while it has no job and is only remembered.
    pub(in crate::engine) idle: bool,
    /// What happened to its jobs since the start.
    pub(in crate::engine) counts: Counts,
    /// Its bins, by the source they hang in.
    pub(in crate::engine) groups: Sources<Group>,
}

/// The bins of one agent in one source.
#[derive(Default)]
pub(in crate::engine) struct Group {
    pub(in crate::engine) bins: Sorted<(Rank, Ix<Bin>), ()>,
    /// The agent's entry in the source.
    pub(in crate::engine) shown: Option<FairKey>,
}

/// Where a bin hangs: ready (neither), on its class, or on one key of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::engine) struct SourceKey {
    pub(in crate::engine) class: Option<Ix<Class>>,
    pub(in crate::engine) key: Option<Ix<KeyEntry>>,
}

impl SourceKey {
    pub(in crate::engine) const READY: SourceKey = SourceKey { class: None, key: None };
}

/// Something for each source. The ready one, which nearly all need, stands apart from those that hang on a gate.
#[derive(Default)]
pub(in crate::engine) struct Sources<T> {
    pub(in crate::engine) ready: T,
    pub(in crate::engine) parked: BTreeMap<SourceKey, T>,
}

impl<T: Default> Sources<T> {
    pub(in crate::engine) fn get(&self, source: SourceKey) -> Option<&T> {
        if source == SourceKey::READY { Some(&self.ready) } else { self.parked.get(&source) }
    }

    pub(in crate::engine) fn get_mut(&mut self, source: SourceKey) -> Option<&mut T> {
        if source == SourceKey::READY { Some(&mut self.ready) } else { self.parked.get_mut(&source) }
    }

    pub(in crate::engine) fn get_or_default(&mut self, source: SourceKey) -> &mut T {
        if source == SourceKey::READY { &mut self.ready } else { self.parked.entry(source).or_default() }
    }

    /// Forgets what is empty now.
    pub(in crate::engine) fn prune(&mut self, source: SourceKey) {
        if source != SourceKey::READY {
            self.parked.remove(&source);
        }
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (SourceKey, &T)> {
        let parked = self.parked.iter().map(|(source, item)| (*source, item));
        std::iter::once((SourceKey::READY, &self.ready)).chain(parked)
    }
}

/// Agents with bins in one source, in the order of their turns.
#[derive(Default)]
pub(in crate::engine) struct Source {
    pub(in crate::engine) agents: BTreeSet<(FairKey, Ix<AgentQueue>)>,
    /// What the level above shows of it.
    pub(in crate::engine) head: Option<(FairKey, Ix<AgentQueue>)>,
}

/// The heads of all sources of one class in a lane.
#[derive(Default)]
pub(in crate::engine) struct ClassHeads {
    pub(in crate::engine) heads: BTreeSet<QueueHead>,
    /// What the lane shows of it.
    pub(in crate::engine) head: Option<QueueHead>,
}

/// A head: whose turn, which agent, and where its bin hangs.
pub(in crate::engine) type QueueHead = (FairKey, Ix<AgentQueue>, SourceKey);

/// Whose turn it is; the smallest goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::engine) struct FairKey {
    /// Open attempts for its weight. 0 in lanes that go by priority.
    pub(in crate::engine) load: u64,
    /// When it was last served. 0 in lanes that go by priority.
    pub(in crate::engine) served: u64,
    /// Its best job.
    pub(in crate::engine) rank: Rank,
}

/// The order of jobs; the smallest goes first. `seq` makes it unique.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::engine) struct Rank {
    high: u64,
    low: u64,
}

impl Rank {
    /// Bits for the submit number where it shares a word with the time: enough for a million jobs a second for a century.
    const SEQ_BITS: u32 = 52;

    /// One number first, then the submit number.
    pub(in crate::engine) fn by_level(level: i64, seq: u64) -> Rank {
        Rank { high: (level as u64) ^ (1 << 63), low: seq }
    }

    /// Priority first, then the time (44 bits of milliseconds reach the year 2527), then the submit number.
    pub(in crate::engine) fn by_priority(priority: i32, time: u64, seq: u64) -> Rank {
        let priority = (priority as u32) ^ (1 << 31);
        let time = time.min((1 << 44) - 1);
        let rest = (u128::from(time) << Rank::SEQ_BITS) | u128::from(seq & ((1 << Rank::SEQ_BITS) - 1));
        Rank { high: (u64::from(priority) << 32) | (rest >> 64) as u64, low: rest as u64 }
    }
}

/// Waiting jobs that go in one order and need the same: of one agent, shared class and keys, or of one session.
pub(in crate::engine) struct Bin {
    pub(in crate::engine) jobs: Sorted<Rank, Ix<Job>>,
    /// Where it hangs; `None` while its session or its head's backoff holds it.
    pub(in crate::engine) at: Option<Hanging>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Hanging {
    pub(in crate::engine) node: Ix<AgentQueue>,
    pub(in crate::engine) source: SourceKey,
    pub(in crate::engine) rank: Rank,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::engine) enum BinKey {
    Plain { node: Ix<AgentQueue>, shared_class: Ix<Class>, keyset: Option<Ix<KeySet>> },
    Session(Ix<SessionEntry>),
}

/// A tenant.
pub(in crate::engine) struct Tenant {
    pub(in crate::engine) waiting: u32,
    /// The same by lane.
    pub(in crate::engine) waiting_in: BTreeMap<Ix<Lane>, u32>,
    /// Jobs in memory by the code of their state.
    pub(in crate::engine) states: [u32; JobState::ALL.len()],
    pub(in crate::engine) gate: Gate,
    pub(in crate::engine) classes: BTreeSet<Ix<Class>>,
}

/// A kind.
pub(in crate::engine) struct Kind {
    /// What the settings say of it; nothing where they do not name it.
    pub(in crate::engine) settings: KindSettings,
    pub(in crate::engine) gate: Gate,
    /// Where it runs.
    pub(in crate::engine) executor: Option<Ix<Executor>>,
    pub(in crate::engine) classes: BTreeSet<Ix<Class>>,
}

/// A tenant's jobs of a kind in a lane: what the gates of tenant, kind and place hold back together, and what the same
/// workers may run. Or a shared class: a tenant's jobs of all kinds of one place that have no limit of their own, which only tenant
/// and place hold back, whatever their lane.
pub(in crate::engine) struct Class {
    pub(in crate::engine) tenant: Ix<Tenant>,
    /// `None` for a shared class.
    pub(in crate::engine) lane: Option<Ix<Lane>>,
    /// `None` for a shared class.
    pub(in crate::engine) kind: Option<Ix<Kind>>,
    /// The place of a shared class.
    pub(in crate::engine) executor: Option<Ix<Executor>>,
    /// What its jobs want of workers beside their kind.
    pub(in crate::engine) placement: Option<Ix<PlacementRule>>,
    /// What its jobs ask of the machine.
    pub(in crate::engine) demand: Option<Ix<Demand>>,
    /// The workers that fit.
    pub(in crate::engine) route: Option<Ix<Route>>,
    /// The shared class that its jobs' bins stand for; `None`: they stand for the class itself.
    pub(in crate::engine) shared_class: Option<Ix<Class>>,
    /// Lanes where bins hang on it.
    pub(in crate::engine) lanes: BTreeSet<Ix<Lane>>,
}

impl Class {
    /// Its lane. It must not be a shared class.
    pub(in crate::engine) fn own_lane(&self) -> Ix<Lane> {
        self.lane.expect("a job's class has a lane")
    }

    /// Its kind. It must not be a shared class.
    pub(in crate::engine) fn own_kind(&self) -> Ix<Kind> {
        self.kind.expect("a job's class has a kind")
    }
}

/// What tells classes apart. A shared class has a place, every other class a lane and a kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::engine) struct ClassKey {
    pub(in crate::engine) tenant: Ix<Tenant>,
    pub(in crate::engine) lane: Option<Ix<Lane>>,
    pub(in crate::engine) kind: Option<Ix<Kind>>,
    pub(in crate::engine) executor: Option<Ix<Executor>>,
    pub(in crate::engine) placement: Option<Ix<PlacementRule>>,
    pub(in crate::engine) demand: Option<Ix<Demand>>,
}

/// What a job asks of the machine, and whether workers ask for it. There are few different ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::engine) struct Demand {
    pub(in crate::engine) cost: u32,
    pub(in crate::engine) rule: Option<QuietRule>,
    /// Workers ask for it: no executor need offer its kind.
    pub(in crate::engine) pull: bool,
    /// Only for a worker that holds nothing else.
    pub(in crate::engine) unique: bool,
}

/// A place where attempts run.
pub(in crate::engine) struct Executor {
    pub(in crate::engine) mode: ExecutorMode,
    pub(in crate::engine) gate: Gate,
    /// Kinds it offers now; empty when withdrawn.
    pub(in crate::engine) kinds: BTreeSet<Ix<Kind>>,
    /// The shared classes of its kinds, one a tenant.
    pub(in crate::engine) shared_classes: BTreeSet<Ix<Class>>,
}

/// Keys that a job holds together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct KeySet(pub(in crate::engine) Box<[Ix<KeyEntry>]>);

/// What a key stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum KeyName {
    /// A named resource of a tenant.
    Named(Ix<Tenant>, Name, Name),
    /// Jobs that stay together. Always open: it keeps them in bins of their own.
    Affinity { tenant: Ix<Tenant>, affinity: Affinity },
    /// Jobs that use something on a worker, until then. Always open, too.
    Pin { worker: Ix<Worker>, expires_at: Option<Wall> },
    /// Jobs that wait for a free slot of a worker, for any kind (`None`) or for one. No job holds it.
    Slot { worker: Ix<Worker>, kind: Option<Ix<Kind>>, number: u64 },
}

/// A named resource, or another thing that jobs wait for together.
pub(in crate::engine) struct KeyEntry {
    pub(in crate::engine) gate: Gate,
    /// Sources that hang on it, by lane.
    pub(in crate::engine) sources: BTreeSet<(Ix<Lane>, SourceKey)>,
}

/// A session.
#[derive(Default)]
pub(in crate::engine) struct SessionEntry {
    /// Its jobs with an open attempt, in the order in which they opened; ended ones whose run has not ended included.
    pub(in crate::engine) runs: Vec<Ix<Job>>,
    /// The bin of its waiting jobs.
    pub(in crate::engine) bin: Option<Ix<Bin>>,
    /// Its jobs that wait for their not-before time, which are in no bin.
    pub(in crate::engine) later: BTreeMap<Rank, Ix<Job>>,
    /// The batch that collects.
    pub(in crate::engine) batch: Option<DebounceBatch>,
    /// What is remembered of it beside its jobs.
    pub(in crate::engine) state: Option<Box<SessionState>>,
}

/// A batch that collects: jobs that come within the debounce window of one another and run as one.
pub(in crate::engine) struct DebounceBatch {
    /// The job that runs for all of them.
    pub(in crate::engine) leader: Ix<Job>,
    /// Its window never reaches past this.
    pub(in crate::engine) until_max: Mono,
    /// Jobs that joined.
    pub(in crate::engine) merged: u32,
    /// Bytes of payload so far.
    pub(in crate::engine) bytes: u64,
}

/// What is remembered of a session beside its jobs.
pub(in crate::engine) struct SessionState {
    pub(in crate::engine) cutoff: Option<Wall>,
    pub(in crate::engine) generation: u64,
    pub(in crate::engine) tokens: u64,
    pub(in crate::engine) window: u64,
    pub(in crate::engine) updated_at: Wall,
}

/// A limit and how much of it open attempts use. `used` changes only when an attempt opens or closes.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Gate {
    pub(in crate::engine) limit: u32,
    pub(in crate::engine) used: u32,
}

impl Gate {
    pub(in crate::engine) fn with_limit(limit: u32) -> Gate {
        Gate { limit, used: 0 }
    }

    pub(in crate::engine) fn is_open(&self) -> bool {
        self.used < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::{AgentQueue, Bin, Job, Open};

    /// There may be a million of them.
    #[test]
    fn what_is_kept_of_each_job_stays_small() {
        assert_eq!([size_of::<Job>(), size_of::<Open>(), size_of::<Bin>()], [192, 160, 80]);
        assert_eq!(size_of::<AgentQueue>(), 224);
    }
}
