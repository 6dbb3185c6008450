//! The traits that every store implements, and the types that they return.

use std::cmp::Ordering;
use std::sync::Arc;

use laneway_core::engine::StoreCounters;
use laneway_core::worker::DispatchLine;
use laneway_core::{
    AttemptEnd, Bytes, CallRow, ClosedAttempt, DeliveryRow, DeliveryState, DeliveryTry, Effects, EndedMember,
    Event, EventKind, FiringLogEntry, JobEnd, JobId, JobRow, JobState, KeptKeys, Name, OpenAttempt, Prior,
    PriorRun, Record, RunId, RunRow, RunState, Schedule, ScheduleId, Seq, SessionRow, TokenRecord, Wall,
};
use thiserror::Error;

use crate::{CountBy, JobCounts, JobFilter};

/// How many rows one call for a list looks at: a filter that matches nothing must not hold a reader for long.
pub const ROWS_SCANNED_MAX: usize = 20_000;

/// Which opening of a store a writer belongs to. A later opening has a higher epoch, and from then on the store rejects the
/// commits of earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the next opening.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }

    /// May a writer of this epoch commit to a store that holds `stored`?
    pub(crate) fn check(self, stored: Epoch) -> Result<(), StoreError> {
        match self.cmp(&stored) {
            Ordering::Equal => Ok(()),
            Ordering::Less => Err(StoreError::Fenced { given: self, stored }),
            Ordering::Greater => Err(StoreError::Disagree(format!(
                "the writer has epoch {}, but the latest opening has epoch {}",
                self.0, stored.0
            ))),
        }
    }
}

/// Idempotency keys to look up, each with its tenant. A key may occur twice.
#[derive(Clone, Debug, Default)]
pub struct Keys<'a> {
    /// Keys of jobs.
    pub jobs: Vec<(&'a Name, &'a Name)>,
    /// Keys of runs.
    pub runs: Vec<(&'a Name, &'a Name)>,
}

impl Keys<'_> {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.jobs.len() + self.runs.len()
    }

    /// Is there no key?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What [`Keys`] stand for: one entry for each key, in the same order. `None`: no committed job or run has the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priors {
    /// Of the keys of jobs.
    pub jobs: Vec<Option<Prior>>,
    /// Of the keys of runs.
    pub runs: Vec<Option<PriorRun>>,
}

/// The write side. The loop owns it, and is the only writer.
pub trait Store: Send {
    /// Visits everything that a start needs, in this order: the name of every lane that has or had jobs, every schedule, the
    /// newest entries of the firing log, every open run, every live job, every open attempt (with its job where that has
    /// ended already), the calls of open runs, the state of sessions, the keys that ended jobs keep, every record, and every
    /// waiting delivery. Returns the counters.
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError>;

