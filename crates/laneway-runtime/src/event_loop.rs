//! THE loop: one thread that takes commands, lets the engine decide, commits, and only then publishes.
//!
//! Whatever arrives during a commit is the next batch, so commits group by themselves and a lone command waits for nobody.
//! What runners say has an inbox of its own and goes first: a flood of submits must not make running work look lost. A
//! commit that fails is the end of the loop: nothing of the batch is published, every caller gets [`Stopped`], and the process
//! is expected to exit and recover at its next start.
//!
//! [`Stopped`]: crate::Stopped

mod after_batch;
mod publish;

use laneway_core::command::AdminCommand;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use laneway_core::{
    Answer, AttemptEnd, AttemptId, Change, Command, Engine, EventKind, ExecutorOffer, Fence, Name,
    NextAnswer, Now, Query, Reply, Seed, Settings, Span,
};
use laneway_store::{Store, StoreError};
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::batch::{Committed, Driver, fresh_seed};
use crate::cache::PayloadCache;
use crate::clock::{Clock, StallWatch};
use crate::events::EventBus;
use crate::executors::Place;
use crate::failure_log::FailureLog;
use crate::job_log::{self, DialectJobs};
use crate::metrics::{Metrics, TimedStore};
use crate::news::NewsBox;
use crate::probes::ApiMeter;
use crate::scheduler::{Scheduler, Shared, TokenTable};
use crate::sessions::TokenEstimate;

/// Most commands that wait beside the inbox: enough to fill any batch.
const TAKEN_MAX: usize = 1_024;

/// How many commands the last batch must have answered for the next one to wait for its callers.
const GATHER_FROM: usize = 8;
/// How often the next batch lets others run before it goes on with what it has.
const GATHER_MAX: u32 = 8;

/// How a loop is started.
pub struct Options {
    /// The engine's settings.
    pub settings: Settings,
    /// Where time comes from. Defaults to the system's clock.
    pub clock: Clock,
    /// What ids and jitter are drawn from: a secret, fresh at every boot. Defaults to one of the operating system.
    pub seed: Option<Seed>,
    /// Most commands that wait for the loop; callers beyond wait in line. Defaults to 1,024.
    pub inbox_len_max: usize,
    /// Most words of runners that wait for the loop. Defaults to 4,096.
    pub words_len_max: usize,
    /// How many recent events are kept in memory for listeners. Defaults to 16,384.
    pub events_len_max: usize,
    /// How many bytes of payloads of waiting jobs are kept in memory. Defaults to 64 MiB.
    pub payload_cache_bytes: usize,
    /// Most queries that read the store at once. Defaults to 8.
    pub readers_max: usize,
    /// How full the context of a session is. Asked before a job is submitted for the session and when one of it has run,
    /// on a thread where blocking hurts nobody. Defaults to nobody who knows.
    pub token_estimate: Option<TokenEstimate>,
    /// The jobs that belong to dialects, for the log. Defaults to none.
    pub dialect_jobs: DialectJobs,
}

