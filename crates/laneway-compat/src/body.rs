//! Reads the bodies of requests, within bounds: how large one is, how long it takes, how many large ones come at once.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use futures_util::StreamExt;
use tokio::sync::Semaphore;

/// Bodies up to this many bytes are read without asking for room.
const SMALL: usize = 64 << 10;
/// A body must have arrived after this long.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no body. Each dialect has its own words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is longer than it may be.
    TooLarge,
    /// It did not arrive in time.
    Late,
    /// The connection broke before its end.
    Broken,
}

/// The whole body of a request, if it has at most `len_max` bytes. `room` bounds how many large ones are read at once.
pub async fn read(room: &Arc<Semaphore>, request: Request, len_max: usize) -> Result<Vec<u8>, BodyError> {
    let said = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let expected = said.unwrap_or(len_max);
    if expected > len_max {
        return Err(BodyError::TooLarge);
    }
    let read = async {
        let _room = match expected > SMALL {
            true => Arc::clone(room).acquire_owned().await.ok(),
            false => None,
        };
        collect(request.into_body(), len_max).await
    };
    tokio::time::timeout(READ_TIMEOUT, read).await.unwrap_or(Err(BodyError::Late))
}

async fn collect(body: Body, len_max: usize) -> Result<Vec<u8>, BodyError> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| BodyError::Broken)?;
        if bytes.len() + chunk.len() > len_max {
            return Err(BodyError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
