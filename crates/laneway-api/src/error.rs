//! Every error of the API: its word, its status and its title are chosen here and nowhere else.
//!
//! A handler returns an [`ApiError`]; the gate adds the request's id and writes it as `application/problem+json`. Causes
//! and remedies of each word are told in `docs/http-api.md`.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use laneway_core::{Name, Rejection, RejectionCode, Span};
use laneway_runtime::config::{ConfigErrorKind, ConfigErrors};
use laneway_runtime::store::StoreError;
use laneway_runtime::{ReadError, Stopped, WaitError};
use laneway_wire::Problem;

/// Longest `detail`, in bytes: a message may quote what the client sent, but not all of it.
const DETAIL_MAX: usize = 600;

/// The words of the API's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The body is not JSON.
    MalformedJson,
    /// A field, parameter or header has a value that cannot be.
    InvalidField,
    /// No such field or parameter.
    UnknownField,
    /// The body is nested too deep.
    TooDeep,
    /// The id in the path is not an id.
    InvalidId,
    /// The cursor is not one of this list.
    InvalidCursor,
    /// No token, or one that is not known, has expired or was revoked.
    Unauthorized,
    /// The token may not do this.
    Forbidden,
    /// A page of another origin asks.
    OriginDenied,
    /// There is no such thing for this caller.
    NotFound,
    /// The path does not know the method.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The job has ended.
    AlreadyEnded,
    /// The job has not ended.
    NotEnded,
    /// The change does not fit what the server holds now.
    Conflict,
    /// There is one of that name already.
    AlreadyExists,
    /// It was there, and is not any more.
    Gone,
    /// The body is too large.
    BodyTooLarge,
    /// The body is not said to be JSON.
    UnsupportedMediaType,
    /// There are no such bytes.
    RangeNotSatisfiable,
    /// The request is for another host.
    Misdirected,
    /// The deadline has passed.
    DeadlinePast,
    /// The idempotency key stands for another request.
    IdempotencyMismatch,
    /// Nobody offers the kind.
    UnknownKind,
    /// There is no such lane.
    UnknownLane,
    /// The engine cannot do what was asked.
    Invalid,
    /// A schedule would never run.
    NoFutureRun,
    /// The job costs more than the machine can ever give.
    NeverFits,
    /// Another job of the atomic batch was rejected.
    BatchRejected,
    /// A queue cap is reached.
    QueueFull,
    /// The job was sent before its session was stopped.
    Stale,
    /// As many jobs of the session wait as may.
    SessionFull,
    /// Too many bad tokens from one address.
    TooManyAttempts,
    /// Too many things of a sort are kept, or streams are open.
    TooMany,
    /// Something broke inside.
    Internal,
    /// What is stored is not what was written.
    Damaged,
    /// A worker could not do what was asked of it.
    WorkerFailed,
    /// A worker is not connected now.
    WorkerAway,
    /// A worker did not answer in time.
    WorkerTimeout,
    /// The server is stopping.
    Draining,
    /// The server stopped before it could answer.
    Unavailable,
    /// Storage runs low.
    StorageLow,
}

impl Code {
    /// Every word.
    pub const ALL: [Code; 42] = [
        Code::MalformedJson,
        Code::InvalidField,
        Code::UnknownField,
        Code::TooDeep,
        Code::InvalidId,
        Code::InvalidCursor,
        Code::Unauthorized,
        Code::Forbidden,
        Code::OriginDenied,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::BodyTimeout,
        Code::AlreadyEnded,
        Code::NotEnded,
        Code::Conflict,
        Code::AlreadyExists,
        Code::Gone,
        Code::BodyTooLarge,
        Code::UnsupportedMediaType,
        Code::RangeNotSatisfiable,
        Code::Misdirected,
        Code::DeadlinePast,
        Code::IdempotencyMismatch,
        Code::UnknownKind,
        Code::UnknownLane,
        Code::Invalid,
        Code::NoFutureRun,
        Code::NeverFits,
        Code::BatchRejected,
        Code::QueueFull,
        Code::Stale,
        Code::SessionFull,
        Code::TooManyAttempts,
        Code::TooMany,
        Code::Internal,
        Code::Damaged,
        Code::WorkerFailed,
        Code::WorkerAway,
        Code::WorkerTimeout,
        Code::Draining,
        Code::Unavailable,
        Code::StorageLow,
    ];

