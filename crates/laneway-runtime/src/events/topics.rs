//! Topics of listeners with equal interest, the index that finds them, and the ring of recent events.
//!
//! Listeners of equal interest share a topic. The index finds the topics of an event by its tenant, job, lane and agent, so
//! that an event costs nothing without a listener, and wakes only listeners that want it. Everything here is short work under
//! a lock; the loop never waits for a listener.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use laneway_core::{Event, EventKind, JobId, Name};
use tokio::sync::watch;

use super::{EventRef, Item, Progress};
use crate::feedback::Feedback;

/// A topic keeps at least this many items for its listeners, if the ring keeps as many.
const LOG_LEN_MIN: usize = 64;
/// A piece of frames ends after this many bytes. A listener gets two a second where there are a thousand of them.
pub(super) const PIECE_BYTES: usize = 160 << 10;
/// How many pieces a topic keeps for listeners that read the same a little later.
const PIECES_MAX: usize = 4;

/// The events that a listener gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interest {
    /// Only this tenant's. `None`: every tenant's, and the server's own.
    pub tenant: Option<Name>,
    /// Which events about jobs.
    pub jobs: Jobs,
    /// Events that are about no job: runs, schedules, workers, messages, settings.
    pub others: bool,
    /// Also events that are there for the audit list.
    pub audit: bool,
    /// Also reports of running jobs on how far they are.
    pub progress: bool,
    /// Also what running jobs write.
    pub feedback: bool,
    /// Also, whatever else is asked for, that the server stops.
    pub stop: bool,
}

/// The events about jobs that a listener gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Jobs {
    /// None.
    None,
    /// Those of every job.
    All,
    /// Those of this job.
    One(JobId),
    /// Those of jobs of this lane.
    OfLane(Name),
    /// Those of jobs of this agent.
    OfAgent(Name),
}

impl Interest {
    /// Everything that happens on the server.
    pub fn everything() -> Interest {
        Interest {
            tenant: None,
            jobs: Jobs::All,
            others: true,
            audit: true,
            progress: true,
            feedback: true,
            stop: true,
        }
    }

    /// Events about jobs, of one tenant or of all, and the stop of the server.
    pub fn in_jobs(tenant: Option<Name>, jobs: Jobs) -> Interest {
        Interest { tenant, jobs, others: false, audit: false, progress: false, feedback: false, stop: true }
    }

    /// True when the event is of interest.
    pub fn matches(&self, event: &Event) -> bool {
        if self.stop && event.kind == EventKind::DrainBegan {
            return true;
        }
        let theirs = self.tenant.is_none() || self.tenant == event.tenant;
        theirs
            && (self.audit || !is_audit(event.kind))
            && match (&event.job, &self.jobs) {
                (None, _) => self.others,
                (Some(_), Jobs::None) => false,
                (Some(_), Jobs::All) => true,
                (Some(job), Jobs::One(id)) => job.id == *id,
                (Some(job), Jobs::OfLane(lane)) => job.lane == *lane,
                (Some(job), Jobs::OfAgent(agent)) => job.agent == *agent,
            }
    }

    /// The tenant whose events the store is asked for. `None`: all are needed.
    pub(super) fn store_tenant(&self) -> Option<Name> {
        // The server's own events have none: an old stop is not replayed.
        self.tenant.clone()
    }

    fn is_about(&self, tenant: &Name, job: JobId) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
            && match &self.jobs {
                Jobs::One(id) => *id == job,
                _ => true,
            }
    }
}

/// True for events that are there for the audit list: who did what to the server, and who was not let in.
fn is_audit(kind: EventKind) -> bool {
    use EventKind::{CallDenied, CallDone, CallRejected, ConfigChanged, TokenCreated, TokenRevoked};
    matches!(kind, ConfigChanged | TokenCreated | TokenRevoked | CallRejected | CallDenied | CallDone)
}

/// Every topic, and the ring of recent events.
pub(super) struct Board {
    ring: VecDeque<EventRef>,
    len_max: usize,
    latest: u64,
    closed: bool,
    topics: HashMap<Interest, Known>,
    /// Topics of every tenant.
    everything: Vec<Arc<Topic>>,
    tenants: HashMap<Name, TenantTopics>,
    jobs: HashMap<JobId, Vec<Arc<Topic>>>,
}

struct Known {
    topic: Arc<Topic>,
    listeners: usize,
}

