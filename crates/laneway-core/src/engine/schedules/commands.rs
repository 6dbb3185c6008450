//! Schedules by command: made, changed, switched, deleted, run by hand, and looked at.
//!
//! What their slots do when the time comes is in `firing.rs`. Nothing is stored that could never run: a timing is read
//! before anything changes, and one without a future is rejected.

use crate::engine::state::Job;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::command::{Rejection, RejectionCode};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::reject;
use crate::engine::schedules::firing::FIRINGS_MAX;
use crate::schedule::{
    CATCH_UP_MAX, CatchUp, FireMode, JITTER_MAX, NOTE_BYTES_MAX, NotFired, PAYLOAD_BYTES_MAX, Plan,
    RECENT_FIRINGS_MAX, SCHEDULE_SELF, ScheduleLine,
};
use crate::{
    Change, Effects, EventKind, FiringLogEntry, Name, Now, Origin, Reply, Schedule, ScheduleId,
    SchedulePatch, ScheduleRef, ScheduleSpec, ScheduleState, Timing, TimingError, Wall,
};

/// Every schedule, and the runs that they made.
#[derive(Default)]
pub(in crate::engine) struct Schedules {
    pub(in crate::engine) entries: BTreeMap<ScheduleId, Entry>,
    /// By tenant and name.
    pub(in crate::engine) names: BTreeMap<(Name, Name), ScheduleId>,
    /// Next slots.
    pub(in crate::engine) due: BTreeSet<(Wall, ScheduleId)>,
    /// Jobs that a schedule made, live or lingering.
    pub(in crate::engine) runs: BTreeMap<Ix<Job>, Run>,
    /// Schedules whose run has ended while a slot waits for that.
    pub(in crate::engine) ended: BTreeSet<ScheduleId>,
    /// The schedule whose job is being made.
    pub(in crate::engine) making: Option<ScheduleId>,
    /// Schedules to delete once the job that is being made is there.
    pub(in crate::engine) over: BTreeSet<ScheduleId>,
    /// Tenants and kinds of runs that no executor offers, of which a notice was given.
    pub(in crate::engine) unserved: BTreeSet<(Name, Name)>,
    /// The latest entries of the run log, oldest first.
    recent: VecDeque<FiringLogEntry>,
}

/// One schedule.
pub(in crate::engine) struct Entry {
    pub(in crate::engine) schedule: Schedule,
    pub(in crate::engine) plan: Plan,
    /// Its runs that have not ended, or whose attempt has not.
    pub(in crate::engine) runs: BTreeSet<Ix<Job>>,
    /// Slots up to this time passed before the process started.
    pub(in crate::engine) missed_until: Option<Wall>,
}

/// A job that a schedule made.
pub(in crate::engine) struct Run {
    pub(in crate::engine) of: ScheduleRef,
    /// When its first attempt started.
    pub(in crate::engine) began: Option<Wall>,
    /// True once a later slot takes its place.
    pub(in crate::engine) replaced: bool,
}

impl Schedules {
    /// Takes up a schedule that is not there yet.
    pub(in crate::engine) fn insert(&mut self, schedule: Schedule, plan: Plan) {
        let id = schedule.id;
        self.names.insert((schedule.spec.tenant.clone(), schedule.spec.name.clone()), id);
        if let Some(at) = schedule.state.next_at {
            self.due.insert((at, id));
        }
        self.entries.insert(id, Entry { schedule, plan, runs: BTreeSet::new(), missed_until: None });
    }

    /// Forgets a schedule. Its runs go on by themselves.
    pub(in crate::engine) fn remove(&mut self, id: ScheduleId) -> Option<Schedule> {
        self.set_next(id, None);
        let Entry { schedule, .. } = self.entries.remove(&id)?;
        self.names.remove(&(schedule.spec.tenant.clone(), schedule.spec.name.clone()));
        self.ended.remove(&id);
        Some(schedule)
    }

    /// Changes when the next slot is.
    pub(in crate::engine) fn set_next(&mut self, id: ScheduleId, next: Option<Wall>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let was = std::mem::replace(&mut entry.schedule.state.next_at, next);
        if let Some(at) = was {
            self.due.remove(&(at, id));
        }
        if let Some(at) = next {
            self.due.insert((at, id));
        }
    }

