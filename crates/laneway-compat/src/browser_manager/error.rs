//! Every error of the dialect, with its code and its status, and the envelope of every answer:
//! `{"code", "msg", "data", "requestId"}`.
//!
//! Handlers return data or a [`Problem`]. The layer [`envelope`] is around every handler and knows the id of the request, so
//! that no handler has to pass it on.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use laneway_browser::kinds::{BadPayload, PayloadProblem};
use laneway_core::{Name, Rejection, RejectionCode, Span};
use laneway_runtime::caller::Denied;
use laneway_runtime::{Caller, ReadError, Stopped};
use serde::Serialize;
use serde_json::value::RawValue;

/// Longest message, in bytes.
const MESSAGE_MAX: usize = 1_024;

/// What handlers return.
pub type Answer = Result<Data, Problem>;

/// The codes of the dialect. Each has one status and a text that clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// There is no such profile.
    ProfileNotFound,
    /// The profile is in the recycle bin.
    ProfileInRecycleBin,
    /// The profile is open.
    ProfileAlreadyOpen,
    /// As many browsers are open as may be.
    MaxConcurrentProfiles,
    /// There is no such job.
    JobNotFound,
    /// The job has ended.
    JobAlreadyCompleted,
    /// The queue is full.
    JobQueueFull,
    /// The scheduler stops or has stopped.
    AgentNotRunning,
    /// The call has no token.
    TokenMissing,
    /// The token is not known.
    TokenInvalid,
    /// The token has expired or was revoked.
    TokenExpired,
    /// The token may not do this.
    PermissionDenied,
    /// Too many requests.
    RateLimited,
    /// There is no such path or method.
    UnknownEndpoint,
    /// A field is missing.
    MissingField,
    /// A field has the wrong type.
    WrongType,
    /// A field is out of its range.
    OutOfRange,
    /// A field has none of its values.
    NotInEnum,
    /// The body is not JSON.
    MalformedJson,
    /// A field or the body is too long.
    TooLong,
    /// The page is out of its range.
    BadPaging,
    /// An internal error.
    Internal,
    /// The store cannot be read.
    Database,
    /// The disk is full.
    InsufficientStorage,
    /// The operation is not part of this agent.
    NotImplemented,
}

impl Code {
    /// Every code, for the tests of the table and of its page.
    #[cfg(test)]
    pub const ALL: [Code; 25] = [
        Code::ProfileNotFound,
        Code::ProfileInRecycleBin,
        Code::ProfileAlreadyOpen,
        Code::MaxConcurrentProfiles,
        Code::JobNotFound,
        Code::JobAlreadyCompleted,
        Code::JobQueueFull,
        Code::AgentNotRunning,
        Code::TokenMissing,
        Code::TokenInvalid,
        Code::TokenExpired,
        Code::PermissionDenied,
        Code::RateLimited,
        Code::UnknownEndpoint,
        Code::MissingField,
        Code::WrongType,
        Code::OutOfRange,
        Code::NotInEnum,
        Code::MalformedJson,
        Code::TooLong,
        Code::BadPaging,
        Code::Internal,
        Code::Database,
        Code::InsufficientStorage,
        Code::NotImplemented,
    ];

