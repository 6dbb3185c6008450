//! How slots fire: a slot whose time has come creates a job, waits, or is skipped with an entry in the firing log.
//!
//! The job, the row of its slot and the move to the next slot are changes of one command, so they are durable together or
//! not at all: a slot creates at most one job, also after a crash. A slot never fires twice, also when the clock is set
//! back, because no slot up to the last one is ever looked at again.

use crate::command::{Rejection, Submission};
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::numbers::Numbers;
use crate::engine::schedules::log::{schedule_event, stamp};
use crate::engine::schedules::{Firing, Schedules};
use crate::engine::{Engine, Restart};
use crate::schedule::{CatchUp, FiringLogEntry, FiringStatus, Overlap, Schedule, ScheduleRef, ScheduleSpec};
use crate::{
    Change, Effects, EventKind, JobId, JobSpec, Notice, Now, Origin, Reason, ScheduleId, Span, Wall,
};

/// Most slots that one tick fires; the rest follow in the next batch, so that other commands are not delayed.
pub(super) const FIRINGS_MAX: u32 = 256;
/// Most bytes of payloads that one tick fires: one commit stays short enough to be waited for.
const FIRED_BYTES_MAX: usize = 4 << 20;

impl Engine {
    /// Fires every slot whose time has come.
    pub(in crate::engine) fn fire_schedules(&mut self, now: Now, effects: &mut Effects) {
        if self.server.is_draining() {
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
            let fired = self.fire(now, id, left.min(fits), effects);
            left -= fired.clamp(1, left);
            bytes_left = bytes_left.saturating_sub(bytes * fired as usize);
        }
    }

    /// Fires the slots of one schedule, at most `budget`, as its catch-up policy says. Returns how many fired.
    pub(super) fn fire(&mut self, now: Now, id: ScheduleId, budget: u32, effects: &mut Effects) -> u32 {
        let entry = &self.schedules.entries[&id];
        let Some(from) = entry.schedule.state.next_at.filter(|at| *at <= now.wall) else { return 0 };
        let catch_up = entry.schedule.spec.catch_up;
        let max = if let CatchUp::All { max } = catch_up { max } else { 1 };
        let (mut slots, left_out) = entry.plan.newest(from, now.wall, max);
        let newest = slots.last().copied().unwrap_or(from);
        let late_max = self.settings.schedules.late_max;
        if catch_up == CatchUp::Skip && self.schedules.is_missed(now, id, newest, late_max) {
            slots.clear();
        }
        let missed = left_out || slots.is_empty();
        let later = slots.split_off(slots.len().min(budget as usize));
        if missed {
            let (from_text, policy) = (stamp(from), catch_up.as_str());
            let why = format!("missed: the server was away from {from_text} on (catch_up = {policy})");
            self.schedules.log_skipped(now, id, from, why, &mut self.numbers, effects);
        }
        let fired = u32::try_from(slots.len()).unwrap_or(budget);
        for slot in slots {
            self.fire_slot(now, id, slot, effects);
        }
        self.schedules.move_on(now, id, later.first().copied(), newest, &self.jobs, effects);
        fired
    }

    /// A slot creates a job, waits for a firing to end, or is skipped.
    fn fire_slot(&mut self, now: Now, id: ScheduleId, slot: Wall, effects: &mut Effects) {
        // A firing that was canceled for an earlier slot may have been the last one of a schedule that deletes itself.
        let Some(entry) = self.schedules.entries.get(&id) else { return };
        let overlap = entry.schedule.spec.overlap;
        if overlap == Overlap::CancelRunning {
            return self.replace_firings(now, id, slot, effects);
        }
        self.start_waiting_slot(now, id, effects);
        let Some(entry) = self.schedules.entries.get(&id) else { return };
        let why = if entry.firings.is_empty() || overlap == Overlap::Allow {
            return self.start_slot(now, id, slot, effects);
        } else if overlap == Overlap::Skip {
            self.overlap_with(id)
        } else if entry.schedule.state.waiting_slot.is_none() {
            return self.schedules.let_wait(id, slot);
        } else {
            "overlap: a slot already waits for the firing to end".to_owned()
        };
        self.schedules.skip_slot(now, id, slot, why, &mut self.numbers, effects);
    }

