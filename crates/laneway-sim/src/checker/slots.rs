//! Slots and runs of schedules: I26 (a slot comes exactly once, on its plan, as its policies say), I27 (no clock makes one
//! come again, and the next one is always ahead), and the log that tells every run and every slot without one.

use laneway_core::command::ScheduleCommand;
use std::collections::{BTreeMap, BTreeSet};

use laneway_core::schedule::FireMode;
use laneway_core::{
    CatchUp, Change, Command, Effects, EventKind, FiringLogEntry, FiringStatus, JobEnd, JobId, JobRow,
    JobSpec, JobState, Name, Origin, Overlap, Reason, Reply, Schedule, ScheduleId, ScheduleRef, ScheduleSpec,
    ScheduleState, Submission, Timing, Wall,
};

use super::{Checker, Given};
use crate::calendar::{is_slot, slots_between};
use crate::clock::Moment;
use crate::violation::{Checked, Violation, hold};

/// What the checker keeps of slots while it follows one commit, and from one to the next.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Slots that passed before the process started, by schedule.
    missed_until: BTreeMap<ScheduleId, Wall>,
    /// Slots of this commit that its schedule has not accounted for yet.
    came: BTreeSet<(ScheduleId, Wall)>,
    /// Jobs of this commit that stand for a slot whose row has not come yet.
    made: BTreeMap<JobId, ScheduleRef>,
    /// Slots that waited until a job of this commit was made for them. Their rows may come after their schedule has moved on.
    waited: BTreeSet<(ScheduleId, Wall)>,
    /// Jobs of schedules that ended in this commit and are not logged yet.
    ended: BTreeMap<JobId, (JobState, Reason)>,
    /// Schedules of which a run ended in this commit.
    ran: BTreeSet<ScheduleId>,
}

impl Checker {
    /// A process starts: what was due was missed. A rebuilt engine in the same process has missed nothing.
    pub(super) fn slots_restarted(&mut self, moment: Moment, process: bool) {
        let due = self.ledger.calendar.schedules.values();
        let due = due.filter(|schedule| schedule.state.next_at.is_some_and(|at| at <= moment.now.wall));
        self.slots.missed_until =
            due.filter(|_| process).map(|schedule| (schedule.id, moment.now.wall)).collect();
    }

    /// Follows one change that is about a schedule.
    pub(super) fn follow_schedule(&mut self, given: Given<'_>, change: &Change) -> Checked {
        match change {
            Change::SchedulePut(schedule) => self.may_be_put(given, schedule)?,
            Change::ScheduleMoved { id, enabled, state } => self.may_move_on(given, *id, *enabled, state)?,
            Change::ScheduleRemoved(id) => self.may_be_removed(given, *id)?,
            Change::SlotFired { schedule, slot, job } => self.may_come(given, *schedule, *slot, *job)?,
            Change::FiringLogged(log) => self.may_be_logged(given, log)?,
            _ => {}
        }
        self.ledger.change(change)
    }

    fn may_be_put(&mut self, given: Given<'_>, schedule: &Schedule) -> Checked {
        let id = schedule.id;
        let old = self.ledger.calendar.schedules.get(&id);
        let asked = given.commands.iter().any(|command| match command {
            Command::Schedule(ScheduleCommand::Put(spec, _)) => {
                old.is_none() && spec.name == schedule.spec.name
            }
            Command::Schedule(ScheduleCommand::Update { id: other, .. })
            | Command::Schedule(ScheduleCommand::Toggle { id: other, .. }) => *other == id,
            _ => false,
        });
        hold("I2", asked, || format!("nobody asked for schedule {id}"))?;
        let (spec, state) = (&schedule.spec, &schedule.state);
        hold("I26", spec.enabled || state.next_at.is_none(), || {
            format!("{id} is switched off and has a next slot")
        })?;
        let kept = old.is_some_and(|old| old.state.next_at == state.next_at);
        if let Some(next) = state.next_at.filter(|_| !kept) {
            let after = state.last_slot.map_or(given.moment.now.wall, |slot| slot.max(given.moment.now.wall));
            self.slots.missed_until.remove(&id);
            return is_next(&spec.timing, after, next);
        }
        Ok(())
    }