    /// The word, its status and its title.
    fn row(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Code::MalformedJson => ("malformed_json", S::BAD_REQUEST, "The body is not JSON"),
            Code::InvalidField => ("invalid_field", S::BAD_REQUEST, "A field has a value that cannot be"),
            Code::UnknownField => ("unknown_field", S::BAD_REQUEST, "No such field"),
            Code::TooDeep => ("too_deep", S::BAD_REQUEST, "The body is nested too deep"),
            Code::InvalidId => ("invalid_id", S::BAD_REQUEST, "This is not an id"),
            Code::InvalidCursor => ("invalid_cursor", S::BAD_REQUEST, "The cursor is not one of this list"),
            Code::Unauthorized => ("unauthorized", S::UNAUTHORIZED, "A valid token is needed"),
            Code::Forbidden => ("forbidden", S::FORBIDDEN, "The token may not do this"),
            Code::OriginDenied => ("origin_denied", S::FORBIDDEN, "Pages of this origin may not call"),
            Code::NotFound => ("not_found", S::NOT_FOUND, "There is no such thing"),
            Code::MethodNotAllowed => ("method_not_allowed", S::METHOD_NOT_ALLOWED, "Not with this method"),
            Code::BodyTimeout => ("body_timeout", S::REQUEST_TIMEOUT, "The body did not arrive in time"),
            Code::AlreadyEnded => ("already_ended", S::CONFLICT, "The job has ended"),
            Code::NotEnded => ("not_ended", S::CONFLICT, "The job has not ended"),
            Code::Conflict => ("conflict", S::CONFLICT, "The change does not fit"),
            Code::AlreadyExists => ("already_exists", S::CONFLICT, "There is one of that name already"),
            Code::Gone => ("gone", S::GONE, "It is not there any more"),
            Code::BodyTooLarge => ("body_too_large", S::PAYLOAD_TOO_LARGE, "The body is too large"),
            Code::UnsupportedMediaType => {
                ("unsupported_media_type", S::UNSUPPORTED_MEDIA_TYPE, "The body must be JSON")
            }
            Code::RangeNotSatisfiable => {
                ("range_not_satisfiable", S::RANGE_NOT_SATISFIABLE, "There are no such bytes")
            }
            Code::Misdirected => ("misdirected", S::MISDIRECTED_REQUEST, "The request is for another host"),
            Code::DeadlinePast => ("deadline_past", S::UNPROCESSABLE_ENTITY, "The deadline has passed"),
            Code::IdempotencyMismatch => {
                ("idempotency_mismatch", S::UNPROCESSABLE_ENTITY, "The key stands for another request")
            }
            Code::UnknownKind => ("unknown_kind", S::UNPROCESSABLE_ENTITY, "Nobody offers the kind"),
            Code::UnknownLane => ("unknown_lane", S::UNPROCESSABLE_ENTITY, "There is no such lane"),
            Code::NeverFits => {
                ("never_fits", S::UNPROCESSABLE_ENTITY, "It costs more than the machine can ever give")
            }
            Code::Invalid => ("invalid", S::UNPROCESSABLE_ENTITY, "This cannot be done"),
            Code::NoFutureRun => ("no_future_run", S::UNPROCESSABLE_ENTITY, "It would never run"),
            Code::BatchRejected => {
                ("batch_rejected", S::FAILED_DEPENDENCY, "Another job of the batch was rejected")
            }
            Code::QueueFull => ("queue_full", S::TOO_MANY_REQUESTS, "The queue is full"),
            Code::Stale => ("stale", S::CONFLICT, "Sent before its session was stopped"),
            Code::SessionFull => ("session_full", S::TOO_MANY_REQUESTS, "The session is full"),
            Code::TooManyAttempts => ("too_many_attempts", S::TOO_MANY_REQUESTS, "Too many bad tokens"),
            Code::TooMany => ("too_many", S::TOO_MANY_REQUESTS, "Too many of them"),
            Code::Internal => ("internal", S::INTERNAL_SERVER_ERROR, "Something broke inside"),
            Code::Damaged => ("damaged", S::INTERNAL_SERVER_ERROR, "What is stored is not what was written"),
            Code::WorkerFailed => ("worker_failed", S::BAD_GATEWAY, "The worker could not do it"),
            Code::WorkerAway => ("worker_away", S::SERVICE_UNAVAILABLE, "The worker is not connected now"),
            Code::WorkerTimeout => {
                ("worker_timeout", S::GATEWAY_TIMEOUT, "The worker did not answer in time")
            }
            Code::Draining => ("draining", S::SERVICE_UNAVAILABLE, "The server is stopping"),
            Code::Unavailable => {
                ("unavailable", S::SERVICE_UNAVAILABLE, "The server stopped before it answered")
            }
            Code::StorageLow => ("storage_low", S::INSUFFICIENT_STORAGE, "Storage runs low"),
        }
    }

    /// The stable word for programs.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        self.row().1
    }
}

