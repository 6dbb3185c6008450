//! A lane and its tree of heads. `tree.rs` keeps the tree up to date.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::recorded_rejections::RejectionWindow;
use crate::engine::queue::agent_queue::AgentQueue;
use crate::engine::queue::class::{Class, Demand};
use crate::engine::queue::rank::FairKey;
use crate::engine::queue::shares::Share;
use crate::engine::queue::source::{SourceKey, Sources};
use crate::{LaneSettings, Name};

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