    /// Where a schedule goes on, every slot that it left behind came in this commit, as its policies want.
    fn may_move_on(
        &mut self,
        given: Given<'_>,
        id: ScheduleId,
        enabled: bool,
        state: &ScheduleState,
    ) -> Checked {
        let Some(old) = self.ledger.calendar.schedules.get(&id) else { return Ok(()) };
        hold("I26", enabled || state.next_at.is_none(), || {
            format!("{id} is switched off and has a next slot")
        })?;
        if old.state.next_at == state.next_at {
            return Ok(());
        }
        let now = given.moment.now.wall;
        let Some(from) = old.state.next_at.filter(|from| *from <= now) else {
            return Err(Violation::new("I26", format!("{id} moves to {:?} before its slot", state.next_at)));
        };
        let wanted: BTreeSet<Wall> = self.wanted_slots(old, from, now).into_iter().collect();
        let waits = state.waiting_slot.filter(|slot| old.state.waiting_slot != Some(*slot));
        let came =
            self.slots.came.iter().filter(|(of, slot)| *of == id && *slot >= from).map(|(_, slot)| *slot);
        let came: BTreeSet<Wall> = came.chain(waits).collect();
        hold("I26", came == wanted, || {
            format!("of {id} came {came:?}, not {wanted:?}, from {from:?} to {now:?}")
        })?;
        if let Some(next) = state.next_at {
            let last = state.last_slot.unwrap_or(from);
            hold("I27", next > now && next > last, || {
                format!("the next slot of {id} is {next:?}, and it is {now:?}")
            })?;
            is_next(&old.spec.timing, now.max(last), next)?;
        }
        self.slots.came.retain(|(of, _)| *of != id);
        self.slots.missed_until.remove(&id);
        Ok(())
    }

    /// The slots that must come, by the policy for those that were missed.
    fn wanted_slots(&self, schedule: &Schedule, from: Wall, now: Wall) -> Vec<Wall> {
        let max = if let CatchUp::All { max } = schedule.spec.catch_up { max as usize } else { 1 };
        let slots = slots_between(&schedule.spec.timing, from, now, max);
        let newest = slots.last().copied().unwrap_or(from);
        let missed = self.slots.missed_until.get(&schedule.id).is_some_and(|until| newest <= *until)
            || now.since(newest) > self.reference.settings.schedules.late_max;
        if schedule.spec.catch_up == CatchUp::Skip && missed { Vec::new() } else { slots }
    }

    /// A slot comes: on its plan, with its job, or with a reason for having none.
    fn may_come(&mut self, given: Given<'_>, id: ScheduleId, slot: Wall, job: Option<JobId>) -> Checked {
        self.slots.came.insert((id, slot));
        let Some(schedule) = self.ledger.calendar.schedules.get(&id) else {
            return Err(Violation::new("I26", format!("a slot of {id} comes, which is not stored")));
        };
        // A timing that was changed leaves a waiting slot of the old one behind.
        let waited = schedule.state.waiting_slot == Some(slot) || self.slots.waited.remove(&(id, slot));
        hold("I26", waited || is_slot(&schedule.spec.timing, slot), || {
            format!("{slot:?} is no slot of {id}")
        })?;
        if let Some(job) = job {
            let of = self.slots.made.remove(&job);
            let same = of.is_some_and(|of| of.id == id && of.slot == slot);
            return hold("I26", same, || {
                format!("slot {slot:?} of {id} names job {job}, which is not its own")
            });
        }
        let replaces = schedule.spec.overlap == Overlap::CancelRunning || waited;
        let meets = schedule.spec.overlap != Overlap::Allow && self.runs_of(id).next().is_some();
        let cause = replaces
            || meets
            || self.is_turned_away(&schedule.spec.job, given.moment)
            || self.session_turns_away(id, &schedule.spec, given.moment);
        hold("I26", cause, || format!("slot {slot:?} of {id} passes without a cause"))
    }

