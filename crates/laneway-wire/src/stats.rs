//! Statistics of the server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Lane;

/// Statistics of the server. A token that is bound to a tenant sees the statistics of that tenant only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Jobs that wait for a time.
    pub scheduled: u64,
    /// Jobs that may start.
    pub queued: u64,
    /// Jobs that were offered to a worker.
    pub assigned: u64,
    /// Jobs that run.
    pub running: u64,
    /// Attempts of canceled jobs that still run and hold their slots.
    pub still_running: u64,
    /// The limit of open attempts, server-wide.
    pub running_max: u32,
    /// True while the server stops.
    pub draining: bool,
    /// True while storage is low and the server rejects new jobs.
    pub storage_low: bool,
    /// Every lane, by name.
    pub lanes: Vec<Lane>,
    /// Agents with jobs, then agents that had jobs, by lane and name; at most 1,000.
    pub agents: Vec<AgentStats>,
}

/// Statistics of an agent in a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentStats {
    /// The tenant.
    pub tenant: String,
    /// The agent.
    pub agent: String,
    /// The lane.
    pub lane: String,
    /// The number of jobs that wait.
    pub waiting: u64,
    /// The number of open attempts.
    pub running: u64,
    /// Counters of its jobs since the server started. The server keeps a bounded number of agents without jobs.
    #[serde(default)]
    pub counts: Counts,
}

/// Counters of jobs since the server started. Each end counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Jobs that were admitted.
    pub submitted: u64,
    /// Jobs that were rejected because a queue was full.
    pub rejected: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// The part of `failed` whose deadline or queue timeout passed while they waited.
    pub expired: u64,
    /// Jobs whose first attempt was opened.
    pub dispatched: u64,
    /// The sum of their waits for the first attempt, in milliseconds.
    pub queue_wait_ms: u64,
    /// Attempts that ran and have ended, without lost ones.
    pub runs: u64,
    /// The sum of their run times, in milliseconds.
    pub run_time_ms: u64,
}
