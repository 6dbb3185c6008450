//! The fake store of scenarios: it keeps the rows of every change, and gives them back at a restart.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::Notice;
use crate::engine::{Recovery, Restart, StoreCounters};
use crate::{
    Bytes, CallRow, Change, DeliveryRow, DeliveryState, Effects, EndedMember, FiringLogEntry, JobEnd, JobId,
    JobRow, KeptKeys, Name, Now, OpenAttempt, Prior, PriorRun, Record, RecordName, RunId, RunRow, Schedule,
    ScheduleId, SessionRow, Settings, StoredJob, Wall,
};

/// Rows by their sequence numbers, ids or names.
#[derive(Default)]
pub(super) struct Store {
    jobs: BTreeMap<u64, JobRow>,
    open: BTreeMap<u64, OpenAttempt>,
    ended: BTreeMap<u64, EndedJob>,
    keys: BTreeMap<Name, Prior>,
    sessions: BTreeMap<(Name, Name), SessionRow>,
    deliveries: BTreeMap<u64, DeliveryRow>,
    /// The number of the latest try of each delivery that was sent.
    tries: BTreeMap<u64, u32>,
    runs: BTreeMap<u64, RunRow>,
    run_keys: BTreeMap<Name, PriorRun>,
    /// The latest call of each node.
    calls: BTreeMap<u64, CallRow>,
    schedules: BTreeMap<ScheduleId, Schedule>,
    slots: BTreeSet<(ScheduleId, Wall)>,
    firings: Vec<FiringLogEntry>,
    kept_keys: BTreeMap<JobId, KeptKeys>,
    records: BTreeMap<RecordName, Record>,
    last_event: u64,
}

struct EndedJob {
    row: JobRow,
    end: JobEnd,
    member: EndedMember,
    result: Option<Bytes>,
}

impl Store {
    /// Stores the changes of a command. Events must be numbered without gaps.
    pub(super) fn commit(&mut self, effects: &Effects) {
        for event in &effects.events {
            assert_eq!(event.number, self.last_event + 1, "events are numbered without gaps");
            self.last_event = event.number;
        }
        for change in &effects.changes {
            self.put(change);
        }
        for notice in &effects.notices {
            if let Notice::Deliver { seq, number, .. } = notice {
                self.tries.insert(seq.0, *number);
            }
        }
    }

    fn put(&mut self, change: &Change) {
        match change {
            Change::JobCreated { row, .. } => {
                if let Some(key) = &row.spec.idempotency {
                    self.keys.insert(key.key.clone(), Prior { job: row.id, digest: key.digest });
                }
                self.jobs.insert(row.seq.0, (**row).clone());
            }
            Change::JobMoved { seq, status } => {
                self.jobs.get_mut(&seq.0).expect("a live job moved").status = status.clone();
            }
            Change::JobRevised { seq, priority, rank_time, not_before } => {
                let row = self.jobs.get_mut(&seq.0).expect("a live job is revised");
                (row.spec.priority, row.rank_time) = (*priority, *rank_time);
                row.spec.not_before = not_before.or(row.spec.not_before);
            }
            Change::JobDeleted(seq) => {
                assert!(!self.open.contains_key(&seq.0), "a deleted job has no open attempt");
                let job = self.ended.remove(&seq.0).expect("an ended job is deleted");
                self.keys.retain(|_, prior| prior.job != job.row.id);
                self.deliveries.remove(&seq.0);
            }
            Change::JobEnded(end) => {
                let row = self.jobs.remove(&end.seq.0).expect("a live job ended");
                let member = EndedMember::of(row.id, end);
                let (end, result) = ((**end).clone(), end.result.clone());
                self.ended.insert(end.seq.0, EndedJob { row, end, member, result });
            }
            Change::AttemptOpened(open) => {
                assert!(self.open.insert(open.seq.0, open.clone()).is_none(), "one open attempt per job");
            }
            Change::AttemptStarted(open) => {
                self.open.insert(open.seq.0, open.clone());
            }
            Change::AttemptRebound(open) => {
                let before = self.open.insert(open.seq.0, open.clone()).expect("an open attempt is rebound");
                assert_eq!(before.fence.lease_epoch + 1, open.fence.lease_epoch);
                assert_eq!(before.fence.attempt_id, open.fence.attempt_id);
            }
            Change::AttemptClosed(closed) => {
                let open = self.open.remove(&closed.open.seq.0).expect("an open attempt closed");
                assert_eq!(open.fence, closed.open.fence);
            }
            Change::DeliveryPut(row) => {
                self.deliveries.insert(row.seq.0, (**row).clone());
            }
            Change::SessionPut(row) => {
                self.sessions.insert((row.tenant.clone(), row.key.clone()), (**row).clone());
            }
            Change::SessionForgotten { tenant, key } => {
                let was = self.sessions.remove(&(tenant.clone(), key.clone()));
                assert!(was.is_some(), "a stored session is forgotten");
            }
            _ => {
                self.put_run(change);
                self.put_schedule(change);
                self.put_kept_keys(change);
                self.put_record(change);
            }
        }
    }

