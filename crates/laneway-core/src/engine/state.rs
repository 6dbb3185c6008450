//! What the engine remembers: jobs, and the things that jobs share.
//!
//! Only shapes and their smallest helpers live here. How waiting jobs hang in the tree of heads is in `waiting.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::slab::{Ix, NONE};
use crate::{AttemptEnd, AttemptId, JobId, JobState, LaneSettings, Mono, Name, PlaceMode, Wall};

/// A live job, or an ended one whose run has not ended yet. Holds no strings.
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) seq: u64,
    pub(super) rank_time: u64,
    pub(super) last_event: u64,
    pub(super) created_at: Wall,
    /// `None`: no deadline.
    pub(super) deadline: Option<Wall>,
    /// For a scheduled job: when it becomes queued.
    pub(super) wake: Option<Wake>,
    /// Until when its first attempt must open.
    pub(super) queue_until: Option<Mono>,
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
    pub(super) attempts: u32,
    pub(super) failures: u32,
    pub(super) losses: u32,
    pub(super) state: JobState,
    /// The open attempt.
    pub(super) open: Option<Box<Open>>,
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
}

/// What the timers hold for a job.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Armed {
    pub(super) mono: Option<Mono>,
    pub(super) wall: Option<Wall>,
}

/// An open attempt.
pub(super) struct Open {
    pub(super) attempt_id: AttemptId,
    pub(super) lease_epoch: u32,
    pub(super) place: Ix,
    pub(super) opened_at: Wall,
    pub(super) started_at: Option<Wall>,
    /// Until when it must be heard of. `None`: it is attached and needs no lease.
    pub(super) lease_until: Option<Mono>,
    /// Until when it may run.
    pub(super) timeout_at: Option<Mono>,
    /// Why it was told to stop, and until when it may take to do so.
    pub(super) stopping: Option<(AttemptEnd, Mono)>,
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
    pub(super) sources: BTreeMap<SourceKey, Source>,
    pub(super) classes: BTreeMap<Ix, ClassHeads>,
    /// The visible heads; the first one is next.
    pub(super) heads: BTreeSet<Head>,
}

/// An agent in a lane.
pub(super) struct Node {
    pub(super) lane: Ix,
    pub(super) weight: u32,
    pub(super) open: u32,
    pub(super) waiting: u32,
    /// When it was last served, as a count of starts. 0 = never, as far as is remembered.
    pub(super) served: u64,
    /// True while it has no job and is only remembered.
    pub(super) idle: bool,
    /// Its bins, by the source they hang in.
    pub(super) groups: BTreeMap<SourceKey, Group>,
}

/// The bins of one agent in one source.
#[derive(Default)]
pub(super) struct Group {
    pub(super) bins: BTreeSet<(Rank, Ix)>,
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
    pub(super) level: i64,
    pub(super) time: u64,
    pub(super) seq: u64,
}

/// Waiting jobs that go in one order and need the same: of one agent, class and keys, or of one session.
pub(super) struct Bin {
    pub(super) key: BinKey,
    pub(super) jobs: BTreeMap<Rank, Ix>,
    /// Where it hangs; `None` while its session or its head's backoff holds it.
    pub(super) at: Option<Hanging>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hanging {
    pub(super) node: Ix,
    pub(super) source: SourceKey,
    pub(super) rank: Rank,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BinKey {
    Plain { node: Ix, class: Ix, keyset: Ix },
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
    pub(super) gate: Gate,
    /// Where it runs, or `NONE`.
    pub(super) place: Ix,
    pub(super) classes: BTreeSet<Ix>,
}

/// A tenant's jobs of a kind: what the gates of tenant, kind and place hold back together.
pub(super) struct Class {
    pub(super) tenant: Ix,
    pub(super) kind: Ix,
    /// Lanes where bins hang on it.
    pub(super) lanes: BTreeSet<Ix>,
}

/// A place where attempts run.
pub(super) struct Place {
    pub(super) mode: PlaceMode,
    pub(super) gate: Gate,
    /// Kinds it offers now; empty when withdrawn.
    pub(super) kinds: BTreeSet<Ix>,
}

/// A named resource.
pub(super) struct KeyEntry {
    pub(super) gate: Gate,
    /// Sources that hang on it, by lane.
    pub(super) sources: BTreeSet<(Ix, SourceKey)>,
}

/// A session.
pub(super) struct SessionEntry {
    pub(super) open: u32,
    /// The bin of its waiting jobs, or `NONE`.
    pub(super) bin: Ix,
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
