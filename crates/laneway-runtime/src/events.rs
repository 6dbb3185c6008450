//! The event bus: numbered events for listeners, live and from any number on.
//!
//! The loop publishes once for each commit. An event goes to the topics that ask for it (`events/topics.rs`): listeners of
//! equal interest share a topic, its recent events and the frames that are made of them, and listeners of other topics
//! sleep on. A listener reads at its own pace from its topic; what the topic no longer has it reads from the ring of recent
//! events, then from the store. Events that the store no longer has are reported as one gap. A slow listener delays no other.

mod topics;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use laneway_core::{Event, JobId, Name, Wall};
use laneway_store::{EventFilter, Reader};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::feedback::Feedback;
use crate::scheduler::{ReadError, Stopped, read_store};
use crate::tenant_permits::TenantPermits;

use topics::{Board, Read, Tip, Topic};
pub use topics::{Interest, Jobs};

/// How many events a listener reads from the store at once.
const REPLAY_PAGE: usize = 512;
/// How many events of the ring a listener looks at before others have their turn.
const RING_PAGE: usize = 512;
/// How many listeners read from the store at once; calls of the API need readers, too.
const REPLAYS_MAX: usize = 2;
/// A listener that shares its topic with others waits this long for each of them between two reads, so that a topic with
/// many listeners is read at most 2,000 times a second. At 5,000 reads a second the listeners took a whole core from the
/// jobs that they listen to. A listener for which that is too slow falls behind.
const PAUSE_PER_LISTENER: Duration = Duration::from_micros(500);
/// The longest such wait.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How many jobs' progress is remembered: more than can run at once with any sane setting.
const PROGRESS_JOBS_MAX: usize = 65_536;

/// The bus. Clones are the same bus.
#[derive(Clone)]
pub struct EventBus {
    shared: Arc<Shared>,
}

struct Shared {
    board: Mutex<Board>,
    counts: Arc<Counts>,
    reader: Arc<dyn Reader>,
    permits: Arc<Semaphore>,
    /// Permits of listeners to read from the store.
    replays: TenantPermits,
}

/// How often events were encoded and handed out, all listeners together.
#[derive(Debug, Default)]
struct Counts {
    encoded: AtomicU64,
    delivered: AtomicU64,
    woken: AtomicU64,
}

/// The cost of listeners so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// How many frames were made of events.
    pub encoded: u64,
    /// How many events were handed to listeners.
    pub delivered: u64,
    /// How often a listener woke up.
    pub woken: u64,
}

/// A published event. Clones are the same event, and share the frames that were made of it.
#[derive(Clone, Debug)]
pub struct EventRef(Arc<Cell>);

#[derive(Debug)]
struct Cell {
    event: Event,
    native: OnceLock<Bytes>,
    /// The frames that dialects made, by their names.
    dialects: Mutex<Vec<(&'static str, Bytes)>>,
    counts: Arc<Counts>,
}

/// How an event is encoded for clients. An event is encoded once in each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// A frame of the native stream.
    Native,
    /// A frame of the dialect of this name.
    Dialect(&'static str),
}

impl Deref for EventRef {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.0.event
    }
}

impl EventRef {
    fn new(event: Event, counts: &Arc<Counts>) -> EventRef {
        EventRef(Arc::new(Cell {
            event,
            native: OnceLock::new(),
            dialects: Mutex::default(),
            counts: Arc::clone(counts),
        }))
    }

    /// The event as a frame. Only the first call encodes; the others share what it made.
    pub fn encoded(&self, how: Representation, encode: impl FnOnce(&Event) -> Bytes) -> Bytes {
        let make = || {
            self.0.counts.encoded.fetch_add(1, Ordering::Relaxed);
            encode(&self.0.event)
        };
        match how {
            Representation::Native => self.0.native.get_or_init(make).clone(),
            Representation::Dialect(name) => {
                let mut frames = self.0.dialects.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((_, frame)) = frames.iter().find(|(of, _)| *of == name) {
                    return frame.clone();
                }
                let frame = make();
                frames.push((name, frame.clone()));
                frame
            }
        }
    }
}

/// An item for a listener.
#[derive(Clone, Debug)]
pub enum Item {
    /// Something happened.
    Event(EventRef),
    /// A running job says how far it is. Not numbered, not kept.
    Progress(Arc<Progress>),
    /// A running job says what it writes, or what it has so far. Not numbered, not kept.
    Feedback(Arc<Feedback>),
    /// These numbers are gone: they are older than what is kept.
    Gap {
        /// The first one.
        from: u64,
        /// The last one.
        to: u64,
    },
}

