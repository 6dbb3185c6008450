//! Every error of the API. Its code, its status and its title are defined here and nowhere else.
//!
//! A handler returns an [`ApiError`]; the gate adds the request's id and writes it as `application/problem+json`.
//! `docs/http-api.md` has the cause and the remedy of each code.

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

/// The longest `detail`, in bytes: a message may quote a part of the client's input, but not all of it.
const DETAIL_MAX: usize = 600;

/// The error codes of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The body is not JSON.
    MalformedJson,
    /// A field, parameter or header has an invalid value.
    InvalidField,
    /// The field or parameter is unknown.
    UnknownField,
    /// The body is nested too deep.
    TooDeep,
    /// The id in the path is invalid.
    InvalidId,
    /// The cursor does not belong to this list.
    InvalidCursor,
    /// The token is missing, unknown, expired or revoked.
    Unauthorized,
    /// The caller has no permission for this.
    Forbidden,
    /// A page of another origin sent the request.
    OriginDenied,
    /// It does not exist for this caller.
    NotFound,
    /// The path does not support the method.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The job has ended.
    AlreadyEnded,
    /// The job does not wait.
    NotWaiting,
    /// Something that has not ended needs it.
    InUse,
    /// The job has not ended.
    NotEnded,
    /// The change contradicts the current state.
    Conflict,
    /// The name is already in use.
    AlreadyExists,
    /// It existed and was removed.
    Gone,
    /// The body is too large.
    BodyTooLarge,
    /// The content type of the body is not JSON.
    UnsupportedMediaType,
    /// The range is outside the resource.
    RangeNotSatisfiable,
    /// The request is for another host.
    Misdirected,
    /// The deadline has passed.
    DeadlinePast,
    /// The idempotency key was used for another request.
    IdempotencyMismatch,
    /// No handler runs the kind.
    UnknownKind,
    /// The lane does not exist.
    UnknownLane,
    /// The engine rejected the request.
    Invalid,
    /// A schedule would never fire.
    NoFutureRun,
    /// The job costs more units than the machine has.
    NeverFits,
    /// Another job of the atomic batch was rejected.
    BatchRejected,
    /// A queue limit is reached.
    QueueFull,
    /// The job was sent before the cutoff of its session.
    Stale,
    /// The waiting limit of the session is reached.
    SessionFull,
    /// Too many bad tokens from one address.
    TooManyAttempts,
    /// A limit of stored items or open streams is reached.
    TooMany,
    /// An internal error.
    Internal,
    /// Stored data is damaged.
    Damaged,
    /// The worker failed to do it.
    WorkerFailed,
    /// The worker is not connected.
    WorkerAway,
    /// The worker did not respond in time.
    WorkerTimeout,
    /// The server is stopping.
    Draining,
    /// The server stopped before it could respond.
    Unavailable,
    /// Storage is low.
    StorageLow,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 44] = [
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
        Code::NotWaiting,
        Code::InUse,
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

    /// The code, its status and its title.
    fn row(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Code::MalformedJson => ("malformed_json", S::BAD_REQUEST, "The body is not JSON"),
            Code::InvalidField => ("invalid_field", S::BAD_REQUEST, "A field has an invalid value"),
            Code::UnknownField => ("unknown_field", S::BAD_REQUEST, "The field is unknown"),
            Code::TooDeep => ("too_deep", S::BAD_REQUEST, "The body is nested too deeply"),
            Code::InvalidId => ("invalid_id", S::BAD_REQUEST, "The id is invalid"),
            Code::InvalidCursor => {
                ("invalid_cursor", S::BAD_REQUEST, "The cursor does not belong to this list")
            }
            Code::Unauthorized => ("unauthorized", S::UNAUTHORIZED, "A valid token is required"),
            Code::Forbidden => ("forbidden", S::FORBIDDEN, "The caller has no permission for this"),
            Code::OriginDenied => {
                ("origin_denied", S::FORBIDDEN, "Pages of this origin may not call the server")
            }
            Code::NotFound => ("not_found", S::NOT_FOUND, "It does not exist"),
            Code::MethodNotAllowed => {
                ("method_not_allowed", S::METHOD_NOT_ALLOWED, "The path does not support this method")
            }
            Code::BodyTimeout => ("body_timeout", S::REQUEST_TIMEOUT, "The body did not arrive in time"),
            Code::AlreadyEnded => ("already_ended", S::CONFLICT, "The job has ended"),
            Code::NotEnded => ("not_ended", S::CONFLICT, "The job has not ended"),
            Code::NotWaiting => ("not_waiting", S::CONFLICT, "The job does not wait"),
            Code::InUse => ("in_use", S::CONFLICT, "Something that has not ended needs it"),
            Code::Conflict => ("conflict", S::CONFLICT, "The change contradicts the current state"),
            Code::AlreadyExists => ("already_exists", S::CONFLICT, "The name is already in use"),
            Code::Gone => ("gone", S::GONE, "It no longer exists"),
            Code::BodyTooLarge => ("body_too_large", S::PAYLOAD_TOO_LARGE, "The body is too large"),
            Code::UnsupportedMediaType => {
                ("unsupported_media_type", S::UNSUPPORTED_MEDIA_TYPE, "The body must be JSON")
            }
            Code::RangeNotSatisfiable => {
                ("range_not_satisfiable", S::RANGE_NOT_SATISFIABLE, "The range is outside the resource")
            }
            Code::Misdirected => ("misdirected", S::MISDIRECTED_REQUEST, "The request is for another host"),
            Code::DeadlinePast => ("deadline_past", S::UNPROCESSABLE_ENTITY, "The deadline has passed"),
            Code::IdempotencyMismatch => {
                ("idempotency_mismatch", S::UNPROCESSABLE_ENTITY, "The key was used for another request")
            }
            Code::UnknownKind => ("unknown_kind", S::UNPROCESSABLE_ENTITY, "No handler runs the kind"),
            Code::UnknownLane => ("unknown_lane", S::UNPROCESSABLE_ENTITY, "The lane does not exist"),
            Code::NeverFits => {
                ("never_fits", S::UNPROCESSABLE_ENTITY, "The job costs more units than the machine has")
            }
            Code::Invalid => ("invalid", S::UNPROCESSABLE_ENTITY, "The request cannot be carried out"),
            Code::NoFutureRun => ("no_future_run", S::UNPROCESSABLE_ENTITY, "The schedule would never fire"),
            Code::BatchRejected => {
                ("batch_rejected", S::FAILED_DEPENDENCY, "Another job of the batch was rejected")
            }
            Code::QueueFull => ("queue_full", S::TOO_MANY_REQUESTS, "The queue is full"),
            Code::Stale => ("stale", S::CONFLICT, "The job was sent before its session was stopped"),
            Code::SessionFull => ("session_full", S::TOO_MANY_REQUESTS, "The session is full"),
            Code::TooManyAttempts => ("too_many_attempts", S::TOO_MANY_REQUESTS, "Too many bad tokens"),
            Code::TooMany => ("too_many", S::TOO_MANY_REQUESTS, "A limit is reached"),
            Code::Internal => ("internal", S::INTERNAL_SERVER_ERROR, "An internal error occurred"),
            Code::Damaged => ("damaged", S::INTERNAL_SERVER_ERROR, "Stored data is damaged"),
            Code::WorkerFailed => ("worker_failed", S::BAD_GATEWAY, "The worker failed"),
            Code::WorkerAway => ("worker_away", S::SERVICE_UNAVAILABLE, "The worker is not connected"),
            Code::WorkerTimeout => {
                ("worker_timeout", S::GATEWAY_TIMEOUT, "The worker did not respond in time")
            }
            Code::Draining => ("draining", S::SERVICE_UNAVAILABLE, "The server is stopping"),
            Code::Unavailable => {
                ("unavailable", S::SERVICE_UNAVAILABLE, "The server stopped before it responded")
            }
            Code::StorageLow => ("storage_low", S::INSUFFICIENT_STORAGE, "Storage is low"),
        }
    }

    /// The stable code for programs.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        self.row().1
    }
}

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The code.
    pub code: Code,
    /// What was wrong, and the remedy.
    pub detail: Cow<'static, str>,
    /// The field, parameter or header.
    pub field: Option<String>,
    /// When a new request may succeed.
    pub retry_after: Option<Span>,
}