    /// Why a slot is skipped: the state of the firing before it. A job that has not started keeps its position in the
    /// queue and stands for the slots after it, so that it starts however long it waits, and they do not pile up behind it.
    fn overlap_with(&self, id: ScheduleId) -> String {
        if !self.schedules.is_queued(id) {
            return "overlap: the firing before has not ended".to_owned();
        }
        let entry = &self.schedules.entries[&id];
        let unserved = entry.firings.iter().any(|job| self.is_unserved(self.jobs[*job].class()));
        let kind = &entry.schedule.spec.job.kind;
        match unserved {
            true => format!(
                "overlap: the firing before is queued: no handler, target or worker offers the kind {kind:?}"
            ),
            false => "overlap: the firing before is queued and has not started".to_owned(),
        }
    }

    /// The slot replaces every firing, as soon as their attempts have really ended.
    fn replace_firings(&mut self, now: Now, id: ScheduleId, slot: Wall, effects: &mut Effects) {
        let why = "overlap: a later slot takes its place";
        self.schedules.drop_waiting_slot(now, id, why, &mut self.numbers, effects);
        let firings: Vec<Ix<Job>> = self.schedules.entries[&id].firings.iter().copied().collect();
        for job in firings {
            if self.jobs[job].state().is_terminal() {
                continue;
            }
            if let Some(firing) = self.schedules.firings.get_mut(&job) {
                firing.replaced = true;
            }
            self.cancel_job(now, job, Reason::Replaced, None, effects);
        }
        match self.schedules.entries.get(&id).map(|entry| entry.firings.is_empty()) {
            Some(true) => self.start_slot(now, id, slot, effects),
            Some(false) => self.schedules.let_wait(id, slot),
            None => {}
        }
    }

    /// Creates the job of a slot; a rejected slot is skipped.
    fn start_slot(&mut self, now: Now, id: ScheduleId, slot: Wall, effects: &mut Effects) {
        match self.create_firing(now, id, slot, None, effects) {
            Ok(job) => effects.changes.push(Change::SlotFired { schedule: id, slot, job: Some(job) }),
            Err(rejection) => {
                let why = rejection.to_string();
                self.schedules.skip_slot(now, id, slot, why, &mut self.numbers, effects);
            }
        }
        self.schedules.delete_if_over(now, id, &mut self.numbers, effects);
    }

    /// Creates a job: of a slot, or (`by_hand`) because a caller asked for it.
    pub(super) fn create_firing(
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
        self.schedules.firing = Some(id);
        let submission = Submission::new(spec, payload, origin);
        let submitted = self.submit(now, submission, effects);
        self.schedules.firing = None;
        let submitted = submitted?;
        let entry =
            self.schedules.entries.get_mut(&id).expect("a schedule is not deleted while its job is created");
        let state = &mut entry.schedule.state;
        state.firings += 1;
        // A job that joined a debounce batch has ended already, and its end is the last status.
        if !submitted.state.is_terminal() {
            state.last_status = Some(FiringStatus::Queued);
            state.last_error = None;
        }
        let schedule = entry.schedule.clone();
        let kind = EventKind::ScheduleFired;
        schedule_event(now, kind, &schedule, "fired", by_hand, &mut self.numbers, effects);
        if let Some(job) = self.jobs.find(submitted.job) {
            self.notify_unserved(job, &schedule, effects);
        }
        Ok(submitted.job)
    }

