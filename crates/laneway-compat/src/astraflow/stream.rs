//! The stream of events for the pages of one session, as server-sent events.
//!
//! Ids are the numbers of durable events, so that a client that reconnects gets what it missed, even after a
//! restart of the server. One event may be sent in several frames: `41.1`, `41.2`, …, and the last is `41`. A
//! frame that is not durable has the number of the last event before it and a count, `41~7`. The subscription is
//! made before the replay, so that no event is lost between the two. A client that was live and falls so far
//! behind that the next events are only in the store is disconnected; it reconnects with `Last-Event-ID` and
//! misses nothing.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, StatusCode};
use laneway_core::{EventKind, Name, Span, Wall};
use laneway_runtime::sse::{Comments, EventStream, Source, Written};
use laneway_runtime::{Caller, Interest, Item, Jobs, ReadError, Scheduler, Share, Subscription};

use super::Astraflow;
use super::error::Problem;
use super::events::{Listener, StreamEvent};
use super::query::{Given, Parameters};
use super::runs::Answer;
use super::show::time;
use super::wire::{Envelope, Scope};
use crate::body::Call;

/// A comment is sent after this much silence.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(45);
/// How many events are replayed for a client without `Last-Event-ID`.
const REPLAY_MAX: u64 = 1_000;
/// The comments of a stream.
const COMMENTS: Comments = Comments { silence: HEARTBEAT, keep_alive: ": heartbeat\n\n", revoked: "" };
/// The header with the id of the last event that the client has seen.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Streams events of the runs of a session, and of the workers of its tenant.
pub async fn stream_events(
    Call(held, caller): Call<Astraflow>,
    headers: HeaderMap,
    parameters: Given,
) -> Answer {
    let opened = open(&held, &caller, &headers, parameters).map_err(|problem| problem.of(&caller))?;
    Ok(opened.into_response())
}

fn open(
    held: &Astraflow,
    caller: &Caller,
    headers: &HeaderMap,
    given: Given,
) -> Result<EventStream<Events>, Problem> {
    let parameters = Parameters::of(given)?;
    let session = parameters.get("clientSessionId").ok_or_else(|| {
        Problem::field("clientSessionId", "is missing: give the `clientId` that runs are started with")
    })?;
    let session = Name::new(session).map_err(|error| Problem::field("clientSessionId", error.to_string()))?;
    let share = held.streams.take(caller).map_err(|none| {
        let message = format!("too many streams: {none}");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message).retry_after(Span::secs(5))
    })?;
    let seen = headers.get(LAST_EVENT_ID).and_then(|value| Seen::parse(value.to_str().ok()?));
    Ok(stream(&held.scheduler, caller.clone(), session, seen, Some(share)))
}

/// The events that a session may get: its own jobs, and events without a job.
fn interest(caller: &Caller, session: &Name) -> Interest {
    Interest {
        tenant: Some(caller.tenant.clone()),
        jobs: Jobs::OfAgent(session.clone()),
        ..Interest::everything()
    }
}

/// The position of a client in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The last event that it has seen completely.
    after: u64,
    /// How many frames of the next event it has seen.
    frames: usize,
}

impl Seen {
    /// Parses an event id.
    pub(super) fn parse(text: &str) -> Option<Seen> {
        let text = text.trim();
        if let Some((after, _)) = text.split_once('~') {
            return Some(Seen { after: after.parse().ok()?, frames: 0 });
        }
        match text.split_once('.') {
            Some((number, frames)) => {
                let after = number.parse::<u64>().ok()?.checked_sub(1)?;
                Some(Seen { after, frames: frames.parse().ok()? })
            }
            None => Some(Seen { after: text.parse().ok()?, frames: 0 }),
        }
    }
}

/// The events of one session.
pub(super) struct Events {
    tenant: Name,
    session: Name,
    listener: Listener,
    events: Subscription,
    /// The event whose first frames the client has seen, and how many.
    seen: Option<(u64, usize)>,
    /// Events up to this one happened before the stream began.
    replay_until: u64,
    /// How many frames that are not durable were sent.
    passing: u64,
    /// The frames of the item that is being written.
    frames: String,
    /// True when the server stops.
    stopping: bool,
}

