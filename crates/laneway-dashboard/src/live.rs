//! Notifies open pages that something has changed, at most once a second.
//!
//! Pages of readers with the same credentials share one reader of `GET /v1/events`. It takes the first event after a pause, ends
//! the stream, notifies all pages, pauses, and continues after that event. So its cost does not grow with the number of events,
//! and hardly with the number of pages: with many pages the pause is longer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context as Wake, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::call::Caller;
use crate::context::Context;
use crate::dashboard::html_response;

/// The shortest time between two notices.
const PAUSE: Duration = Duration::from_secs(1);
/// Every so many pages of one reader add another pause.
const PAGES_PER_PAUSE: usize = 50;
/// Most open pages of one reader.
const PAGES_MAX: usize = 512;
/// Most readers with open pages.
const READERS_MAX: usize = 1_024;
/// A comment follows after this long without an event.
const SILENCE: Duration = Duration::from_secs(10);

/// The readers with open pages.
#[derive(Default)]
pub struct Pulses {
    readers: Arc<Mutex<BTreeMap<String, Weak<Pages>>>>,
}

/// The open pages of one reader.
#[derive(Default)]
struct Pages {
    open: Mutex<Vec<mpsc::Sender<Bytes>>>,
}

/// The stream of notices for a page.
pub fn respond(pulses: &Pulses, context: &Context, closing: &CancellationToken) -> Response {
    let key = context.view();
    let (send, receive) = mpsc::channel(2);
    let Some(new) = pulses.join(key, send) else {
        return html_response(StatusCode::TOO_MANY_REQUESTS, "too many pages are open".to_owned());
    };
    if let Some(pages) = new {
        tokio::spawn(closing.clone().run_until_cancelled_owned(watch(context.api.clone(), pages)));
    }
    let mut response = Response::new(Body::new(Notices { receive }));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

impl Pulses {
    /// Adds a page. `Some(Some(_))`: it is the first page of its reader, which needs a watcher. `None`: there are too many.
    fn join(&self, key: String, page: mpsc::Sender<Bytes>) -> Option<Option<Arc<Pages>>> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|_, pages| pages.strong_count() > 0);
        if let Some(pages) = readers.get(&key).and_then(Weak::upgrade) {
            let mut open = pages.open.lock().unwrap_or_else(PoisonError::into_inner);
            // A watcher that found no page is about to end, and a new one is needed.
            if !open.is_empty() {
                open.retain(|page| !page.is_closed());
                if open.len() >= PAGES_MAX {
                    return None;
                }
                open.push(page);
                return Some(None);
            }
        }
        if readers.len() >= READERS_MAX {
            return None;
        }
        let pages = Arc::new(Pages { open: Mutex::new(vec![page]) });
        readers.insert(key, Arc::downgrade(&pages));
        Some(Some(pages))
    }
}

impl Pages {
    /// Sends a frame to every page. The result is how many are open.
    fn send(&self, frame: &'static str) -> usize {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // A page that has not read the last notices does not need another one.
        open.retain(|page| {
            !matches!(
                page.try_send(Bytes::from_static(frame.as_bytes())),
                Err(mpsc::error::TrySendError::Closed(_))
            )
        });
        open.len()
    }
}

/// Watches the events of one reader while pages are open.
async fn watch(api: Caller, pages: Arc<Pages>) {
    let mut after: Option<String> = None;
    let mut count = pages.send("retry: 2000\nevent: open\ndata: {}\n\n");
    while count > 0 {
        let changed = tokio::time::timeout(SILENCE, first_event(&api, &mut after)).await;
        let frame = match changed {
            Ok(true) => "event: change\ndata: {}\n\n",
            Ok(false) => "event: retry\ndata: {}\n\n",
            Err(_) => ": keep-alive\n\n",
        };
        count = pages.send(frame);
        let pauses = 1 + count / PAGES_PER_PAUSE;
        tokio::time::sleep(PAUSE * u32::try_from(pauses).unwrap_or(1)).await;
    }
}

/// Waits for the first event after the last one that was seen. False: the API has no stream for this reader now.
async fn first_event(api: &Caller, after: &mut Option<String>) -> bool {
    let last_seen = after.as_deref().and_then(|after| HeaderValue::from_str(after).ok());
    let header = last_seen.map(|value| (HeaderName::from_static("last-event-id"), value));
    let Ok(response) = api.respond(Method::GET, "/v1/events", None, header).await else { return false };
    if !response.status().is_success() {
        return false;
    }
    let mut body = response.into_body();
    loop {
        let frame = std::future::poll_fn(|wake| Pin::new(&mut body).poll_frame(wake)).await;
        let Some(Ok(frame)) = frame else { return true };
        let Ok(bytes) = frame.into_data() else { continue };
        let text = String::from_utf8_lossy(&bytes);
        if text.lines().all(|line| line.is_empty() || line.starts_with(':')) {
            continue;
        }
        let number =
            text.lines().rev().find_map(|line| line.strip_prefix("id:")).map(|id| id.trim().to_owned());
        if number.is_some() {
            *after = number;
        }
        return true;
    }
}

/// The notices of one page as the body of its response.
struct Notices {
    receive: mpsc::Receiver<Bytes>,
}

impl HttpBody for Notices {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        wake: &mut Wake<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.receive.poll_recv(wake).map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}
