//! What time does: due jobs become queued, late ones end, silent leases are lost, old rows are forgotten.

use crate::engine::jobs::record::JobEvent;
use std::ops::Bound;

use crate::capacity::QuietRule;
use crate::engine::collections::slab::Ix;
use crate::engine::state::{Demand, Job, Wake};
use crate::engine::{Engine, Wakeup};
use crate::{
    AttemptEnd, Change, Effects, EventKind, JobState, Mono, Name, Now, Reason, Reply, Seq, Span, Wall,
};

/// Most jobs that one tick looks at; the rest follow in the next turn, so that commands are heard in between.
const DUE_MAX: usize = 1_024;
/// How often old rows are looked for.
const SWEEP_EVERY: Span = Span::secs(10);
/// How soon the next sweep follows one that left something over.
const SWEEP_AGAIN: Span = Span::secs(1);
/// Rows of a lane that a sweep may delete beside twice what ended since the last one.
const SWEEP_ROWS_MIN: u32 = 1_000;
/// Rows of a lane that a sweep may delete at most: more would hold up everybody's commit.
const SWEEP_ROWS_MAX: u32 = 5_000;
/// Lanes that are named no more and that one sweep looks at.
const REMOVED_LANES_SWEPT: usize = 64;
/// A look at the clock that comes later than this means that the process did not run. What waited to be heard must be
/// heard before a lease is called silent.
const STALL: Span = Span::secs(1);

impl Engine {
    /// Looks at the clock.
    pub(in crate::engine) fn tick(&mut self, now: Now, effects: &mut Effects) {
        self.notice_stall(now);
        for _ in 0..DUE_MAX {
            let Some(job) = self.timers.due(now) else { break };
            self.look_at(now, job, effects);
        }
        self.watch_workers(now, effects);
        self.expire_bindings(now);
        self.fire_schedules(now, effects);
        self.look_at_clock(now, effects);
        if self.clock.sweep_at <= now.mono {
            let left_over = self.sweep(now, effects);
            self.clock.sweep_at = now.mono + if left_over { SWEEP_AGAIN } else { SWEEP_EVERY };
        }
    }

    /// Moves the clock of retention on. A jump of the wall clock is an event. A clock that goes back is stored at once: a
    /// restart that began from a later time would take what ends from now on for older than it is.
    pub(in crate::engine) fn look_at_clock(&mut self, now: Now, effects: &mut Effects) {
        let before = self.clock.retention_clock.wall();
        let jumped = self.clock.retention_clock.advance(now);
        if self.clock.retention_clock.wall() < before {
            effects.changes.push(Change::ClockSeen(self.clock.retention_clock.wall()));
        }
        if let Some(ahead) = jumped {
            let detail = format!(
                "the wall clock is {} s ahead of the time that was seen to pass; until it has been so for an hour, nothing \
                 is deleted for its age",
                ahead.0 / 1_000
            );
            self.server_event(now, EventKind::ClockJumped, None, None, detail.into(), effects);
        }
    }

    /// When to look at the clock again.
    pub fn next_wakeup(&self) -> Wakeup {
        let mono = self.timers.next_mono().map_or(self.clock.sweep_at, |at| at.min(self.clock.sweep_at));
        let mono = self.next_delivery().map_or(mono, |at| at.min(mono));
        let mono = self.workers.pool.watch.first().map_or(mono, |&(at, _)| at.min(mono));
        let slot = self.schedules.due.first().filter(|_| !self.server.draining).map(|(at, _)| *at);
        let wall = [self.timers.next_wall(), slot, self.workers.pool.bindings.next_expiry()]
            .into_iter()
            .flatten()
            .min();
        Wakeup { mono: Some(mono), wall }
    }

    /// A process that was stopped heard no heartbeats: leases get the lost time back.
    fn notice_stall(&mut self, now: Now) {
        let looked_at = std::mem::replace(&mut self.clock.looked_at, now.mono);
        let watched = self.workers.pool.watch.first().map(|&(at, _)| at);
        let Some(asked) = [self.timers.next_mono(), watched].into_iter().flatten().min() else { return };
        let late = now.mono.since(asked.max(looked_at));
        if late > STALL {
            self.clock.lease_floor = now.mono + Span(late.0.min(self.settings.lease.0));
        }
    }

    /// A job's time has come: does what is due and arms it anew.
    fn look_at(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        match self.jobs[job].state {
            JobState::Scheduled | JobState::Queued => self.look_at_waiting(now, job, effects),
            JobState::Assigned | JobState::Running => self.look_at_open(now, job, effects),
            _ => self.look_at_lingering(now, job, effects),
        }
    }

    fn look_at_waiting(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let entry = &self.jobs[job];
        if entry.deadline.is_due(now.wall) || entry.queue_until.is_due(now.mono) {
            return self.expire(now, job, effects);
        }
        let due = match entry.wake {
            Some(Wake::NotBefore(at)) => at <= now.wall,
            Some(Wake::Backoff(at) | Wake::Debounce(at)) => at <= now.mono,
            Some(Wake::Upstream | Wake::Called) | None => false,
        };
        if due {
            self.become_queued(now, job, Reason::Due, effects);
        }
        if self.pin_expiry(job).is_some_and(|at| at <= now.wall) {
            return self.fail_missing(now, job, effects);
        }
        if self.jobs[job].state == JobState::Queued {
            self.look_at_needs(now, job, effects);
        }
        self.arm(job);
    }

