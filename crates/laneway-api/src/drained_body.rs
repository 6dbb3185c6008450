//! Reads and discards the rest of a request body that a handler did not read, within limits.
//!
//! A response that is sent before the body was read (429, 401, 413) would otherwise end the connection, because the
//! next request begins where the body ends. A client that is still sending would not see the response.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;

use crate::connections::Phase;

/// The largest number of discarded bytes: two batches of the largest size.
const BYTES_MAX: usize = 64 << 20;
/// The longest time of discarding.
const WHOLE_MAX: Duration = Duration::from_secs(10);
/// The longest pause of the sender.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// A body that returns its rest when it is dropped.
pub struct ReturnedBody {
    inner: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
    phase: Phase,
}

/// Receives the rest of a body.
pub struct Rest(oneshot::Receiver<Incoming>);

/// The body for a handler, and the receiver of its rest. `phase` is updated when the handler is done with the body.
pub fn returned(body: Incoming, phase: Phase) -> (ReturnedBody, Rest) {
    let (back, rest) = oneshot::channel();
    (ReturnedBody { inner: Some(body), back: Some(back), phase }, Rest(rest))
}

impl Rest {
    /// Reads and discards the rest, if the handler is done with the body.
    pub async fn drop_all(mut self) {
        let Ok(mut body) = self.0.try_recv() else { return };
        let read = async {
            let mut dropped = 0;
            while dropped < BYTES_MAX {
                let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
                match tokio::time::timeout(IDLE_MAX, next).await {
                    Ok(Some(Ok(frame))) => dropped += frame.data_ref().map_or(0, |data| data.len()),
                    _ => return,
                }
            }
        };
        // A rest that is not read in time ends the connection.
        let _ = tokio::time::timeout(WHOLE_MAX, read).await;
    }
}

impl Body for ReturnedBody {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let inner = self.inner.as_mut().expect("a body is complete until it is dropped");
        Pin::new(inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for ReturnedBody {
    fn drop(&mut self) {
        self.phase.received();
        if let (Some(body), Some(back)) = (self.inner.take(), self.back.take())
            && !body.is_end_stream()
        {
            // When the connection is gone, the receiver is gone.
            let _ = back.send(body);
        }
    }
}
