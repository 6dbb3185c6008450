//! Lets pages of `server.allowed_origins` use the API from a browser (CORS).
//!
//! A browser asks first (a preflight), and lets a page read an answer only if the answer says so. Pages of other origins
//! get no such word. This gives nobody a right: who calls and whether they may is for the gate to say, and calls that
//! come without a token are judged in `auth/site.rs`. No cookies are used, so none are allowed.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;

use crate::api::Api;

/// Every method that a route of the API knows.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
/// Every header that the API reads and a page may not send unasked.
const HEADERS: &str = "authorization, content-type, idempotency-key, laneway-tenant, last-event-id";
/// Headers of answers that a page may read, beside those that every page may.
const EXPOSED: &str = "request-id, retry-after, location";
/// How long a browser may remember a preflight, in seconds: short, because origins can be taken off the list.
const MAX_AGE: &str = "600";

/// The origin of the page that asks, if it is an allowed one.
pub fn allowed_origin(api: &Api, headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(ORIGIN)?;
    let origin = value.to_str().ok()?;
    let config = api.config.current();
    let is_allowed = config.server.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin));
    is_allowed.then(|| value.clone())
}

/// The answer to a preflight, if this is one from an allowed origin.
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

/// Lets the page read the answer.
pub fn allow(response: &mut Response, origin: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(VARY, HeaderValue::from_static("origin"));
}
