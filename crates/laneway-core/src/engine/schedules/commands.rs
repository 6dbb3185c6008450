//! The commands and queries of schedules: create, change, switch on and off, delete, fire by hand, list.
//!
//! How slots fire is in `firing.rs`. No schedule is stored that could never fire: a timing is parsed before anything
//! changes, and one without a future slot is rejected.

use crate::command::{Rejection, RejectionCode};
use crate::engine::Engine;
use crate::engine::jobs::submit::reject;
use crate::engine::numbers::Numbers;
use crate::engine::schedules::Schedules;
use crate::engine::schedules::firing::FIRINGS_MAX;
use crate::engine::schedules::log::schedule_event;
use crate::schedule::{
    CATCH_UP_MAX, CatchUp, FireMode, JITTER_MAX, NOTE_BYTES_MAX, NotFired, PAYLOAD_BYTES_MAX, Plan,
    SCHEDULE_SELF,
};
use crate::settings::ScheduleSettings;
use crate::{
    Change, Effects, EventKind, FiringLogEntry, Name, Now, Origin, Reply, Schedule, ScheduleId,
    SchedulePatch, ScheduleSpec, ScheduleState, Timing, TimingError, Wall,
};

impl Engine {
    /// Creates a schedule.
    pub(in crate::engine) fn put_schedule(
        &mut self,
        now: Now,
        mut spec: ScheduleSpec,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        spec.timing.fill_in(None, now.wall, &self.settings.schedules.zone);
        spec.delete_after_run = Some(spec.deletes_itself());
        if self.server.storage_low() {
            let message = "storage runs low; free disk space, then make the schedule again";
            return Reply::Rejected(reject(RejectionCode::StorageLow, message));
        }
        if let Err(rejection) = self.schedules.check_limits(&spec.tenant, &self.settings.schedules) {
            return Reply::Rejected(rejection);
        }
        let planned =
            self.check_schedule(now, &spec, None).and_then(|()| plan_from(&spec.timing, now.wall, now.wall));
        let (plan, next) = match planned {
            Ok(planned) => planned,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let next_at = if spec.enabled { Some(next) } else { None };
        let id = ScheduleId(self.numbers.job_id(now.wall).0);
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
        let (kind, origin) = (EventKind::ScheduleCreated, Some(origin));
        schedule_event(now, kind, &schedule, "created", origin, &mut self.numbers, effects);
        effects.changes.push(Change::SchedulePut(Box::new(schedule.clone())));
        Reply::Schedule(Box::new(schedule))
    }

    /// Changes a schedule: the whole patch, or nothing.
    pub(in crate::engine) fn update_schedule(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        id: ScheduleId,
        patch: SchedulePatch,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(old) = self.schedules.get(tenant, id) else { return Reply::NotFound };
        if patch.made_from.as_ref().is_some_and(|from| **from != old.spec) {
            return Reply::Stale;
        }
        let mut spec = patched(&old.spec, patch, now.wall, &self.settings.schedules.zone);
        if let Err(rejection) = name_session(&mut spec, id) {
            return Reply::Rejected(rejection);
        }
        self.change_schedule(now, id, spec, (EventKind::ScheduleUpdated, "updated"), origin, effects)
    }

    /// Switches a schedule on or off. One that is so already does not change.
    pub(in crate::engine) fn toggle_schedule(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        id: ScheduleId,
        enabled: bool,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(old) = self.schedules.get(tenant, id) else { return Reply::NotFound };
        let same = old.spec.enabled == enabled && old.state.next_at.is_some() == enabled;
        if same {
            return Reply::Schedule(Box::new(old.clone()));
        }
        let spec = ScheduleSpec { enabled, ..old.spec.clone() };
        let action = if enabled { "enabled" } else { "disabled" };
        self.change_schedule(now, id, spec, (EventKind::ScheduleToggled, action), origin, effects)
    }

    /// Replaces the spec of a schedule, if the new one is valid.
    fn change_schedule(
        &mut self,
        now: Now,
        id: ScheduleId,
        spec: ScheduleSpec,
        (kind, action): (EventKind, &str),
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        // Switching off is always allowed, also for a schedule that could not be created any more.
        let off = ScheduleSpec { enabled: false, ..self.schedules.entries[&id].schedule.spec.clone() };
        if spec != off
            && let Err(rejection) = self.check_schedule(now, &spec, Some(id))
        {
            return Reply::Rejected(rejection);
        }
        let entry = &self.schedules.entries[&id];
        let retimed = spec.timing != entry.schedule.spec.timing;
        let switched_on =
            spec.enabled && (!entry.schedule.spec.enabled || kind == EventKind::ScheduleToggled);
        let mut next = entry.schedule.state.next_at.filter(|_| spec.enabled);
        let mut plan = None;
        if retimed || switched_on {
            // No slot fires twice, so that a clock that was set back repeats nothing.
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
            let why = "the schedule was switched off";
            self.schedules.drop_waiting_slot(now, id, why, &mut self.numbers, effects);
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
        schedule_event(now, kind, &schedule, action, Some(origin), &mut self.numbers, effects);
        effects.changes.push(Change::SchedulePut(Box::new(schedule.clone())));
        Reply::Schedule(Box::new(schedule))
    }

    /// Fires a schedule by hand. Its slots do not change.
    pub(in crate::engine) fn fire_by_hand(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        id: ScheduleId,
        mode: FireMode,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(schedule) = self.schedules.get(tenant, id) else { return Reply::NotFound };
        let is_due = schedule.state.next_at.is_some_and(|at| at <= now.wall);
        let not = |reason| Reply::ScheduleFiredByHand { fired: false, reason: Some(reason), job: None };
        if !self.schedules.entries[&id].firings.is_empty() {
            let queued = self.schedules.is_queued(id);
            return not(if queued { NotFired::AlreadyQueued } else { NotFired::AlreadyRunning });
        }
        match mode {
            FireMode::Force => match self.create_firing(now, id, now.wall, Some(origin), effects) {
                Ok(job) => {
                    self.schedules.store_state(id, &self.jobs, effects);
                    self.schedules.delete_if_over(now, id, &mut self.numbers, effects);
                    Reply::ScheduleFiredByHand { fired: true, reason: None, job: Some(job) }
                }
                Err(rejection) => Reply::Rejected(rejection),
            },
            FireMode::Due if is_due && !self.server.is_draining() => {
                self.fire(now, id, FIRINGS_MAX, effects);
                let entry = self.schedules.entries.get(&id);
                let firings = entry.into_iter().flat_map(|entry| &entry.firings);
                let newest = firings.max_by_key(|job| self.jobs[**job].seq());
                match newest.map(|job| self.jobs[*job].id()) {
                    Some(job) => Reply::ScheduleFiredByHand { fired: true, reason: None, job: Some(job) },
                    None => not(NotFired::NotDue),
                }
            }
            FireMode::Due => not(NotFired::NotDue),
        }
    }

    /// One schedule. `tenant`: the tenant that it must belong to.
    pub fn schedule(&self, tenant: Option<&Name>, id: ScheduleId) -> Option<&Schedule> {
        self.schedules.get(tenant, id)
    }

    /// How many schedules create jobs in a lane.
    pub fn schedules_in(&self, lane: &Name) -> usize {
        self.schedules.entries.values().filter(|entry| entry.schedule.spec.job.lane == *lane).count()
    }

    /// The schedule of that name.
    pub fn schedule_named(&self, tenant: &Name, name: &Name) -> Option<&Schedule> {
        let id = self.schedules.names.get(&(tenant.clone(), name.clone()))?;
        Some(&self.schedules.entries[id].schedule)
    }

    /// Schedules after `after` in the order of their creation, at most `limit`.
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

    /// The latest entries of the firing log, newest first. With a tenant: only that tenant's.
    pub fn recent_firings(&self, tenant: Option<&Name>) -> impl Iterator<Item = &FiringLogEntry> {
        let all = self.schedules.recent.iter().rev();
        all.filter(move |log| tenant.is_none_or(|tenant| *tenant == log.tenant))
    }

    /// Checks a spec. `id`: the schedule that it will belong to.
    fn check_schedule(&self, now: Now, spec: &ScheduleSpec, id: Option<ScheduleId>) -> Result<(), Rejection> {
        self.schedules.check_name(spec, id)?;
        check_fields(spec)?;
        check_template(spec)?;
        self.check_form(now, &spec.job, self.queue.locate(&spec.job))?;
        self.schedules.check_bytes(spec, id, self.settings.schedules.bytes_max)
    }
}

impl Schedules {
    /// Deletes a schedule. The job of a firing goes on and is logged when it ends.
    pub(in crate::engine) fn delete(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        id: ScheduleId,
        origin: &Origin,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) -> Reply {
        if self.get(tenant, id).is_none() {
            return Reply::NotFound;
        }
        match self.delete_known(now, id, Some(origin), numbers, effects) {
            Some(schedule) => Reply::Schedule(Box::new(schedule)),
            None => Reply::NotFound,
        }
    }

    pub(super) fn delete_known(
        &mut self,
        now: Now,
        id: ScheduleId,
        origin: Option<&Origin>,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) -> Option<Schedule> {
        self.drop_waiting_slot(now, id, "the schedule was deleted", numbers, effects);
        let schedule = self.remove(id)?;
        schedule_event(now, EventKind::ScheduleDeleted, &schedule, "deleted", origin, numbers, effects);
        effects.changes.push(Change::ScheduleRemoved(id));
        Some(schedule)
    }

    /// Checks that one more schedule of the tenant is within the limits.
    fn check_limits(&self, tenant: &Name, limits: &ScheduleSettings) -> Result<(), Rejection> {
        let of_tenant = self.entries.values().filter(|entry| entry.schedule.spec.tenant == *tenant).count();
        let scopes = [
            ("schedules_max", "server", self.entries.len(), limits.schedules_max),
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

    fn check_name(&self, spec: &ScheduleSpec, id: Option<ScheduleId>) -> Result<(), Rejection> {
        let name = (spec.tenant.clone(), spec.name.clone());
        if self.names.get(&name).is_some_and(|other| Some(*other) != id) {
            let message =
                format!("name: there is a schedule {:?} already; choose another name", spec.name.as_str());
            return Err(reject(RejectionCode::NameTaken, message));
        }
        Ok(())
    }

    fn check_bytes(&self, spec: &ScheduleSpec, id: Option<ScheduleId>, most: u64) -> Result<(), Rejection> {
        let bytes_of = |spec: &ScheduleSpec| (spec.payload.len() + spec.note.len()) as u64;
        let others = self.entries.values().filter(|entry| Some(entry.schedule.id) != id);
        let bytes = others.map(|entry| bytes_of(&entry.schedule.spec)).sum::<u64>() + bytes_of(spec);
        if bytes > most {
            let message = format!(
                "schedules.bytes_max: all payloads and notes would have {bytes} bytes of {most}; make them smaller"
            );
            return Err(reject(RejectionCode::TooMany, message));
        }
        Ok(())
    }
}

fn check_fields(spec: &ScheduleSpec) -> Result<(), Rejection> {
    let invalid = |message: String| Err(reject(RejectionCode::Invalid, message));
    for (field, len, most) in
        [("payload", spec.payload.len(), PAYLOAD_BYTES_MAX), ("note", spec.note.len(), NOTE_BYTES_MAX)]
    {
        if len > most {
            return invalid(format!("{field}: has {len} bytes; at most {most} are allowed"));
        }
    }
    if spec.jitter > JITTER_MAX {
        return invalid(format!("jitter: {} ms is too long; at most 24 hours are allowed", spec.jitter.0));
    }
    if let CatchUp::All { max } = spec.catch_up
        && !(1..=CATCH_UP_MAX).contains(&max)
    {
        return invalid(format!("catch_up.max: {max} is not in 1-{CATCH_UP_MAX}"));
    }
    Ok(())
}

/// Replaces [`SCHEDULE_SELF`] in the session's key by the schedule's id.
fn name_session(spec: &mut ScheduleSpec, id: ScheduleId) -> Result<(), Rejection> {
    let Some(session) = spec.job.session.as_mut() else { return Ok(()) };
    if session.key.as_str().contains(SCHEDULE_SELF) {
        let key = session.key.as_str().replace(SCHEDULE_SELF, &id.to_string());
        session.key = Name::new(&key)
            .map_err(|error| reject(RejectionCode::Invalid, format!("job.session.key: {error}")))?;
    }
    Ok(())
}

/// A template names no times and no other job.
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
