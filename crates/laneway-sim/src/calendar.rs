//! Schedules by the committed changes: rows, slots that fired, the firing log. Plain lists, and when slots must be by
//! the plainest arithmetic there is.
//!
//! It judges no policies: that is the work of `checker/slots.rs`.

use std::collections::{BTreeMap, BTreeSet};

use laneway_core::{Change, FiringLogEntry, JobId, Schedule, ScheduleId, Timing, Wall};

use crate::violation::{Checked, Violation, hold};

/// Everything that is durable of schedules.
#[derive(Debug, Default)]
pub struct Calendar {
    /// Schedules as stored.
    pub schedules: BTreeMap<ScheduleId, Schedule>,
    /// Every slot that ever came.
    pub slots: BTreeSet<(ScheduleId, Wall)>,
    /// Every entry of the firing log that was ever written.
    pub logs: BTreeMap<u64, FiringLogEntry>,
    /// Jobs with an entry of the firing log.
    pub logged: BTreeSet<JobId>,
    /// Schedules that are gone.
    pub gone: BTreeSet<ScheduleId>,
    /// True once retention was allowed to forget entries.
    pub purged: bool,
}

impl Calendar {
    /// Takes one change.
    pub fn change(&mut self, change: &Change) -> Checked {
        match change {
            Change::SchedulePut(schedule) => {
                hold("I3", !self.gone.contains(&schedule.id), || format!("{} comes back", schedule.id))?;
                self.schedules.insert(schedule.id, Schedule::clone(schedule));
            }
            Change::ScheduleMoved { id, enabled, state } => {
                let Some(schedule) = self.schedules.get_mut(id) else { return Err(unknown(*id)) };
                let (was, is) = (schedule.state.last_slot, state.last_slot);
                hold("I27", is >= was, || format!("the last slot of {id} falls from {was:?} to {is:?}"))?;
                schedule.spec.enabled = *enabled;
                schedule.state = (**state).clone();
            }
            Change::ScheduleRemoved(id) => {
                self.schedules.remove(id).ok_or_else(|| unknown(*id))?;
                self.gone.insert(*id);
            }
            Change::SlotFired { schedule, slot, .. } => {
                let fresh = self.slots.insert((*schedule, *slot));
                hold("I26", fresh, || format!("slot {} of {schedule} comes twice", slot.0))?;
            }
            Change::FiringLogged(log) => {
                let fresh = log.job.is_none_or(|job| self.logged.insert(job));
                hold("I26", fresh, || format!("the firing {:?} is logged twice", log.job))?;
                let last = self.logs.last_key_value().map_or(0, |(number, _)| *number);
                hold("I7", log.number > last, || {
                    format!("firing {} is logged after firing {last}", log.number)
                })?;
                self.logs.insert(log.number, FiringLogEntry::clone(log));
            }
            Change::FiringLogPruned { ended_before, .. } => {
                self.purged |= self.logs.values().next().is_some_and(|log| log.ended_at < *ended_before);
            }
            _ => {}
        }
        Ok(())
    }
}

fn unknown(id: ScheduleId) -> Violation {
    Violation::new("I2", format!("a change of schedule {id}, which is not stored"))
}

/// Is this a slot of the timing? Expressions of the world are `*/n * * * * *`.
pub fn is_slot(timing: &Timing, at: Wall) -> bool {
    match timing {
        Timing::At(slot) => *slot == at,
        Timing::Every { every, anchor } => {
            let passed = at.0 - anchor.map_or(0, |anchor| anchor.0);
            passed >= 0 && passed.cast_unsigned().is_multiple_of(every.0)
        }
        Timing::Cron { .. } => at.0 % 1_000 == 0 && is_cron_slot(timing, at),
    }
}

/// The slots from `from` to `to`, at most the newest `max`.
pub fn slots_between(timing: &Timing, from: Wall, to: Wall, max: usize) -> Vec<Wall> {
    let mut slots = Vec::new();
    let mut at = match timing {
        Timing::At(slot) => *slot,
        Timing::Every { every, anchor } => {
            // The newest one, then back.
            let (every, anchor) = (every.0.cast_signed(), anchor.map_or(0, |anchor| anchor.0));
            Wall(anchor + (to.0 - anchor).div_euclid(every) * every)
        }
        Timing::Cron { .. } => Wall(to.0.div_euclid(1_000) * 1_000),
    };
    let from = match timing {
        // A grid begins at its anchor.
        Timing::Every { anchor: Some(anchor), .. } => from.max(*anchor),
        _ => from,
    };
    while at >= from && slots.len() < max {
        if at <= to && is_cron_slot(timing, at) {
            slots.push(at);
        }
        at = match timing {
            Timing::At(_) => break,
            Timing::Every { every, .. } => at.before(*every),
            Timing::Cron { .. } => Wall(at.0 - 1_000),
        };
    }
    slots.reverse();
    slots
}

fn is_cron_slot(timing: &Timing, at: Wall) -> bool {
    match timing {
        Timing::Cron { expr, .. } => (at.0.div_euclid(1_000)).rem_euclid(60) % step_of(expr) == 0,
        _ => true,
    }
}

fn step_of(expr: &str) -> i64 {
    let step =
        expr.strip_prefix("*/").and_then(|rest| rest.split(' ').next()).and_then(|step| step.parse().ok());
    step.expect("expressions of the world begin with */n")
}