    /// Would the session of the template reject its job now? It joins no burst, whatever gathers.
    fn session_turns_away(&self, id: ScheduleId, spec: &ScheduleSpec, moment: Moment) -> bool {
        let of = ScheduleRef { id, name: spec.name.clone(), slot: moment.now.wall, by_hand: false };
        let submission = Submission::new(
            JobSpec { schedule: Some(of), ..spec.job.clone() },
            spec.payload.clone(),
            Origin::server("schedule"),
        );
        self.session_verdict(&submission, moment).is_some()
    }

    /// A job of a schedule may be stored: somebody asked for it, or its slot has come and nothing of it runs.
    pub(super) fn may_be_made(&mut self, row: &JobRow, of: &ScheduleRef, given: Given<'_>) -> Checked {
        let Some(schedule) = self.ledger.calendar.schedules.get(&of.id) else {
            return Err(Violation::new(
                "I2",
                format!("job {} is of {}, which is not stored", row.seq.0, of.id),
            ));
        };
        let now = given.moment.now.wall;
        let asked = given.commands.iter().any(|command| {
            matches!(command, Command::Schedule(ScheduleCommand::Fire { id, mode: FireMode::Force, .. }) if *id == of.id)
        });
        // A slot that came and waited is due, whatever the clock says by now.
        let due = schedule.state.next_at.is_some_and(|at| at <= of.slot) && of.slot <= now;
        let waited = schedule.state.waiting_slot == Some(of.slot);
        let proven = if of.by_hand { asked && of.slot == now } else { due || waited };
        hold("I26", proven, || {
            format!("job {} is of slot {:?} of {}, which has not come", row.seq.0, of.slot, of.id)
        })?;
        let other = self.runs_of(of.id).next();
        let alone = !of.by_hand && schedule.spec.overlap == Overlap::Allow;
        hold("I26", alone || other.is_none(), || {
            format!("job {} of {} starts beside job {other:?}", row.seq.0, of.id)
        })?;
        hold("I1", self.is_as_templated(row, schedule, of), || {
            format!("job {} is not what {} asks for", row.seq.0, of.id)
        })?;
        if waited && !of.by_hand {
            self.slots.waited.insert((of.id, of.slot));
        }
        if !of.by_hand {
            self.slots.made.insert(row.id, of.clone());
        }
        Ok(())
    }

    /// Jobs of a schedule that have not ended, or whose run has not.
    fn runs_of(&self, id: ScheduleId) -> impl Iterator<Item = u64> {
        let of = move |row: &JobRow| row.spec.schedule.as_ref().is_some_and(|of| of.id == id);
        let live = self.ledger.jobs.values().filter(|entry| entry.end.is_none() || entry.open.is_some());
        live.filter(move |entry| of(&entry.row)).map(|entry| entry.row.seq.0)
    }

    fn is_as_templated(&self, row: &JobRow, schedule: &Schedule, of: &ScheduleRef) -> bool {
        let (spec, template) = (&row.spec, &schedule.spec.job);
        let settings = &self.reference.settings;
        let kind = settings.kinds.get(&template.kind);
        let timeout =
            template.timeout.or(kind.and_then(|kind| kind.timeout)).unwrap_or(settings.schedules.timeout);
        let retry = template.retry.clone().or_else(|| kind.and_then(|kind| kind.retry.clone()));
        let queue =
            template.queue_timeout.or(kind.and_then(|kind| kind.queue_timeout)).or(settings.queue_timeout);
        let jitter = schedule.spec.jitter;
        let spread =
            spec.not_before.is_none_or(|at| !of.by_hand && at >= of.slot && at.since(of.slot) < jitter);
        spec.tenant == template.tenant
            && spec.kind == template.kind
            && spec.agent == template.agent
            && spec.lane == self.lane_of(template)
            && spec.priority == template.priority
            && spec.session == template.session
            && spec.timeout == Some(timeout)
            && spec.retry == Some(retry.unwrap_or_else(|| settings.schedules.retry.clone()))
            && spec.queue_timeout == queue
            && of.name == schedule.spec.name
            && spread
    }

