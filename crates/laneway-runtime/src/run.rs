//! THE loop: one thread that takes commands, lets the engine decide, commits, and only then tells.
//!
//! Whatever arrives during a commit is the next batch, so commits group by themselves and a lone command waits for nobody.
//! What runners say has an inbox of its own and goes first: a flood of submits must not make running work look lost. A
//! commit that fails is the end of the loop: nothing of the batch is told, every caller hears [`Stopped`], and the process
//! is expected to exit and recover at its next start.
//!
//! [`Stopped`]: crate::Stopped

mod places;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use laneway_core::{
    AttemptEnd, Change, Command, Engine, EventKind, Fence, Name, NextAnswer, Now, PlaceOffer, Reply, Seed,
    Settings, Span,
};
use laneway_store::{Store, StoreError};
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::cache::PayloadCache;
use crate::clock::{Clock, StallWatch};
use crate::events::EventBus;
use crate::executors::Place;
use crate::job_log;
use crate::metrics::{Metrics, TimedStore};
use crate::news::NewsBox;
use crate::probes::ApiMeter;
use crate::scheduler::{Scheduler, Shared, TokenTable};
use crate::sessions::TokenEstimate;
use crate::turn::{Told, Turn, fresh_seed};

/// Most commands that wait beside the inbox: enough to fill any batch.
const TAKEN_MAX: usize = 1_024;

/// How many commands the last turn must have answered for the next one to wait for its callers.
const GATHER_FROM: usize = 8;
/// How often the next turn lets others run before it goes on with what it has.
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
    Store(#[from] StoreError),
    /// The engine found itself in a state that cannot be.
    #[error("the engine panicked: {0}")]
    Panicked(String),
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
    AddPlace {
        offer: PlaceOffer,
        place: Arc<dyn Place>,
        reply: oneshot::Sender<Reply>,
    },
    Read(Look),
    /// Take what is in the inboxes, then end. Told when the store is closed.
    Stop(oneshot::Sender<()>),
}

/// What runners hand to the loop.
pub(crate) struct Word {
    pub(crate) command: Command,
    pub(crate) reply: Option<oneshot::Sender<Reply>>,
}

