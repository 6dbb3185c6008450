//! The state of the memory store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use laneway_core::engine::StoreCounters;
use laneway_core::{
    Bytes, CallRow, ClosedAttempt, DeliveryRow, DeliveryState, DeliveryTry, Event, FiringLogEntry, JobEnd,
    JobId, JobRow, KeptKeys, Name, OpenAttempt, Prior, PriorRun, Record, RecordName, RunRow, Schedule,
    ScheduleId, Seq, SessionRow, TokenRecord, Wall,
};

use crate::logs::LogTally;
use crate::{JobView, LogView};

/// Everything that is committed. Jobs and event batches are behind references: a copy of the state shares them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    /// Every stored job, live or ended.
    pub jobs: BTreeMap<Seq, Arc<Job>>,
    /// The number of a job, by its public id.
    pub ids: BTreeMap<JobId, Seq>,
    /// The job of an idempotency key.
    pub keys: BTreeMap<(Name, Name), Seq>,
    /// Event batches, oldest first, one for each commit that had events.
    pub batches: VecDeque<Arc<EventBatch>>,
    /// Tokens by their public part.
    pub tokens: BTreeMap<Name, TokenRecord>,
    /// The state of sessions, by tenant and name.
    pub sessions: BTreeMap<(Name, Name), SessionRow>,
    /// The runtime's own settings bytes.
    pub overrides: Option<Bytes>,
    /// The time up to which retention has counted.
    pub clock_seen: Option<Wall>,
    /// Highest job number ever stored.
    pub last_seq: u64,
    /// Highest event number ever stored.
    pub last_event: u64,
    /// How many jobs have ended, ever.
    pub ended: u64,
    /// Schedules.
    pub schedules: BTreeMap<ScheduleId, Arc<Schedule>>,
    /// Slots that came, with the jobs that they created.
    pub slots: BTreeMap<(Wall, ScheduleId), Option<JobId>>,
    /// The firing log.
    pub runs: BTreeMap<u64, Arc<FiringLogEntry>>,
    /// Runs by their first jobs.
    pub run_rows: BTreeMap<Seq, Arc<RunRow>>,
    /// The latest call of each node that was called.
    pub calls: BTreeMap<Seq, Arc<CallRow>>,
    /// The keys that ended jobs keep.
    pub kept_keys: BTreeMap<JobId, KeptKeys>,
    /// Records.
    pub records: BTreeMap<RecordName, Record>,
}

/// All that is stored of one job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    /// Its row.
    pub row: JobRow,
    /// Its payload.
    pub payload: Bytes,
    /// Its open attempt.
    pub open: Option<OpenAttempt>,
    /// Its closed attempts, except one that ended it.
    pub closed: Vec<ClosedAttempt>,
    /// Its end, and its number in the order of ends.
    pub end: Option<(JobEnd, u64)>,
    /// The jobs that were merged into it.
    pub merged: BTreeSet<Seq>,
    /// The lines it wrote.
    pub logs: Vec<LogView>,
    /// How much it wrote.
    pub tally: LogTally,
    /// Its webhook delivery.
    pub delivery: Option<DeliveryRow>,
    /// Tries at it, oldest first.
    pub tries: Vec<DeliveryTry>,
    /// The definition of the run whose first job it is.
    pub definition: Option<Bytes>,
}

/// The events of one commit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EventBatch {
    /// The latest time among them.
    pub at: Wall,
    /// In order of their numbers; never empty.
    pub events: Box<[Event]>,
}

impl State {
    /// The counters.
    pub fn counters(&self) -> StoreCounters {
        StoreCounters {
            last_seq: self.last_seq,
            last_event: self.last_event,
            // Rank times grow with the numbers, but for jobs that were submitted for later: good enough for people.
            last_rank_time: self.jobs.last_key_value().map_or(0, |(_, job)| job.row.rank_time),
            clock_seen: self.clock_seen,
        }
    }

    /// What an idempotency key stands for.
    pub fn prior(&self, tenant: &Name, key: &Name) -> Option<Prior> {
        let seq = self.keys.get(&(tenant.clone(), key.clone()))?;
        let row = &self.jobs.get(seq)?.row;
        let idempotency = row.spec.idempotency.as_ref()?;
        Some(Prior { job: row.id, digest: idempotency.digest })
    }

    /// What the idempotency key of a run stands for.
    pub fn prior_run(&self, tenant: &Name, key: &Name) -> Option<PriorRun> {
        let mut runs = self.run_rows.values().filter(|row| row.spec.tenant == *tenant);
        runs.find_map(|row| {
            let idempotency = row.spec.idempotency.as_ref().filter(|idempotency| idempotency.key == *key)?;
            Some(PriorRun { run: row.id, digest: idempotency.digest })
        })
    }

    /// The delivery of a job.
    pub fn delivery(&self, job: JobId) -> Option<DeliveryRow> {
        self.jobs.get(self.ids.get(&job)?)?.delivery.clone()
    }

    /// The kept event of that number.
    pub fn event(&self, number: u64) -> Option<&Event> {
        let after = self.batches.partition_point(|batch| batch.first() <= number);
        let batch = self.batches.get(after.checked_sub(1)?)?;
        batch.events.get(usize::try_from(number - batch.first()).ok()?)
    }

    /// Puts a job in, with everything that points to it.
    pub fn insert(&mut self, seq: Seq, job: Arc<Job>) {
        self.ids.insert(job.row.id, seq);
        if let Some(key) = job.key() {
            self.keys.insert(key, seq);
        }
        self.jobs.insert(seq, job);
    }

    /// Takes a job out, with everything that points to it.
    pub fn remove(&mut self, seq: Seq) {
        if let Some(job) = self.jobs.remove(&seq) {
            self.ids.remove(&job.row.id);
            if let Some(key) = job.key() {
                self.keys.remove(&key);
            }
        }
    }
}

impl Job {
    /// The job as readers see it.
    pub fn view(&self) -> JobView {
        JobView {
            row: self.row.clone(),
            open: self.open.clone(),
            end: self.end.as_ref().map(|(end, _)| end.clone()),
        }
    }

    /// Its tenant and idempotency key, if it has one.
    pub fn key(&self) -> Option<(Name, Name)> {
        let spec = &self.row.spec;
        spec.idempotency.as_ref().map(|idempotency| (spec.tenant.clone(), idempotency.key.clone()))
    }

    /// True while its delivery waits.
    pub fn is_owed(&self) -> bool {
        self.delivery.as_ref().is_some_and(|row| row.state == DeliveryState::Waiting)
    }

    /// Number of its latest event.
    pub fn last_event(&self) -> u64 {
        let closed = self.closed.iter().map(|closed| closed.open.last_event);
        let open = self.open.iter().map(|open| open.last_event);
        let end = self.end.iter().map(|(end, _)| end.last_event);
        closed.chain(open).chain(end).fold(self.row.status.last_event, u64::max)
    }
}

impl EventBatch {
    /// Number of its first event.
    pub fn first(&self) -> u64 {
        self.events.first().map_or(0, |event| event.number)
    }

    /// Number of its last event.
    pub fn last(&self) -> u64 {
        self.events.last().map_or(0, |event| event.number)
    }
}
