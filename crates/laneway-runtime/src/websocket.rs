//! The end of a WebSocket connection, for everything that serves one.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use tokio::time::timeout;

/// How long a client may take to accept the close frame. A client that takes longer is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to answer with its own close frame.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Closes a connection with a code and a reason. Frames that the client has already sent are read and dropped until it
/// answers: a TCP connection that ends with unread data is reset, and the client would lose the close frame.
pub async fn close(socket: &mut WebSocket, code: u16, reason: &'static str) {
    let frame = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    if !matches!(timeout(SEND_TIMEOUT, socket.send(frame)).await, Ok(Ok(()))) {
        return;
    }
    let answered =
        async { while !matches!(socket.recv().await, None | Some(Err(_) | Ok(Message::Close(_)))) {} };
    let _ = timeout(ANSWER_TIMEOUT, answered).await;
}
