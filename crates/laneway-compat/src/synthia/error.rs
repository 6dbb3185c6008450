//! Every error of the dialect: `{"detail": …}`, a word for what went wrong or a list of what is wrong in a request.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use laneway_core::{Refusal, RefusalCode, Span};
use laneway_runtime::caller::Denied;
use laneway_runtime::{QueryError, Stopped};
use serde::Serialize;
use serde_json::{Value, json};

/// Longest value that an error shows again, in bytes of JSON.
const INPUT_SHOWN_MAX: usize = 1_024;

/// What handlers give.
pub type Answer = Result<Response, Problem>;

/// One thing that is wrong in a request, in the shape that their clients know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wrong {
    /// A word for programs.
    pub r#type: &'static str,
    /// Where: `body` or `query`, then names and numbers.
    pub loc: Vec<Value>,
    /// A sentence for people.
    pub msg: String,
    /// What was sent, where it is not too long.
    pub input: Value,
    /// Figures of the sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ctx: Option<Value>,
}

impl Wrong {
    /// Something wrong with what was sent at this place.
    pub fn new(r#type: &'static str, loc: Vec<Value>, msg: impl Into<String>, input: &Value) -> Wrong {
        let short = serde_json::to_string(input).is_ok_and(|text| text.len() <= INPUT_SHOWN_MAX);
        let input = if short { input.clone() } else { Value::Null };
        Wrong { r#type, loc, msg: msg.into(), input, ctx: None }
    }

    /// The same with figures.
    pub fn with(mut self, ctx: Value) -> Wrong {
        self.ctx = Some(ctx);
        self
    }
}

/// An error on its way to the client.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    detail: Value,
    retry_after: Option<Span>,
}

impl Problem {
    /// An error with a word for it.
    pub fn new(status: StatusCode, detail: impl Into<Value>) -> Problem {
        Problem { status, detail: detail.into(), retry_after: None }
    }

    /// A request that cannot be.
    pub fn invalid(wrong: &[Wrong]) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, json!(wrong))
    }

    /// There is no such job.
    pub fn no_job() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "job_not_found")
    }

    /// There is no such lease, or there was one.
    pub fn no_lease() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "lease_not_found")
    }

    /// The lease is another worker's.
    pub fn not_yours() -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "worker_mismatch")
    }

    /// The job is not in a state for this.
    pub fn conflict(word: &'static str) -> Problem {
        Problem::new(StatusCode::CONFLICT, word)
    }

    /// True when what was asked for is not there.
    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// The same, worth asking again.
    pub fn retry_after(mut self, span: Span) -> Problem {
        self.retry_after = Some(span);
        self
    }

    /// What the engine did not want. `fields`: which of its words is which field of the request.
    pub fn refused(refusal: &Refusal, fields: Fields) -> Problem {
        let at = |field: &'static str, r#type: &'static str| {
            let loc = vec!["body".into(), field.into()];
            // The message begins with our name of the field; theirs is in the place.
            let message = refusal.message.split_once(": ").map_or(&*refusal.message, |(_, message)| message);
            Problem::invalid(&[Wrong::new(r#type, loc, message, &Value::Null)])
        };
        let problem = match refusal.code {
            RefusalCode::NeverFits => at(fields.cost, "never_fits"),
            RefusalCode::DeadlinePast => at(fields.deadline, "deadline_past"),
            RefusalCode::IdempotencyMismatch => Problem::conflict("idempotency_mismatch"),
            RefusalCode::QueueFull => Problem::new(StatusCode::TOO_MANY_REQUESTS, "queue_full"),
            RefusalCode::Draining => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "server_stopping"),
            RefusalCode::StorageLow => Problem::new(StatusCode::INSUFFICIENT_STORAGE, "storage_low"),
            _ => {
                let wrong =
                    Wrong::new("invalid", vec!["body".into()], refusal.message.as_ref(), &Value::Null);
                Problem::invalid(&[wrong])
            }
        };
        match refusal.retry_after {
            Some(span) => problem.retry_after(span),
            None => problem,
        }
    }
}

/// Their names for the fields that the engine may refuse.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// What a job costs.
    pub cost: &'static str,
    /// When it is over.
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

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Problem {
        match error {
            QueryError::Stopped(stopped) => stopped.into(),
            error => {
                tracing::error!(%error, "a call failed inside");
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error")
            }
        }
    }
}

/// A success: always 200.
pub fn ok(value: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

/// The plain success of calls that have nothing to tell.
pub fn done() -> Answer {
    ok(&json!({"ok": true}))
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What a call that does not reach its handler is answered.
pub fn denied(why: &Denied) -> Response {
    let unauthorized = || {
        let mut response = Problem::new(StatusCode::UNAUTHORIZED, "Not authenticated").into_response();
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        response
    };
    let problem = match why {
        Denied::MissingToken | Denied::BadToken => return unauthorized(),
        Denied::TooManyAttempts { retry_after } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts").retry_after(*retry_after)
        }
        Denied::Forbidden(why) | Denied::Misdirected(why) => {
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
