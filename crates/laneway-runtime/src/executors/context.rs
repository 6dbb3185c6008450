//! The context of a handler: the job, its payload, its stop signal, and its reports.
//!
//! Cheap to clone, so that a handler can hand it to the tasks it starts.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use laneway_core::command::LogLine;
use laneway_core::{Bytes, Command, Failure, Fence, JobId, JobRow, Mono, Name, Span, TraceContext, Wall};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Work;
use super::logs::LogBuffer;
use crate::artifacts::{ARTIFACTS, FileId, LOCAL_WORKER, NotStored};
use crate::event_loop::RunnerMessage;
use crate::events::Progress;
use crate::scheduler::Shared;

/// Longest text of a progress report, in bytes: it is kept in memory for every running job.
pub(crate) const PROGRESS_LEN_MAX: usize = 1_024;

/// Longest name of an artifact, in bytes.
const ARTIFACT_NAME_MAX: usize = 256;

/// One attempt, as its handler sees it.
#[derive(Clone)]
pub struct JobContext {
    run: Arc<Run>,
}

/// The part that all clones of a context share.
struct Run {
    work: Work,
    token: CancellationToken,
    started: Mono,
    logs: LogBuffer,
    messages: mpsc::Sender<RunnerMessage>,
    shared: Arc<Shared>,
    handle: Handle,
}

impl JobContext {
    pub(crate) fn new(
        work: Work,
        token: CancellationToken,
        messages: mpsc::Sender<RunnerMessage>,
        shared: Arc<Shared>,
        handle: Handle,
    ) -> JobContext {
        let started = shared.clock.now().mono;
        let run = Run { work, token, started, logs: LogBuffer::default(), messages, shared, handle };
        JobContext { run: Arc::new(run) }
    }

    /// The job's id.
    pub fn job(&self) -> JobId {
        self.run.work.row.id
    }

    /// Which try this is: 1, 2, 3, ….
    pub fn attempt(&self) -> u32 {
        self.run.work.fence.attempt
    }

    /// The fence of this attempt, for downstream systems that can compare it.
    pub fn fence(&self) -> Fence {
        self.run.work.fence
    }

    /// The tenant of the job.
    pub fn tenant(&self) -> &Name {
        &self.row().spec.tenant
    }

    /// The party it counts against.
    pub fn agent(&self) -> &Name {
        &self.row().spec.agent
    }

    /// The lane it runs in.
    pub fn lane(&self) -> &Name {
        &self.row().spec.lane
    }

    /// The session it belongs to.
    pub fn session(&self) -> Option<&Name> {
        self.row().spec.session.as_ref().map(|session| &session.key)
    }

    /// Its kind.
    pub fn kind(&self) -> &Name {
        &self.row().spec.kind
    }

    /// Its labels.
    pub fn tags(&self) -> &[Name] {
        &self.row().spec.tags
    }

