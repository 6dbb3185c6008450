//! Closes connections whose clients do not read, so that their buffers are freed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

/// A client that reads nothing for this long, although data waits for it, is disconnected.
const STALL_MAX: Duration = Duration::from_secs(60);
/// The same while the server stops. A client that reads gets its response; one that does not read delays no stop.
const STALL_AT_STOP_MAX: Duration = Duration::from_secs(1);

/// A connection that fails when a write makes no progress for too long.
pub struct StallGuard<Io> {
    io: Io,
    /// Runs while the client does not read.
    stalled: Option<Pin<Box<Sleep>>>,
    max: Duration,
    /// Canceled when the server stops.
    stop: CancellationToken,
}

impl<Io: Unpin> StallGuard<Io> {
    pub fn new(io: Io, stop: CancellationToken) -> StallGuard<Io> {
        StallGuard { io, stalled: None, max: STALL_MAX, stop }
    }

    /// Passes on the result of a write, unless writes have made no progress for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        if self.max > STALL_AT_STOP_MAX && self.stop.is_cancelled() {
            self.max = STALL_AT_STOP_MAX;
            self.stalled = None;
        }
        let max = self.max;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(max)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for StallGuard<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for StallGuard<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.watch(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(context, bytes);
        self.watch(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(context);
        self.watch(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(context);
        self.watch(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// A client that reads now and then stays connected; one that reads nothing is disconnected.
    #[tokio::test]
    async fn defect_10_a_client_that_does_not_read_is_disconnected() {
        let (near, mut far) = duplex(1_000);
        let stop = CancellationToken::new();
        let mut guard = StallGuard { max: Duration::from_secs(2), ..StallGuard::new(near, stop) };
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 1_000];
            for _ in 0..3 {
                // Long enough that the writer waits; the three together are longer than the limit.
                sleep(Duration::from_millis(800)).await;
                far.read_exact(&mut buffer).await.unwrap();
            }
            far
        });
        guard.write_all(&[0; 4_000]).await.unwrap();
        let _far = reading.await.unwrap();
        let error = guard.write_all(&[0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
