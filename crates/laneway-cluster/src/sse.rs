//! An event stream of the owner that goes on at the next owner.
//!
//! Whole events are passed on only, and the id of the last one is kept. When the owner has gone, the request is made again at the
//! next one with this id, so that the client sees every event once and in order.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::envelope::Origin;
use crate::forward::{incoming, outgoing};
use crate::link::Link;
use crate::switch::{Here, Place, Switch, WAIT_MAX};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Parts of the stream that wait for the client.
const PARTS_MAX: usize = 4;
/// The longest event; a stream with a longer one is passed on as it is, and ends with its owner.
const EVENT_MAX: usize = 4 * 1024 * 1024;
/// The pause between two requests to go on.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// An owner that stops ends its streams a moment before its connections.
const STOP_MAX: Duration = Duration::from_secs(3);

/// Where a stream comes from.
#[derive(Clone)]
pub enum Source {
    /// The routers of this process.
    Here,
    /// The owner, over this connection.
    There(Arc<Link>),
}

/// True for a response that is a stream of events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// True for a request that may get one.
pub fn wants_events(headers: &HeaderMap) -> bool {
    let names = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| text.contains("text/event-stream") || text.contains("*/*"))
    };
    let mut accepted = headers.get_all(ACCEPT).iter().peekable();
    accepted.peek().is_none() || accepted.any(names)
}

/// The same response, with a body that goes on at the next owner.
pub fn resume(
    switch: Switch,
    source: Source,
    request: Request<()>,
    origin: Origin,
    response: Response,
) -> Response {
    let (parts, body) = response.into_parts();
    let (events, received) = mpsc::channel(PARTS_MAX);
    let stream = Stream { switch, origin, request, events, pending: Vec::new(), last_id: None };
    tokio::spawn(stream.run(source, body));
    let received = futures_util::stream::unfold(received, |mut received| async move {
        let part: Bytes = received.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(part), received))
    });
    Response::from_parts(parts, Body::from_stream(received))
}

struct Stream {
    switch: Switch,
    origin: Origin,
    request: Request<()>,
    events: mpsc::Sender<Bytes>,
    /// The beginning of an event.
    pending: Vec<u8>,
    last_id: Option<HeaderValue>,
}

/// How a body ended.
enum Ended {
    /// The client has gone.
    Client,
    /// The owner ended it.
    Whole,
    /// The connection was lost.
    Cut,
}

impl Stream {
    async fn run(mut self, mut source: Source, mut body: Body) {
        loop {
            let over = match self.pass_on(body, &source).await {
                Ended::Client => true,
                Ended::Cut => self.last_id.is_none(),
                // A stream that ends by itself is over. One that an owner ends because it stops is not.
                Ended::Whole => self.last_id.is_none() || !self.is_gone(&source).await,
            };
            if over {
                return;
            }
            self.pending.clear();
            let Some((next, resumed)) = self.ask_again().await else { return };
            (source, body) = (next, resumed);
        }
    }

    /// Whether the owner of the stream stops, within a moment.
    async fn is_gone(&self, source: &Source) -> bool {
        let gone = async {
            match source {
                Source::Here => self.switch.left().await,
                Source::There(link) => link.ended().await,
            }
        };
        tokio::time::timeout(STOP_MAX, gone).await.is_ok()
    }

    /// Passes whole events on until the body ends.
    async fn pass_on(&mut self, body: Body, source: &Source) -> Ended {
        let mut parts = body.into_data_stream();
        let lost = async {
            match source {
                // It ends the stream itself.
                Source::Here => std::future::pending().await,
                Source::There(link) => link.ended().await,
            }
        };
        tokio::pin!(lost);
        loop {
            let part = tokio::select! {
                biased;
                part = parts.next() => part,
                () = self.events.closed() => return Ended::Client,
                () = lost.as_mut() => return Ended::Cut,
            };
            match part {
                None => return Ended::Whole,
                Some(Err(_)) => return Ended::Cut,
                Some(Ok(part)) => self.pending.extend_from_slice(&part),
            }
            let whole = match end_of_events(&self.pending) {
                0 if self.pending.len() > EVENT_MAX => self.pending.len(),
                whole => whole,
            };
            if whole == 0 {
                continue;
            }
            let events: Bytes = self.pending.drain(..whole).collect::<Vec<u8>>().into();
            if let Some(id) = last_id(&events) {
                self.last_id = HeaderValue::from_bytes(id).ok();
            }
            if self.events.send(events).await.is_err() {
                return Ended::Client;
            }
        }
    }

    /// Makes the request again at the next owner, after the last event.
    async fn ask_again(&mut self) -> Option<(Source, Body)> {
        let id = self.last_id.clone()?;
        self.request.headers_mut().insert(LAST_EVENT_ID, id);
        // Longer than a request waits: a client that reads a stream has nothing better to do.
        let until = Instant::now() + 6 * WAIT_MAX;
        while Instant::now() < until && !self.events.is_closed() {
            let (source, response) = match self.switch.next_place(until).await? {
                Place::Here(here) => (Source::Here, self.ask_here(&here).await),
                Place::There(link) => match self.ask_there(&link).await {
                    Some(response) => (Source::There(link), response),
                    None => {
                        tokio::time::sleep(AGAIN_AFTER).await;
                        continue;
                    }
                },
                Place::Nowhere | Place::Starting => continue,
            };
            match response.status() {
                StatusCode::OK => return Some((source, response.into_body())),
                status if status.is_client_error() && status != StatusCode::MISDIRECTED_REQUEST => {
                    return None;
                }
                _ => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
        None
    }

    async fn ask_here(&self, here: &Here) -> Response {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = self.request.method().clone();
        *request.uri_mut() = self.request.uri().clone();
        *request.headers_mut() = self.request.headers().clone();
        request.extensions_mut().insert(self.origin.peer());
        here.call(&self.origin.app, request).await
    }

    async fn ask_there(&self, link: &Arc<Link>) -> Option<Response> {
        let (method, uri, headers) = (self.request.method(), self.request.uri(), self.request.headers());
        let request = outgoing(&self.switch, method, uri, headers, &self.origin, Body::empty());
        link.send(request).await?.ok().map(incoming)
    }
}

/// The length of the whole events at the front.
fn end_of_events(bytes: &[u8]) -> usize {
    bytes.windows(2).rposition(|pair| pair == b"\n\n").map_or(0, |at| at + 2)
}

/// The id of the last event that has one.
fn last_id(events: &[u8]) -> Option<&[u8]> {
    let lines = events.split(|byte| *byte == b'\n');
    lines.filter_map(|line| line.strip_prefix(b"id:")).next_back().map(|id| id.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_events_are_passed_on() {
        assert_eq!(end_of_events(b"id: 1\ndata: x\n"), 0);
        assert_eq!(end_of_events(b"id: 1\ndata: x\n\nid: 2\nda"), 15);
        assert_eq!(end_of_events(b": ping\n\n"), 8);
        assert_eq!(last_id(b"id: 1\ndata: id: 9\n\nid:2\ndata: y\n\n: ping\n\n"), Some(b"2".as_slice()));
        assert_eq!(last_id(b"data: x\n\n"), None);
    }
}