    /// True when the schedule has runs, and none of them has started.
    pub(in crate::engine) fn is_queued(&self, id: ScheduleId) -> bool {
        let Some(entry) = self.entries.get(&id).filter(|entry| !entry.runs.is_empty()) else { return false };
        entry.runs.iter().all(|job| self.runs.get(job).is_some_and(|run| run.began.is_none()))
    }

    /// Keeps an entry of the run log at hand.
    pub(in crate::engine) fn remember_run(&mut self, log: FiringLogEntry) {
        if self.recent.len() >= RECENT_FIRINGS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(log);
    }
}

impl Engine {
    /// Makes a schedule.
    pub(in crate::engine) fn put_schedule(
        &mut self,
        now: Now,
        mut spec: ScheduleSpec,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        spec.timing.fill_in(None, now.wall, &self.settings.schedules.zone);
        spec.delete_after_run = Some(spec.deletes_itself());
        if let Err(rejection) = self.has_room_for(&spec) {
            return Reply::Rejected(rejection);
        }
        let planned =
            self.check_schedule(now, &spec, None).and_then(|()| plan_from(&spec.timing, now.wall, now.wall));
        let (plan, next) = match planned {
            Ok(planned) => planned,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let next_at = if spec.enabled { Some(next) } else { None };
        let id = ScheduleId(self.numbers.rng.job_id(now.wall).0);
        if let Err(rejection) = name_session(&mut spec, id) {
            return Reply::Rejected(rejection);
        }
        let schedule = Schedule {
            id,
            spec,
            created_at: now.wall,
            updated_at: now.wall,
            state: ScheduleState { next_at, ..ScheduleState::default() },
        };
        self.schedules.insert(schedule.clone(), plan);
        self.schedule_event(now, EventKind::ScheduleCreated, &schedule, "created", Some(origin), effects);
        effects.changes.push(Change::SchedulePut(Box::new(schedule.clone())));
        Reply::Schedule(Box::new(schedule))
    }

    /// Changes a schedule: all of what is asked, or nothing.
    pub(in crate::engine) fn update_schedule(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        id: ScheduleId,
        patch: SchedulePatch,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(old) = self.schedule(tenant, id) else { return Reply::NotFound };
        if patch.made_from.as_ref().is_some_and(|from| **from != old.spec) {
            return Reply::Stale;
        }
        let mut spec = patched(&old.spec, patch, now.wall, &self.settings.schedules.zone);
        if let Err(rejection) = name_session(&mut spec, id) {
            return Reply::Rejected(rejection);
        }
        self.change_schedule(now, id, spec, (EventKind::ScheduleUpdated, "updated"), origin, effects)
    }

    /// Switches a schedule on or off. What is so already stays as it is.
    pub(in crate::engine) fn toggle_schedule(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        id: ScheduleId,
        enabled: bool,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(old) = self.schedule(tenant, id) else { return Reply::NotFound };
        let same = old.spec.enabled == enabled && old.state.next_at.is_some() == enabled;
        if same {
            return Reply::Schedule(Box::new(old.clone()));
        }
        let spec = ScheduleSpec { enabled, ..old.spec.clone() };
        let word = if enabled { "enabled" } else { "disabled" };
        self.change_schedule(now, id, spec, (EventKind::ScheduleToggled, word), origin, effects)
    }

    /// Puts a new spec in the place of the old one, if it can be.
    fn change_schedule(
        &mut self,
        now: Now,
        id: ScheduleId,
        spec: ScheduleSpec,
        (kind, word): (EventKind, &str),
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        // Switching off is always allowed: it is what a schedule needs that could not be made any more.
        let off = ScheduleSpec { enabled: false, ..self.schedules.entries[&id].schedule.spec.clone() };
        if spec != off
            && let Err(rejection) = self.check_schedule(now, &spec, Some(id))
        {
            return Reply::Rejected(rejection);
        }
        let entry = &self.schedules.entries[&id];
        let retimed = spec.timing != entry.schedule.spec.timing;
        let woken = spec.enabled && (!entry.schedule.spec.enabled || kind == EventKind::ScheduleToggled);
        let mut next = entry.schedule.state.next_at.filter(|_| spec.enabled);
        let mut plan = None;
        if retimed || woken {
            // No slot that came ever comes again, so that a clock that was set back repeats nothing.
            let after = entry.schedule.state.last_slot.map_or(now.wall, |slot| slot.max(now.wall));
            match plan_from(&spec.timing, now.wall, after) {
                Ok((fresh, at)) => {
                    plan = Some(fresh);
                    next = spec.enabled.then_some(at);
                }
                Err(rejection) => return Reply::Rejected(rejection),
            }
        }
        if !spec.enabled {
            self.drop_waiting_slot(now, id, "the schedule was switched off", effects);
        }
        self.schedules.set_next(id, next);
        let entry = self.schedules.entries.get_mut(&id).expect("it was just there");
        if let Some(plan) = plan {
            entry.plan = plan;
            entry.missed_until = None;
        }
        let was = std::mem::replace(&mut entry.schedule.spec, spec);
        entry.schedule.updated_at = now.wall;
        let schedule = entry.schedule.clone();
        self.schedules.names.remove(&(was.tenant, was.name));
        self.schedules.names.insert((schedule.spec.tenant.clone(), schedule.spec.name.clone()), id);
        self.schedule_event(now, kind, &schedule, word, Some(origin), effects);
        effects.changes.push(Change::SchedulePut(Box::new(schedule.clone())));
        Reply::Schedule(Box::new(schedule))
    }

    /// Deletes a schedule. A run of it goes on and is logged when it ends.
    pub(in crate::engine) fn delete_schedule(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        id: ScheduleId,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        if self.schedule(tenant, id).is_none() {
            return Reply::NotFound;
        }
        match self.remove_schedule(now, id, Some(origin), effects) {
            Some(schedule) => Reply::Schedule(Box::new(schedule)),
            None => Reply::NotFound,
        }
    }

    pub(in crate::engine) fn remove_schedule(
        &mut self,
        now: Now,
        id: ScheduleId,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) -> Option<Schedule> {
        self.drop_waiting_slot(now, id, "the schedule was deleted", effects);
        let schedule = self.schedules.remove(id)?;
        self.schedule_event(now, EventKind::ScheduleDeleted, &schedule, "deleted", origin, effects);
        effects.changes.push(Change::ScheduleRemoved(id));
        Some(schedule)
    }

    /// Runs a schedule by hand. Its slots stay where they are.
    pub(in crate::engine) fn run_schedule(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        id: ScheduleId,
        mode: FireMode,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(schedule) = self.schedule(tenant, id) else { return Reply::NotFound };
        let is_due = schedule.state.next_at.is_some_and(|at| at <= now.wall);
        let not = |reason| Reply::ScheduleFiredByHand { fired: false, reason: Some(reason), job: None };
        if !self.schedules.entries[&id].runs.is_empty() {
            let queued = self.schedules.is_queued(id);
            return not(if queued { NotFired::AlreadyQueued } else { NotFired::AlreadyRunning });
        }
        match mode {
            FireMode::Force => match self.make_run(now, id, now.wall, Some(origin), effects) {
                Ok(job) => {
                    self.schedule_moved(id, effects);
                    self.remove_if_over(now, id, effects);
                    Reply::ScheduleFiredByHand { fired: true, reason: None, job: Some(job) }
                }
                Err(rejection) => Reply::Rejected(rejection),
            },
            FireMode::Due if is_due && !self.server.draining => {
                self.fire(now, id, FIRINGS_MAX, effects);
                let runs = self.schedules.entries.get(&id).into_iter().flat_map(|entry| &entry.runs);
                let newest = runs.max_by_key(|job| self.jobs[**job].seq);
                let job = newest.map(|job| self.jobs[*job].id);
                match job {
                    Some(job) => Reply::ScheduleFiredByHand { fired: true, reason: None, job: Some(job) },
                    None => not(NotFired::NotDue),
                }
            }
            FireMode::Due => not(NotFired::NotDue),
        }
    }

    /// One schedule. `tenant`: whose it must be.
    pub fn schedule(&self, tenant: Option<&Name>, id: ScheduleId) -> Option<&Schedule> {
        let schedule = &self.schedules.entries.get(&id)?.schedule;
        tenant.is_none_or(|tenant| *tenant == schedule.spec.tenant).then_some(schedule)
    }

    /// How many schedules make jobs in a lane.
    pub fn schedules_in(&self, lane: &Name) -> usize {
        self.schedules.entries.values().filter(|entry| entry.schedule.spec.job.lane == *lane).count()
    }

    /// The schedule of that name.
    pub fn schedule_named(&self, tenant: &Name, name: &Name) -> Option<&Schedule> {
        let id = self.schedules.names.get(&(tenant.clone(), name.clone()))?;
        Some(&self.schedules.entries[id].schedule)
    }

    /// Schedules after `after` in the order they were made, at most `limit`.
    pub fn schedules(
        &self,
        tenant: Option<&Name>,
        after: Option<ScheduleId>,
        limit: usize,
        include_disabled: bool,
    ) -> Vec<&Schedule> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let entries = self.schedules.entries.range((from, std::ops::Bound::Unbounded));
        let all = entries.map(|(_, entry)| &entry.schedule);
        let shown = all.filter(|schedule| tenant.is_none_or(|tenant| *tenant == schedule.spec.tenant));
        shown.filter(|schedule| include_disabled || schedule.spec.enabled).take(limit).collect()
    }

