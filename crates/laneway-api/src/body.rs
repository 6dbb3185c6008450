//! Reads request bodies: bounded in size before they are read, and in time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use futures_util::StreamExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::{Api, BODY_ROOM_KIB};
use crate::error::{ApiError, Code};

/// Bodies up to this many bytes are read without asking for room: all connections together have 256 MiB of them.
const SMALL: usize = 64 * 1024;
/// A body must have arrived after this long, so that a slow sender does not hold a connection for ever.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A body, and the room that it takes while it is in memory.
pub struct Received {
    bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

impl std::ops::Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole body, of at most `max` bytes. A body that says it is larger is not read at all, and a large one waits until
/// there is room for it.
pub async fn read(api: &Api, headers: &HeaderMap, body: Body, max: usize) -> Result<Received, ApiError> {
    let said = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let len_max = said.unwrap_or(max);
    if len_max > max {
        return Err(too_large(max));
    }
    let arrives = async {
        let room = if len_max > SMALL { Some(take_room(api, len_max).await?) } else { None };
        Ok(Received { bytes: collect(body, max).await?, _room: room })
    };
    let Ok(read) = tokio::time::timeout(READ_TIMEOUT, arrives).await else {
        let seconds = READ_TIMEOUT.as_secs();
        let detail =
            format!("the body did not arrive within {seconds} seconds; send it faster, or less at once");
        return Err(ApiError::new(Code::BodyTimeout, detail));
    };
    read
}

async fn take_room(api: &Api, len: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    let kib = u32::try_from(len.div_ceil(1_024).min(BODY_ROOM_KIB)).unwrap_or(u32::MAX);
    Arc::clone(&api.body_room).acquire_many_owned(kib).await.map_err(ApiError::internal)
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