/// The stream of a session, from where the client has seen it.
pub(super) fn stream(
    scheduler: &Scheduler,
    caller: Caller,
    session: Name,
    seen: Option<Seen>,
    share: Option<Share>,
) -> EventStream<Events> {
    let latest = scheduler.events().latest();
    // A number that was never used belongs to another history: the client has seen nothing of this one.
    let seen = seen.filter(|seen| seen.after <= latest);
    let after = seen.map_or(latest.saturating_sub(REPLAY_MAX), |seen| seen.after);
    let events = Events {
        events: scheduler.events().listen(interest(&caller, &session), Some(after)),
        seen: seen.filter(|seen| seen.frames > 0).map(|seen| (seen.after + 1, seen.frames)),
        replay_until: latest,
        passing: 0,
        frames: String::new(),
        stopping: false,
        listener: Listener::new(scheduler.clone(), caller.tenant.clone(), session.clone()),
        tenant: caller.tenant.clone(),
        session,
    };
    EventStream::new(scheduler, caller, share, COMMENTS, events)
}

impl Source for Events {
    /// `None`: the client fell behind.
    type Item = Option<Item>;

    async fn wait(&mut self) -> Result<Option<Item>, ReadError> {
        self.events.next_unless_behind().await
    }

    async fn write(&mut self, item: Option<Item>) -> Written {
        let Some(item) = item else {
            let after = self.events.position();
            let text = format!(": fell behind after event {after}; reconnect with Last-Event-ID\n\n");
            return Written::Last(text.into());
        };
        if let Err(error) = self.take(item).await {
            // The client reconnects and resumes.
            tracing::warn!(%error, "an event stream ends: an event could not be read");
            return Written::End;
        }
        let frames = Bytes::from(std::mem::take(&mut self.frames));
        match (self.stopping, frames.is_empty()) {
            (true, true) => Written::End,
            (true, false) => Written::Last(frames),
            (false, true) => Written::Nothing,
            (false, false) => Written::Text(frames),
        }
    }
}

impl Events {
    async fn take(&mut self, item: Item) -> Result<(), ReadError> {
        match item {
            Item::Event(event) => {
                let emitted = self.listener.event(&event).await?;
                let (number, last) = (event.number, emitted.len());
                let passed = self.seen.filter(|(at, _)| *at == number).map_or(0, |(_, frames)| frames);
                let correlation = event.request.as_ref().map(Name::to_string);
                let replayed = number <= self.replay_until;
                self.stopping |= event.kind == EventKind::DrainBegan && !replayed;
                for (at, emitted) in (1..).zip(emitted).skip(passed) {
                    let id = if at == last { number.to_string() } else { format!("{number}.{at}") };
                    self.put(id, emitted, event.at, replayed, correlation.clone());
                }
            }
            Item::Progress(progress) => {
                let emitted = self.listener.progress(&progress).await?;
                self.put_passing(emitted, progress.at);
            }
            Item::Feedback(feedback) => {
                let emitted = self.listener.feedback(&feedback).await?;
                self.put_passing(emitted, feedback.at);
            }
            Item::Gap { from, to } => {
                self.frames.push_str(&format!(": events {from} to {to} are no longer kept\n\n"));
            }
        }
        Ok(())
    }

    fn put_passing(&mut self, emitted: Vec<StreamEvent>, at: Wall) {
        for emitted in emitted {
            self.passing += 1;
            let id = format!("{}~{}", self.events.position(), self.passing);
            self.put(id, emitted, at, false, None);
        }
    }

    fn put(
        &mut self,
        id: String,
        emitted: StreamEvent,
        at: Wall,
        replayed: bool,
        correlation_id: Option<String>,
    ) {
        let StreamEvent { kind, run, worker, data } = emitted;
        let scope = Scope {
            tenant: self.tenant.to_string(),
            client_session_id: run.map(|_| self.session.to_string()),
            run_id: run.map(|run| run.to_string()),
            worker_id: worker,
        };
        let envelope = Envelope {
            version: "v1",
            id: id.clone(),
            r#type: kind,
            occurred_at: time(at),
            scope,
            replayed: replayed.then_some(true),
            correlation_id,
            data,
        };
        // Compact JSON has no line breaks, so it is one line of data.
        let data = serde_json::to_string(&envelope).unwrap_or_default();
        self.frames.push_str(&format!("id: {id}\nevent: {kind}\ndata: {data}\n\n"));
    }
}
