//! What the runs of a job made.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that a run made on a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobArtifact {
    /// Its id, by which its data can be read.
    #[serde(default)]
    pub id: String,
    /// Where its data can be read, until it expires.
    #[serde(default)]
    pub href: String,
    /// Its name in the worker's resource registry.
    pub resource_id: String,
    /// The worker that has it.
    pub worker_id: String,
    /// What sort of thing it is.
    #[serde(rename = "type")]
    pub sort: String,
    /// The attempt that made it.
    #[serde(default)]
    pub attempt: u32,
    /// How large it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// True where the result holds the data itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<bool>,
    /// When it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Whatever else is known of it; `name` and `mime_type` are told to whoever reads its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

/// What the runs of a job made, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactList {
    /// The artifacts.
    pub artifacts: Vec<JobArtifact>,
}
