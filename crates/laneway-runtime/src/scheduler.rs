//! The scheduler handle: it sends requests to the loop, reads the store, and listens to events.
//!
//! It is cheap to clone and works from any async task. What it cannot do is change anything by itself: every change is a
//! command to the loop in `event_loop.rs`, and an answer means that the change is durable. When the last handle is dropped the
//! loop ends, like after a crash; `drain.rs` stops it gracefully.

use laneway_core::command::{AdminCommand, DeliveryCommand, LeaseCommand};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use laneway_core::command::{LogLine, Submitted};
use laneway_core::lease::{Claim, LeaseMessage, LeaseRequest, LeaseUpdate};
use laneway_core::{
    AttemptId, Bytes, Command, EventKind, ExecutorMode, ExecutorOffer, Fence, JobId, JobPatch, JobRow, Name,
    Now, Origin, Outcome, Rejection, Reply, Settings, SpanOf, Submission, TokenRecord, TraceContext, Wall,
};
use laneway_store::{JobView, Reader, StoreError};
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::additions::Additions;
use crate::batch::is_runner_message;
use crate::clock::Clock;
use crate::event_loop::{ClientRequest, LeaseProgress, RunnerMessage};
use crate::events::{EventBus, Progress, ProgressTable};
use crate::executors::Executor;
use crate::executors::context::{PROGRESS_LEN_MAX, cut};
use crate::executors::local::{Handlers, LocalExecutor, Runners};
use crate::history::History;
use crate::metrics::Metrics;
use crate::otel::{SpanQueue, context_below};
use crate::probes::{ApiMeter, LoadBoard};
use crate::sessions::TokenEstimate;
use crate::tenant_permits::TenantPermits;
use crate::waiters::Waiters;
use crate::webhooks::DueDelivery;
use crate::webhooks::queue::WebhookQueue;
use crate::workers::Connections;

/// The handle that everybody holds.
#[derive(Clone)]
pub struct Scheduler {
    pub(crate) requests: mpsc::Sender<ClientRequest>,
    pub(crate) messages: mpsc::Sender<RunnerMessage>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) runners: Arc<Runners>,
}

/// The state that the loop and all handles share.
pub(crate) struct Shared {
    pub(crate) history: History,
    pub(crate) events: EventBus,
    pub(crate) metrics: Metrics,
    pub(crate) tokens: watch::Sender<Arc<TokenTable>>,
    pub(crate) waiters: Waiters,
    pub(crate) progress: ProgressTable,
    pub(crate) reader: Arc<dyn Reader>,
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) lists: TenantPermits,
    pub(crate) clock: Clock,
    pub(crate) webhook_queue: WebhookQueue,
    pub(crate) api_meter: ApiMeter,
    pub(crate) load_board: LoadBoard,
    /// Canceled when the server was asked to stop.
    pub(crate) draining: CancellationToken,
    pub(crate) running: AtomicBool,
    pub(crate) token_estimate: Option<TokenEstimate>,
    pub(crate) workers: Connections,
    pub(crate) additions: Additions,
    /// What becomes spans, while they are exported.
    pub(crate) spans: Option<SpanQueue>,
    /// Weak: a loop ends when the last handle is gone, and this is none.
    pub(crate) requests: mpsc::WeakSender<ClientRequest>,
}

impl Shared {
    /// The trace context for the work below a span of a job. `None`: the job has no trace.
    pub(crate) fn trace_below(&self, row: &JobRow, span: SpanOf) -> Option<Box<TraceContext>> {
        context_below(self.spans.as_ref(), row, span)
    }
}

/// The loop has stopped: nothing more will be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the scheduler has stopped")]
pub struct Stopped;

/// Why the store was not read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The store could not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The reading code panicked.
    #[error("reading the store panicked")]
    Panicked,
    /// The loop has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a caller cannot wait for a job.
#[derive(Debug, Error)]
pub enum WaitError {
    /// There is no such job.
    #[error("there is no such job")]
    NotFound,
    /// Too many calls wait already.
    #[error("too many calls wait already")]
    TooMany,
    /// The store could not answer.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The loop has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Every token at one moment, by id.
#[derive(Clone, Debug, Default)]
pub struct TokenTable {
    by_id: BTreeMap<Name, TokenRecord>,
    /// Imported ones by their digest: the text that callers present does not name the id.
    imported: BTreeMap<[u8; 32], Name>,
}

impl TokenTable {
    pub(crate) fn new<'a>(tokens: impl Iterator<Item = &'a TokenRecord>) -> TokenTable {
        let by_id: BTreeMap<Name, TokenRecord> =
            tokens.map(|token| (token.id.clone(), token.clone())).collect();
        let imported = by_id.values().filter(|token| token.is_imported());
        let imported = imported.map(|token| (token.digest, token.id.clone())).collect();
        TokenTable { by_id, imported }
    }

