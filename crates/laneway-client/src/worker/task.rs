//! One task as its handler sees it: its input, its cancellation, and its reports. Cheap to clone.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use laneway_wire::frame::{
    Channel, Chunk, Dispatch, Feedback, JsonObject, List, Message, NextRequest, NextResponse, Table, Text,
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::ended::Failure;
use super::outbox::TaskKey;
use super::resources::{ResourceBody, Resources};
use super::run::Event;

/// Longest message of a progress report, in characters.
const MESSAGE_LEN_MAX: usize = 1_024;
/// Longest text or data of one chunk, in bytes; longer ones are sent in pieces.
const CHUNK_LEN_MAX: usize = 64 << 10;

/// One task, as its handler sees it.
#[derive(Clone)]
pub struct Task {
    inner: Arc<Inner>,
}

struct Inner {
    key: TaskKey,
    dispatch: Dispatch,
    token: CancellationToken,
    deadline: Option<Instant>,
    events: mpsc::Sender<Event>,
    resources: Resources,
    /// How many chunks each channel has sent.
    indexes: Mutex<[u64; Channel::ALL.len()]>,
    requests: AtomicU64,
}

/// Why a `next` failed.
#[derive(Debug, Error)]
pub enum NextError {
    /// The task is not a middleware.
    #[error("the task is not a middleware of a chain")]
    NotInAChain,
    /// The rest of the chain failed; the object has `code` and `message`.
    #[error("the rest of the chain failed: {0:?}")]
    Rejected(JsonObject),
    /// No answer came in time.
    #[error("no answer came in time")]
    TimedOut,
    /// The attempt is being stopped.
    #[error("the task is being stopped")]
    Stopped,
}

impl Task {
    pub(super) fn new(
        key: TaskKey,
        dispatch: Dispatch,
        token: CancellationToken,
        events: mpsc::Sender<Event>,
        resources: Resources,
    ) -> Task {
        let limit = dispatch.constraints.timeout_ms.map(Duration::from_millis);
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let (indexes, requests) = (Mutex::default(), AtomicU64::new(0));
        Task {
            inner: Arc::new(Inner { key, dispatch, token, deadline, events, resources, indexes, requests }),
        }
    }

    /// The task's id.
    pub fn id(&self) -> &str {
        &self.inner.key.task_id
    }

    /// The attempt. With the id it is a fence that downstream systems can compare.
    pub fn seq(&self) -> u64 {
        self.inner.key.seq
    }

    /// The workflow run that the task belongs to.
    pub fn run_id(&self) -> &str {
        &self.inner.dispatch.run_id
    }

    /// The kind of the task.
    pub fn kind(&self) -> &str {
        &self.inner.dispatch.node_type
    }

    /// The whole dispatch.
    pub fn dispatch(&self) -> &Dispatch {
        &self.inner.dispatch
    }

    /// The place of this attempt in its trace, as a `traceparent` for calls that the handler makes. `None`: the job has no
    /// trace.
    pub fn traceparent(&self) -> Option<&str> {
        self.inner.dispatch.traceparent.as_deref()
    }

    /// The `tracestate` that belongs to [`Task::traceparent`].
    pub fn tracestate(&self) -> Option<&str> {
        self.inner.dispatch.tracestate.as_deref()
    }

    /// The parameters as JSON text.
    pub fn parameters(&self) -> &JsonObject {
        &self.inner.dispatch.parameters
    }

