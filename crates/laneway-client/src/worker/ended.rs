//! How a run ends: what a handler gives back, or why it gave nothing.

use laneway_wire::frame::{Artifact, ErrorCode, JsonObject, Text};

/// What a handler gives back when it did its work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What the task gives; an object.
    pub result: JsonObject,
    /// Whatever else is worth telling; an object.
    pub metadata: Option<JsonObject>,
    /// What it made.
    pub artifacts: Vec<Artifact>,
    /// True where there was nothing to do.
    pub skipped: bool,
}

impl Outcome {
    /// An outcome with a result. What is not written as an object stands under `value`.
    pub fn of<T: serde::Serialize>(result: &T) -> Result<Outcome, Failure> {
        let value = serde_json::to_value(result)
            .map_err(|error| Failure::permanent("bad_result", format!("the result is no JSON: {error}")))?;
        let object = if value.is_object() { value } else { serde_json::json!({ "value": value }) };
        let result = JsonObject::of(&object)
            .map_err(|error| Failure::permanent("bad_result", format!("the result is no JSON: {error}")))?;
        Ok(Outcome { result, ..Outcome::default() })
    }

    /// There was nothing to do; what depends on the task goes on.
    pub fn skipped() -> Outcome {
        Outcome { skipped: true, ..Outcome::default() }
    }

    /// Adds something that the task made.
    pub fn artifact(mut self, artifact: Artifact) -> Outcome {
        self.artifacts.push(artifact);
        self
    }
}

/// Why a handler did not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable word for programs.
    pub code: Text,
    /// What happened, for people.
    pub message: String,
    /// What helps, for people.
    pub remediation: Option<String>,
    /// True where trying again may help.
    pub retryable: bool,
}

impl Failure {
    /// Trying again will not help. `code` is a word such as `bad_input`; what is no word becomes the protocol's own code.
    pub fn permanent(code: &str, message: impl Into<String>) -> Failure {
        let code = Text::new(code).unwrap_or_else(|_| ErrorCode::RunnerFailure.into());
        Failure { code, message: message.into(), remediation: None, retryable: false }
    }

    /// Trying again may help.
    pub fn transient(code: &str, message: impl Into<String>) -> Failure {
        Failure { retryable: true, ..Failure::permanent(code, message) }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::permanent(
            "bad_parameters",
            format!("the parameters are not what the handler takes: {error}"),
        )
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// The handler did its work.
    Done(Outcome),
    /// The handler says that it failed.
    Failed(Failure),
    /// The handler panicked.
    Panicked(String),
    /// It took longer than it may.
    TimedOut,
    /// It was dropped before it gave anything.
    Stopped,
}