    /// The number, the status and the text.
    pub fn row(self) -> (i32, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Code::ProfileNotFound => (-1001, S::NOT_FOUND, "Profile not found"),
            Code::ProfileInRecycleBin => (-1004, S::UNPROCESSABLE_ENTITY, "Profile is in the recycle bin"),
            Code::ProfileAlreadyOpen => (-1005, S::CONFLICT, "Profile is already open"),
            Code::MaxConcurrentProfiles => {
                (-1007, S::UNPROCESSABLE_ENTITY, "Max concurrent profiles reached")
            }
            Code::JobNotFound => (-1401, S::NOT_FOUND, "Job not found"),
            Code::JobAlreadyCompleted => (-1402, S::UNPROCESSABLE_ENTITY, "Job already completed"),
            Code::JobQueueFull => (-1403, S::UNPROCESSABLE_ENTITY, "Job queue full"),
            Code::AgentNotRunning => (-1404, S::SERVICE_UNAVAILABLE, "Agent not running"),
            Code::TokenMissing => (-1501, S::UNAUTHORIZED, "Token missing"),
            Code::TokenInvalid => (-1502, S::UNAUTHORIZED, "Token invalid"),
            Code::TokenExpired => (-1503, S::UNAUTHORIZED, "Token expired"),
            Code::PermissionDenied => (-1504, S::FORBIDDEN, "Permission denied"),
            Code::RateLimited => (-1505, S::TOO_MANY_REQUESTS, "Too many requests"),
            Code::UnknownEndpoint => (-1600, S::NOT_FOUND, "Unknown endpoint"),
            Code::MissingField => (-1601, S::BAD_REQUEST, "Missing field"),
            Code::WrongType => (-1602, S::BAD_REQUEST, "Wrong type"),
            Code::OutOfRange => (-1603, S::BAD_REQUEST, "Out of range"),
            Code::NotInEnum => (-1604, S::BAD_REQUEST, "Unknown value"),
            Code::MalformedJson => (-1605, S::BAD_REQUEST, "Malformed JSON"),
            Code::TooLong => (-1606, S::BAD_REQUEST, "Too long"),
            Code::BadPaging => (-1607, S::BAD_REQUEST, "Invalid paging"),
            Code::Internal => (-1701, S::INTERNAL_SERVER_ERROR, "Internal error"),
            Code::Database => (-1702, S::SERVICE_UNAVAILABLE, "Database unavailable"),
            Code::InsufficientStorage => (-1704, S::INSUFFICIENT_STORAGE, "Insufficient storage"),
            Code::NotImplemented => (-1801, S::NOT_IMPLEMENTED, "Not implemented"),
        }
    }
}

/// An error of the dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    /// What is wrong and the remedy; empty: the text of the code says it.
    detail: String,
    status: Option<StatusCode>,
    retry_after: Option<Span>,
}

impl Problem {
    /// An error that its code explains.
    pub fn of(code: Code) -> Problem {
        Problem { code, detail: String::new(), status: None, retry_after: None }
    }

    /// An error with its details.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem { detail: detail.into(), ..Problem::of(code) }
    }

    /// A field that is missing.
    pub fn missing(field: &str) -> Problem {
        Problem::new(Code::MissingField, format!("{field} is required"))
    }

    /// Adds `Retry-After`.
    pub fn retry_after(self, span: Span) -> Problem {
        Problem { retry_after: Some(span), ..self }
    }

    /// Uses another status than that of the code.
    pub fn with_status(self, status: StatusCode) -> Problem {
        Problem { status: Some(status), ..self }
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Its text: that of the code, then the details.
    pub fn message(&self) -> String {
        let (_, _, text) = self.code.row();
        let mut message = match self.detail.is_empty() {
            true => text.to_owned(),
            false => format!("{text}: {}", self.detail),
        };
        if message.len() > MESSAGE_MAX {
            let end = (0..=MESSAGE_MAX).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        message
    }

    /// A rejection of the engine.
    pub fn rejected(rejection: &Rejection) -> Problem {
        let detail = rejection.message.as_ref();
        let problem = match rejection.code {
            RejectionCode::QueueFull => Problem::of(Code::JobQueueFull),
            RejectionCode::Draining => Problem::of(Code::AgentNotRunning),
            RejectionCode::StorageLow => Problem::new(Code::InsufficientStorage, detail),
            RejectionCode::UnknownKind => Problem::new(Code::NotImplemented, detail),
            _ => Problem::new(Code::OutOfRange, detail),
        };
        match rejection.retry_after {
            Some(span) => problem.retry_after(span),
            None => problem,
        }
    }

    fn response(&self, request: &Name) -> Response {
        let (number, status, _) = self.code.row();
        let status = self.status.unwrap_or(status);
        let mut response = written(status, number, &self.message(), None, request);
        if let Some(span) = self.retry_after {
            let seconds = HeaderValue::from(span.0.div_ceil(1_000).max(1));
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        if status == StatusCode::UNAUTHORIZED {
            let realm = HeaderValue::from_static("Bearer realm=\"browser_manager\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, realm);
        }
        response
    }
}

impl From<Stopped> for Problem {
    fn from(_: Stopped) -> Problem {
        Problem::of(Code::AgentNotRunning).retry_after(Span::secs(5))
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::Stopped(stopped) => stopped.into(),
            ReadError::Store(error) => {
                tracing::error!(%error, "the store could not be read");
                Problem::new(Code::Database, "the server's log says why").retry_after(Span::secs(5))
            }
            ReadError::Panicked => Problem::internal(&error),
        }
    }
}

impl Problem {
    /// An error that the caller can do nothing about. Its cause is in the log only.
    pub fn internal(error: &dyn std::fmt::Display) -> Problem {
        tracing::error!(%error, "internal error");
        Problem::new(Code::Internal, "the server's log says why")
    }
}

impl From<BadPayload> for Problem {
    fn from(bad: BadPayload) -> Problem {
        let code = match bad.problem {
            // No profile can have such an id.
            PayloadProblem::Range if bad.field == "profileId" => Code::ProfileNotFound,
            PayloadProblem::Missing => Code::MissingField,
            PayloadProblem::Type | PayloadProblem::Unknown => Code::WrongType,
            PayloadProblem::Range => Code::OutOfRange,
            PayloadProblem::TooLong => Code::TooLong,
            PayloadProblem::Json => Code::MalformedJson,
        };
        // The dialect has its own names for the ids of profiles.
        let field = match bad.field.as_str() {
            "profileId" => "id",
            "newProfileId" => "newId",
            field => field,
        };
        Problem::new(code, format!("{field} {}", bad.message.replace("profileId", "id")))
    }
}

/// The data of a successful answer, as JSON in the order of its fields.
#[derive(Clone, Debug)]
pub struct Data(Arc<RawValue>);

/// A success with this data.
pub fn ok(data: &impl Serialize) -> Answer {
    let written = serde_json::value::to_raw_value(data).map_err(|error| Problem::internal(&error))?;
    Ok(Data(written.into()))
}

/// The envelope of every answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    code: i32,
    msg: &'a str,
    data: Option<&'a RawValue>,
    request_id: &'a str,
}

// Both go through the extensions of the response: only the layer around the handler knows the request.
impl IntoResponse for Data {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status.unwrap_or(self.code.row().1);
        response.extensions_mut().insert(self);
        response
    }
}

