//! The state that follows from the committed changes and events, kept in plain lists.
//!
//! The ledger follows the stream of durable effects and nothing else. It rejects whatever the life of a job does not
//! allow, and it keeps two pictures of every job that must agree: one from the changes, one from the events. It judges
//! neither time nor causes nor limits: that is the checker's and the reference's work.

mod documents;
mod entry;
mod purge;

use std::collections::{BTreeMap, BTreeSet};

use laneway_core::{
    AttemptEnd, AttemptId, CallRow, Change, ClosedAttempt, DeliveryRow, DeliveryState, Effects, Event,
    EventKind, Fence, JobEnd, JobId, JobRow, JobState, JobStatus, KeptKeys, Name, OpenAttempt, Reason,
    Record, RecordName, RunRow, RunState, Seq, SessionRow, TokenRecord, Wall,
};

use crate::calendar::Calendar;
use crate::violation::{Checked, Violation, hold};

/// Everything that is durable, as far as the changes show it.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Jobs that are live, and ended ones whose last attempt still holds its gates.
    pub jobs: BTreeMap<Seq, Entry>,
    /// Jobs that have ended and run no more.
    pub ended: BTreeMap<Seq, Entry>,
    /// The number of every job ever stored, by id.
    pub ids: BTreeMap<JobId, Seq>,
    /// Every fence ever opened, with how it ended once it has.
    pub fences: BTreeMap<AttemptId, (Fence, Option<AttemptEnd>)>,
    /// Who held each closed attempt that a worker had asked for.
    pub holders: BTreeMap<AttemptId, Name>,
    /// Which dispatch every attempt was.
    pub dispatches: BTreeMap<AttemptId, u64>,
    /// Every token, as it was put last.
    pub tokens: BTreeMap<Name, TokenRecord>,
    /// What is known of sessions beside their jobs.
    pub sessions: BTreeMap<(Name, Name), SessionRow>,
    /// Schedules, slots and the firing log.
    pub calendar: Calendar,
    /// Every delivery that is or was owed, as it was put last.
    pub deliveries: BTreeMap<Seq, DeliveryRow>,
    /// Workflow runs by their first jobs, ended ones included.
    pub runs: BTreeMap<Seq, RunEntry>,
    /// The latest call of every node that was called.
    pub calls: BTreeMap<Seq, CallRow>,
    /// The keys that ended jobs keep.
    pub kept_keys: BTreeMap<JobId, KeptKeys>,
    /// Every record, as it was put last.
    pub records: BTreeMap<RecordName, Record>,
    /// Number of the latest event.
    pub last_event: u64,
    /// Jobs touched by the commit that is being followed.
    touched: BTreeSet<Seq>,
    /// The job that a call has changed, until its status follows.
    revised: Option<Seq>,
}

/// One simulated attempt.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// The row as stored.
    pub row: RunRow,
    /// Attempts opened so far, over all members.
    pub attempts: u64,
    /// True once retention was allowed to forget it.
    pub purgeable: bool,
}

/// One job.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The row as stored. Its status is written when the job moves, not when an attempt opens.
    pub row: JobRow,
    /// The lane it really runs in: its row's, or `main` once a server was built that does not know that one.
    pub lane: Name,
    /// Its position in the order of its lane and session: its row's, unless its time came sooner. The checker sets it.
    pub rank_time: u64,
    /// Attempts opened so far.
    pub attempts: u32,
    /// Where it stands by the changes. An ended job's is terminal even while its attempt is still running.
    pub state: JobState,
    /// The open attempt.
    pub open: Option<OpenAttempt>,
    /// How it ended.
    pub end: Option<JobEnd>,
    /// Attempts that are closed, except the one that ended it.
    pub closed: Vec<ClosedAttempt>,
    /// Numbers of its events.
    pub events: Vec<u64>,
    /// Lines it wrote.
    pub log_lines: usize,
    /// True once retention was allowed to forget it.
    pub purgeable: bool,
    /// True once a call has deleted it.
    pub deleted: bool,
    /// Until when its first attempt must open, on the world's own clock. The checker sets it.
    pub queue_until: Option<u64>,
    /// An attempt closed in this commit, and no change of the job has followed yet.
    between: bool,
    /// The picture that the events give.
    by_events: JobEvents,
}