/// The items for a listener that takes many at once.
#[derive(Clone, Debug)]
pub enum Frames {
    /// Frames, one after the other.
    Some(Bytes),
    /// The listener was live and fell so far behind that only the store has what comes next. Everything after this
    /// number follows if it listens again from there.
    Behind {
        /// The last event that it was given.
        after: u64,
    },
}

/// The progress of a running job, as its attempt reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The job.
    pub job: JobId,
    /// The tenant of the job.
    pub tenant: Name,
    /// The attempt that says so.
    pub attempt: u32,
    /// The stage, bounded.
    pub stage: Option<Box<str>>,
    /// From 0 to 1.
    pub fraction: f64,
    /// The message, bounded.
    pub message: Box<str>,
    /// Metrics of its own, by name: the latest value of each, bounded.
    pub metrics: BTreeMap<Box<str>, f64>,
    /// The time of the report.
    pub at: Wall,
}

impl EventBus {
    /// `last_event` is the number of the latest event that the store has.
    pub(crate) fn new(
        reader: Arc<dyn Reader>,
        permits: Arc<Semaphore>,
        last_event: u64,
        len_max: usize,
    ) -> EventBus {
        let shared = Shared {
            board: Mutex::new(Board::new(last_event, len_max)),
            counts: Arc::default(),
            reader,
            permits,
            replays: TenantPermits::new(REPLAYS_MAX),
        };
        EventBus { shared: Arc::new(shared) }
    }

    /// Listens to everything that comes after event number `after`; `None`: after the latest. A number that was never
    /// given counts as the latest.
    pub fn subscribe(&self, after: Option<u64>) -> Subscription {
        self.listen(Interest::everything(), after)
    }

    /// Listens to what is of `interest`, in the same way.
    pub fn listen(&self, interest: Interest, after: Option<u64>) -> Subscription {
        let mut board = self.shared.board();
        let latest = board.latest();
        let topic = board.enter(interest);
        let after = after.map_or(latest, |after| after.min(latest));
        // A listener that misses nothing is live at once: it also hears what is not numbered.
        let at = (after == latest).then(|| topic.end());
        drop(board);
        Subscription {
            after,
            scanned: after,
            at,
            was_live: at.is_some(),
            served_at: None,
            tip: topic.follow(),
            topic,
            ready: VecDeque::new(),
            bus: self.clone(),
        }
    }

    /// The number of the latest event.
    pub fn latest(&self) -> u64 {
        self.shared.board().latest()
    }

    /// How many listen.
    pub fn listeners(&self) -> usize {
        self.shared.board().listeners()
    }

    /// The cost of listeners so far.
    pub fn listener_counts(&self) -> ListenerCounts {
        let Counts { encoded, delivered, woken } = &*self.shared.counts;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ListenerCounts { encoded: load(encoded), delivered: load(delivered), woken: load(woken) }
    }

    /// Everything in `events` is committed.
    pub(crate) fn publish(&self, events: impl Iterator<Item = Event>) {
        let events = events.map(|event| EventRef::new(event, &self.shared.counts));
        self.shared.board().publish(events);
    }

    pub(crate) fn publish_progress(&self, progress: Progress) {
        self.shared.board().publish_progress(&Arc::new(progress));
    }

    pub(crate) fn publish_feedback(&self, feedback: Feedback) {
        self.shared.board().publish_feedback(&Arc::new(feedback));
    }

    /// The loop has ended: listeners hear what is left, and then that it is over.
    pub(crate) fn close(&self) {
        self.shared.board().close();
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One listener.
pub struct Subscription {
    /// The number of the last event that was given or found gone.
    after: u64,
    /// Nothing of interest is between `after` and this number that is not ready.
    scanned: u64,
    /// Where it reads its topic. `None`: it reads what is older than the topic.
    at: Option<u64>,
    /// True once it has read its topic.
    was_live: bool,
    /// When it was given something of its topic last.
    served_at: Option<Instant>,
    topic: Arc<Topic>,
    tip: watch::Receiver<Tip>,
    ready: VecDeque<Item>,
    bus: EventBus,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.bus.shared.board().leave(&self.topic);
    }
}

impl Subscription {
    /// Waits for what comes next. [`ReadError::Stopped`] when the loop has ended and everything was delivered. Safe to drop
    /// while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Item, ReadError> {
        loop {
            if let Some(item) = self.read_next(false).await? {
                return Ok(item);
            }
        }
    }

