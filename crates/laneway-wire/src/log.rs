//! Lines that attempts wrote.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A line of a job's logs.
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

/// Lines of a job's logs, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogList {
    /// The lines.
    pub lines: Vec<LogLine>,
    /// Pass it as `after` for the lines that follow. Absent when there are none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}
