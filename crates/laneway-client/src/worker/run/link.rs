//! The connection as the loop sees it: down, being made, or up.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use laneway_wire::frame::Frame;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_util::task::AbortOnDropHandle;

use crate::worker::TokenSource;
use crate::worker::connect::{ConnectError, Dialer, Socket};

/// Most frames that wait to be written. A server that reads so slowly is as good as gone.
const OUTGOING_MAX: usize = 8_192;
/// How long the last frames of a worker that ends may take to leave.
const FINISH_LIMIT: Duration = Duration::from_secs(5);

/// The connection.
pub(super) enum Link {
    /// There is none.
    Down,
    /// It is being made.
    Dialing(AbortOnDropHandle<Result<Opened, ConnectError>>),
    /// It stands.
    Up(Up),
}

/// A connection that stands.
pub(super) struct Up {
    incoming: SplitStream<Socket>,
    outgoing: mpsc::Sender<Message>,
    writer: JoinHandle<()>,
    /// Frames did not fit any more.
    overrun: bool,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// A connection that was just made, and the token it was made with.
pub(super) struct Opened {
    pub(super) up: Up,
    pub(super) token: Option<String>,
}

/// What the connection brings.
pub(super) enum Incoming {
    /// It stands.
    Opened(Box<Opened>),
    /// It does not.
    Failed(ConnectError),
    /// Something to read. Bytes that are no text are given as they are: they are answered like any other bad frame.
    Text(Bytes),
    /// It is gone.
    Closed(String),
}

impl Link {
    /// Begins to make a connection. The token is asked for every time: it may have changed.
    pub(super) fn dial(dialer: Dialer, token: TokenSource) -> Link {
        Link::Dialing(AbortOnDropHandle::new(tokio::spawn(async move {
            let token = token().await;
            let socket = dialer.dial(token.as_deref()).await?;
            let (sink, incoming) = socket.split();
            let (outgoing, waiting) = mpsc::channel(OUTGOING_MAX);
            let writer = tokio::spawn(write(sink, waiting));
            Ok(Opened { up: Up { incoming, outgoing, writer, overrun: false }, token })
        })))
    }

    /// What comes next; never, while there is no connection.
    pub(super) async fn next(&mut self) -> Incoming {
        match self {
            Link::Down => std::future::pending().await,
            Link::Dialing(dialing) => match dialing.await {
                Ok(Ok(opened)) => Incoming::Opened(Box::new(opened)),
                Ok(Err(error)) => Incoming::Failed(error),
                Err(error) => Incoming::Failed(ConnectError::Refused(error.to_string())),
            },
            Link::Up(up) => up.next().await,
        }
    }

    /// Sends a frame, if there is a connection.
    pub(super) fn send(&mut self, frame: &Frame) {
        if let Link::Up(up) = self {
            // A full or closed channel shows at the next read: the connection is given up there.
            up.overrun |= up.outgoing.try_send(Message::text(frame.encode())).is_err();
        }
    }

    /// Lets the last frames leave, and says goodbye.
    pub(super) async fn finish(self) {
        if let Link::Up(mut up) = self {
            // The writer ends when nobody can give it anything any more.
            let (closed, _) = mpsc::channel(1);
            drop(std::mem::replace(&mut up.outgoing, closed));
            let _ = tokio::time::timeout(FINISH_LIMIT, &mut up.writer).await;
        }
    }
}

impl Up {
    async fn next(&mut self) -> Incoming {
        if self.overrun {
            return Incoming::Closed("the server does not read what we send".to_owned());
        }
        loop {
            match self.incoming.next().await {
                Some(Ok(Message::Text(text))) => return Incoming::Text(text.into()),
                Some(Ok(Message::Binary(bytes))) => return Incoming::Text(bytes),
                Some(Ok(Message::Close(frame))) => {
                    let reason =
                        frame.map_or_else(|| "no reason given".to_owned(), |frame| frame.to_string());
                    return Incoming::Closed(reason);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(error)) => return Incoming::Closed(error.to_string()),
                None => return Incoming::Closed("it ended".to_owned()),
            }
        }
    }
}

/// Writes what comes; all that waits leaves in one go.
async fn write(mut sink: SplitSink<Socket, Message>, mut waiting: mpsc::Receiver<Message>) {
    while let Some(first) = waiting.recv().await {
        if sink.feed(first).await.is_err() {
            return;
        }
        while let Ok(next) = waiting.try_recv() {
            if sink.feed(next).await.is_err() {
                return;
            }
        }
        if sink.flush().await.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}
