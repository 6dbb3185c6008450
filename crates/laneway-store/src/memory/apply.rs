//! Applies one commit to the memory store: change by change, all or nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use laneway_core::command::LogLine;
use laneway_core::{
    Bytes, Change, ClosedAttempt, DeliveryRow, DeliveryTry, Effects, Event, Fence, JobEnd, JobId, JobRow,
    JobStatus, KeptKeys, Name, OpenAttempt, Record, RecordName, Seq, SessionRow, TokenRecord, Wall,
};

use super::state::{EventBatch, Job, State};
use super::{runs, schedules};
use crate::batch::Revision;
use crate::logs::stream_of;
use crate::{LogView, StoreError};

/// Applies everything, or fails and leaves the state as it was.
pub(super) fn commit(state: &mut State, effects: &Effects) -> Result<(), StoreError> {
    check_numbers(state, &effects.events)?;
    let mut commit = Commit { before: Before::of(state), state };
    let result = effects.changes.iter().try_for_each(|change| commit.apply(change));
    if result.is_err() {
        commit.undo();
        return result;
    }
    let at = effects.events.iter().map(|event| event.at).max();
    if let (Some(at), Some(last)) = (at, effects.events.last()) {
        commit.state.last_event = last.number;
        commit.state.batches.push_back(Arc::new(EventBatch { at, events: effects.events.as_slice().into() }));
    }
    Ok(())
}

/// Event numbers have no gaps, so that a reader knows that it has seen everything.
fn check_numbers(state: &State, events: &[Event]) -> Result<(), StoreError> {
    for (event, number) in events.iter().zip(state.last_event + 1..) {
        if event.number != number {
            return Err(disagree(format!("event {} comes where {number} must", event.number)));
        }
    }
    Ok(())
}

/// A commit under way: the state, and the old values of what it has changed.
struct Commit<'a> {
    state: &'a mut State,
    before: Before,
}

/// The state before the commit, as far as the commit has changed it.
struct Before {
    /// Touched jobs; `None`: it was not there.
    jobs: BTreeMap<Seq, Option<Arc<Job>>>,
    batches: Option<VecDeque<Arc<EventBatch>>>,
    tokens: Option<BTreeMap<Name, TokenRecord>>,
    sessions: Option<BTreeMap<(Name, Name), SessionRow>>,
    kept_keys: Option<BTreeMap<JobId, KeptKeys>>,
    records: Option<BTreeMap<RecordName, Record>>,
    overrides: Option<Bytes>,
    clock_seen: Option<Wall>,
    last_seq: u64,
    ended: u64,
    schedules: Vec<schedules::Undo>,
    runs: runs::Before,
}

impl Before {
    fn of(state: &State) -> Before {
        Before {
            jobs: BTreeMap::new(),
            batches: None,
            tokens: None,
            sessions: None,
            kept_keys: None,
            records: None,
            overrides: state.overrides.clone(),
            clock_seen: state.clock_seen,
            last_seq: state.last_seq,
            ended: state.ended,
            schedules: Vec::new(),
            runs: runs::Before::default(),
        }
    }
}

