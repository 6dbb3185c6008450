//! Figures of now, derived from live jobs and open attempts.

use crate::{JobId, LaneSettings, Name, Wall};

/// Figures of now.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Stats {
    /// Jobs that wait for a time.
    pub scheduled: u64,
    /// Jobs that may start.
    pub queued: u64,
    /// Jobs offered to a worker.
    pub assigned: u64,
    /// Jobs that run.
    pub running: u64,
    /// Runs that were told to stop and whose job has ended, but that still hold their gates.
    pub lingering: u64,
    /// True while the server stops.
    pub draining: bool,
    /// True while storage runs low.
    pub storage_low: bool,
    /// Most attempts at once, server-wide.
    pub running_max: u32,
    /// Every lane, by name.
    pub lanes: Vec<LaneStats>,
    /// Agents with jobs, by lane and name; at most [`Stats::AGENTS_MAX`].
    pub agents: Vec<AgentStats>,
}

impl Stats {
    /// Most agents listed.
    pub const AGENTS_MAX: usize = 1_000;
}

/// Figures of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneStats {
    /// The lane.
    pub lane: Name,
    /// Its settings.
    pub settings: LaneSettings,
    /// Jobs that wait (scheduled or queued).
    pub waiting: u64,
    /// Open attempts.
    pub open: u64,
    /// The job that has waited longest among those listed first in each agent, with the time it was submitted.
    pub oldest: Option<(JobId, Wall)>,
}

/// Figures of an agent in a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentStats {
    /// The tenant.
    pub tenant: Name,
    /// The agent.
    pub agent: Name,
    /// The lane.
    pub lane: Name,
    /// Jobs that wait.
    pub waiting: u64,
    /// Open attempts.
    pub open: u64,
}
