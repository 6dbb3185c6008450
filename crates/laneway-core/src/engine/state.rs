//! What the engine remembers: jobs, and the things that jobs share.
//!
//! Only shapes and their smallest helpers live here. How waiting jobs hang in the tree of heads is in `waiting.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::counts::Counts;
use super::refuse::RefusalWindow;
use super::slab::{Ix, NONE};
use super::sorted::Sorted;
use crate::capacity::QuietRule;
use crate::settings::KindSettings;
use crate::worker::Affinity;
use crate::{AttemptEnd, AttemptId, JobId, JobState, LaneSettings, Mono, Name, PlaceMode, Span, Wall};

/// A live job, or an ended one whose run has not ended yet. Holds no strings.
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) seq: u64,
    pub(super) rank_time: u64,
    pub(super) last_event: u64,
    pub(super) created_at: Wall,
    pub(super) deadline: MaybeWall,
    /// For a scheduled job: when it becomes queued.
    pub(super) wake: Option<Wake>,
    /// Until when its first attempt must open.
    pub(super) queue_until: MaybeMono,
    /// When its deadline is near; none once it is, or where that means nothing.
    pub(super) near_at: MaybeWall,
    /// For a queued job: when its hours end.
    pub(super) hours_end: MaybeWall,
    pub(super) timeout_ms: u64,
    pub(super) queue_timeout_ms: u64,
    pub(super) priority: i32,
    pub(super) node: Ix,
    pub(super) class: Ix,
    pub(super) session: Ix,
    pub(super) keyset: Ix,
    pub(super) policy: Ix,
    /// The bin it waits in, or `NONE`.
    pub(super) bin: Ix,
    pub(super) session_max: u32,
    /// It ended the jobs of its session that came before it, and waits for the last of their runs.
    pub(super) interrupts: bool,
    pub(super) attempts: u32,
    pub(super) failures: u32,
    pub(super) losses: u32,
    pub(super) rejections: u32,
    /// The hours in which it starts, or `NONE`.
    pub(super) hours: Ix,
    pub(super) state: JobState,
    /// True when somebody is owed the news of its end.
    pub(super) has_callback: bool,
    /// How often a younger job started while others' units alone held this one back.
    pub(super) overtaken: u8,
    /// True once its deadline is near.
    pub(super) near: bool,
    /// True: only for a worker that holds nothing else, where workers ask.
    pub(super) unique: bool,
    /// True for a member of a run; what its run knows of it is in a map of its own.
    pub(super) in_run: bool,
    /// The open attempt, or `NONE`.
    pub(super) open: Ix,
    /// Its entries in the timers.
    pub(super) armed: Armed,
}

/// When a scheduled job becomes queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wake {
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
pub(super) struct Armed {
    pub(super) mono: MaybeMono,
    pub(super) wall: MaybeWall,
}

/// A point of the monotonic clock or none, in one word: there are a million of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct MaybeMono(u64);

/// A point of the wall clock or none, in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct MaybeWall(i64);

impl MaybeMono {
    pub(super) const NONE: MaybeMono = MaybeMono(u64::MAX);

    pub(super) fn get(self) -> Option<Mono> {
        (self != MaybeMono::NONE).then_some(Mono(self.0))
    }

    pub(super) fn is_due(self, now: Mono) -> bool {
        self != MaybeMono::NONE && self.0 <= now.0
    }
}

impl MaybeWall {
    pub(super) const NONE: MaybeWall = MaybeWall(i64::MAX);

    pub(super) fn get(self) -> Option<Wall> {
        (self != MaybeWall::NONE).then_some(Wall(self.0))
    }

