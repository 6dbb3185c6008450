//! Why a job does not run.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a job does not run: everything that holds it back, with figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The job.
    pub id: String,
    /// Its state.
    pub state: String,
    /// The whole answer in one or two sentences.
    pub summary: String,
    /// Everything that holds it back, in the order in which it is looked at. Empty for a job that runs, has ended, or is
    /// the next to start.
    pub blocked_by: Vec<Blocker>,
    /// How many jobs of the same agent, lane and needs go before it.
    pub ahead: u64,
}

/// One thing that holds a job back.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Blocker {
    /// A stable word for programs, such as `lane_full`.
    pub code: String,
    /// One sentence for people.
    pub message: String,
    /// The lane, agent, session, kind, place or key it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// How many run now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u32>,
    /// How many may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How many jobs go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// When its time comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// How long it waits still, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
}
