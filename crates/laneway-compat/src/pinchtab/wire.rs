//! The bodies of answers, as they stand on the wire.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A task. What is empty is left out; so are times that have not come.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Its id.
    pub task_id: String,
    /// On whose behalf.
    pub agent_id: String,
    /// What to do.
    pub action: String,
    /// With which tab.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tab_id: String,
    /// With which element.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// With which element, by an older name.
    #[serde(rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// What else the action needs.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// Lower goes first.
    pub priority: i32,
    /// Their word for its state.
    pub state: &'static str,
    /// When it is over, in the client's own offset.
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
    /// What the instance answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Who is told of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// How many tasks waited when it was submitted, itself included.
    #[serde(skip_serializing_if = "is_zero")]
    pub position: u64,
}

/// The answer to a task that was taken.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// Its id.
    pub task_id: String,
    /// Their word for its state.
    pub state: &'static str,
    /// How many tasks waited when it was submitted, itself included.
    pub position: u64,
    /// When it was submitted.
    pub created_at: String,
}

/// What became of one task of a batch.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchItem {
    /// Its id.
    pub task_id: String,
    /// Their word for its state.
    pub state: &'static str,
    /// How many tasks waited when it was submitted, itself included.
    #[serde(skip_serializing_if = "is_zero")]
    pub position: u64,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What became of a batch.
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
    /// How many there are.
    pub count: usize,
    /// The tasks.
    pub tasks: Vec<Task>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
