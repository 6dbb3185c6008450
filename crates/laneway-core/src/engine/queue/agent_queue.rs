//! The waiting jobs of one agent in one lane.

use crate::engine::collections::slab::Ix;
use crate::engine::collections::sorted::Sorted;
use crate::engine::queue::bin::Bin;
use crate::engine::queue::counts::Counts;
use crate::engine::queue::lane::Lane;
use crate::engine::queue::rank::{FairKey, Rank};
use crate::engine::queue::source::Sources;

/// The waiting jobs of one agent in one lane, and how the agent was served.
pub(in crate::engine) struct AgentQueue {
    pub(super) lane: Ix<Lane>,
    pub(super) weight: u32,
    pub(super) open: u32,
    pub(super) waiting: u32,
    /// When it was last served, as a count of starts; for one that never was, when it was created.
    pub(super) served: u64,
    /// True while it has no job and is only remembered.
    pub(super) idle: bool,
    /// What happened to its jobs since the start.
    pub(super) counts: Counts,
    /// Its bins, by the source they hang in.
    pub(super) groups: Sources<Group>,
}

impl AgentQueue {
    pub(in crate::engine) fn lane(&self) -> Ix<Lane> {
        self.lane
    }

    /// Open attempts.
    pub(in crate::engine) fn open(&self) -> u32 {
        self.open
    }
}

/// The bins of one agent in one source.
#[derive(Default)]
pub(in crate::engine) struct Group {
    pub(super) bins: Sorted<(Rank, Ix<Bin>), ()>,
    /// The agent's entry in the source: its key, and its slot there.
    pub(super) shown: Option<(FairKey, Ix<AgentEntry>)>,
}

impl Group {
    /// The key of the agent's entry in the source.
    pub(super) fn shown_key(&self) -> Option<FairKey> {
        self.shown.map(|(fair, _)| fair)
    }
}

/// An agent in a source.
pub(in crate::engine) type AgentEntry = (FairKey, Ix<AgentQueue>);
