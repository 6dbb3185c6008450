//! What slots do: a slot whose time has come makes a job, or says in the log why it made none; a run that ends is logged.
//!
//! The job, the row of its slot and the move to the next slot are changes of one turn, so they are durable together or
//! not at all: a slot makes at most one job, whatever crashes. What came once never comes again, whatever the clock says,
//! because no slot up to the last one is ever looked at.

use crate::command::{Rejection, Submission};
use crate::engine::collections::slab::Ix;
use crate::engine::schedules::commands::Run;
use crate::engine::state::Job;
use crate::engine::{Engine, Restart};
use crate::schedule::{
    CatchUp, FiringLogEntry, FiringStatus, Overlap, Schedule, ScheduleLine, ScheduleRef, ScheduleSpec,
    cut_text,
};
use crate::{
    Bytes, Change, Effects, EventKind, Failure, JobId, JobSpec, JobState, Name, Notice, Now, Origin, Reason,
    ScheduleId, Span, Wall,
};

/// Most slots that one tick fires; the rest follow in the next turn, so that commands are heard in between.
pub(in crate::engine) const FIRINGS_MAX: u32 = 256;
/// Most bytes of payloads that one tick fires: one commit stays short enough to be waited for.
const FIRED_BYTES_MAX: usize = 4 << 20;

impl Engine {
    /// Lets every slot come whose time has come.
    pub(in crate::engine) fn fire_schedules(&mut self, now: Now, effects: &mut Effects) {
        if self.server.draining {
            return;
        }
        let (mut left, mut bytes_left) = (FIRINGS_MAX, FIRED_BYTES_MAX);
        while left > 0
            && bytes_left > 0
            && let Some(&(at, id)) = self.schedules.due.first()
            && at <= now.wall
        {
            let bytes = self.schedules.entries[&id].schedule.spec.payload.len().max(1);
            let fits = u32::try_from(bytes_left.div_ceil(bytes)).unwrap_or(left);
            let came = self.fire(now, id, left.min(fits), effects);
            left -= came.clamp(1, left);
            bytes_left = bytes_left.saturating_sub(bytes * came as usize);
        }
    }

    /// Lets the slots of one schedule come, at most `budget`, as far as its policies want them. Gives how many came.
    pub(in crate::engine) fn fire(
        &mut self,
        now: Now,
        id: ScheduleId,
        budget: u32,
        effects: &mut Effects,
    ) -> u32 {
        let entry = &self.schedules.entries[&id];
        let Some(from) = entry.schedule.state.next_at.filter(|at| *at <= now.wall) else { return 0 };
        let catch_up = entry.schedule.spec.catch_up;
        let max = if let CatchUp::All { max } = catch_up { max } else { 1 };
        let (mut slots, left_out) = entry.plan.newest(from, now.wall, max);
        let newest = slots.last().copied().unwrap_or(from);
        if catch_up == CatchUp::Skip && self.is_missed(now, id, newest) {
            slots.clear();
        }
        let missed = left_out || slots.is_empty();
        let later = slots.split_off(slots.len().min(budget as usize));
        if missed {
            let why = format!(
                "missed: nobody was there from {} on (catch_up = {})",
                stamp(from),
                catch_up.as_str()
            );
            self.log_skip(now, id, from, why, effects);
        }
        let came = u32::try_from(slots.len()).unwrap_or(budget);
        for slot in slots {
            self.take_slot(now, id, slot, effects);
        }
        self.move_on(now, id, later.first().copied(), newest, effects);
        came
    }

    /// A slot is missed when it passed before the process started, or is looked at too late.
    fn is_missed(&self, now: Now, id: ScheduleId, slot: Wall) -> bool {
        let entry = &self.schedules.entries[&id];
        entry.missed_until.is_some_and(|until| slot <= until)
            || now.wall.since(slot) > self.settings.schedules.late_max
    }

    /// Where the schedule goes on: with a slot that is left over from this turn, or with the first one after now.
    fn move_on(&mut self, now: Now, id: ScheduleId, left: Option<Wall>, newest: Wall, effects: &mut Effects) {
        let Some(entry) = self.schedules.entries.get_mut(&id) else { return };
        let last = left.map_or(newest, |left| Wall(left.0.saturating_sub(1)));
        let state = &mut entry.schedule.state;
        state.last_slot = Some(state.last_slot.map_or(last, |slot| slot.max(last)));
        let next = left.or_else(|| entry.plan.next_after(now.wall.max(last)));
        if left.is_none() {
            entry.missed_until = None;
        }
        self.schedules.set_next(id, next);
        self.schedule_moved(id, effects);
    }