    /// The latest entries of the run log, newest first. With a tenant: only that tenant's.
    pub fn recent_firings(&self, tenant: Option<&Name>) -> impl Iterator<Item = &FiringLogEntry> {
        let all = self.schedules.recent.iter().rev();
        all.filter(move |log| tenant.is_none_or(|tenant| *tenant == log.tenant))
    }

    /// Adds an event about a schedule.
    pub(in crate::engine) fn schedule_event(
        &mut self,
        now: Now,
        kind: EventKind,
        schedule: &Schedule,
        action: &str,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        let name = schedule.spec.name.clone();
        let line = ScheduleLine { id: schedule.id, action: action.into(), name };
        let tenant = Some(schedule.spec.tenant.clone());
        self.server_event(now, kind, tenant, origin, line.to_string().into(), effects);
    }

    fn has_room_for(&self, spec: &ScheduleSpec) -> Result<(), Rejection> {
        if self.server.storage_low {
            let message = "storage runs low; free disk space, then make the schedule again";
            return Err(reject(RejectionCode::StorageLow, message));
        }
        let limits = &self.settings.schedules;
        let entries = &self.schedules.entries;
        let of_tenant = entries.values().filter(|entry| entry.schedule.spec.tenant == spec.tenant).count();
        let scopes = [
            ("schedules_max", "server", entries.len(), limits.schedules_max),
            ("schedules_per_tenant_max", "tenant", of_tenant, limits.schedules_per_tenant_max),
        ];
        for (limit, scope, count, most) in scopes {
            if count >= most as usize {
                let message = format!(
                    "schedules.{limit}: the {scope} has {count} schedules of {most}; delete one first"
                );
                return Err(reject(RejectionCode::TooMany, message));
            }
        }
        Ok(())
    }

