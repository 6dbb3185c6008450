//! What the server says about itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where things are: the answer to `GET /`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Index {
    /// `laneway`.
    pub name: String,
    /// The server's version.
    pub version: String,
    /// What is where: a word, and the path.
    pub links: BTreeMap<String, String>,
}

/// Whether the server takes work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// `ready`, `draining` or `storage_low`.
    pub status: String,
}

/// Whether the server is drained, and what is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// True: new jobs are rejected.
    pub draining: bool,
    /// Jobs that wait.
    pub waiting: u64,
    /// Jobs that run, those that are to stop and have not included.
    pub running: u64,
}

/// How the server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `degraded` while the server stops or storage runs low.
    pub status: String,
    /// Why it is degraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The server's version.
    pub version: String,
    /// Seconds since the server started.
    pub uptime_seconds: u64,
    /// How full it is; absent for callers who may not see the figures of the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<HealthQueue>,
    /// `ok` while the store answers.
    pub db: String,
    /// The server's clock.
    pub timestamp: String,
}

/// How full the server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthQueue {
    /// Jobs that wait.
    pub queued: u64,
    /// Attempts that are open.
    pub running: u64,
    /// Most attempts at once.
    pub max_concurrent: u32,
}