    /// Notifies once of a job that no executor can run: the schedule's owner may not look at it for long.
    fn notify_unserved(&mut self, job: Ix<Job>, schedule: &Schedule, effects: &mut Effects) {
        let entry = &self.jobs[job];
        if entry.state().is_terminal() || !self.is_unserved(entry.class()) {
            return;
        }
        let ScheduleSpec { tenant, name, job: JobSpec { kind, .. }, .. } = &schedule.spec;
        if self.schedules.unserved.insert((tenant.clone(), kind.clone())) {
            let (tenant, schedule, kind) = (tenant.clone(), name.clone(), kind.clone());
            effects.notices.push(Notice::Unserved { tenant, schedule, kind });
        }
    }

    /// Starts slots that waited for a firing that has ended since.
    pub(in crate::engine) fn settle_schedules(&mut self, now: Now, effects: &mut Effects) {
        if self.server.is_draining() {
            return;
        }
        while let Some(id) = self.schedules.ended.pop_first() {
            if self.start_waiting_slot(now, id, effects) {
                self.schedules.store_state(id, &self.jobs, effects);
            }
        }
    }

    /// Starts the slot that waits, if no firing of its schedule is active any more.
    fn start_waiting_slot(&mut self, now: Now, id: ScheduleId, effects: &mut Effects) -> bool {
        let idle = self.schedules.entries.get_mut(&id).filter(|entry| entry.firings.is_empty());
        let Some(slot) = idle.and_then(|entry| entry.schedule.state.waiting_slot.take()) else {
            return false;
        };
        self.start_slot(now, id, slot, effects);
        true
    }
}

impl Schedules {
    /// A slot is missed when it passed before the process started, or is looked at too late.
    fn is_missed(&self, now: Now, id: ScheduleId, slot: Wall, late_max: Span) -> bool {
        let missed_until = self.entries[&id].missed_until;
        missed_until.is_some_and(|until| slot <= until) || now.wall.since(slot) > late_max
    }

    /// True when the schedule has firings, and none of them has started.
    pub(super) fn is_queued(&self, id: ScheduleId) -> bool {
        let Some(entry) = self.entries.get(&id).filter(|entry| !entry.firings.is_empty()) else {
            return false;
        };
        entry.firings.iter().all(|job| self.firings.get(job).is_some_and(|firing| firing.began.is_none()))
    }

