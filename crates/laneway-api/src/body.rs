//! Reads request bodies: bounded in size before they are read, and in time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use futures_util::StreamExt;

use crate::error::{ApiError, Code};

/// A body must have arrived after this long, so that a slow sender does not hold a connection for ever.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The whole body, of at most `max` bytes. A body that says it is larger is not read at all.
pub async fn read(headers: &HeaderMap, body: Body, max: usize) -> Result<Bytes, ApiError> {
    let said = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<u64>().ok());
    if said.is_some_and(|said| said > max as u64) {
        return Err(too_large(max));
    }
    let Ok(read) = tokio::time::timeout(READ_TIMEOUT, collect(body, max)).await else {
        let detail = format!(
            "the body did not arrive within {} seconds; send it faster or in parts",
            READ_TIMEOUT.as_secs()
        );
        return Err(ApiError::new(Code::BodyTimeout, detail));
    };
    read
}

async fn collect(body: Body, max: usize) -> Result<Bytes, ApiError> {
    let mut chunks = body.into_data_stream();
    // A body of one chunk, as nearly all are, is passed on without a copy.
    let mut first = Bytes::new();
    let mut rest = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk =
            chunk.map_err(|_| ApiError::new(Code::MalformedJson, "the body broke off; send it again"))?;
        if first.len() + rest.len() + chunk.len() > max {
            return Err(too_large(max));
        }
        if first.is_empty() && rest.is_empty() {
            first = chunk;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&chunk);
        }
    }
    Ok(if rest.is_empty() { first } else { Bytes::from(rest) })
}

/// What a body or a part of it that is too large is answered.
pub fn too_large(max: usize) -> ApiError {
    let detail = format!(
        "the body may have {max} bytes (server.body_max); send less, or keep large data elsewhere and send its address"
    );
    ApiError::new(Code::BodyTooLarge, detail)
}