/// An error on its way to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Which error it is.
    pub code: Code,
    /// What was wrong this time, and what to do about it.
    pub detail: Cow<'static, str>,
    /// The field, parameter or header that was wrong.
    pub field: Option<String>,
    /// When asking again may help.
    pub retry_after: Option<Span>,
}

impl ApiError {
    /// An error with its detail.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError { code, detail: bounded(detail.into()), field: None, retry_after: None }
    }

    /// A field whose value cannot be; `detail` follows the field's name and says the remedy.
    pub fn field(field: impl Into<String>, detail: impl std::fmt::Display) -> ApiError {
        let field = field.into();
        let mut error = ApiError::new(Code::InvalidField, format!("{field} {detail}"));
        error.field = Some(field);
        error
    }

    /// No such job for this caller. The same for jobs that are not there and jobs of others.
    pub fn no_job() -> ApiError {
        ApiError::new(Code::NotFound, "there is no such job; it may have been removed after its retention")
    }

    /// Something broke inside. `cause` goes to the log only.
    pub fn internal(cause: impl std::fmt::Display) -> ApiError {
        tracing::error!(%cause, "a call failed inside");
        ApiError::new(Code::Internal, "the server could not do this; its log says why, under this request id")
    }

    /// What was read is not what was written. `cause` names table and row, and what to do.
    pub fn damaged(cause: &ReadError) -> ApiError {
        tracing::error!(%cause, "damage was read");
        ApiError::new(Code::Damaged, cause.to_string())
    }

    /// The server stopped before it could answer. A commit that failed may or may not have reached the disk.
    pub fn unavailable() -> ApiError {
        let detail = "the server stopped before it could answer; it is not known whether this was done; ask again after \
                      its restart, with the same idempotency key";
        let mut error = ApiError::new(Code::Unavailable, detail);
        error.retry_after = Some(Span::secs(5));
        error
    }

    /// The same error about a field inside `parent`.
    pub fn within(mut self, parent: &str) -> ApiError {
        self.field = Some(match self.field {
            Some(field) => {
                // The engine's messages begin with the name of the field, which is another one now.
                if let Some(rest) = self.detail.strip_prefix(&format!("{field}: ")) {
                    self.detail = Cow::Owned(format!("{parent}.{field}: {rest}"));
                }
                format!("{parent}.{field}")
            }
            None => parent.to_owned(),
        });
        self
    }

    /// The error as it stands on the wire.
    pub fn to_problem(&self, request: Option<&Name>) -> Problem {
        let (word, status, title) = self.code.row();
        Problem {
            kind: Cow::Owned(format!("urn:laneway:problem:{word}")),
            title: Cow::Borrowed(title),
            status: status.as_u16(),
            detail: self.detail.to_string(),
            code: Cow::Borrowed(word),
            field: self.field.clone(),
            request_id: request.map(Name::to_string),
            retry_after_ms: self.retry_after.map(|span| span.0),
        }
    }

    /// The whole response.
    pub fn to_response(&self, request: &Name) -> Response {
        let body = serde_json::to_vec(&self.to_problem(Some(request))).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(span) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(span.0.div_ceil(1_000).max(1)));
        }
        if self.code == Code::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"laneway\""));
        }
        response
    }
}