    /// The same for a listener that is cut off when it falls behind. `None`: it was live, and only the store has what comes
    /// next. Everything after [`Subscription::position`] follows if it listens again from there.
    pub async fn next_unless_behind(&mut self) -> Result<Option<Item>, ReadError> {
        self.read_next(true).await
    }

    async fn read_next(&mut self, cuts: bool) -> Result<Option<Item>, ReadError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.passed(&item);
                return Ok(Some(item));
            }
            let Some(at) = self.at else {
                if cuts && self.is_behind() {
                    return Ok(None);
                }
                self.catch_up().await?;
                continue;
            };
            match self.topic.read(at) {
                Read::Item(item) => {
                    self.at = Some(at + 1);
                    if !self.is_known(&item) {
                        self.served_at = Some(Instant::now());
                        self.passed(&item);
                        return Ok(Some(item));
                    }
                }
                Read::Gone => self.at = None,
                Read::End => self.wait().await?,
            }
        }
    }

    /// Waits for what comes next, as frames in one piece. Listeners of one topic that read in step share the piece.
    /// `encode` gives the frame of an item; an empty one is left out. Safe to drop while it waits.
    pub async fn next_frames(&mut self, encode: fn(&Item) -> Bytes) -> Result<Frames, ReadError> {
        loop {
            if !self.ready.is_empty() {
                let mut joined = Vec::new();
                while joined.len() < topics::PIECE_BYTES
                    && let Some(item) = self.ready.pop_front()
                {
                    self.passed(&item);
                    joined.extend_from_slice(&encode(&item));
                }
                if !joined.is_empty() {
                    return Ok(Frames::Some(joined.into()));
                }
                continue;
            }
            let Some(at) = self.at else {
                if self.is_behind() {
                    return Ok(Frames::Behind { after: self.after });
                }
                self.catch_up().await?;
                continue;
            };
            self.pause().await;
            match self.topic.piece(at, encode) {
                Ok(Some(piece)) => {
                    self.served_at = Some(Instant::now());
                    self.at = Some(piece.to);
                    self.after = self.after.max(piece.last);
                    self.bus.shared.counts.delivered.fetch_add(piece.events, Ordering::Relaxed);
                    if !piece.bytes.is_empty() {
                        return Ok(Frames::Some(piece.bytes));
                    }
                }
                Ok(None) => self.wait().await?,
                Err(topics::Gone) => self.at = None,
            }
        }
    }

    /// The number to go on after, should this listener come back.
    pub fn position(&self) -> u64 {
        self.after
    }

    /// True when the listener was live and the next events are only in the store.
    fn is_behind(&self) -> bool {
        self.was_live && !self.bus.shared.board().reaches(self.after)
    }

    /// Waits until the topic has something new.
    async fn wait(&mut self) -> Result<(), ReadError> {
        if self.tip.borrow_and_update().is_past(self.at) {
            return Ok(());
        }
        if self.tip.borrow().closed {
            return Err(Stopped.into());
        }
        self.pause().await;
        self.tip.changed().await.map_err(|_| Stopped)?;
        self.bus.shared.counts.woken.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Waits, if it was served a moment ago and others listen, too.
    async fn pause(&self) {
        let Some(served_at) = self.served_at else { return };
        let others = u32::try_from(self.topic.listeners().saturating_sub(1)).unwrap_or(u32::MAX);
        let until = served_at + PAUSE_PER_LISTENER.saturating_mul(others).min(PAUSE_MAX);
        if until > Instant::now() {
            tokio::time::sleep_until(until).await;
        }
    }

    /// True when the item was delivered already, with the events that are older than the topic.
    fn is_known(&self, item: &Item) -> bool {
        matches!(item, Item::Event(event) if event.number <= self.after)
    }

    fn passed(&mut self, item: &Item) {
        match item {
            Item::Event(event) => {
                self.after = event.number;
                self.bus.shared.counts.delivered.fetch_add(1, Ordering::Relaxed);
            }
            Item::Gap { to, .. } => self.after = *to,
            Item::Progress(_) | Item::Feedback(_) => {}
        }
    }

    /// Makes the next items ready, from the ring or from the store, or goes over to the topic.
    async fn catch_up(&mut self) -> Result<(), ReadError> {
        self.after = self.after.max(self.scanned);
        if self.catch_up_by_memory() { Ok(()) } else { self.replay().await }
    }

    /// Makes the next items ready from the ring, or goes over to the topic. False: both begin later.
    fn catch_up_by_memory(&mut self) -> bool {
        let board = self.bus.shared.board();
        if let Some(at) = self.topic.place_after(self.after) {
            (self.at, self.was_live) = (Some(at), true);
            return true;
        }
        if !board.reaches(self.after) {
            return false;
        }
        let events = board.ring_after(self.after, RING_PAGE);
        drop(board);
        self.scanned = events.last().map_or(self.after, |event| event.number);
        let interest = self.topic.interest();
        self.ready.extend(events.into_iter().filter(|event| interest.matches(event)).map(Item::Event));
        true
    }

    /// Makes the next items ready from the store.
    async fn replay(&mut self) -> Result<(), ReadError> {
        let (after, shared) = (self.after, &self.bus.shared);
        // Everything up to here is in the store.
        let latest = shared.board().latest();
        // A tenant's listeners take turns, so that others need not wait for all of them.
        let _turn = shared.replays.take(self.topic.interest().tenant.as_ref()).await;
        let filter = EventFilter { tenant: self.topic.interest().store_tenant(), ..EventFilter::default() };
        let (page, first) = read_store(&shared.permits, &shared.reader, move |reader| {
            // In this order: events that are purged between the two are reported as gone, never left out.
            let page = reader.events_after(&filter, after, REPLAY_PAGE)?;
            Ok((page, reader.first_event()?))
        })
        .await?;
        self.scanned = page.next.unwrap_or(latest).max(after);
        // An empty store: the ring may still have something.
        let recent = || shared.board().first().filter(|first| *first > after);
        let kept_from = if first > 0 { first } else { recent().unwrap_or(latest.saturating_add(1)) };
        let kept_from = page.items.first().map_or(kept_from, |event| kept_from.min(event.number));
        if kept_from > after + 1 {
            self.ready.push_back(Item::Gap { from: after + 1, to: kept_from - 1 });
            self.scanned = self.scanned.max(kept_from - 1);
        }
        for event in page.items {
            self.scanned = self.scanned.max(event.number);
            if self.topic.interest().matches(&event) {
                self.ready.push_back(Item::Event(EventRef::new(event, &shared.counts)));
            }
        }
        Ok(())
    }
}
/// The latest progress of every running job.
#[derive(Default)]
pub(crate) struct ProgressTable {
    by_job: Mutex<HashMap<JobId, Progress>>,
    /// How much feedback each running job has given, with the attempt that gave it.
    given: Mutex<HashMap<JobId, (u32, u64)>>,
}

