//! Every error of the dialect: `{"detail": …}`, a code or a list of the errors in a request.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use laneway_core::{Name, Rejection, RejectionCode, Span};
use laneway_runtime::caller::Denied;
use laneway_runtime::{ReadError, Stopped};
use serde::Serialize;
use serde_json::{Value, json};

/// Longest value that an error repeats, in bytes of JSON.
const INPUT_SHOWN_MAX: usize = 1_024;

/// What handlers return.
pub type Answer = Result<Response, Problem>;

/// One error in a request, in the format that clients know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wrong {
    /// The code for programs.
    pub r#type: &'static str,
    /// The location: `body` or `query`, then names and indexes.
    pub loc: Vec<Value>,
    /// The message for people.
    pub msg: String,
    /// The input, unless it is too long.
    pub input: Value,
    /// The values in the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ctx: Option<Value>,
}

impl Wrong {
    /// An error about the input at this location.
    pub fn new(r#type: &'static str, loc: Vec<Value>, msg: impl Into<String>, input: &Value) -> Wrong {
        let short = serde_json::to_string(input).is_ok_and(|text| text.len() <= INPUT_SHOWN_MAX);
        let input = if short { input.clone() } else { Value::Null };
        Wrong { r#type, loc, msg: msg.into(), input, ctx: None }
    }

    /// Adds the values in the message.
    pub fn with(mut self, ctx: Value) -> Wrong {
        self.ctx = Some(ctx);
        self
    }
}

/// An error response.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    detail: Value,
    retry_after: Option<Span>,
}

impl Problem {
    /// An error with a code.
    pub fn new(status: StatusCode, detail: impl Into<Value>) -> Problem {
        Problem { status, detail: detail.into(), retry_after: None }
    }

    /// An invalid request.
    pub fn invalid(wrong: &[Wrong]) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, json!(wrong))
    }

    /// The job does not exist.
    pub fn no_job() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "job_not_found")
    }

    /// The lease does not exist, or no longer exists.
    pub fn no_lease() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "lease_not_found")
    }

    /// The lease belongs to another worker.
    pub fn not_yours() -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "worker_mismatch")
    }

    /// The state of the job does not allow this.
    pub fn conflict(name: &'static str) -> Problem {
        Problem::new(StatusCode::CONFLICT, name)
    }

    /// True for a resource that does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Adds `Retry-After`.
    pub fn retry_after(mut self, span: Span) -> Problem {
        self.retry_after = Some(span);
        self
    }

    /// A rejection of the engine. `fields` maps the engine's fields to those of the request.
    pub fn rejected(rejection: &Rejection, fields: Fields) -> Problem {
        let at = |field: &'static str, r#type: &'static str| {
            let loc = vec!["body".into(), field.into()];
            // The message begins with the engine's field name; the location has the dialect's.
            let message =
                rejection.message.split_once(": ").map_or(&*rejection.message, |(_, message)| message);
            Problem::invalid(&[Wrong::new(r#type, loc, message, &Value::Null)])
        };
        let problem = match rejection.code {
            RejectionCode::NeverFits => at(fields.cost, "never_fits"),
            RejectionCode::DeadlinePast => at(fields.deadline, "deadline_past"),
            RejectionCode::IdempotencyMismatch => Problem::conflict("idempotency_mismatch"),
            RejectionCode::QueueFull => Problem::new(StatusCode::TOO_MANY_REQUESTS, "queue_full"),
            RejectionCode::Draining => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "server_stopping"),
            RejectionCode::StorageLow => Problem::new(StatusCode::INSUFFICIENT_STORAGE, "storage_low"),
            _ => {
                let wrong =
                    Wrong::new("invalid", vec!["body".into()], rejection.message.as_ref(), &Value::Null);
                Problem::invalid(&[wrong])
            }
        };
        match rejection.retry_after {
            Some(span) => problem.retry_after(span),
            None => problem,
        }
    }
}

/// The dialect's names of fields that the engine may reject.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// The cost of a job.
    pub cost: &'static str,
    /// The deadline.
    pub deadline: &'static str,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &json!({"detail": self.detail}));
        if let Some(span) = self.retry_after {
            let seconds = HeaderValue::from(span.0.div_ceil(1_000).max(1));
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}

impl From<Stopped> for Problem {
    fn from(_: Stopped) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "server_stopping").retry_after(Span::secs(5))
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::Stopped(stopped) => stopped.into(),
            error => {
                tracing::error!(%error, "internal error");
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error")
            }
        }
    }
}

/// A success: always 200.
pub fn ok(value: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

/// The success of calls without a result.
pub fn done() -> Answer {
    ok(&json!({"ok": true}))
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a call that does not reach its handler.
pub fn denied(why: &Denied, _: &Name) -> Response {
    let unauthorized = || {
        let mut response = Problem::new(StatusCode::UNAUTHORIZED, "Not authenticated").into_response();
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        response
    };
    let problem = match why {
        Denied::MissingToken | Denied::BadToken | Denied::EndedToken => return unauthorized(),
        Denied::TooManyAttempts { retry_after } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts").retry_after(*retry_after)
        }
        Denied::Forbidden(why) | Denied::Misdirected(why) | Denied::ForeignOrigin(why) => {
            Problem::new(StatusCode::FORBIDDEN, why.as_str())
        }
        Denied::TooManyRequests { window, .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests").retry_after(*window)
        }
        Denied::UnknownMethod => Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
        Denied::UnknownPath => Problem::new(StatusCode::NOT_FOUND, "Not Found"),
        Denied::Internal => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
    };
    problem.into_response()
}
