//! What an ended attempt means: the job is done, is tried again, or has failed.
//!
//! Attempts close and jobs end only here. Closing frees every gate in the same command.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::{AttemptEnding, JobEnding};
use crate::engine::jobs::record::JobEvent;
use crate::engine::jobs::{Job, Wake};
use crate::engine::leases::by_id::ends_when_lost;
use crate::event::ErrorLine;
use crate::{
    AttemptEnd, Bytes, Change, ClosedAttempt, Effects, EventKind, Failure, Fence, JobEnd, JobState, Now,
    Outcome, Reason, Reply, Seq, ShutdownPolicy,
};

impl Engine {
    /// A runner reports that its attempt has ended.
    pub(in crate::engine) fn finish(
        &mut self,
        now: Now,
        fence: &Fence,
        outcome: Outcome,
        effects: &mut Effects,
    ) -> Reply {
        let found = self.jobs.fenced(fence);
        let Some(job) = found else { return Reply::Stale };
        if self.jobs[job].state.is_terminal() {
            self.release_still_running(now, job, effects);
            return Reply::Stale;
        }
        if let Some((cause, _)) = self.jobs.open(job).stopping {
            let done = outcome.is_success();
            let asked_back = cause == AttemptEnd::HandedBack;
            // The result of an attempt that cannot be repeated counts, although it was asked to stop.
            if !(asked_back && done && !self.may_begin_again(job)) {
                if asked_back && outcome == Outcome::HandedBack {
                    self.hand_back(now, job, cause.into(), effects);
                } else {
                    self.close_stopped(now, job, cause, effects);
                }
                return Reply::Stale;
            }
        }
        match outcome {
            Outcome::Succeeded(result) => self.succeed(now, job, Reason::Done, result, effects),
            Outcome::SucceededKeeping { result, keys } => match self.keep_keys(now, job, &keys, effects) {
                Ok(()) => self.succeed(now, job, Reason::Done, result, effects),
                Err(failure) => self.fail(now, job, AttemptEnd::Failed, failure, effects),
            },
            Outcome::Skipped(result) => self.succeed(now, job, Reason::Skipped, result, effects),
            Outcome::Failed(failure) => self.fail(now, job, AttemptEnd::Failed, failure, effects),
            Outcome::HandedBack => self.hand_back(now, job, AttemptEnd::HandedBack.into(), effects),
            Outcome::Interrupted => self.interrupt(now, job, effects),
            Outcome::Canceled if self.server.is_draining() => self.interrupt(now, job, effects),
            Outcome::Canceled => {
                let failure =
                    Failure::retryable("canceled", "the runner stopped although it was not asked to");
                self.fail(now, job, AttemptEnd::Failed, failure, effects);
            }
        }
        Reply::Done
    }

