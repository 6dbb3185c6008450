//! Sessions: jobs that start in order.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Its name.
    pub key: String,
    /// Its tenant.
    pub tenant: String,
    /// The number of its running jobs.
    pub running: u32,
    /// Attempts of canceled jobs that still run. They count against the session's limit.
    pub stopping: u32,
    /// The number of its waiting jobs. An open debounce batch counts as one.
    pub waiting: u32,
    /// The number of jobs in the open debounce batch. 0 when none is open.
    pub buffered: u32,
    /// How many of its jobs may run at once while its first waiting job waits. Absent when none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    /// True while its jobs run one by one because its context is full.
    pub throttled: bool,
    /// The used tokens of its context, as last reported.
    pub tokens: u64,
    /// The size of its context in tokens, as last reported. 0 when it is not known.
    pub window: u64,
    /// The cutoff: when the whole session was last stopped. Jobs that were sent before it are stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<String>,
    /// How often it was reset.
    pub generation: u64,
    /// The job that has run longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_running: Option<String>,
    /// The lane of that job, or of the job that starts next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
}

/// Sessions by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionList {
    /// A page of sessions.
    pub sessions: Vec<Session>,
    /// Pass it as `after` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The jobs that a stop of a session ended. All counts are 0 when there were none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionStopped {
    /// The session.
    pub key: String,
    /// Running jobs that must stop, longest-running first; at most 100.
    pub running: Vec<String>,
    /// Waiting jobs, in their order; at most 100.
    pub waiting: Vec<String>,
    /// The number of running jobs.
    pub running_count: u32,
    /// The number of waiting jobs.
    pub waiting_count: u32,
    /// How often the session was reset.
    pub generation: u64,
}

/// The jobs that a reset of many sessions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionsReset {
    /// The number of sessions that were reset: those with jobs.
    pub sessions: u64,
    /// The number of running jobs that must stop.
    pub running: u64,
    /// The number of waiting jobs.
    pub waiting: u64,
}

/// How full the context of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionUsageRequest {
    /// The used tokens.
    pub tokens: u64,
    /// The size of the context in tokens. 0 when it is not known.
    pub window: u64,
}
