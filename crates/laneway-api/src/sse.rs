//! The live stream of events, as server-sent events.
//!
//! A frame is made once for all readers, and readers of equal interest share it. The stream is read at the client's pace.
//! A live reader that falls so far behind that only the store has the next event is cut off with one `gap`. It reconnects
//! with `Last-Event-ID` and misses nothing. Events that the store has deleted are reported as a `gap`, too, and so is a
//! number that was never given out, because a client with such a number has seen another history. The stream ends when the
//! caller's right ends, when another caller needs its share, and when the server stops.

use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use laneway_runtime::sse::{self, Comments, EventStream, Source, Written};
use laneway_runtime::{Frames, Interest, Item, ReadError, Representation, Share, Subscription};
use laneway_wire::Gap;
use serde::Serialize;

use crate::api::Api;
use crate::auth::Caller;
use crate::render;

/// The comments of a stream.
const COMMENTS: Comments = Comments {
    silence: Duration::from_secs(15),
    keep_alive: ": keep-alive\n\n",
    revoked: ": closed, because all streams are taken and another caller has fewer; come back later\n\n",
};

/// The response that streams the events of `interest` after event number `after`; `None`: from now on.
pub fn respond(api: Api, caller: Caller, interest: Interest, after: Option<u64>, share: Share) -> Response {
    let events = api.scheduler.events().listen(interest, after);
    let latest = events.position();
    let gap = after.filter(|after| *after > latest).map(|after| write_gap(after, latest));
    EventStream::new(&api.scheduler, caller.0, Some(share), COMMENTS, Native(events))
        .until(api.closing.clone())
        .first(gap)
        .into_response()
}

/// The frames of the native stream.
struct Native(Subscription);

impl Source for Native {
    type Item = Frames;

    async fn wait(&mut self) -> Result<Frames, ReadError> {
        self.0.next_frames(frame_of).await
    }

    async fn write(&mut self, frames: Frames) -> Written {
        match frames {
            Frames::Some(bytes) => Written::Text(bytes),
            Frames::Behind { after } => Written::Last(cut_off(after).into()),
        }
    }
}

/// The item as a frame.
fn frame_of(item: &Item) -> Bytes {
    match item {
        Item::Event(event) => event.encoded(Representation::Native, |event| {
            frame(Some(event.number), event.kind.as_str(), &render::event(event)).into()
        }),
        Item::Progress(progress) => frame(None, "job.progress", &render::job_progress(progress)).into(),
        // Only dialects have a format for it.
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
    sse::frame(id, kind, &serde_json::to_string(data).unwrap_or_default())
}