    /// Is the spec right in form, and is there room for its bytes? `id`: the schedule that it is to be.
    fn check_schedule(&self, now: Now, spec: &ScheduleSpec, id: Option<ScheduleId>) -> Result<(), Rejection> {
        let invalid = |message: String| Err(reject(RejectionCode::Invalid, message));
        let name = (spec.tenant.clone(), spec.name.clone());
        if self.schedules.names.get(&name).is_some_and(|other| Some(*other) != id) {
            let message =
                format!("name: there is a schedule {:?} already; choose another name", spec.name.as_str());
            return Err(reject(RejectionCode::NameTaken, message));
        }
        for (field, len, most) in
            [("payload", spec.payload.len(), PAYLOAD_BYTES_MAX), ("note", spec.note.len(), NOTE_BYTES_MAX)]
        {
            if len > most {
                return invalid(format!("{field}: has {len} bytes; at most {most} are allowed"));
            }
        }
        if spec.jitter > JITTER_MAX {
            return invalid(format!(
                "jitter: {} ms is too long; at most 24 hours are allowed",
                spec.jitter.0
            ));
        }
        if let CatchUp::All { max } = spec.catch_up
            && !(1..=CATCH_UP_MAX).contains(&max)
        {
            return invalid(format!("catch_up.max: {max} is not in 1-{CATCH_UP_MAX}"));
        }
        check_template(spec)?;
        self.check_form(now, &spec.job, self.locate(&spec.job))?;
        let bytes_of = |spec: &ScheduleSpec| (spec.payload.len() + spec.note.len()) as u64;
        let others = self.schedules.entries.values().filter(|entry| Some(entry.schedule.id) != id);
        let bytes = others.map(|entry| bytes_of(&entry.schedule.spec)).sum::<u64>() + bytes_of(spec);
        let most = self.settings.schedules.bytes_max;
        if bytes > most {
            let message = format!(
                "schedules.bytes_max: all payloads and notes would have {bytes} bytes of {most}; make them smaller"
            );
            return Err(reject(RejectionCode::TooMany, message));
        }
        Ok(())
    }
}

