//! Lanes: named pools with limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Counts;

/// A lane with its limits and its figures of now. A token that is bound to a tenant sees that tenant's figures only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// True: nothing starts in it.
    pub paused: bool,
    /// Most jobs that may wait in it.
    pub queued_max: u32,
    /// Most jobs of one agent that may wait in it.
    pub queued_per_agent_max: u32,
    /// Most attempts that may be open in it.
    pub running_max: u32,
    /// Most attempts of one agent that may be open in it.
    pub running_per_agent_max: u32,
    /// Whose turn it is: `fair` (the agent with the fewest open attempts) or `priority` (the best job).
    pub order: String,
    /// One level of priority is worth this much waiting time; absent: priority always goes before age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aging_step: Option<String>,
    /// How long ended jobs are kept.
    pub retention: String,
    /// What becomes of waiting jobs when the server stops: `keep` or `cancel`.
    pub on_shutdown: String,
    /// How its jobs get to who runs them: `push` (they are given out), `reserve` or `claim` (workers ask for them).
    #[serde(default)]
    pub dispatch: String,
    /// Jobs that wait now.
    pub waiting: u64,
    /// Attempts that are open now.
    pub running: u64,
    /// The job that has waited longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<OldestJob>,
    /// What happened in it since the server started.
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

/// What a lane shall be. What is absent stays as it is; for a new lane it takes its default.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LaneRequest {
    /// True: nothing starts in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Most jobs that may wait in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_max: Option<u32>,
    /// Most jobs of one agent that may wait in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_per_agent_max: Option<u32>,
    /// Most attempts that may be open in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
    /// Most attempts of one agent that may be open in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_per_agent_max: Option<u32>,
    /// `fair` or `priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// One level of priority is worth this much waiting time; `"none"`: priority always goes before age.
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