    /// The counters, without the jobs. A store overrides this where it needs no walk through its rows.
    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.load(&mut |_| ())
    }

    /// Every token, revoked ones included.
    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError>;

    /// The runtime's own settings bytes, if any were kept.
    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError>;

    /// The epoch that this store took when it was opened for writing. Every opening takes the next one.
    fn epoch(&self) -> Epoch;

    /// Makes all changes and events durable, all or none: when this returns `Ok`, they survive a power cut.
    /// `epoch` is that of the writer whose engine decided them.
    ///
    /// [`StoreError::Rejected`]: nothing was written and the store is well; one of the changes cannot be stored.
    /// [`StoreError::Fenced`]: nothing was written; the store was opened by another writer since, and this one must stop.
    /// Any other error: nothing is known about what was written; the caller must stop.
    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError>;

    /// May the results of this writer be published now? A store that several servers share fails with
    /// [`StoreError::Lapsed`] once another one may own it.
    fn check_owned(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// What committed idempotency keys stand for. One call serves all commands of a batch.
    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError>;

    /// Ends the store's work in order: what it holds on disk is complete without logs beside it. Nothing can be committed
    /// afterwards. False: readers were in the way; nothing is lost, and the next start recovers as after a crash.
    fn close(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// A reader of committed state, to be shared among threads.
    fn reader(&self) -> Arc<dyn Reader>;
}

/// The read side: committed state only, any thread.
pub trait Reader: Send + Sync {
    /// One job, live or ended.
    fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError>;

    /// Jobs, newest first. Looks at a bounded number of rows: a page may be short, or even empty, and still have a
    /// `next`.
    fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError>;

    /// How many jobs a filter matches, exactly, by state and group. `None`: counting them would take too long, because the
    /// store would have to read too many rows. A filter without times of ends is always counted.
    fn count_jobs(&self, filter: &JobFilter, by: CountBy) -> Result<Option<JobCounts>, StoreError>;

    /// The job that an idempotency key of a tenant stands for, with the digest of its request. The engine decides what a
    /// second submit with the key means; this only lets a caller look before it checks anything else.
    fn prior(&self, tenant: &Name, key: &Name) -> Result<Option<Prior>, StoreError>;

    /// The jobs of these numbers, in the given order; those that are not stored are left out.
    fn jobs_at(&self, jobs: &[Seq]) -> Result<Vec<JobView>, StoreError>;

    /// One run, open or ended.
    fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError>;

    /// Runs, newest first, bounded in rows looked at. `before` and `next` are numbers of first jobs.
    fn runs(&self, filter: &RunFilter, before: Option<Seq>, limit: usize)
    -> Result<Page<RunRow>, StoreError>;

    /// The definition of a run, by its first job. `None`: it has none, or there is no such run.
    fn run_definition(&self, first: Seq) -> Result<Option<Bytes>, StoreError>;

    /// Rows and payloads, in the given order: what the runtime needs to run jobs. All of them must be stored.
    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Runnable>, StoreError>;

    /// The payload of a job.
    fn payload(&self, job: Seq) -> Result<Option<Bytes>, StoreError>;

    /// The payload of the call that a node works on. `None`: there is no call, or it has no payload.
    fn call_payload(&self, node: Seq) -> Result<Option<Bytes>, StoreError>;

    /// Attempts of a job that are closed, oldest first (the one that ended the job is in its `JobEnd`).
    fn attempts(&self, job: Seq) -> Result<Vec<AttemptView>, StoreError>;

    /// Lines of a job's logs after line number `after` (0 = from the start), oldest first.
    fn logs(&self, job: Seq, after: u64, limit: usize) -> Result<Vec<LogView>, StoreError>;

    /// Events after number `after`, oldest first, bounded in rows looked at. `next` is the number to go on after.
    fn events_after(&self, filter: &EventFilter, after: u64, limit: usize)
    -> Result<Page<Event>, StoreError>;

    /// Events before number `before` (`None` = from the newest), newest first, bounded in rows looked at.
    fn events_before(
        &self,
        filter: &EventFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<Event>, StoreError>;

    /// The events of a job, oldest first, walked back from its latest.
    fn events_of(&self, job: Seq, limit: usize) -> Result<Vec<Event>, StoreError>;

    /// Entries of the firing log before number `before` (`None` = from the newest), newest first, also of schedules that are
    /// gone.
    fn firing_log(
        &self,
        filter: &FiringLogFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<FiringLogPage, StoreError>;

    /// Number of the oldest event that is still kept; 0 when none is.
    fn first_event(&self) -> Result<u64, StoreError>;

    /// Deliveries, newest job first, bounded in rows looked at.
    fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<DeliveryRow>, StoreError>;

    /// The delivery of a job, if one is or was owed.
    fn delivery(&self, job: JobId) -> Result<Option<DeliveryRow>, StoreError>;

    /// Tries at the delivery of a job, oldest first.
    fn delivery_tries(&self, job: Seq) -> Result<Vec<DeliveryTry>, StoreError>;

    /// Bytes that the store holds on disk and can use again without asking the file system: what retention freed.
    fn reusable_bytes(&self) -> Result<u64, StoreError>;

    /// Checks the chain of event hashes from the oldest kept batch; gives the number of events checked.
    fn verify_events(&self) -> Result<u64, StoreError>;

    /// How far the tables are behind what is durable. A store without a commit log is never behind.
    fn lag(&self) -> Lag {
        Lag::default()
    }
}

/// How far the tables of a store are behind its commit log. Reads are not behind: they wait, or look at the log's commits, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Commits that are not in the tables.
    pub commits: u64,
    /// Changes of these commits.
    pub changes: u64,
    /// Bytes of their payloads, results and events.
    pub bytes: u64,
    /// How long the oldest one has waited.
    pub age: std::time::Duration,
}

/// One thing that [`Store::load`] gives.
#[derive(Debug)]
pub enum Loaded {
    /// The name of a lane that has or had jobs, whether it is still named or not. All of them come first.
    Lane(Name),
    /// A schedule. All of them come before the jobs.
    Schedule(Box<Schedule>),
    /// One of the newest entries of the firing log, oldest first.
    FiringLogEntry(Box<FiringLogEntry>),
    /// A run that has not ended, with those of its members that have. All of them come before the jobs.
    OpenRun(Box<RunRow>, Vec<EndedMember>),
    /// A live job.
    Job(JobRow),
    /// The open attempt of a live job.
    Open(OpenAttempt),
    /// An open attempt whose job has ended already. The row's `status.last_event` is the end's, so that the next event
    /// names it as the one before.
    StillRunning(JobRow, OpenAttempt),
    /// The latest call of a node of an open run. All of them come after the open attempts.
    Call(Box<CallRow>),
    /// A delivery that waits.
    Delivery(DeliveryRow),
    /// What is known of a session beside its jobs.
    Session(SessionRow),
    /// The keys that an ended job keeps.
    KeptKeys(KeptKeys),
    /// A record.
    Record(Record),
}

/// What is needed to run a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Runnable {
    /// The stored row.
    pub row: JobRow,
    /// What it was submitted with.
    pub payload: Bytes,
    /// What the jobs that were merged into it were submitted with, in the order in which they came.
    pub merged: Vec<Bytes>,
}

/// A job as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// The stored row.
    pub row: JobRow,
    /// The open attempt, if there is one (also of an ended job whose run has not ended yet).
    pub open: Option<OpenAttempt>,
    /// How it ended, if it has.
    pub end: Option<JobEnd>,
}

