//! The stream of events for the pages of one session, as server-sent events.
//!
//! Ids are the numbers of the house's durable events, so that a client that comes back hears what it missed, whatever has
//! happened to the server meanwhile. One event may be told in several frames: `41.1`, `41.2`, …, and the last is `41`. What
//! is not durable has the number of the last event before it and a count of its own, `41~7`. The listener is there before
//! anything is replayed, so that nothing falls between the two.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::stream;
use laneway_core::{EventKind, Name, Span, Wall};
use laneway_runtime::{Caller, Item, QueryError, Scheduler, Subscription, TokenTable};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::Astraflow;
use super::error::Problem;
use super::events::{Listener, Told};
use super::query::{Given, Parameters};
use super::runs::Answer;
use super::show::time;
use super::wire::{Envelope, Scope};

/// A comment is sent after this much silence.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(45);
/// How many events of the house are gone through for a client that does not say what it has seen.
const REPLAY_MAX: u64 = 1_000;
/// Further away than any stream lives, and near enough for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);
/// What a client has seen last.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Streams what happens to the runs of a session, and to the workers of its tenant.
pub async fn stream_events(
    State(held): State<Astraflow>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    parameters: Given,
) -> Answer {
    let opened = open(&held, &caller, &headers, parameters).map_err(|problem| problem.of(&caller))?;
    let body = Body::from_stream(stream::unfold(opened, |mut stream| async move {
        stream.next().await.map(|text| (Ok::<_, Infallible>(Bytes::from(text)), stream))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn open(held: &Astraflow, caller: &Caller, headers: &HeaderMap, given: Given) -> Result<Stream, Problem> {
    let parameters = Parameters::of(given)?;
    let session = parameters.get("clientSessionId").ok_or_else(|| {
        Problem::field("clientSessionId", "is missing: give the `clientId` that runs are started with")
    })?;
    let session = Name::new(session).map_err(|error| Problem::field("clientSessionId", error.to_string()))?;
    let permit = Arc::clone(&held.streams).try_acquire_owned().map_err(|_| {
        let message =
            "too many streams are open (dialects.astraflow.streams_max); close some, or try again later";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message).retry_after(Span::secs(5))
    })?;
    let seen = headers.get(LAST_EVENT_ID).and_then(|value| Seen::parse(value.to_str().ok()?));
    Ok(Stream::new(held.scheduler.clone(), caller.clone(), session, seen, Some(permit)))
}

/// What a client has seen last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// All of this event and of those before.
    after: u64,
    /// This many frames of the next event.
    frames: usize,
}

impl Seen {
    /// Reads an id that was given before.
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

/// One stream.
pub(super) struct Stream {
    scheduler: Scheduler,
    caller: Caller,
    session: Name,
    listener: Listener,
    events: Subscription,
    tokens: watch::Receiver<Arc<TokenTable>>,
    ends_at: Instant,
    /// The event whose first frames the client has seen, and how many.
    seen: Option<(u64, usize)>,
    /// Events up to this one happened before the stream began.
    replay_until: u64,
    /// How many frames were sent that are not durable.
    passing: u64,
    ready: VecDeque<String>,
    /// The server stops: streams must not hold it up.
    stopping: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Stream {
    pub(super) fn new(
        scheduler: Scheduler,
        caller: Caller,
        session: Name,
        seen: Option<Seen>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Stream {
        let latest = scheduler.events().latest();
        // A number that was never given is of another history: such a client has seen nothing of this one.
        let seen = seen.filter(|seen| seen.after <= latest);
        let after = seen.map_or(latest.saturating_sub(REPLAY_MAX), |seen| seen.after);
        let left = caller.expires_at.map_or(FAR, |at| Duration::from_millis(at.since(scheduler.wall()).0));
        Stream {
            events: scheduler.events().subscribe(Some(after)),
            tokens: scheduler.token_changes(),
            ends_at: Instant::now() + left.min(FAR),
            seen: seen.filter(|seen| seen.frames > 0).map(|seen| (seen.after + 1, seen.frames)),
            replay_until: latest,
            passing: 0,
            // Something must be sent at once, or the client does not learn that the stream stands.
            ready: VecDeque::from(["retry: 1000\n\n".to_owned()]),
            stopping: false,
            listener: Listener::new(scheduler.clone(), caller.tenant.clone(), session.clone()),
            scheduler,
            caller,
            session,
            _permit: permit,
        }
    }

    /// What is sent next. `None`: the stream has ended.
    pub(super) async fn next(&mut self) -> Option<String> {
        let heartbeat_at = Instant::now() + HEARTBEAT;
        loop {
            if let Some(text) = self.ready.pop_front() {
                return Some(text);
            }
            if self.stopping {
                return None;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.ends_at) => return None,
                changed = self.tokens.changed() => {
                    changed.ok()?;
                    let tokens = Arc::clone(&self.tokens.borrow_and_update());
                    if !self.caller.is_still_allowed(&tokens, self.scheduler.wall()) {
                        return None;
                    }
                }
                item = self.events.next() => {
                    if let Err(error) = self.take(item.ok()?).await {
                        // The client comes back and goes on where it was.
                        tracing::warn!(%error, "a stream of events ends: an event could not be told");
                        return None;
                    }
                }
                () = tokio::time::sleep_until(heartbeat_at) => return Some(": heartbeat\n\n".to_owned()),
            }
        }
    }

    async fn take(&mut self, item: Item) -> Result<(), QueryError> {
        match item {
            Item::Event(event) => {
                let told = self.listener.event(&event).await?;
                let (number, last) = (event.number, told.len());
                let passed = self.seen.filter(|(at, _)| *at == number).map_or(0, |(_, frames)| frames);
                let correlation = event.request.as_ref().map(Name::to_string);
                let replayed = number <= self.replay_until;
                self.stopping |= event.kind == EventKind::DrainBegan && !replayed;
                for (at, told) in (1..).zip(told).skip(passed) {
                    let id = if at == last { number.to_string() } else { format!("{number}.{at}") };
                    self.put(id, told, event.at, replayed, correlation.clone());
                }
            }
            Item::Progress(progress) => {
                let told = self.listener.progress(&progress).await?;
                self.put_passing(told, progress.at);
            }
            Item::Feedback(feedback) => {
                let told = self.listener.feedback(&feedback).await?;
                self.put_passing(told, feedback.at);
            }
            Item::Gap { from, to } => {
                self.ready.push_back(format!(": events {from} to {to} are no longer kept\n\n"));
            }
        }
        Ok(())
    }

    fn put_passing(&mut self, told: Vec<Told>, at: Wall) {
        for told in told {
            self.passing += 1;
            let id = format!("{}~{}", self.events.position(), self.passing);
            self.put(id, told, at, false, None);
        }
    }

    fn put(&mut self, id: String, told: Told, at: Wall, replayed: bool, correlation_id: Option<String>) {
        let Told { kind, run, worker, data } = told;
        let scope = Scope {
            tenant: self.caller.tenant.to_string(),
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
        self.ready.push_back(format!("id: {id}\nevent: {kind}\ndata: {data}\n\n"));
    }
}
