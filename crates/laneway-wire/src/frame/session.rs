//! Frames about the session itself: handshake, registration, acknowledgements and heartbeats.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{self, JsonObject, List, Secret, Table, Text};

/// The largest number of packages, and of manifests, in a registration.
pub const PACKAGES_MAX: usize = 1_024;
/// The largest number of runtimes, of features, and of channels in a registration.
pub const OFFERS_MAX: usize = 256;
/// The largest number of kinds with a limit in a registration.
pub const NODE_LIMITS_MAX: usize = 1_024;
/// The largest number of tasks in a registration.
pub const TASKS_MAX: usize = 16_384;
/// The largest number of metrics in one frame.
pub const METRICS_MAX: usize = 256;

/// The first frame of a connection: the worker and its credentials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Handshake {
    /// The version of the protocol; 1.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "at_least_one")]
    pub protocol: u32,
    /// The credentials of the worker.
    #[serde(deserialize_with = "text::object")]
    pub auth: Auth,
    /// The identity of the worker.
    #[serde(deserialize_with = "text::object")]
    pub worker: WorkerIdentity,
}

/// The credentials of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// A token in the frame, or a client certificate of the connection.
    pub mode: AuthMode,
    /// The token, with `mode` `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The fingerprint of the certificate, with `mode` `mtls`. The server checks the certificate itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// The types of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// A short-lived token, bound to a tenant.
    Token,
    /// A client certificate.
    Mtls,
}

/// The identity of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerIdentity {
    /// Its name. It stays the same after a reconnect or a restart, and equals `sender.id`.
    pub id: Text,
    /// The version of its program.
    pub version: Text,
    /// The machine it runs on.
    pub hostname: Text,
}

/// The second frame: the registration of the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// Its slots, runtimes and features.
    #[serde(deserialize_with = "text::object")]
    pub capabilities: Capabilities,
    /// Its packages.
    #[serde(deserialize_with = "text::objects")]
    pub packages: List<Package, 0, PACKAGES_MAX>,
    /// The lanes that it serves. The server ignores unknown names. Without a known lane, it serves every lane.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "List<Text, 0, OFFERS_MAX>")]
    pub channels: Option<List<Text, 0, OFFERS_MAX>>,
    /// An older name of `channels`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "List<Text, 0, OFFERS_MAX>")]
    pub queues: Option<List<Text, 0, OFFERS_MAX>>,
    /// The manifests of its packages.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<Manifest, 0, PACKAGES_MAX>")]
    pub manifests: Option<List<Manifest, 0, PACKAGES_MAX>>,
    /// The boot id: names the worker's process. The worker chooses it at start, sends it at every connect, and never
    /// uses it again. At most 128 bytes. Without it, every connection counts as a new process.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub boot_id: Option<Text>,
    /// The tasks that the process still has: they run, or their results are not acknowledged yet. All other tasks of
    /// the worker are lost.
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
    /// The number of the attempt, as in the envelope of its dispatch.
    pub seq: u64,
}

impl Register {
    /// The channels, under either name.
    pub fn channels(&self) -> &[Text] {
        self.channels.as_deref().or(self.queues.as_deref()).unwrap_or_default()
    }
}

/// The capabilities of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// How many tasks it runs at once.
    #[serde(deserialize_with = "text::object")]
    pub concurrency: Concurrency,
    /// The runtimes of its handlers, such as `process` or `python`.
    pub runtimes: List<Text, 1, OFFERS_MAX>,
    /// Its features. They include the kinds that it handles, each as `kind:<name>`.
    pub features: List<Text, 0, OFFERS_MAX>,
}

/// How many tasks a worker runs at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Concurrency {
    /// The limit of all tasks.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "at_least_one")]
    pub max_parallel: u32,
    /// The limits of single kinds.
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
    /// Its status.
    pub status: PackageStatus,
}

/// The status of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PackageStatus {
    /// The package can be used.
    Installed,
    /// The package is missing.
    Missing,
    /// The package exists and cannot be used.
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
    /// Its content.
    pub manifest: JsonObject,
}

/// An acknowledgement. It belongs to the frame that `ack.for` of the envelope names, or else `for`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// False when the frame arrived and was rejected. Absent means true.
    #[serde(default = "yes")]
    pub ok: bool,
    /// The id of the frame that arrived.
    pub r#for: Text,
    /// Data for programs: `name=value` pairs or an error code, separated by spaces. Readers skip what they do not
    /// know.
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

/// A heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// False when the worker requests no new work for now.
    pub healthy: bool,
    /// The vital metrics of the worker.
    #[serde(deserialize_with = "text::object")]
    pub metrics: Vitals,
    /// The health of its packages.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_object")]
    #[schemars(with = "PackageHealth")]
    pub packages: Option<PackageHealth>,
}

/// The vital metrics of a worker. It may send further metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vitals {
    /// The number of running tasks.
    pub inflight: u64,
    /// The used processor time in percent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::amount")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub cpu_pct: Option<f64>,
    /// The used memory in percent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::amount")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub mem_pct: Option<f64>,
    /// The used disk in percent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::amount")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub disk_pct: Option<f64>,
    /// The round trip of the last heartbeat, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "u64")]
    pub latency_ms: Option<u64>,
    /// Further metrics.
    #[serde(flatten)]
    pub more: Table<Value, METRICS_MAX>,
}

/// The health of a worker's packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageHealth {
    /// True when they differ from the registration.
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