impl Options {
    /// The defaults, with these settings.
    pub fn new(settings: Settings) -> Options {
        Options {
            settings,
            clock: Clock::system(),
            seed: None,
            inbox_len_max: 1_024,
            words_len_max: 4_096,
            events_len_max: 16_384,
            payload_cache_bytes: 64 << 20,
            readers_max: 8,
            token_estimate: None,
            dialect_jobs: DialectJobs::default(),
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
    /// The store failed; what it holds is known again after a restart.
    #[error("{0}")]
    Store(StoreError),
    /// Another server has taken the store over. Nothing of the last batch was written; this server must not start again
    /// beside the other one.
    #[error("{0}")]
    Fenced(StoreError),
    /// The engine found itself in a state that cannot be.
    #[error("the engine panicked: {0}")]
    Panicked(String),
}

impl Fatal {
    fn of(error: StoreError) -> Fatal {
        match error {
            fenced @ StoreError::Fenced { .. } => Fatal::Fenced(fenced),
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

/// What callers hand to the loop.
pub(crate) enum Ask {
    Command(Command, oneshot::Sender<Reply>),
    AddExecutor {
        offer: ExecutorOffer,
        executor: Arc<dyn Place>,
        reply: oneshot::Sender<Reply>,
    },
    Query(Query, oneshot::Sender<Answer>),
    Progress(LeaseProgress, oneshot::Sender<()>),
    /// Take what is in the inboxes, then end. Told when the store is closed.
    Stop(oneshot::Sender<()>),
}

/// How far the holder of a lease says it is.
pub(crate) struct LeaseProgress {
    pub(crate) lease: AttemptId,
    pub(crate) fraction: f64,
    pub(crate) message: Box<str>,
}

/// What the loop does after a batch is published and before the next one begins.
enum AfterBatch {
    Answer(Query, oneshot::Sender<Answer>),
    Publish(LeaseProgress, oneshot::Sender<()>),
}

/// What runners hand to the loop.
pub(crate) struct RunnerMessage {
    pub(crate) command: Command,
    pub(crate) reply: Option<oneshot::Sender<Reply>>,
}

/// Who waits for the answer to a command.
enum Caller {
    Nobody,
    Asks(oneshot::Sender<Reply>),
    /// Wants to be a place, if the engine takes its offer.
    Executors {
        name: Name,
        executor: Arc<dyn Place>,
        reply: oneshot::Sender<Reply>,
    },
}

/// Who runs the attempts of a place.
struct Placed {
    now: Arc<dyn Place>,
    /// Who ran them before and may still run some: a stop must find its run.
    before: Vec<Weak<dyn Place>>,
}

impl Placed {
    fn replace(&mut self, executor: Arc<dyn Place>) {
        if Arc::ptr_eq(&self.now, &executor) {
            return;
        }
        let before = std::mem::replace(&mut self.now, executor);
        self.before.retain(|executor| executor.strong_count() > 0);
        self.before.push(Arc::downgrade(&before));
    }

    fn stop(&self, fences: &[Fence], grace: Span) {
        self.now.stop(fences, grace);
        self.before.iter().filter_map(Weak::upgrade).for_each(|executor| executor.stop(fences, grace));
    }

    /// Whoever has the attempt takes the answer; others do not know it.
    fn answer(&self, fence: Fence, request: &Name, answer: &NextAnswer) {
        let before = self.before.iter().filter_map(Weak::upgrade);
        for executor in before.chain([Arc::clone(&self.now)]) {
            executor.answer(fence, request.clone(), answer.clone());
        }
    }
}

impl Scheduler {
    /// Recovers from the store and starts the loop on a thread of its own.
    pub fn start(store: Box<dyn Store>, options: Options) -> Result<(Scheduler, Running), StartError> {
        let Options {
            settings,
            clock,
            seed,
            inbox_len_max,
            words_len_max,
            events_len_max,
            payload_cache_bytes,
            readers_max,
            token_estimate,
            dialect_jobs,
        } = options;
        let metrics = Metrics::new();
        let store = Box::new(TimedStore { store, metrics: metrics.clone() });
        let began = clock.now();
        let seed = seed.map_or_else(fresh_seed, Ok)?;
        let mut driver = Driver::recover(store, settings, seed, began)?;
        let recovered = driver.recovered();
        log_recovery(driver.engine(), &recovered, clock.now().mono.since(began.mono));
        metrics.batch(&recovered);
        let (asks, asks_in) = mpsc::channel(inbox_len_max);
        let reader = driver.reader();
        let readers = Arc::new(Semaphore::new(readers_max));
        let events =
            EventBus::new(Arc::clone(&reader), Arc::clone(&readers), driver.last_event(), events_len_max);
        let tokens = Arc::new(TokenTable::new(driver.engine().tokens()));
        let shared = Arc::new(Shared {
            events,
            metrics,
            tokens: watch::Sender::new(tokens),
            waiters: Default::default(),
            progress: Default::default(),
            reader,
            readers,
            api_meter: ApiMeter::new(clock.clone()),
            load_board: Default::default(),
            clock: clock.clone(),
            news: NewsBox::new(),
            draining: CancellationToken::new(),
            running: AtomicBool::new(true),
            token_estimate,
            workers: Default::default(),
            asks: asks.downgrade(),
        });
        let (words, words_in) = mpsc::channel(words_len_max);
        let looper = Loop {
            driver,
            shared: Arc::clone(&shared),
            asks: asks_in,
            words: words_in,
            commands: VecDeque::new(),
            callers: VecDeque::new(),
            words_left: 0,
            taken: Vec::new(),
            after_batch: Vec::new(),
            executors: BTreeMap::new(),
            cache: PayloadCache::new(payload_cache_bytes),
            stall: StallWatch::new(clock),
            failures: FailureLog::default(),
            dialect_jobs,
            took_ask: true,
            answered: 0,
            stop: None,
            stopping: false,
        };
        let running = looper.spawn()?;
        Ok((Scheduler { asks, words, shared, runners: Arc::default() }, running))
    }
}

/// One line about what the start found.
fn log_recovery(engine: &Engine, recovered: &Committed, took: Span) {
    let is_lost =
        |change: &&Change| matches!(change, Change::AttemptClosed(closed) if closed.end == AttemptEnd::Lost);
    let attempts_lost = recovered.changes.iter().filter(is_lost).count();
    let stats = engine.stats(None);
    let jobs = stats.scheduled + stats.queued + stats.assigned + stats.running;
    tracing::info!(jobs, attempts_lost, took_ms = took.0, "recovered");
}

/// Everything the loop's thread owns.
struct Loop {
    driver: Driver,
    shared: Arc<Shared>,
    asks: mpsc::Receiver<Ask>,
    words: mpsc::Receiver<RunnerMessage>,
    /// Taken from the inboxes and not yet applied: words first, then other commands.
    commands: VecDeque<Command>,
    /// Who waits for the answer to each of `commands`.
    callers: VecDeque<Caller>,
    /// How many of `commands` are runners' words.
    words_left: usize,
    /// Room for words on their way from the inbox; empty between uses.
    taken: Vec<RunnerMessage>,
    after_batch: Vec<AfterBatch>,
    executors: BTreeMap<Name, Placed>,
    cache: PayloadCache,
    stall: StallWatch,
    failures: FailureLog,
    dialect_jobs: DialectJobs,
    /// True when the last batch applied a command that is no message of a runner, or none was left.
    took_ask: bool,
    /// How many commands the last batch answered.
    answered: usize,
    stop: Option<oneshot::Sender<()>>,
    stopping: bool,
}

impl Loop {
    fn spawn(self) -> Result<Running, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (tell, ended) = oneshot::channel();
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
                    tracing::error!(%fenced, "the loop ends now; nothing of the last batch was written or published");
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
            drop(tell.send(outcome));
        })?;
        Ok(Running { ended })
    }

    async fn run(&mut self) -> Result<(), StoreError> {
        loop {
            if self.commands.is_empty() && self.after_batch.is_empty() {
                self.wait().await;
            }
            self.take_words();
            self.take_asks();
            self.gather();
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
            if self.stopping && self.commands.is_empty() && self.asks.is_empty() && self.words.is_empty() {
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
        let words_max = self.words.max_capacity();
        tokio::select! {
            biased;
            count = self.words.recv_many(&mut self.taken, words_max) => match count {
                // Every handle and every place is gone: nobody can say anything any more.
                0 => self.stopping = true,
                _ => self.put_words_first(),
            },
            ask = self.asks.recv() => match ask {
                Some(ask) => self.take_ask(ask),
                // Every handle is gone: nobody can ask any more.
                None => self.stopping = true,
            },
            () = self.shared.clock.wait_for(wakeup) => {}
        }
    }

    /// Takes all words that wait. Not while older words are left, whose order must stay; and not twice without room for
    /// another command between: runners must not starve callers, either.
    fn take_words(&mut self) {
        let asks_wait = !self.commands.is_empty() || !self.asks.is_empty();
        if self.words_left > 0 || (asks_wait && !self.took_ask) {
            return;
        }
        while self.taken.len() < self.words.max_capacity() {
            let Ok(word) = self.words.try_recv() else { break };
            self.taken.push(word);
        }
        self.put_words_first();
    }

    fn put_words_first(&mut self) {
        while let Some(word) = self.taken.pop() {
            self.put_word_first(word);
        }
    }

    fn put_word_first(&mut self, word: RunnerMessage) {
        self.commands.push_front(word.command);
        self.callers.push_front(word.reply.map_or(Caller::Nobody, Caller::Asks));
        self.words_left += 1;
    }

    fn take_asks(&mut self) {
        // Words do not count: however many there are, the next turns have callers behind them.
        while self.commands.len().saturating_sub(self.words_left) < TAKEN_MAX
            && self.after_batch.len() < TAKEN_MAX
        {
            let Ok(ask) = self.asks.try_recv() else { return };
            self.take_ask(ask);
        }
    }

    /// Callers that were answered together come back one after the other. The first of them must not get a commit of its
    /// own while the others are on their way: gives them the processor a few times. A lone caller is not kept waiting.
    fn gather(&mut self) {
        for _ in 0..GATHER_MAX {
            if self.answered < GATHER_FROM || self.commands.len() * 2 >= self.answered {
                return;
            }
            std::thread::yield_now();
            self.take_asks();
        }
    }

    fn take_command(&mut self, command: Command, caller: Caller) {
        self.commands.push_back(command);
        self.callers.push_back(caller);
    }

    fn take_ask(&mut self, ask: Ask) {
        match ask {
            Ask::Command(command, reply) => self.take_command(command, Caller::Asks(reply)),
            Ask::AddExecutor { offer, executor, reply } => {
                let caller = Caller::Executors { name: offer.executor.clone(), executor, reply };
                self.take_command(Command::Admin(AdminCommand::Offer(offer)), caller);
            }
            Ask::Query(query, reply) => self.after_batch.push(AfterBatch::Answer(query, reply)),
            Ask::Progress(progress, reply) => self.after_batch.push(AfterBatch::Publish(progress, reply)),
            Ask::Stop(stop) => {
                self.stop = Some(stop);
                self.stopping = true;
                self.asks.close();
                self.words.close();
            }
        }
    }

    /// Publishes what is durable now: work to executors, answers to callers, events to listeners.
    fn publish(&mut self, now: Now, mut committed: Committed) {
        self.shared.metrics.batch(&committed);
        let taken = committed.replies.len();
        self.answered = taken;
        self.took_ask = taken > self.words_left || (self.commands.is_empty() && self.asks.is_empty());
        self.words_left = self.words_left.saturating_sub(taken);
        // Taken out before executors are notified: what cannot run puts its message in front of the queue.
        let callers: Vec<_> = self.callers.drain(..taken).collect();
        let callers: Vec<_> = callers
            .into_iter()
            .zip(&committed.replies)
            .map(|(caller, reply)| self.place_first(caller, reply))
            .collect();
        // Before the changes are taken apart: they hold the errors.
        self.failures.log(now, &committed.changes, &committed.events);
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
        job_log::log_events(&committed.events, &self.dialect_jobs);
        let ended = self.shared.waiters.ended_in(&committed.events);
        self.shared.events.publish(committed.events.drain(..));
        self.shared.waiters.wake(&ended);
        // Last, so that a caller who has its answer finds everything else as the answer says.
        for (caller, reply) in callers.into_iter().zip(committed.replies.drain(..)) {
            if let Some(caller) = caller {
                // The caller may have gone away; the change stands.
                drop(caller.send(reply));
            }
        }
        self.driver.take_back(committed);
    }

    /// An executor whose offer was taken gets its work from this batch on. Gives the caller that waits for the answer.
    fn place_first(&mut self, caller: Caller, reply: &Reply) -> Option<oneshot::Sender<Reply>> {
        match caller {
            Caller::Nobody => None,
            Caller::Asks(caller) => Some(caller),
            Caller::Executors { name, executor, reply: caller } => {
                if !matches!(reply, Reply::Rejected(_)) {
                    match self.executors.entry(name) {
                        Entry::Vacant(entry) => {
                            entry.insert(Placed { now: executor, before: Vec::new() });
                        }
                        Entry::Occupied(mut entry) => entry.get_mut().replace(executor),
                    }
                }
                Some(caller)
            }
        }
    }

    /// Keeps what jobs that were just created need to run, forgets what ended. True when a token changed.
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
                // What a worker that asked said of its attempt; local runs forget by themselves.
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
