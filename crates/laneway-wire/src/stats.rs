//! Figures of now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Lane;

/// Figures of now. A token that is bound to a tenant sees that tenant's figures only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Jobs that wait for a time.
    pub scheduled: u64,
    /// Jobs that may start.
    pub queued: u64,
    /// Jobs offered to a worker.
    pub assigned: u64,
    /// Jobs that run.
    pub running: u64,
    /// Runs that were told to stop and still hold their limits.
    pub still_running: u64,
    /// Most attempts at once, server-wide.
    pub running_max: u32,
    /// True while the server stops.
    pub draining: bool,
    /// True while storage runs low and nothing new is admitted.
    pub storage_low: bool,
    /// Every lane, by name.
    pub lanes: Vec<Lane>,
    /// Agents with jobs, then agents that had some, by lane and name; at most 1,000.
    pub agents: Vec<AgentStats>,
}

/// Figures of an agent in a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentStats {
    /// The tenant.
    pub tenant: String,
    /// The agent.
    pub agent: String,
    /// The lane.
    pub lane: String,
    /// Jobs that wait.
    pub waiting: u64,
    /// Attempts that are open.
    pub running: u64,
    /// What happened to its jobs since the server started. Agents without jobs are remembered in a bounded number.
    #[serde(default)]
    pub counts: Counts,
}

/// What happened to jobs since the server started. Every end counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Jobs that were admitted.
    pub submitted: u64,
    /// Jobs that were rejected because a queue was full.
    pub rejected: u64,
    /// Jobs that ended well.
    pub succeeded: u64,
    /// Jobs that ended badly.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// The part of `failed` whose deadline or queue timeout passed while they waited.
    pub expired: u64,
    /// Jobs whose first attempt opened.
    pub dispatched: u64,
    /// How long these waited for it, all together, in milliseconds.
    pub queue_wait_ms: u64,
    /// Attempts that ran and have ended, lost ones left out.
    pub runs: u64,
    /// How long these ran, all together, in milliseconds.
    pub run_time_ms: u64,
}
