//! Every error of the dialect: a status, a code for programs, and a message that names the field and the remedy.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use laneway_core::{Name, Rejection, RejectionCode, Span};
use laneway_runtime::caller::Denied;
use laneway_runtime::{Caller, ReadError, Stopped};
use serde::Serialize;
use serde_json::{Map, Value};

/// `Retry-After` for calls during a stop of the server.
const RESTART: Span = Span::secs(5);

/// An error response.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    request: Option<String>,
    details: Map<String, Value>,
    headers: Vec<(HeaderName, String)>,
}

impl Problem {
    /// An error.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Problem {
        let (details, headers) = (Map::new(), Vec::new());
        Problem { status, code, message: message.into(), request: None, details, headers }
    }

    /// An invalid field of the request. `remedy` follows its name in the message.
    pub fn field(field: impl Into<String>, remedy: impl AsRef<str>) -> Problem {
        let field = field.into();
        let message = format!("{field}: {}", remedy.as_ref());
        let mut problem = Problem::new(StatusCode::BAD_REQUEST, "bad_request", message);
        problem.details.insert("field".to_owned(), field.into());
        problem
    }

    /// The resource does not exist.
    pub fn not_found(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The engine rejected a run.
    pub fn rejected(rejection: &Rejection) -> Problem {
        let message = rejection.message.as_ref();
        let (status, code) = match rejection.code {
            RejectionCode::IdempotencyMismatch => (StatusCode::CONFLICT, "idempotency_conflict"),
            RejectionCode::QueueFull | RejectionCode::TooMany => {
                (StatusCode::TOO_MANY_REQUESTS, "queue_full")
            }
            RejectionCode::Draining => return Stopped.into(),
            RejectionCode::StorageLow => (StatusCode::INSUFFICIENT_STORAGE, "storage_low"),
            _ => (StatusCode::BAD_REQUEST, "invalid_workflow"),
        };
        let problem = Problem::new(status, code, message);
        match rejection.retry_after {
            Some(span) => problem.retry_after(span),
            None => problem,
        }
    }

    /// The engine gave an unexpected answer.
    pub fn internal(what: impl std::fmt::Debug) -> Problem {
        tracing::error!(?what, "internal error");
        let message = "internal error; the server's log says why";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// Adds `Retry-After`.
    pub fn retry_after(self, span: Span) -> Problem {
        self.header(RETRY_AFTER, span.0.div_ceil(1_000).max(1).to_string())
    }

    /// Adds a header.
    pub fn header(mut self, name: HeaderName, value: String) -> Problem {
        self.headers.push((name, value));
        self
    }

    /// Adds the id of the call.
    pub fn of(mut self, caller: &Caller) -> Problem {
        self.request = Some(caller.request.to_string());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shown<'a> {
            error: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            request_id: Option<&'a str>,
            #[serde(skip_serializing_if = "Map::is_empty")]
            details: &'a Map<String, Value>,
        }
        let Problem { status, code, message, request, details, headers } = &self;
        let shown = Shown { error: code, message, request_id: request.as_deref(), details };
        let mut response = json(*status, &shown);
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

impl From<Stopped> for Problem {
    fn from(_: Stopped) -> Problem {
        let message = "the server stops; try again after its restart";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(RESTART)
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::Stopped(stopped) => stopped.into(),
            error => Problem::internal(error),
        }
    }
}

/// `value` as JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a call that does not reach its handler.
pub fn denied(denied: &Denied, _: &Name) -> Response {
    let unauthorized = |message: &str| {
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
            .header(WWW_AUTHENTICATE, "Bearer realm=\"astraflow\"".to_owned())
    };
    let busy = |message: &str, span: Span| {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).retry_after(span)
    };
    let problem = match denied {
        Denied::MissingToken => unauthorized("a token is needed: Authorization: Bearer <token>"),
        Denied::BadToken | Denied::EndedToken => {
            unauthorized("the token is not known, has expired or was revoked")
        }
        Denied::TooManyAttempts { retry_after } => {
            busy("too many bad tokens came from this address", *retry_after)
        }
        Denied::TooManyRequests { window, .. } => busy("too many requests came from this address", *window),
        Denied::Forbidden(why) | Denied::Misdirected(why) | Denied::ForeignOrigin(why) => {
            Problem::new(StatusCode::FORBIDDEN, "forbidden", why.as_str())
        }
        Denied::UnknownMethod => {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "the path has no such method")
        }
        Denied::UnknownPath => Problem::not_found("there is no such path"),
        Denied::Internal => Problem::internal("a handler panicked"),
    };
    problem.into_response()
}