impl ApiError {
    /// An error with its detail.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError { code, detail: bounded(detail.into()), field: None, retry_after: None }
    }

    /// An error about a field. `detail` follows the field's name and has the remedy.
    pub fn field(field: impl Into<String>, detail: impl std::fmt::Display) -> ApiError {
        let field = field.into();
        let mut error = ApiError::new(Code::InvalidField, format!("{field} {detail}"));
        error.field = Some(field);
        error
    }

    /// The job does not exist for this caller. The error is the same for missing jobs and for jobs of other tenants.
    pub fn no_job() -> ApiError {
        ApiError::new(Code::NotFound, "the job does not exist; it may have been removed after its retention")
    }

    /// An internal error. `cause` goes only to the log.
    pub fn internal(cause: impl std::fmt::Display) -> ApiError {
        tracing::error!(%cause, "a request failed with an internal error");
        ApiError::new(
            Code::Internal,
            "the request failed; the server log has the cause under this request id",
        )
    }

    /// Damaged data was read. `cause` names the table, the row and the remedy.
    pub fn damaged(cause: &ReadError) -> ApiError {
        tracing::error!(%cause, "damaged data was read");
        ApiError::new(Code::Damaged, cause.to_string())
    }

    /// The server stopped before it could respond. A commit that failed may or may not have reached the disk.
    pub fn unavailable() -> ApiError {
        let detail = "the server stopped before it could respond; the change may or may not have happened; send the request again after \
                      its restart, with the same idempotency key";
        let mut error = ApiError::new(Code::Unavailable, detail);
        error.retry_after = Some(Span::secs(5));
        error
    }

    /// The same error about a field inside `parent`.
    pub fn within(mut self, parent: &str) -> ApiError {
        self.field = Some(match self.field {
            Some(field) => {
                // The engine's messages begin with the name of the field, which is replaced here.
                if let Some(rest) = self.detail.strip_prefix(&format!("{field}: ")) {
                    self.detail = Cow::Owned(format!("{parent}.{field}: {rest}"));
                }
                format!("{parent}.{field}")
            }
            None => parent.to_owned(),
        });
        self
    }

    /// The body of the response.
    pub fn to_problem(&self, request: Option<&Name>) -> Problem {
        let (code, status, title) = self.code.row();
        Problem {
            kind: Cow::Owned(format!("urn:laneway:problem:{code}")),
            title: Cow::Borrowed(title),
            status: status.as_u16(),
            detail: self.detail.to_string(),
            code: Cow::Borrowed(code),
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
    /// Passes the error to the gate, which knows the request's id and writes the response.
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
            RejectionCode::NotWaiting => Code::NotWaiting,
            RejectionCode::NotEnded => Code::NotEnded,
            RejectionCode::InUse => Code::InUse,
        };
        let mut error = ApiError::new(code, String::from(rejection.message));
        error.field = match code {
            // The engine's message begins with the name of the field.
            Code::DeadlinePast if error.detail.starts_with("not_before:") => Some("not_before".to_owned()),
            Code::DeadlinePast if error.detail.starts_with("run_at:") => Some("run_at".to_owned()),
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
                let detail =
                    "too many requests wait for jobs already; send the request without wait, or later";
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
