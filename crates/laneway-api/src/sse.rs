//! The live stream of events, as server-sent events.
//!
//! The stream is read at the client's pace: what it is too slow for is read from the store later, and what the store no
//! longer has is told as one `gap`; so is a number that was never given, because a client that comes back with one has
//! seen another history. The stream ends when the right to it ends, and when the server stops.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures_util::stream;
use laneway_core::{EventKind, JobId, Name};
use laneway_runtime::{Item, Subscription, TokenTable};
use laneway_wire::Gap;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::auth::Caller;
use crate::show;

/// A comment is sent after this much silence, so that both ends learn of a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Further away than any stream lives, and near enough for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Which events a stream shows.
pub struct StreamFilter {
    /// Only this tenant's.
    pub tenant: Option<Name>,
    /// Only this job's.
    pub job: Option<JobId>,
    /// False: nothing that only the audit list tells.
    pub audited: bool,
}

struct Stream {
    api: Api,
    caller: Caller,
    filter: StreamFilter,
    events: Subscription,
    tokens: watch::Receiver<std::sync::Arc<TokenTable>>,
    closing: CancellationToken,
    ends_at: Instant,
    greeted: bool,
    /// Told before everything else: the gap to a number that was never given.
    gap: Option<String>,
    _permit: OwnedSemaphorePermit,
}

/// The response that streams what comes after event number `after`; `None`: from now on.
pub fn respond(
    api: Api,
    caller: Caller,
    filter: StreamFilter,
    after: Option<u64>,
    permit: OwnedSemaphorePermit,
) -> Response {
    let wall = api.scheduler.wall();
    let left = caller.expires_at.map_or(FAR, |at| Duration::from_millis(at.since(wall).0).min(FAR));
    let events = api.scheduler.events().subscribe(after);
    let latest = events.position();
    let gap = after.filter(|after| *after > latest).map(|after| write_gap(after, latest));
    let stream = Stream {
        events,
        gap,
        tokens: api.scheduler.token_changes(),
        closing: api.closing.clone(),
        ends_at: Instant::now() + left,
        greeted: false,
        api,
        caller,
        filter,
        _permit: permit,
    };
    let body = Body::from_stream(stream::unfold(stream, |mut stream| async move {
        stream.next().await.map(|text| (Ok::<_, Infallible>(Bytes::from(text)), stream))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Stream {
    /// What is sent next. `None`: the stream has ended.
    async fn next(&mut self) -> Option<String> {
        if !self.greeted {
            // Something must be sent at once, or the client does not learn that the stream stands.
            self.greeted = true;
            return Some("retry: 1000\n\n".to_owned());
        }
        if let Some(gap) = self.gap.take() {
            return Some(gap);
        }
        let keep_alive_at = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                () = tokio::time::sleep_until(self.ends_at) => return None,
                changed = self.tokens.changed() => {
                    changed.ok()?;
                    if !self.is_still_allowed() {
                        return None;
                    }
                }
                item = self.events.next() => {
                    if let Some(text) = self.write(item.ok()?) {
                        return Some(text);
                    }
                }
                () = tokio::time::sleep_until(keep_alive_at) => return Some(": keep-alive\n\n".to_owned()),
            }
        }
    }

    fn is_still_allowed(&mut self) -> bool {
        let tokens = self.tokens.borrow_and_update();
        self.caller.is_still_allowed(&tokens, self.api.scheduler.wall())
    }

    /// The item as text, if the filter lets it through.
    fn write(&self, item: Item) -> Option<String> {
        match item {
            Item::Event(event) => {
                let ours = self.filter.tenant.is_none() || self.filter.tenant == event.tenant;
                let ours = ours && (self.filter.audited || !is_audit(event.kind));
                let asked =
                    self.filter.job.is_none_or(|id| event.job.as_ref().is_some_and(|job| job.id == id));
                (ours && asked).then(|| frame(Some(event.number), event.kind.word(), &show::event(&event)))
            }
            Item::Progress(progress) => {
                let ours = self.filter.tenant.as_ref().is_none_or(|tenant| *tenant == progress.tenant);
                let asked = self.filter.job.is_none_or(|id| progress.job == id);
                (ours && asked).then(|| frame(None, "job.progress", &show::job_progress(&progress)))
            }
            // Told by the dialect that has words for it.
            Item::Feedback(_) => None,
            Item::Gap { from, to } => Some(write_gap(from.saturating_sub(1), to)),
        }
    }
}

/// True for events that are there for the audit list: who did what to the server, and who was not let in.
fn is_audit(kind: EventKind) -> bool {
    match kind {
        EventKind::ConfigChanged
        | EventKind::TokenCreated
        | EventKind::TokenRevoked
        | EventKind::CallRefused
        | EventKind::CallDenied
        | EventKind::CallDone => true,
        EventKind::JobSubmitted
        | EventKind::JobQueued
        | EventKind::JobAssigned
        | EventKind::JobStarted
        | EventKind::JobRetrying
        | EventKind::JobSucceeded
        | EventKind::JobFailed
        | EventKind::JobCanceled
        | EventKind::JobRejected
        | EventKind::AttemptReleased
        | EventKind::JobDeferred
        | EventKind::JobHastened
        | EventKind::JobDenied
        | EventKind::DrainBegan
        | EventKind::ScheduleCreated
        | EventKind::ScheduleUpdated
        | EventKind::ScheduleDeleted
        | EventKind::ScheduleToggled
        | EventKind::ScheduleFired
        | EventKind::WorkerConnected
        | EventKind::WorkerSuperseded
        | EventKind::WorkerDegraded
        | EventKind::WorkerLost
        | EventKind::WorkerDrained
        | EventKind::WorkerSaturated
        | EventKind::WorkerDisconnected
        | EventKind::WorkerRebound
        | EventKind::ScheduleRunEnded
        | EventKind::Outbound
        | EventKind::JobReturned
        | EventKind::RunSubmitted
        | EventKind::RunStarted
        | EventKind::RunSucceeded
        | EventKind::RunFailed
        | EventKind::RunCanceled => false,
    }
}

/// A gap after event `after`, as text; its own number is that of the last event before the next one.
fn write_gap(after: u64, last: u64) -> String {
    frame(Some(last), "gap", &Gap { after, resumes_at: last.saturating_add(1) })
}

fn frame(id: Option<u64>, kind: &str, data: &impl Serialize) -> String {
    // Compact JSON has no line breaks, so it is one line of data.
    let data = serde_json::to_string(data).unwrap_or_default();
    match id {
        Some(id) => format!("id: {id}\nevent: {kind}\ndata: {data}\n\n"),
        None => format!("event: {kind}\ndata: {data}\n\n"),
    }
}