    fn succeed(
        &mut self,
        now: Now,
        job: Ix<Job>,
        reason: Reason,
        result: Option<Bytes>,
        effects: &mut Effects,
    ) {
        // A worker that reports the end before the start has run all the same.
        if self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        }
        let closed = Some(AttemptEnd::Succeeded.into());
        let ending = JobEnding { closed, result, ..JobEnding::new(JobState::Succeeded, reason) };
        self.end_job(now, job, ending, effects);
    }

    /// The attempt failed: try again if the policy has a retry left, else the job has failed.
    pub(in crate::engine) fn fail(
        &mut self,
        now: Now,
        job: Ix<Job>,
        end: AttemptEnd,
        mut failure: Failure,
        effects: &mut Effects,
    ) {
        let asked = failure.retry_after.take().map(|span| span.min(self.settings.retry_after_max));
        if self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        }
        self.jobs[job].failures += 1;
        let failures = self.jobs[job].failures;
        // A called node that no caller waits for is not tried again.
        let awaited = !(self.jobs[job].in_run && self.workflows.is_uncalled(job));
        let policy = &self.jobs.policies[self.jobs[job].policy];
        if failure.retryable && failures <= policy.retries_max && awaited {
            let backoff = policy.backoff;
            let wait = backoff.wait(failures, self.numbers.jitter()).max(asked.unwrap_or_default());
            let error = Some(ErrorLine::of(&failure));
            let closed = AttemptEnding::failed(end, failure);
            let detail = self.close_attempt(now, job, closed, false, effects);
            self.jobs[job].wait_for(Wake::Backoff(now.mono + wait));
            self.set_state(job, JobState::Scheduled);
            self.queue.count_waiting(&self.jobs[job]);
            let keeps_its_position = self.jobs[job].session.is_some();
            if keeps_its_position {
                // It keeps its position, so that the session does not go on without it.
                self.enqueue(job);
            }
            self.arm(job);
            let event = JobEvent::new(EventKind::JobRetrying, Some(Reason::Retry));
            self.job_event(now, job, JobEvent { error, detail, ..event }, effects);
            let status = self.status_of(job, Some(now.wall + wait));
            effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
            return;
        }
        let reason = match (end, failure.retryable) {
            (AttemptEnd::TimedOut, _) => Reason::TimedOut,
            (_, false) => Reason::Permanent,
            (_, true) => Reason::Exhausted,
        };
        let closed = Some(AttemptEnding::failed(end, failure));
        self.end_job(now, job, JobEnding { closed, ..JobEnding::new(JobState::Failed, reason) }, effects);
    }

    /// The attempt was lost: run the job again, unless it was lost too often.
    pub(in crate::engine) fn lose(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        if self.allows_loss(job) {
            self.jobs[job].losses += 1;
            return self.requeue(now, job, AttemptEnd::Lost.into(), Reason::Lost, effects);
        }
        self.end_lost(now, job, "the runner of the last attempt was lost", effects);
    }

    /// The attempt was cut short because its runner stops. That does not count, but a job that allows no loss must not begin
    /// twice.
    fn interrupt(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        if self.may_begin_again(job) {
            return self.hand_back(now, job, AttemptEnd::HandedBack.into(), effects);
        }
        self.end_lost(now, job, "its runner stopped while the last attempt ran", effects);
    }

    /// True when an attempt that is cut short may be followed by another one: it has not begun, the policy allows for a loss,
    /// or the job does not go on by itself anyway (a called node without a caller, a lane that cancels at a stop).
    fn may_begin_again(&self, job: Ix<Job>) -> bool {
        let entry = &self.jobs[job];
        let uncalled =
            entry.in_run && (self.workflows.is_uncalled(job) || self.workflows.was_given_up(&self.jobs, job));
        let begun = entry.state == JobState::Running;
        !begun || uncalled || self.allows_loss(job) || self.ends_with_server(job)
    }

    /// True when the job may run again after one more attempt of unknown effect.
    fn allows_loss(&self, job: Ix<Job>) -> bool {
        let losses_max = self.jobs.policies[self.jobs[job].policy].losses_max;
        self.jobs[job].losses < losses_max
            && !ends_when_lost(&self.queue.lane_of_job(&self.jobs[job]).settings().pull)
    }

    fn end_lost(&mut self, now: Now, job: Ix<Job>, why: &'static str, effects: &mut Effects) {
        self.jobs[job].losses += 1;
        let closed = Some(AttemptEnding::failed(AttemptEnd::Lost, Failure::retryable("lost", why)));
        self.end_job(
            now,
            job,
            JobEnding { closed, ..JobEnding::new(JobState::Failed, Reason::Lost) },
            effects,
        );
    }

    /// The attempt never did anything: the job waits again, at no cost.
    pub(in crate::engine) fn hand_back(
        &mut self,
        now: Now,
        job: Ix<Job>,
        end: AttemptEnding<'_>,
        effects: &mut Effects,
    ) {
        if self.ends_with_server(job) {
            // From now on it would wait, and waiting jobs of this lane are canceled when the server stops.
            let ending = JobEnding::new(JobState::Canceled, Reason::Shutdown);
            return self.end_job(now, job, JobEnding { closed: Some(end), ..ending }, effects);
        }
        self.requeue(now, job, end, Reason::HandedBack, effects);
    }

    /// True when the server stops and the lane of the job cancels waiting jobs then.
    pub(in crate::engine) fn ends_with_server(&self, job: Ix<Job>) -> bool {
        let lane = self.queue.lane_of_job(&self.jobs[job]);
        self.server.is_draining() && lane.settings().on_shutdown == ShutdownPolicy::Cancel
    }

    fn requeue(
        &mut self,
        now: Now,
        job: Ix<Job>,
        end: AttemptEnding<'_>,
        reason: Reason,
        effects: &mut Effects,
    ) {
        if self.jobs[job].in_run
            && (self.workflows.is_uncalled(job) || self.workflows.was_given_up(&self.jobs, job))
        {
            self.put_back(now, job, end, effects);
            return self.resume_awaited(now, job, effects);
        }
        let detail = self.close_attempt(now, job, end, false, effects);
        self.set_state(job, JobState::Queued);
        self.queue.count_waiting(&self.jobs[job]);
        self.enqueue(job);
        self.arm(job);
        let event = JobEvent::new(EventKind::JobQueued, Some(reason));
        self.job_event(now, job, JobEvent { detail, ..event }, effects);
        let status = self.status_of(job, None);
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
    }

    /// An attempt that was asked to stop has ended, or its grace has passed.
    pub(in crate::engine) fn close_stopped(
        &mut self,
        now: Now,
        job: Ix<Job>,
        cause: AttemptEnd,
        effects: &mut Effects,
    ) {
        if cause == AttemptEnd::HandedBack {
            return self.interrupt(now, job, effects);
        }
        if cause == AttemptEnd::TimedOut {
            let late = Failure::retryable("timed_out", "the attempt ran longer than its timeout");
            return self.fail(now, job, AttemptEnd::TimedOut, late, effects);
        }
        let late = Failure::permanent("expired", "the deadline passed while the attempt ran");
        let closed = Some(AttemptEnding::failed(AttemptEnd::Expired, late));
        let ending = JobEnding { closed, ..JobEnding::new(JobState::Failed, Reason::Expired) };
        self.end_job(now, job, ending, effects);
    }

    /// The attempt of an ended job has ended, or its grace has passed: its gates are freed.
    pub(in crate::engine) fn release_still_running(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let closed = AttemptEnding::from(AttemptEnd::Canceled);
        let detail = self.dispatch_line(job, closed.code());
        let event = JobEvent::new(EventKind::AttemptReleased, None);
        self.job_event(now, job, JobEvent { detail, ..event }, effects);
        self.close_attempt(now, job, closed, false, effects);
        self.forget(job);
    }

    /// Ends a job. Every end is written here.
    pub(in crate::engine) fn end_job(
        &mut self,
        now: Now,
        job: Ix<Job>,
        ending: JobEnding<'_>,
        effects: &mut Effects,
    ) {
        let answer = if self.jobs[job].in_run { self.workflows.answer_of(job, &ending) } else { None };
        let JobEnding { state, reason, closed, error, result, merged_into, origin } = ending;
        if let Some(answer) = answer {
            let closed = closed.expect("an attempt answers");
            return self.return_called(now, job, closed, answer, effects);
        }
        let error = error.or_else(|| closed.as_ref()?.failure.clone());
        let waited = !self.jobs[job].has_attempt();
        let open = (!waited).then(|| self.jobs.open(job));
        let started_at = open.and_then(|open| open.started_at);
        let attempt_id = open.map(|open| open.attempt_id);
        let detail = closed.and_then(|closed| self.close_attempt(now, job, closed, true, effects));
        if waited {
            self.sessions.wait_no_longer(&self.jobs, job);
            self.dequeue(job);
            self.queue.uncount_waiting(&self.jobs[job]);
        }
        self.jobs[job].set_wake(None);
        self.set_state(job, state);
        let (kind, line) = (kind_of_end(state), error.as_ref().map(ErrorLine::of));
        let event = JobEvent { kind, reason: Some(reason), origin, error: line, detail };
        self.job_event(now, job, event, effects);
        self.queue.count_ended(self.queue.lane_of(&self.jobs[job]), 1);
        let end = (reason, error.as_ref(), result.as_ref());
        let firing_log = self.schedules.log_entry_of(now, job, end, &self.jobs, &self.queue);
        let entry = &self.jobs[job];
        effects.changes.push(Change::JobEnded(Box::new(JobEnd {
            seq: Seq(entry.seq),
            state,
            reason,
            error,
            result,
            attempt_id,
            started_at,
            finished_at: now.wall,
            attempts: entry.attempts,
            failures: entry.failures,
            losses: entry.losses,
            last_event: entry.last_event,
            merged_into,
        })));
        if let Some(log) = firing_log {
            self.schedules.firing_ended(now, job, log, &self.jobs, &mut self.numbers, effects);
        }
        if self.jobs[job].has_callback {
            let tenant = self.queue.owner_of(&self.jobs[job]).clone();
            let (entry, settings) = (&self.jobs[job], &self.settings.webhooks);
            self.webhooks.create_delivery(now, entry, tenant, settings, effects);
        }
        if self.jobs[job].in_run {
            self.workflows.member_ended(job, state);
        }
        self.queue.count_end(&self.jobs[job], reason, waited);
        if !self.jobs[job].has_attempt() {
            self.forget(job);
        } else {
            self.arm(job);
            // From now on the attempt is one of a canceled job, which an interrupting job waits for.
            self.refresh_session(job);
        }
    }

    /// Closes the open attempt and frees its gates. Returns the outcome of its dispatch, for the event of the end.
    pub(in crate::engine) fn close_attempt(
        &mut self,
        now: Now,
        job: Ix<Job>,
        closed: AttemptEnding<'_>,
        last: bool,
        effects: &mut Effects,
    ) -> Option<Box<str>> {
        let open = self.open_row(job);
        let line = self.dispatch_line(job, closed.code());
        let AttemptEnding { end, failure: error, code: _ } = closed;
        if self.jobs[job].in_run {
            self.workflows.caller_closed(job);
        }
        self.free_gates(job);
        let ended = self.jobs[job].open.take().expect("the job has an open attempt");
        self.jobs.attempts.remove(ended);
        self.queue.count_attempt(now.wall, &self.jobs[job], open.started_at, end);
        effects.changes.push(Change::AttemptClosed(Box::new(ClosedAttempt {
            open,
            end,
            error,
            closed_at: now.wall,
            last,
        })));
        line
    }
}

/// The event of the end of a job.
fn kind_of_end(state: JobState) -> EventKind {
    match state {
        JobState::Succeeded => EventKind::JobSucceeded,
        JobState::Canceled => EventKind::JobCanceled,
        _ => EventKind::JobFailed,
    }
}