    /// Goes on with a slot that is left over from this batch, or with the first one after now.
    fn move_on(
        &mut self,
        now: Now,
        id: ScheduleId,
        left: Option<Wall>,
        newest: Wall,
        jobs: &Jobs,
        effects: &mut Effects,
    ) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let last = left.map_or(newest, |left| Wall(left.0.saturating_sub(1)));
        let state = &mut entry.schedule.state;
        state.last_slot = Some(state.last_slot.map_or(last, |slot| slot.max(last)));
        let next = left.or_else(|| entry.plan.next_after(now.wall.max(last)));
        if left.is_none() {
            entry.missed_until = None;
        }
        self.set_next(id, next);
        self.store_state(id, jobs, effects);
    }

    fn let_wait(&mut self, id: ScheduleId, slot: Wall) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.schedule.state.waiting_slot = Some(slot);
        }
    }

    /// Deletes a schedule whose firing ended while its job was being created.
    pub(super) fn delete_if_over(
        &mut self,
        now: Now,
        id: ScheduleId,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) {
        if self.over.remove(&id) {
            self.delete_known(now, id, None, numbers, effects);
        }
    }

    /// Stores the state of a schedule. One without a future slot and without a job is kept for people, switched off.
    pub(in crate::engine) fn store_state(&mut self, id: ScheduleId, jobs: &Jobs, effects: &mut Effects) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let state = &entry.schedule.state;
        let has_slot = state.next_at.is_some() || state.waiting_slot.is_some();
        let has_job = entry.firings.iter().any(|job| !jobs[*job].state().is_terminal());
        entry.schedule.spec.enabled &= has_slot || has_job;
        let (enabled, state) = (entry.schedule.spec.enabled, Box::new(entry.schedule.state.clone()));
        effects.changes.push(Change::ScheduleMoved { id, enabled, state });
    }

    /// After a start: slots that passed while the process was away were missed, and a slot may wait for a firing that is
    /// not there any more.
    pub(in crate::engine) fn resume(&mut self, now: Now, restart: Restart) {
        for (id, entry) in &mut self.entries {
            let overdue = entry.schedule.state.next_at.is_some_and(|at| at <= now.wall);
            if restart == Restart::Process && overdue {
                entry.missed_until = Some(now.wall);
            }
            if entry.schedule.state.waiting_slot.is_some() && entry.firings.is_empty() {
                self.ended.insert(*id);
            }
        }
    }

    /// The job of a firing is in memory from now on.
    pub(in crate::engine) fn firing_created(&mut self, job: Ix<Job>, of: &ScheduleRef, began: Option<Wall>) {
        self.firings.insert(job, Firing { of: of.clone(), began, replaced: false });
        if let Some(entry) = self.entries.get_mut(&of.id) {
            entry.firings.insert(job);
        }
    }

    /// An attempt of a job opens: its firing began with the first one.
    pub(in crate::engine) fn firing_started(
        &mut self,
        job: Ix<Job>,
        at: Wall,
        jobs: &Jobs,
        effects: &mut Effects,
    ) {
        let Some(firing) = self.firings.get_mut(&job).filter(|firing| firing.began.is_none()) else { return };
        firing.began = Some(at);
        let id = firing.of.id;
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let spec = &entry.schedule.spec;
        self.unserved.remove(&(spec.tenant.clone(), spec.job.kind.clone()));
        let state = &mut entry.schedule.state;
        if state.last_status == Some(FiringStatus::Queued) {
            state.last_status = Some(FiringStatus::Running);
            self.store_state(id, jobs, effects);
        }
    }

    /// After a start: an attempt of a job was open.
    pub(in crate::engine) fn firing_resumed(&mut self, job: Ix<Job>, opened_at: Wall) {
        if let Some(firing) = self.firings.get_mut(&job) {
            firing.began.get_or_insert(opened_at);
        }
    }

    /// The job of a firing has ended: adds `log` to the firing log and updates the schedule. A one-shot schedule is over.
    pub(in crate::engine) fn firing_ended(
        &mut self,
        now: Now,
        job: Ix<Job>,
        log: FiringLogEntry,
        jobs: &Jobs,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) {
        let (id, status, error) = (log.schedule, log.status, log.error.clone());
        let firing = &self.firings[&job];
        let counts = !firing.of.by_hand && !firing.replaced;
        self.add_to_log(now, log, numbers, effects);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let creating = self.firing == Some(id);
        // A one-shot that was given another time meanwhile is not over. While its own slot fires, that slot is still its
        // next one.
        let next_at = entry.schedule.state.next_at.filter(|at| !creating || *at > now.wall);
        let again = entry.schedule.spec.timing.is_one_shot() && next_at.is_some();
        if entry.schedule.spec.deletes_itself() && counts && !again {
            // A new job may end the one before it, or end at once by joining another: then its slot is stored first.
            if !creating {
                self.delete_known(now, id, None, numbers, effects);
                return;
            }
            self.over.insert(id);
        }
        let state = &mut entry.schedule.state;
        state.last_ended_at = Some(now.wall);
        state.last_status = Some(status);
        state.last_error = error;
        self.store_state(id, jobs, effects);
    }

    /// A job is forgotten: a slot that waits for its firing may start.
    pub(in crate::engine) fn forget_job(&mut self, job: Ix<Job>) {
        let Some(firing) = self.firings.remove(&job) else { return };
        let id = firing.of.id;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.firings.remove(&job);
            if entry.schedule.state.waiting_slot.is_some() && entry.firings.is_empty() {
                self.ended.insert(id);
            }
        }
    }
}

/// How much after its slot a job starts: the same for the same slot, spread over all of them.
fn spread(id: ScheduleId, slot: Wall, jitter: Span) -> Span {
    let mut z = (id.0 as u64) ^ ((id.0 >> 64) as u64).rotate_left(32) ^ slot.0.cast_unsigned();
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Span((z ^ (z >> 31)) % jitter.0.max(1))
}