/// The topics of one tenant.
#[derive(Default)]
struct TenantTopics {
    /// Those that ask for all jobs.
    all: Vec<Arc<Topic>>,
    /// Those that ask for what is about no job, and not for all jobs.
    others: Vec<Arc<Topic>>,
    lanes: HashMap<Name, Vec<Arc<Topic>>>,
    agents: HashMap<Name, Vec<Arc<Topic>>>,
    listeners: usize,
}

impl Board {
    pub(super) fn new(latest: u64, len_max: usize) -> Board {
        Board {
            ring: VecDeque::new(),
            len_max,
            latest,
            closed: false,
            topics: HashMap::new(),
            everything: Vec::new(),
            tenants: HashMap::new(),
            jobs: HashMap::new(),
        }
    }

    pub(super) fn latest(&self) -> u64 {
        self.latest
    }

    /// How many listen, to whatever topic.
    pub(super) fn listeners(&self) -> usize {
        self.topics.values().map(|known| known.listeners).sum()
    }

    /// True when every event after number `after` is in the ring.
    pub(super) fn reaches(&self, after: u64) -> bool {
        after >= self.latest || self.first().is_some_and(|first| first <= after + 1)
    }

    /// The oldest event of the ring.
    pub(super) fn first(&self) -> Option<u64> {
        self.ring.front().map(|event| event.number)
    }

    /// At most `count` events of the ring after number `after`.
    pub(super) fn ring_after(&self, after: u64, count: usize) -> Vec<EventRef> {
        let from = self.ring.partition_point(|event| event.number <= after);
        self.ring.range(from..).take(count).cloned().collect()
    }

    /// One more listener of `interest`; gives its topic.
    pub(super) fn enter(&mut self, interest: Interest) -> Arc<Topic> {
        if let Some(tenant) = &interest.tenant {
            self.tenants.entry(tenant.clone()).or_default().listeners += 1;
        }
        if let Some(known) = self.topics.get_mut(&interest) {
            known.listeners += 1;
            return Arc::clone(&known.topic);
        }
        let topic = Arc::new(Topic::new(interest.clone(), self.latest, self.closed));
        for list in self.lists_of(&interest) {
            list.push(Arc::clone(&topic));
        }
        self.topics.insert(interest, Known { topic: Arc::clone(&topic), listeners: 1 });
        topic
    }

    /// A listener of this topic has gone.
    pub(super) fn leave(&mut self, topic: &Arc<Topic>) {
        let interest = &topic.interest;
        let Some(known) = self.topics.get_mut(interest) else { return };
        known.listeners -= 1;
        if known.listeners == 0 {
            self.topics.remove(interest);
            for list in self.lists_of(interest) {
                list.retain(|other| !Arc::ptr_eq(other, topic));
            }
            if let Jobs::One(job) = &interest.jobs
                && self.jobs.get(job).is_some_and(Vec::is_empty)
            {
                self.jobs.remove(job);
            }
        }
        if let Some(tenant) = &interest.tenant
            && let Some(topics) = self.tenants.get_mut(tenant)
        {
            topics.listeners -= 1;
            match (&interest.jobs, topics.listeners) {
                (_, 0) => drop(self.tenants.remove(tenant)),
                (Jobs::OfLane(lane), _) if topics.lanes.get(lane).is_some_and(Vec::is_empty) => {
                    topics.lanes.remove(lane);
                }
                (Jobs::OfAgent(agent), _) if topics.agents.get(agent).is_some_and(Vec::is_empty) => {
                    topics.agents.remove(agent);
                }
                _ => {}
            }
        }
    }

    /// The lists of the index that a topic of `interest` stands in.
    fn lists_of(&mut self, interest: &Interest) -> Vec<&mut Vec<Arc<Topic>>> {
        if let Jobs::One(job) = &interest.jobs {
            return vec![self.jobs.entry(*job).or_default()];
        }
        let Some(tenant) = &interest.tenant else { return vec![&mut self.everything] };
        let topics = self.tenants.entry(tenant.clone()).or_default();
        let TenantTopics { all, others, lanes, agents, listeners: _ } = topics;
        let mut lists = Vec::new();
        match &interest.jobs {
            Jobs::All => return vec![all],
            Jobs::OfLane(lane) => lists.push(lanes.entry(lane.clone()).or_default()),
            Jobs::OfAgent(agent) => lists.push(agents.entry(agent.clone()).or_default()),
            Jobs::None | Jobs::One(_) => {}
        }
        lists.push(others);
        lists
    }

