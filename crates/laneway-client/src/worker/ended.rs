//! How an attempt ends: the handler's outcome, or why there is none.

use laneway_wire::frame::{Artifact, ErrorCode, JsonObject, Text};

/// The outcome of a handler that succeeded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The result, an object.
    pub result: JsonObject,
    /// Additional metadata, an object.
    pub metadata: Option<JsonObject>,
    /// The artifacts that the handler made.
    pub artifacts: Vec<Artifact>,
    /// True when there was nothing to do.
    pub skipped: bool,
}

impl Outcome {
    /// An outcome with a result. A result that is not an object is stored under `value`.
    pub fn of<T: serde::Serialize>(result: &T) -> Result<Outcome, Failure> {
        let value = serde_json::to_value(result).map_err(|error| {
            Failure::permanent("bad_result", format!("the result is not valid JSON: {error}"))
        })?;
        let object = if value.is_object() { value } else { serde_json::json!({ "value": value }) };
        let result = JsonObject::of(&object).map_err(|error| {
            Failure::permanent("bad_result", format!("the result is not valid JSON: {error}"))
        })?;
        Ok(Outcome { result, ..Outcome::default() })
    }

    /// There was nothing to do. Dependents of the task continue.
    pub fn skipped() -> Outcome {
        Outcome { skipped: true, ..Outcome::default() }
    }

    /// Adds an artifact.
    pub fn artifact(mut self, artifact: Artifact) -> Outcome {
        self.artifacts.push(artifact);
        self
    }
}

/// Why a handler failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable code for programs.
    pub code: Text,
    /// What happened, for people.
    pub message: String,
    /// The remedy, for people.
    pub remediation: Option<String>,
    /// True when a retry may help.
    pub retryable: bool,
}

impl Failure {
    /// A retry will not help. `code` is a code such as `bad_input`; an invalid code becomes the protocol's
    /// own code.
    pub fn permanent(code: &str, message: impl Into<String>) -> Failure {
        let code = Text::new(code).unwrap_or_else(|_| ErrorCode::RunnerFailure.into());
        Failure { code, message: message.into(), remediation: None, retryable: false }
    }

    /// A retry may help.
    pub fn transient(code: &str, message: impl Into<String>) -> Failure {
        Failure { retryable: true, ..Failure::permanent(code, message) }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::permanent("bad_parameters", format!("the parameters do not match the handler: {error}"))
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// The handler succeeded.
    Done(Outcome),
    /// The handler failed.
    Failed(Failure),
    /// The handler panicked.
    Panicked(String),
    /// The attempt took longer than its timeout.
    TimedOut,
    /// The handler was dropped before it returned.
    Stopped,
}
