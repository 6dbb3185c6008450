//! The way to the native HTTP API: requests, responses, and the trait that sends them.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;

use axum::http::request::Parts;
use thiserror::Error;

/// The methods that tools use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Changes.
    Post,
}

/// A request of the native API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    /// The method.
    pub method: Method,
    /// The path and the query, escaped.
    pub path: String,
    /// The body, as JSON.
    pub body: Option<Vec<u8>>,
    /// The trace context of the caller, if the call has one of its own.
    pub trace: Option<Trace>,
}

/// The trace context of a call: the entries `traceparent` and `tracestate` of its `_meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The header `traceparent`.
    pub parent: String,
    /// The header `tracestate`.
    pub state: Option<String>,
}

/// The response to a request, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// The API gave no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct Unanswered {
    /// A stable code for programs.
    pub code: &'static str,
    /// What happened, and the remedy.
    pub message: String,
}

/// The future of a request.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<ApiResponse, Unanswered>> + Send + 'a>>;

/// Sends requests to the native API. It is a trait object, so that the code of the protocol is compiled once.
pub trait ApiClient: Send + Sync {
    /// Sends a request. `http` is the HTTP request that carried the tool call, if one did: it has the caller's token.
    fn call<'a>(&'a self, request: ApiRequest, http: Option<&'a Parts>) -> Answering<'a>;
}

impl ApiRequest {
    /// A GET without a query.
    pub fn get(path: impl Into<String>) -> ApiRequest {
        ApiRequest { method: Method::Get, path: path.into(), body: None, trace: None }
    }

    /// A POST without a body.
    pub fn post(path: impl Into<String>) -> ApiRequest {
        ApiRequest { method: Method::Post, path: path.into(), body: None, trace: None }
    }
}

/// Escapes everything but unreserved characters, so that no value can change the path or the query.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn a_value_cannot_change_the_path() {
        assert_eq!(escape("chat-42_a.b~c"), "chat-42_a.b~c");
        assert_eq!(escape("a/../b?x=1&y#z é"), "a%2F..%2Fb%3Fx%3D1%26y%23z%20%C3%A9");
    }
}
