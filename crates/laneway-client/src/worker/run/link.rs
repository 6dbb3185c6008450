//! The connection as the loop sees it: down, dialing, or up.

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

/// Most frames that wait to be written. A server that reads more slowly counts as gone.
const OUTGOING_MAX: usize = 8_192;
/// How long the last frames of a stopping worker may take to be sent.
const FINISH_LIMIT: Duration = Duration::from_secs(5);

/// The connection.
pub(super) enum Link {
    /// No connection.
    Down,
    /// A connection is being opened.
    Dialing(AbortOnDropHandle<Result<Opened, ConnectError>>),
    /// The connection is open.
    Up(Up),
}

/// An open connection.
pub(super) struct Up {
    incoming: SplitStream<Socket>,
    outgoing: mpsc::Sender<Message>,
    writer: JoinHandle<()>,
    /// True when a frame did not fit in the channel.
    overrun: bool,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// A new connection, and the token that it was opened with.
pub(super) struct Opened {
    pub(super) up: Up,
    pub(super) token: Option<String>,
}

/// Something that the connection delivered.
pub(super) enum Incoming {
    /// The connection is open.
    Opened(Box<Opened>),
    /// The connection could not be opened.
    Failed(ConnectError),
    /// A message. Binary messages are passed on as they are and handled like any other invalid frame.
    Text(Bytes),
    /// The connection was closed.
    Closed(String),
}

impl Link {
    /// Starts to open a connection. The token source is called every time: the token may have changed.
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

    /// The next incoming item. Pending while there is no connection.
    pub(super) async fn next(&mut self) -> Incoming {
        match self {
            Link::Down => std::future::pending().await,
            Link::Dialing(dialing) => match dialing.await {
                Ok(Ok(opened)) => Incoming::Opened(Box::new(opened)),
                Ok(Err(error)) => Incoming::Failed(error),
                Err(error) => Incoming::Failed(ConnectError::Rejected(error.to_string())),
            },
            Link::Up(up) => up.next().await,
        }
    }

    /// Sends a frame, if there is a connection.
    pub(super) fn send(&mut self, frame: &Frame) {
        if let Link::Up(up) = self {
            // A full or closed channel is noticed at the next read, which gives up the connection.
            up.overrun |= up.outgoing.try_send(Message::text(frame.encode())).is_err();
        }
    }

    /// Sends the last frames and closes the connection.
    pub(super) async fn finish(self) {
        if let Link::Up(mut up) = self {
            // The writer ends when every sender is dropped.
            let (closed, _) = mpsc::channel(1);
            drop(std::mem::replace(&mut up.outgoing, closed));
            let _ = tokio::time::timeout(FINISH_LIMIT, &mut up.writer).await;
        }
    }
}

impl Up {
    async fn next(&mut self) -> Incoming {
        if self.overrun {
            return Incoming::Closed("the server does not read".to_owned());
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

/// Writes frames; all waiting frames are flushed at once.
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