    /// A slot has come: it makes a job, or waits for a run to end, or is skipped.
    fn take_slot(&mut self, now: Now, id: ScheduleId, slot: Wall, effects: &mut Effects) {
        // A run that was canceled for an earlier slot may have been the last one of a schedule that deletes itself.
        let Some(entry) = self.schedules.entries.get(&id) else { return };
        let overlap = entry.schedule.spec.overlap;
        if overlap == Overlap::CancelRunning {
            return self.replace_runs(now, id, slot, effects);
        }
        self.start_waiting_slot(now, id, effects);
        let Some(entry) = self.schedules.entries.get(&id) else { return };
        if entry.runs.is_empty() || overlap == Overlap::Allow {
            self.start_slot(now, id, slot, effects);
        } else if overlap == Overlap::Skip {
            let why = self.overlap_with(id);
            self.skip_slot(now, id, slot, why, effects);
        } else if entry.schedule.state.waiting_slot.is_none() {
            self.let_slot_wait(id, slot);
        } else {
            self.skip_slot(now, id, slot, "overlap: a slot waits for the run to end already".into(), effects);
        }
    }

    /// Why a slot is skipped: what the run before it is doing. One that has not started keeps its position in the queue and
    /// stands for the slots after it, so that it starts however long it waits, and they do not pile up behind it.
    fn overlap_with(&self, id: ScheduleId) -> String {
        if !self.schedules.is_queued(id) {
            return "overlap: the run before has not ended".to_owned();
        }
        let entry = &self.schedules.entries[&id];
        let unserved = entry.runs.iter().any(|job| self.is_unserved(self.jobs[*job].class));
        let kind = &entry.schedule.spec.job.kind;
        match unserved {
            true => format!(
                "overlap: the run before is queued: no handler, target or worker offers the kind {kind:?}"
            ),
            false => "overlap: the run before is queued and has not started".to_owned(),
        }
    }

    /// The slot takes the place of whatever runs or waits, as soon as that has really ended.
    fn replace_runs(&mut self, now: Now, id: ScheduleId, slot: Wall, effects: &mut Effects) {
        self.drop_waiting_slot(now, id, "overlap: a later slot takes its place", effects);
        self.cancel_runs(now, id, effects);
        match self.schedules.entries.get(&id).map(|entry| entry.runs.is_empty()) {
            Some(true) => self.start_slot(now, id, slot, effects),
            Some(false) => self.let_slot_wait(id, slot),
            None => {}
        }
    }

    fn let_slot_wait(&mut self, id: ScheduleId, slot: Wall) {
        if let Some(entry) = self.schedules.entries.get_mut(&id) {
            entry.schedule.state.waiting_slot = Some(slot);
        }
    }

    fn cancel_runs(&mut self, now: Now, id: ScheduleId, effects: &mut Effects) {
        let runs: Vec<Ix<Job>> = self.schedules.entries[&id].runs.iter().copied().collect();
        for job in runs {
            if self.jobs[job].state.is_terminal() {
                continue;
            }
            if let Some(run) = self.schedules.runs.get_mut(&job) {
                run.replaced = true;
            }
            self.cancel_job(now, job, Reason::Replaced, None, effects);
        }
    }

    /// Makes the job of a slot; a slot that cannot have one says why.
    fn start_slot(&mut self, now: Now, id: ScheduleId, slot: Wall, effects: &mut Effects) {
        match self.make_run(now, id, slot, None, effects) {
            Ok(job) => self.slot_came(id, slot, Some(job), effects),
            Err(rejection) => self.skip_slot(now, id, slot, rejection.to_string(), effects),
        }
        self.remove_if_over(now, id, effects);
    }

    /// Deletes a schedule whose run ended while its job was being made.
    pub(in crate::engine) fn remove_if_over(&mut self, now: Now, id: ScheduleId, effects: &mut Effects) {
        if self.schedules.over.remove(&id) {
            self.remove_schedule(now, id, None, effects);
        }
    }

    fn slot_came(&mut self, schedule: ScheduleId, slot: Wall, job: Option<JobId>, effects: &mut Effects) {
        effects.changes.push(Change::SlotFired { schedule, slot, job });
    }

