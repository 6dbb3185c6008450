//! Frames: one JSON text each. Requests are read here; answers, errors and events are written here.

use laneway_core::{Refusal, RefusalCode};
use laneway_runtime::{QueryError, Stopped};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Longest frame of a client, in bytes.
pub const FRAME_MAX: usize = 512 * 1024;
/// Longest id of a request, in bytes: it is sent back.
const ID_MAX: usize = 256;

/// What a client asks.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// The client's name for the request.
    pub id: String,
    /// What to do.
    pub method: String,
    /// With what. Parameters that are no object count as none.
    pub params: Map<String, Value>,
}

impl Request {
    /// Reads a frame. What is no request has no id to answer to.
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

/// The word of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The request cannot be.
    InvalidRequest,
    /// Who asks may not.
    Unauthorized,
    /// There is no such job.
    NotFound,
    /// There is one of that name.
    AlreadyExists,
    /// A limit is reached.
    ResourceExhausted,
    /// Not now.
    FailedPrecondition,
    /// The server stops, or cannot take it.
    Unavailable,
    /// Something broke inside.
    Internal,
}

/// An error on its way to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The word for programs.
    pub code: Code,
    /// The text for people.
    pub message: String,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    /// True: asking again may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    /// When asking again may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Problem {
    /// An error that asking again does not mend.
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), details: None, retryable: None, retry_after_ms: None }
    }

    /// A request that cannot be.
    pub fn invalid(message: impl Into<String>) -> Problem {
        Problem::new(Code::InvalidRequest, message)
    }

    /// Somebody who may not.
    pub fn denied(message: impl Into<String>) -> Problem {
        Problem::new(Code::Unauthorized, message)
    }

    /// A job that is not there.
    pub fn no_job() -> Problem {
        Problem::new(Code::NotFound, "job not found")
    }

    /// The same with a reason that people can act on.
    pub fn because(mut self, reason: impl Into<String>) -> Problem {
        self.details = Some(json!({"reason": reason.into()}));
        self
    }

    /// The same, worth asking again, after so many milliseconds where that is known.
    pub fn retry(mut self, after_ms: Option<u64>) -> Problem {
        (self.retryable, self.retry_after_ms) = (Some(true), after_ms);
        self
    }

    /// Something broke inside; the log says what.
    pub fn internal(error: &dyn std::fmt::Display) -> Problem {
        tracing::error!(%error, "a request of a socket failed");
        Problem::new(Code::Internal, "internal error")
    }

    /// What the engine did not want. `doing` begins the text of those that have no words of their own.
    pub fn refused(refusal: &Refusal, doing: &str) -> Problem {
        let text = || format!("{doing}: {}", refusal.message);
        match refusal.code {
            RefusalCode::NoFutureRun if refusal.message.contains("timing.at") => {
                Problem::invalid("cron job has no future run: at schedule is already in the past")
            }
            RefusalCode::NoFutureRun => {
                Problem::invalid("cron job has no future run: cron schedule has no valid next execution")
            }
            RefusalCode::NameTaken => Problem::new(Code::AlreadyExists, text()),
            RefusalCode::TooMany | RefusalCode::QueueFull => Problem::new(Code::ResourceExhausted, text()),
            RefusalCode::Draining => {
                Problem::new(Code::Unavailable, "gateway is shutting down, please retry shortly").retry(None)
            }
            RefusalCode::StorageLow => Problem::new(Code::Unavailable, text()).retry(None),
            _ => Problem::invalid(text()),
        }
    }
}

impl From<Stopped> for Problem {
    fn from(_: Stopped) -> Problem {
        Problem::new(Code::Unavailable, "gateway is shutting down, please retry shortly").retry(None)
    }
}

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Problem {
        match error {
            QueryError::Stopped(stopped) => stopped.into(),
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
struct Told<'a> {
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

/// The frame that tells of something; `seq` is its number in the trail.
pub fn event(name: &str, payload: &Value, seq: Option<u64>) -> String {
    write(&Told { r#type: "event", event: name, payload, seq })
}

fn write(frame: &impl Serialize) -> String {
    serde_json::to_string(frame).expect("frames are made of JSON")
}