    /// Keeps events, puts them into the topics that ask for them, and wakes the listeners of these.
    pub(super) fn publish(&mut self, events: impl Iterator<Item = EventRef>) {
        let log_len_max = self.log_len_max();
        let mut touched = Vec::new();
        for event in events {
            self.latest = event.number;
            if !self.topics.is_empty() {
                self.route(&event, log_len_max, &mut touched);
            }
            self.ring.push_back(event);
        }
        let over = self.ring.len().saturating_sub(self.len_max.max(1));
        self.ring.drain(..over);
        for topic in touched {
            topic.announce();
        }
    }

    fn route(&self, event: &EventRef, len_max: usize, touched: &mut Vec<Arc<Topic>>) {
        let mut put = |topics: &[Arc<Topic>]| {
            for topic in topics.iter().filter(|topic| topic.interest.matches(event)) {
                if topic.push(Item::Event(event.clone()), len_max) {
                    touched.push(Arc::clone(topic));
                }
            }
        };
        if event.kind == EventKind::DrainBegan {
            let topics: Vec<Arc<Topic>> =
                self.topics.values().map(|known| Arc::clone(&known.topic)).collect();
            return put(&topics);
        }
        put(&self.everything);
        let topics = event.tenant.as_ref().and_then(|tenant| self.tenants.get(tenant));
        if let Some(topics) = topics {
            put(&topics.all);
        }
        match (&event.job, topics) {
            (Some(job), topics) => {
                if let Some(list) = self.jobs.get(&job.id) {
                    put(list);
                }
                if let Some(list) = topics.and_then(|topics| topics.lanes.get(&job.lane)) {
                    put(list);
                }
                if let Some(list) = topics.and_then(|topics| topics.agents.get(&job.agent)) {
                    put(list);
                }
            }
            (None, Some(topics)) => put(&topics.others),
            (None, None) => {}
        }
    }

    pub(super) fn publish_progress(&mut self, progress: &Arc<Progress>) {
        let item = Item::Progress(Arc::clone(progress));
        self.pass_on(&progress.tenant, progress.job, |interest| interest.progress, &item);
    }

    pub(super) fn publish_feedback(&mut self, feedback: &Arc<Feedback>) {
        let item = Item::Feedback(Arc::clone(feedback));
        self.pass_on(&feedback.tenant, feedback.job, |interest| interest.feedback, &item);
    }

    /// Adds an item that is not stored to the topics that want it.
    fn pass_on(&self, tenant: &Name, job: JobId, wants: fn(&Interest) -> bool, item: &Item) {
        let len_max = self.log_len_max();
        let of_tenant = self.tenants.get(tenant);
        let of_tenant = of_tenant.into_iter().flat_map(|topics| {
            let agents = topics.agents.values().flatten();
            topics.all.iter().chain(agents).chain(topics.lanes.values().flatten())
        });
        let topics = self.everything.iter().chain(self.jobs.get(&job).into_iter().flatten()).chain(of_tenant);
        for topic in topics.filter(|topic| wants(&topic.interest) && topic.interest.is_about(tenant, job)) {
            if topic.push(item.clone(), len_max) {
                topic.announce();
            }
        }
    }

    /// The loop has ended.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for Known { topic, .. } in self.topics.values() {
            topic.tip.send_modify(|tip| tip.closed = true);
        }
    }

    /// How many items a topic keeps: all topics together about as many as the ring.
    fn log_len_max(&self) -> usize {
        let least = LOG_LEN_MIN.min(self.len_max).max(1);
        (self.len_max / self.topics.len().max(1)).max(least)
    }
}

/// The part that listeners of equal interest share.
pub(super) struct Topic {
    interest: Interest,
    log: Mutex<Log>,
    tip: watch::Sender<Tip>,
    pieces: Mutex<VecDeque<Piece>>,
}

/// Where a topic ends.
#[derive(Clone, Copy)]
pub(super) struct Tip {
    end: u64,
    /// Nothing follows.
    pub(super) closed: bool,
}

impl Tip {
    /// True when there is an item at `at`.
    pub(super) fn is_past(self, at: Option<u64>) -> bool {
        at.is_some_and(|at| self.end > at)
    }
}