    pub(in crate::engine) fn become_queued(
        &mut self,
        now: Now,
        job: Ix<Job>,
        reason: Reason,
        effects: &mut Effects,
    ) {
        self.wait_no_longer(job);
        if let Some(Wake::NotBefore(_)) = self.jobs[job].wake {
            // Its rank was the time it waits for; a wall clock that was set ahead since made that come sooner.
            self.jobs[job].rank_time = self.jobs[job].rank_time.min(self.rank_now(now));
        }
        self.jobs[job].wake = None;
        self.set_state(job, JobState::Queued);
        self.begin_queue_timeout(job, now.mono);
        self.begin_hours(job, now.wall);
        match self.jobs[job].bin {
            None => self.enqueue(job),
            // It kept its place in its session while it waited.
            Some(bin) => self.refresh(bin),
        }
        self.job_event(now, job, JobEvent::new(EventKind::JobQueued, Some(reason)), effects);
        let status = self.status_of(job, None);
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
    }

    /// A queued job's hours are over, or its deadline is near.
    pub(in crate::engine) fn look_at_needs(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let entry = &self.jobs[job];
        if let Some(hours) = entry.hours.map(|hours| &self.jobs.hours[hours])
            && !hours.holds(now.wall)
        {
            let at = hours.next_begin(now.wall);
            return self.defer(now, job, Wake::NotBefore(at), Reason::Hours, effects);
        }
        if entry.hours_end.is_due(now.wall) {
            self.begin_hours(job, now.wall);
        }
        if self.jobs[job].near_at.is_due(now.wall) {
            self.boost(now, job, effects);
        }
    }

    /// A queued job has hours: they end.
    pub(in crate::engine) fn begin_hours(&mut self, job: Ix<Job>, now: Wall) {
        if let Some(hours) = self.jobs[job].hours {
            self.jobs[job].hours_end = Some(self.jobs.hours[hours].next_end(now)).into();
        }
    }

    /// The deadline of a queued job is near: it goes ahead of others, and asks for less quiet. Once.
    fn boost(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let demand = self.demand_of_job(job).map(|demand| match demand.rule {
            Some(QuietRule::Quiet) => Demand { rule: Some(QuietRule::Normal), ..demand },
            _ => demand,
        });
        self.dequeue(job);
        self.jobs[job].near_at = Default::default();
        self.jobs[job].near = true;
        self.change_demand(job, demand);
        self.enqueue(job);
        let event = JobEvent::new(EventKind::JobBoosted, Some(Reason::NearDeadline));
        self.job_event(now, job, event, effects);
        let status = self.status_of(job, None);
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
    }

    fn look_at_open(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let entry = &self.jobs[job];
        let open = &self.jobs.attempts[entry.attempt()];
        let stopping = open.stopping;
        if let Some((cause, until)) = stopping
            && until <= now.mono
            && !self.hears_nothing(open)
        {
            return self.close_stopped(now, job, cause, effects);
        }
        let until = self.lease_end(open);
        if self.is_over(now, until) {
            return match (stopping, entry.state) {
                (Some((cause, _)), _) => self.close_stopped(now, job, cause, effects),
                (None, JobState::Assigned) if self.is_reserved(job) => self.reject(now, job, effects),
                (None, JobState::Assigned) if open.worker.is_none() => {
                    self.hand_back(now, job, AttemptEnd::Unanswered.into(), effects)
                }
                (None, JobState::Assigned) if open.is_pushed() => self.unanswered(now, job, effects),
                (None, _) => self.lose(now, job, effects),
            };
        }
        if stopping.is_none() {
            if entry.deadline.is_due(now.wall) && self.is_reserved(job) {
                // Nobody has taken it, so nobody must be waited for.
                return self.close_stopped(now, job, AttemptEnd::Expired, effects);
            }
            if entry.deadline.is_due(now.wall) {
                return self.ask_to_stop(now, job, AttemptEnd::Expired, effects);
            }
            if open.timeout_at.is_some_and(|at| at <= now.mono) {
                return self.ask_to_stop(now, job, AttemptEnd::TimedOut, effects);
            }
        }
        if open.next_until.is_some_and(|at| at <= now.mono) {
            self.call_timed_out(now, job, effects);
        }
        self.extend_to_floor(now, job);
        self.arm(job);
    }

    fn look_at_lingering(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let open = self.jobs.open(job);
        let grace_over =
            open.stopping.is_some_and(|(_, until)| until <= now.mono) && !self.hears_nothing(open);
        if grace_over || self.is_over(now, self.lease_end(open)) {
            return self.release_lingering(now, job, effects);
        }
        self.extend_to_floor(now, job);
        self.arm(job);
    }

