//! Every error of the dialect: its status, its code, and a sanitised message.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use laneway_browser::{ActionError, ForwardError};
use laneway_core::{Name, Span};
use laneway_runtime::caller::Denied;
use laneway_runtime::{ReadError, Stopped};
use serde_json::{Map, Value, json};

/// Longest message, in bytes; the rest is replaced by dots.
const MESSAGE_MAX: usize = 1_024;
/// Prefixes of paths that messages must not show.
const ROOTS: [&str; 8] = ["/Users/", "/home/", "/var/", "/tmp/", "/private/", "/opt/", "/etc/", "/Volumes/"];

/// The code of errors without one of their own.
const GENERIC: &str = "error";

/// An error response.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    retryable: bool,
    details: Map<String, Value>,
    headers: Vec<(HeaderName, String)>,
}

impl Problem {
    /// An error with its own code.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Problem {
        let (details, headers) = (Map::new(), Vec::new());
        Problem { status, code, message: message.into(), retryable: false, details, headers }
    }

    /// An error without its own code.
    pub fn generic(status: StatusCode, message: impl Into<String>) -> Problem {
        Problem::new(status, GENERIC, message)
    }

    /// An invalid request.
    pub fn bad_request(message: impl Into<String>) -> Problem {
        Problem::generic(StatusCode::BAD_REQUEST, message)
    }

    /// The resource does not exist.
    pub fn not_found(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Adds `Retry-After`.
    pub fn retry_after(mut self, span: Span) -> Problem {
        self.retryable = true;
        self.header(RETRY_AFTER, span.0.div_ceil(1_000).max(1).to_string())
    }

    /// Adds details; `details` must be an object.
    pub fn details(mut self, details: Value) -> Problem {
        if let Value::Object(details) = details {
            self.details = details;
        }
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: HeaderName, value: String) -> Problem {
        self.headers.push((name, value));
        self
    }

    /// The message alone.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = Map::new();
        body.insert("code".to_owned(), self.code.into());
        body.insert("error".to_owned(), sanitized(&self.message).into());
        if self.retryable {
            body.insert("retryable".to_owned(), true.into());
        }
        if !self.details.is_empty() {
            body.insert("details".to_owned(), self.details.into());
        }
        let mut response = json_line(self.status, &Value::Object(body));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

impl From<Stopped> for Problem {
    fn from(_: Stopped) -> Problem {
        let message = "scheduler is shutting down; try again after its restart";
        Problem::generic(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(Span::secs(5))
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::Stopped(stopped) => stopped.into(),
            error => {
                tracing::error!(%error, "internal error");
                Problem::generic(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal error; the server's log says why",
                )
            }
        }
    }
}

/// `value` as one line of JSON.
pub fn json_line(status: StatusCode, value: &impl serde::Serialize) -> Response {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a call that does not reach its handler.
pub fn denied(denied: &Denied, _: &Name) -> Response {
    let unauthorized = |code| {
        Problem::new(StatusCode::UNAUTHORIZED, code, "unauthorized")
            .header(WWW_AUTHENTICATE, "Bearer realm=\"pinchtab\"".to_owned())
    };
    let problem = match denied {
        Denied::MissingToken => unauthorized("missing_token"),
        Denied::BadToken | Denied::EndedToken => unauthorized("bad_token"),
        Denied::TooManyAttempts { retry_after } => {
            let message = "too many bad tokens came from this address";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).retry_after(*retry_after)
        }
        Denied::Forbidden(why) | Denied::Misdirected(why) | Denied::ForeignOrigin(why) => {
            Problem::new(StatusCode::FORBIDDEN, "forbidden", why.as_str())
        }
        Denied::TooManyRequests { max, window } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "too many requests")
                .retry_after(*window)
                .details(json!({"windowSec": window.0 / 1_000, "max": max}))
        }
        Denied::UnknownMethod => return plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n"),
        Denied::UnknownPath => return plain(StatusCode::NOT_FOUND, "404 page not found\n"),
        Denied::Internal => {
            Problem::generic(StatusCode::INTERNAL_SERVER_ERROR, "internal error; the server's log says why")
        }
    };
    problem.into_response()
}

/// The message for an action that was canceled while it ran.
pub const CANCELED: &str = "executor request failed: context canceled";
/// The message for an action whose time limit passed.
pub const DEADLINE: &str = "executor request failed: context deadline exceeded";

/// The message of a failed job of the kind `tab_action`.
pub fn action_text(error: &ActionError) -> String {
    match error {
        ActionError::NoTabId => "tabId is required for task execution".to_owned(),
        ActionError::Forward(error) => forward_text(error),
        ActionError::Redirect { status } => {
            format!("executor returned {status}: redirects are not followed")
        }
        ActionError::Status { status, body } => format!("executor returned {status}: {body}"),
    }
}

/// The message for an action that was not forwarded, or whose answer was not read.
pub fn forward_text(error: &ForwardError) -> String {
    match error {
        ForwardError::Unresolved { tab, source } => format!("could not resolve tab {tab:?}: {source}"),
        ForwardError::Request(cause) => format!("executor request failed: {cause}"),
        ForwardError::Deadline => DEADLINE.to_owned(),
        ForwardError::Canceled => CANCELED.to_owned(),
        ForwardError::Read(cause) => format!("failed to read executor response: {cause}"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The message without control characters and local paths, cut to the limit.
pub fn sanitized(message: &str) -> String {
    let mut clean = without_paths(&without_controls(message));
    if clean.len() > MESSAGE_MAX {
        let end = (0..=MESSAGE_MAX).rev().find(|&at| clean.is_char_boundary(at)).unwrap_or(0);
        clean.truncate(end);
        clean.push_str("...");
    }
    if clean.is_empty() { GENERIC.to_owned() } else { clean }
}

/// Removes escape sequences and replaces other control characters by one space.
fn without_controls(message: &str) -> String {
    let mut clean = String::with_capacity(message.len());
    let mut letters = message.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            if letters.next_if_eq(&'[').is_some() {
                // The sequence ends with its first letter.
                letters.by_ref().find(|letter| ('\u{40}'..='\u{7e}').contains(letter));
            }
        } else if letter.is_control() {
            if !clean.ends_with(' ') {
                clean.push(' ');
            }
        } else {
            clean.push(letter);
        }
    }
    clean.trim().to_owned()
}

fn without_paths(message: &str) -> String {
    let mut clean = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(letter) = rest.chars().next() {
        let inside_name =
            clean.ends_with(|before: char| before.is_alphanumeric() || "._-/\\".contains(before));
        if !inside_name && begins_with_path(rest) {
            clean.push_str("[path]");
            let end = rest.find(|letter: char| letter.is_whitespace() || "\"'`,;)]}>".contains(letter));
            rest = &rest[end.unwrap_or(rest.len())..];
            continue;
        }
        clean.push(letter);
        rest = &rest[letter.len_utf8()..];
    }
    clean
}

fn begins_with_path(text: &str) -> bool {
    let drive = text.as_bytes();
    let is_drive = drive.len() > 2 && drive[0].is_ascii_alphabetic() && drive[1] == b':' && drive[2] == b'\\';
    is_drive || ROOTS.iter().any(|root| text.starts_with(root))
}