/// Recent items of a topic, each with a position: 0, 1, 2, ….
struct Log {
    items: VecDeque<Item>,
    /// The position of the first item.
    base: u64,
    /// Every event of interest after this number is here.
    complete_after: u64,
    /// True when listeners were not notified yet of new items.
    unannounced: bool,
}

impl Log {
    fn end(&self) -> u64 {
        self.base + self.items.len() as u64
    }
}

/// The item at a position of a topic.
pub(super) enum Read {
    Item(Item),
    /// Nothing yet.
    End,
    /// Nothing any more.
    Gone,
}

/// The item at a position is not there any more.
pub(super) struct Gone;

/// Frames of some items in a row.
#[derive(Clone)]
pub(super) struct Piece {
    from: u64,
    /// The position after them.
    pub(super) to: u64,
    /// The number of the last event among them; 0: there is none.
    pub(super) last: u64,
    /// How many events are among them.
    pub(super) events: u64,
    pub(super) bytes: Bytes,
}

impl Topic {
    fn new(interest: Interest, latest: u64, closed: bool) -> Topic {
        let log = Log { items: VecDeque::new(), base: 0, complete_after: latest, unannounced: false };
        Topic {
            interest,
            log: Mutex::new(log),
            tip: watch::Sender::new(Tip { end: 0, closed }),
            pieces: Mutex::default(),
        }
    }

    pub(super) fn interest(&self) -> &Interest {
        &self.interest
    }

    pub(super) fn follow(&self) -> watch::Receiver<Tip> {
        self.tip.subscribe()
    }

    /// How many listen.
    pub(super) fn listeners(&self) -> usize {
        self.tip.receiver_count()
    }

    /// Appends an item. True: listeners must be notified.
    fn push(&self, item: Item, len_max: usize) -> bool {
        let mut log = self.log();
        log.items.push_back(item);
        while log.items.len() > len_max {
            log.base += 1;
            if let Some(Item::Event(event)) = log.items.pop_front() {
                log.complete_after = event.number;
            }
        }
        !std::mem::replace(&mut log.unannounced, true)
    }

    /// The position after the last item.
    pub(super) fn end(&self) -> u64 {
        self.log().end()
    }

    /// Notifies listeners of new items.
    fn announce(&self) {
        let mut log = self.log();
        log.unannounced = false;
        let end = log.end();
        drop(log);
        self.tip.send_modify(|tip| tip.end = end);
    }

    /// The position after event number `after`. `None`: some events after it are not here any more.
    pub(super) fn place_after(&self, after: u64) -> Option<u64> {
        let log = self.log();
        if after < log.complete_after {
            return None;
        }
        let later = |item: &Item| matches!(item, Item::Event(event) if event.number > after);
        let at = log.items.iter().position(later).unwrap_or(log.items.len());
        Some(log.base + at as u64)
    }

    /// The item at a position.
    pub(super) fn read(&self, at: u64) -> Read {
        let log = self.log();
        let Some(index) = at.checked_sub(log.base) else { return Read::Gone };
        log.items.get(index as usize).map_or(Read::End, |item| Read::Item(item.clone()))
    }

    /// The frames from a position on. `None`: there are none yet.
    pub(super) fn piece(&self, at: u64, encode: fn(&Item) -> Bytes) -> Result<Option<Piece>, Gone> {
        // Locked while frames are joined: another listener that wants the same waits instead of joining them again.
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pieces.iter().rev().find(|piece| piece.from == at) {
            return Ok(Some(known.clone()));
        }
        let mut joined = Vec::new();
        let mut piece = Piece { from: at, to: at, last: 0, events: 0, bytes: Bytes::new() };
        while joined.len() < PIECE_BYTES {
            let item = match self.read(piece.to) {
                Read::Item(item) => item,
                Read::End => break,
                // What was read so far is whole; the next call says that something is missing.
                Read::Gone if piece.to > at => break,
                Read::Gone => return Err(Gone),
            };
            piece.to += 1;
            if let Item::Event(event) = &item {
                (piece.last, piece.events) = (event.number, piece.events + 1);
            }
            joined.extend_from_slice(&encode(&item));
        }
        if piece.to == at {
            return Ok(None);
        }
        piece.bytes = joined.into();
        if self.listeners() > 1 {
            pieces.push_back(piece.clone());
            if pieces.len() > PIECES_MAX {
                pieces.pop_front();
            }
        }
        Ok(Some(piece))
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
