//! Joins the WebSocket of a client with the one that the owner has opened for it.
//!
//! The bytes pass as they are. When the owner is gone, the client gets a close frame that asks it to connect again, unless a frame
//! of the owner is incomplete.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::link::Link;

/// The bytes that are passed on at once.
const BUFFER: usize = 8 * 1024;
/// A close frame with the code 1012: the service restarts.
const RESTARTS: [u8; 4] = [0x88, 0x02, 0x03, 0xf4];

/// Waits for both ends, and passes bytes on until one of them ends.
pub async fn join(near: OnUpgrade, far: OnUpgrade, link: Arc<Link>) {
    let (near, far) = match tokio::try_join!(near, far) {
        Ok(both) => both,
        Err(error) => return tracing::debug!(%error, "a socket was not opened"),
    };
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(near));
    let (mut from_owner, mut to_owner) = tokio::io::split(TokioIo::new(far));
    let mut frames = Frames::default();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_owner) => {
            // The client has gone: so does the other end.
            let _ = to_owner.shutdown().await;
        }
        () = async {
            tokio::select! {
                () = pass_on(&mut from_owner, &mut to_client, &mut frames) => {}
                () = link.ended() => {}
            }
        } => {
            if frames.is_complete() && !frames.closed {
                let _ = to_client.write_all(&RESTARTS).await;
            }
            let _ = to_client.shutdown().await;
        }
    }
}

/// Passes the bytes of the owner on until it, or the client, is gone.
async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    frames: &mut Frames,
) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let len = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(len) => len,
        };
        frames.pass(&buffer[..len]);
        if to.write_all(&buffer[..len]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

/// Counts the frames of a server, to know where one ends.
#[derive(Default)]
struct Frames {
    /// The bytes of the header so far.
    header: Vec<u8>,
    /// The bytes of the frame that are still to come.
    left: u64,
    /// A close frame has passed.
    closed: bool,
}

impl Frames {
    fn is_complete(&self) -> bool {
        self.header.is_empty() && self.left == 0
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        while let Some(&first) = bytes.first() {
            if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= taken as u64;
                bytes = &bytes[taken..];
                continue;
            }
            self.header.push(first);
            bytes = &bytes[1..];
            if let Some(len) = payload_len(&self.header) {
                self.closed |= self.header[0] & 0x0f == 0x08;
                self.left = len;
                self.header.clear();
            }
        }
    }
}

/// The length of the payload, once the header is complete. Frames of a server are not masked.
fn payload_len(header: &[u8]) -> Option<u64> {
    let short = header.get(1)? & 0x7f;
    match short {
        126 => Some(u64::from(u16::from_be_bytes(header.get(2..4)?.try_into().ok()?))),
        127 => Some(u64::from_be_bytes(header.get(2..10)?.try_into().ok()?)),
        len => Some(u64::from(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_where_a_frame_ends_however_its_bytes_come() {
        let mut bytes = vec![0x81, 3, b'a', b'b', b'c'];
        bytes.extend([0x82, 126, 1, 0]);
        bytes.extend([7; 256]);
        bytes.extend([0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        bytes.extend([7; 65_536]);
        bytes.extend([0x89, 0]);
        for step in [1, 2, 3, 7, 100, 5_000, bytes.len()] {
            let mut frames = Frames::default();
            for part in bytes.chunks(step) {
                frames.pass(part);
            }
            assert!(frames.is_complete() && !frames.closed, "{step}");
            frames.pass(&[0x88, 2, 3]);
            assert!(!frames.is_complete() && frames.closed);
        }
    }

    #[test]
    fn the_close_frame_has_no_reason_and_the_code_of_a_restart() {
        let mut frames = Frames::default();
        frames.pass(&RESTARTS);
        assert!(frames.is_complete() && frames.closed);
        assert_eq!(u16::from_be_bytes([RESTARTS[2], RESTARTS[3]]), 1_012);
    }
}
