//! The bodies of responses and events on the wire. Fields without a value are left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The response to an accepted run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRef {
    /// The run id.
    pub run_id: String,
    /// The name of its state.
    pub status: &'static str,
    /// SHA-256 of the workflow's canonical form.
    pub definition_hash: String,
    /// The session that started it.
    pub client_id: String,
    /// When it was accepted.
    pub created_at: String,
}

/// A run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id.
    pub run_id: String,
    /// The name of its state.
    pub status: &'static str,
    /// SHA-256 of the workflow's canonical form; empty for a run that was not started through this dialect.
    pub definition_hash: String,
    /// The session that started it.
    pub client_id: String,
    /// When its first node started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its last node ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// The first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
    /// The artifacts of all its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<Artifact>>,
    /// Its nodes. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<Node>>,
}

/// A page of runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    /// The runs.
    pub items: Vec<Run>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}

/// A node of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its id.
    pub node_id: String,
    /// Its task id.
    pub task_id: String,
    /// The name of its state.
    pub status: &'static str,
    /// The worker that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// The number of its open dispatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// True: it was sent to a worker, which has not acknowledged it.
    pub pending_ack: bool,
    /// Resources on a worker that it uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_refs: Vec<Value>,
    /// Its affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Value>,
    /// Its artifacts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Additional metadata.
    pub metadata: Map<String, Value>,
    /// Its progress.
    pub state: NodeState,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
}

/// The progress of a node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Its stage.
    pub stage: String,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// When it changed last.
    pub last_updated_at: String,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its own metrics, the latest value of each, while it runs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
}

/// Why something failed.
#[derive(Clone, Debug, Serialize)]
pub struct ResultError {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// Additional details.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

/// An artifact of a node. It is stored with the job in the format of the worker protocol, and rendered in this
/// one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all(serialize = "camelCase"))]
pub struct Artifact {
    /// The line of the job's log that describes it.
    #[serde(skip)]
    pub line: u64,
    /// Its id on the worker.
    pub resource_id: String,
    /// The worker that has it.
    pub worker_id: String,
    /// Its type.
    pub r#type: String,
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// True: the result contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<bool>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Additional metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A worker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// Its name.
    pub id: String,
    /// The machine that it runs on.
    pub hostname: String,
    /// When its last heartbeat came.
    pub last_heartbeat_at: String,
    /// The lanes that it serves; empty: all.
    pub queues: Vec<String>,
    /// The installed packages.
    pub packages: Vec<WorkerPackage>,
    /// Additional metadata.
    pub meta: Value,
}

/// A package on a worker.
#[derive(Debug, Serialize)]
pub struct WorkerPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `installed`.
    pub status: &'static str,
}

/// A page of workers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerList {
    /// The workers.
    pub items: Vec<Worker>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}

/// The response to a command that was sent on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandRef {
    /// The command id.
    pub command_id: String,
    /// The worker.
    pub worker_id: String,
    /// When it was accepted.
    pub accepted_at: String,
}

/// The envelope of every event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// `v1`.
    pub version: &'static str,
    /// The event id, for `Last-Event-ID`.
    pub id: String,
    /// The type of the event.
    pub r#type: &'static str,
    /// When it happened.
    pub occurred_at: String,
    /// What it belongs to.
    pub scope: Scope,
    /// True: it happened before the stream began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<bool>,
    /// The call that caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The data of the event.
    pub data: Value,
}

/// What an event belongs to.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    /// The tenant.
    pub tenant: String,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The session, for events of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_session_id: Option<String>,
}
