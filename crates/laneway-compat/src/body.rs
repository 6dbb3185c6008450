//! Reads requests: the caller of a handler, and bodies up to a size limit. The gate limits how slowly a body may arrive and how many
//! large ones are read at once.

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use futures_util::StreamExt;
use laneway_runtime::Caller;
use laneway_runtime::caller::BodyDelay;

/// The dialect and the caller, which almost every handler needs. The gate has added the caller.
pub struct Call<S>(pub S, pub Caller);

impl<S: Clone + Send + Sync> FromRequestParts<S> for Call<S> {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, dialect: &S) -> Result<Call<S>, ExtensionRejection> {
        let Extension(caller) = Extension::from_request_parts(parts, dialect).await?;
        Ok(Call(dialect.clone(), caller))
    }
}

/// Why a body could not be read. Each dialect has its own error for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is too large.
    TooLarge,
    /// It arrived too slowly.
    Late,
    /// Its tenant or token sends too many large bodies at once.
    Busy,
    /// The connection broke.
    Broken,
}

/// The whole body of a request, if it has at most `len_max` bytes.
pub async fn read(request: Request, len_max: usize) -> Result<Vec<u8>, BodyError> {
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|len: usize| len > len_max) {
        return Err(BodyError::TooLarge);
    }
    collect(request.into_body(), len_max).await
}

async fn collect(body: Body, len_max: usize) -> Result<Vec<u8>, BodyError> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(broken)?;
        if bytes.len() + chunk.len() > len_max {
            return Err(BodyError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn broken(error: axum::Error) -> BodyError {
    match error.into_inner().downcast_ref::<BodyDelay>() {
        Some(BodyDelay::Late) => BodyError::Late,
        Some(BodyDelay::Busy) => BodyError::Busy,
        None => BodyError::Broken,
    }
}
