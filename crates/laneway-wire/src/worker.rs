//! Workers that are told what to run: as they stand now, what may be asked of them, and what jobs want of them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A worker as it stands now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its name, unique within its tenant.
    pub id: String,
    /// Whose jobs it runs.
    pub tenant: String,
    /// `ready`, `late`, `degraded`, `unhealthy`, `draining`, `lost` or `away`.
    pub state: String,
    /// The version of its program.
    pub version: String,
    /// The machine it runs on.
    pub hostname: String,
    /// Most tasks at once.
    pub max_parallel: u32,
    /// Tasks that it holds.
    pub running: u32,
    /// The kinds it runs without a package.
    pub kinds: Vec<String>,
    /// Most tasks of a kind at once, for some kinds.
    pub kind_limits: BTreeMap<String, u32>,
    /// The packages that stand installed.
    pub packages: Vec<WorkerPackage>,
    /// What it can do besides.
    pub features: Vec<String>,
    /// What it runs things with.
    pub runtimes: Vec<String>,
    /// Labels that its operator gave it.
    pub labels: BTreeMap<String, String>,
    /// The lanes whose jobs it gets; empty: every one's.
    #[serde(default)]
    pub lanes: Vec<String>,
    /// True: somebody said which lanes it serves, and what it registers with does not count.
    #[serde(default)]
    pub rebound: bool,
    /// When it connected; for one that is away, when it last did.
    pub connected_at: String,
    /// How long nothing was heard of it, in milliseconds.
    pub silent_ms: u64,
    /// How often it gives a sign of life, in milliseconds.
    pub heartbeat_ms: u64,
    /// True: somebody wants it to take nothing new.
    pub drained: bool,
    /// True: its memory or its disk is too full.
    pub too_full: bool,
    /// Memory in use, in percent, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_pct: Option<f64>,
    /// Disk in use, in percent, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_pct: Option<f64>,
    /// Processors in use, in percent, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_pct: Option<f64>,
    /// How long it last took to be answered, in milliseconds.
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

/// Whether a worker is to take nothing new. An absent body means that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// False: it takes tasks again. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<bool>,
}

/// Which lanes a worker serves from now on, whatever it registers with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebindRequest {
    /// The lanes, at most 256. An empty list: every one.
    pub lanes: Vec<String>,
}

/// What is to be done with a package on a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageRequest {
    /// `install` or `uninstall`.
    pub operation: String,
    /// The package.
    pub name: String,
    /// Its version. An uninstall without one removes every version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where the archive is, for an install: `https`, `http` or `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The SHA-256 of the archive in 64 hexadecimal digits, for an install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A worker was told to do something. What becomes of it stands in the audit list and in the worker's packages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerCommandSent {
    /// The worker.
    pub worker: String,
    /// What it was told.
    pub operation: String,
}

/// What a job wants of the worker that runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerConstraints<'a> {
    /// The package whose handler runs it. Then the package counts, and not the kinds that a worker names.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub package: Option<PackageWanted<'a>>,
    /// Features that the worker must have, at most 16.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<Cow<'a, str>>>,
    /// Labels that the worker must carry, at most 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Keeps jobs of one key on one worker.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<AffinityWanted<'a>>,
    /// Things on a worker that it uses, at most 16, all on the same worker: only that one may run it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ResourceWanted<'a>>>,
}

/// A package in one exact version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageWanted<'a> {
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
pub struct AffinityWanted<'a> {
    /// The key, unique within its tenant.
    #[serde(borrow)]
    pub key: Cow<'a, str>,
    /// `sticky` (only there) or `preferred` (there, if it has a free slot). Defaults to `preferred`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'a, str>>,
    /// Until when that worker is theirs (RFC 3339). Absent: as long as it is there.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Cow<'a, str>>,
}

/// A thing on a worker that a job uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceWanted<'a> {
    /// The thing.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// The worker that has it.
    #[serde(borrow)]
    pub worker: Cow<'a, str>,
    /// What sort of thing it is.
    #[serde(borrow, rename = "type")]
    pub sort: Cow<'a, str>,
    /// How long it is kept there: `run` or `session`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Cow<'a, str>>,
    /// When it is gone (RFC 3339). A job that has not started by then fails.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Cow<'a, str>>,
}
