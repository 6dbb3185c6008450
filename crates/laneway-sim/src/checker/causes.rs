//! Why an attempt closed and why a job moved or ended: each must have a cause that the batch or the clocks prove.
//!
//! I11 and I13 (a report counts only with the right fence), I12 (one outcome), I14 (cancel), I15 (retries), I16
//! (deadlines), I29 (a wall clock ends no lease), and the rule that a stopped attempt holds its gates until it has ended or
//! its grace has passed.

use laneway_core::command::LeaseCommand;
use laneway_core::lease::{LeaseMessage, LeaseUpdate};
use laneway_core::worker::WorkerReport;
use laneway_core::{
    AttemptEnd, AttemptId, ClosedAttempt, Command, Fence, JobEnd, JobSpec, JobState, JobStatus, LostPolicy,
    Name, Outcome, Reason, Seq, ShutdownPolicy, Span, Wall,
};

use super::leases::revoke_about;
use super::{Checker, Given};
use crate::clock::Moment;
use crate::ledger::Entry;
use crate::violation::{Checked, Violation, hold};

impl Checker {
    /// Is there a cause for the attempt to close so?
    pub(super) fn may_close(&self, given: Given<'_>, closed: &ClosedAttempt) -> Checked {
        let seq = closed.open.seq;
        let fence = closed.open.fence;
        let (Some(entry), Some(run)) =
            (self.ledger.jobs.get(&seq), self.watches.get(&seq).and_then(|watch| watch.run.as_ref()))
        else {
            return Err(Violation::new(
                "I12",
                format!("an attempt of job {} closes, but none is open", seq.0),
            ));
        };
        let at = given.moment.at;
        let holder = closed.open.holder.as_ref().map(|holder| &holder.worker);
        let outcome = outcome_about(given, &fence, &entry.row.spec.tenant, holder);
        let outcome = outcome.or_else(|| self.worker_outcome(given, entry));
        let rejected = matches!(self.worker_report_about(given, entry), Some(WorkerReport::Rejected(..)));
        let died = (given.restart && !run.leased) || self.lost_its_process(given, entry, &closed.open);
        let stopped = run.stop.is_some_and(|(_, until)| outcome.is_some() || rejected || until <= at)
            || run.lease_until <= at
            || died;
        let spoke = |wanted: fn(&Outcome) -> bool| outcome.is_some_and(wanted);
        let keeps_wrongly = outcome.is_some_and(|outcome| self.keeps_wrongly(entry, outcome));
        let drains = self.reference.draining;
        let interrupted = is_interrupted(outcome, drains);
        let given_back = spoke(|outcome| matches!(outcome, Outcome::HandedBack));
        let repeatable = self.is_repeatable(entry, run.started.is_some());
        let proven = match closed.end {
            AttemptEnd::Succeeded => {
                (run.stop.is_none() || (run.reset && !repeatable))
                    && spoke(Outcome::is_success)
                    && !keeps_wrongly
            }
            AttemptEnd::Failed => {
                (run.stop.is_none() && (is_failure(outcome, drains) || keeps_wrongly))
                    || (run.reset && !repeatable && keeps_wrongly)
            }
            AttemptEnd::HandedBack if run.withdrawn => entry.end.is_none() && stopped,
            AttemptEnd::HandedBack if self.is_reserved(entry) && self.is_withdrawn(entry) => true,
            AttemptEnd::HandedBack if run.reset => {
                entry.end.is_none() && stopped && (repeatable || given_back)
            }
            AttemptEnd::HandedBack if rejected => run.stop.is_none(),
            AttemptEnd::HandedBack => run.stop.is_none() && (given_back || (interrupted && repeatable)),
            AttemptEnd::Canceled if self.is_reserved(entry) => self.is_reserved_canceled(given, entry),
            AttemptEnd::Canceled => entry.end.is_some() && stopped,
            AttemptEnd::TimedOut => {
                let timeout = entry.row.spec.timeout.map_or(0, |timeout| timeout.0);
                run.started.is_some_and(|started| started.saturating_add(timeout) <= at)
                    && run.stop.is_some()
                    && stopped
            }
            AttemptEnd::Expired if self.is_reserved(entry) => {
                entry.row.spec.deadline.is_some_and(|deadline| deadline <= given.moment.now.wall)
            }
            AttemptEnd::Expired => entry.row.spec.deadline.is_some() && run.stop.is_some() && stopped,
            AttemptEnd::Lost if run.stop.is_none() && interrupted => !repeatable,
            AttemptEnd::Lost if run.reset => !repeatable && entry.end.is_none() && stopped,
            AttemptEnd::Lost => died || (run.leased && run.lease_until <= at),
            AttemptEnd::Unanswered => run.started.is_none() && run.lease_until <= at,
        };
        hold(rule_of(closed.end), proven, || {
            format!(
                "attempt {} of job {} closes as {} at {at} without a cause: {run:?}, outcome {outcome:?}",
                fence.attempt,
                seq.0,
                closed.end.as_str()
            )
        })
    }

