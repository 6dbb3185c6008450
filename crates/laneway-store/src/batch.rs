//! Folds the changes of one commit into final row images, so that each row is written once.
//!
//! A commit may create, open, close and end the same job. A store with rows needs only the final state of each row: one
//! insert into each table, in the order of the tables' keys. Folding also checks the order: every change must fit the ones
//! before it, exactly as if they were applied one by one. It does not know the stored rows, so it lists the conditions that
//! the store must check. It writes nothing and knows no database.

use laneway_core::command::LogLine;
use laneway_core::{
    Bytes, CallRow, Change, ClosedAttempt, DeliveryRow, DeliveryTry, Fence, FiringLogEntry, JobEnd, JobId,
    JobRow, JobStatus, KeptKeys, Name, OpenAttempt, Record, RecordName, RunRow, RunState, Schedule,
    ScheduleId, ScheduleState, Seq, SessionRow, TokenRecord, Wall,
};

use crate::StoreError;

/// The final images of a sequence of changes. Every list is in the order of its table's key.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    /// Jobs that were not created here and must be live before the batch.
    pub must_live: Vec<Seq>,
    /// Jobs to insert, with their payload.
    pub jobs: Vec<JobImage<'a>>,
    /// Jobs that were stored before and have a new status.
    pub moved: Vec<(Seq, &'a JobStatus)>,
    /// Jobs that must have no open attempt before the batch, and get none by it.
    pub not_open: Vec<Seq>,
    /// Open attempts to remove, by the fence that is stored: exactly one row each.
    pub closed: Vec<(Seq, Fence)>,
    /// Open attempts to replace, with the lease epoch that is stored: exactly one row each.
    pub started: Vec<(&'a OpenAttempt, u32)>,
    /// Open attempts to insert, after the removals; there must be none.
    pub opened: Vec<&'a OpenAttempt>,
    /// Closed attempts to keep.
    pub attempts: Vec<&'a ClosedAttempt>,
    /// Jobs that end, in the order of their ends.
    pub ends: Vec<&'a JobEnd>,
    /// Lines to append, in order. The job must be stored.
    pub logs: Vec<(Seq, u32, &'a [LogLine])>,
    /// Deliveries to keep, one for each job at most, where the job is stored.
    pub deliveries: Vec<&'a DeliveryRow>,
    /// Tries at deliveries to keep, where the job is stored.
    pub tries: Vec<&'a DeliveryTry>,
}

/// A job to insert, as it is at the end of the batch.
#[derive(Debug)]
pub(crate) struct JobImage<'a> {
    /// The row, except for its status.
    pub row: &'a JobRow,
    /// Its status.
    pub status: &'a JobStatus,
    /// Its payload.
    pub payload: &'a Bytes,
}

/// Delete ended jobs of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobPrune<'a> {
    pub lane: &'a Name,
    pub finished_before: Wall,
    pub keyed_finished_before: Wall,
    pub max: u32,
}

impl<'a> JobPrune<'a> {
    fn of(lane: &'a Name, finished_before: Wall, keyed_finished_before: Wall, max: u32) -> JobPrune<'a> {
        JobPrune { lane, finished_before, keyed_finished_before, max }
    }
}

/// What a call changed of a live job, beside its status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revision {
    pub seq: Seq,
    pub priority: i32,
    pub rank_time: u64,
    /// `None`: it stays as it is.
    pub not_before: Option<Wall>,
}

impl Revision {
    /// What [`Change::JobRevised`] says.
    pub fn new(seq: Seq, priority: i32, rank_time: u64, not_before: Option<Wall>) -> Revision {
        Revision { seq, priority, rank_time, not_before }
    }

    /// Changes the row of the job.
    pub fn apply(&self, row: &mut JobRow) {
        (row.spec.priority, row.rank_time) = (self.priority, self.rank_time);
        row.spec.not_before = self.not_before.or(row.spec.not_before);
    }
}

/// Delete entries of the firing log and slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FiringLogPrune {
    pub ended_before: Wall,
    pub keep: u32,
    pub slots_before: Wall,
    pub max: u32,
}

