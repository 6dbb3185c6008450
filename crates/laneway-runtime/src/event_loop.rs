//! The loop: one thread that takes commands, lets the engine decide, commits, and only then publishes.
//!
//! Commands that arrive during a commit are the next batch, so commits group by themselves, and a single command does not
//! wait for others. Messages of runners have an inbox of their own and go first: a flood of submits must not make running
//! attempts look lost. A commit that fails ends the loop: nothing of the batch is published, every caller gets [`Stopped`],
//! and the process is expected to exit and recover at its next start.
//!
//! [`Stopped`]: crate::Stopped

mod after_batch;
mod answers;
mod executor_entry;
mod publish;
mod recovery;
mod roll_up;

use laneway_core::command::{AdminCommand, RecordCommand};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use laneway_core::{
    Answer, AttemptId, Change, Command, EventKind, ExecutorOffer, Name, Now, Query, Reply, Seed, Settings,
};
use laneway_store::{Store, StoreError};
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use answers::Answers;
use executor_entry::ExecutorEntry;
use recovery::{JobLines, recovered};

use crate::batch::{Committed, Driver, fresh_seed};
use crate::clock::{Clock, StallWatch};
use crate::events::EventBus;
use crate::executors::Executor;
use crate::history::History;
use crate::job_log::DialectJobs;
use crate::metrics::{Metrics, TimedStore};
use crate::otel::SpanQueue;
use crate::payload_cache::PayloadCache;
use crate::probes::ApiMeter;
use crate::scheduler::{Scheduler, Shared, TokenTable};
use crate::sessions::TokenEstimate;
use crate::tenant_permits::TenantPermits;
use crate::webhooks::queue::WebhookQueue;

/// Most commands that wait beside the inbox: enough to fill any batch.
const TAKEN_MAX: usize = 1_024;

/// How many commands the last batch must have answered for the next one to collect requests.
const COLLECT_FROM: usize = 8;
/// How often the loop yields to collect requests before it goes on.
const COLLECT_MAX: u32 = 8;

/// One part in this many of the readers serves the lists of one tenant.
const LISTS_PART: usize = 4;

/// How a loop is started.
pub struct Options {
    /// The engine's settings.
    pub settings: Settings,
    /// The clock. Defaults to the system's clock.
    pub clock: Clock,
    /// The secret seed of ids and jitter, fresh at every start. Defaults to random bytes of the operating system.
    pub seed: Option<Seed>,
    /// Most requests that wait for the loop; further callers wait. Defaults to 1,024.
    pub inbox_len_max: usize,
    /// Most messages of runners that wait for the loop. Defaults to 4,096.
    pub runner_inbox_len_max: usize,
    /// How many recent events are kept in memory for listeners. Defaults to 16,384.
    pub events_len_max: usize,
    /// How many bytes of payloads of waiting jobs are kept in memory. Defaults to 64 MiB.
    pub payload_cache_bytes: usize,
    /// Most queries that read the store at once. Defaults to 8.
    pub readers_max: usize,
    /// Estimates how full the context of a session is. Called before a job of the session is submitted and after one has run,
    /// on a thread that may block. Defaults to none.
    pub token_estimate: Option<TokenEstimate>,
    /// The jobs that belong to dialects, for the log. Defaults to none.
    pub dialect_jobs: DialectJobs,
    /// What becomes spans, for an [`crate::otel::Exporter`]. Defaults to none: nothing is exported.
    pub spans: Option<SpanQueue>,
}

impl Options {
    /// The defaults, with these settings.
    pub fn new(settings: Settings) -> Options {
        Options {
            settings,
            clock: Clock::system(),
            seed: None,
            inbox_len_max: 1_024,
            runner_inbox_len_max: 4_096,
            events_len_max: 16_384,
            payload_cache_bytes: 64 << 20,
            readers_max: 8,
            token_estimate: None,
            dialect_jobs: DialectJobs::default(),
            spans: None,
        }
    }
}