/// Who waits for the answer to a command.
enum Caller {
    Nobody,
    Asks(oneshot::Sender<Reply>),
    /// Wants to be a place, if the engine takes its offer.
    Places {
        name: Name,
        place: Arc<dyn Place>,
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
    fn replace(&mut self, place: Arc<dyn Place>) {
        if Arc::ptr_eq(&self.now, &place) {
            return;
        }
        let before = std::mem::replace(&mut self.now, place);
        self.before.retain(|place| place.strong_count() > 0);
        self.before.push(Arc::downgrade(&before));
    }

    fn stop(&self, fences: &[Fence], grace: Span) {
        self.now.stop(fences, grace);
        self.before.iter().filter_map(Weak::upgrade).for_each(|place| place.stop(fences, grace));
    }

    /// Whoever has the attempt takes the answer; others do not know it.
    fn answer(&self, fence: Fence, request: &Name, answer: &NextAnswer) {
        let before = self.before.iter().filter_map(Weak::upgrade);
        for place in before.chain([Arc::clone(&self.now)]) {
            place.answer(fence, request.clone(), answer.clone());
        }
    }
}

/// A look at the engine between turns.
type Look = Box<dyn FnOnce(&Engine, Now) + Send>;

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
        } = options;
        let metrics = Metrics::new();
        let store = Box::new(TimedStore { store, metrics: metrics.clone() });
        let began = clock.now();
        let seed = seed.map_or_else(fresh_seed, Ok)?;
        let mut turn = Turn::recover(store, settings, seed, began)?;
        let recovered = turn.recovered();
        log_recovery(turn.engine(), &recovered, clock.now().mono.since(began.mono));
        metrics.turn(&recovered);
        let (asks, asks_in) = mpsc::channel(inbox_len_max);
        let reader = turn.reader();
        let readers = Arc::new(Semaphore::new(readers_max));
        let events =
            EventBus::new(Arc::clone(&reader), Arc::clone(&readers), turn.last_event(), events_len_max);
        let tokens = Arc::new(TokenTable::new(turn.engine().tokens()));
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
            draining: AtomicBool::new(false),
            running: AtomicBool::new(true),
            token_estimate,
            workers: Default::default(),
            asks: asks.downgrade(),
        });
        let (words, words_in) = mpsc::channel(words_len_max);
        let looper = Loop {
            turn,
            shared: Arc::clone(&shared),
            asks: asks_in,
            words: words_in,
            commands: VecDeque::new(),
            callers: VecDeque::new(),
            words_left: 0,
            taken: Vec::new(),
            looks: Vec::new(),
            places: BTreeMap::new(),
            cache: PayloadCache::new(payload_cache_bytes),
            stall: StallWatch::new(clock),
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
fn log_recovery(engine: &Engine, recovered: &Told, took: Span) {
    let is_lost =
        |change: &&Change| matches!(change, Change::AttemptClosed(closed) if closed.end == AttemptEnd::Lost);
    let attempts_lost = recovered.changes.iter().filter(is_lost).count();
    let stats = engine.stats(None);
    let jobs = stats.scheduled + stats.queued + stats.assigned + stats.running;
    tracing::info!(jobs, attempts_lost, took_ms = took.0, "recovered");
}

/// Everything the loop's thread owns.
struct Loop {
    turn: Turn,
    shared: Arc<Shared>,
    asks: mpsc::Receiver<Ask>,
    words: mpsc::Receiver<Word>,
    /// Taken from the inboxes and not yet applied: words first, then other commands.
    commands: VecDeque<Command>,
    /// Who waits for the answer to each of `commands`.
    callers: VecDeque<Caller>,
    /// How many of `commands` are runners' words.
    words_left: usize,
    /// Room for words on their way from the inbox; empty between uses.
    taken: Vec<Word>,
    looks: Vec<Look>,
    places: BTreeMap<Name, Placed>,
    cache: PayloadCache,
    stall: StallWatch,
    /// True when the last turn applied a command that is no runner's word, or none was left.
    took_ask: bool,
    /// How many commands the last turn answered.
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
                Ok(outcome) => outcome.map_err(Fatal::Store),
                Err(panic) => Err(Fatal::Panicked(panic_text(panic.as_ref()).to_owned())),
            };
            shared.running.store(false, Ordering::SeqCst);
            if let Err(fatal) = &outcome {
                tracing::error!(%fatal, "the loop ends now; nothing of the last batch was told; the next start recovers");
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
            if self.commands.is_empty() && self.looks.is_empty() {
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
            let told = self.turn.turn(now, &mut self.commands)?;
            self.tell(now, told);
            for look in self.looks.drain(..) {
                look(self.turn.engine(), now);
            }
            if self.stopping && self.commands.is_empty() && self.asks.is_empty() && self.words.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits for something to do.
    async fn wait(&mut self) {
        if self.stopping {
            return;
        }
        let wakeup = self.turn.engine().next_wakeup();
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

    fn put_word_first(&mut self, word: Word) {
        self.commands.push_front(word.command);
        self.callers.push_front(word.reply.map_or(Caller::Nobody, Caller::Asks));
        self.words_left += 1;
    }

    fn take_asks(&mut self) {
        // Words do not count: however many there are, the next turns have callers behind them.
        while self.commands.len().saturating_sub(self.words_left) < TAKEN_MAX && self.looks.len() < TAKEN_MAX
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
            Ask::AddPlace { offer, place, reply } => {
                let caller = Caller::Places { name: offer.place.clone(), place, reply };
                self.take_command(Command::Offer(offer), caller);
            }
            Ask::Read(look) => self.looks.push(look),
            Ask::Stop(stop) => {
                self.stop = Some(stop);
                self.stopping = true;
                self.asks.close();
                self.words.close();
            }
        }
    }

    /// Lets out what is durable now: work to places, answers to callers, events to listeners.
    fn tell(&mut self, now: Now, mut told: Told) {
        self.shared.metrics.turn(&told);
        let taken = told.replies.len();
        self.answered = taken;
        self.took_ask = taken > self.words_left || (self.commands.is_empty() && self.asks.is_empty());
        self.words_left = self.words_left.saturating_sub(taken);
        // Taken out before the places are told: what cannot run says so in front of the queue.
        let callers: Vec<_> = self.callers.drain(..taken).collect();
        let callers: Vec<_> = callers
            .into_iter()
            .zip(&told.replies)
            .map(|(caller, reply)| self.place_first(caller, reply))
            .collect();
        let tokens_changed = self.keep_payloads(&mut told.changes);
        self.tell_places(now, &mut told.notices);
        if tokens_changed {
            self.shared.tokens.send_replace(Arc::new(TokenTable::new(self.turn.engine().tokens())));
        }
        if told.events.iter().any(|event| event.kind == EventKind::DrainBegan) {
            self.shared.draining.store(true, Ordering::SeqCst);
        }
        job_log::log_events(&told.events);
        let events = Arc::new(std::mem::take(&mut told.events));
        self.shared.events.publish(Arc::clone(&events));
        self.shared.waiters.wake(&events);
        // Last, so that a caller who has its answer finds everything else as the answer says.
        for (caller, reply) in callers.into_iter().zip(told.replies.drain(..)) {
            if let Some(caller) = caller {
                // The caller may have gone away; the change stands.
                drop(caller.send(reply));
            }
        }
        self.turn.take_back(told);
    }

    /// A place whose offer was taken gets its work from this turn on. Gives who waits for the answer.
    fn place_first(&mut self, caller: Caller, reply: &Reply) -> Option<oneshot::Sender<Reply>> {
        match caller {
            Caller::Nobody => None,
            Caller::Asks(caller) => Some(caller),
            Caller::Places { name, place, reply: caller } => {
                if !matches!(reply, Reply::Refused(_)) {
                    match self.places.entry(name) {
                        Entry::Vacant(entry) => drop(entry.insert(Placed { now: place, before: Vec::new() })),
                        Entry::Occupied(mut entry) => entry.get_mut().replace(place),
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
                Change::TokenPut(_) => tokens_changed = true,
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
