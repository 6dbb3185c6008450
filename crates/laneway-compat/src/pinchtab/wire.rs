//! The bodies of responses on the wire.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A task. Empty fields and times that have not come are left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Its id.
    pub task_id: String,
    /// The agent.
    pub agent_id: String,
    /// The action.
    pub action: String,
    /// The tab.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tab_id: String,
    /// The element.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The element, by an older field name.
    #[serde(rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// Further parameters of the action.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The priority; lower goes first.
    pub priority: i32,
    /// The name of its state.
    pub state: &'static str,
    /// Its deadline, in the client's own offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// When it was submitted.
    pub created_at: String,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// How long it ran.
    #[serde(skip_serializing_if = "is_zero")]
    pub latency_ms: u64,
    /// The answer of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The callback URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// How many tasks waited when it was submitted, itself included.
    #[serde(skip_serializing_if = "is_zero")]
    pub position: u64,
}

/// The response to an accepted task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// Its id.
    pub task_id: String,
    /// The name of its state.
    pub state: &'static str,
    /// How many tasks waited when it was submitted, itself included.
    pub position: u64,
    /// When it was submitted.
    pub created_at: String,
}

/// The outcome of one task of a batch.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchItem {
    /// Its id.
    pub task_id: String,
    /// The name of its state.
    pub state: &'static str,
    /// How many tasks waited when it was submitted, itself included.
    #[serde(skip_serializing_if = "is_zero")]
    pub position: u64,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The outcome of a batch.
#[derive(Debug, Serialize)]
pub struct Batch {
    /// How many tasks it had, rejected ones included.
    pub submitted: usize,
    /// The tasks.
    pub tasks: Vec<BatchItem>,
}

/// Tasks, newest first.
#[derive(Debug, Serialize)]
pub struct TaskList {
    /// How many are listed.
    pub count: usize,
    /// The tasks.
    pub tasks: Vec<Task>,
    /// True: older tasks match and are not listed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