impl Commit<'_> {
    fn apply(&mut self, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::JobCreated { row, payload } => self.create_job(row, payload),
            Change::JobMoved { seq, status } => self.move_job(*seq, status),
            Change::JobRevised { seq, priority, rank_time, not_before } => {
                self.revise_job(Revision::new(*seq, *priority, *rank_time, *not_before))
            }
            Change::JobDeleted(seq) => self.delete_job(*seq),
            Change::AttemptOpened(open) => self.open_attempt(open),
            Change::AttemptStarted(open) | Change::LeaseExtended(open) | Change::HolderChanged(open) => {
                self.put_attempt(open)
            }
            Change::AttemptRebound(open) => self.rebind_attempt(open),
            Change::AttemptClosed(closed) => self.close_attempt(closed),
            Change::JobEnded(end) => self.end_job(end),
            Change::LogAppended { seq, attempt, lines } => self.append_log(*seq, *attempt, lines),
            Change::JobsPruned { lane, finished_before, keyed_finished_before, max } => {
                self.prune_jobs(lane, *finished_before, *keyed_finished_before, *max);
                Ok(())
            }
            Change::EventsPruned { before } => {
                self.prune_events(*before);
                Ok(())
            }
            Change::OverridesPut(bytes) => {
                self.state.overrides = Some(Bytes::clone(bytes));
                Ok(())
            }
            Change::DeliveryPut(row) => self.put_delivery(row),
            Change::DeliveryTried(tried) => self.put_try(tried),
            Change::TokenPut(token) => {
                self.tokens().insert(token.id.clone(), TokenRecord::clone(token));
                Ok(())
            }
            Change::TokenForgotten(id) => {
                self.tokens().remove(id);
                Ok(())
            }
            Change::ClockSeen(at) => {
                self.state.clock_seen = Some(*at);
                Ok(())
            }
            Change::SessionPut(row) => {
                let key = (row.tenant.clone(), row.key.clone());
                self.sessions().insert(key, SessionRow::clone(row));
                Ok(())
            }
            Change::SessionForgotten { tenant, key } => {
                self.sessions().remove(&(tenant.clone(), key.clone()));
                Ok(())
            }
            Change::RunDefined { first, definition } => {
                self.stored_job(*first)?.definition = Some(Bytes::clone(definition));
                Ok(())
            }
            Change::RunCreated(_) | Change::RunMoved { .. } | Change::CallPut(_) => {
                runs::apply(self.state, change, &mut self.before.runs)
            }
            Change::RunsPruned { lane, finished_before, keyed_finished_before, max } => {
                self.prune_ended_runs(lane, *finished_before, *keyed_finished_before, *max);
                Ok(())
            }
            Change::KeysKept(row) => self.keep_keys(row),
            Change::KeysReleased(job) => self.release_keys(*job),
            Change::RecordPut { record, replaces } => self.put_record(record, *replaces),
            Change::RecordDeleted { name, version } => self.delete_record(name, *version),
            of_schedule => schedules::apply(self.state, of_schedule, &mut self.before.schedules),
        }
    }

    /// Not where the job is deleted.
    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), StoreError> {
        if let Ok(job) = self.stored_job(row.seq) {
            job.delivery = Some(row.clone());
        }
        Ok(())
    }

    /// Not where the job is deleted.
    fn put_try(&mut self, tried: &DeliveryTry) -> Result<(), StoreError> {
        if let Ok(job) = self.stored_job(tried.seq) {
            job.tries.push(tried.clone());
        }
        Ok(())
    }

    fn tokens(&mut self) -> &mut BTreeMap<Name, TokenRecord> {
        self.before.tokens.get_or_insert_with(|| self.state.tokens.clone());
        &mut self.state.tokens
    }

    fn sessions(&mut self) -> &mut BTreeMap<(Name, Name), SessionRow> {
        self.before.sessions.get_or_insert_with(|| self.state.sessions.clone());
        &mut self.state.sessions
    }

    fn keep_keys(&mut self, row: &KeptKeys) -> Result<(), StoreError> {
        self.before.kept_keys.get_or_insert_with(|| self.state.kept_keys.clone());
        match self.state.kept_keys.insert(row.job, row.clone()) {
            None => Ok(()),
            Some(_) => Err(disagree(format!("job {} keeps keys already", row.job))),
        }
    }

    fn release_keys(&mut self, job: JobId) -> Result<(), StoreError> {
        self.before.kept_keys.get_or_insert_with(|| self.state.kept_keys.clone());
        let released = self.state.kept_keys.remove(&job);
        released.map(drop).ok_or_else(|| disagree(format!("job {job} keeps no keys")))
    }

    fn put_record(&mut self, record: &Record, replaces: Option<u64>) -> Result<(), StoreError> {
        self.before.records.get_or_insert_with(|| self.state.records.clone());
        let was = self.state.records.insert(record.name.clone(), record.clone());
        check_version(&record.name, was.as_ref(), replaces)
    }

    fn delete_record(&mut self, name: &RecordName, version: u64) -> Result<(), StoreError> {
        self.before.records.get_or_insert_with(|| self.state.records.clone());
        let was = self.state.records.remove(name);
        check_version(name, was.as_ref(), Some(version))
    }

    fn create_job(&mut self, row: &JobRow, payload: &Bytes) -> Result<(), StoreError> {
        let rejected = |what: &str| Err(StoreError::Rejected(format!("job {}: {what} is taken", row.id)));
        if self.state.jobs.contains_key(&row.seq) {
            return rejected("its number");
        }
        if self.state.ids.contains_key(&row.id) {
            return rejected("its id");
        }
        let job = Job {
            row: row.clone(),
            payload: Bytes::clone(payload),
            open: None,
            closed: Vec::new(),
            end: None,
            merged: Default::default(),
            logs: Vec::new(),
            definition: None,
            tally: Default::default(),
            delivery: None,
            tries: Vec::new(),
        };
        if job.key().is_some_and(|key| self.state.keys.contains_key(&key)) {
            return rejected("its idempotency key");
        }
        self.before.jobs.entry(row.seq).or_insert(None);
        self.state.last_seq = self.state.last_seq.max(row.seq.0);
        self.state.insert(row.seq, Arc::new(job));
        Ok(())
    }

    fn move_job(&mut self, seq: Seq, status: &JobStatus) -> Result<(), StoreError> {
        let job = self.live_job(seq)?;
        job.row.status = status.clone();
        Ok(())
    }

    fn open_attempt(&mut self, open: &OpenAttempt) -> Result<(), StoreError> {
        let job = self.live_job(open.seq)?;
        if job.open.is_some() {
            return Err(disagree(format!("job {} has an open attempt already", open.seq.0)));
        }
        job.open = Some(open.clone());
        Ok(())
    }

    fn put_attempt(&mut self, open: &OpenAttempt) -> Result<(), StoreError> {
        let job = self.fenced_job(open.seq, &open.fence)?;
        job.open = Some(open.clone());
        Ok(())
    }

    /// The next lease epoch of the same attempt.
    fn rebind_attempt(&mut self, open: &OpenAttempt) -> Result<(), StoreError> {
        let before = Fence { lease_epoch: open.fence.lease_epoch.saturating_sub(1), ..open.fence };
        let job = self.fenced_job(open.seq, &before)?;
        job.open = Some(open.clone());
        Ok(())
    }

    fn close_attempt(&mut self, closed: &ClosedAttempt) -> Result<(), StoreError> {
        let job = self.fenced_job(closed.open.seq, &closed.open.fence)?;
        job.open = None;
        if !closed.last {
            job.closed.push(closed.clone());
        }
        Ok(())
    }

    fn end_job(&mut self, end: &JobEnd) -> Result<(), StoreError> {
        self.state.ended += 1;
        let nth = self.state.ended;
        let job = self.live_job(end.seq)?;
        job.end = Some((end.clone(), nth));
        if let Some(into) = end.merged_into {
            self.live_job(into.seq)?.merged.insert(end.seq);
        }
        Ok(())
    }

    fn append_log(&mut self, seq: Seq, attempt: u32, lines: &[LogLine]) -> Result<(), StoreError> {
        let job = self.stored_job(seq)?;
        for line in lines {
            if let Some(text) = job.tally.admit(line) {
                let stream = stream_of(line, text);
                job.logs.push(LogView {
                    line: job.tally.lines,
                    attempt,
                    at: line.at,
                    stream,
                    text: text.into(),
                });
            }
        }
        Ok(())
    }

    /// Deletes ended jobs of the lane, those that ended first first. An open attempt keeps its job, and so do a live job
    /// that runs for it and a delivery that waits.
    fn prune_jobs(&mut self, lane: &Name, finished_before: Wall, keyed_finished_before: Wall, max: u32) {
        let mut due: Vec<(Wall, u64, Seq)> = Vec::new();
        for (seq, job) in &self.state.jobs {
            let Some((end, nth)) = &job.end else { continue };
            let keyed = job.row.spec.idempotency.is_some();
            if job.row.spec.lane == *lane
                && job.row.spec.member.is_none()
                && end.finished_at < finished_before
                && (!keyed || end.finished_at < keyed_finished_before)
                && job.open.is_none()
                && !self.is_led(end)
                && !job.is_owed()
            {
                due.push((end.finished_at, *nth, *seq));
            }
        }
        due.sort_unstable();
        for (_, _, seq) in due.into_iter().take(usize::try_from(max).unwrap_or(usize::MAX)) {
            self.before.jobs.entry(seq).or_insert_with(|| self.state.jobs.get(&seq).cloned());
            self.state.remove(seq);
        }
    }

    fn revise_job(&mut self, revision: Revision) -> Result<(), StoreError> {
        revision.apply(&mut self.live_job(revision.seq)?.row);
        Ok(())
    }

    /// Deletes an ended job, if it is still there.
    fn delete_job(&mut self, seq: Seq) -> Result<(), StoreError> {
        let Some(job) = self.state.jobs.get(&seq) else { return Ok(()) };
        if job.end.is_none() || job.open.is_some() || job.row.spec.member.is_some() {
            return Err(disagree(format!("job {} is needed and cannot be deleted", seq.0)));
        }
        self.before.jobs.entry(seq).or_insert_with(|| Some(Arc::clone(job)));
        self.state.remove(seq);
        Ok(())
    }

    /// Deletes ended runs of the lane with all their jobs, those that ended first first.
    fn prune_ended_runs(
        &mut self,
        lane: &Name,
        finished_before: Wall,
        keyed_finished_before: Wall,
        max: u32,
    ) {
        for row in runs::due(self.state, lane, finished_before, keyed_finished_before, max) {
            for seq in row.seqs().map(Seq) {
                if let Some(call) = self.state.calls.remove(&seq) {
                    self.before.runs.calls.entry(seq).or_insert(Some(call));
                }
                self.before.jobs.entry(seq).or_insert_with(|| self.state.jobs.get(&seq).cloned());
                self.state.remove(seq);
            }
            self.state.run_rows.remove(&row.first);
            self.before.runs.rows.entry(row.first).or_insert(Some(row));
        }
    }

    /// True while the job that runs for this one has not ended.
    fn is_led(&self, end: &JobEnd) -> bool {
        let leader = end.merged_into.and_then(|into| self.state.jobs.get(&into.seq));
        leader.is_some_and(|leader| leader.end.is_none())
    }

    /// Deletes the oldest batches, up to the first one that has an event from `before` or later.
    fn prune_events(&mut self, before: Wall) {
        self.before.batches.get_or_insert_with(|| self.state.batches.clone());
        let batches = &mut self.state.batches;
        let kept_from = batches.iter().position(|batch| batch.at >= before).unwrap_or(batches.len());
        batches.drain(..kept_from);
    }

    /// The job, ready to be changed; remembered as it was.
    fn stored_job(&mut self, seq: Seq) -> Result<&mut Job, StoreError> {
        let Some(job) = self.state.jobs.get_mut(&seq) else {
            return Err(disagree(format!("there is no job {}", seq.0)));
        };
        self.before.jobs.entry(seq).or_insert_with(|| Some(Arc::clone(job)));
        Ok(Arc::make_mut(job))
    }

    fn live_job(&mut self, seq: Seq) -> Result<&mut Job, StoreError> {
        let job = self.stored_job(seq)?;
        if job.end.is_some() {
            return Err(disagree(format!("job {} has ended already", seq.0)));
        }
        Ok(job)
    }

    fn fenced_job(&mut self, seq: Seq, fence: &Fence) -> Result<&mut Job, StoreError> {
        let job = self.stored_job(seq)?;
        match &job.open {
            Some(open) if open.fence == *fence => Ok(job),
            Some(open) => Err(disagree(format!("job {} has {:?} open, not {fence:?}", seq.0, open.fence))),
            None => Err(disagree(format!("job {} has no open attempt; {fence:?} was to be it", seq.0))),
        }
    }

    fn undo(self) {
        let Before {
            jobs,
            batches,
            tokens,
            sessions,
            kept_keys,
            records,
            overrides,
            clock_seen,
            last_seq,
            ended,
            schedules,
            runs,
        } = self.before;
        schedules::undo(self.state, schedules);
        runs::undo(self.state, runs);
        // All out before any goes in: a pruned job may have had the key of a new one.
        for seq in jobs.keys() {
            self.state.remove(*seq);
        }
        for (seq, job) in jobs {
            if let Some(job) = job {
                self.state.insert(seq, job);
            }
        }
        if let Some(batches) = batches {
            self.state.batches = batches;
        }
        if let Some(tokens) = tokens {
            self.state.tokens = tokens;
        }
        if let Some(sessions) = sessions {
            self.state.sessions = sessions;
        }
        if let Some(kept_keys) = kept_keys {
            self.state.kept_keys = kept_keys;
        }
        if let Some(records) = records {
            self.state.records = records;
        }
        self.state.overrides = overrides;
        self.state.clock_seen = clock_seen;
        self.state.last_seq = last_seq;
        self.state.ended = ended;
    }
}

fn check_version(name: &RecordName, was: Option<&Record>, expected: Option<u64>) -> Result<(), StoreError> {
    let stored = was.map(|record| record.version);
    if stored == expected {
        return Ok(());
    }
    Err(disagree(format!("record {name} of {} has version {stored:?}, not {expected:?}", name.tenant)))
}

fn disagree(what: String) -> StoreError {
    StoreError::Disagree(what)
}