    /// May an interrupted attempt be followed by another one? One that has begun counts as a loss that its policy must allow
    /// for, unless its job does not go on by itself.
    pub(super) fn is_repeatable(&self, entry: &Entry, started: bool) -> bool {
        let lane = self.reference.lane(&entry.lane);
        let ends_when_lost =
            lane.is_some_and(|lane| lane.pull.is_pull() && lane.pull.on_lease_lost == LostPolicy::Fail);
        let ends_with_server =
            self.reference.draining && lane.is_some_and(|lane| lane.on_shutdown == ShutdownPolicy::Cancel);
        let uncalled =
            entry.is_called() && self.open_call(entry.row.seq).is_none_or(|row| entry.attempts <= row.after);
        let retry = entry.row.spec.retry.as_ref().expect("defaults are filled in");
        let allowed = entry.row.status.losses < retry.losses_max && !ends_when_lost;
        !started || allowed || uncalled || ends_with_server
    }

    /// An attempt is asked to stop: its job was canceled, or its time is up. Where that is all that happens, nothing is
    /// written, and the notice is the only sign of it.
    pub fn asked_to_stop(&mut self, seq: Seq, fence: &Fence, given: Given<'_>) -> Checked {
        if self.stopping.contains(fence) {
            return Ok(());
        }
        self.stopping.push(*fence);
        if self.unanswered.contains(fence) {
            // No worker accepted it, and a worker that has it must not begin. With that it is over.
            return Ok(());
        }
        let Some(entry) = self.ledger.fits(fence) else { return Ok(()) };
        let at = given.moment.at;
        let run = self.watches.get(&seq).and_then(|watch| watch.run.as_ref());
        let timeout = entry.row.spec.timeout.map_or(u64::MAX, |timeout| timeout.0);
        let timed_out =
            run.and_then(|run| run.started).is_some_and(|started| started.saturating_add(timeout) <= at);
        let expired = entry.row.spec.deadline.is_some_and(|deadline| deadline <= given.moment.now.wall);
        let replaced = self.is_replaced(&entry.row, given.moment);
        let stopped = cancel_about(given, entry) || self.session_stops_run(given, &entry.row.spec);
        let revoked = revoke_about(given, entry) || self.stops_with_its_run(entry);
        let revoked = revoked || self.is_withdrawn(entry);
        hold("I16", timed_out || expired || replaced || stopped || revoked, || {
            format!("the attempt of job {} is asked to stop without a cause", seq.0)
        })?;
        self.begin_stop(seq, given.moment);
        Ok(())
    }

    pub(super) fn begin_stop(&mut self, seq: Seq, moment: Moment) {
        let grace = self.reference.settings.stop_grace.0;
        let withdrawn = self.ledger.jobs.get(&seq).is_some_and(|entry| self.is_withdrawn(entry));
        if let Some(run) = self.watches.get_mut(&seq).and_then(|watch| watch.run.as_mut()) {
            run.stop = Some((moment.at, moment.at + grace));
            // Attempts elsewhere outlive a reset of their session.
            run.reset = self.resetting && !run.leased;
            run.withdrawn = withdrawn;
        }
    }

