//! The waiting jobs of one agent in one lane.

use crate::engine::collections::slab::Ix;
use crate::engine::collections::sorted::Sorted;
use crate::engine::counts::Counts;
use crate::engine::queue::bin::Bin;
use crate::engine::queue::lane::Lane;
use crate::engine::queue::rank::{FairKey, Rank};
use crate::engine::queue::source::Sources;

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
