//! What happens, numbered, for everybody who listens: live, and from any number on.
//!
//! The loop publishes once for each commit: one lock, one wake-up, whatever the number of events or listeners. A listener
//! reads at its own pace from the ring of recent events, and from the store what the ring no longer has; what the store no
//! longer has is told as one explicit gap. A slow listener slows nobody.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::{Event, JobId, Name, Wall};
use laneway_store::{EventFilter, Reader};
use tokio::sync::{Semaphore, broadcast, watch};

use crate::feedback::Feedback;
use crate::scheduler::{QueryError, Stopped, query};

/// How many events a listener reads from the store at once.
const REPLAY_PAGE: usize = 512;
/// How many progress reports wait for a slow listener before it loses the oldest.
const PROGRESS_WAITING_MAX: usize = 1_024;
/// How many reports of runs wait for a slow listener before it loses the oldest. Each has a bound in bytes.
const FEEDBACK_WAITING_MAX: usize = 256;
/// How many jobs' progress is remembered: more than can run at once with any sane setting.
const PROGRESS_JOBS_MAX: usize = 65_536;

/// The bus. Clones are the same bus.
#[derive(Clone)]
pub struct EventBus {
    shared: Arc<Shared>,
}

struct Shared {
    ring: Mutex<Ring>,
    /// The number of the latest event; changes wake listeners. Dropped when the loop has ended.
    latest: Mutex<Option<watch::Sender<u64>>>,
    follow: watch::Receiver<u64>,
    progress: broadcast::Sender<Progress>,
    feedback: broadcast::Sender<Arc<Feedback>>,
    reader: Arc<dyn Reader>,
    permits: Arc<Semaphore>,
}

/// Recent events, in the batches in which they were committed.
struct Ring {
    batches: VecDeque<Arc<Vec<Event>>>,
    len: usize,
    len_max: usize,
}

/// What a listener hears.
#[derive(Clone, Debug)]
pub enum Item {
    /// Something happened.
    Event(Arc<Event>),
    /// A running job says how far it is. Not numbered, not kept.
    Progress(Progress),
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

/// How far a running job is, in its own words.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The job.
    pub job: JobId,
    /// Whose job it is.
    pub tenant: Name,
    /// The attempt that says so.
    pub attempt: u32,
    /// Where in its life it is, in its own words, bounded.
    pub stage: Option<Box<str>>,
    /// From 0 to 1.
    pub fraction: f64,
    /// What it says, bounded.
    pub message: Box<str>,
    /// When it said so.
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
        let (latest, follow) = watch::channel(last_event);
        let ring = Ring { batches: VecDeque::new(), len: 0, len_max };
        let shared = Shared {
            ring: Mutex::new(ring),
            latest: Mutex::new(Some(latest)),
            follow,
            progress: broadcast::Sender::new(PROGRESS_WAITING_MAX),
            feedback: broadcast::Sender::new(FEEDBACK_WAITING_MAX),
            reader,
            permits,
        };
        EventBus { shared: Arc::new(shared) }
    }

    /// Listens to what comes after event number `after`; `None`: after the latest. A number that was never given counts
    /// as the latest.
    pub fn subscribe(&self, after: Option<u64>) -> Subscription {
        let follow = self.shared.follow.clone();
        let latest = *follow.borrow();
        Subscription {
            after: after.map_or(latest, |after| after.min(latest)),
            follow,
            progress: self.shared.progress.subscribe(),
            feedback: self.shared.feedback.subscribe(),
            ready: VecDeque::new(),
            bus: self.clone(),
        }
    }

    /// The number of the latest event.
    pub fn latest(&self) -> u64 {
        *self.shared.follow.borrow()
    }

    /// Everything in `events` is committed.
    pub(crate) fn publish(&self, events: Arc<Vec<Event>>) {
        let Some(number) = events.last().map(|event| event.number) else { return };
        let mut ring = self.shared.ring();
        ring.len += events.len();
        ring.batches.push_back(events);
        while ring.len > ring.len_max && ring.batches.len() > 1 {
            let gone = ring.batches.pop_front().map_or(0, |batch| batch.len());
            ring.len -= gone;
        }
        drop(ring);
        if let Some(latest) = self.shared.latest().as_ref() {
            latest.send_replace(number);
        }
    }

    pub(crate) fn publish_progress(&self, progress: Progress) {
        // Fails when nobody listens.
        drop(self.shared.progress.send(progress));
    }

    pub(crate) fn publish_feedback(&self, feedback: Feedback) {
        // Fails when nobody listens.
        drop(self.shared.feedback.send(Arc::new(feedback)));
    }

    /// The loop has ended: listeners hear what is left, and then that it is over.
    pub(crate) fn close(&self) {
        self.shared.latest().take();
    }
}

