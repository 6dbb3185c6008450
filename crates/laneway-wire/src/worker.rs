//! Push workers, commands for them, and the placement constraints of jobs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its name, unique within its tenant.
    pub id: String,
    /// The tenant whose jobs it runs.
    pub tenant: String,
    /// `ready`, `late`, `degraded`, `unhealthy`, `draining`, `lost` or `away`.
    pub state: String,
    /// The version of its program.
    pub version: String,
    /// The machine it runs on.
    pub hostname: String,
    /// How many tasks it runs at once.
    pub max_parallel: u32,
    /// The number of its tasks.
    pub running: u32,
    /// The kinds that it runs without a package.
    pub kinds: Vec<String>,
    /// How many tasks of a kind it runs at once, for kinds with a limit.
    pub kind_limits: BTreeMap<String, u32>,
    /// The installed packages.
    pub packages: Vec<WorkerPackage>,
    /// Its features.
    pub features: Vec<String>,
    /// Its runtimes.
    pub runtimes: Vec<String>,
    /// The labels that its operator set.
    pub labels: BTreeMap<String, String>,
    /// The lanes that it serves. Empty: every lane.
    #[serde(default)]
    pub lanes: Vec<String>,
    /// True: an operator set which lanes it serves, and its registration does not count.
    #[serde(default)]
    pub rebound: bool,
    /// When it connected. For a worker that is away: when it last connected.
    pub connected_at: String,
    /// The milliseconds since its last frame.
    pub silent_ms: u64,
    /// The interval of its heartbeats, in milliseconds.
    pub heartbeat_ms: u64,
    /// True: an operator drains it, and it gets no new tasks.
    pub drained: bool,
    /// True: its memory or its disk is too full.
    pub too_full: bool,
    /// The used memory in percent, as it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_pct: Option<f64>,
    /// The used disk in percent, as it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_pct: Option<f64>,
    /// The used processor time in percent, as it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_pct: Option<f64>,
    /// The round trip of its last heartbeat, in milliseconds, as it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}

/// A package of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Workers, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerList {
    /// The workers.
    pub workers: Vec<Worker>,
}

/// Whether to drain a worker. An absent body means yes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// False: the worker gets tasks again. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<bool>,
}

/// The lanes that a worker serves from now on, whatever it registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebindRequest {
    /// The lanes, at most 256. An empty list means every lane.
    pub lanes: Vec<String>,
}

/// An operation on a package of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageRequest {
    /// `install` or `uninstall`.
    pub operation: String,
    /// The package.
    pub name: String,
    /// Its version. An uninstall without a version removes every version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The URL of the archive, for an install: `https`, `http` or `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The SHA-256 of the archive in 64 hexadecimal digits, for an install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A command was sent to a worker. The audit entries and the worker's packages show the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerCommandSent {
    /// The worker.
    pub worker: String,
    /// The command.
    pub operation: String,
}

/// The placement constraints of a job: what it requires of its worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerConstraints<'a> {
    /// The package whose handler runs it. The kinds of the worker do not count then.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub package: Option<PackageConstraint<'a>>,
    /// Features that the worker must have, at most 16.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<Cow<'a, str>>>,
    /// Labels that the worker must have, at most 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Keeps jobs of one key on one worker.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<AffinityConstraint<'a>>,
    /// Resources on a worker that it uses, at most 16, all on the same worker. Only that worker can run it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ResourceConstraint<'a>>>,
}

/// A package in one exact version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageConstraint<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Its version.
    #[serde(borrow)]
    pub version: Cow<'a, str>,
}

/// Keeps jobs of one key on one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityConstraint<'a> {
    /// The key, unique within its tenant.
    #[serde(borrow)]
    pub key: Cow<'a, str>,
    /// `sticky` (only that worker) or `preferred` (that worker, if it has a free slot). Defaults to `preferred`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'a, str>>,
    /// When the affinity ends (RFC 3339). Absent: when the worker is gone.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Cow<'a, str>>,
}

/// A resource on a worker that a job uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceConstraint<'a> {
    /// The resource.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// The worker that has it.
    #[serde(borrow)]
    pub worker: Cow<'a, str>,
    /// The type of the resource.
    #[serde(borrow, rename = "type")]
    pub sort: Cow<'a, str>,
    /// How long the worker keeps it: `run` or `session`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Cow<'a, str>>,
    /// When it expires (RFC 3339). A job that has not started by then fails.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Cow<'a, str>>,
}
