//! The bodies of answers and events, as they stand on the wire. What has no value is left out.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The answer to a run that was taken.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRef {
    /// The run.
    pub run_id: String,
    /// Their word for its state.
    pub status: &'static str,
    /// SHA-256 of the workflow's canonical form.
    pub definition_hash: String,
    /// The session that started it.
    pub client_id: String,
    /// When it was taken.
    pub created_at: String,
}

/// A run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id.
    pub run_id: String,
    /// Their word for its state.
    pub status: &'static str,
    /// SHA-256 of the workflow's canonical form; empty for one that was not started here.
    pub definition_hash: String,
    /// The session that started it.
    pub client_id: String,
    /// When its first node started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its last node ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// The failure that came first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
    /// What all its nodes made.
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
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// A node of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its id.
    pub node_id: String,
    /// The task that it is: its id again.
    pub task_id: String,
    /// Their word for its state.
    pub status: &'static str,
    /// The worker that has it just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Which dispatch of its run is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// True: a worker was told, and has not said that it took it.
    pub pending_ack: bool,
    /// Things on a worker that it uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_refs: Vec<Value>,
    /// What keeps it with others on one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Value>,
    /// What it made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// What came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// What else is known of it.
    pub metadata: Map<String, Value>,
    /// How it goes.
    pub state: NodeState,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
}

/// How a node goes.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Where in its life it is.
    pub stage: String,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// Since when.
    pub last_updated_at: String,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
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
    /// What else is known.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

/// What a node made. Kept with the job in the words of the workers' protocol, and shown in those of this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all(serialize = "camelCase"))]
pub struct Artifact {
    /// The line of the job's log that tells of it.
    #[serde(skip)]
    pub line: u64,
    /// Its name on the worker.
    pub resource_id: String,
    /// The worker that has it.
    pub worker_id: String,
    /// What sort of thing it is.
    pub r#type: String,
    /// How long it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// True: the result holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<bool>,
    /// When it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// What else is said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A worker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// Its name.
    pub id: String,
    /// The machine it runs on.
    pub hostname: String,
    /// When it was last heard of.
    pub last_heartbeat_at: String,
    /// The lanes whose jobs it gets; empty: every one's.
    pub queues: Vec<String>,
    /// What stands installed.
    pub packages: Vec<WorkerPackage>,
    /// What else is known of it.
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
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// The answer to a command that was passed on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandRef {
    /// The command.
    pub command_id: String,
    /// Whom it is for.
    pub worker_id: String,
    /// When it was passed on.
    pub accepted_at: String,
}

/// What goes around every event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// `v1`.
    pub version: &'static str,
    /// What a client says to go on from here.
    pub id: String,
    /// What happened.
    pub r#type: &'static str,
    /// When.
    pub occurred_at: String,
    /// Whose it is.
    pub scope: Scope,
    /// True: it happened before the stream began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<bool>,
    /// The call that caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What is told.
    pub data: Value,
}

/// Whose an event is.
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