    pub(super) fn is_due(self, now: Wall) -> bool {
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
pub(super) struct Open {
    pub(super) job: Ix,
    pub(super) attempt_id: AttemptId,
    pub(super) lease_epoch: u32,
    pub(super) place: Ix,
    pub(super) opened_at: Wall,
    pub(super) started_at: Option<Wall>,
    /// The longest lease that its runner was told.
    pub(super) lease: Span,
    /// Until when it must be heard of. `None`: it is attached and needs no lease.
    pub(super) lease_until: Option<Mono>,
    /// Until when it may run.
    pub(super) timeout_at: Option<Mono>,
    /// Why it was told to stop, and until when it may take to do so.
    pub(super) stopping: Option<(AttemptEnd, Mono)>,
    /// True: workers ask for it, and somebody may find it by its id.
    pub(super) pull: bool,
    /// The worker that asked for it or was told of it, or `NONE`.
    pub(super) worker: Ix,
    /// For a worker that was told: it said that it took it, over the connection it has now. Only then its signs of life keep
    /// the attempt alive.
    pub(super) acked: bool,
    /// That worker's process.
    pub(super) pid: Option<u32>,
    /// How many attempts were opened up to it, since the start; 0 for one from before.
    pub(super) number: u64,
    /// Which attempt of its run it is; outside of runs, of its job.
    pub(super) dispatch_seq: u64,
    /// Until when the call that it waits for must be answered.
    pub(super) next_until: Option<Mono>,
}

impl Open {
    /// True for an attempt that a worker was told of.
    pub(super) fn is_pushed(&self) -> bool {
        self.worker != NONE && !self.pull
    }

    /// How it lives and dies. Fixed when it opened: a place may change its mode while its attempts go on.
    pub(super) fn mode(&self) -> PlaceMode {
        if self.lease_until.is_some() { PlaceMode::Leased } else { PlaceMode::Attached }
    }
}

/// A lane and its tree of heads.
pub(super) struct Lane {
    pub(super) name: Name,
    pub(super) settings: LaneSettings,
    pub(super) open: u32,
    pub(super) waiting: u32,
    pub(super) served: u64,
    /// Jobs that ended since the last retention sweep.
    pub(super) ended: u32,
    /// Refusals that it has kept lately.
    pub(super) refusals: RefusalWindow,
    pub(super) sources: Sources<Source>,
    pub(super) classes: BTreeMap<Ix, ClassHeads>,
    /// The visible heads of jobs that ask nothing of the machine; the first one is next.
    pub(super) heads: BTreeSet<Head>,
    /// The visible heads of all others, by what they need.
    pub(super) needy: BTreeMap<Ix, BTreeSet<Head>>,
    /// Jobs that are set aside for workers and that nobody has taken, in the order they were.
    pub(super) aside: BTreeSet<(u64, Ix)>,
}

/// An agent in a lane.
pub(super) struct Node {
    pub(super) lane: Ix,
    pub(super) weight: u32,
    pub(super) open: u32,
    pub(super) waiting: u32,
    /// When it was last served, as a count of starts; for one that never was, when it came.
    pub(super) served: u64,
    /// True while it has no job and is only remembered.
    pub(super) idle: bool,
    /// What happened to its jobs since the start.
    pub(super) counts: Counts,
    /// Its bins, by the source they hang in.
    pub(super) groups: Sources<Group>,
}

/// The bins of one agent in one source.
#[derive(Default)]
pub(super) struct Group {
    pub(super) bins: Sorted<(Rank, Ix), ()>,
    /// The agent's entry in the source.
    pub(super) shown: Option<Turn>,
}

/// Where a bin hangs: ready (both `NONE`), on its class, or on one key of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SourceKey {
    pub(super) class: Ix,
    pub(super) key: Ix,
}

impl SourceKey {
    pub(super) const READY: SourceKey = SourceKey { class: NONE, key: NONE };
}

/// Something for each source. The ready one, which nearly all need, stands apart from those that hang on a gate.
#[derive(Default)]
pub(super) struct Sources<T> {
    pub(super) ready: T,
    pub(super) parked: BTreeMap<SourceKey, T>,
}

impl<T: Default> Sources<T> {
    pub(super) fn get(&self, source: SourceKey) -> Option<&T> {
        if source == SourceKey::READY { Some(&self.ready) } else { self.parked.get(&source) }
    }

    pub(super) fn get_mut(&mut self, source: SourceKey) -> Option<&mut T> {
        if source == SourceKey::READY { Some(&mut self.ready) } else { self.parked.get_mut(&source) }
    }

