//! The live stream of events, as server-sent events.
//!
//! A frame is made once for all readers, and readers of equal interest share it. The stream is read at the client's pace.
//! A reader that was live and fell so far behind that only the store has what comes next is cut off with one `gap`; it
//! comes back with `Last-Event-ID` and misses nothing. What the store no longer has is told as a `gap`, too; so is a number
//! that was never given, because a client that comes back with one has seen another history. The stream ends when the right
//! to it ends, when its share is needed for another caller, and when the server stops.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures_util::stream;
use laneway_runtime::{Frames, Interest, Item, Representation, Share, Subscription, TokenTable};
use laneway_wire::Gap;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::auth::Caller;
use crate::render;

/// A comment is sent after this much silence, so that both ends learn of a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Further away than any stream lives, and near enough for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The last text of a stream whose share went to another caller.
const REVOKED: &str =
    ": closed, because all streams are taken and another caller has fewer; come back later\n\n";

struct Stream {
    api: Api,
    caller: Caller,
    events: Subscription,
    tokens: watch::Receiver<std::sync::Arc<TokenTable>>,
    closing: CancellationToken,
    ends_at: Instant,
    greeted: bool,
    /// True: what was sent last is the end.
    over: bool,
    /// Told before everything else: the gap to a number that was never given.
    gap: Option<String>,
    share: Share,
}

/// The response that streams what of `interest` comes after event number `after`; `None`: from now on.
pub fn respond(api: Api, caller: Caller, interest: Interest, after: Option<u64>, share: Share) -> Response {
    let wall = api.scheduler.wall();
    let left = caller.expires_at.map_or(FAR, |at| Duration::from_millis(at.since(wall).0).min(FAR));
    let events = api.scheduler.events().listen(interest, after);
    let latest = events.position();
    let gap = after.filter(|after| *after > latest).map(|after| write_gap(after, latest));
    let stream = Stream {
        events,
        gap,
        tokens: api.scheduler.token_changes(),
        closing: api.closing.clone(),
        ends_at: Instant::now() + left,
        greeted: false,
        over: false,
        api,
        caller,
        share,
    };
    let body = Body::from_stream(stream::unfold(stream, |mut stream| async move {
        stream.next().await.map(|text| (Ok::<_, Infallible>(text), stream))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Stream {
    /// What is sent next. `None`: the stream has ended.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if !self.greeted {
            // Something must be sent at once, or the client does not learn that the stream stands.
            self.greeted = true;
            return Some(Bytes::from_static(b"retry: 1000\n\n"));
        }
        if let Some(gap) = self.gap.take() {
            return Some(gap.into());
        }
        let keep_alive_at = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                () = tokio::time::sleep_until(self.ends_at) => return None,
                () = self.share.revoked() => {
                    self.over = true;
                    return Some(Bytes::from_static(REVOKED.as_bytes()));
                }
                changed = self.tokens.changed() => {
                    changed.ok()?;
                    if !self.is_still_allowed() {
                        return None;
                    }
                }
                frames = self.events.next_frames(frame_of) => match frames.ok()? {
                    Frames::Some(bytes) => return Some(bytes),
                    Frames::Behind { after } => {
                        self.over = true;
                        return Some(cut_off(after).into());
                    }
                },
                () = tokio::time::sleep_until(keep_alive_at) => {
                    return Some(Bytes::from_static(b": keep-alive\n\n"));
                }
            }
        }
    }

    fn is_still_allowed(&mut self) -> bool {
        let tokens = self.tokens.borrow_and_update();
        self.caller.is_still_allowed(&tokens, self.api.scheduler.wall())
    }
}

/// The item as a frame.
fn frame_of(item: &Item) -> Bytes {
    match item {
        Item::Event(event) => event.encoded(Representation::Native, |event| {
            frame(Some(event.number), event.kind.as_str(), &render::event(event)).into()
        }),
        Item::Progress(progress) => frame(None, "job.progress", &render::job_progress(progress)).into(),
        // Told by the dialect that has words for it.
        Item::Feedback(_) => Bytes::new(),
        Item::Gap { from, to } => write_gap(from.saturating_sub(1), *to).into(),
    }
}

/// The last frame of a reader that fell behind. It has no number, so that the reader comes back after the last event that
/// it was given.
fn cut_off(after: u64) -> String {
    frame(
        None,
        "gap",
        &Gap { after, resumes_at: after.saturating_add(1), reason: Some("slow_reader".to_owned()) },
    )
}

/// A gap after event `after`, as text; its own number is that of the last event before the next one.
fn write_gap(after: u64, last: u64) -> String {
    frame(Some(last), "gap", &Gap { after, resumes_at: last.saturating_add(1), reason: None })
}

fn frame(id: Option<u64>, kind: &str, data: &impl Serialize) -> String {
    // Compact JSON has no line breaks, so it is one line of data.
    let data = serde_json::to_string(data).unwrap_or_default();
    match id {
        Some(id) => format!("id: {id}\nevent: {kind}\ndata: {data}\n\n"),
        None => format!("event: {kind}\ndata: {data}\n\n"),
    }
}