    /// Makes a job: of a slot, or (`by_hand`) because somebody asked for it.
    pub(in crate::engine) fn make_run(
        &mut self,
        now: Now,
        id: ScheduleId,
        slot: Wall,
        by_hand: Option<&Origin>,
        effects: &mut Effects,
    ) -> Result<JobId, Rejection> {
        let schedule = &self.schedules.entries[&id].schedule;
        let template = &schedule.spec;
        let mut spec = template.job.clone();
        let kind = self.settings.kinds.get(&spec.kind);
        let defaults = &self.settings.schedules;
        spec.timeout = spec.timeout.or(kind.and_then(|kind| kind.timeout)).or(Some(defaults.timeout));
        spec.retry = spec
            .retry
            .or_else(|| kind.and_then(|kind| kind.retry.clone()))
            .or_else(|| Some(defaults.retry.clone()));
        if by_hand.is_none() && template.jitter.0 > 0 {
            spec.not_before = Some(slot + spread(id, slot, template.jitter)).filter(|at| *at > now.wall);
        }
        let name = template.name.clone();
        spec.schedule = Some(ScheduleRef { id, name, slot, by_hand: by_hand.is_some() });
        let origin = by_hand.cloned().unwrap_or_else(|| Origin::server("schedule"));
        let payload = template.payload.clone();
        self.schedules.making = Some(id);
        let submission = Submission::new(spec, payload, origin);
        let submitted = self.submit(now, submission, effects);
        self.schedules.making = None;
        let submitted = submitted?;
        let entry = self.schedules.entries.get_mut(&id).expect("nothing is deleted while its job is made");
        let state = &mut entry.schedule.state;
        state.firings += 1;
        // A job that joined a batch of its session has ended already, and its end is what was written down last.
        if !submitted.state.is_terminal() {
            state.last_status = Some(FiringStatus::Queued);
            state.last_error = None;
        }
        let schedule = entry.schedule.clone();
        self.schedule_event(now, EventKind::ScheduleFired, &schedule, "fired", by_hand, effects);
        if let Some(job) = self.find_job(submitted.job) {
            self.note_unserved(job, &schedule, effects);
        }
        Ok(submitted.job)
    }

    /// A run that no executor can take says so once: who set the schedule up may not look at it for long.
    fn note_unserved(&mut self, job: Ix<Job>, schedule: &Schedule, effects: &mut Effects) {
        let entry = &self.jobs[job];
        if entry.state.is_terminal() || !self.is_unserved(entry.class) {
            return;
        }
        let ScheduleSpec { tenant, name, job: JobSpec { kind, .. }, .. } = &schedule.spec;
        if self.schedules.unserved.insert((tenant.clone(), kind.clone())) {
            let (tenant, schedule, kind) = (tenant.clone(), name.clone(), kind.clone());
            effects.notices.push(Notice::Unserved { tenant, schedule, kind });
        }
    }

    /// A slot passes without a job.
    fn skip_slot(&mut self, now: Now, id: ScheduleId, slot: Wall, why: String, effects: &mut Effects) {
        self.slot_came(id, slot, None, effects);
        self.log_skip(now, id, slot, why, effects);
    }

    fn log_skip(&mut self, now: Now, id: ScheduleId, slot: Wall, why: String, effects: &mut Effects) {
        let Some(entry) = self.schedules.entries.get_mut(&id) else { return };
        let error = cut_text(why.as_bytes());
        if entry.runs.is_empty() {
            entry.schedule.state.last_status = Some(FiringStatus::Skipped);
            entry.schedule.state.last_error = Some(error.clone());
        }
        let spec = &entry.schedule.spec;
        let log = FiringLogEntry {
            number: 0,
            schedule: id,
            tenant: spec.tenant.clone(),
            name: spec.name.clone(),
            agent: spec.job.agent.clone(),
            job: None,
            slot,
            status: FiringStatus::Skipped,
            summary: None,
            error: Some(error),
            attempts: 0,
            duration_ms: 0,
            input_tokens: 0,
            output_tokens: 0,
            ran_at: now.wall,
            ended_at: now.wall,
        };
        self.log_run(now, log, effects);
    }

    /// Keeps an entry of the run log; its event gives it its number.
    fn log_run(&mut self, now: Now, mut log: FiringLogEntry, effects: &mut Effects) {
        let line =
            ScheduleLine { id: log.schedule, action: log.status.as_str().into(), name: log.name.clone() };
        let tenant = Some(log.tenant.clone());
        self.server_event(
            now,
            EventKind::ScheduleFiringEnded,
            tenant,
            None,
            line.to_string().into(),
            effects,
        );
        log.number = self.numbers.last_event;
        self.schedules.remember_run(log.clone());
        effects.changes.push(Change::FiringLogged(Box::new(log)));
    }

