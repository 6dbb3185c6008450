//! What happens to intents, as it happens: server-sent events for an add-on.
//!
//! A stream is read at the client's pace, resumes after `Last-Event-ID`, and ends when the right to it ends or the server
//! stops.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures_util::stream;
use laneway_core::{Event, EventKind, Name};
use laneway_runtime::{Caller, Item, Subscription, TokenTable};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::decode::Form;
use super::error::Answer;
use super::trail::{line, state_after, words_of};
use super::{LANE, Synthia};
use crate::names::name_of;

/// A comment is sent after this much silence, so that both ends learn of a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Further away than any stream lives, and near enough for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

struct News {
    synthia: Synthia,
    caller: Caller,
    addon: Option<Name>,
    events: Subscription,
    tokens: watch::Receiver<std::sync::Arc<TokenTable>>,
    ends_at: Instant,
    greeted: bool,
    _room: OwnedSemaphorePermit,
}

/// Streams what happens to the intents of an add-on, or of all.
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
    let room = synthia.listener()?;
    let scheduler = &synthia.scheduler;
    let left =
        caller.expires_at.map_or(FAR, |at| Duration::from_millis(at.since(scheduler.wall()).0).min(FAR));
    let news = News {
        events: scheduler.events().subscribe(after),
        tokens: scheduler.token_changes(),
        ends_at: Instant::now() + left,
        greeted: false,
        synthia,
        caller,
        addon,
        _room: room,
    };
    let body = Body::from_stream(stream::unfold(news, |mut news| async move {
        news.next().await.map(|text| (Ok::<_, Infallible>(Bytes::from(text)), news))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

impl News {
    /// What is sent next. `None`: the stream has ended.
    async fn next(&mut self) -> Option<String> {
        if !self.greeted {
            // Something must be sent at once, or the client does not learn that the stream stands.
            self.greeted = true;
            return Some("retry: 1000\n\n".to_owned());
        }
        let keep_alive_at = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.ends_at) => return None,
                changed = self.tokens.changed() => {
                    changed.ok()?;
                    let tokens = self.tokens.borrow_and_update().clone();
                    if !self.caller.is_still_allowed(&tokens, self.synthia.scheduler.wall()) {
                        return None;
                    }
                }
                item = self.events.next() => match item.ok()? {
                    Item::Event(event) => {
                        // The server stops: streams must not hold it up.
                        if event.kind == EventKind::DrainBegan {
                            return None;
                        }
                        if let Some(text) = self.told(&event) {
                            return Some(text);
                        }
                    }
                    Item::Gap { from, to } => {
                        return Some(frame(None, "gap", &json!({"from": from, "to": to})));
                    }
                    Item::Progress(_) => {}
                },
                () = tokio::time::sleep_until(keep_alive_at) => return Some(": keep-alive\n\n".to_owned()),
            }
        }
    }

    fn told(&self, event: &Event) -> Option<String> {
        let job = event.job.as_ref().filter(|job| job.lane.as_str() == LANE)?;
        let theirs = self.caller.scope().is_none() || event.tenant.as_ref() == self.caller.scope();
        let wanted = self.addon.as_ref().is_none_or(|addon| *addon == job.agent);
        if !theirs || !wanted {
            return None;
        }
        // Where it came from is not known here; the trail of the job tells it.
        let word = words_of(event, job, "")[..].first().copied()?;
        let mut body = line(event, job, word, ("", state_after(word, "QUEUED")), None);
        if let Value::Object(body) = &mut body {
            body.remove("from_state");
            body.remove("lease_id");
            body.insert("addon_id".to_owned(), job.agent.as_str().into());
            body.insert("job_type".to_owned(), job.kind.as_str().into());
        }
        Some(frame(Some(event.number), word, &body))
    }
}

fn frame(id: Option<u64>, event: &str, body: &Value) -> String {
    let id = id.map_or(String::new(), |id| format!("id: {id}\n"));
    format!("{id}event: {event}\ndata: {body}\n\n")
}
