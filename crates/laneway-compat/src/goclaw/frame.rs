//! Frames: one JSON text each. Parses requests; writes answers, errors and events.

use laneway_core::{Rejection, RejectionCode};
use laneway_runtime::{ReadError, Stopped};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Longest frame of a client, in bytes.
pub const FRAME_MAX: usize = 512 * 1024;
/// Longest id of a request, in bytes. The answer repeats it.
const ID_MAX: usize = 256;

/// A request of a client.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// The client's id of the request.
    pub id: String,
    /// The method.
    pub method: String,
    /// The parameters. Parameters that are not an object count as none.
    pub params: Map<String, Value>,
}

impl Request {
    /// Parses a frame. A frame that is not a request has no id for the answer.
    pub fn read(text: &str) -> Result<Request, Problem> {
        let frame: Value = serde_json::from_str(text)
            .map_err(|error| Problem::invalid(format!("invalid frame: not JSON: {error}")))?;
        let Value::Object(mut frame) = frame else {
            return Err(Problem::invalid("invalid frame: must be an object"));
        };
        if frame.get("type").and_then(Value::as_str) != Some("req") {
            return Err(Problem::invalid("invalid frame: type must be \"req\""));
        }
        let id = match frame.get("id") {
            Some(Value::String(id)) if id.len() <= ID_MAX => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => {
                let message = format!("invalid frame: id must be a string of at most {ID_MAX} bytes");
                return Err(Problem::invalid(message));
            }
        };
        let method = match frame.get("method") {
            Some(Value::String(method)) if !method.is_empty() => method.clone(),
            _ => return Err(Problem::invalid("invalid frame: method is required")),
        };
        let params = match frame.remove("params") {
            Some(Value::Object(params)) => params,
            _ => Map::new(),
        };
        Ok(Request { id, method, params })
    }
}

/// An error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The request is invalid.
    InvalidRequest,
    /// The caller lacks permission.
    Unauthorized,
    /// There is no such job.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// A limit is reached.
    ResourceExhausted,
    /// Not possible in the current state.
    FailedPrecondition,
    /// The server stops, or cannot accept the request.
    Unavailable,
    /// An internal error.
    Internal,
}

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The code for programs.
    pub code: Code,
    /// The message for people.
    pub message: String,
    /// Details.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    /// True: a retry may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    /// When a retry may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Problem {
    /// An error that a retry does not fix.
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), details: None, retryable: None, retry_after_ms: None }
    }

    /// An invalid request.
    pub fn invalid(message: impl Into<String>) -> Problem {
        Problem::new(Code::InvalidRequest, message)
    }

    /// A denied request.
    pub fn denied(message: impl Into<String>) -> Problem {
        Problem::new(Code::Unauthorized, message)
    }

    /// The job does not exist.
    pub fn no_job() -> Problem {
        Problem::new(Code::NotFound, "job not found")
    }

    /// Adds a reason that people can act on.
    pub fn because(mut self, reason: impl Into<String>) -> Problem {
        self.details = Some(json!({"reason": reason.into()}));
        self
    }

    /// Marks the error as retryable, after this many milliseconds if known.
    pub fn retry(mut self, after_ms: Option<u64>) -> Problem {
        (self.retryable, self.retry_after_ms) = (Some(true), after_ms);
        self
    }

    /// An internal error; the log has the cause.
    pub fn internal(error: &dyn std::fmt::Display) -> Problem {
        tracing::error!(%error, "a request of a WebSocket failed");
        Problem::new(Code::Internal, "internal error")
    }

    /// A rejection of the engine. `doing` begins messages without a fixed text.
    pub fn rejected(rejection: &Rejection, doing: &str) -> Problem {
        let text = || format!("{doing}: {}", rejection.message);
        match rejection.code {
            RejectionCode::NoFutureRun if rejection.message.contains("timing.at") => {
                Problem::invalid("cron job has no future run: at schedule is already in the past")
            }
            RejectionCode::NoFutureRun => {
                Problem::invalid("cron job has no future run: cron schedule has no valid next execution")
            }
            RejectionCode::NameTaken => Problem::new(Code::AlreadyExists, text()),
            RejectionCode::TooMany | RejectionCode::QueueFull => {
                Problem::new(Code::ResourceExhausted, text())
            }
            RejectionCode::Draining => {
                Problem::new(Code::Unavailable, "gateway is shutting down, please retry shortly").retry(None)
            }
            RejectionCode::StorageLow => Problem::new(Code::Unavailable, text()).retry(None),
            _ => Problem::invalid(text()),
        }
    }
}

impl From<Stopped> for Problem {
    fn from(_: Stopped) -> Problem {
        Problem::new(Code::Unavailable, "gateway is shutting down, please retry shortly").retry(None)
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::Stopped(stopped) => stopped.into(),
            error => Problem::internal(&error),
        }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    r#type: &'static str,
    id: &'a str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Problem>,
}

#[derive(Serialize)]
struct EventFrame<'a> {
    r#type: &'static str,
    event: &'a str,
    payload: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
}

/// The frame that answers a request.
pub fn answer(id: &str, outcome: &Result<Value, Problem>) -> String {
    let (payload, error) = (outcome.as_ref().ok(), outcome.as_ref().err());
    write(&Answer { r#type: "res", id, ok: payload.is_some(), payload, error })
}

/// The frame of an event; `seq` is its number in the event log.
pub fn event(name: &str, payload: &Value, seq: Option<u64>) -> String {
    write(&EventFrame { r#type: "event", event: name, payload, seq })
}

fn write(frame: &impl Serialize) -> String {
    serde_json::to_string(frame).expect("frames are valid JSON")
}