    /// A slot that waits for a run to end will not come.
    pub(in crate::engine) fn drop_waiting_slot(
        &mut self,
        now: Now,
        id: ScheduleId,
        why: &str,
        effects: &mut Effects,
    ) {
        let entry = self.schedules.entries.get_mut(&id);
        if let Some(slot) = entry.and_then(|entry| entry.schedule.state.waiting_slot.take()) {
            self.skip_slot(now, id, slot, why.to_owned(), effects);
        }
    }

    /// Starts slots whose schedule's run has ended since.
    pub(in crate::engine) fn settle_schedules(&mut self, now: Now, effects: &mut Effects) {
        if self.server.draining {
            return;
        }
        while let Some(id) = self.schedules.ended.pop_first() {
            if self.start_waiting_slot(now, id, effects) {
                self.schedule_moved(id, effects);
            }
        }
    }

    /// Starts the slot that waits, if nothing of its schedule runs any more.
    fn start_waiting_slot(&mut self, now: Now, id: ScheduleId, effects: &mut Effects) -> bool {
        let Some(entry) = self.schedules.entries.get_mut(&id).filter(|entry| entry.runs.is_empty()) else {
            return false;
        };
        let Some(slot) = entry.schedule.state.waiting_slot.take() else { return false };
        self.start_slot(now, id, slot, effects);
        true
    }

    /// Writes down where the schedule stands. One of which nothing is left to come is kept for people, switched off.
    pub(in crate::engine) fn schedule_moved(&mut self, id: ScheduleId, effects: &mut Effects) {
        if let Some(entry) = self.schedules.entries.get_mut(&id) {
            let state = &entry.schedule.state;
            let comes = state.next_at.is_some() || state.waiting_slot.is_some();
            let runs = entry.runs.iter().any(|job| !self.jobs[*job].state.is_terminal());
            entry.schedule.spec.enabled &= comes || runs;
        }
        if let Some(entry) = self.schedules.entries.get(&id) {
            let (enabled, state) = (entry.schedule.spec.enabled, Box::new(entry.schedule.state.clone()));
            effects.changes.push(Change::ScheduleMoved { id, enabled, state });
        }
    }

    /// After a start: slots that passed while the process was not there were missed, and a slot may wait for a run that
    /// is no more.
    pub(in crate::engine) fn resume_schedules(&mut self, now: Now, restart: Restart) {
        let schedules = &mut self.schedules;
        for (id, entry) in &mut schedules.entries {
            let overdue = entry.schedule.state.next_at.is_some_and(|at| at <= now.wall);
            if restart == Restart::Process && overdue {
                entry.missed_until = Some(now.wall);
            }
            if entry.schedule.state.waiting_slot.is_some() && entry.runs.is_empty() {
                schedules.ended.insert(*id);
            }
        }
    }

    /// A job of a schedule is in memory from now on.
    pub(in crate::engine) fn begin_run(&mut self, job: Ix<Job>, of: &ScheduleRef, began: Option<Wall>) {
        self.schedules.runs.insert(job, Run { of: of.clone(), began, replaced: false });
        if let Some(entry) = self.schedules.entries.get_mut(&of.id) {
            entry.runs.insert(job);
        }
    }

    /// An attempt of a job starts; its run began with the first one.
    pub(in crate::engine) fn run_starts(&mut self, job: Ix<Job>, at: Wall, effects: &mut Effects) {
        let Some(run) = self.schedules.runs.get_mut(&job).filter(|run| run.began.is_none()) else { return };
        run.began = Some(at);
        let id = run.of.id;
        let Some(entry) = self.schedules.entries.get_mut(&id) else { return };
        let spec = &entry.schedule.spec;
        self.schedules.unserved.remove(&(spec.tenant.clone(), spec.job.kind.clone()));
        let state = &mut entry.schedule.state;
        if state.last_status == Some(FiringStatus::Queued) {
            state.last_status = Some(FiringStatus::Running);
            self.schedule_moved(id, effects);
        }
    }