    /// A run that ended is told in the same commit.
    pub(super) fn run_ended(&mut self, end: &JobEnd) {
        if let Some(entry) = self.ledger.jobs.get(&end.seq)
            && entry.row.spec.schedule.is_some()
        {
            self.slots.ended.insert(entry.row.id, (end.state, end.reason));
        }
    }

    fn may_be_logged(&mut self, given: Given<'_>, log: &FiringLogEntry) -> Checked {
        hold("I26", log.ended_at == given.moment.now.wall, || {
            format!("run {} ends at another time", log.number)
        })?;
        let Some(job) = log.job else {
            let told = log.status == FiringStatus::Skipped && log.error.is_some();
            return hold("I26", told, || format!("run {} has no job and no reason: {log:?}", log.number));
        };
        let Some((state, reason)) = self.slots.ended.remove(&job) else {
            return Err(Violation::new(
                "I26",
                format!("run {} is logged, and job {job} has not ended", log.number),
            ));
        };
        self.slots.ran.insert(log.schedule);
        let status = match (state, reason) {
            (JobState::Succeeded, _) => FiringStatus::Ok,
            (JobState::Canceled, _) => FiringStatus::Canceled,
            (_, Reason::TimedOut) => FiringStatus::Timeout,
            (_, Reason::Lost) => FiringStatus::Interrupted,
            _ => FiringStatus::Error,
        };
        let entry = self.ledger.find(job);
        let of = entry.and_then(|entry| entry.row.spec.schedule.as_ref());
        let same = of.is_some_and(|of| of.id == log.schedule && of.slot == log.slot);
        hold("I26", same && log.status == status, || {
            format!("job {job} ended as {state} and is logged as {log:?}")
        })
    }

    fn may_be_removed(&mut self, given: Given<'_>, id: ScheduleId) -> Checked {
        self.slots.came.retain(|(of, _)| *of != id);
        let asked = given
            .commands
            .iter()
            .any(|command| matches!(command, Command::Schedule(ScheduleCommand::Delete { id: other, .. }) if *other == id));
        let ran = self.slots.ran.contains(&id);
        let once =
            self.ledger.calendar.schedules.get(&id).is_some_and(|schedule| schedule.spec.deletes_itself());
        hold("I3", asked || (ran && once), || format!("{id} is deleted, and nobody asked for it"))
    }

    /// Everything that a commit began about slots and runs it has also finished.
    pub(super) fn slots_closed(&mut self, effects: &Effects) -> Checked {
        let (made, ended) = (std::mem::take(&mut self.slots.made), std::mem::take(&mut self.slots.ended));
        hold("I26", made.is_empty(), || format!("jobs {:?} have no slot", made.keys()))?;
        hold("I26", ended.is_empty(), || format!("the ends of jobs {:?} are not logged", ended.keys()))?;
        self.slots.came.clear();
        self.slots.ran.clear();
        let told = effects.events.iter().filter(|event| event.kind == EventKind::ScheduleFiringEnded);
        let logged = effects.changes.iter().filter_map(|change| match change {
            Change::FiringLogged(log) => Some(log.number),
            _ => None,
        });
        hold("I7", told.map(|event| event.number).eq(logged), || {
            "what the events say of runs is not what the log says".to_owned()
        })
    }