    /// Does anything end a job in this batch that no worker has accepted?
    fn is_reserved_canceled(&self, given: Given<'_>, entry: &Entry) -> bool {
        cancel_about(given, entry)
            || revoke_about(given, entry)
            || self.is_replaced(&entry.row, given.moment)
            || self.session_stops_run(given, &entry.row.spec)
            || self.stops_with_its_run(entry)
    }

    /// Is there a cause for the job to end so?
    pub(super) fn may_end(&self, given: Given<'_>, end: &JobEnd) -> Checked {
        let Some(entry) = self.ledger.jobs.get(&end.seq) else {
            return Err(Violation::new("I8", format!("job {} ends, but is not live", end.seq.0)));
        };
        self.keeps_as_reported(given, end)?;
        // A node that is called ends with its chain; its own failures are its caller's to judge.
        match (end.state, end.reason) {
            (JobState::Succeeded, _) if entry.is_called() => self.ends_with_its_chain(entry, end),
            (JobState::Failed, Reason::Permanent | Reason::Exhausted | Reason::TimedOut | Reason::Lost)
                if entry.is_called() =>
            {
                Err(Violation::new("M5", format!("job {} fails, and its caller goes on", end.seq.0)))
            }
            _ => self.has_cause(given, entry, end),
        }
    }

    fn has_cause(&self, given: Given<'_>, entry: &Entry, end: &JobEnd) -> Checked {
        let row = &entry.row;
        let retry = row.spec.retry.as_ref().expect("defaults are filled in");
        let outcome = end.attempt_id.and_then(|attempt_id| self.reported_outcome(given, entry, attempt_id));
        let failed_retryable = outcome.is_some_and(|outcome| match outcome {
            Outcome::Failed(failure) => failure.retryable,
            Outcome::Canceled => true,
            _ => false,
        });
        let proven = match (end.state, end.reason) {
            (JobState::Succeeded, Reason::Done) => {
                matches!(outcome, Some(Outcome::Succeeded(_) | Outcome::SucceededKeeping { .. }))
            }
            (JobState::Succeeded, Reason::Skipped) => matches!(outcome, Some(Outcome::Skipped(_))),
            // A result that the store cannot hold ends the job, too.
            (JobState::Failed, Reason::Permanent) => outcome.is_some() && !failed_retryable,
            (JobState::Failed, Reason::Exhausted) => failed_retryable && end.failures > retry.retries_max,
            (JobState::Failed, Reason::TimedOut) => end.failures > retry.retries_max && self.has_closed(end),
            (JobState::Failed, Reason::Lost) => {
                let pull = self.reference.lane(&entry.lane).map(|lane| &lane.pull);
                let fails = pull.is_some_and(|pull| pull.is_pull() && pull.on_lease_lost == LostPolicy::Fail);
                (fails || end.losses > retry.losses_max) && self.has_closed(end)
            }
            (JobState::Failed, Reason::Unavailable) if end.attempt_id.is_none() => {
                self.is_missing(entry, given.moment)
            }
            (JobState::Failed, Reason::Unavailable) => {
                let most = self.reference.settings.workers.rejections_max;
                row.status.rejections >= most && self.has_closed(end)
            }
            (JobState::Failed, Reason::Revoked) => {
                revoke_about(given, entry) || (end.attempt_id.is_some() && self.has_closed(end))
            }
            (JobState::Failed, Reason::Expired) => {
                let passed = row.spec.deadline.is_some_and(|deadline| deadline <= given.moment.now.wall);
                // Once the attempt was asked to stop for it, a wall clock that is set back brings nothing back.
                passed || self.has_closed(end)
            }
            (JobState::Failed, Reason::QueueTimeout) => {
                entry.queue_until.is_some_and(|until| until <= given.moment.at)
            }
            (JobState::Rejected, Reason::QueueFull) => {
                self.rejected.contains(&end.seq) && end.error.is_some() && end.attempts == 0
            }
            (JobState::Canceled, Reason::Requested) => {
                cancel_about(given, entry) || self.run_cancels(given, entry, end)
            }
            (JobState::Canceled, Reason::UpstreamFailed | Reason::RunFailed) => {
                self.run_cancels(given, entry, end)
            }
            (JobState::Canceled, Reason::Replaced) => self.is_replaced(row, given.moment),
            (JobState::Canceled, Reason::Shutdown) => {
                let lane = self.reference.lane(&entry.lane);
                let says_so = lane.is_some_and(|lane| lane.on_shutdown == ShutdownPolicy::Cancel);
                says_so && self.reference.draining && entry.is_waiting()
            }
            (JobState::Canceled, _) => self.session_ends(given, entry, end),
            _ => false,
        };
        hold("I13", proven, || {
            format!(
                "job {} ends as {} ({}) without a cause; outcome {outcome:?}",
                end.seq.0, end.state, end.reason
            )
        })
    }