/// Puts what a handler returned into the envelope. Streams and health checks pass unchanged.
pub async fn envelope(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    let id = caller.map_or_else(|| Name::fixed("unknown"), |caller| caller.request.clone());
    let mut response = next.run(request).await;
    if let Some(Data(data)) = response.extensions_mut().remove::<Data>() {
        return written(StatusCode::OK, 0, "success", Some(&data), &id);
    }
    match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem.response(&id),
        None => response,
    }
}

fn written(status: StatusCode, code: i32, msg: &str, data: Option<&RawValue>, request: &Name) -> Response {
    let envelope = Envelope { code, msg, data, request_id: request.as_str() };
    json_response(status, serde_json::to_string(&envelope).unwrap_or_default())
}

/// A response with this JSON text.
pub fn json_response(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a call that does not reach its handler.
pub fn denied(why: &Denied, request: &Name) -> Response {
    let problem = match why {
        Denied::MissingToken => Problem::new(Code::TokenMissing, "send Authorization: Bearer <token>"),
        Denied::BadToken => Problem::of(Code::TokenInvalid),
        Denied::EndedToken => Problem::of(Code::TokenExpired),
        Denied::Forbidden(why) | Denied::Misdirected(why) | Denied::ForeignOrigin(why) => {
            Problem::new(Code::PermissionDenied, why.as_str())
        }
        Denied::TooManyAttempts { retry_after } => {
            Problem::new(Code::RateLimited, "too many bad tokens came from this address")
                .retry_after(*retry_after)
        }
        Denied::TooManyRequests { max, window } => {
            let seconds = window.0.div_ceil(1_000);
            Problem::new(Code::RateLimited, format!("at most {max} in {seconds} s")).retry_after(*window)
        }
        Denied::UnknownMethod => Problem::new(Code::UnknownEndpoint, "the path does not support this method")
            .with_status(StatusCode::METHOD_NOT_ALLOWED),
        Denied::UnknownPath => Problem::of(Code::UnknownEndpoint),
        Denied::Internal => Problem::new(Code::Internal, "the server's log says why"),
    };
    problem.response(request)
}