/// Why a loop could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The store could not be recovered.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system has no random bytes.
    #[error("failed to draw a seed for ids: {0}")]
    Seed(#[from] getrandom::Error),
    /// The thread could not be started.
    #[error("failed to start the loop's thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Why a loop ended that should not have.
#[derive(Debug, Error)]
pub enum Fatal {
    /// The store failed; a restart reads its state again.
    #[error("{0}")]
    Store(StoreError),
    /// Another server has taken the store over, or may have: nothing of the last batch was published. This server must not start
    /// again beside the other one.
    #[error("{0}")]
    Fenced(StoreError),
    /// The engine panicked.
    #[error("the engine panicked: {0}")]
    Panicked(String),
}

impl Fatal {
    fn of(error: StoreError) -> Fatal {
        match error {
            fenced @ (StoreError::Fenced { .. } | StoreError::Lapsed(_)) => Fatal::Fenced(fenced),
            other => Fatal::Store(other),
        }
    }
}

/// The running loop, as its owner sees it.
pub struct Running {
    ended: oneshot::Receiver<Result<(), Fatal>>,
}

impl Running {
    /// Waits until the loop has ended and its store is closed. `Ok` after a drain, or when every handle was dropped.
    pub async fn ended(self) -> Result<(), Fatal> {
        self.ended.await.unwrap_or_else(|_| Err(Fatal::Panicked("the loop's thread is gone".into())))
    }
}

/// A request of a client to the loop.
pub(crate) enum ClientRequest {
    Command(Command, oneshot::Sender<Reply>),
    AddExecutor {
        offer: ExecutorOffer,
        executor: Arc<dyn Executor>,
        reply: oneshot::Sender<Reply>,
    },
    Query(Query, oneshot::Sender<Answer>),
    Progress(LeaseProgress, oneshot::Sender<()>),
    /// Take the rest of the inboxes, then end. Answered when the store is closed.
    Stop(oneshot::Sender<()>),
}

/// The progress that the holder of a lease reports.
pub(crate) struct LeaseProgress {
    pub(crate) lease: AttemptId,
    pub(crate) fraction: f64,
    pub(crate) message: Box<str>,
}

/// Work after a batch is published and before the next one begins.
enum AfterBatch {
    Answer(Query, oneshot::Sender<Answer>),
    Publish(LeaseProgress, oneshot::Sender<()>),
}

/// A message of a runner to the loop.
pub(crate) struct RunnerMessage {
    pub(crate) command: Command,
    pub(crate) reply: Option<oneshot::Sender<Reply>>,
}

/// The caller that waits for the reply to a command.
enum Caller {
    None,
    Waits(oneshot::Sender<Reply>),
    /// Becomes an executor, if the engine accepts its offer.
    NewExecutor {
        name: Name,
        executor: Arc<dyn Executor>,
        reply: oneshot::Sender<Reply>,
    },
}

impl Scheduler {
    /// Recovers from the store and starts the loop on a thread of its own.
    pub fn start(store: Box<dyn Store>, options: Options) -> Result<(Scheduler, Running), StartError> {
        let Options {
            settings,
            clock,
            seed,
            inbox_len_max,
            runner_inbox_len_max,
            events_len_max,
            payload_cache_bytes,
            readers_max,
            token_estimate,
            dialect_jobs,
            spans,
        } = options;
        let metrics = Metrics::new();
        let (seed, began) = (seed.map_or_else(fresh_seed, Ok)?, clock.now());
        let store = Box::new(TimedStore { store, metrics: metrics.clone() });
        let mut driver = Driver::recover(store, settings, seed, began)?;
        let lines = recovered(&mut driver, &metrics, spans.as_ref(), (began, clock.now()), dialect_jobs);
        let (requests, requests_in) = mpsc::channel(inbox_len_max);
        let (reader, readers) = (driver.reader(), Arc::new(Semaphore::new(readers_max)));
        let events =
            EventBus::new(Arc::clone(&reader), Arc::clone(&readers), driver.last_event(), events_len_max);
        let shared = Arc::new(Shared {
            events,
            history: History::restore(began.wall, driver.engine()),
            metrics,
            tokens: watch::Sender::new(Arc::new(TokenTable::new(driver.engine().tokens()))),
            waiters: Default::default(),
            progress: Default::default(),
            reader,
            readers,
            lists: TenantPermits::with_share(readers_max, (readers_max / LISTS_PART).max(1)),
            api_meter: ApiMeter::new(clock.clone()),
            load_board: Default::default(),
            clock: clock.clone(),
            webhook_queue: WebhookQueue::new(),
            draining: CancellationToken::new(),
            running: AtomicBool::new(true),
            token_estimate,
            workers: Default::default(),
            additions: Default::default(),
            spans,
            requests: requests.downgrade(),
        });
        let (messages, messages_in) = mpsc::channel(runner_inbox_len_max);
        let looper = Loop {
            driver,
            shared: Arc::clone(&shared),
            requests: requests_in,
            messages: messages_in,
            commands: VecDeque::new(),
            callers: VecDeque::new(),
            messages_left: 0,
            taken: Vec::new(),
            after_batch: Vec::new(),
            executors: BTreeMap::new(),
            cache: PayloadCache::new(payload_cache_bytes),
            answers: Answers::new(),
            stall: StallWatch::new(clock),
            lines,
            roll_ups: VecDeque::new(),
            took_request: true,
            answered: 0,
            stop: None,
            stopping: false,
        };
        let scheduler = Scheduler { requests, messages, shared, runners: Arc::default() };
        Ok((scheduler, looper.spawn()?))
    }
}

/// The state of the loop's thread.
struct Loop {
    driver: Driver,
    shared: Arc<Shared>,
    requests: mpsc::Receiver<ClientRequest>,
    messages: mpsc::Receiver<RunnerMessage>,
    /// Taken from the inboxes and not yet applied: messages of runners first, then other commands.
    commands: VecDeque<Command>,
    /// The callers that wait for the replies to `commands`.
    callers: VecDeque<Caller>,
    /// How many of `commands` are messages of runners.
    messages_left: usize,
    /// A buffer for messages from the inbox; empty between uses.
    taken: Vec<RunnerMessage>,
    after_batch: Vec<AfterBatch>,
    executors: BTreeMap<Name, ExecutorEntry>,
    cache: PayloadCache,
    answers: Answers,
    stall: StallWatch,
    lines: JobLines,
    /// Records of the history to store.
    roll_ups: VecDeque<RecordCommand>,
    /// True when the last batch applied a command that is no message of a runner, or none was left.
    took_request: bool,
    /// How many commands the last batch answered.
    answered: usize,
    stop: Option<oneshot::Sender<()>>,
    stopping: bool,
}

impl Loop {
    fn spawn(self) -> Result<Running, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (sender, ended) = oneshot::channel();
        self.shared.metrics.damage().connect(self.shared.requests.clone());
        std::thread::Builder::new().name("laneway-loop".into()).spawn(move || {
            let shared = Arc::clone(&self.shared);
            let mut looper = self;
            let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(looper.run())));
            let outcome = match outcome {
                Ok(outcome) => outcome.map_err(Fatal::of),
                Err(panic) => Err(Fatal::Panicked(panic_text(panic.as_ref()).to_owned())),
            };
            shared.running.store(false, Ordering::SeqCst);
            match &outcome {
                Ok(()) => {}
                Err(Fatal::Fenced(fenced)) => {
                    tracing::error!(%fenced, "the loop ends now; nothing of the last batch was published");
                }
                Err(fatal) => {
                    tracing::error!(%fatal, "the loop ends now; nothing of the last batch was published; the next start recovers");
                }
            }
            let stop = looper.stop.take();
            // Closes the inboxes and the store. Callers that still wait hear that the loop has stopped.
            drop(looper);
            shared.waiters.close();
            shared.events.close();
            if let Some(stop) = stop {
                let _ = stop.send(());
            }
            drop(sender.send(outcome));
        })?;
        Ok(Running { ended })
    }

    async fn run(&mut self) -> Result<(), StoreError> {
        loop {
            if self.commands.is_empty() && self.after_batch.is_empty() {
                self.wait().await;
            }
            self.take_messages();
            self.take_requests();
            self.collect();
            if let Some(stall) = self.stall.look() {
                tracing::warn!(
                    seconds = stall.as_secs_f64(),
                    "the process did not run; leases and timeouts go on from here"
                );
                self.shared.metrics.stalled(stall);
            }
            let now = self.shared.clock.now();
            let batch = self.driver.apply(now, &mut self.commands)?;
            let committed = self.driver.commit(batch)?;
            self.publish(now, committed);
            self.finish_batch(now);
            self.store_history();
            if self.stopping
                && self.commands.is_empty()
                && self.requests.is_empty()
                && self.messages.is_empty()
            {
                self.flush_history(now)?;
                self.driver.close();
                return Ok(());
            }
        }
    }

    /// Waits for something to do.
    async fn wait(&mut self) {
        if self.stopping {
            return;
        }
        let wakeup = self.driver.engine().next_wakeup();
        let messages_max = self.messages.max_capacity();
        tokio::select! {
            biased;
            count = self.messages.recv_many(&mut self.taken, messages_max) => match count {
                // Every handle and every executor is gone: no message can come any more.
                0 => self.stopping = true,
                _ => self.put_messages_first(),
            },
            request = self.requests.recv() => match request {
                Some(request) => self.take_request(request),
                // Every handle is gone: no request can come any more.
                None => self.stopping = true,
            },
            () = self.shared.clock.wait_for(wakeup) => {}
        }
    }

    /// Takes all waiting messages of runners. Not while older ones are left, whose order must stay; and not twice without a
    /// request in between: runners must not starve clients, either.
    fn take_messages(&mut self) {
        let requests_wait = !self.commands.is_empty() || !self.requests.is_empty();
        if self.messages_left > 0 || (requests_wait && !self.took_request) {
            return;
        }
        while self.taken.len() < self.messages.max_capacity() {
            let Ok(message) = self.messages.try_recv() else { break };
            self.taken.push(message);
        }
        self.put_messages_first();
    }

    fn put_messages_first(&mut self) {
        while let Some(message) = self.taken.pop() {
            self.put_message_first(message);
        }
    }

    fn put_message_first(&mut self, message: RunnerMessage) {
        self.commands.push_front(message.command);
        self.callers.push_front(message.reply.map_or(Caller::None, Caller::Waits));
        self.messages_left += 1;
    }

    fn take_requests(&mut self) {
        // Messages of runners do not count: however many there are, requests of clients wait behind them.
        while self.commands.len().saturating_sub(self.messages_left) < TAKEN_MAX
            && self.after_batch.len() < TAKEN_MAX
        {
            let Ok(request) = self.requests.try_recv() else { return };
            self.take_request(request);
        }
    }

    /// Callers that were answered together send their next requests one after the other. The first of them must not get a
    /// commit of its own while the others are about to send: yields the processor a few times. A single caller does not wait.
    fn collect(&mut self) {
        for _ in 0..COLLECT_MAX {
            if self.answered < COLLECT_FROM || self.commands.len() * 2 >= self.answered {
                return;
            }
            std::thread::yield_now();
            self.take_requests();
        }
    }

    fn take_command(&mut self, command: Command, caller: Caller) {
        self.commands.push_back(command);
        self.callers.push_back(caller);
    }

    fn take_request(&mut self, request: ClientRequest) {
        match request {
            ClientRequest::Command(command, reply) => self.take_command(command, Caller::Waits(reply)),
            ClientRequest::AddExecutor { offer, executor, reply } => {
                let caller = Caller::NewExecutor { name: offer.executor.clone(), executor, reply };
                self.take_command(Command::Admin(AdminCommand::Offer(offer)), caller);
            }
            ClientRequest::Query(query, reply) => self.after_batch.push(AfterBatch::Answer(query, reply)),
            ClientRequest::Progress(progress, reply) => {
                self.after_batch.push(AfterBatch::Publish(progress, reply))
            }
            ClientRequest::Stop(stop) => {
                self.stop = Some(stop);
                self.stopping = true;
                self.requests.close();
                self.messages.close();
            }
        }
    }

    /// Publishes a committed batch: attempts to executors, replies to callers, events to listeners.
    fn publish(&mut self, now: Now, mut committed: Committed) {
        self.shared.metrics.batch(&committed);
        self.count_batch(now, &committed);
        let taken = committed.replies.len();
        // A batch that only answered queries says nothing about callers that come back together.
        if taken > 0 {
            self.answered = taken;
        }
        self.took_request =
            taken > self.messages_left || (self.commands.is_empty() && self.requests.is_empty());
        self.messages_left = self.messages_left.saturating_sub(taken);
        // Taken out before executors are notified: an attempt that cannot run puts its message in front of the queue.
        let callers: Vec<_> = self.callers.drain(..taken).collect();
        let callers: Vec<_> = callers
            .into_iter()
            .zip(&committed.replies)
            .map(|(caller, reply)| self.add_executor(caller, reply))
            .collect();
        // Before the changes are taken apart: they hold the errors.
        self.lines.write(now, &committed);
        self.record_spans(&committed);
        let tokens_changed = self.keep_payloads(&mut committed.changes);
        self.notify_executors(now, &mut committed.notices);
        if tokens_changed {
            self.shared.tokens.send_replace(Arc::new(TokenTable::new(self.driver.engine().tokens())));
        }
        for event in &committed.events {
            match event.kind {
                EventKind::DrainBegan => self.shared.draining.cancel(),
                EventKind::ClockJumped => {
                    tracing::warn!("{}", event.detail.as_deref().unwrap_or("the wall clock jumped"));
                }
                _ => {}
            }
        }
        let ended = self.shared.waiters.ended_in(&committed.events);
        self.shared.events.publish(committed.events.drain(..));
        self.shared.waiters.wake(&ended);
        // Last, so that a caller who has its answer finds everything else as the answer says.
        let replies = callers.into_iter().zip(committed.replies.drain(..));
        self.answers.send(replies.filter_map(|(caller, reply)| Some((caller?, reply))));
        self.driver.take_back(committed);
    }

    /// Hands what becomes spans to the exporter, which never delays the loop.
    fn record_spans(&self, committed: &Committed) {
        if let Some(spans) = &self.shared.spans {
            let now = self.shared.clock.now().wall;
            spans.record(&committed.changes, &committed.events, now, &self.shared.metrics);
        }
    }

    /// Adds an executor whose offer was accepted; it gets attempts from this batch on. Returns the caller that waits for the
    /// reply.
    fn add_executor(&mut self, caller: Caller, reply: &Reply) -> Option<oneshot::Sender<Reply>> {
        match caller {
            Caller::None => None,
            Caller::Waits(caller) => Some(caller),
            Caller::NewExecutor { name, executor, reply: caller } => {
                if !matches!(reply, Reply::Rejected(_)) {
                    match self.executors.entry(name) {
                        Entry::Vacant(entry) => {
                            entry.insert(ExecutorEntry::new(executor));
                        }
                        Entry::Occupied(mut entry) => entry.get_mut().replace(executor),
                    }
                }
                Some(caller)
            }
        }
    }

    /// Caches the payloads of new jobs, and forgets those of ended ones. True when a token changed.
    fn keep_payloads(&mut self, changes: &mut Vec<Change>) -> bool {
        let mut tokens_changed = false;
        for change in changes.drain(..) {
            match change {
                Change::JobCreated { row, payload } => self.cache.put(row, payload),
                Change::JobEnded(end) => {
                    self.cache.forget(end.seq);
                    if let Some(into) = end.merged_into {
                        // From now on it runs for both; the store has all their payloads.
                        self.cache.forget(into.seq);
                    }
                }
                // The progress that a worker reported; local attempts forget theirs themselves.
                Change::AttemptClosed(closed) if closed.open.holder.is_some() => {
                    let fence = closed.open.fence;
                    self.shared.progress.remove(fence.job, fence.attempt);
                }
                Change::TokenPut(_) | Change::TokenForgotten(_) => tokens_changed = true,
                _ => {}
            }
        }
        tokens_changed
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
