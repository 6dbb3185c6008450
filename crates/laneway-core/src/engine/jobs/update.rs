//! Changing waiting jobs on request: their priority, and when they start at the earliest.
//!
//! A job that waits for its time has the same rank as if it had been submitted with that time, so a change gives it no
//! advantage. A job whose attempt is open is not changed: it has started.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::create::within_hours;
use crate::engine::jobs::record::JobEvent;
use crate::engine::jobs::submit::reject;
use crate::engine::jobs::{Job, Wake};
use crate::engine::schedules::stamp;
use crate::{
    Change, Effects, EventKind, JobId, JobPatch, JobState, Name, Now, Origin, Reason, Rejection,
    RejectionCode, Reply, Seq, Wall,
};

impl Engine {
    /// Changes a waiting job: all parts of the patch or none.
    pub(in crate::engine) fn update_job(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        job: JobId,
        patch: JobPatch,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(ix) = self.jobs.find(job) else { return Reply::NotFound };
        let owner = self.queue.owner_of(&self.jobs[ix]);
        if self.jobs[ix].state.is_terminal() || tenant.is_some_and(|tenant| tenant != owner) {
            return Reply::NotFound;
        }
        let start = match self.check_patch(now, ix, patch) {
            Ok(start) => start,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let seq = Seq(self.jobs[ix].seq);
        let priority = patch.priority.filter(|priority| *priority != self.jobs[ix].priority);
        let start = start.filter(|at| self.starts_at_another_time(now, ix, *at));
        if priority.is_none() && start.is_none() {
            return Reply::Updated { seq, state: self.jobs[ix].state };
        }
        if let Some(priority) = priority {
            let detail = format!("priority {} to {priority}", self.jobs[ix].priority);
            self.set_priority(ix, priority);
            self.update_event(now, ix, EventKind::JobPriorityChanged, detail, origin, effects);
        }
        let mut is_due = false;
        if let Some(at) = start {
            is_due = self.set_start(now, ix, at);
            let detail = format!("not before {}", stamp(at));
            self.update_event(now, ix, EventKind::JobRescheduled, detail, origin, effects);
        }
        let (priority, rank_time) = (self.jobs[ix].priority, self.jobs[ix].rank_time);
        effects.changes.push(Change::JobRevised { seq, priority, rank_time, not_before: start });
        if is_due {
            self.become_queued(now, ix, Reason::Due, effects);
            self.look_at_needs(now, ix, effects);
        } else {
            let status = self.status_of(ix, self.wake_time(now, ix));
            effects.changes.push(Change::JobMoved { seq, status });
        }
        self.arm(ix);
        Reply::Updated { seq, state: self.jobs[ix].state }
    }

    /// May the job be changed like that? Gives the time before which it is not to start.
    fn check_patch(&self, now: Now, job: Ix<Job>, patch: JobPatch) -> Result<Option<Wall>, Rejection> {
        let entry = &self.jobs[job];
        if entry.has_attempt() {
            let message = format!(
                "job: is {}; only a job that waits can be rescheduled or get another priority",
                entry.state
            );
            return Err(reject(RejectionCode::NotWaiting, message));
        }
        let Some(at) = patch.start.map(|start| start.time(now.wall)) else { return Ok(None) };
        if self.workflows.is_called(job) {
            let message = "run_at: this node of a middleware chain starts when it is called; leave run_at and delay out";
            return Err(reject(RejectionCode::Invalid, message));
        }
        if self.workflows.is_group(job) {
            let message = "run_at: this node stands for a group of nodes and starts nothing; reschedule the nodes in it";
            return Err(reject(RejectionCode::Invalid, message));
        }
        if entry.deadline().get().is_some_and(|deadline| at >= deadline) {
            let message = "run_at: comes after the deadline of the job; give an earlier time";
            return Err(reject(RejectionCode::DeadlinePast, message));
        }
        Ok(Some(at))
    }

    /// False for a job that starts no sooner and no later with this time.
    fn starts_at_another_time(&self, now: Now, job: Ix<Job>, at: Wall) -> bool {
        match self.jobs[job].wake() {
            None => at > now.wall,
            Some(Wake::NotBefore(until)) => until != within_hours(self.jobs.hours_of(job), at),
            Some(_) => true,
        }
    }

    /// Gives a waiting job another priority. Where it waits in the queue, it moves to its new position; how its agent was
    /// served does not change.
    fn set_priority(&mut self, job: Ix<Job>, priority: i32) {
        let waits_in_queue = self.jobs[job].bin.is_some();
        if waits_in_queue {
            // While its rank is still the old one.
            self.dequeue(job);
        }
        self.jobs[job].priority = priority;
        if waits_in_queue {
            self.enqueue(job);
        }
    }

    /// A waiting job starts no sooner than at this time. True: that time has come, and the job is to be queued.
    fn set_start(&mut self, now: Now, job: Ix<Job>, at: Wall) -> bool {
        if self.jobs[job].wake() == Some(Wake::Upstream) {
            // It waits for other nodes of its run first.
            self.workflows.set_not_before(job, at);
            return false;
        }
        let first = within_hours(self.jobs.hours_of(job), at);
        let rank_now = self.clock.rank_now(now);
        self.sessions.wait_no_longer(&self.jobs, job);
        if first <= now.wall {
            // A job that waits in a bin has the rank of a time that has passed.
            if self.jobs[job].bin.is_none() {
                self.jobs[job].rank_time = self.jobs[job].rank_time.min(rank_now);
            }
            return true;
        }
        self.dequeue(job);
        self.capacity.forget_bypassed(&mut self.jobs, job);
        self.jobs[job].rank_time = rank_now.saturating_add(first.since(now.wall).0);
        self.jobs[job].wait_for(Wake::NotBefore(first));
        if self.jobs[job].state == JobState::Queued {
            self.set_state(job, JobState::Scheduled);
        }
        self.sessions.wait_for_later(&self.jobs, job);
        false
    }

    /// Until when a waiting job waits, where that is a time.
    fn wake_time(&self, now: Now, job: Ix<Job>) -> Option<Wall> {
        match self.jobs[job].wake()? {
            Wake::NotBefore(at) => Some(at),
            Wake::Backoff(at) | Wake::Debounce(at) => Some(now.wall + at.since(now.mono)),
            Wake::Upstream | Wake::Called => None,
        }
    }

    fn update_event(
        &mut self,
        now: Now,
        job: Ix<Job>,
        kind: EventKind,
        detail: String,
        origin: &Origin,
        effects: &mut Effects,
    ) {
        let event = JobEvent::new(kind, None);
        let detail = Some(detail.into());
        self.job_event(now, job, JobEvent { origin: Some(origin), detail, ..event }, effects);
    }
}