impl JobView {
    /// The job's state: its end's, else its open attempt's, else its row's.
    pub fn state(&self) -> JobState {
        match (&self.end, &self.open) {
            (Some(end), _) => end.state,
            (None, Some(open)) => open.state,
            (None, None) => self.row.status.state,
        }
    }
}

/// A closed attempt as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptView {
    /// The stored row.
    pub closed: ClosedAttempt,
}

impl AttemptView {
    /// How it ended.
    pub fn end(&self) -> AttemptEnd {
        self.closed.end
    }
}

/// A line of a job's logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogView {
    /// 1, 2, 3, … within the job.
    pub line: u64,
    /// The attempt that wrote it.
    pub attempt: u32,
    /// When it was written.
    pub at: Wall,
    /// `stdout`, `stderr`, `log`, ….
    pub stream: Name,
    /// The text.
    pub text: Box<str>,
}

/// Which events a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only this tenant's.
    pub tenant: Option<Name>,
    /// Only events that a call caused (the audit list).
    pub called: bool,
    /// Only events of this kind.
    pub kind: Option<EventKind>,
    /// Only events that say what became of a dispatch to a worker.
    pub dispatches: bool,
}

impl EventFilter {
    /// Does the list show this event?
    pub fn matches(&self, event: &Event) -> bool {
        let EventFilter { tenant, called, kind, dispatches } = self;
        (tenant.is_none() || *tenant == event.tenant)
            && (!called || event.actor.is_some())
            && kind.is_none_or(|kind| kind == event.kind)
            && (!dispatches || is_about_dispatch(event))
    }
}

