//! What is published, and when: every reply and every notice is about something durable (I6), every report about an
//! attempt is accepted exactly when its fence fits (I11), and every reply is true (I1, I4, I5, I14, X2).

use laneway_core::command::Submitted;
use laneway_core::command::{AdminCommand, LeaseCommand, SessionCommand, WorkerCommand, WorkflowCommand};
use laneway_core::{
    Command, Fence, JobId, JobState, Name, Notice, Outcome, Rejection, RejectionCode, Reply, Submission,
    TokenRecord,
};

use super::calls::NextReply;
use super::job_changes::Wanted;
use super::leases::{Answer, LeaseAnswer};
use super::sessions::Stopping;
use super::workers::TaskAnswer;
use super::{Checker, Verdict};
use crate::clock::Moment;
use crate::ledger::Entry;
use crate::shape::POISON_KIND;
use crate::violation::{Checked, Violation, hold};

/// The reply that a command must get, computed before the command is given.
#[derive(Clone, Debug)]
pub enum Expected {
    /// One verdict for each item.
    Submits(Vec<Verdict>),
    /// The state of the job that is canceled; `None`: there is none to cancel.
    Cancel(Option<JobState>),
    /// Which jobs are stopped.
    Stop(Stopping),
    /// What the report finds.
    Report(Found),
    /// What a claim or a request gets.
    Answer(Answer),
    /// The answer to a message by lease id.
    LeaseMessage(LeaseAnswer),
    /// The answer to a message over a worker's connection.
    Worker(TaskAnswer),
    /// What a call of the next element of a chain is answered.
    Next(NextReply),
    /// The answer to a change or a deletion of one job.
    JobChange(Wanted),
    /// Anything.
    Free,
}

/// What a report about an attempt finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No open attempt with this fence.
    Nothing,
    /// An attempt that goes on.
    Running,
    /// An attempt that was asked to stop.
    Stopping,
}

impl Checker {
    /// The reply that a command must get, if it is the first of its batch.
    pub fn expect(&mut self, command: &Command, moment: Moment) -> Expected {
        match command {
            Command::Lease(LeaseCommand::Claim(claim)) => Expected::Answer(self.expect_claim(claim, moment)),
            Command::Lease(LeaseCommand::Request(request)) => {
                Expected::Answer(self.expect_request(request, moment))
            }
            Command::Lease(LeaseCommand::Message(message)) => {
                Expected::LeaseMessage(self.expect_lease_message(message))
            }
            Command::Submit(submission) => Expected::Submits(vec![self.verdict(submission, moment)]),
            Command::SubmitBatch { items, atomic } => {
                Expected::Submits(self.batch_verdicts(items, *atomic, moment))
            }
            Command::Cancel { tenant, job, .. } => {
                Expected::Cancel(self.can_be_canceled(tenant.as_ref(), *job))
            }
            Command::Update { tenant, job, patch, .. } => {
                Expected::JobChange(self.expect_update(tenant.as_ref(), *job, *patch, moment))
            }
            Command::Delete { tenant, job, .. } => {
                Expected::JobChange(self.expect_delete(tenant.as_ref(), *job))
            }
            Command::Finish(fence, outcome) if self.counts_after_reset(fence, outcome) => {
                // Where its time was over in the same batch, either of the two stopped it.
                if self.was_timed_out(fence) { Expected::Free } else { Expected::Report(Found::Running) }
            }
            Command::Start(fence)
            | Command::Heartbeat(fence)
            | Command::Log(fence, _)
            | Command::Finish(fence, _) => Expected::Report(self.find(fence)),
            Command::Workflow(WorkflowCommand::CallNext(call)) => Expected::Next(self.expect_next(call)),
            Command::Session(SessionCommand::Stop { tenant, key, .. }) => {
                Expected::Stop(self.stopping(tenant, key))
            }
            Command::Worker(WorkerCommand::Message(message)) => {
                self.expect_worker(message).map_or(Expected::Free, Expected::Worker)
            }
            _ => Expected::Free,
        }
    }

