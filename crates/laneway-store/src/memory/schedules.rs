//! Applies the changes of schedules to the memory store, and takes them back.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_core::{Change, FiringLogEntry, JobId, Schedule, ScheduleId, Wall};

use super::state::State;
use crate::StoreError;

/// What something was before a commit touched it.
pub(super) enum Undo {
    Schedule(ScheduleId, Option<Arc<Schedule>>),
    /// It was not there.
    SlotCame(Wall, ScheduleId),
    SlotPruned(Wall, ScheduleId, Option<JobId>),
    /// It was not there.
    Logged(u64),
    Pruned(Arc<FiringLogEntry>),
}

/// Takes everything back, the latest first.
pub(super) fn undo(state: &mut State, done: Vec<Undo>) {
    for step in done.into_iter().rev() {
        match step {
            Undo::Schedule(id, None) => drop(state.schedules.remove(&id)),
            Undo::Schedule(id, Some(schedule)) => drop(state.schedules.insert(id, schedule)),
            Undo::SlotCame(slot, id) => drop(state.slots.remove(&(slot, id))),
            Undo::SlotPruned(slot, id, job) => drop(state.slots.insert((slot, id), job)),
            Undo::Logged(number) => drop(state.runs.remove(&number)),
            Undo::Pruned(run) => drop(state.runs.insert(run.number, run)),
        }
    }
}

/// Applies one change.
pub(super) fn apply(state: &mut State, change: &Change, done: &mut Vec<Undo>) -> Result<(), StoreError> {
    let unknown = |id: &ScheduleId| StoreError::Disagree(format!("schedule {id} is not stored"));
    match change {
        Change::SchedulePut(schedule) => {
            let name = (&schedule.spec.tenant, &schedule.spec.name);
            let mut others = state.schedules.values().filter(|other| other.id != schedule.id);
            if others.any(|other| (&other.spec.tenant, &other.spec.name) == name) {
                return Err(StoreError::Rejected(format!("schedule {}: its name is taken", schedule.id)));
            }
            let was = state.schedules.insert(schedule.id, Arc::new(Schedule::clone(schedule)));
            done.push(Undo::Schedule(schedule.id, was));
        }
        Change::ScheduleMoved { id, enabled, state: moved } => {
            let schedule = state.schedules.get_mut(id).ok_or_else(|| unknown(id))?;
            done.push(Undo::Schedule(*id, Some(Arc::clone(schedule))));
            let schedule = Arc::make_mut(schedule);
            schedule.spec.enabled = *enabled;
            schedule.state = (**moved).clone();
        }
        Change::ScheduleRemoved(id) => {
            let was = state.schedules.remove(id).ok_or_else(|| unknown(id))?;
            done.push(Undo::Schedule(*id, Some(was)));
        }
        Change::SlotFired { schedule, slot, job } => {
            if state.slots.contains_key(&(*slot, *schedule)) {
                let message = format!("slot {} of schedule {schedule} came before", slot.0);
                return Err(StoreError::Disagree(message));
            }
            state.slots.insert((*slot, *schedule), *job);
            done.push(Undo::SlotCame(*slot, *schedule));
        }
        Change::FiringLogged(log) => {
            if state.runs.contains_key(&log.number) {
                return Err(StoreError::Rejected(format!("run {}: its number is taken", log.number)));
            }
            state.runs.insert(log.number, Arc::new(FiringLogEntry::clone(log)));
            done.push(Undo::Logged(log.number));
        }
        Change::FiringLogPruned { ended_before, keep, slots_before, max } => {
            prune(state, *ended_before, *keep, *slots_before, *max, done);
        }
        _ => {}
    }
    Ok(())
}

fn prune(
    state: &mut State,
    ended_before: Wall,
    keep: u32,
    slots_before: Wall,
    max: u32,
    done: &mut Vec<Undo>,
) {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let oldest = state.runs.values().take(max).take_while(|run| run.ended_at < ended_before);
    let mut gone: Vec<u64> = oldest.map(|run| run.number).collect();
    forget(state, &mut gone, done);
    let mut counts: BTreeMap<ScheduleId, usize> = BTreeMap::new();
    for run in state.runs.values() {
        *counts.entry(run.schedule).or_default() += 1;
    }
    let mut left = max;
    for (schedule, count) in counts {
        let over = count.saturating_sub(keep as usize).min(left);
        left -= over;
        let of_schedule = state.runs.values().filter(|run| run.schedule == schedule);
        gone.extend(of_schedule.take(over).map(|run| run.number));
    }
    forget(state, &mut gone, done);
    let old = state.slots.range(..(slots_before, ScheduleId(0))).take(max);
    let old: Vec<(Wall, ScheduleId)> = old.map(|(key, _)| *key).collect();
    for (slot, schedule) in old {
        if let Some(job) = state.slots.remove(&(slot, schedule)) {
            done.push(Undo::SlotPruned(slot, schedule, job));
        }
    }
}

fn forget(state: &mut State, gone: &mut Vec<u64>, done: &mut Vec<Undo>) {
    for number in gone.drain(..) {
        if let Some(run) = state.runs.remove(&number) {
            done.push(Undo::Pruned(run));
        }
    }
}