    fn put_run(&mut self, change: &Change) {
        match change {
            Change::RunCreated(row) => {
                if let Some(key) = &row.spec.idempotency {
                    self.run_keys.insert(key.key.clone(), PriorRun { run: row.id, digest: key.digest });
                }
                self.runs.insert(row.first.0, (**row).clone());
            }
            Change::RunMoved { first, state, finished_at } => {
                let row = self.runs.get_mut(&first.0).expect("a stored run moved");
                assert!(!row.state.is_terminal() && row.state != *state, "a run's state changed");
                (row.state, row.finished_at) = (*state, *finished_at);
            }
            Change::CallPut(row) => {
                self.calls.insert(row.target.0, (**row).clone());
            }
            _ => {}
        }
    }

    fn put_kept_keys(&mut self, change: &Change) {
        match change {
            Change::KeysKept(row) => {
                assert!(self.kept_keys.insert(row.job, (**row).clone()).is_none(), "a job keeps keys once");
            }
            Change::KeysReleased(job) => {
                assert!(self.kept_keys.remove(job).is_some(), "a job that keeps keys releases them");
            }
            _ => {}
        }
    }

    fn put_record(&mut self, change: &Change) {
        match change {
            Change::RecordPut { record, replaces } => {
                let was = self.records.insert(record.name.clone(), (**record).clone());
                assert_eq!(was.map(|was| was.version), *replaces, "the stored version is replaced");
            }
            Change::RecordDeleted { name, version } => {
                let was = self.records.remove(name).expect("a stored record is deleted");
                assert_eq!(was.version, *version, "the stored version is deleted");
            }
            _ => {}
        }
    }

    fn put_schedule(&mut self, change: &Change) {
        match change {
            Change::SchedulePut(schedule) => {
                self.schedules.insert(schedule.id, Schedule::clone(schedule));
            }
            Change::ScheduleMoved { id, enabled, state } => {
                let schedule = self.schedules.get_mut(id).expect("a stored schedule moves");
                schedule.spec.enabled = *enabled;
                schedule.state = (**state).clone();
            }
            Change::ScheduleRemoved(id) => {
                self.schedules.remove(id).expect("a stored schedule goes");
            }
            Change::SlotFired { schedule, slot, .. } => {
                assert!(self.slots.insert((*schedule, *slot)), "a slot fires once");
            }
            Change::FiringLogged(entry) => self.firings.push(FiringLogEntry::clone(entry)),
            _ => {}
        }
    }

