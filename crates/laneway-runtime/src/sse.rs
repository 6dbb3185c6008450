//! Server-sent events: the loop of one event stream, for the native API and the dialects.
//!
//! A stream is read at the client's pace. It sends a comment after a time of silence, so that both ends notice a broken
//! connection. It ends when the caller's right to it ends, when its share is needed for another caller, when the server
//! stops listening, and when its [`Source`] ends. The texts of events belong to the source.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::scheduler::{ReadError, Scheduler, TokenTable};
use crate::shares::Share;

/// Later than the end of any stream, and valid for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The first text of every stream. It is sent at once, so that the client knows that the stream is open.
const OPENING: &str = "retry: 1000\n\n";

/// Where the events of a stream come from, and how they are written.
pub trait Source: Send + 'static {
    /// An item that the source waits for.
    type Item: Send;

    /// Waits for the next item. Safe to drop while it waits. After an error the stream ends.
    fn wait(&mut self) -> impl Future<Output = Result<Self::Item, ReadError>> + Send;

    /// The text of an item. It is not dropped half-way unless the client disconnects.
    fn write(&mut self, item: Self::Item) -> impl Future<Output = Written> + Send;
}

/// The text for an item.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// Nothing.
    Nothing,
    /// This text.
    Text(Bytes),
    /// This text, and the stream ends.
    Last(Bytes),
    /// Nothing, and the stream ends.
    End,
}

/// The comments of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Comments {
    /// How long a stream is silent before `keep_alive` is sent.
    pub silence: Duration,
    /// The comment that is sent after that.
    pub keep_alive: &'static str,
    /// The last comment of a stream whose share is needed for another caller; empty: none.
    pub revoked: &'static str,
}

/// One stream.
pub struct EventStream<S> {
    source: S,
    comments: Comments,
    scheduler: Scheduler,
    caller: Caller,
    tokens: watch::Receiver<Arc<TokenTable>>,
    closing: CancellationToken,
    ends_at: Instant,
    share: Option<Share>,
    /// Texts that are sent before anything else.
    ready: VecDeque<Bytes>,
    /// True when the last text was sent.
    over: bool,
}

impl<S: Source> EventStream<S> {
    /// A stream of `source` for `caller`, which holds a share of the streams.
    pub fn new(
        scheduler: &Scheduler,
        caller: Caller,
        share: Option<Share>,
        comments: Comments,
        source: S,
    ) -> EventStream<S> {
        let left = caller.expires_at.map_or(FAR, |at| Duration::from_millis(at.since(scheduler.wall()).0));
        EventStream {
            source,
            comments,
            tokens: scheduler.token_changes(),
            scheduler: scheduler.clone(),
            caller,
            closing: CancellationToken::new(),
            ends_at: Instant::now() + left.min(FAR),
            share,
            ready: VecDeque::from([Bytes::from_static(OPENING.as_bytes())]),
            over: false,
        }
    }

    /// Ends when the token is canceled.
    pub fn until(self, closing: CancellationToken) -> EventStream<S> {
        EventStream { closing, ..self }
    }

    /// Sends the text, if there is one, before the first event.
    pub fn first(mut self, text: Option<String>) -> EventStream<S> {
        self.ready.extend(text.map(Bytes::from));
        self
    }

    /// The response with the stream as its body.
    pub fn into_response(self) -> Response {
        let body = Body::from_stream(stream::unfold(self, |mut stream| async move {
            stream.next().await.map(|text| (Ok::<_, Infallible>(text), stream))
        }));
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// The next text. `None`: the stream has ended.
    pub async fn next(&mut self) -> Option<Bytes> {
        if let Some(text) = self.ready.pop_front() {
            return Some(text);
        }
        if self.over {
            return None;
        }
        let keep_alive_at = Instant::now() + self.comments.silence;
        loop {
            let item = tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                () = tokio::time::sleep_until(self.ends_at) => return None,
                () = revoked(self.share.as_ref()) => {
                    // The client reconnects and resumes as soon as there is a share for it.
                    self.over = true;
                    return Some(self.comments.revoked).filter(|text| !text.is_empty()).map(Bytes::from);
                }
                changed = self.tokens.changed() => {
                    changed.ok()?;
                    if !self.is_still_allowed() {
                        return None;
                    }
                    continue;
                }
                item = self.source.wait() => item.ok()?,
                () = tokio::time::sleep_until(keep_alive_at) => {
                    return Some(Bytes::from_static(self.comments.keep_alive.as_bytes()));
                }
            };
            match self.source.write(item).await {
                Written::Nothing => {}
                Written::Text(text) => return Some(text),
                Written::Last(text) => {
                    self.over = true;
                    return Some(text);
                }
                Written::End => return None,
            }
        }
    }

    fn is_still_allowed(&mut self) -> bool {
        let tokens = self.tokens.borrow_and_update();
        self.caller.is_still_allowed(&tokens, self.scheduler.wall())
    }
}

/// Waits until the share of the stream is needed for another caller.
async fn revoked(share: Option<&Share>) {
    match share {
        Some(share) => share.revoked().await,
        None => std::future::pending().await,
    }
}

/// A frame of server-sent events. `data` is one line.
pub fn frame(id: Option<u64>, event: &str, data: &str) -> String {
    match id {
        Some(id) => format!("id: {id}\nevent: {event}\ndata: {data}\n\n"),
        None => format!("event: {event}\ndata: {data}\n\n"),
    }
}
