//! Frames about the session itself: who a worker is, what it can do, how it is, and that something arrived.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{self, JsonObject, List, Secret, Table, Text};

/// Most packages, and manifests, that a worker registers.
pub const PACKAGES_MAX: usize = 1_024;
/// Most runtimes, features or channels that a worker registers, of each.
pub const OFFERS_MAX: usize = 256;
/// Most kinds with a limit of their own that a worker registers.
pub const NODE_LIMITS_MAX: usize = 1_024;
/// Most tasks that a worker lists when it registers.
pub const TASKS_MAX: usize = 16_384;
/// Most figures in one frame.
pub const METRICS_MAX: usize = 256;

/// The first frame of a connection: who speaks, and how that is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Handshake {
    /// The version of the protocol; 1.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "at_least_one")]
    pub protocol: u32,
    /// How the worker shows who it is.
    #[serde(deserialize_with = "text::object")]
    pub auth: Auth,
    /// Who the worker is.
    #[serde(deserialize_with = "text::object")]
    pub worker: WorkerIdentity,
}

/// How a worker shows who it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// A token in the frame, or a client certificate of the connection.
    pub mode: AuthMode,
    /// The token, with `mode` `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The fingerprint of the certificate, with `mode` `mtls`; what counts is the certificate itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// The ways to show who one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// A short-lived token, bound to a tenant.
    Token,
    /// A client certificate.
    Mtls,
}

/// Who a worker is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerIdentity {
    /// Its name, the same after every reconnect and restart; equals `sender.id`.
    pub id: Text,
    /// The version of its program.
    pub version: Text,
    /// The machine it runs on.
    pub hostname: Text,
}

/// The second frame: what the worker can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// How much it runs at once, and what it knows.
    #[serde(deserialize_with = "text::object")]
    pub capabilities: Capabilities,
    /// The packages it has.
    #[serde(deserialize_with = "text::objects")]
    pub packages: List<Package, 0, PACKAGES_MAX>,
    /// The lanes whose jobs it wants. Names that are no lanes mean nothing; without a lane among them, every one is meant.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "List<Text, 0, OFFERS_MAX>")]
    pub channels: Option<List<Text, 0, OFFERS_MAX>>,
    /// An older word for `channels`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "List<Text, 0, OFFERS_MAX>")]
    pub queues: Option<List<Text, 0, OFFERS_MAX>>,
    /// The manifests of its packages.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<Manifest, 0, PACKAGES_MAX>")]
    pub manifests: Option<List<Manifest, 0, PACKAGES_MAX>>,
    /// Names the worker's process: chosen when it starts, told at every connect, never used again. At most 128 bytes.
    /// Without it every connection counts as a new process.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub boot_id: Option<Text>,
    /// The tasks that the process still has: they run, or their results are not acknowledged yet. All others that the
    /// worker was given are lost.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<KeptTask, 0, TASKS_MAX>")]
    pub tasks: Option<List<KeptTask, 0, TASKS_MAX>>,
}

/// A task that a worker's process still has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptTask {
    /// The task.
    pub task_id: Text,
    /// Which attempt at it, as in the envelope of its dispatch.
    pub seq: u64,
}

impl Register {
    /// The channels, whichever word they were sent under.
    pub fn channels(&self) -> &[Text] {
        self.channels.as_deref().or(self.queues.as_deref()).unwrap_or_default()
    }
}

/// What a worker can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// How much it runs at once.
    #[serde(deserialize_with = "text::object")]
    pub concurrency: Concurrency,
    /// What its handlers are written in or run on, such as `process` or `python`.
    pub runtimes: List<Text, 1, OFFERS_MAX>,
    /// What it can do beside running tasks; also the kinds it handles, each as `kind:<name>`.
    pub features: List<Text, 0, OFFERS_MAX>,
}

/// How much a worker runs at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Concurrency {
    /// Most tasks at once.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "at_least_one")]
    pub max_parallel: u32,
    /// Most tasks of one kind at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Table<Limit, NODE_LIMITS_MAX>")]
    pub per_node_limits: Option<Table<Limit, NODE_LIMITS_MAX>>,
}

/// A limit: at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Limit(
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "at_least_one")]
    pub u32,
);

/// A package of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Its name.
    pub name: Text,
    /// Its version.
    pub version: Text,
    /// Whether it can be used.
    pub status: PackageStatus,
}

/// Whether a package can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PackageStatus {
    /// It stands.
    Installed,
    /// It should be there and is not.
    Missing,
    /// It is there and cannot be used.
    Failed,
}

/// The manifest of a package.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The package's name.
    pub name: Text,
    /// The package's version.
    pub version: Text,
    /// What it says of itself.
    pub manifest: JsonObject,
}

/// A frame arrived. Matched by `ack.for` of the envelope, else by `for`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// False where the frame arrived and was rejected. Absent means true.
    #[serde(default = "yes")]
    pub ok: bool,
    /// The id of the frame that arrived.
    pub r#for: Text,
    /// Words for programs, each as `name=value` or an error code; readers skip what they do not know.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub info: Option<String>,
}

impl Ack {
    /// The value of `name=value` in `info`, such as `lease_ms`, in milliseconds.
    pub fn info_ms(&self, name: &str) -> Option<u64> {
        let pairs = self.info.as_deref()?.split_whitespace();
        pairs.filter_map(|name| name.split_once('=')).find(|(key, _)| *key == name)?.1.parse().ok()
    }
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// False where the worker wants no new work for now.
    pub healthy: bool,
    /// How it is.
    #[serde(deserialize_with = "text::object")]
    pub metrics: Vitals,
    /// How its packages are.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_object")]
    #[schemars(with = "PackageHealth")]
    pub packages: Option<PackageHealth>,
}

/// How a worker is. Open: whatever else it measures is carried along.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vitals {
    /// How many tasks run.
    pub inflight: u64,
    /// How busy its processors are, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::amount")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub cpu_pct: Option<f64>,
    /// How full its memory is, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::amount")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub mem_pct: Option<f64>,
    /// How full its disk is, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::amount")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub disk_pct: Option<f64>,
    /// How long the last heartbeat took to be acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "u64")]
    pub latency_ms: Option<u64>,
    /// Whatever else it measures.
    #[serde(flatten)]
    pub more: Table<Value, METRICS_MAX>,
}

/// How the packages of a worker are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageHealth {
    /// True where they are not what was registered.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "bool")]
    pub drift: Option<bool>,
}

fn yes() -> bool {
    true
}

fn at_least_one<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(serde::de::Error::custom("must be at least 1")),
        number => Ok(number),
    }
}