    /// What the log will say of an ended job, if a schedule made it.
    pub(in crate::engine) fn run_log_of(
        &self,
        now: Now,
        job: Ix<Job>,
        reason: Reason,
        error: Option<&Failure>,
        result: Option<&Bytes>,
    ) -> Option<FiringLogEntry> {
        let run = self.schedules.runs.get(&job)?;
        let entry = &self.jobs[job];
        let status = status_of(entry.state, reason);
        let (_, _, agent) = self.queue.agent_queues.key(entry.node);
        let error = match (status, error) {
            (FiringStatus::Ok, _) => None,
            (_, Some(failure)) => Some(cut_text(failure.message.as_bytes())),
            (_, None) => Some(words_of(reason).into()),
        };
        Some(FiringLogEntry {
            number: 0,
            schedule: run.of.id,
            tenant: self.queue.tenants.key(self.queue.classes[entry.class].tenant).clone(),
            name: run.of.name.clone(),
            agent: Name::clone(agent),
            job: Some(entry.id),
            slot: run.of.slot,
            status,
            summary: result.filter(|_| status == FiringStatus::Ok).map(|result| cut_text(result)),
            error,
            attempts: entry.attempts,
            duration_ms: run.began.map_or(0, |began| now.wall.since(began).0),
            input_tokens: 0,
            output_tokens: 0,
            ran_at: run.began.unwrap_or(now.wall),
            ended_at: now.wall,
        })
    }

    /// A run has ended: it is logged, and its schedule says so. A one-shot has done its work.
    pub(in crate::engine) fn run_ended(
        &mut self,
        now: Now,
        job: Ix<Job>,
        log: FiringLogEntry,
        effects: &mut Effects,
    ) {
        let (id, status, error) = (log.schedule, log.status, log.error.clone());
        let run = &self.schedules.runs[&job];
        let counts = !run.of.by_hand && !run.replaced;
        self.log_run(now, log, effects);
        let Some(entry) = self.schedules.entries.get_mut(&id) else { return };
        let making = self.schedules.making == Some(id);
        // A one-shot that was given another time meanwhile has not done its work. While its own slot comes, the slot
        // still stands as its next.
        let next_at = entry.schedule.state.next_at.filter(|at| !making || *at > now.wall);
        let again = entry.schedule.spec.timing.is_one_shot() && next_at.is_some();
        if entry.schedule.spec.deletes_itself() && counts && !again {
            // A new job may end the one before it, or end at once by joining another: then its slot is written first.
            if !making {
                self.remove_schedule(now, id, None, effects);
                return;
            }
            self.schedules.over.insert(id);
        }
        let state = &mut entry.schedule.state;
        state.last_ended_at = Some(now.wall);
        state.last_status = Some(status);
        state.last_error = error;
        self.schedule_moved(id, effects);
    }

    /// A job leaves memory: a slot that waits for that may come.
    pub(in crate::engine) fn release_run(&mut self, job: Ix<Job>) {
        let Some(run) = self.schedules.runs.remove(&job) else { return };
        if let Some(entry) = self.schedules.entries.get_mut(&run.of.id) {
            entry.runs.remove(&job);
            if entry.schedule.state.waiting_slot.is_some() && entry.runs.is_empty() {
                self.schedules.ended.insert(run.of.id);
            }
        }
    }
}

fn status_of(state: JobState, reason: Reason) -> FiringStatus {
    match (state, reason) {
        (JobState::Succeeded, _) => FiringStatus::Ok,
        (JobState::Canceled, _) => FiringStatus::Canceled,
        (_, Reason::TimedOut) => FiringStatus::Timeout,
        (_, Reason::Lost) => FiringStatus::Interrupted,
        _ => FiringStatus::Error,
    }
}

/// What is said of an end that no failure tells of.
pub(in crate::engine) fn words_of(reason: Reason) -> &'static str {
    match reason {
        Reason::QueueTimeout => "it waited longer than its queue timeout",
        Reason::Expired => "its deadline passed",
        Reason::Requested => "it was canceled",
        Reason::Shutdown => "it was canceled when the server stopped",
        Reason::Replaced => "it was canceled: the next run takes its place",
        other => other.as_str(),
    }
}

/// How much after its slot a job starts: the same for the same slot, spread over all of them.
fn spread(id: ScheduleId, slot: Wall, jitter: Span) -> Span {
    let mut z = (id.0 as u64) ^ ((id.0 >> 64) as u64).rotate_left(32) ^ slot.0.cast_unsigned();
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Span((z ^ (z >> 31)) % jitter.0.max(1))
}

/// A time for people.
pub(in crate::engine) fn stamp(at: Wall) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| format!("{} ms", at.0), |at| at.to_string())
}