    /// After a look at the clock no slot is due, none waits for nothing, and nothing is switched on in vain.
    pub fn no_slot_left(&self, moment: Moment) -> Checked {
        for (id, schedule) in &self.ledger.calendar.schedules {
            let state = &schedule.state;
            let runs = self.runs_of(*id).next().is_some();
            if self.reference.draining {
                continue;
            }
            hold("I27", state.next_at.is_none_or(|at| at > moment.now.wall), || {
                format!("the slot {:?} of {id} is due, and nothing happened", state.next_at)
            })?;
            hold("I26", state.waiting_slot.is_none() || runs, || {
                format!("a slot of {id} waits for nothing")
            })?;
            let alive = state.next_at.is_some() || state.waiting_slot.is_some() || runs;
            hold("I26", !schedule.spec.enabled || alive, || {
                format!("{id} is switched on and will never run")
            })?;
        }
        Ok(())
    }

    /// When the next slot comes.
    pub fn next_slot(&self) -> Option<Wall> {
        let schedules = self.ledger.calendar.schedules.values();
        schedules.filter(|_| !self.reference.draining).filter_map(|schedule| schedule.state.next_at).min()
    }

    /// A run takes the place of this one: its schedule says so, and a slot of it has come.
    pub(super) fn is_replaced(&self, row: &JobRow, moment: Moment) -> bool {
        let schedule = row.spec.schedule.as_ref().and_then(|of| self.ledger.calendar.schedules.get(&of.id));
        schedule.is_some_and(|schedule| {
            schedule.spec.overlap == Overlap::CancelRunning
                && schedule.state.next_at.is_some_and(|at| at <= moment.now.wall)
        })
    }

    /// A reply about a schedule was told.
    pub(super) fn told_schedule(&self, command: &Command, reply: &Reply) -> Checked {
        let (id, tenant) = match command {
            Command::Schedule(ScheduleCommand::Put(..)) => (None, None),
            Command::Schedule(ScheduleCommand::Update { id, tenant, .. })
            | Command::Schedule(ScheduleCommand::Delete { id, tenant, .. })
            | Command::Schedule(ScheduleCommand::Toggle { id, tenant, .. })
            | Command::Schedule(ScheduleCommand::Fire { id, tenant, .. }) => (Some(*id), tenant.as_ref()),
            _ => return Ok(()),
        };
        let calendar = &self.ledger.calendar;
        match reply {
            Reply::Schedule(told) => {
                let gone = calendar.gone.contains(&told.id);
                let stored = calendar.schedules.get(&told.id);
                let durable = gone || stored.is_some_and(|stored| stored.created_at == told.created_at);
                hold("I6", durable, || format!("{} is told and not durable", told.id))?;
                hold("X2", tenant.is_none_or(|tenant: &Name| *tenant == told.spec.tenant), || {
                    format!("{} is shown to tenant {tenant:?}", told.id)
                })
            }
            Reply::ScheduleFiredByHand { job: Some(job), .. } => {
                hold("I6", self.ledger.find(*job).is_some(), || {
                    format!("the run {job} is told and not durable")
                })
            }
            Reply::ScheduleFiredByHand { fired, reason, .. } => {
                hold("I6", !*fired && reason.is_some(), || "a run is told without a job".to_owned())
            }
            Reply::NotFound => {
                let known = id.and_then(|id| calendar.schedules.get(&id));
                let theirs = known.filter(|known| tenant.is_none_or(|tenant| *tenant == known.spec.tenant));
                hold("I1", theirs.is_none(), || format!("{id:?} is there and not found"))
            }
            Reply::Rejected(_) => Ok(()),
            other => Err(Violation::new("I5", format!("{command:?} is answered with {other:?}"))),
        }
    }
}

/// `next` is the first slot after `after`.
fn is_next(timing: &Timing, after: Wall, next: Wall) -> Checked {
    let between = slots_between(timing, Wall(after.0 + 1), next, 2);
    hold("I27", between == [next], || format!("after {after:?} the next slot is {between:?}, not {next:?}"))
}