    fn can_be_canceled(&self, tenant: Option<&Name>, job: JobId) -> Option<JobState> {
        let entry = self.ledger.find(job)?;
        let theirs = tenant.is_some_and(|tenant| *tenant != entry.row.spec.tenant);
        (entry.end.is_none() && !theirs).then_some(entry.state)
    }

    pub(super) fn find(&self, fence: &Fence) -> Found {
        let Some(entry) = self.ledger.fits(fence) else { return Found::Nothing };
        let run = self.watches.get(&entry.row.seq).and_then(|watch| watch.run.as_ref());
        let stopping = entry.end.is_some() || run.is_some_and(|run| run.stop.is_some());
        if stopping { Found::Stopping } else { Found::Running }
    }

    /// Does a result count although a reset of its session asked the attempt to stop? It does where the job allows no second
    /// attempt.
    fn counts_after_reset(&self, fence: &Fence, outcome: &Outcome) -> bool {
        let Some(entry) = self.ledger.fits(fence) else { return false };
        let run = self.watches.get(&entry.row.seq).and_then(|watch| watch.run.as_ref());
        let Some(run) = run.filter(|run| run.reset && entry.end.is_none()) else { return false };
        outcome.is_success() && !self.is_repeatable(entry, run.started.is_some())
    }

    /// Was the time of an attempt over, or its job's deadline past, when it was asked to stop?
    fn was_timed_out(&self, fence: &Fence) -> bool {
        let Some(entry) = self.ledger.fits(fence) else { return false };
        let run = self.watches.get(&entry.row.seq).and_then(|watch| watch.run.as_ref());
        let Some((run, (stopped, _))) = run.and_then(|run| Some((run, run.stop?))) else { return false };
        let timeout = entry.row.spec.timeout.map_or(u64::MAX, |timeout| timeout.0);
        let over = run.started.is_some_and(|started| started.saturating_add(timeout) <= stopped);
        over || entry.row.spec.deadline.is_some()
    }

    /// A command was answered.
    pub fn answered(&self, command: &Command, reply: &Reply, expected: &Expected) -> Checked {
        match (command, reply) {
            (Command::Submit(submission), Reply::Submitted(_) | Reply::Rejected(_)) => {
                let verdict = match reply {
                    Reply::Submitted(submitted) => Ok(submitted.clone()),
                    Reply::Rejected(rejection) => Err(rejection.clone()),
                    _ => return Ok(()),
                };
                let wanted = if let Expected::Submits(verdicts) = expected { verdicts.first() } else { None };
                self.is_not_poison(submission, &verdict)?;
                self.submit_answered(submission, &verdict, wanted)
            }
            (Command::SubmitBatch { items, atomic }, Reply::Batch(verdicts)) => {
                self.batch_answered(items, *atomic, verdicts, expected)
            }
            (Command::Cancel { .. }, _) => self.cancel_answered(command, reply, expected),
            (Command::Update { .. } | Command::Delete { .. }, _) => {
                self.job_change_answered(command, reply, expected)
            }
            (Command::Start(fence) | Command::Heartbeat(fence) | Command::Log(fence, _), _) => {
                self.report_answered(command, fence, reply, expected)
            }
            (Command::Finish(fence, outcome), _) => self.finish_answered(fence, outcome, reply, expected),
            (
                Command::Session(SessionCommand::Usage { .. } | SessionCommand::ResetAll { .. }),
                Reply::Done,
            ) => Ok(()),
            (Command::Session(SessionCommand::Stop { what, .. }), Reply::SessionStopped(stopped)) => {
                let wanted = if let Expected::Stop(stopping) = expected { Some(stopping) } else { None };
                self.stop_answered(*what, stopped, wanted)
            }
            (Command::Lease(LeaseCommand::Claim(claim)), _) => {
                self.lease_answered(&claim.holder.worker, reply, answer(expected))
            }
            (Command::Lease(LeaseCommand::Request(request)), _) => {
                self.lease_answered(&request.holder.worker, reply, answer(expected))
            }
            (Command::Lease(LeaseCommand::Message(message)), _) => {
                let wanted = if let Expected::LeaseMessage(answer) = expected { Some(*answer) } else { None };
                self.lease_message_answered(message, reply, wanted)
            }
            (Command::Workflow(WorkflowCommand::Submit(run)), _) => self.run_answered(run, reply),
            (Command::Workflow(WorkflowCommand::CallNext(call)), _) => {
                let wanted = if let Expected::Next(wanted) = expected { Some(wanted) } else { None };
                self.next_answered(call, reply, wanted)
            }
            (Command::Workflow(WorkflowCommand::Cancel { run, .. }), _) => {
                self.run_cancel_answered(*run, reply)
            }
            (Command::Worker(WorkerCommand::Message(message)), _) => {
                let wanted = if let Expected::Worker(answer) = expected { Some(*answer) } else { None };
                self.worker_answered(message, reply, wanted)
            }
            (Command::Worker(WorkerCommand::Register(register)), _) => {
                self.register_answered(register, reply)
            }
            (Command::Worker(WorkerCommand::Drain { .. }), Reply::Done | Reply::NotFound) => Ok(()),
            (Command::Worker(WorkerCommand::Rebind { lanes, .. }), _) => self.rebind_answered(lanes, reply),
            (Command::Delivery(_), _) => self.delivery_answered(command, reply),
            (Command::Admin(admin), _) => self.admin_answered(admin, reply),
            (Command::Schedule(_), _) => self.schedule_answered(command, reply),
            (Command::ReleaseKeys { tenant, job, .. }, _) => {
                self.release_answered(tenant.as_ref(), *job, reply)
            }
            (Command::Record(record), _) => self.record_answered(record, reply),
            _ => Err(Violation::new("I5", format!("{command:?} is answered with {reply:?}"))),
        }
    }