    /// The imported token whose secret has this digest, revoked or not.
    pub fn imported(&self, digest: &[u8; 32]) -> Option<&TokenRecord> {
        self.by_id.get(self.imported.get(digest)?)
    }

    /// The token of this id, revoked or not.
    pub fn get(&self, id: &Name) -> Option<&TokenRecord> {
        self.by_id.get(id)
    }

    /// Every token, by id.
    pub fn iter(&self) -> impl Iterator<Item = &TokenRecord> {
        self.by_id.values()
    }

    /// True while no token was ever made: of those that ended, at least the last one is kept.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}

impl Scheduler {
    /// Hands one command to the loop and waits until what follows from it is durable.
    pub async fn send(&self, mut command: Command) -> Result<Reply, Stopped> {
        self.shared.additions.prepare(&mut command);
        let (reply, answer) = oneshot::channel();
        if is_runner_message(&command) {
            self.messages.send(RunnerMessage { command, reply: Some(reply) }).await.map_err(|_| Stopped)?;
        } else {
            self.requests.send(ClientRequest::Command(command, reply)).await.map_err(|_| Stopped)?;
        }
        answer.await.map_err(|_| Stopped)
    }

    /// Asks for one job.
    pub async fn submit(&self, submission: Submission) -> Result<Result<Submitted, Rejection>, Stopped> {
        self.estimate_usage(std::slice::from_ref(&submission)).await?;
        match self.send(Command::Submit(Arc::new(submission))).await? {
            Reply::Submitted(submitted) => Ok(Ok(submitted)),
            Reply::Rejected(rejection) => Ok(Err(rejection)),
            other => unreachable!("the engine answers a submit with {other:?}"),
        }
    }

    /// Asks for many jobs: each for itself, or (`atomic`) all or none. One verdict for each, in order.
    pub async fn submit_batch(
        &self,
        items: Vec<Submission>,
        atomic: bool,
    ) -> Result<Vec<Result<Submitted, Rejection>>, Stopped> {
        let count = items.len();
        self.estimate_usage(&items).await?;
        match self.send(Command::SubmitBatch { items: Arc::new(items), atomic }).await? {
            Reply::Batch(verdicts) => Ok(verdicts),
            Reply::Rejected(rejection) => Ok(vec![Err(rejection); count]),
            other => unreachable!("the engine answers a batch with {other:?}"),
        }
    }

    /// Ends a job. `Reply::Canceled`, or `Reply::NotFound` when no live job of that name is there for this tenant.
    pub async fn cancel(&self, tenant: Option<Name>, job: JobId, origin: Origin) -> Result<Reply, Stopped> {
        self.send(Command::Cancel { tenant, job, origin }).await
    }

    /// Changes the priority or the start of a waiting job. `Reply::Updated`, `Reply::Rejected`, or `Reply::NotFound` when no live
    /// job of that name is there for this tenant.
    pub async fn update_job(
        &self,
        tenant: Option<Name>,
        job: JobId,
        patch: JobPatch,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Update { tenant, job, patch, origin }).await
    }

