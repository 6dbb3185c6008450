//! The log as a stream of server-sent events: of one job until it has ended, or the transitions of every job.
//!
//! Transitions come from the event bus. Lines that an attempt writes are stored in batches and no event announces them, so the
//! stream of a running job reads them every [`READ_EVERY`].

use std::time::Duration;

use axum::extract::RawQuery;
use axum::response::Response;
use laneway_core::{EventKind, JobId, Name, Seq};
use laneway_runtime::sse::{self, Comments, EventStream, Source, Written};
use laneway_runtime::{Interest, Item, Jobs, ReadError, Scheduler, Subscription};
use serde_json::json;

use super::decode::Fields;
use super::error::Problem;
use super::jobs::lines_after;
use super::logs::{self, Level, Log, Wanted};
use super::translate::{self, Status};
use super::wire::LogEntry;
use super::{BrowserManager, KINDS, LANE};
use crate::body::Call;

/// How often the lines of a running job are read.
const READ_EVERY: Duration = Duration::from_millis(500);
/// How many old lines a stream begins with.
const TAIL_DEFAULT: u64 = 50;

/// The comments of a stream.
const COMMENTS: Comments =
    Comments { silence: Duration::from_secs(15), keep_alive: ": keep-alive\n\n", revoked: "" };

/// What a stream waits for.
enum Next {
    /// Something happened. `None`: the client fell behind.
    Event(Option<Item>),
    /// It is time to read new lines.
    Lines,
    /// The job has ended, and its lines were sent.
    Ended(Status),
}

/// The lines of a stream.
struct Lines {
    scheduler: Scheduler,
    job: Option<Followed>,
    level: Level,
    events: Subscription,
    /// Events up to this one are in the lines that the stream began with.
    known: u64,
    /// Events up to this one happened before the stream began.
    began_after: u64,
}

/// The job that a stream follows.
struct Followed {
    id: JobId,
    seq: Seq,
    /// The last line that was sent.
    line: u64,
    /// Set when the job has ended.
    ended: Option<Status>,
}

/// Streams the log of a job, or the transitions of every job of the caller.
pub async fn stream_logs(
    Call(browser_manager, caller): Call<BrowserManager>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let mut fields = Fields::of_query(query.as_deref());
    let wanted = Wanted::read(&mut fields, Level::Info, TAIL_DEFAULT)?;
    let id = match fields.opt_query_text("job_id")? {
        Some(id) => Some(id),
        None => fields.opt_query_text("jobId")?,
    };
    let scheduler = &browser_manager.scheduler;
    let of_lane = || Jobs::OfLane(Name::fixed(LANE));
    let jobs = id.as_deref().and_then(translate::job_id).map_or_else(of_lane, Jobs::One);
    let interest = Interest::in_jobs(caller.scope().cloned(), jobs);
    // Before the job is read: an event between the two must not be missed.
    let events = scheduler.events().listen(interest, None);
    let began_after = scheduler.events().latest();
    let (mut job, mut known, mut first) = (None, 0, String::new());
    if let Some(id) = id {
        let view = browser_manager.find(&caller, &id).await?;
        let (seq, shown) = (view.row.seq, view.row.id.to_string());
        let log = scheduler.read(move |reader| Log::read(reader, seq, &shown)).await?;
        // The events of a job may be gone before the job is. A job that ends after its log was read ends with an event.
        let ended = log.ended.or_else(|| view.end.as_ref().map(|end| Status::of(end.state)));
        known = log.event;
        job = Some(Followed { id: view.row.id, seq, line: log.line, ended });
        first = logs::newest(log.lines, wanted).0.iter().map(frame).collect();
    }
    let share = browser_manager.listener(&caller)?;
    let lines = Lines { scheduler: scheduler.clone(), job, level: wanted.level, events, known, began_after };
    let stream = EventStream::new(scheduler, caller, Some(share), COMMENTS, lines);
    Ok(stream.first((!first.is_empty()).then_some(first)).into_response())
}

impl Source for Lines {
    type Item = Next;

    async fn wait(&mut self) -> Result<Next, ReadError> {
        match &self.job {
            Some(Followed { ended: Some(status), .. }) => Ok(Next::Ended(*status)),
            Some(_) => tokio::select! {
                item = self.events.next_unless_behind() => Ok(Next::Event(item?)),
                () = tokio::time::sleep(READ_EVERY) => Ok(Next::Lines),
            },
            None => Ok(Next::Event(self.events.next_unless_behind().await?)),
        }
    }

    async fn write(&mut self, next: Next) -> Written {
        match next {
            Next::Lines => text_or_nothing(self.new_lines().await),
            Next::Ended(status) => {
                let text = self.new_lines().await;
                Written::Last((text + &close(status.as_str())).into())
            }
            Next::Event(None) => Written::Last(close("slow_reader").into()),
            // The server stops: streams must not delay it.
            Next::Event(Some(Item::Event(event)))
                if event.kind == EventKind::DrainBegan && event.number > self.began_after =>
            {
                Written::Last(close("agent_stopping").into())
            }
            Next::Event(Some(Item::Event(event))) if event.number > self.known => {
                let Some(job) = event.job.as_ref().filter(|job| KINDS.contains(&job.kind.as_str())) else {
                    return Written::Nothing;
                };
                // What the attempt wrote before the transition goes before it.
                let mut text = self.new_lines().await;
                let line = logs::transition(&event, &job.id.to_string());
                let line = line.filter(|line| line.is_at_least(self.level));
                text.extend(line.map(|line| frame(&line.entry)));
                let status = logs::status_after(&event).filter(|status| status.is_terminal());
                match (&mut self.job, status) {
                    (Some(followed), Some(status)) if followed.id == job.id => {
                        followed.ended = Some(status);
                    }
                    _ => {}
                }
                text_or_nothing(text)
            }
            Next::Event(_) => Written::Nothing,
        }
    }
}

impl Lines {
    /// The frames of lines that were written since the last ones. A store that cannot be read now is read again later.
    async fn new_lines(&mut self) -> String {
        let Some(job) = &mut self.job else { return String::new() };
        let (seq, after, id) = (job.seq, job.line, job.id.to_string());
        let Ok(lines) = self.scheduler.read(move |reader| lines_after(reader, seq, after)).await else {
            return String::new();
        };
        job.line = lines.last().map_or(job.line, |line| line.line);
        let lines = lines.iter().filter_map(|line| logs::written_line(line, &id));
        lines.filter(|line| line.is_at_least(self.level)).map(|line| frame(&line.entry)).collect()
    }
}

fn frame(entry: &LogEntry) -> String {
    sse::frame(None, "log", &serde_json::to_string(entry).unwrap_or_default())
}

fn close(reason: &str) -> String {
    sse::frame(None, "close", &json!({"reason": reason}).to_string())
}

fn text_or_nothing(text: String) -> Written {
    if text.is_empty() { Written::Nothing } else { Written::Text(text.into()) }
}
