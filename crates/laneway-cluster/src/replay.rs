//! A request that can be sent again, if its body is small.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::http::{HeaderName, Method};
use hyper::body::Body as _;

/// Bodies up to this many bytes are read before the request is forwarded, so that it can be sent again.
const KEPT_MAX: u64 = 64 * 1024;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request that is forwarded once or more often.
pub struct Replay {
    parts: Parts,
    body: Kept,
}

enum Kept {
    /// The whole body.
    Whole(Bytes),
    /// A body that can be sent once. `None`: it was.
    Once(Option<Body>),
}

impl Replay {
    /// Reads a small body. An error: the client did not send it.
    pub async fn new(request: Request) -> Result<Replay, axum::Error> {
        let (parts, body) = request.into_parts();
        let announced =
            parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let kept = match announced {
            _ if body.is_end_stream() => Kept::Whole(Bytes::new()),
            Some(len) if len <= KEPT_MAX => Kept::Whole(to_bytes(body, KEPT_MAX as usize).await?),
            _ => Kept::Once(Some(body)),
        };
        Ok(Replay { parts, body: kept })
    }

    /// Everything but the body.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The body. `None`: it was sent before and is not kept.
    pub fn body(&mut self) -> Option<Body> {
        match &mut self.body {
            Kept::Whole(bytes) if bytes.is_empty() => Some(Body::empty()),
            Kept::Whole(bytes) => Some(Body::from(bytes.clone())),
            Kept::Once(body) => body.take(),
        }
    }

    /// A body that was not sent after all.
    pub fn put_back(&mut self, unsent: Body) {
        if let Kept::Once(body @ None) = &mut self.body {
            *body = Some(unsent);
        }
    }

    /// True when it does no harm to process the request twice: it changes nothing, or its key makes it the same request.
    pub fn is_repeatable(&self) -> bool {
        let safe = matches!(self.parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        (safe || self.parts.headers.contains_key(IDEMPOTENCY_KEY)) && matches!(self.body, Kept::Whole(_))
    }

    /// The whole request, for this process.
    pub fn into_request(mut self) -> Option<Request> {
        let body = self.body()?;
        Some(Request::from_parts(self.parts, body))
    }
}
