//! Attempts: single tries at a job.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::JobError;

/// One try at a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// 1, 2, 3, … within the job.
    pub attempt: u32,
    /// Its random id. Handlers and workers get the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// `assigned` or `running` while it is open. After its end: `succeeded`, `failed`, `timed_out`, `expired`,
    /// `canceled`, `lost`, `handed_back` or `unanswered`.
    pub state: String,
    /// The executor that runs or ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
    /// When it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<String>,
    /// When it started to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
}

/// The attempts of a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptList {
    /// The attempts.
    pub attempts: Vec<Attempt>,
}
