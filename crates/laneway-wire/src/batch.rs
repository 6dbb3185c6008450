//! Batches: many jobs in one request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Job, JobRequest, Problem, object};

/// The largest number of jobs in a batch. It bounds the time that one command of the engine takes.
pub const BATCH_JOBS_MAX: usize = 10_000;

/// Jobs to submit in one request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest<'a> {
    /// The jobs, in order.
    #[serde(borrow, deserialize_with = "object::list_up_to::<_, _, BATCH_JOBS_MAX>")]
    pub jobs: Vec<JobRequest<'a>>,
    /// True: the server admits all jobs or none. Defaults to false: it decides on each job alone.
    #[serde(default)]
    pub atomic: bool,
}

/// One item for each job, in the order of the request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchResponse<'a> {
    /// The number of admitted jobs. It includes repeats of earlier requests.
    pub accepted: usize,
    /// The number of rejected jobs.
    pub rejected: usize,
    /// The items.
    pub items: Vec<BatchItem<'a>>,
}

/// The response to one job of a batch: the same as to a single submit.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchItem<'a> {
    /// The HTTP status that a single submit would have had.
    pub status: u16,
    /// The admitted job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job<'a>>,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}
