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
    pub lingering: u64,
    /// Most attempts at once, server-wide.
    pub running_max: u32,
    /// True while the server stops.
    pub draining: bool,
    /// True while storage runs low and nothing new is admitted.
    pub storage_low: bool,
    /// Every lane, by name.
    pub lanes: Vec<Lane>,
    /// Agents with jobs, by lane and name; at most 1,000.
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
}