    /// What is due of a job with an open attempt, whether it has ended or not.
    pub(in crate::engine) fn look_at_open_or_lingering(
        &mut self,
        now: Now,
        job: Ix<Job>,
        effects: &mut Effects,
    ) {
        if self.jobs[job].state.is_terminal() {
            self.look_at_lingering(now, job, effects);
        } else {
            self.look_at_open(now, job, effects);
        }
    }

    /// Is a lease over that lasts until then?
    pub(in crate::engine) fn is_over(&self, now: Now, until: Option<Mono>) -> bool {
        until.is_some_and(|until| until.max(self.clock.lease_floor) <= now.mono)
    }

    /// A lease that is only kept by its worker or by the lost time is written as what it is, so that its timer moves.
    fn extend_to_floor(&mut self, now: Now, job: Ix<Job>) {
        let end = self.lease_end(self.jobs.open(job));
        let floor = end.map_or(self.clock.lease_floor, |end| end.max(self.clock.lease_floor));
        let open = self.jobs.open_mut(job);
        if let Some(until) = &mut open.lease_until
            && *until <= now.mono
        {
            *until = floor;
        }
    }

    /// Somebody wants ended jobs of a lane forgotten. What an idempotency key stands for stays as long as the key does.
    pub(in crate::engine) fn forget_ended(
        &mut self,
        now: Now,
        lane: Name,
        finished_before: Wall,
        effects: &mut Effects,
    ) -> Reply {
        // Also here by the time that was seen to pass: jobs and keys may be younger than the wall clock says, and whoever
        // asks has counted back from the wall clock.
        self.look_at_clock(now, effects);
        let seen = self.clock.retention_clock.wall();
        let ahead = now.wall.since(seen);
        let finished_before = finished_before.min(now.wall).before(ahead);
        let keyed = seen.before(self.settings.idempotency_window).min(finished_before);
        effects.changes.push(Change::JobsPruned {
            lane,
            finished_before,
            keyed_finished_before: keyed,
            max: SWEEP_ROWS_MAX,
        });
        Reply::Done
    }

    /// Forgets ended jobs of lanes that are named no more, a few lanes at a time.
    fn sweep_removed_lanes(&mut self, seen: Wall, keyed: Wall, effects: &mut Effects) {
        let after = self.queue.removed_lane_swept.take();
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let due: Vec<(&Name, &Span)> = self
            .queue
            .removed_lanes
            .range::<Name, _>((from, Bound::Unbounded))
            .take(REMOVED_LANES_SWEPT)
            .collect();
        for &(lane, retention) in &due {
            // One whose slot was not given to another lane yet is swept with the others.
            if self.queue.lanes.values().any(|other| other.name == *lane) {
                continue;
            }
            let finished_before = seen.before(*retention);
            purge(effects, lane, finished_before, keyed.min(finished_before), SWEEP_ROWS_MIN);
        }
        self.queue.removed_lane_swept = match due.len() {
            REMOVED_LANES_SWEPT => due.last().map(|(lane, _)| (*lane).clone()),
            // That was the last of them: the next sweep begins anew.
            _ => None,
        };
    }

    /// Forgets rows that nobody is owed any more: a bounded number, more where more ended. True when a lane may have more.
    fn sweep(&mut self, now: Now, effects: &mut Effects) -> bool {
        let mut left_over = false;
        let seen = self.clock.retention_clock.wall();
        effects.changes.push(Change::ClockSeen(seen));
        let keyed = seen.before(self.settings.idempotency_window);
        for lane in self.queue.lanes.values_mut() {
            let max = SWEEP_ROWS_MIN.saturating_add(lane.ended.saturating_mul(2)).min(SWEEP_ROWS_MAX);
            lane.ended = lane.ended.saturating_sub(max / 2);
            left_over |= lane.ended > 0;
            let finished_before = seen.before(lane.settings.retention);
            purge(effects, &lane.name, finished_before, keyed.min(finished_before), max);
        }
        self.sweep_removed_lanes(seen, keyed, effects);
        effects.changes.push(Change::FiringLogPruned {
            ended_before: seen.before(self.settings.schedules.firing_log_retention),
            keep: self.settings.schedules.firing_log_max,
            slots_before: seen.before(self.settings.schedules.slot_retention),
            max: SWEEP_ROWS_MAX,
        });
        effects.changes.push(Change::EventsPruned { before: seen.before(self.settings.event_retention) });
        self.sweep_sessions(seen, effects);
        self.sweep_tokens(now, seen, effects);
        left_over
    }
}

/// Forgets ended jobs and ended runs of a lane, `max` at most of each.
fn purge(effects: &mut Effects, lane: &Name, finished_before: Wall, keyed_finished_before: Wall, max: u32) {
    let lane = lane.clone();
    effects.changes.push(Change::JobsPruned {
        lane: lane.clone(),
        finished_before,
        keyed_finished_before,
        max,
    });
    effects.changes.push(Change::RunsPruned { lane, finished_before, keyed_finished_before, max });
}