impl Shared {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> MutexGuard<'_, Option<watch::Sender<u64>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// The batch that holds the event after number `after`. `None`: the ring no longer has it.
    fn batch_after(&self, after: u64) -> Option<Arc<Vec<Event>>> {
        let first = self.batches.front()?.first()?.number;
        if after + 1 < first {
            return None;
        }
        let at = self.batches.partition_point(|batch| batch.last().is_none_or(|event| event.number <= after));
        self.batches.get(at).cloned()
    }
}

/// One listener.
pub struct Subscription {
    /// The number of the last event that was given or found gone.
    after: u64,
    follow: watch::Receiver<u64>,
    progress: broadcast::Receiver<Progress>,
    feedback: broadcast::Receiver<Arc<Feedback>>,
    ready: VecDeque<Item>,
    bus: EventBus,
}

impl Subscription {
    /// Waits for what comes next. [`QueryError::Stopped`] when the loop has ended and everything was told. Safe to drop
    /// while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Item, QueryError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.passed(&item);
                return Ok(item);
            }
            if self.after < *self.follow.borrow_and_update() {
                self.fetch().await?;
                continue;
            }
            tokio::select! {
                biased;
                changed = self.follow.changed() => changed.map_err(|_| Stopped)?,
                progress = self.progress.recv() => match progress {
                    Ok(progress) => return Ok(Item::Progress(progress)),
                    // Old reports are worth nothing; the next ones come.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return Err(Stopped.into()),
                },
                feedback = self.feedback.recv() => match feedback {
                    Ok(feedback) => return Ok(Item::Feedback(feedback)),
                    // The numbers of the next ones tell that some are missing.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return Err(Stopped.into()),
                },
            }
        }
    }

    /// The number to go on after, should this listener come back.
    pub fn position(&self) -> u64 {
        self.after
    }

    fn passed(&mut self, item: &Item) {
        match item {
            Item::Event(event) => self.after = event.number,
            Item::Gap { to, .. } => self.after = *to,
            Item::Progress(_) | Item::Feedback(_) => {}
        }
    }

    /// Makes the next items ready, from the ring or from the store.
    async fn fetch(&mut self) -> Result<(), QueryError> {
        let batch = self.bus.shared.ring().batch_after(self.after);
        if let Some(batch) = batch {
            let from = batch.partition_point(|event| event.number <= self.after);
            self.make_ready(batch[from..].iter().cloned());
            return Ok(());
        }
        let after = self.after;
        let shared = &self.bus.shared;
        let (events, first) = query(&shared.permits, &shared.reader, move |reader| {
            let page = reader.events_after(&EventFilter::default(), after, REPLAY_PAGE)?;
            let first = if page.items.is_empty() { reader.first_event()? } else { 0 };
            Ok((page.items, first))
        })
        .await?;
        if events.is_empty() {
            // Nothing is kept between here and the ring, or nothing at all.
            let ring_first =
                self.bus.shared.ring().batches.front().and_then(|batch| batch.first().map(|e| e.number));
            let latest = *self.follow.borrow();
            let next = [Some(first), ring_first].into_iter().flatten().filter(|number| *number > after).min();
            let to = next.map_or(latest, |next| next - 1);
            if to > after {
                self.ready.push_back(Item::Gap { from: after + 1, to });
            }
            return Ok(());
        }
        self.make_ready(events.into_iter());
        Ok(())
    }

    /// Queues events, with a gap in front of each jump of the numbers.
    fn make_ready(&mut self, events: impl Iterator<Item = Event>) {
        let mut last = self.after;
        for event in events {
            if event.number > last + 1 {
                self.ready.push_back(Item::Gap { from: last + 1, to: event.number - 1 });
            }
            last = event.number;
            self.ready.push_back(Item::Event(Arc::new(event)));
        }
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

    /// Forgets what this attempt said; a later one's words stay.
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
