//! What time does to a job: it becomes queued, expires, gets closer to its deadline, or loses its lease.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::record::JobEvent;
use crate::engine::jobs::{Armed, Job, MaybeMono, MaybeWall, Wake};
use crate::engine::queue::Demand;
use crate::engine::workers::placement::pin_expiry;
use crate::{AttemptEnd, Change, Effects, EventKind, JobState, Now, Reason, Seq};

impl Engine {
    /// A job's time has come: does what is due and arms it anew.
    pub(in crate::engine) fn look_at(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        match self.jobs[job].state {
            JobState::Scheduled | JobState::Queued => self.look_at_waiting(now, job, effects),
            JobState::Assigned | JobState::Running => self.look_at_open(now, job, effects),
            _ => self.look_at_still_running(now, job, effects),
        }
    }

    fn look_at_waiting(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let entry = &self.jobs[job];
        if entry.is_overdue(now) {
            return self.expire(now, job, effects);
        }
        let due = match entry.wake() {
            Some(Wake::NotBefore(at)) => at <= now.wall,
            Some(Wake::Backoff(at) | Wake::Debounce(at)) => at <= now.mono,
            Some(Wake::Upstream | Wake::Called) | None => false,
        };
        if due {
            self.become_queued(now, job, Reason::Due, effects);
        }
        if pin_expiry(&self.queue, &self.jobs[job]).is_some_and(|at| at <= now.wall) {
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
        self.sessions.wait_no_longer(&self.jobs, job);
        if let Some(Wake::NotBefore(_)) = self.jobs[job].wake() {
            // Its rank was the time it waits for; a wall clock that was set ahead since made that come sooner.
            self.jobs[job].rank_time = self.jobs[job].rank_time.min(self.clock.rank_now(now));
        }
        self.jobs[job].set_wake(None);
        self.set_state(job, JobState::Queued);
        self.jobs[job].begin_queue_timeout(now.mono);
        self.jobs.begin_hours(job, now.wall);
        match self.jobs[job].bin {
            None => self.enqueue(job),
            // It kept its position in its session while it waited.
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
        if entry.times().hours_end.is_due(now.wall) {
            self.jobs.begin_hours(job, now.wall);
        }
        if self.jobs[job].times().near_at.is_due(now.wall) {
            self.boost(now, job, effects);
        }
    }

    /// The deadline of a queued job is near: it goes ahead of others, and does not need a quiet machine. Once.
    fn boost(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let demand = self.queue.demand_of(&self.jobs[job]).map(Demand::near_deadline);
        self.dequeue(job);
        self.jobs[job].change_times(|times| times.near_at = MaybeWall::NONE);
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
        let open = self.jobs.open(job);
        let stopping = open.stopping;
        if let Some((cause, until)) = stopping
            && until <= now.mono
            && !self.workers.is_unreachable(open)
        {
            return self.close_stopped(now, job, cause, effects);
        }
        let until = self.workers.lease_end(open);
        if self.clock.is_over(now, until) {
            return match (stopping, entry.state) {
                (Some((cause, _)), _) => self.close_stopped(now, job, cause, effects),
                (None, JobState::Assigned) if self.jobs.is_reserved(job) => self.unclaimed(now, job, effects),
                (None, JobState::Assigned) if open.worker.is_none() => {
                    self.hand_back(now, job, AttemptEnd::Unanswered.into(), effects)
                }
                (None, JobState::Assigned) if open.is_pushed() => self.unanswered(now, job, effects),
                (None, _) => self.lose(now, job, effects),
            };
        }
        if stopping.is_none() {
            if entry.deadline().is_due(now.wall) && self.jobs.is_reserved(job) {
                // No worker has claimed it, so there is none to wait for.
                return self.close_stopped(now, job, AttemptEnd::Expired, effects);
            }
            if entry.deadline().is_due(now.wall) {
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

    fn look_at_still_running(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let open = self.jobs.open(job);
        let grace_over =
            open.stopping.is_some_and(|(_, until)| until <= now.mono) && !self.workers.is_unreachable(open);
        if grace_over || self.clock.is_over(now, self.workers.lease_end(open)) {
            return self.release_still_running(now, job, effects);
        }
        self.extend_to_floor(now, job);
        self.arm(job);
    }

    /// Does what is due of a job with an open attempt, whether the job has ended or not.
    pub(in crate::engine) fn look_at_attempt(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        if self.jobs[job].state.is_terminal() {
            self.look_at_still_running(now, job, effects);
        } else {
            self.look_at_open(now, job, effects);
        }
    }

    /// A lease that its worker or the lost time keeps alive gets that end itself, so that its timer moves.
    fn extend_to_floor(&mut self, now: Now, job: Ix<Job>) {
        let end = self.workers.lease_end(self.jobs.open(job));
        let floor = end.map_or(self.clock.lease_floor(), |end| end.max(self.clock.lease_floor()));
        let open = self.jobs.open_mut(job);
        if let Some(until) = &mut open.lease_until
            && *until <= now.mono
        {
            *until = floor;
        }
    }

    /// Brings the job's timers up to date with its state.
    pub(in crate::engine) fn arm(&mut self, job: Ix<Job>) {
        let armed = self.due_times(job);
        let was = std::mem::replace(&mut self.jobs[job].armed, armed);
        self.timers.rearm(job, was, armed);
    }

    fn due_times(&self, job: Ix<Job>) -> Armed {
        let entry = &self.jobs[job];
        let times = entry.times();
        if let Some(open) = entry.open {
            let open = &self.jobs.attempts[open];
            // A worker without a connection gets no order to stop: the attempt runs on until its lease ends.
            let stop = open.stopping.filter(|_| !self.workers.is_unreachable(open)).map(|(_, until)| until);
            let mono = [open.lease_until, open.timeout_at, stop, open.next_until].into_iter().flatten().min();
            let asked = entry.state.is_terminal() || open.stopping.is_some();
            let wall = if asked { MaybeWall::NONE } else { times.deadline };
            return Armed { mono: mono.into(), wall };
        }
        match times.wake {
            Some(Wake::NotBefore(at)) => {
                let wall = times.deadline.get().map_or(at, |deadline| deadline.min(at));
                Armed { mono: MaybeMono::NONE, wall: Some(wall).into() }
            }
            Some(Wake::Backoff(at) | Wake::Debounce(at)) => {
                Armed { mono: Some(at).into(), wall: times.deadline }
            }
            Some(Wake::Upstream | Wake::Called) => Armed { mono: MaybeMono::NONE, wall: times.deadline },
            None if times.near_at == MaybeWall::NONE
                && times.hours_end == MaybeWall::NONE
                && self.queue.class(entry.class).placement().is_none() =>
            {
                Armed { mono: times.queue_until, wall: times.deadline }
            }
            None => {
                let walls = [
                    times.deadline,
                    times.near_at,
                    times.hours_end,
                    pin_expiry(&self.queue, &self.jobs[job]).into(),
                ];
                let wall = walls.into_iter().filter_map(MaybeWall::get).min();
                Armed { mono: times.queue_until, wall: wall.into() }
            }
        }
    }
}
