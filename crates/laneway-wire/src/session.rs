//! Sessions: jobs that belong together, as they stand now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A session as it stands now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Its name.
    pub key: String,
    /// Whose it is.
    pub tenant: String,
    /// Its jobs that run.
    pub running: u32,
    /// Runs of canceled jobs that were told to stop and have not ended: they hold the session all the same.
    pub stopping: u32,
    /// Its jobs that wait; a burst that gathers is one.
    pub waiting: u32,
    /// Jobs in the burst that gathers; 0: none gathers.
    pub buffered: u32,
    /// How many of its jobs may run at once while the next one is the next. Absent: none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    /// True while its jobs run one by one because its context is full.
    pub throttled: bool,
    /// Tokens of its context that are used, as last reported.
    pub tokens: u64,
    /// Tokens that its context holds, as last reported; 0: not known.
    pub window: u64,
    /// When everything of it was last stopped: what was sent before is stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<String>,
    /// How often it was reset.
    pub generation: u64,
    /// The job that has run longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_running: Option<String>,
    /// The lane of that job, or of the one that goes next.
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

/// Which jobs of a session a stop ended. All counts are 0 when there was none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionStopped {
    /// The session.
    pub key: String,
    /// Jobs that ran and are told to stop, those that ran longest first; at most 100.
    pub running: Vec<String>,
    /// Jobs that waited, in their order; at most 100.
    pub waiting: Vec<String>,
    /// How many ran.
    pub running_count: u32,
    /// How many waited.
    pub waiting_count: u32,
    /// How often the session was reset so far.
    pub generation: u64,
}

/// What a reset of many sessions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionsReset {
    /// Sessions that were reset: those that had jobs.
    pub sessions: u64,
    /// Jobs that ran and are to stop.
    pub running: u64,
    /// Jobs that waited.
    pub waiting: u64,
}

/// How full the context of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionUsageRequest {
    /// Tokens used.
    pub tokens: u64,
    /// Tokens that the context holds; 0: not known.
    pub window: u64,
}