    pub(super) fn get_or_default(&mut self, source: SourceKey) -> &mut T {
        if source == SourceKey::READY { &mut self.ready } else { self.parked.entry(source).or_default() }
    }

    /// Forgets what is empty now.
    pub(super) fn prune(&mut self, source: SourceKey) {
        if source != SourceKey::READY {
            self.parked.remove(&source);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SourceKey, &T)> {
        let parked = self.parked.iter().map(|(source, item)| (*source, item));
        std::iter::once((SourceKey::READY, &self.ready)).chain(parked)
    }
}

/// Agents with bins in one source, in the order of their turns.
#[derive(Default)]
pub(super) struct Source {
    pub(super) agents: BTreeSet<(Turn, Ix)>,
    /// What the level above shows of it.
    pub(super) head: Option<(Turn, Ix)>,
}

/// The heads of all sources of one class in a lane.
#[derive(Default)]
pub(super) struct ClassHeads {
    pub(super) heads: BTreeSet<Head>,
    /// What the lane shows of it.
    pub(super) head: Option<Head>,
}

/// A head: whose turn, which agent, and where its bin hangs.
pub(super) type Head = (Turn, Ix, SourceKey);

/// Whose turn it is; the smallest goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Turn {
    /// Open attempts for its weight. 0 in lanes that go by priority.
    pub(super) load: u64,
    /// When it was last served. 0 in lanes that go by priority.
    pub(super) served: u64,
    /// Its best job.
    pub(super) rank: Rank,
}

/// The order of jobs; the smallest goes first. `seq` makes it unique.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    high: u64,
    low: u64,
}

impl Rank {
    /// Bits for the submit number where it shares a word with the time: enough for a million jobs a second for a century.
    const SEQ_BITS: u32 = 52;

    /// One number first, then the submit number.
    pub(super) fn by_level(level: i64, seq: u64) -> Rank {
        Rank { high: (level as u64) ^ (1 << 63), low: seq }
    }

    /// Priority first, then the time (44 bits of milliseconds reach the year 2527), then the submit number.
    pub(super) fn by_priority(priority: i32, time: u64, seq: u64) -> Rank {
        let priority = (priority as u32) ^ (1 << 31);
        let time = time.min((1 << 44) - 1);
        let rest = (u128::from(time) << Rank::SEQ_BITS) | u128::from(seq & ((1 << Rank::SEQ_BITS) - 1));
        Rank { high: (u64::from(priority) << 32) | (rest >> 64) as u64, low: rest as u64 }
    }
}

/// Waiting jobs that go in one order and need the same: of one agent, shelf and keys, or of one session.
pub(super) struct Bin {
    pub(super) jobs: Sorted<Rank, Ix>,
    /// Where it hangs; `None` while its session or its head's backoff holds it.
    pub(super) at: Option<Hanging>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hanging {
    pub(super) node: Ix,
    pub(super) source: SourceKey,
    pub(super) rank: Rank,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum BinKey {
    Plain { node: Ix, shelf: Ix, keyset: Ix },
    Session(Ix),
}

/// A tenant.
pub(super) struct Tenant {
    pub(super) waiting: u32,
    /// Jobs in memory by the code of their state.
    pub(super) states: [u32; JobState::ALL.len()],
    pub(super) gate: Gate,
    pub(super) classes: BTreeSet<Ix>,
}

/// A kind.
pub(super) struct Kind {
    /// What the settings say of it; nothing where they do not name it.
    pub(super) settings: KindSettings,
    pub(super) gate: Gate,
    /// Where it runs, or `NONE`.
    pub(super) place: Ix,
    pub(super) classes: BTreeSet<Ix>,
}

/// A tenant's jobs of a kind in a lane: what the gates of tenant, kind and place hold back together, and what the same
/// workers may run. Or a shelf: a tenant's jobs of all kinds of one place that have no limit of their own, which only tenant
/// and place hold back, whatever their lane.
pub(super) struct Class {
    pub(super) tenant: Ix,
    /// `NONE` for a shelf.
    pub(super) lane: Ix,
    /// `NONE` for a shelf.
    pub(super) kind: Ix,
    /// The place of a shelf, else `NONE`.
    pub(super) place: Ix,
    /// What its jobs want of workers beside their kind, or `NONE`.
    pub(super) want: Ix,
    /// What its jobs ask of the machine, or `NONE`.
    pub(super) need: Ix,
    /// The workers that fit, or `NONE`.
    pub(super) route: Ix,
    /// The class that its jobs' bins stand for: a shelf, or itself.
    pub(super) shelf: Ix,
    /// Lanes where bins hang on it.
    pub(super) lanes: BTreeSet<Ix>,
}

/// What tells classes apart. A shelf has a place, every other class a lane and a kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ClassKey {
    pub(super) tenant: Ix,
    pub(super) lane: Ix,
    pub(super) kind: Ix,
    pub(super) place: Ix,
    pub(super) want: Ix,
    pub(super) need: Ix,
}

/// What a job asks of the machine, and whether workers ask for it. There are few different ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Need {
    pub(super) cost: u32,
    pub(super) rule: Option<QuietRule>,
    /// Workers ask for it: no place need offer its kind.
    pub(super) pull: bool,
    /// Only for a worker that holds nothing else.
    pub(super) unique: bool,
}