    fn admin_answered(&self, command: &AdminCommand, reply: &Reply) -> Checked {
        use AdminCommand::{Configure, Drain, Load, Offer, PutToken, RevokeToken, StorageLow, Withdraw};
        match (command, reply) {
            (Configure { .. } | Drain | StorageLow(_) | Load(_), Reply::Done) => Ok(()),
            (Offer(_), Reply::Done | Reply::Rejected(_)) => Ok(()),
            (Withdraw(_), Reply::Done | Reply::NotFound) => Ok(()),
            (PutToken(token, _), Reply::Done) => self.token_answered(token),
            (PutToken(..), Reply::Rejected(rejection)) if is_taken(rejection) => Ok(()),
            (RevokeToken { id, tenant, .. }, _) => self.revoke_answered(id, tenant.as_ref(), reply),
            _ => Err(Violation::new("I5", format!("{command:?} is answered with {reply:?}"))),
        }
    }

    fn submit_answered(
        &self,
        submission: &Submission,
        answer: &Result<Submitted, Rejection>,
        wanted: Option<&Verdict>,
    ) -> Checked {
        if let Ok(submitted) = answer {
            let Some(entry) = self.ledger.find(submitted.job) else {
                return Err(Violation::new(
                    "I6",
                    format!("job {} is acknowledged but not durable", submitted.job),
                ));
            };
            self.is_its_job(submission, submitted, entry)?;
        }
        if let Err(Rejection { recorded: Some(job), .. }) = answer {
            let entry = self.ledger.find(*job);
            let kept = entry.is_some_and(|entry| entry.state == JobState::Rejected);
            hold("I6", kept && submission.record_rejection, || {
                format!(
                    "a rejection is reported as recorded as {job}, which is {:?}",
                    entry.map(|entry| entry.state)
                )
            })?;
        }
        let same = match (wanted, answer) {
            (None | Some(Verdict::Open), _) => true,
            (Some(Verdict::Fresh), Ok(submitted)) => !submitted.existing,
            (Some(Verdict::Existing(job)), Ok(submitted)) => {
                submitted.existing && job.is_none_or(|job| job == submitted.job)
            }
            (Some(Verdict::Rejected(code)), Err(rejection)) => rejection.code == *code,
            _ => false,
        };
        let rule = if submission.spec.idempotency.is_some() { "I4" } else { "I20" };
        hold(rule, same, || format!("a submit is answered with {answer:?} and not with {wanted:?}"))
    }

