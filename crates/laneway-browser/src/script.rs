//! Scripts: a list of steps for one page, with limits.
//!
//! A script is JSON: `{"steps": [{"kind": "navigate", "url": "https://example.com/"}, {"kind": "extract", "selector": "h1", "name":
//! "title"}]}`. Every action kind of `page` is a step, with the same fields. A step has two more: `name` keeps its result under
//! this name, and names the artifact of a screenshot or a PDF; `timeoutMs` is its time limit. `parse.rs` reads scripts, `run.rs` runs them.

mod parse;
mod run;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::page::{PageAction, PageError};

/// Steps of a script.
pub const STEPS_MAX: usize = 500;
/// The longest time of a script.
pub const TIME_MAX: Duration = Duration::from_secs(3_600);
/// The results of a script together, in bytes of JSON.
pub const RESULT_BYTES_MAX: usize = 1 << 20;
/// Screenshots and PDFs of a script.
pub const ARTIFACTS_MAX: usize = 50;
/// Screenshots and PDFs of a script together, in bytes.
pub const ARTIFACT_BYTES_MAX: usize = 64 << 20;

/// A script that is valid in form.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    steps: Vec<Step>,
    /// For the whole script. Defaults to 300 s.
    time: Duration,
    /// The results together. Defaults to, and is at most, [`RESULT_BYTES_MAX`].
    result_bytes: usize,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    action: PageAction,
    /// Under which its result is kept.
    name: Option<String>,
    /// Its time limit. Defaults to 30 s.
    time: Duration,
}

/// A script that is not valid. The text names the step and the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{field}: {reason}", .step.map(|step| format!("steps[{step}].")).unwrap_or_default())]
pub struct BadScript {
    /// The step, counted from 0; `None` for a field of the script itself.
    pub step: Option<usize>,
    /// The field.
    pub field: String,
    /// What is wrong with it, and what is expected.
    pub reason: String,
}

/// Where a script's log lines, screenshots and PDFs go.
pub trait ScriptOutput: Send + Sync {
    /// A line for the log.
    fn log(&self, line: &str);
    /// Keeps a screenshot or a PDF. An error ends the script.
    fn artifact(&self, name: &str, content_type: &str, bytes: Vec<u8>) -> Result<(), String>;
}

/// Why a script did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// A step failed.
    #[error("steps[{step}] ({kind}): {source}")]
    Step {
        /// Which one, counted from 0.
        step: usize,
        /// Its kind.
        kind: &'static str,
        /// Why.
        source: PageError,
    },
    /// The script did not end in time.
    #[error("the script did not end within {limit_ms} ms; it was at steps[{step}] ({kind})")]
    TimedOut {
        /// The step at which it was.
        step: usize,
        /// Its kind.
        kind: &'static str,
        /// The limit.
        limit_ms: u64,
    },
    /// The results together have more bytes than they may have.
    #[error("steps[{step}] ({kind}): the results have more than {bytes_max} bytes together")]
    ResultsTooLarge {
        /// The step that passed the limit.
        step: usize,
        /// Its kind.
        kind: &'static str,
        /// The limit.
        bytes_max: usize,
    },
    /// An artifact could not be kept.
    #[error("steps[{step}] ({kind}): the artifact {name:?} cannot be kept: {reason}")]
    Artifact {
        /// The step.
        step: usize,
        /// Its kind.
        kind: &'static str,
        /// The artifact.
        name: String,
        /// Why.
        reason: String,
    },
    /// The caller canceled the script.
    #[error("the script was canceled")]
    Canceled,
}

impl ScriptError {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            // Another one than that of the whole script, which is the timeout of its job.
            ScriptError::Step { source: PageError::TimedOut { .. }, .. } => "step_timed_out",
            ScriptError::Step { source, .. } => source.code(),
            ScriptError::TimedOut { .. } => "timed_out",
            ScriptError::ResultsTooLarge { .. } => "result_too_large",
            ScriptError::Artifact { .. } => "artifact_failed",
            ScriptError::Canceled => "canceled",
        }
    }

    /// True if another attempt may succeed: only after a time limit.
    pub fn retryable(&self) -> bool {
        match self {
            ScriptError::TimedOut { .. } => true,
            ScriptError::Step { source, .. } => source.is_timeout(),
            _ => false,
        }
    }
}