    /// The trace context of this attempt, for calls that it makes: `traceparent` is [`TraceContext::parent`]. `None`: the
    /// job has no trace.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.run.work.trace.as_deref()
    }

    /// The payload of the job.
    pub fn payload(&self) -> &Bytes {
        &self.run.work.payload
    }

    /// The payloads of the jobs that were merged into this one, in the order of their submission. Empty unless
    /// the job's session has a debounce window and others came within it.
    pub fn merged(&self) -> &[Bytes] {
        &self.run.work.merged
    }

    /// Everything that this run is for: its own payload, then those of the jobs that were merged into it.
    pub fn payloads(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(self.payload()).chain(self.merged())
    }

    /// The payload, parsed as JSON. A payload that does not fit is a permanent failure: `ctx.json()?`.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(self.payload()).map_err(|error| {
            Failure::permanent("bad_payload", format!("the payload is not what the handler takes: {error}"))
        })
    }

    /// Everything that is stored of the job.
    pub fn row(&self) -> &JobRow {
        &self.run.work.row
    }

    /// When its deadline passes.
    pub fn deadline(&self) -> Option<Wall> {
        self.run.work.deadline
    }

    /// How long this attempt may run in all.
    pub fn timeout(&self) -> Option<Span> {
        self.run.work.timeout
    }

    /// How long this attempt may still run: until its timeout or the deadline, whichever comes first.
    pub fn time_left(&self) -> Option<Duration> {
        let now = self.run.shared.clock.now();
        let ran = now.mono.since(self.run.started).0;
        let until_timeout = self.timeout().map(|timeout| timeout.0.saturating_sub(ran));
        let until_deadline = self.deadline().map(|deadline| deadline.since(now.wall).0);
        let left = match (until_timeout, until_deadline) {
            (Some(timeout), Some(deadline)) => Some(timeout.min(deadline)),
            (timeout, deadline) => timeout.or(deadline),
        };
        left.map(Duration::from_millis)
    }

    /// When that time is over, by the wall clock.
    pub fn ends_at(&self) -> Option<Wall> {
        let left = u64::try_from(self.time_left()?.as_millis()).unwrap_or(u64::MAX);
        Some(self.run.shared.clock.now().wall + Span(left))
    }

    /// Canceled when the run must stop: the job was canceled, its time is up, or the server stops. A handler that has
    /// not ended some seconds later is dropped where it waits.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.run.token
    }

    /// True when the run must stop.
    pub fn is_canceled(&self) -> bool {
        self.run.token.is_cancelled()
    }

    /// Reports progress: `fraction` from 0 to 1. It may be lost; only the latest is kept.
    pub fn progress(&self, fraction: f64, message: &str) {
        let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        let progress = Progress {
            job: self.job(),
            tenant: self.tenant().clone(),
            attempt: self.attempt(),
            stage: None,
            fraction,
            message: cut(message, PROGRESS_LEN_MAX).into(),
            metrics: Default::default(),
            at: self.run.shared.clock.now().wall,
        };
        self.run.shared.progress.put(progress.clone());
        self.run.shared.events.publish_progress(progress);
    }

    /// Keeps a line of text with the job. Lines are made durable in batches, a fraction of a second later.
    pub fn log(&self, text: &str) {
        self.log_to(&Name::fixed("log"), text);
    }

    /// Keeps a line under another name than `log`: `stdout`, `stderr`, ….
    pub fn log_to(&self, stream: &Name, text: &str) {
        let at = self.run.shared.clock.now().wall;
        if self.run.logs.push(at, stream, text) {
            let context = self.clone();
            self.run.handle.spawn(async move {
                tokio::time::sleep(super::logs::FLUSH_AFTER).await;
                context.flush_logs().await;
            });
        }
    }

    /// Stores an artifact of the job: its data, a name for people, and its media type. Every caller that may see the job may
    /// download it until it expires. `number` counts the artifacts of this attempt, from 1.
    pub async fn store_artifact(
        &self,
        number: u32,
        name: &str,
        media_type: &str,
        bytes: Vec<u8>,
    ) -> Result<(), NotStored> {
        let files = self.run.shared.additions.artifact_files().cloned().ok_or(NotStored::NoDirectory)?;
        let id = FileId { job: self.job(), attempt: self.attempt(), number };
        let (len, retention) = (bytes.len(), files.retention());
        let tenant = self.tenant().clone();
        let at = self.run.shared.clock.now().wall;
        let stored = tokio::task::spawn_blocking(move || files.add(&tenant, id, &bytes, at));
        stored.await.unwrap_or_else(|error| Err(io::Error::other(error).into()))?;
        let expires_at = at + Span(u64::try_from(retention.as_millis()).unwrap_or(u64::MAX));
        let text = serde_json::json!({
            "resource_id": id.resource(),
            "worker_id": LOCAL_WORKER,
            "type": "file",
            "size_bytes": len,
            "expires_at": jiff::Timestamp::from_millisecond(expires_at.0).ok().map(|at| at.to_string()),
            "metadata": {"name": cut(name, ARTIFACT_NAME_MAX), "mime_type": media_type},
        });
        let line = LogLine { at, stream: Name::fixed(ARTIFACTS), text: text.to_string().into() };
        let command = Command::Log(self.run.work.fence, vec![line]);
        // A loop that has stopped keeps nothing more; there is no one to inform.
        drop(self.run.messages.send(RunnerMessage { command, reply: None }).await);
        Ok(())
    }

    /// Sends what was logged so far to the loop.
    pub(crate) async fn flush_logs(&self) {
        if let Some(command) = self.run.logs.take(self.run.work.fence) {
            // A loop that has stopped keeps nothing more; there is no one to inform.
            drop(self.run.messages.send(RunnerMessage { command, reply: None }).await);
        }
    }

    /// The run is over: forgets its progress.
    pub(crate) fn forget(&self) {
        self.run.shared.progress.remove(self.job(), self.attempt());
    }
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("fence", &self.fence())
            .field("kind", self.kind())
            .finish_non_exhaustive()
    }
}

/// The longest beginning of `text` with at most `len_max` bytes.
pub fn cut(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