    /// D7: only the guilty one is rejected.
    fn is_not_poison(&self, submission: &Submission, answer: &Result<Submitted, Rejection>) -> Checked {
        let invalid = answer.as_ref().is_err_and(|rejection| rejection.code == RejectionCode::Invalid);
        hold("D7", !invalid || submission.spec.kind.as_str() == POISON_KIND, || {
            format!("a job that the store can hold is rejected: {answer:?}")
        })
    }

    fn is_its_job(&self, submission: &Submission, submitted: &Submitted, entry: &Entry) -> Checked {
        let spec = &entry.row.spec;
        let same_key = submission.spec.idempotency == spec.idempotency;
        hold("X1", spec.tenant == submission.spec.tenant, || {
            format!("a submit is answered with job {} of another tenant", submitted.job)
        })?;
        if submitted.existing {
            return hold("I4", same_key && spec.idempotency.is_some(), || {
                format!("job {} is called existing and has another key", submitted.job)
            });
        }
        let number = super::admission::submit_number(&submission.payload).unwrap_or(0);
        let same = self.submits.get(&number) == Some(&entry.row.seq)
            && submitted.seq == entry.row.seq
            && submitted.lane == spec.lane
            && submitted.created_at == entry.row.created_at;
        hold("I1", same, || format!("submit {number} is answered with {submitted:?}, which is not its job"))
    }

    fn batch_answered(
        &self,
        items: &[Submission],
        atomic: bool,
        answer: &[Result<Submitted, Rejection>],
        expected: &Expected,
    ) -> Checked {
        hold("I5", answer.len() == items.len(), || {
            format!("{} items get {} verdicts", items.len(), answer.len())
        })?;
        let admitted = answer.iter().filter(|verdict| verdict.is_ok()).count();
        hold("I5", !atomic || admitted == 0 || admitted == items.len(), || {
            format!("{admitted} of {} items of an atomic batch are admitted", items.len())
        })?;
        for (index, (item, verdict)) in items.iter().zip(answer).enumerate() {
            let wanted = if let Expected::Submits(verdicts) = expected { verdicts.get(index) } else { None };
            self.submit_answered(item, verdict, wanted)?;
            if !atomic {
                self.is_not_poison(item, verdict)?;
            }
            let number = super::admission::submit_number(&item.payload).unwrap_or(0);
            let made = self.submits.contains_key(&number);
            let kept = match verdict {
                Ok(submitted) => !submitted.existing,
                Err(rejection) => rejection.recorded.is_some() && !atomic,
            };
            hold("I5", made == kept, || format!("item {index} of a batch is answered with {verdict:?}"))?;
        }
        Ok(())
    }

    fn cancel_answered(&self, command: &Command, reply: &Reply, expected: &Expected) -> Checked {
        let Command::Cancel { tenant, job, .. } = command else { return Ok(()) };
        if let Reply::Canceled { seq, .. } = reply {
            let Some(entry) = self.ledger.find(*job) else {
                return Err(Violation::new(
                    "I6",
                    format!("job {job} is reported as canceled but not durable"),
                ));
            };
            let canceled = entry.end.as_ref().is_some_and(|end| end.state == JobState::Canceled);
            hold("I6", canceled && entry.row.seq == *seq, || {
                format!("job {} is reported as canceled and is {}", seq.0, entry.state)
            })?;
            let theirs = tenant.as_ref().is_some_and(|tenant| *tenant != entry.row.spec.tenant);
            hold("X2", !theirs, || format!("job {} is canceled by another tenant", seq.0))?;
        }
        let same = match (expected, reply) {
            (Expected::Cancel(Some(state)), Reply::Canceled { was, .. }) => was == state,
            (Expected::Cancel(None), Reply::NotFound) => true,
            (Expected::Cancel(_), _) => false,
            (_, reply) => matches!(reply, Reply::Canceled { .. } | Reply::NotFound),
        };
        hold("I14", same, || {
            format!("a cancel of {job} is answered with {reply:?} and not with {expected:?}")
        })
    }

    fn token_answered(&self, token: &TokenRecord) -> Checked {
        let stored = self.ledger.tokens.get(&token.id);
        hold("I6", stored == Some(token), || {
            format!("token {} is reported as stored, and is {stored:?}", token.id)
        })
    }

