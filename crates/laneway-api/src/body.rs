//! Reads request bodies, with a limit on their size. `paced_body.rs` limits how slowly they may arrive,
//! `body_budget.rs` how many bytes of them are in memory at once.

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use futures_util::StreamExt;
use laneway_core::Span;
use laneway_runtime::caller::BodyDelay;

use crate::error::{ApiError, Code};

/// After what time a client may send a body again that was one too many.
const BUSY_RETRY: Span = Span::secs(1);

/// Bodies up to this many bytes are collected in a buffer that grows as they arrive.
const SMALL: usize = 64 * 1024;

/// A received body.
pub struct Received {
    bytes: Bytes,
}

impl std::ops::Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole body, of at most `max` bytes. A body with a larger declared length is not read at all.
pub async fn read(headers: &HeaderMap, body: Body, max: usize) -> Result<Received, ApiError> {
    let declared = declared_len(headers);
    if declared.is_some_and(|declared| declared > max) {
        return Err(too_large(max));
    }
    collect(body, declared, max).await
}

/// The length of the body, if the client declares it.
pub fn declared_len(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

async fn collect(body: Body, declared: Option<usize>, max: usize) -> Result<Received, ApiError> {
    let mut chunks = body.into_data_stream();
    // A body of one chunk, which is the common case, is passed on without a copy.
    let mut first = Bytes::new();
    let mut rest = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(broken)?;
        if first.len() + rest.len() + chunk.len() > max {
            return Err(too_large(max));
        }
        if first.is_empty() && rest.is_empty() {
            first = chunk;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            if rest.len() > SMALL && rest.len() + chunk.len() > rest.capacity() {
                reserve_declared(&mut rest, declared);
            }
            rest.extend_from_slice(&chunk);
        }
    }
    let bytes = if rest.is_empty() { first } else { Bytes::from(rest) };
    Ok(Received { bytes })
}

/// Reserves the declared length of a large body at once. A buffer that doubles would leave as much memory again with
/// the allocator. The system provides memory only as bytes arrive, so a declared length alone costs nothing.
fn reserve_declared(buffer: &mut Vec<u8>, declared: Option<usize>) {
    if let Some(missing) = declared.and_then(|declared| declared.checked_sub(buffer.len())) {
        buffer.reserve_exact(missing);
    }
}

/// The response for a body that did not arrive as a whole.
pub fn broken(error: axum::Error) -> ApiError {
    match error.into_inner().downcast_ref::<BodyDelay>() {
        None => ApiError::new(Code::MalformedJson, "the body is incomplete; send it again"),
        Some(BodyDelay::Late) => {
            let detail = "the body arrived too slowly: 5 seconds without a byte, less than 16 KiB in a second, or more than 30 \
                          seconds in all; send it faster, or less at once";
            ApiError::new(Code::BodyTimeout, detail)
        }
        Some(BodyDelay::Busy) => {
            let detail = "the tenant or the token has reached its share of large bodies at once; send the request again later";
            let mut error = ApiError::new(Code::TooMany, detail);
            error.retry_after = Some(BUSY_RETRY);
            error
        }
    }
}

/// The response for a body that is too large, or has a part that is.
pub fn too_large(max: usize) -> ApiError {
    let detail = format!(
        "the body has more than {max} bytes (server.body_max); send less, or store large data elsewhere and send its URL"
    );
    ApiError::new(Code::BodyTooLarge, detail)
}