    /// The parameters, parsed: `let order: Order = task.read()?;`
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        Ok(self.inner.dispatch.parameters.read()?)
    }

    /// Canceled when the handler must stop. A handler that does not end within the stop grace is dropped.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.token
    }

    /// The time left before the timeout, if the task has one.
    pub fn time_left(&self) -> Option<Duration> {
        self.inner.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Reports progress: `fraction` from 0 to 1. The report may be lost.
    pub fn progress(&self, fraction: f64, message: &str) {
        let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        let message = message.chars().take(MESSAGE_LEN_MAX).collect();
        let feedback = Feedback { progress: Some(fraction), message: Some(message), ..self.feedback() };
        // When the worker is behind with sending, newer progress follows soon.
        let _ = self.inner.events.try_send(self.event(Message::Feedback(feedback)));
    }

    /// Sends metrics of the handler.
    pub fn metrics(&self, values: &[(&str, f64)]) {
        let entries = values.iter().filter(|(_, value)| value.is_finite());
        let named = entries.filter_map(|(name, value)| Some((Text::new(*name).ok()?, *value)));
        let Ok(metrics) = Table::new(named.collect()) else { return };
        let feedback = Feedback { metrics: Some(metrics), ..self.feedback() };
        let _ = self.inner.events.try_send(self.event(Message::Feedback(feedback)));
    }

    /// Writes text to a channel. Waits while the worker is behind with sending.
    pub async fn chunk(&self, channel: Channel, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let piece = cut(rest, CHUNK_LEN_MAX);
            rest = &rest[piece.len()..];
            self.send_chunk(channel, Some(piece.to_owned()), None).await;
        }
    }

    /// Writes bytes to a channel.
    pub async fn chunk_bytes(&self, channel: Channel, bytes: &[u8]) {
        for piece in bytes.chunks(CHUNK_LEN_MAX) {
            self.send_chunk(channel, None, Some(STANDARD.encode(piece))).await;
        }
    }

    /// Keeps an artifact in the worker's registry for `ttl`, and returns its description for the result.
    /// Callers that may see the job can download it through the server; `name` and `mime_type` of its
    /// `metadata` are shown to them. It is dropped when the attempt does not succeed, and at the latest when
    /// the worker ends.
    pub fn keep(
        &self,
        kind: &str,
        body: ResourceBody,
        ttl: Option<Duration>,
    ) -> Result<laneway_wire::frame::Artifact, Failure> {
        self.inner.resources.keep_for_run(kind, self.run_id(), &self.inner.key, body, ttl)
    }

    /// The description of an artifact whose data the result contains itself.
    pub fn inline(
        &self,
        kind: &str,
        size_bytes: Option<u64>,
    ) -> Result<laneway_wire::frame::Artifact, Failure> {
        self.inner.resources.inline(kind, size_bytes)
    }

    /// A resource that the dispatch refers to, by its id.
    pub fn resource(&self, resource_id: &str) -> Option<ResourceBody> {
        self.inner.resources.body(resource_id)
    }

    /// For middlewares: runs the rest of the chain, and waits for its result.
    pub async fn next(&self, payload: JsonObject, limit: Option<Duration>) -> Result<JsonObject, NextError> {
        let dispatch = &self.inner.dispatch;
        let (Some(host), Some(index)) = (&dispatch.host_node_id, dispatch.chain_index) else {
            return Err(NextError::NotInAChain);
        };
        let number = self.inner.requests.fetch_add(1, Ordering::Relaxed);
        let request_id = Text::fixed(&format!("{:x}-{}-{number}", self.seq(), short(self.id())));
        let request = NextRequest {
            request_id: request_id.clone(),
            run_id: dispatch.run_id.clone(),
            node_id: host.clone(),
            middleware_id: dispatch.node_id.clone(),
            chain_index: Some(i64::from(index)),
            host_ctx: None,
            middleware_ctx: None,
            payload: Some(payload),
            timeout_ms: limit.and_then(|limit| u64::try_from(limit.as_millis()).ok()),
        };
        let (sender, answer) = oneshot::channel();
        let event = Event::Next { key: self.inner.key.clone(), request, sender };
        if self.inner.events.send(event).await.is_err() {
            return Err(NextError::Stopped);
        }
        let expired = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = answer => read_answer(answer.ok()),
            () = self.inner.token.cancelled() => Err(NextError::Stopped),
            () = expired => Err(NextError::TimedOut),
        }
    }

    async fn send_chunk(&self, channel: Channel, text: Option<String>, data_base64: Option<String>) {
        let index = {
            let mut indexes = self.inner.indexes.lock().unwrap_or_else(PoisonError::into_inner);
            let index = &mut indexes[channel as usize];
            *index += 1;
            *index - 1
        };
        let chunk = Chunk { channel, index: Some(index), mime_type: None, text, data_base64, metadata: None };
        let feedback = Feedback { chunks: List::new(vec![chunk]).ok(), ..self.feedback() };
        let _ = self.inner.events.send(self.event(Message::Feedback(feedback))).await;
    }

    fn feedback(&self) -> Feedback {
        Feedback {
            run_id: self.inner.dispatch.run_id.clone(),
            task_id: self.inner.dispatch.task_id.clone(),
            stage: Some(Text::fixed("running")),
            progress: None,
            message: None,
            chunks: None,
            metrics: None,
            metadata: None,
        }
    }

    fn event(&self, message: Message) -> Event {
        Event::TaskMessage { key: self.inner.key.clone(), message }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("key", &self.inner.key)
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

fn read_answer(answer: Option<NextResponse>) -> Result<JsonObject, NextError> {
    let Some(answer) = answer else { return Err(NextError::Stopped) };
    match (answer.error, answer.result) {
        (Some(error), _) => Err(NextError::Rejected(error)),
        (None, result) => Ok(result.unwrap_or_default()),
    }
}

/// The longest prefix of `text` with at most `len_max` bytes.
fn cut(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Enough of an id to distinguish it from others in the id of a frame, which has a length limit.
fn short(id: &str) -> &str {
    cut(id, 128)
}