/// Puts the schedule's id where its session's key has [`SCHEDULE_SELF`].
fn name_session(spec: &mut ScheduleSpec, id: ScheduleId) -> Result<(), Rejection> {
    let Some(session) = spec.job.session.as_mut() else { return Ok(()) };
    if session.key.as_str().contains(SCHEDULE_SELF) {
        let key = session.key.as_str().replace(SCHEDULE_SELF, &id.to_string());
        session.key = Name::new(&key)
            .map_err(|error| reject(RejectionCode::Invalid, format!("job.session.key: {error}")))?;
    }
    Ok(())
}

/// A template names no times and nobody else's job.
fn check_template(spec: &ScheduleSpec) -> Result<(), Rejection> {
    let job = &spec.job;
    let wrong = [
        ("tenant", job.tenant != spec.tenant),
        ("not_before", job.not_before.is_some()),
        ("deadline", job.deadline.is_some()),
        ("idempotency_key", job.idempotency.is_some()),
        ("retry_of", job.retry_of.is_some()),
        ("schedule", job.schedule.is_some()),
    ];
    match wrong.into_iter().find(|(_, is_wrong)| *is_wrong) {
        None => Ok(()),
        Some((field, _)) => {
            let message = format!("job.{field}: is given by the schedule; leave it out");
            Err(reject(RejectionCode::Invalid, message))
        }
    }
}

/// The plan of a timing and its first slot after `after`; a timing without one is rejected.
fn plan_from(timing: &Timing, now: Wall, after: Wall) -> Result<(Plan, Wall), Rejection> {
    let planned = Plan::new(timing, now).and_then(|plan| match plan.next_after(after) {
        Some(next) => Ok((plan, next)),
        None => Err(plan.no_future()),
    });
    planned.map_err(|error| {
        let code = match error {
            TimingError::Past | TimingError::Never => RejectionCode::NoFutureRun,
            _ => RejectionCode::Invalid,
        };
        reject(code, error.to_string())
    })
}

/// The spec with the patch applied. Every part of the patch is named here, so that a new one cannot be forgotten.
fn patched(old: &ScheduleSpec, patch: SchedulePatch, now: Wall, default_zone: &Name) -> ScheduleSpec {
    let SchedulePatch {
        made_from: _,
        name,
        timing,
        job,
        payload,
        enabled,
        delete_after_run,
        catch_up,
        overlap,
        jitter,
        note,
        owner,
    } = patch;
    let timing = match timing {
        Some(mut timing) => {
            timing.fill_in(Some(&old.timing), now, default_zone);
            timing
        }
        None => old.timing.clone(),
    };
    let kept =
        if timing.as_str() == old.timing.as_str() { old.deletes_itself() } else { timing.is_one_shot() };
    ScheduleSpec {
        tenant: old.tenant.clone(),
        name: name.unwrap_or_else(|| old.name.clone()),
        timing,
        job: job.map_or_else(|| old.job.clone(), |job| *job),
        payload: payload.unwrap_or_else(|| old.payload.clone()),
        enabled: enabled.unwrap_or(old.enabled),
        delete_after_run: Some(delete_after_run.unwrap_or(kept)),
        catch_up: catch_up.unwrap_or(old.catch_up),
        overlap: overlap.unwrap_or(old.overlap),
        jitter: jitter.unwrap_or(old.jitter),
        note: note.unwrap_or_else(|| old.note.clone()),
        owner: owner.unwrap_or_else(|| old.owner.clone()),
    }
}
