//! Events of intents as a stream of server-sent events for an add-on.
//!
//! A stream is read at the client's pace, resumes after `Last-Event-ID`, and ends when the token expires or the
//! server stops. A client that was live and falls so far behind that the next events are only in the store gets
//! one `gap` and is disconnected.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures_util::stream;
use laneway_core::event::JobLine;
use laneway_core::{Event, EventKind, Name};
use laneway_runtime::{
    Caller, EventRef, Interest, Item, Jobs, Representation, Share, Subscription, TokenTable,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::audit::{event_names, line, state_after};
use super::decode::Form;
use super::error::Answer;
use super::{LANE, NAME, Synthia};
use crate::names::name_of;

/// A comment is sent after this much silence, so that both ends notice a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Later than the end of any stream, and valid for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

struct IntentStream {
    synthia: Synthia,
    caller: Caller,
    addon: Option<Name>,
    events: Subscription,
    tokens: watch::Receiver<std::sync::Arc<TokenTable>>,
    ends_at: Instant,
    greeted: bool,
    /// True when the last frame was sent.
    over: bool,
    /// Events up to this one happened before the stream began.
    began_after: u64,
    share: Share,
}

/// Streams events of the intents of an add-on, or of all.
pub async fn stream_intent_events(
    State(synthia): State<Synthia>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let mut form = Form::of_query(query.as_deref());
    let addon = form.opt_text("addon_id").as_deref().map(name_of);
    let after = form.opt_int("last_event_id", 0..=i64::MAX);
    form.finish()?;
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let after: Option<u64> = resumed.or(after.and_then(|after| u64::try_from(after).ok()));
    let share = synthia.listener(&caller)?;
    let scheduler = &synthia.scheduler;
    let left =
        caller.expires_at.map_or(FAR, |at| Duration::from_millis(at.since(scheduler.wall()).0).min(FAR));
    let jobs = addon.clone().map_or(Jobs::OfLane(Name::fixed(LANE)), Jobs::OfAgent);
    let interest = Interest::in_jobs(caller.scope().cloned(), jobs);
    let intents = IntentStream {
        events: scheduler.events().listen(interest, after),
        began_after: scheduler.events().latest(),
        tokens: scheduler.token_changes(),
        ends_at: Instant::now() + left,
        greeted: false,
        over: false,
        synthia,
        caller,
        addon,
        share,
    };
    let body = Body::from_stream(stream::unfold(intents, |mut intents| async move {
        intents.next().await.map(|text| (Ok::<_, Infallible>(text), intents))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

impl IntentStream {
    /// The next frame. `None`: the stream has ended.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if !self.greeted {
            // The first frame is sent at once, so that the client knows that the stream is open.
            self.greeted = true;
            return Some(Bytes::from_static(b"retry: 1000\n\n"));
        }
        let keep_alive_at = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.ends_at) => return None,
                // The client reconnects and resumes as soon as there is a share for it.
                () = self.share.revoked() => return None,
                changed = self.tokens.changed() => {
                    changed.ok()?;
                    let tokens = self.tokens.borrow_and_update().clone();
                    if !self.caller.is_still_allowed(&tokens, self.synthia.scheduler.wall()) {
                        return None;
                    }
                }
                item = self.events.next_unless_behind() => match item.ok()? {
                    None => {
                        self.over = true;
                        let (after, to) = (self.events.position(), self.synthia.scheduler.events().latest());
                        let gap = json!({"from": after + 1, "to": to, "reason": "slow_reader"});
                        return Some(frame(None, "gap", &gap).into());
                    }
                    Some(Item::Event(event)) => {
                        // The server stops: streams must not delay it.
                        if event.kind == EventKind::DrainBegan && event.number > self.began_after {
                            return None;
                        }
                        let frame_of = self.frame_of(&event).filter(|text| !text.is_empty());
                        if frame_of.is_some() {
                            return frame_of;
                        }
                    }
                    Some(Item::Gap { from, to }) => {
                        return Some(frame(None, "gap", &json!({"from": from, "to": to})).into());
                    }
                    Some(Item::Progress(_) | Item::Feedback(_)) => {}
                },
                () = tokio::time::sleep_until(keep_alive_at) => {
                    return Some(Bytes::from_static(b": keep-alive\n\n"));
                }
            }
        }
    }

    /// The event as a frame, if the caller may see it. It is written once for all streams. Empty: the dialect
    /// has no such event.
    fn frame_of(&self, event: &EventRef) -> Option<Bytes> {
        let job = event.job.as_ref().filter(|job| job.lane.as_str() == LANE)?;
        let theirs = self.caller.scope().is_none() || event.tenant.as_ref() == self.caller.scope();
        let wanted = self.addon.as_ref().is_none_or(|addon| *addon == job.agent);
        if !theirs || !wanted {
            return None;
        }
        Some(
            event.encoded(Representation::Dialect(NAME), |event| {
                written(event, job).unwrap_or_default().into()
            }),
        )
    }
}

fn written(event: &Event, job: &JobLine) -> Option<String> {
    // The previous state is not known here; the events of the job list it.
    let name = event_names(event, job, "")[..].first().copied()?;
    let mut body = line(event, job, name, ("", state_after(name, "QUEUED")), None);
    if let Value::Object(body) = &mut body {
        body.remove("from_state");
        body.remove("lease_id");
        body.insert("addon_id".to_owned(), job.agent.as_str().into());
        body.insert("job_type".to_owned(), job.kind.as_str().into());
    }
    Some(frame(Some(event.number), name, &body))
}

fn frame(id: Option<u64>, event: &str, body: &Value) -> String {
    let id = id.map_or(String::new(), |id| format!("id: {id}\n"));
    format!("{id}event: {event}\ndata: {body}\n\n")
}