impl ProgressTable {
    pub(crate) fn get(&self, job: JobId) -> Option<Progress> {
        self.by_job().get(&job).cloned()
    }

    pub(crate) fn put(&self, progress: Progress) {
        let mut by_job = self.by_job();
        if by_job.len() < PROGRESS_JOBS_MAX || by_job.contains_key(&progress.job) {
            by_job.insert(progress.job, progress);
        }
    }

    /// Counts `count` more pieces of feedback of an attempt, and gives the number of the first.
    pub(crate) fn count(&self, job: JobId, attempt: u32, count: usize) -> u64 {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if given.len() >= PROGRESS_JOBS_MAX && !given.contains_key(&job) {
            return 1;
        }
        let (counted, so_far) = given.entry(job).or_default();
        if *counted != attempt {
            (*counted, *so_far) = (attempt, 0);
        }
        *so_far += count as u64;
        *so_far - count as u64 + 1
    }

    /// Forgets the progress of this attempt; that of a later one stays.
    pub(crate) fn remove(&self, job: JobId, attempt: u32) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if given.get(&job).is_some_and(|(counted, _)| *counted <= attempt) {
            given.remove(&job);
        }
        drop(given);
        let mut by_job = self.by_job();
        if by_job.get(&job).is_some_and(|progress| progress.attempt <= attempt) {
            by_job.remove(&job);
        }
    }

    fn by_job(&self) -> MutexGuard<'_, HashMap<JobId, Progress>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
