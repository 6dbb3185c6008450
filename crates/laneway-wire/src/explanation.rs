//! Explanations: why a job does not run.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a job does not run, with everything that blocks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The job.
    pub id: String,
    /// Its state.
    pub state: String,
    /// The explanation in one or two sentences.
    pub summary: String,
    /// The closed gates of the job, in the order in which the server checks them. Empty for a job that runs, has
    /// ended, or starts next.
    pub blocked_by: Vec<Blocker>,
    /// How many jobs of the same agent, lane and capacity request start before it.
    pub ahead: u64,
}

/// One closed gate of a job.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Blocker {
    /// A stable code for programs, such as `lane_full`.
    pub code: String,
    /// One sentence for people.
    pub message: String,
    /// The name of the lane, agent, session, kind, executor or key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// How many slots are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u32>,
    /// The limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How many jobs start before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// When the gate opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The milliseconds until the gate opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
}
