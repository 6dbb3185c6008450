//! Lanes: named pools with limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Counts;

/// A lane with its limits and statistics. A token that is bound to a tenant sees the statistics of that tenant only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// True: no job starts in it.
    pub paused: bool,
    /// How many jobs may wait in it.
    pub queued_max: u32,
    /// How many jobs of one agent may wait in it.
    pub queued_per_agent_max: u32,
    /// How many attempts may be open in it.
    pub running_max: u32,
    /// How many attempts of one agent may be open in it.
    pub running_per_agent_max: u32,
    /// The order of its jobs: `fair` (the agent with the fewest open attempts goes first) or `priority` (the best job
    /// goes first).
    pub order: String,
    /// One level of priority is worth this much waiting time. Absent: priority always goes before age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aging_step: Option<String>,
    /// How long ended jobs are kept.
    pub retention: String,
    /// What happens to waiting jobs when the server stops: `keep` or `cancel`.
    pub on_shutdown: String,
    /// How its jobs get to workers: `push` (the server sends them), `reserve` or `claim` (workers request them).
    #[serde(default)]
    pub dispatch: String,
    /// The number of jobs that wait.
    pub waiting: u64,
    /// The number of open attempts.
    pub running: u64,
    /// The job that has waited longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<OldestJob>,
    /// Counters since the server started.
    #[serde(default)]
    pub counts: Counts,
}

/// The job that has waited longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OldestJob {
    /// Its id.
    pub id: String,
    /// When it was submitted.
    pub created_at: String,
}

/// Every lane, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneList {
    /// The lanes.
    pub lanes: Vec<Lane>,
}

/// The new settings of a lane. An absent field keeps its value; in a new lane it takes its default.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LaneRequest {
    /// True: no job starts in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How many jobs may wait in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_max: Option<u32>,
    /// How many jobs of one agent may wait in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_per_agent_max: Option<u32>,
    /// How many attempts may be open in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
    /// How many attempts of one agent may be open in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_per_agent_max: Option<u32>,
    /// `fair` or `priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// One level of priority is worth this much waiting time. `"none"`: priority always goes before age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "60s")]
    pub aging_step: Option<String>,
    /// How long ended jobs are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "7d")]
    pub retention: Option<String>,
    /// `keep` or `cancel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_shutdown: Option<String>,
    /// `push`, `reserve` or `claim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<String>,
}
