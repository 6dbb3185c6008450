//! The bodies of answers, as they stand on the wire.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A task. What is empty is left out; so are times that have not come.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub task_id: String,
    pub agent_id: String,
    pub action: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tab_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    #[serde(rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    pub priority: i32,
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    pub created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub latency_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub position: u64,
}

/// The answer to a task that was taken.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    pub task_id: String,
    pub state: &'static str,
    pub position: u64,
    pub created_at: String,
}

/// What became of one task of a batch.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchItem {
    pub task_id: String,
    pub state: &'static str,
    #[serde(skip_serializing_if = "is_zero")]
    pub position: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What became of a batch.
#[derive(Debug, Serialize)]
pub struct Batch {
    pub submitted: usize,
    pub tasks: Vec<BatchItem>,
}

/// Tasks, newest first.
#[derive(Debug, Serialize)]
pub struct TaskList {
    pub count: usize,
    pub tasks: Vec<Task>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
