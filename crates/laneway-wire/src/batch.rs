//! Many jobs in one call.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Job, JobRequest, Problem, object};

/// Most jobs of a batch: one command of the engine stays short enough for others to wait for.
pub const BATCH_JOBS_MAX: usize = 10_000;

/// Many jobs to run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest<'a> {
    /// The jobs, in order.
    #[serde(borrow, deserialize_with = "object::list_up_to::<_, _, BATCH_JOBS_MAX>")]
    pub jobs: Vec<JobRequest<'a>>,
    /// True: all or none. Defaults to false: each for itself.
    #[serde(default)]
    pub atomic: bool,
}

/// One verdict for each job, in the order of the request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchResponse<'a> {
    /// How many jobs were admitted (repeats of earlier requests included).
    pub accepted: usize,
    /// How many were rejected.
    pub rejected: usize,
    /// The verdicts.
    pub items: Vec<BatchItem<'a>>,
}

/// The verdict on one job of a batch: what a call of its own would have answered.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchItem<'a> {
    /// The HTTP status that a call of its own would have had.
    pub status: u16,
    /// The admitted job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job<'a>>,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}
