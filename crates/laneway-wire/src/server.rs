//! The state of the server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The response to `GET /`: the paths of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Index {
    /// `laneway`.
    pub name: String,
    /// The server's version.
    pub version: String,
    /// The paths, by name.
    pub links: BTreeMap<String, String>,
}

/// Whether the server admits jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// `ready`, `draining` or `storage_low`.
    pub status: String,
}

/// Whether the server is drained, and how many jobs are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// True: the server rejects new jobs.
    pub draining: bool,
    /// The number of jobs that wait.
    pub waiting: u64,
    /// The number of running jobs, with those that were canceled and still run.
    pub running: u64,
}

/// The health of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `degraded` while the server stops, storage is low, or the store answers slowly or not at all.
    pub status: String,
    /// Why it is degraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The server's version.
    pub version: String,
    /// Seconds since the server started.
    pub uptime_seconds: u64,
    /// The load of the server. Absent for callers that may not see statistics of the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<HealthQueue>,
    /// `ok`; `slow` if the store takes longer than a second to answer; `failed` if it cannot be read.
    pub db: String,
    /// The time of the server.
    pub timestamp: String,
}

/// The load of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthQueue {
    /// The number of jobs that wait.
    pub queued: u64,
    /// The number of open attempts.
    pub running: u64,
    /// The limit of open attempts.
    pub max_concurrent: u32,
}
