//! Writes responses.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use laneway_core::JobId;
use laneway_wire::{BatchResponse, Job};
use serde::Serialize;

use crate::error::ApiError;

/// The result of a handler.
pub type Answer = Result<Response, ApiError>;

/// The initial size of the buffer: enough for a job without large fields.
const USUAL_LEN: usize = 640;

/// 200 with `value` as JSON.
pub fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, value)
}

/// 200 with a JSON document that is part of the program.
pub fn document(text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// `value` as JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let mut bytes = Vec::with_capacity(USUAL_LEN);
    serde_json::to_writer(&mut bytes, value).map_err(ApiError::internal)?;
    Ok(written(status, bytes))
}

/// JSON that is written already.
fn written(status: StatusCode, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a batch.
pub fn batch(status: StatusCode, value: &BatchResponse<'_>) -> Answer {
    Ok(written(status, laneway_wire::json::write_batch(value).map_err(ApiError::internal)?))
}

/// 204 without a body.
pub fn no_content() -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// 303 to another path.
pub fn see_other(to: &str) -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let location = HeaderValue::from_str(to).map_err(ApiError::internal)?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// A new job and its location.
pub fn new_job(status: StatusCode, job: JobId, value: &Job<'_>) -> Answer {
    let mut response = written(status, laneway_wire::json::write_job(value).map_err(ApiError::internal)?);
    let location = HeaderValue::from_str(&format!("/v1/jobs/{job}")).map_err(ApiError::internal)?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}
