//! CORS: lets pages of `server.allowed_origins` use the API from a browser.
//!
//! A browser sends a preflight request first, and lets a page read a response only if the response allows it. Pages
//! of other origins get no such headers. This grants no permission: the gate authenticates every request, and
//! `auth/site.rs` checks requests without a token. The API uses no cookies, so none are allowed.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;

use crate::api::Api;

/// Every method of the API.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
/// Every header of the API that a page may send only after a preflight.
const HEADERS: &str = "authorization, content-type, idempotency-key, laneway-tenant, last-event-id, mcp-method, mcp-name, \
                       mcp-protocol-version, mcp-session-id, traceparent, tracestate";
/// The response headers that a page may read in addition to the safelisted ones.
const EXPOSED: &str = "request-id, retry-after, location, mcp-protocol-version, mcp-session-id";
/// How long a browser may cache a preflight, in seconds. It is short, because origins can be removed from the list.
const MAX_AGE: &str = "600";

/// The origin of the calling page, if it is allowed.
pub fn allowed_origin(api: &Api, headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(ORIGIN)?;
    let origin = value.to_str().ok()?;
    let config = api.config.current();
    let is_allowed = config.server.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin));
    is_allowed.then(|| value.clone())
}

/// The response to a preflight from an allowed origin.
pub fn preflight(method: &Method, headers: &HeaderMap, origin: Option<&HeaderValue>) -> Option<Response> {
    if origin.is_none() || method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    Some(response)
}

/// Lets the page read the response.
pub fn allow(response: &mut Response, origin: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(VARY, HeaderValue::from_static("origin"));
}
