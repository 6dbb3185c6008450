//! Schedules: how they are changed, and how they fire.

mod commands;
pub(in crate::engine) mod firing;
mod log;

pub(in crate::engine) use log::{stamp, text_of};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::schedule::Plan;
use crate::{FiringLogEntry, Name, Schedule, ScheduleId, ScheduleRef, Wall};

/// Every schedule, and the jobs of its firings.
#[derive(Default)]
pub(in crate::engine) struct Schedules {
    entries: BTreeMap<ScheduleId, Entry>,
    /// By tenant and name.
    names: BTreeMap<(Name, Name), ScheduleId>,
    /// Next slots.
    due: BTreeSet<(Wall, ScheduleId)>,
    /// Jobs that a schedule created, until they are forgotten.
    firings: BTreeMap<Ix<Job>, Firing>,
    /// Schedules whose firing has ended while a slot waits for that.
    ended: BTreeSet<ScheduleId>,
    /// The schedule whose job is being created.
    firing: Option<ScheduleId>,
    /// Schedules to delete once the job that is being created is there.
    over: BTreeSet<ScheduleId>,
    /// Tenants and kinds of firings that no executor offers, of which a notice was sent.
    unserved: BTreeSet<(Name, Name)>,
    /// The latest entries of the firing log, oldest first.
    recent: VecDeque<FiringLogEntry>,
}

/// One schedule.
struct Entry {
    schedule: Schedule,
    plan: Plan,
    /// Jobs of its firings that have not ended, or whose attempt has not.
    firings: BTreeSet<Ix<Job>>,
    /// Slots up to this time passed before the process started.
    missed_until: Option<Wall>,
}

/// The job of a firing.
struct Firing {
    of: ScheduleRef,
    /// When its first attempt opened.
    began: Option<Wall>,
    /// True once a later slot replaces it.
    replaced: bool,
}

impl Schedules {
    /// Adds a schedule.
    pub(in crate::engine) fn insert(&mut self, schedule: Schedule, plan: Plan) {
        let id = schedule.id;
        self.names.insert((schedule.spec.tenant.clone(), schedule.spec.name.clone()), id);
        if let Some(at) = schedule.state.next_at {
            self.due.insert((at, id));
        }
        self.entries.insert(id, Entry { schedule, plan, firings: BTreeSet::new(), missed_until: None });
    }

    /// Forgets a schedule. Jobs of its firings go on.
    fn remove(&mut self, id: ScheduleId) -> Option<Schedule> {
        self.set_next(id, None);
        let Entry { schedule, .. } = self.entries.remove(&id)?;
        self.names.remove(&(schedule.spec.tenant.clone(), schedule.spec.name.clone()));
        self.ended.remove(&id);
        Some(schedule)
    }

    /// Changes when the next slot is.
    fn set_next(&mut self, id: ScheduleId, next: Option<Wall>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let was = std::mem::replace(&mut entry.schedule.state.next_at, next);
        if let Some(at) = was {
            self.due.remove(&(at, id));
        }
        if let Some(at) = next {
            self.due.insert((at, id));
        }
    }

    /// A schedule. `tenant`: the tenant that it must belong to.
    fn get(&self, tenant: Option<&Name>, id: ScheduleId) -> Option<&Schedule> {
        let schedule = &self.entries.get(&id)?.schedule;
        tenant.is_none_or(|tenant| *tenant == schedule.spec.tenant).then_some(schedule)
    }

    /// When the next slot is, of all schedules.
    pub(in crate::engine) fn next_slot(&self) -> Option<Wall> {
        self.due.first().map(|(at, _)| *at)
    }

    /// True when no slot waits for a firing that has ended.
    pub(in crate::engine) fn is_settled(&self) -> bool {
        self.ended.is_empty()
    }

    /// Compares the indexes with the schedules.
    pub(in crate::engine) fn check(&self) -> Result<(), String> {
        let (mut due, mut firings) = (0, 0);
        for (id, entry) in &self.entries {
            let (spec, state) = (&entry.schedule.spec, &entry.schedule.state);
            let fault = |what: &str| Err(format!("schedule {id}: {what}"));
            if self.names.get(&(spec.tenant.clone(), spec.name.clone())) != Some(id) {
                return fault("is not found by its name");
            }
            if let Some(at) = state.next_at {
                due += 1;
                if !spec.enabled || !self.due.contains(&(at, *id)) {
                    return fault("its next slot is not armed, or it is switched off");
                }
                if state.last_slot.is_some_and(|slot| at <= slot) {
                    return fault("a slot that fired would fire again");
                }
            }
            if state.waiting_slot.is_some() && entry.firings.is_empty() && !self.ended.contains(id) {
                return fault("a slot waits for a firing that is not there");
            }
            firings += entry.firings.len();
            if entry.firings.iter().any(|job| self.firings.get(job).is_none_or(|firing| firing.of.id != *id))
            {
                return fault("a firing of it is not known");
            }
        }
        let orphans =
            self.firings.values().filter(|firing| !self.entries.contains_key(&firing.of.id)).count();
        if due != self.due.len() || self.names.len() != self.entries.len() {
            return Err("the index of schedules has unknown entries".into());
        }
        if firings + orphans != self.firings.len() {
            return Err(format!("{} firings are known, schedules have {firings}", self.firings.len()));
        }
        Ok(())
    }
}
