//! The objects of the dialect. Fields that the original does not have come last.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A job intent.
#[derive(Debug, Serialize)]
pub struct Intent {
    pub job_id: String,
    pub addon_id: String,
    pub job_type: String,
    pub cost_units: u32,
    pub priority: &'static str,
    pub constraints: Map<String, Value>,
    pub expected_duration_sec: Option<u64>,
    pub payload: Map<String, Value>,
    pub time_sensitive: bool,
    pub earliest_start_at: Option<String>,
    pub deadline_at: Option<String>,
    pub max_runtime_sec: Option<u64>,
    pub tags: Vec<String>,
    pub state: &'static str,
    pub attempts: u32,
    pub next_earliest_start_at: Option<String>,
    pub lease_id: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    /// Additional fields: the holder, its process, the progress, the result and the error.
    pub worker_id: Option<String>,
    pub pid: Option<u32>,
    pub progress: Option<Progress>,
    pub result: Option<Box<RawValue>>,
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_hours: Option<String>,
}

/// A base job.
#[derive(Debug, Serialize)]
pub struct Job {
    pub job_id: String,
    pub r#type: String,
    pub priority: &'static str,
    pub requested_units: u32,
    pub unique: bool,
    pub state: &'static str,
    pub payload: Map<String, Value>,
    pub idempotency_key: Option<String>,
    pub tags: Vec<String>,
    pub max_runtime_s: Option<u64>,
    pub lease_id: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    /// Additional fields.
    pub progress: Option<Progress>,
    pub result: Option<Box<RawValue>>,
    pub error: Option<String>,
}

/// The progress of a job, as its worker reported it.
#[derive(Debug, Serialize)]
pub struct Progress {
    pub progress: f64,
    pub message: String,
    pub at: String,
}

/// A lease of a base job or an intent.
#[derive(Debug, Serialize)]
pub struct Lease {
    pub lease_id: String,
    pub job_id: String,
    pub worker_id: String,
    pub capacity_units: u32,
    pub issued_at: String,
    pub expires_at: String,
    pub last_heartbeat: String,
}
