//! Log lines of attempts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A log line of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// 1, 2, 3, … within the job.
    pub line: u64,
    /// The attempt that wrote it.
    pub attempt: u32,
    /// When it was written.
    pub at: String,
    /// `stdout`, `stderr`, `log`, ….
    pub stream: String,
    /// The text.
    pub text: String,
}

/// Log lines of a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogList {
    /// The lines.
    pub lines: Vec<LogLine>,
    /// Pass it as `after` for the next lines. Absent when there are no more yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}
