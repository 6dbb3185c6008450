//! What an ended attempt means: the job is done, is tried again, or has failed.
//!
//! The only place where attempts close and jobs end. Closing frees every gate in the same turn.

use super::Engine;
use super::record::tell_dispatch;
use super::slab::{Ix, NONE};
use super::state::Wake;
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{
    AttemptEnd, Bytes, Change, ClosedAttempt, Effects, EventKind, Failure, Fence, JobEnd, JobState, Now,
    Origin, Outcome, Reason, Reply, Seq, ShutdownPolicy,
};

impl Engine {
    /// A runner says that its attempt has ended.
    pub(super) fn finish(
        &mut self,
        now: Now,
        fence: &Fence,
        outcome: Outcome,
        effects: &mut Effects,
    ) -> Reply {
        let found = self.fenced(fence);
        #[cfg(feature = "zoo")]
        let found = self.found_in_the_zoo(found, fence, Bug::CompleteWithoutAttempt);
        #[cfg(feature = "zoo")]
        if found.is_none() && matches!(outcome, Outcome::Succeeded(_)) {
            self.count_again_in_the_zoo(now, fence.job, effects);
        }
        let Some(job) = found else { return Reply::Stale };
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::CompleteOverwritesCancel) && self.jobs[job].state.is_terminal() {
            self.restate(job, JobState::Running);
            let open = self.jobs[job].open;
            self.attempts[open].stopping = None;
        }
        if self.jobs[job].state.is_terminal() {
            self.release_lingering(now, job, effects);
            return Reply::Stale;
        }
        if let Some((cause, _)) = self.attempts[self.jobs[job].open].stopping {
            self.close_stopped(now, job, cause, effects);
            return Reply::Stale;
        }
        match outcome {
            Outcome::Succeeded(result) => self.succeed(now, job, Reason::Done, result, effects),
            Outcome::Skipped(result) => self.succeed(now, job, Reason::Skipped, result, effects),
            Outcome::Failed(failure) => self.fail(now, job, AttemptEnd::Failed, failure, effects),
            Outcome::HandedBack => self.hand_back(now, job, AttemptEnd::HandedBack, effects),
            Outcome::Canceled if self.draining => self.hand_back(now, job, AttemptEnd::HandedBack, effects),
            Outcome::Canceled => {
                let failure =
                    Failure::retryable("canceled", "the runner stopped although nobody asked it to");
                self.fail(now, job, AttemptEnd::Failed, failure, effects);
            }
        }
        Reply::Done
    }

    fn succeed(&mut self, now: Now, job: Ix, reason: Reason, result: Option<Bytes>, effects: &mut Effects) {
        // A worker that finishes before it said that it runs has run all the same.
        if self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        }
        let state = JobState::Succeeded;
        let closed = Some((AttemptEnd::Succeeded, None));
        self.end_job(now, job, state, reason, closed, result, None, effects);
    }

    /// The attempt failed: try again if the policy has a retry left, else the job has failed.
    pub(super) fn fail(
        &mut self,
        now: Now,
        job: Ix,
        end: AttemptEnd,
        failure: Failure,
        effects: &mut Effects,
    ) {
        if self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        }
        self.jobs[job].failures += 1;
        let failures = self.jobs[job].failures;
        // For whom nobody waits, nobody tries again.
        let awaited = !(self.jobs[job].in_run && self.is_uncalled(job));
        let policy = self.policies.key(self.jobs[job].policy);
        if failure.retryable && failures <= policy.retries_max && awaited {
            let backoff = policy.backoff;
            let wait = backoff.wait(failures, self.rng.jitter());
            let line = self.close_attempt(now, job, end, Some(failure), false, effects);
            self.jobs[job].wake = Some(Wake::Backoff(now.mono + wait));
            #[cfg(feature = "zoo")]
            if zoo::is_out(Bug::RetryBeforeBackoff) {
                self.jobs[job].wake = Some(Wake::Backoff(now.mono));
            }
            self.set_state(job, JobState::Scheduled);
            self.count_waiting(job);
            let keeps_its_place = self.jobs[job].session != NONE;
            #[cfg(feature = "zoo")]
            let keeps_its_place = keeps_its_place && !zoo::is_out(Bug::SessionOvertakeOnRetry);
            if keeps_its_place {
                // It keeps its place, so that the session does not go on without it.
                self.enqueue(job);
            }
            self.arm(job);
            self.job_event(now, EventKind::JobRetrying, job, Some(Reason::Retry), None, effects);
            tell_dispatch(line, effects);
            let status = self.status_of(job, Some(now.wall + wait));
            effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
            return;
        }
        let reason = match (end, failure.retryable) {
            (AttemptEnd::TimedOut, _) => Reason::TimedOut,
            (_, false) => Reason::Permanent,
            (_, true) => Reason::Exhausted,
        };
        self.end_job(now, job, JobState::Failed, reason, Some((end, Some(failure))), None, None, effects);
    }

    /// The attempt was lost: run the job again, unless it was lost too often.
    pub(super) fn lose(&mut self, now: Now, job: Ix, effects: &mut Effects) {
        self.jobs[job].losses += 1;
        let losses_max = self.policies.key(self.jobs[job].policy).losses_max;
        if self.jobs[job].losses <= losses_max && !self.ends_when_lost(job) {
            return self.requeue(now, job, AttemptEnd::Lost, Reason::Lost, effects);
        }
        let lost = Failure::retryable("lost", "the runner of the last attempt was lost");
        let closed = Some((AttemptEnd::Lost, Some(lost)));
        self.end_job(now, job, JobState::Failed, Reason::Lost, closed, None, None, effects);
    }

    /// The attempt never did anything: the job waits again, at no cost.
    pub(super) fn hand_back(&mut self, now: Now, job: Ix, end: AttemptEnd, effects: &mut Effects) {
        if self.ends_with_server(job) {
            // From now on it would wait, and what waits here is canceled when the server stops.
            let (state, closed) = (JobState::Canceled, Some((end, None)));
            return self.end_job(now, job, state, Reason::Shutdown, closed, None, None, effects);
        }
        self.requeue(now, job, end, Reason::HandedBack, effects);
    }

    /// True when the server stops and the lane of the job keeps nothing that waits.
    pub(super) fn ends_with_server(&self, job: Ix) -> bool {
        let lane = self.nodes[self.jobs[job].node].lane as usize;
        self.draining && self.lanes[lane].settings.on_shutdown == ShutdownPolicy::Cancel
    }

    fn requeue(&mut self, now: Now, job: Ix, end: AttemptEnd, reason: Reason, effects: &mut Effects) {
        if self.jobs[job].in_run && (self.is_uncalled(job) || self.was_given_up(job)) {
            self.put_back(now, job, end, None, effects);
            return self.resume_awaited(now, job, effects);
        }
        let line = self.close_attempt(now, job, end, None, false, effects);
        self.set_state(job, JobState::Queued);
        self.count_waiting(job);
        self.enqueue(job);
        self.arm(job);
        self.job_event(now, EventKind::JobQueued, job, Some(reason), None, effects);
        tell_dispatch(line, effects);
        let status = self.status_of(job, None);
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
    }

    /// A run that was told to stop has ended, or its grace has passed.
    pub(super) fn close_stopped(&mut self, now: Now, job: Ix, cause: AttemptEnd, effects: &mut Effects) {
        if cause == AttemptEnd::HandedBack {
            return self.hand_back(now, job, AttemptEnd::HandedBack, effects);
        }
        if cause == AttemptEnd::TimedOut {
            let late = Failure::retryable("timed_out", "the attempt ran longer than its timeout");
            return self.fail(now, job, AttemptEnd::TimedOut, late, effects);
        }
        let late = Failure::permanent("expired", "the deadline passed while the attempt ran");
        let closed = Some((AttemptEnd::Expired, Some(late)));
        self.end_job(now, job, JobState::Failed, Reason::Expired, closed, None, None, effects);
    }

    /// The run of an ended job has ended, or its grace has passed: its gates are free.
    pub(super) fn release_lingering(&mut self, now: Now, job: Ix, effects: &mut Effects) {
        self.job_event(now, EventKind::AttemptReleased, job, None, None, effects);
        let line = self.close_attempt(now, job, AttemptEnd::Canceled, None, false, effects);
        tell_dispatch(line, effects);
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::DoubleDeliveryRecord) && self.jobs[job].has_callback {
            self.owe_delivery(now, job, effects);
        }
        self.forget(job);
    }

    /// Ends a job. `closed`: its open attempt ends with it; without it, an open attempt goes on until its run has ended.
    #[expect(clippy::too_many_arguments, reason = "every end is written through this one function")]
    pub(super) fn end_job(
        &mut self,
        now: Now,
        job: Ix,
        state: JobState,
        reason: Reason,
        closed: Option<(AttemptEnd, Option<Failure>)>,
        result: Option<Bytes>,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        let error = closed.as_ref().and_then(|(_, failure)| failure.clone());
        self.end_job_with(now, job, state, reason, closed, error, result, origin, effects);
    }

    /// The same, with what went wrong where no attempt that closes with the job says it.
    #[expect(clippy::too_many_arguments, reason = "every end is written through this one function")]
    pub(super) fn end_job_with(
        &mut self,
        now: Now,
        job: Ix,
        state: JobState,
        reason: Reason,
        closed: Option<(AttemptEnd, Option<Failure>)>,
        error: Option<Failure>,
        result: Option<Bytes>,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        if self.jobs[job].in_run
            && let Some(answer) = self.answer_of(job, reason, closed.as_ref(), result.as_ref())
        {
            let closed = closed.expect("an attempt answers");
            return self.return_called(now, job, closed, answer, effects);
        }
        let waited = self.jobs[job].open == NONE;
        let open = (!waited).then(|| &self.attempts[self.jobs[job].open]);
        let started_at = open.and_then(|open| open.started_at);
        let attempt_id = open.map(|open| open.attempt_id);
        let line =
            closed.and_then(|(end, failure)| self.close_attempt(now, job, end, failure, true, effects));
        if waited {
            self.wait_no_longer(job);
            self.dequeue(job);
            self.uncount_waiting(job);
        }
        self.jobs[job].wake = None;
        self.set_state(job, state);
        self.job_event(now, kind_of_end(state), job, Some(reason), origin, effects);
        tell_dispatch(line, effects);
        let lane = self.nodes[self.jobs[job].node].lane as usize;
        self.lanes[lane].ended = self.lanes[lane].ended.saturating_add(1);
        let run_log = self.run_log_of(now, job, reason, error.as_ref(), result.as_ref());
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
            merged_into: None,
        })));
        if let Some(log) = run_log {
            self.run_ended(now, job, log, effects);
        }
        if self.jobs[job].has_callback {
            self.owe_delivery(now, job, effects);
        }
        if self.jobs[job].in_run {
            self.member_ended(job, state);
        }
        self.count_end(job, state, reason, waited);
        if self.jobs[job].open == NONE {
            self.forget(job);
        } else {
            self.arm(job);
            // From now on the run counts as one that was told to stop, which an interrupt waits for.
            self.refresh_session(job);
        }
    }

    /// Closes the open attempt and frees its gates. Gives what became of its dispatch, for the event that tells of it.
    pub(super) fn close_attempt(
        &mut self,
        now: Now,
        job: Ix,
        end: AttemptEnd,
        error: Option<Failure>,
        last: bool,
        effects: &mut Effects,
    ) -> Option<Box<str>> {
        let open = self.open_row(job);
        let line = self.dispatch_line(job, error.as_ref().map_or(end.word(), |error| error.code.as_str()));
        if self.jobs[job].in_run {
            self.caller_closes(job);
        }
        #[cfg(feature = "zoo")]
        let leaks = zoo::is_out(Bug::CounterLeakOnDrop) && end == AttemptEnd::Lost;
        #[cfg(not(feature = "zoo"))]
        let leaks = false;
        if !leaks {
            self.free_gates(job);
        }
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::UnitsLeakOnExpiry) && end == AttemptEnd::Lost {
            self.capacity.used += self.cost_of(job);
        }
        let ended = std::mem::replace(&mut self.jobs[job].open, NONE);
        self.attempts.remove(ended);
        self.count_run(now, job, open.started_at, end);
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

/// How the end of a job is told.
fn kind_of_end(state: JobState) -> EventKind {
    match state {
        JobState::Succeeded => EventKind::JobSucceeded,
        JobState::Canceled => EventKind::JobCanceled,
        _ => EventKind::JobFailed,
    }
}