    /// The outcome that the runner of an attempt reported in this batch.
    pub(super) fn reported_outcome<'a>(
        &self,
        given: Given<'a>,
        entry: &Entry,
        attempt_id: AttemptId,
    ) -> Option<&'a Outcome> {
        let (fence, ..) = self.ledger.fences.get(&attempt_id)?;
        let holder = self.ledger.holders.get(&attempt_id);
        let dispatch_seq = *self.ledger.dispatches.get(&attempt_id)?;
        let outcome = outcome_about(given, fence, &entry.row.spec.tenant, holder);
        outcome.or_else(|| self.ended_report(given, entry, dispatch_seq, holder))
    }

    /// Is there a cause for a job without an attempt to wait so?
    pub(super) fn may_move(&self, given: Given<'_>, seq: Seq, status: &JobStatus) -> Checked {
        let Some(entry) = self.ledger.jobs.get(&seq) else { return Ok(()) };
        let row = &entry.row;
        let now = given.moment;
        if entry.waits_upstream() {
            return self.may_be_released(given, entry, status);
        }
        if entry.waits_for_call() {
            return self.is_called_for(entry, status);
        }
        if entry.is_called() && status.state == JobState::Scheduled && status.wake_at.is_none() {
            return self.may_return(given, entry);
        }
        if entry.state == JobState::Scheduled && status.state == JobState::Queued {
            if row.status.attempts > 0 && !entry.waits_for_its_time() {
                let from = self.watches.get(&seq).map_or(0, |watch| watch.not_before);
                return hold("I15", from <= now.at, || {
                    format!("job {} is queued {} ms before its backoff has passed", seq.0, from - now.at)
                });
            }
            if entry.collects() {
                return self.may_flush(given, entry);
            }
            let due = row.spec.not_before.is_none_or(|at| at <= now.now.wall);
            return hold("I16", due, || format!("job {} is queued before its time", seq.0));
        }
        if entry.state == JobState::Queued && status.state == JobState::Queued {
            return self.may_be_noted(given, entry, status);
        }
        if entry.state == JobState::Queued && status.state == JobState::Scheduled {
            return self.may_be_deferred(given, entry, status);
        }
        if status.state == JobState::Scheduled {
            let retry = row.spec.retry.as_ref().expect("defaults are filled in");
            let left = status.failures == row.status.failures + 1 && status.failures <= retry.retries_max;
            hold("I15", left, || format!("job {} is tried again without a retry left", seq.0))?;
            let (least, most) = (retry.backoff.wait_min(status.failures), retry.backoff.longest());
            let wait = status.wake_at.map_or(0, |at| at.since(now.now.wall).0);
            return hold("I15", (least.0..=most.0).contains(&wait), || {
                format!("job {} waits {wait} ms before its retry, not {} to {}", seq.0, least.0, most.0)
            });
        }
        let lost = status.losses > row.status.losses;
        let retry = row.spec.retry.as_ref().expect("defaults are filled in");
        hold("I15", !lost || status.losses <= retry.losses_max, || {
            format!("job {} is run again although it was lost too often", seq.0)
        })
    }

    /// A waiting job is boosted when its deadline is near, and not before.
    fn may_be_noted(&self, given: Given<'_>, entry: &Entry, status: &JobStatus) -> Checked {
        let boosted = status.near_deadline && !entry.row.status.near_deadline;
        let near = self.near_at(&entry.row.spec).is_some_and(|at| at <= given.moment.now.wall);
        hold("I16", !boosted || near, || format!("job {} is boosted before its time", entry.row.seq.0))
    }

    /// When a job's deadline is near.
    pub(super) fn near_at(&self, spec: &JobSpec) -> Option<Wall> {
        let needs = &spec.capacity;
        if needs.quiet.is_none() && needs.expected_duration.is_none() {
            return None;
        }
        let margin = self.reference.settings.capacity.near_deadline.0;
        let ahead = needs.expected_duration.map_or(0, |span| span.0) + margin;
        spec.deadline.map(|deadline| deadline.before(Span(ahead)))
    }

    /// A job that no worker accepted waits longer each time.
    fn may_be_deferred(&self, given: Given<'_>, entry: &Entry, status: &JobStatus) -> Checked {
        let rejected = self.rejected_wait(entry, status.rejections);
        let unanswered = rejected.is_some()
            || entry.closed.last().is_some_and(|closed| closed.end == AttemptEnd::Unanswered);
        let doubled = status.rejections.saturating_sub(1).min(6);
        let wanted = rejected.unwrap_or((5_000_u64 << doubled).min(300_000));
        let wait = status.wake_at.map_or(0, |at| at.since(given.moment.now.wall).0);
        hold("I15", unanswered && status.rejections > 0 && wait == wanted, || {
            format!("job {} is put off for {wait} ms, not for {wanted}", entry.row.seq.0)
        })
    }

    /// The attempt that the end names closed in this very commit.
    fn has_closed(&self, end: &JobEnd) -> bool {
        end.attempt_id
            .and_then(|attempt_id| self.ledger.fences.get(&attempt_id))
            .is_some_and(|known| known.1.is_some())
    }
}