    /// Deletes an ended job. `Reply::Deleted`, `Reply::Rejected` or `Reply::NotFound`.
    pub async fn delete_job(
        &self,
        tenant: Option<Name>,
        job: JobId,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Delete { tenant, job, stored: None, origin }).await
    }

    /// Replaces all settings at once. `overrides`: what must be kept so that they hold after a restart.
    pub async fn configure(
        &self,
        settings: Settings,
        overrides: Option<Bytes>,
        detail: &str,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        let settings = Box::new(settings);
        self.send(Command::Admin(AdminCommand::Configure {
            settings,
            overrides,
            detail: detail.into(),
            origin,
        }))
        .await
    }

    /// Keeps a line for the audit list about a call that reaches no other command.
    pub async fn note(
        &self,
        kind: EventKind,
        tenant: Option<Name>,
        detail: &str,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Admin(AdminCommand::Note { kind, tenant, detail: detail.into(), origin })).await
    }

    /// A worker reports that its attempt has ended.
    pub async fn finish(&self, fence: Fence, outcome: Outcome) -> Result<Reply, Stopped> {
        self.send(Command::Finish(fence, outcome)).await
    }

    /// A worker's lines about its attempt.
    pub async fn log(&self, fence: Fence, lines: Vec<LogLine>) -> Result<Reply, Stopped> {
        self.send(Command::Log(fence, lines)).await
    }

    /// A worker asks for the next job that suits it: `Reply::Granted`, `Denied`, or `NotFound` and `Rejected` for a lane that
    /// is not there or whose workers do not ask.
    pub async fn claim(&self, claim: Claim) -> Result<Reply, Stopped> {
        self.send(Command::Lease(LeaseCommand::Claim(Box::new(claim)))).await
    }

    /// A worker asks to run one job now, or not at all.
    pub async fn request_lease(&self, request: LeaseRequest) -> Result<Reply, Stopped> {
        self.send(Command::Lease(LeaseCommand::Request(Box::new(request)))).await
    }

    /// A message about an attempt, by the attempt's id alone.
    pub async fn lease_message(&self, message: LeaseMessage) -> Result<Reply, Stopped> {
        self.send(Command::Lease(LeaseCommand::Message(Box::new(message)))).await
    }

    /// The holder of a lease says how far it is: `fraction` from 0 to 1. Does not make the lease start anew; may be lost, only
    /// the latest is kept. `Reply::Done`, `NotYours` or `NotFound`.
    pub async fn report(
        &self,
        lease: AttemptId,
        tenant: Option<Name>,
        worker: Name,
        fraction: f64,
        message: &str,
    ) -> Result<Reply, Stopped> {
        let worker = Some(worker);
        let report = LeaseMessage { lease, tenant, worker, pid: None, update: LeaseUpdate::Report };
        let reply = self.lease_message(report).await?;
        if reply != Reply::Done {
            return Ok(reply);
        }
        let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        let progress = LeaseProgress { lease, fraction, message: cut(message, PROGRESS_LEN_MAX).into() };
        let (published, is_published) = oneshot::channel();
        self.requests.send(ClientRequest::Progress(progress, published)).await.map_err(|_| Stopped)?;
        is_published.await.map_err(|_| Stopped)?;
        Ok(reply)
    }

    /// Looks at the clock now: starts whatever can start.
    pub async fn kick(&self) -> Result<Reply, Stopped> {
        self.send(Command::Tick).await
    }

    /// The readings of the load probe; empty without one.
    pub fn load_board(&self) -> &LoadBoard {
        &self.shared.load_board
    }

    /// Forgets jobs of a lane that ended before this time, whatever the lane's retention; a bounded number of them. Those with
    /// an idempotency key are kept as long as the key is.
    pub async fn forget(&self, lane: Name, finished_before: Wall) -> Result<Reply, Stopped> {
        self.send(Command::Admin(AdminCommand::Forget { lane, finished_before })).await
    }

    /// Counts calls of the API, so that a slow or failing API makes the machine count as busy.
    pub fn api_meter(&self) -> &ApiMeter {
        &self.shared.api_meter
    }

    /// Runs handlers in this process as an executor of this name, at most `slots` at once, on the tokio runtime of the
    /// caller. `Reply::Rejected` when another executor offers one of the kinds.
    pub async fn run_here(&self, executor: Name, handlers: Handlers, slots: u32) -> Result<Reply, Stopped> {
        let kinds = handlers.kinds();
        let local = LocalExecutor::new(handlers, self.messages.clone(), Arc::clone(&self.shared));
        self.runners.add(&local);
        self.add_executor(ExecutorOffer { executor, mode: ExecutorMode::Attached, kinds, slots }, local).await
    }

    /// Adds an executor, or changes its offer.
    pub async fn add_executor(
        &self,
        offer: ExecutorOffer,
        executor: Arc<dyn Executor>,
    ) -> Result<Reply, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(ClientRequest::AddExecutor { offer, executor, reply })
            .await
            .map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    /// Damage of the store was found by something else than a read. `what` names the table and the row. One event is recorded
    /// for each row.
    pub fn report_damage(&self, what: &str) {
        self.shared.metrics.damage().report(what);
    }

    /// Reads the store, on a thread that may block. At most [`Options::readers_max`] such calls run at once.
    ///
    /// [`Options::readers_max`]: crate::Options::readers_max
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        read_store(&self.shared.readers, &self.shared.reader, look).await
    }

    /// Reads a list from the store, as [`Scheduler::read`] does. A list may look at many rows, so the lists of one tenant never use all
    /// readers: its further lists wait for one another, and no other tenant waits for them.
    pub async fn list<T: Send + 'static>(
        &self,
        tenant: Option<Name>,
        look: impl FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let _permit = self.shared.lists.take(tenant.as_ref()).await;
        self.read(look).await
    }

    /// Waits until the job has ended, and gives it as stored. For a job that was merged into another one, that is the
    /// one that runs for it.
    pub async fn wait(&self, job: JobId) -> Result<JobView, WaitError> {
        let view = self.wait_for(job).await?;
        match view.end.as_ref().and_then(|end| end.merged_into) {
            // What others are merged into is merged into nothing itself.
            Some(into) => self.wait_for(into.job).await,
            None => Ok(view),
        }
    }

    /// Waits until a job has ended, `most` at most, and not beyond the moment when the server begins to stop. It counts
    /// against the calls that may wait for jobs of this tenant.
    pub async fn wait_at_most(&self, tenant: &Name, job: JobId, most: Duration) -> Result<(), WaitError> {
        // Register before the look into the store: an end between the two must not be missed.
        let waiting = self.shared.waiters.register(job, Some(tenant))?;
        let view = self.read(move |reader| reader.job(job)).await?;
        if view.is_none_or(|view| view.end.is_some()) {
            return Ok(());
        }
        tokio::select! {
            biased;
            ended = waiting.ended() => ended?,
            () = self.shared.draining.cancelled() => {}
            () = tokio::time::sleep(most) => {}
        }
        Ok(())
    }

    async fn wait_for(&self, job: JobId) -> Result<JobView, WaitError> {
        // Register before the look into the store: an end between the two must not be missed.
        let waiting = self.shared.waiters.register(job, None)?;
        let view = self.read(move |reader| reader.job(job)).await?.ok_or(WaitError::NotFound)?;
        if view.end.is_some() {
            return Ok(view);
        }
        waiting.ended().await?;
        self.read(move |reader| reader.job(job)).await?.ok_or(WaitError::NotFound)
    }

    /// The event bus.
    pub fn events(&self) -> &EventBus {
        &self.shared.events
    }

    /// Every token as of the latest commit.
    pub fn tokens(&self) -> Arc<TokenTable> {
        Arc::clone(&self.shared.tokens.borrow())
    }

    /// Notifies of changed tokens, so that streams and sockets of a revoked one can be closed.
    pub fn token_changes(&self) -> watch::Receiver<Arc<TokenTable>> {
        self.shared.tokens.subscribe()
    }

    /// Counters of everything that happened. See [`Scheduler::render_metrics`] for the whole page.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The page for Prometheus, with the current values.
    pub async fn render_metrics(&self) -> Result<String, Stopped> {
        let (stats, capacity) = self.engine_metrics().await?;
        let inbox = self.requests.max_capacity() - self.requests.capacity();
        let messages = self.messages.max_capacity() - self.messages.capacity();
        self.shared.metrics.observe_now(&stats, inbox, messages);
        self.shared.metrics.observe_capacity(&capacity);
        self.shared.metrics.observe_store(&self.shared.reader.lag());
        Ok(self.shared.metrics.render())
    }

    /// Sends the webhook of an ended job again, whatever became of it. `Reply::NotFound` when none is or was owed to this
    /// tenant.
    pub async fn redeliver(
        &self,
        tenant: Option<Name>,
        job: JobId,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Delivery(DeliveryCommand::Redeliver { tenant, job, stored: None, origin })).await
    }

    /// The receiving end of the webhook queue, for the dispatcher; returned once.
    pub fn take_deliveries(&self) -> Option<mpsc::Receiver<DueDelivery>> {
        self.shared.webhook_queue.take()
    }

    /// A try of a delivery has ended, and its outcome was reported.
    pub fn delivery_ended(&self) {
        self.shared.webhook_queue.ended();
    }

    /// The progress of a running job.
    pub fn progress(&self, job: JobId) -> Option<Progress> {
        self.shared.progress.get(job)
    }

    /// True from the moment the server was asked to stop.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.is_cancelled()
    }

    /// True while the loop runs and takes jobs.
    pub fn ready(&self) -> bool {
        self.shared.running.load(Ordering::Relaxed) && !self.is_draining()
    }

    /// Both clocks, as the loop reads them.
    pub fn now(&self) -> Now {
        self.shared.clock.now()
    }

    /// The wall clock, as the loop reads it.
    pub fn wall(&self) -> Wall {
        self.shared.clock.now().wall
    }

    /// Waits on the clock that the loop reads.
    pub async fn sleep(&self, span: laneway_core::Span) {
        self.shared.clock.sleep(span).await;
    }
}

/// Runs `look` on a thread that may block, with one permit each.
pub(crate) async fn read_store<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    reader: &Arc<dyn Reader>,
    look: impl FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ReadError> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(|_| Stopped)?;
    let reader = Arc::clone(reader);
    let (answer, answered) = oneshot::channel();
    // Boxed: the machinery of a task is compiled once, and not for every question that is asked.
    let task: Box<dyn FnOnce() + Send> = Box::new(move || {
        // Held by the thread, not by the caller: a caller that goes away does not free a permit.
        let _permit = permit;
        let _ = answer.send(look(reader.as_ref()));
    });
    tokio::task::spawn_blocking(task);
    answered.await.map_err(|_| ReadError::Panicked)?.map_err(ReadError::Store)
}