/// One step of a commit.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// Write these images.
    Write(Box<Batch<'a>>),
    /// Then delete ended jobs: what came before the prune must be stored by then.
    PruneJobs(JobPrune<'a>),
    /// Rewrite the row of a live job: what came before must be stored by then.
    ReviseJob(Revision),
    /// Then delete these ended jobs.
    DeleteJobs(Vec<Seq>),
    /// Delete events.
    PruneEvents(Wall),
    /// Store the runtime's own settings bytes.
    PutOverrides(&'a Bytes),
    /// Store a token.
    PutToken(&'a TokenRecord),
    /// Delete a token.
    ForgetToken(&'a Name),
    /// Store the time up to which retention has counted.
    SeeClock(Wall),
    /// Store a session's state.
    PutSession(&'a SessionRow),
    /// Delete it.
    ForgetSession {
        /// Whose it was.
        tenant: &'a Name,
        /// Its name.
        key: &'a Name,
    },
    /// Store a schedule.
    PutSchedule(&'a Schedule),
    /// A schedule moved on.
    MoveSchedule(ScheduleId, bool, &'a ScheduleState),
    /// Delete a schedule.
    RemoveSchedule(ScheduleId),
    /// A slot came.
    PutSlot(ScheduleId, Wall, Option<JobId>),
    /// Store an entry of the firing log.
    LogFiring(&'a FiringLogEntry),
    /// Delete entries of the firing log and slots.
    PruneFiringLog(FiringLogPrune),
    /// Insert a run.
    PutRun(&'a RunRow),
    /// Store the definition of a run.
    DefineRun(Seq, &'a Bytes),
    /// A run's state changed.
    MoveRun(Seq, RunState, Option<Wall>),
    /// Store the latest call of a node.
    PutCall(&'a CallRow),
    /// Then delete ended runs with their jobs.
    PruneRuns(JobPrune<'a>),
    /// Store the keys that an ended job keeps.
    KeepKeys(&'a KeptKeys),
    /// Delete them.
    ReleaseKeys(JobId),
    /// Store a record in place of the one with this version, or of none.
    PutRecord(&'a Record, Option<u64>),
    /// Delete the record with this version.
    DeleteRecord(&'a RecordName, u64),
}

/// The steps of a commit, in order.
pub(crate) fn fold<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Result<Vec<Step<'a>>, StoreError> {
    let mut steps = Vec::new();
    let mut of_jobs: Vec<(Seq, u32, &Change)> = Vec::new();
    for (index, change) in (0u32..).zip(changes) {
        if needs_rows(change) {
            flush(&mut of_jobs, &mut steps)?;
        }
        let step = match change {
            Change::JobRevised { seq, priority, rank_time, not_before } => {
                Step::ReviseJob(Revision::new(*seq, *priority, *rank_time, *not_before))
            }
            Change::JobDeleted(seq) => {
                if let Some(Step::DeleteJobs(jobs)) = steps.last_mut() {
                    jobs.push(*seq);
                    continue;
                }
                Step::DeleteJobs(vec![*seq])
            }
            Change::JobsPruned { lane, finished_before, keyed_finished_before, max } => {
                Step::PruneJobs(JobPrune::of(lane, *finished_before, *keyed_finished_before, *max))
            }
            Change::RunsPruned { lane, finished_before, keyed_finished_before, max } => {
                Step::PruneRuns(JobPrune::of(lane, *finished_before, *keyed_finished_before, *max))
            }
            Change::RunCreated(row) => Step::PutRun(row),
            Change::RunDefined { first, definition } => Step::DefineRun(*first, definition),
            Change::CallPut(row) => Step::PutCall(row),
            Change::RunMoved { first, state, finished_at } => Step::MoveRun(*first, *state, *finished_at),
            Change::EventsPruned { before } => Step::PruneEvents(*before),
            Change::OverridesPut(bytes) => Step::PutOverrides(bytes),
            Change::TokenPut(token) => Step::PutToken(token),
            Change::TokenForgotten(id) => Step::ForgetToken(id),
            Change::ClockSeen(at) => Step::SeeClock(*at),
            Change::SessionPut(row) => Step::PutSession(row),
            Change::SessionForgotten { tenant, key } => Step::ForgetSession { tenant, key },
            Change::SchedulePut(schedule) => Step::PutSchedule(schedule),
            Change::ScheduleMoved { id, enabled, state } => Step::MoveSchedule(*id, *enabled, state),
            Change::ScheduleRemoved(id) => Step::RemoveSchedule(*id),
            Change::SlotFired { schedule, slot, job } => Step::PutSlot(*schedule, *slot, *job),
            Change::FiringLogged(log) => Step::LogFiring(log),
            Change::FiringLogPruned { ended_before, keep, slots_before, max } => {
                let (ended_before, keep, slots_before, max) = (*ended_before, *keep, *slots_before, *max);
                Step::PruneFiringLog(FiringLogPrune { ended_before, keep, slots_before, max })
            }
            Change::KeysKept(row) => Step::KeepKeys(row),
            Change::KeysReleased(job) => Step::ReleaseKeys(*job),
            Change::RecordPut { record, replaces } => Step::PutRecord(record, *replaces),
            Change::RecordDeleted { name, version } => Step::DeleteRecord(name, *version),
            Change::JobCreated { .. }
            | Change::JobMoved { .. }
            | Change::LogAppended { .. }
            | Change::AttemptOpened(_)
            | Change::AttemptStarted(_)
            | Change::LeaseExtended(_)
            | Change::HolderChanged(_)
            | Change::AttemptRebound(_)
            | Change::AttemptClosed(_)
            | Change::JobEnded(_)
            | Change::DeliveryPut(_)
            | Change::DeliveryTried(_) => {
                of_jobs.extend(job_of(change).map(|seq| (seq, index, change)));
                continue;
            }
        };
        steps.push(step);
    }
    flush(&mut of_jobs, &mut steps)?;
    Ok(steps)
}

/// Must the changes before this one be written first?
fn needs_rows(change: &Change) -> bool {
    matches!(
        change,
        Change::JobsPruned { .. }
            | Change::RunsPruned { .. }
            | Change::JobRevised { .. }
            | Change::JobDeleted(_)
    )
}

/// The job whose rows a change is about.
pub(crate) fn job_of(change: &Change) -> Option<Seq> {
    match change {
        Change::JobCreated { row, .. } => Some(row.seq),
        Change::JobMoved { seq, .. } | Change::JobRevised { seq, .. } | Change::LogAppended { seq, .. } => {
            Some(*seq)
        }
        Change::JobDeleted(seq) => Some(*seq),
        Change::AttemptOpened(open)
        | Change::AttemptStarted(open)
        | Change::LeaseExtended(open)
        | Change::HolderChanged(open)
        | Change::AttemptRebound(open) => Some(open.seq),
        Change::AttemptClosed(closed) => Some(closed.open.seq),
        Change::JobEnded(end) => Some(end.seq),
        Change::DeliveryPut(row) => Some(row.seq),
        Change::DeliveryTried(tried) => Some(tried.seq),
        _ => None,
    }
}

/// Folds the changes so far into one batch.
fn flush<'a>(of_jobs: &mut Vec<(Seq, u32, &'a Change)>, steps: &mut Vec<Step<'a>>) -> Result<(), StoreError> {
    if of_jobs.is_empty() {
        return Ok(());
    }
    of_jobs.sort_unstable_by_key(|(seq, index, _)| (*seq, *index));
    let mut batch = Batch::default();
    let mut ends = Vec::new();
    for changes in of_jobs.chunk_by(|left, right| left.0 == right.0) {
        let mut fold = Fold::default();
        let mut delivery = None;
        for (seq, index, change) in changes {
            fold.apply(*seq, change)?;
            if let Change::JobEnded(end) = change {
                ends.push((*index, &**end));
            } else if let Change::LogAppended { seq, attempt, lines } = change {
                batch.logs.push((*seq, *attempt, lines));
            } else if let Change::DeliveryPut(row) = change {
                delivery = Some(&**row);
            } else if let Change::DeliveryTried(tried) = change {
                batch.tries.push(tried);
            } else if let Change::AttemptClosed(closed) = change
                && !closed.last
            {
                batch.attempts.push(closed);
            }
        }
        batch.deliveries.extend(delivery);
        fold.emit(changes[0].0, &mut batch);
    }
    ends.sort_unstable_by_key(|(index, _)| *index);
    batch.ends.extend(ends.into_iter().map(|(_, end)| end));
    of_jobs.clear();
    steps.push(Step::Write(Box::new(batch)));
    Ok(())
}

/// The effect of the changes so far on one job.
#[derive(Default)]
struct Fold<'a> {
    created: Option<(&'a JobRow, &'a Bytes)>,
    must_live: bool,
    ended: bool,
    touched: bool,
    status: Option<&'a JobStatus>,
    /// The stored open attempt that goes.
    removed: Option<Fence>,
    open: Open<'a>,
}

/// The effect of the changes so far on a job's open attempt.
#[derive(Clone, Copy, Default)]
enum Open<'a> {
    /// None: the stored one stays.
    #[default]
    Untouched,
    /// There is none, and none was stored when the batch began (or it was removed).
    None,
    /// There is none, and the store must not have had one: it was opened and closed here.
    NeverStored,
    /// One was opened here.
    Opened(&'a OpenAttempt),
    /// The stored one was replaced; it has this lease epoch.
    Started(&'a OpenAttempt, u32),
}

impl<'a> Fold<'a> {
    fn apply(&mut self, seq: Seq, change: &'a Change) -> Result<(), StoreError> {
        match change {
            Change::JobCreated { row, payload } => self.create(row, payload)?,
            Change::JobMoved { status, .. } => {
                self.live(seq)?;
                self.status = Some(status);
            }
            Change::AttemptOpened(open) => {
                self.live(seq)?;
                self.open(open)?;
            }
            Change::AttemptStarted(open) | Change::LeaseExtended(open) | Change::HolderChanged(open) => {
                self.put(open)?;
            }
            Change::AttemptRebound(open) => self.rebind(open)?,
            Change::AttemptClosed(closed) => self.close(seq, &closed.open.fence)?,
            Change::JobEnded(_) => {
                self.live(seq)?;
                self.ended = true;
            }
            _ => {}
        }
        self.touched = true;
        Ok(())
    }

    fn create(&mut self, row: &'a JobRow, payload: &'a Bytes) -> Result<(), StoreError> {
        if self.created.is_some() {
            return Err(StoreError::Rejected(format!("job {}: its number is taken", row.id)));
        }
        if self.touched {
            return Err(disagree(row.seq, "is changed before it is created"));
        }
        self.created = Some((row, payload));
        self.status = Some(&row.status);
        self.open = Open::None;
        Ok(())
    }

    fn live(&mut self, seq: Seq) -> Result<(), StoreError> {
        if self.ended {
            return Err(disagree(seq, "has ended already"));
        }
        self.must_live = true;
        Ok(())
    }

    fn open(&mut self, open: &'a OpenAttempt) -> Result<(), StoreError> {
        match self.open {
            Open::Untouched | Open::None | Open::NeverStored => {
                self.open = Open::Opened(open);
                Ok(())
            }
            Open::Opened(_) | Open::Started(..) => Err(disagree(open.seq, "has an open attempt already")),
        }
    }

    /// The row of the open attempt changes; its fence does not.
    fn put(&mut self, open: &'a OpenAttempt) -> Result<(), StoreError> {
        self.open = match self.open {
            Open::Untouched => Open::Started(open, open.fence.lease_epoch),
            Open::Started(now, stored) if now.fence == open.fence => Open::Started(open, stored),
            Open::Opened(now) if now.fence == open.fence => Open::Opened(open),
            _ => return Err(disagree(open.seq, "has no open attempt with that fence")),
        };
        Ok(())
    }

    /// The next lease epoch of the same attempt.
    fn rebind(&mut self, open: &'a OpenAttempt) -> Result<(), StoreError> {
        let before =
            open.fence.lease_epoch.checked_sub(1).map(|epoch| Fence { lease_epoch: epoch, ..open.fence });
        self.open = match (self.open, before) {
            (Open::Untouched, Some(before)) => Open::Started(open, before.lease_epoch),
            (Open::Started(now, stored), Some(before)) if now.fence == before => Open::Started(open, stored),
            (Open::Opened(now), Some(before)) if now.fence == before => Open::Opened(open),
            _ => return Err(disagree(open.seq, "has no open attempt with the fence before that")),
        };
        Ok(())
    }

    fn close(&mut self, seq: Seq, fence: &Fence) -> Result<(), StoreError> {
        self.open = match self.open {
            Open::Untouched => {
                self.removed = Some(*fence);
                Open::None
            }
            Open::Started(now, stored) if now.fence == *fence => {
                self.removed = Some(Fence { lease_epoch: stored, ..*fence });
                Open::None
            }
            Open::Opened(now) if now.fence == *fence => {
                if self.created.is_some() || self.removed.is_some() {
                    Open::None
                } else {
                    Open::NeverStored
                }
            }
            _ => return Err(disagree(seq, "has no open attempt with that fence")),
        };
        Ok(())
    }

    fn emit(self, seq: Seq, batch: &mut Batch<'a>) {
        match (self.created, self.status) {
            (Some((row, payload)), Some(status)) => batch.jobs.push(JobImage { row, status, payload }),
            (None, Some(status)) => batch.moved.push((seq, status)),
            (_, None) => {}
        }
        if self.must_live && self.created.is_none() {
            batch.must_live.push(seq);
        }
        if let Some(fence) = self.removed {
            batch.closed.push((seq, fence));
        }
        match self.open {
            Open::Untouched | Open::None => {}
            Open::NeverStored => batch.not_open.push(seq),
            Open::Opened(open) => batch.opened.push(open),
            Open::Started(open, stored) => batch.started.push((open, stored)),
        }
    }
}

fn disagree(seq: Seq, what: &str) -> StoreError {
    StoreError::Disagree(format!("job {} {what}", seq.0))
}

#[cfg(test)]
mod tests;