/// Does the outcome mean that an attempt was interrupted because its runner stops?
fn is_interrupted(outcome: Option<&Outcome>, drains: bool) -> bool {
    match outcome {
        Some(Outcome::Interrupted) => true,
        Some(Outcome::Canceled) => drains,
        _ => false,
    }
}

/// Does the outcome mean that an attempt failed?
fn is_failure(outcome: Option<&Outcome>, drains: bool) -> bool {
    match outcome {
        Some(Outcome::Failed(_)) => true,
        Some(Outcome::Canceled) => !drains,
        _ => false,
    }
}

fn rule_of(end: AttemptEnd) -> &'static str {
    match end {
        AttemptEnd::Succeeded | AttemptEnd::Failed | AttemptEnd::HandedBack => "I11",
        AttemptEnd::Canceled => "I14",
        AttemptEnd::TimedOut | AttemptEnd::Expired => "I16",
        AttemptEnd::Lost | AttemptEnd::Unanswered => "I29",
    }
}

/// The first outcome that this batch reports for the attempt.
pub(super) fn outcome_about<'a>(
    given: Given<'a>,
    about: &Fence,
    owner: &Name,
    holder: Option<&Name>,
) -> Option<&'a Outcome> {
    let may_say = |message: &LeaseMessage| {
        message.tenant.as_ref().is_none_or(|tenant| tenant == owner)
            && (message.worker.is_none() || message.worker.as_ref() == holder)
    };
    given.commands.iter().find_map(|command| match command {
        Command::Finish(fence, outcome) if fence == about => Some(outcome),
        Command::Lease(LeaseCommand::Message(message))
            if message.lease == about.attempt_id && may_say(message) =>
        {
            match &message.update {
                LeaseUpdate::Ended(outcome) => Some(outcome),
                _ => None,
            }
        }
        _ => None,
    })
}

/// Does a caller with permission cancel this job in this batch?
pub(super) fn cancel_about(given: Given<'_>, entry: &Entry) -> bool {
    given.commands.iter().any(|command| match command {
        Command::Cancel { tenant, job, .. } => {
            *job == entry.row.id && tenant.as_ref().is_none_or(|tenant| *tenant == entry.row.spec.tenant)
        }
        _ => false,
    })
}
