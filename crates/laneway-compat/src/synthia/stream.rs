//! Events of intents as a stream of server-sent events for an add-on.
//!
//! A stream is read at the client's pace, resumes after `Last-Event-ID`, and ends when the token expires or the
//! server stops. A client that was live and falls so far behind that the next events are only in the store gets
//! one `gap` and is disconnected.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use laneway_core::event::JobLine;
use laneway_core::{Event, EventKind, Name};
use laneway_runtime::sse::{self, Comments, EventStream, Source, Written};
use laneway_runtime::{EventRef, Interest, Item, Jobs, ReadError, Representation, Scheduler, Subscription};
use serde_json::{Value, json};

use super::audit::{event_names, line, state_after};
use super::decode::Form;
use super::error::Answer;
use super::{LANE, NAME, Synthia};
use crate::body::Call;
use crate::names::name_of;

/// The comments of a stream.
const COMMENTS: Comments =
    Comments { silence: Duration::from_secs(15), keep_alive: ": keep-alive\n\n", revoked: "" };

/// The events of intents that a caller may see.
struct Intents {
    scheduler: Scheduler,
    /// The tenant. `None`: every tenant.
    scope: Option<Name>,
    addon: Option<Name>,
    events: Subscription,
    /// Events up to this one happened before the stream began.
    began_after: u64,
}

/// Streams events of the intents of an add-on, or of all.
pub async fn stream_intent_events(
    Call(synthia, caller): Call<Synthia>,
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
    let jobs = addon.clone().map_or(Jobs::OfLane(Name::fixed(LANE)), Jobs::OfAgent);
    let interest = Interest::in_jobs(caller.scope().cloned(), jobs);
    let intents = Intents {
        events: scheduler.events().listen(interest, after),
        began_after: scheduler.events().latest(),
        scheduler: scheduler.clone(),
        scope: caller.scope().cloned(),
        addon,
    };
    Ok(EventStream::new(scheduler, caller, Some(share), COMMENTS, intents).into_response())
}

impl Source for Intents {
    /// `None`: the client fell behind.
    type Item = Option<Item>;

    async fn wait(&mut self) -> Result<Option<Item>, ReadError> {
        self.events.next_unless_behind().await
    }

    async fn write(&mut self, item: Option<Item>) -> Written {
        match item {
            None => {
                let (after, to) = (self.events.position(), self.scheduler.events().latest());
                let gap = json!({"from": after + 1, "to": to, "reason": "slow_reader"});
                Written::Last(sse::frame(None, "gap", &gap.to_string()).into())
            }
            // The server stops: streams must not delay it.
            Some(Item::Event(event))
                if event.kind == EventKind::DrainBegan && event.number > self.began_after =>
            {
                Written::End
            }
            Some(Item::Event(event)) => {
                let frame = self.frame_of(&event).filter(|text| !text.is_empty());
                frame.map_or(Written::Nothing, Written::Text)
            }
            Some(Item::Gap { from, to }) => {
                Written::Text(sse::frame(None, "gap", &json!({"from": from, "to": to}).to_string()).into())
            }
            Some(Item::Progress(_) | Item::Feedback(_)) => Written::Nothing,
        }
    }
}

impl Intents {
    /// The event as a frame, if the caller may see it. It is written once for all streams. Empty: the dialect
    /// has no such event.
    fn frame_of(&self, event: &EventRef) -> Option<Bytes> {
        let job = event.job.as_ref().filter(|job| job.lane.as_str() == LANE)?;
        let theirs = self.scope.is_none() || event.tenant == self.scope;
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
    Some(sse::frame(Some(event.number), name, &body.to_string()))
}