    fn revoke_answered(&self, id: &Name, tenant: Option<&Name>, reply: &Reply) -> Checked {
        let stored = self.ledger.tokens.get(id);
        let mine = stored.filter(|token| tenant.is_none() || token.tenant.as_ref() == tenant);
        let answer = match reply {
            Reply::Done => mine.is_some_and(|token| token.revoked_at.is_some()),
            Reply::NotFound => mine.is_none_or(|token| token.revoked_at.is_some()),
            _ => false,
        };
        hold("X2", answer, || {
            format!("the end of token {id} for {tenant:?} is answered with {reply:?}; stored is {stored:?}")
        })
    }

    fn report_answered(
        &self,
        command: &Command,
        fence: &Fence,
        reply: &Reply,
        expected: &Expected,
    ) -> Checked {
        let same = match (expected, command, reply) {
            (Expected::Report(Found::Nothing), _, reply) => *reply == Reply::Stale,
            (Expected::Report(_), Command::Log(..), reply) => *reply == Reply::Done,
            (Expected::Report(found), _, Reply::Alive { stop, lease }) => {
                // What ended in the same batch has no lease any more that could be looked at.
                let wanted = self.ledger.fits(fence).map(|entry| self.lease_of(entry));
                // One whose time was over is asked to stop, and was stopped in this batch.
                let stopped_now = *stop && self.find(fence) != Found::Running;
                (*stop == (*found == Found::Stopping) || stopped_now)
                    && wanted.is_none_or(|wanted| lease.0 == wanted)
            }
            (Expected::Report(_), _, _) => false,
            (_, Command::Log(..), reply) => matches!(reply, Reply::Done | Reply::Stale),
            (_, _, reply) => matches!(reply, Reply::Alive { .. } | Reply::Stale),
        };
        hold("I11", same, || {
            format!("a report about {fence:?} is answered with {reply:?} and not with {expected:?}")
        })
    }

    fn finish_answered(
        &self,
        fence: &Fence,
        outcome: &Outcome,
        reply: &Reply,
        expected: &Expected,
    ) -> Checked {
        // An attempt that was asked to stop has ended, whatever it reports; its report changes nothing else.
        let same = match (expected, reply) {
            (Expected::Report(Found::Running), reply) => *reply == Reply::Done,
            (Expected::Report(_), reply) => *reply == Reply::Stale,
            (_, reply) => matches!(reply, Reply::Done | Reply::Stale),
        };
        hold("I11", same, || {
            format!("{outcome:?} about {fence:?} is answered with {reply:?} and not with {expected:?}")
        })?;
        let closed = self.ledger.fences.get(&fence.attempt_id).is_some_and(|known| known.1.is_some());
        hold("I6", *reply != Reply::Done || closed, || {
            format!("the end of attempt {} of {} is acknowledged but not durable", fence.attempt, fence.job)
        })
    }

    /// A notice was published.
    pub fn noticed(&self, notice: &Notice) -> Checked {
        let fence = match notice {
            Notice::Offer(laneway_core::effect::Offer { fence, .. })
            | Notice::Stop { fence, .. }
            | Notice::Next { fence, .. } => fence,
            Notice::Deliver { seq, job, number } => return self.delivery_noticed(*seq, *job, *number),
            Notice::Superseded(_)
            | Notice::DrainConnection(_)
            | Notice::ProbeConnection(_)
            | Notice::Waited { .. }
            | Notice::Unserved { .. } => return Ok(()),
        };
        // One that was rebound twice in a batch is offered twice.
        let known = self.ledger.fences.get(&fence.attempt_id).is_some_and(|(known, _)| {
            let epoch = fence.lease_epoch.min(known.lease_epoch);
            Fence { lease_epoch: epoch, ..*known } == *fence
        });
        hold("I6", known, || format!("{notice:?} leaves before its attempt is durable"))?;
        self.answer_is_durable(notice)
    }
}

fn answer(expected: &Expected) -> Option<&Answer> {
    if let Expected::Answer(answer) = expected { Some(answer) } else { None }
}

/// Does another token have the secret?
fn is_taken(rejection: &Rejection) -> bool {
    rejection.code == RejectionCode::NameTaken
}