/// The state of a job by its events alone.
#[derive(Clone, Debug, Default)]
struct JobEvents {
    /// `None`: submitted, and either scheduled or queued.
    state: Option<JobState>,
    /// Number of the latest event.
    last: u64,
}

impl Ledger {
    /// Every job with an open attempt, ended ones included.
    pub fn open(&self) -> impl Iterator<Item = &Entry> {
        self.jobs.values().filter(|entry| entry.open.is_some())
    }

    /// Every waiting job.
    pub fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.jobs.values().filter(|entry| entry.is_waiting())
    }

    /// Every delivery that waits.
    pub fn waiting_deliveries(&self) -> impl Iterator<Item = &DeliveryRow> {
        self.deliveries.values().filter(|row| row.state == DeliveryState::Waiting)
    }

    /// A job, live or ended, by its id.
    pub fn find(&self, id: JobId) -> Option<&Entry> {
        let seq = self.ids.get(&id)?;
        self.jobs.get(seq).or_else(|| self.ended.get(seq))
    }

    /// The open attempt that this fence fits exactly.
    pub fn fits(&self, fence: &Fence) -> Option<&Entry> {
        self.find(fence.job).filter(|entry| entry.open.as_ref().is_some_and(|open| open.fence == *fence))
    }

    /// Takes one change.
    pub fn change(&mut self, change: &Change) -> Checked {
        match change {
            Change::JobCreated { row, payload } => self.created(row, payload.len()),
            Change::JobMoved { seq, status } => self.moved(*seq, status),
            Change::JobRevised { seq, priority, rank_time, not_before } => {
                self.revise(*seq, *priority, *rank_time, *not_before)
            }
            Change::JobDeleted(seq) => self.delete(*seq),
            Change::AttemptOpened(open) => self.opened(open),
            Change::AttemptStarted(open) | Change::LeaseExtended(open) | Change::HolderChanged(open) => {
                self.attempt_changed(change, open)
            }
            Change::AttemptRebound(open) => self.rebound(open),
            Change::AttemptClosed(closed) => self.closed(closed),
            Change::JobEnded(end) => self.job_ended(end),
            Change::LogAppended { seq, attempt, lines } => {
                let entry = self.entry(*seq)?;
                entry.log_lines += lines.len();
                let fits = entry.open.as_ref().is_some_and(|open| open.fence.attempt == *attempt);
                hold("I11", fits, || {
                    format!("a log line for job {} attempt {attempt}, which is not open", seq.0)
                })
            }
            Change::JobsPruned { lane, finished_before, keyed_finished_before, .. } => {
                self.may_forget_jobs(lane, *finished_before, *keyed_finished_before);
                Ok(())
            }
            Change::RunCreated(_)
            | Change::RunDefined { .. }
            | Change::RunMoved { .. }
            | Change::RunsPruned { .. } => self.run_change(change),
            Change::CallPut(row) => {
                self.calls.insert(row.target, CallRow::clone(row));
                Ok(())
            }
            Change::TokenPut(token) => {
                self.tokens.insert(token.id.clone(), TokenRecord::clone(token));
                Ok(())
            }
            Change::DeliveryPut(row) => {
                self.deliveries.insert(row.seq, DeliveryRow::clone(row));
                Ok(())
            }
            Change::SessionPut(row) => {
                self.sessions.insert((row.tenant.clone(), row.key.clone()), SessionRow::clone(row));
                Ok(())
            }
            Change::SessionForgotten { tenant, key } => {
                let known = self.sessions.remove(&(tenant.clone(), key.clone())).is_some();
                hold("I1", known, || format!("session {key} is forgotten and was never known"))
            }
            Change::TokenForgotten(id) => {
                let known = self.tokens.remove(id).is_some();
                hold("I1", known, || format!("token {id} is forgotten and was never known"))?;
                let closed = !self.tokens.is_empty();
                hold("I1", closed, || format!("token {id} was the last one: a server without any is open"))
            }
            Change::DeliveryTried(_)
            | Change::EventsPruned { .. }
            | Change::OverridesPut(_)
            | Change::ClockSeen(_) => Ok(()),
            Change::KeysKept(_)
            | Change::KeysReleased(_)
            | Change::RecordPut { .. }
            | Change::RecordDeleted { .. } => self.document_change(change),
            of_schedule => self.calendar.change(of_schedule),
        }
    }

    /// Takes the events of a commit, then compares them with its changes.
    pub fn close_commit(&mut self, effects: &Effects) -> Checked {
        for event in &effects.events {
            self.event(event)?;
        }
        for seq in std::mem::take(&mut self.touched) {
            let Some(entry) = self.jobs.get(&seq) else { continue };
            hold("I9", !entry.between, || {
                format!("an attempt of job {} closed and no change of the job follows", seq.0)
            })?;
            entry.agrees()?;
            if entry.end.is_some() && entry.open.is_none() {
                let entry = self.jobs.remove(&seq).expect("it was just there");
                self.ended.insert(seq, entry);
            }
        }
        Ok(())
    }

    fn entry(&mut self, seq: Seq) -> Result<&mut Entry, Violation> {
        self.touched.insert(seq);
        let ended = self.ended.contains_key(&seq);
        self.jobs.get_mut(&seq).ok_or_else(|| {
            let rule = if ended { "I8" } else { "I2" };
            Violation::new(
                rule,
                format!("a change of job {}, which {}", seq.0, if ended { "has ended" } else { "never was" }),
            )
        })
    }

    fn created(&mut self, row: &JobRow, payload_len: usize) -> Checked {
        let seq = row.seq;
        let fresh = self.ids.insert(row.id, seq).is_none()
            && !self.jobs.contains_key(&seq)
            && !self.ended.contains_key(&seq);
        hold("I2", fresh, || format!("job {} ({}) is stored twice", seq.0, row.id))?;
        let state = row.status.state;
        hold("I9", matches!(state, JobState::Scheduled | JobState::Queued), || {
            format!("job {} begins as {state}", seq.0)
        })?;
        let unused = row.status.attempts == 0 && row.status.failures == 0 && row.status.losses == 0;
        hold("I10", unused, || format!("job {} begins with used counters", seq.0))?;
        hold("I1", row.payload_len as usize == payload_len, || {
            format!("job {} has the wrong payload length", seq.0)
        })?;
        let entry = Entry {
            lane: row.spec.lane.clone(),
            rank_time: row.rank_time,
            row: row.clone(),
            attempts: 0,
            state,
            open: None,
            end: None,
            closed: Vec::new(),
            events: Vec::new(),
            log_lines: 0,
            purgeable: false,
            deleted: false,
            queue_until: None,
            between: false,
            by_events: JobEvents::default(),
        };
        self.jobs.insert(seq, entry);
        self.touched.insert(seq);
        Ok(())
    }

    fn moved(&mut self, seq: Seq, status: &JobStatus) -> Checked {
        let by_call = self.revised.take() == Some(seq);
        let entry = self.entry(seq)?;
        hold("I8", entry.end.is_none(), || format!("job {} moves after its end", seq.0))?;
        hold("I9", entry.open.is_none(), || format!("job {} moves while an attempt is open", seq.0))?;
        // A waiting job may be noted something: that it is denied, or that its deadline is near.
        let note = entry.state == JobState::Queued && status.state == JobState::Queued;
        // A released member may have to wait for its time.
        let later = entry.waits_upstream() && status.state == JobState::Scheduled;
        // A node that is called waits for its next call when it has answered, or when no caller waits for it any more.
        let returns = entry.is_called() && status.state == JobState::Scheduled && status.wake_at.is_none();
        let stays = by_call && entry.state == status.state;
        let edge = (note || later || returns || stays || entry.state.allows(status.state))
            && matches!(status.state, JobState::Scheduled | JobState::Queued);
        hold("I9", edge, || format!("job {} goes from {} to {}", seq.0, entry.state, status.state))?;
        let old = &entry.row.status;
        let counts = status.attempts == entry.attempts
            && (status.failures == old.failures || status.failures == old.failures + 1)
            && (status.losses == old.losses || status.losses == old.losses + 1)
            && (status.rejections == old.rejections || status.rejections == old.rejections + 1)
            && (!note
                || status.failures + status.losses + status.rejections
                    == old.failures + old.losses + old.rejections)
            && status.near_deadline >= old.near_deadline;
        let anew = (status.failures, status.losses, status.rejections) == (0, 0, 0);
        let counts = if returns { anew && status.attempts == entry.attempts } else { counts };
        hold("I10", counts, || format!("the counters of job {} jump from {old:?} to {status:?}", seq.0))?;
        let timed = status.wake_at.is_some() == (status.state == JobState::Scheduled);
        let untimed = stays && (entry.waits_upstream() || entry.waits_for_call()) && status.wake_at.is_none();
        hold("I9", timed || returns || untimed, || {
            format!("job {} is {} with wake_at {:?}", seq.0, status.state, status.wake_at)
        })?;
        entry.row.status = status.clone();
        entry.state = status.state;
        entry.between = false;
        Ok(())
    }

    fn opened(&mut self, open: &OpenAttempt) -> Checked {
        let known = self.fences.insert(open.fence.attempt_id, (open.fence, None)).is_some();
        self.dispatches.insert(open.fence.attempt_id, open.dispatch_seq);
        let entry = self.entry(open.seq)?;
        let seq = open.seq.0;
        hold("I8", entry.end.is_none(), || format!("an attempt of job {seq} opens after its end"))?;
        hold("I10", entry.open.is_none(), || format!("two attempts of job {seq} are open"))?;
        hold("I9", entry.state == JobState::Queued && !entry.between, || {
            format!("an attempt of job {seq} opens while the job is {}", entry.state)
        })?;
        hold("I11", !known, || format!("the attempt id {} is used twice", open.fence.attempt_id))?;
        let next = open.fence.attempt == entry.attempts + 1 && open.fence.job == entry.row.id;
        hold("I10", next, || {
            format!("attempt {} of job {seq} follows attempt {}", open.fence.attempt, entry.attempts)
        })?;
        let begins = open.state.is_open() && (open.state == JobState::Running) == open.started_at.is_some();
        hold("I9", begins, || format!("an attempt of job {seq} opens as {}", open.state))?;
        entry.attempts = open.fence.attempt;
        entry.state = open.state;
        entry.open = Some(open.clone());
        let of = entry.row.spec.member.as_ref().map(|of| of.run);
        if let Some(run) = self.runs.values_mut().find(|run| Some(run.row.id) == of) {
            run.attempts += 1;
        }
        Ok(())
    }

    /// The open attempt starts, has a longer lease, or has another holder; nothing else of it may change.
    fn attempt_changed(&mut self, change: &Change, open: &OpenAttempt) -> Checked {
        let entry = self.entry(open.seq)?;
        let stored = entry.open.as_mut().filter(|stored| stored.fence == open.fence);
        let Some(stored) = stored else {
            return Err(Violation::new(
                "I11",
                format!("attempt {} of job {} changes, but is not open", open.fence.attempt, open.seq.0),
            ));
        };
        let starts = stored.state == JobState::Assigned
            && open.state == JobState::Running
            && open.started_at.is_some();
        let same = OpenAttempt { lease: open.lease, last_event: open.last_event, ..stored.clone() } == *open;
        let lengthens = same && stored.lease < open.lease;
        let same = OpenAttempt { holder: open.holder.clone(), last_event: open.last_event, ..stored.clone() }
            == *open;
        let held = same && stored.holder != open.holder;
        let fits = match change {
            Change::LeaseExtended(_) => lengthens,
            Change::HolderChanged(_) => held,
            _ => starts,
        };
        hold("I9", fits, || format!("job {} goes from {} to {}", open.seq.0, stored.state, open.state))?;
        let worker = |open: &OpenAttempt| open.holder.as_ref().map(|holder| holder.worker.clone());
        hold("I11", stored.holder.is_none() || worker(stored) == worker(open), || {
            format!(
                "the attempt of job {} is taken from {:?} and given to {:?}",
                open.seq.0, stored.holder, open.holder
            )
        })?;
        *stored = open.clone();
        if entry.end.is_none() {
            entry.state = open.state;
        }
        Ok(())
    }

    /// The same attempt under the next lease epoch; nothing else may change.
    fn rebound(&mut self, open: &OpenAttempt) -> Checked {
        self.fences.insert(open.fence.attempt_id, (open.fence, None));
        let entry = self.entry(open.seq)?;
        let same = entry.open.as_ref().is_some_and(|stored| {
            let fence = Fence { lease_epoch: stored.fence.lease_epoch + 1, ..stored.fence };
            let lease = stored.lease.max(open.lease);
            OpenAttempt { fence, lease, last_event: open.last_event, ..stored.clone() } == *open
        });
        hold("I11", same, || format!("job {} is rebound as {open:?}, not as it was", open.seq.0))?;
        entry.open = Some(open.clone());
        Ok(())
    }

    fn closed(&mut self, closed: &ClosedAttempt) -> Checked {
        let seq = closed.open.seq;
        let fence = closed.open.fence;
        let entry = self.entry(seq)?;
        let open = entry.open.take().filter(|open| open.fence == fence);
        let Some(open) = open else {
            return Err(Violation::new(
                "I12",
                format!("attempt {} of job {} closes, but is not open", fence.attempt, seq.0),
            ));
        };
        hold("I7", open.executor == closed.open.executor && open.opened_at == closed.open.opened_at, || {
            format!("attempt {} of job {} closes as another than it opened", fence.attempt, seq.0)
        })?;
        entry.between = entry.end.is_none();
        if !closed.last {
            entry.closed.push(closed.clone());
        }
        if let Some(known) = self.fences.get_mut(&fence.attempt_id) {
            known.1 = Some(closed.end);
        }
        if let Some(holder) = &closed.open.holder {
            self.holders.insert(fence.attempt_id, holder.worker.clone());
        }
        Ok(())
    }

    fn job_ended(&mut self, end: &JobEnd) -> Checked {
        let entry = self.entry(end.seq)?;
        let seq = end.seq.0;
        hold("I8", entry.end.is_none(), || format!("job {seq} ends twice"))?;
        // A rejection that is kept is made and ended in one commit; nothing else leads there.
        let kept_rejection = end.state == JobState::Rejected && entry.by_events.last == 0;
        let edge = end.state.is_terminal() && (entry.state.allows(end.state) || kept_rejection);
        hold("I9", edge, || format!("job {seq} goes from {} to {}", entry.state, end.state))?;
        let old = &entry.row.status;
        let counts = end.attempts == entry.attempts
            && (end.failures == old.failures || end.failures == old.failures + 1)
            && (end.losses == old.losses || end.losses == old.losses + 1);
        hold("I10", counts, || format!("the counters of job {seq} jump from {old:?} to its end {end:?}"))?;
        entry.state = end.state;
        entry.end = Some(end.clone());
        entry.between = false;
        Ok(())
    }

    fn run_change(&mut self, change: &Change) -> Checked {
        match change {
            Change::RunCreated(row) => {
                let entry = RunEntry { row: RunRow::clone(row), attempts: 0, purgeable: false };
                let fresh = self.runs.insert(row.first, entry).is_none();
                hold("I2", fresh && row.state == RunState::Queued, || format!("{} is stored twice", row.id))
            }
            Change::RunMoved { first, state, finished_at } => {
                let Some(run) = self.runs.get_mut(first) else {
                    return Err(Violation::new("I2", format!("the run from job {} on never was", first.0)));
                };
                let was = run.row.state;
                hold("R3", !was.is_terminal() && was < *state, || {
                    format!("{} goes from {was} to {state}", run.row.id)
                })?;
                (run.row.state, run.row.finished_at) = (*state, *finished_at);
                Ok(())
            }
            Change::RunsPruned { lane, finished_before, keyed_finished_before, .. } => {
                self.may_forget_runs(lane, *finished_before, *keyed_finished_before);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn event(&mut self, event: &Event) -> Checked {
        hold("I7", event.number == self.last_event + 1, || {
            format!("event {} follows event {}", event.number, self.last_event)
        })?;
        self.last_event = event.number;
        let Some(line) = &event.job else { return Ok(()) };
        if event.kind == EventKind::JobDeleted {
            return self.deletion_event(event, line.seq);
        }
        let Some(entry) = self.jobs.get_mut(&line.seq) else {
            return Err(Violation::new(
                "I7",
                format!("event {} is about job {}, which is not there", event.number, line.seq.0),
            ));
        };
        self.touched.insert(line.seq);
        hold("I7", line.previous == entry.by_events.last, || {
            format!(
                "event {} of job {} names {} as the one before it, not {}",
                event.number, line.seq.0, line.previous, entry.by_events.last
            )
        })?;
        let spec = &entry.row.spec;
        let same = line.id == entry.row.id
            && line.kind == spec.kind
            && line.lane == entry.lane
            && line.agent == spec.agent;
        hold("I7", same, || format!("event {} does not fit job {}", event.number, line.seq.0))?;
        hold("X1", event.tenant.as_ref() == Some(&spec.tenant), || {
            format!("event {} of job {} belongs to another tenant", event.number, line.seq.0)
        })?;
        entry.by_events.last = event.number;
        entry.events.push(event.number);
        entry.by_events.follow(event.kind, line.reason).map_err(|story| {
            Violation::new("I9", format!("event {} of job {}: {story}", event.number, line.seq.0))
        })
    }
}

impl JobEvents {
    /// Takes the transition of the event. It must be one of THE table.
    fn follow(&mut self, kind: EventKind, reason: Option<Reason>) -> Result<(), String> {
        let next = match kind {
            EventKind::JobSubmitted => return Ok(()),
            EventKind::JobReturned if self.state.is_none_or(|state| !state.is_terminal()) => {
                self.state = Some(JobState::Scheduled);
                return Ok(());
            }
            EventKind::JobQueued => JobState::Queued,
            EventKind::JobAssigned => JobState::Assigned,
            EventKind::JobStarted => JobState::Running,
            EventKind::JobRetrying | EventKind::JobDeferred => JobState::Scheduled,
            // A job whose new time has come is queued next.
            EventKind::JobRescheduled if self.state != Some(JobState::Scheduled) => JobState::Scheduled,
            EventKind::JobSucceeded => JobState::Succeeded,
            EventKind::JobFailed => JobState::Failed,
            EventKind::JobCanceled => JobState::Canceled,
            EventKind::JobRejected if self.state.is_none() && reason.is_some() => {
                self.state = Some(JobState::Rejected);
                return Ok(());
            }
            EventKind::JobRejected => return Err(format!("rejected follows {:?}", self.state)),
            _ => return Ok(()),
        };
        let legal = match self.state {
            None => JobState::Scheduled.allows(next) || JobState::Queued.allows(next),
            Some(state) => state.allows(next),
        };
        if !legal {
            return Err(format!("{} follows {:?}", next, self.state));
        }
        if next.is_terminal() && reason.is_none() {
            return Err(format!("{next} has no reason"));
        }
        self.state = Some(next);
        Ok(())
    }
}

impl Entry {
    /// The picture of the events is the picture of the changes.
    fn agrees(&self) -> Checked {
        let seq = self.row.seq.0;
        let same = match self.by_events.state {
            None => matches!(self.state, JobState::Scheduled | JobState::Queued),
            Some(state) => state == self.state,
        };
        hold("I7", same, || {
            format!("by its events job {seq} is {:?}, by its changes {}", self.by_events.state, self.state)
        })?;
        let last = match (&self.open, &self.end) {
            (Some(open), _) => open.last_event,
            (None, Some(end)) => end.last_event,
            (None, None) => self.row.status.last_event,
        };
        // An attempt that outlives its job gets one more event when it ends, and there is no row left to name it.
        let released = self.end.is_some();
        hold("I7", last == self.by_events.last || released, || {
            format!("the latest event of job {seq} is {}, its row has {last}", self.by_events.last)
        })
    }

    /// When the job becomes due, for one that waits for a time.
    pub fn wake_at(&self) -> Option<Wall> {
        self.row.status.wake_at
    }
}
