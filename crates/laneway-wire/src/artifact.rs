//! The artifacts that the attempts of a job created.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An artifact that an attempt created on a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobArtifact {
    /// Its id. Use it to download the data.
    #[serde(default)]
    pub id: String,
    /// The path from which the data can be downloaded until it expires.
    #[serde(default)]
    pub href: String,
    /// Its name in the worker's resource registry.
    pub resource_id: String,
    /// The worker that has it.
    pub worker_id: String,
    /// The type of the artifact.
    #[serde(rename = "type")]
    pub sort: String,
    /// The attempt that created it.
    #[serde(default)]
    pub attempt: u32,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// True when the result contains the data itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<bool>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Further metadata. A download sends `name` and `mime_type` as headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

/// The artifacts of a job, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactList {
    /// The artifacts.
    pub artifacts: Vec<JobArtifact>,
}