impl IntoResponse for ApiError {
    /// Hands the error to the gate, which knows the request's id and writes it.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.code.status();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> ApiError {
        let code = match rejection.code {
            RejectionCode::QueueFull => Code::QueueFull,
            RejectionCode::IdempotencyMismatch => Code::IdempotencyMismatch,
            RejectionCode::DeadlinePast => Code::DeadlinePast,
            RejectionCode::UnknownKind => Code::UnknownKind,
            RejectionCode::UnknownLane => Code::UnknownLane,
            RejectionCode::Draining => Code::Draining,
            RejectionCode::StorageLow => Code::StorageLow,
            RejectionCode::BatchRejected => Code::BatchRejected,
            RejectionCode::Invalid => Code::Invalid,
            RejectionCode::TooMany => Code::TooMany,
            RejectionCode::SessionFull => Code::SessionFull,
            RejectionCode::Stale => Code::Stale,
            RejectionCode::NoFutureRun => Code::NoFutureRun,
            RejectionCode::NameTaken => Code::AlreadyExists,
            RejectionCode::NeverFits => Code::NeverFits,
        };
        let mut error = ApiError::new(code, String::from(rejection.message));
        error.field = match code {
            // The engine's message begins with the field that it is about.
            Code::DeadlinePast if error.detail.starts_with("not_before:") => Some("not_before".to_owned()),
            Code::DeadlinePast => Some("deadline".to_owned()),
            Code::IdempotencyMismatch => Some("idempotency_key".to_owned()),
            Code::UnknownKind => Some("kind".to_owned()),
            Code::UnknownLane => Some("lane".to_owned()),
            Code::SessionFull => Some("session.cap".to_owned()),
            Code::Stale => Some("session.sent_at".to_owned()),
            Code::NeverFits => Some("cost".to_owned()),
            _ => None,
        };
        error.retry_after = rejection.retry_after.or(match code {
            Code::QueueFull | Code::SessionFull => Some(Span::secs(1)),
            Code::Draining => Some(Span::secs(5)),
            Code::StorageLow => Some(Span::secs(60)),
            _ => None,
        });
        error
    }
}

impl From<Stopped> for ApiError {
    fn from(_: Stopped) -> ApiError {
        ApiError::unavailable()
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> ApiError {
        match error {
            ReadError::Stopped(_) => ApiError::unavailable(),
            ReadError::Store(StoreError::Damaged(_)) => ApiError::damaged(&error),
            ReadError::Store(_) | ReadError::Panicked => ApiError::internal(error),
        }
    }
}

impl From<WaitError> for ApiError {
    fn from(error: WaitError) -> ApiError {
        match error {
            WaitError::NotFound => ApiError::no_job(),
            WaitError::TooMany => {
                let detail = "too many calls wait for jobs already; ask without wait, or again later";
                ApiError { retry_after: Some(Span::secs(5)), ..ApiError::new(Code::TooMany, detail) }
            }
            WaitError::Read(error) => error.into(),
            WaitError::Stopped(error) => error.into(),
        }
    }
}

impl From<ConfigErrors> for ApiError {
    fn from(errors: ConfigErrors) -> ApiError {
        let code = match errors.kind() {
            ConfigErrorKind::Invalid => Code::InvalidField,
            ConfigErrorKind::UnknownKey => Code::UnknownField,
            ConfigErrorKind::NotChangeable | ConfigErrorKind::Conflict | ConfigErrorKind::Unreadable => {
                Code::Conflict
            }
            ConfigErrorKind::Stopped => return ApiError::unavailable(),
        };
        let mut error = ApiError::new(code, errors.to_string().replace('\n', "; "));
        error.field = errors.list().iter().find(|error| !error.key.is_empty()).map(|error| error.key.clone());
        error
    }
}

fn bounded(detail: Cow<'static, str>) -> Cow<'static, str> {
    if detail.len() <= DETAIL_MAX {
        return detail;
    }
    let end = (0..=DETAIL_MAX).rev().find(|&at| detail.is_char_boundary(at)).unwrap_or(0);
    Cow::Owned(format!("{}…", &detail[..end]))
}