/// A place where attempts run.
pub(super) struct Place {
    pub(super) mode: PlaceMode,
    pub(super) gate: Gate,
    /// Kinds it offers now; empty when withdrawn.
    pub(super) kinds: BTreeSet<Ix>,
    /// The shelves of its kinds, one a tenant.
    pub(super) shelves: BTreeSet<Ix>,
}

/// What a key stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum KeyName {
    /// A named resource of a tenant.
    Named(Ix, Name, Name),
    /// Jobs that stay together. Always open: it keeps them in bins of their own.
    Affinity { tenant: Ix, affinity: Affinity },
    /// Jobs that use something on a worker, until then. Always open, too.
    Pin { worker: Ix, expires_at: Option<Wall> },
    /// Jobs that wait for a free slot of a worker, for any kind (`NONE`) or for one. No job holds it.
    Slot { worker: Ix, kind: Ix, number: u64 },
}

/// A named resource, or another thing that jobs wait for together.
pub(super) struct KeyEntry {
    pub(super) gate: Gate,
    /// Sources that hang on it, by lane.
    pub(super) sources: BTreeSet<(Ix, SourceKey)>,
}

/// A session.
pub(super) struct SessionEntry {
    /// Its jobs with an open attempt, in the order in which they opened; ended ones whose run has not ended included.
    pub(super) runs: Vec<Ix>,
    /// The bin of its waiting jobs, or `NONE`.
    pub(super) bin: Ix,
    /// Its jobs that wait for their not-before time, which are in no bin.
    pub(super) later: BTreeMap<Rank, Ix>,
    /// The burst that gathers.
    pub(super) buffer: Option<Buffer>,
    /// What is remembered of it beside its jobs.
    pub(super) facts: Option<Box<Facts>>,
}

impl Default for SessionEntry {
    fn default() -> SessionEntry {
        SessionEntry { runs: Vec::new(), bin: NONE, later: BTreeMap::new(), buffer: None, facts: None }
    }
}

/// A burst that gathers: jobs that come within the debounce window of one another and run as one.
pub(super) struct Buffer {
    /// The job that runs for all of them.
    pub(super) leader: Ix,
    /// Its window never reaches past this.
    pub(super) until_max: Mono,
    /// Jobs that joined.
    pub(super) absorbed: u32,
    /// Bytes of payload so far.
    pub(super) bytes: u64,
}

/// What is remembered of a session beside its jobs.
pub(super) struct Facts {
    pub(super) cutoff: Option<Wall>,
    pub(super) generation: u64,
    pub(super) tokens: u64,
    pub(super) window: u64,
    pub(super) updated_at: Wall,
}

/// A limit and how much of it open attempts use. `used` changes only when an attempt opens or closes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) limit: u32,
    pub(super) used: u32,
}

impl Gate {
    pub(super) fn with_limit(limit: u32) -> Gate {
        Gate { limit, used: 0 }
    }

    pub(super) fn is_open(&self) -> bool {
        self.used < self.limit
    }
}