    /// Everything that a new engine reads at its start.
    pub(super) fn recovery(&self, settings: Settings, now: Now, restart: Restart) -> Recovery {
        let last_seq = self.jobs.keys().chain(self.ended.keys()).copied().fold(1_000, u64::max);
        let counters =
            StoreCounters { last_seq, last_event: self.last_event, last_rank_time: 0, clock_seen: None };
        let mut recovery = Recovery::new(settings, Vec::new(), counters, 8, now);
        for schedule in self.schedules.values() {
            recovery.schedule(schedule.clone());
        }
        for row in self.runs.values().filter(|row| !row.state.is_terminal()) {
            let ended: Vec<EndedMember> = self.ended.range(row.seqs()).map(|(_, job)| job.member).collect();
            recovery.run(row.clone(), &ended);
        }
        for row in self.jobs.values() {
            recovery.job(row.clone());
        }
        for open in self.open.values() {
            match self.ended.get(&open.seq.0) {
                Some(job) => recovery.still_running(job.row.clone(), open.clone()),
                None => recovery.open(open.clone()),
            }
        }
        for row in self.calls.values() {
            recovery.call(row.clone());
        }
        for row in self.sessions.values() {
            recovery.session(row.clone());
        }
        for row in self.kept_keys.values() {
            recovery.kept_keys(row.clone());
        }
        for record in self.records.values() {
            recovery.record(record.clone());
        }
        for row in self.deliveries.values().filter(|row| row.state == DeliveryState::Waiting) {
            let sent = self.tries.get(&row.seq.0) == Some(&(row.tries + 1));
            recovery.delivery(row.clone(), sent && restart == Restart::Rebuild);
        }
        recovery
    }

    /// The earlier job of an idempotency key.
    pub(super) fn prior(&self, key: &Name) -> Option<Prior> {
        self.keys.get(key).copied()
    }

    /// The earlier run of an idempotency key.
    pub(super) fn prior_run(&self, key: &Name) -> Option<PriorRun> {
        self.run_keys.get(key).copied()
    }

    /// A job, live or ended, as the loop looks it up for a deletion.
    pub(super) fn stored_job(&self, id: JobId) -> Option<StoredJob> {
        let open = |row: &JobRow| self.open.contains_key(&row.seq.0);
        let live = self.jobs.values().find(|row| row.id == id);
        let ended = self.ended.values().find(|job| job.row.id == id);
        match (live, ended) {
            (Some(row), _) => Some(StoredJob::new(row, None, open(row))),
            (None, Some(job)) => Some(StoredJob::new(&job.row, Some(&job.end), open(&job.row))),
            (None, None) => None,
        }
    }

    /// A job that has not ended.
    pub(super) fn live_job(&self, seq: u64) -> Option<&JobRow> {
        self.jobs.get(&seq)
    }

    /// The jobs with an open attempt, ended ones included.
    pub(super) fn open_jobs(&self) -> impl Iterator<Item = JobId> {
        self.open.values().map(|open| open.fence.job)
    }

    pub(super) fn delivery(&self, job: JobId) -> Option<&DeliveryRow> {
        self.deliveries.values().find(|row| row.job == job)
    }

    /// The number of the latest try that was sent.
    pub(super) fn latest_try(&self, delivery: &DeliveryRow) -> u32 {
        *self.tries.get(&delivery.seq.0).expect("the delivery was sent")
    }

    pub(super) fn run(&self, run: RunId) -> Option<&RunRow> {
        self.runs.values().find(|row| row.id == run)
    }

    /// The nodes of a run that have a result, in order.
    pub(super) fn results<'a>(&'a self, run: &'a RunRow) -> impl Iterator<Item = (&'a Name, &'a Bytes)> {
        let result = |(seq, node)| Some((node, self.ended.get(&seq)?.result.as_ref()?));
        run.seqs().zip(&run.nodes).filter_map(result)
    }

    pub(super) fn all_runs_ended(&self) -> bool {
        self.runs.values().all(|row| row.state.is_terminal())
    }

    pub(super) fn schedule(&self, id: ScheduleId) -> Option<&Schedule> {
        self.schedules.get(&id)
    }

    /// The firing log, oldest first.
    pub(super) fn firings(&self) -> &[FiringLogEntry] {
        &self.firings
    }
}