/// Only the engine writes details of jobs' events; those of other events may begin with any name.
fn is_about_dispatch(event: &Event) -> bool {
    let says_so = |detail: &str| detail.starts_with(DispatchLine::ACTION);
    event.job.is_some() && event.detail.as_deref().is_some_and(says_so)
}

/// Which entries of the firing log a list shows; `None` means: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FiringLogFilter {
    /// Only this tenant's.
    pub tenant: Option<Name>,
    /// Only of this schedule, which may be gone.
    pub schedule: Option<ScheduleId>,
}

/// A part of the firing log.
#[derive(Clone, Debug, PartialEq)]
pub struct FiringLogPage {
    /// What was found.
    pub items: Vec<FiringLogEntry>,
    /// Where to go on; `None` when the list has ended.
    pub next: Option<u64>,
    /// How many entries the filter shows in all.
    pub total: u64,
}

impl FiringLogFilter {
    /// Does the list show this entry?
    pub fn matches(&self, log: &FiringLogEntry) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == log.tenant)
            && self.schedule.is_none_or(|schedule| schedule == log.schedule)
    }
}

/// Which runs a list shows; `None` and empty mean: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only this tenant's.
    pub tenant: Option<Name>,
    /// Only in one of these states.
    pub states: Vec<RunState>,
    /// Only of this client.
    pub client: Option<Name>,
    /// Only in this lane.
    pub lane: Option<Name>,
}

impl RunFilter {
    /// Does the list show this run?
    pub fn matches(&self, row: &RunRow) -> bool {
        let RunFilter { tenant, states, client, lane } = self;
        tenant.as_ref().is_none_or(|tenant| *tenant == row.spec.tenant)
            && (states.is_empty() || states.contains(&row.state))
            && (client.is_none() || *client == row.spec.client)
            && lane.as_ref().is_none_or(|lane| *lane == row.spec.lane)
    }
}

/// Which deliveries a list shows; `None` means: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Only this tenant's.
    pub tenant: Option<Name>,
    /// Only of this job.
    pub job: Option<JobId>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
}

impl DeliveryFilter {
    /// Does the list show this delivery?
    pub fn matches(&self, row: &DeliveryRow) -> bool {
        let DeliveryFilter { tenant, job, state } = self;
        tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
            && job.is_none_or(|job| job == row.job)
            && state.is_none_or(|state| state == row.state)
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Where to go on; `None` when the list has ended.
    pub next: Option<u64>,
}

/// Why a call of the store failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// One of the changes cannot be stored; nothing was written.
    #[error("store rejected a change: {0}")]
    Rejected(String),
    /// A fence did not match, or a row was not where it must be: the engine and the store disagree.
    #[error("store and engine disagree: {0}")]
    Disagree(String),
    /// The store was opened by another writer since; nothing was written.
    #[error(
        "another server has taken the store over: this server has epoch {}, the store has epoch {}; stop this server, the \
         other one goes on with its jobs", given.0, stored.0
    )]
    Fenced {
        /// The epoch of the commit.
        given: Epoch,
        /// The epoch of the latest opening.
        stored: Epoch,
    },
    /// The ownership of the store was not renewed in time. What was written is not known; nothing of it may be published.
    #[error(
        "this server did not renew its ownership of the store in time (epoch {}): another server may own it now, and goes on with \
         its jobs", .0.0
    )]
    Lapsed(Epoch),
    /// Another process has the data directory.
    #[error("{0}")]
    Locked(String),
    /// The data directory cannot be used; the text says why and what to do.
    #[error("{0}")]
    Unusable(String),
    /// The disk is full; nothing was written. The text says where, how much is free and what to do.
    #[error("{0}")]
    Full(String),
    /// Reading or writing failed.
    #[error("store failed: {0}")]
    Failed(String),
    /// What was read is not what was written.
    #[error(
        "store is damaged: {0}; `laneway store check` lists what is damaged, `laneway restore` brings a backup back, `laneway store rebuild` adds the log to it"
    )]
    Damaged(String),
}
