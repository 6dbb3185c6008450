//! Simulated attempts, and reports that are forged or late: what they send, and what they do with the answers.

use laneway_core::command::LogLine;
use laneway_core::command::{LeaseCommand, WorkerCommand, WorkflowCommand};
use laneway_core::lease::LeaseUpdate;
use laneway_core::{
    AttemptId, Bytes, Command, ExecutorMode, Failure, Fence, JobId, Name, NextAnswer, NextCode, Notice,
    Outcome, Reply,
};

use super::webhooks::DeliveryTry;
use super::{REMEMBERED_FENCES, World};
use crate::attempts::{Phase, SimAttempt, doubled};
use crate::violation::{Checked, hold};

impl World {
    /// An attempt that can reach the server reports.
    pub(super) fn report(&mut self) -> Option<Command> {
        let is_reachable = |&at: &usize| !self.attempts[at].cut && self.is_connected(&self.attempts[at]);
        let reachable: Vec<usize> = (0..self.attempts.len()).filter(is_reachable).collect();
        if reachable.is_empty() {
            return None;
        }
        let at = *self.rng.pick(&reachable);
        if let Some(message) = self.caller_reports(at) {
            return message;
        }
        if self.attempts[at].at.is_some() {
            return self.task_reports(at);
        }
        let attempt = &self.attempts[at];
        let fence = attempt.fence;
        let (leased, stops) = (attempt.leased, attempt.asked_to_stop && !attempt.stubborn);
        let dice = self.rng.below(100);
        match attempt.phase {
            Phase::Offered if dice < 85 => Some(Command::Start(fence)),
            Phase::Offered if dice < 92 => Some(self.finish(at, Outcome::HandedBack)),
            Phase::Working if stops && dice < 80 => Some(self.finish(at, Outcome::Canceled)),
            Phase::Working if leased && dice < 45 => Some(Command::Heartbeat(fence)),
            Phase::Working if leased && dice < 50 => Some(Command::Start(fence)),
            Phase::Working if dice < 5 => Some(Command::Heartbeat(fence)),
            _ => {
                let outcome = self.outcome(fence.job);
                Some(self.finish(at, outcome))
            }
        }
    }

    /// The attempt at `at` has ended, and reports it.
    pub(super) fn finish(&mut self, at: usize, outcome: Outcome) -> Command {
        self.attempts[at].phase = Phase::Ended;
        Command::Finish(self.attempts[at].fence, outcome)
    }

    /// What the runner of a job reports in the end.
    pub(super) fn outcome(&mut self, job: JobId) -> Outcome {
        if self.rng.chance(self.shape.habits.failing) {
            return Outcome::Failed(Failure {
                code: Name::fixed("broken"),
                message: "it broke".into(),
                retryable: self.rng.chance(80),
                detail: None,
                retry_after: None,
            });
        }
        match self.rng.below(20) {
            0 => Outcome::HandedBack,
            1 => Outcome::Canceled,
            2 => Outcome::Skipped(None),
            3 => Outcome::Interrupted,
            4..=9 => self.keeping(job),
            _ => Outcome::Succeeded(Some(Bytes::from(&b"result"[..]))),
        }
    }

    /// A report about an attempt that is over arrives.
    pub(super) fn report_late(&mut self) -> Option<Command> {
        if self.old_fences.is_empty() {
            return None;
        }
        let fence = self.old_fences[self.rng.below(self.old_fences.len() as u64) as usize];
        Some(self.any_report(fence))
    }

    /// A report with a fence that never existed arrives.
    pub(super) fn report_forged(&mut self) -> Option<Command> {
        let mut fences: Vec<Fence> = self.attempts.iter().map(|attempt| attempt.fence).collect();
        fences.extend(self.old_fences.back());
        if fences.is_empty() {
            return None;
        }
        let mut fence = *self.rng.pick(&fences);
        match self.rng.below(4) {
            0 => fence.attempt_id = AttemptId(fence.attempt_id.0 ^ 1),
            1 => fence.attempt += 1,
            2 => fence.lease_epoch += 1,
            _ => fence.job = JobId(fence.job.0 ^ 1),
        }
        Some(self.any_report(fence))
    }

    fn any_report(&mut self, fence: Fence) -> Command {
        match self.rng.below(9) {
            0 | 1 => Command::Start(fence),
            2 | 3 => Command::Heartbeat(fence),
            4 => self.call(fence, 0, 0),
            _ => Command::Finish(fence, self.outcome(fence.job)),
        }
    }

    pub(super) fn log(&mut self) -> Option<Command> {
        let working: Vec<Fence> = self
            .attempts
            .iter()
            .filter(|attempt| attempt.works() && !attempt.cut)
            .map(|attempt| attempt.fence)
            .collect();
        if working.is_empty() {
            return None;
        }
        let fence = *self.rng.pick(&working);
        let line = LogLine {
            at: self.clock.moment().now.wall,
            stream: Name::fixed("stdout"),
            text: "a line".into(),
        };
        Some(Command::Log(fence, vec![line; self.rng.between(1, 2) as usize]))
    }

    /// A leased attempt dies without a report, or is cut off. Attached ones die with their process only.
    pub(super) fn strike_an_attempt(&mut self) {
        let leased: Vec<usize> = (0..self.attempts.len()).filter(|&at| self.attempts[at].leased).collect();
        if leased.is_empty() {
            return;
        }
        let at = *self.rng.pick(&leased);
        let dies = self.rng.chance(50);
        let fence = self.attempts[at].fence;
        self.log
            .note(|| format!("the attempt {} {}", short(&fence), if dies { "dies" } else { "is cut off" }));
        if dies {
            self.forget_attempt(at);
        } else {
            self.attempts[at].cut = true;
        }
    }

    /// What an attempt does with an answer.
    pub(super) fn attempt_answered(&mut self, command: &Command, reply: &Reply, at: u64) {
        if matches!(
            command,
            Command::Lease(LeaseCommand::Claim(_)) | Command::Lease(LeaseCommand::Request(_))
        ) {
            return self.claim_answered(reply, at);
        }
        if let Command::Worker(WorkerCommand::Message(message)) = command {
            return self.message_answered(message, reply, at);
        }
        if let Command::Worker(WorkerCommand::Register(register)) = command {
            return self.register_answered(register, reply);
        }
        let found = match command {
            Command::Start(fence) | Command::Heartbeat(fence) | Command::Finish(fence, _) => {
                self.attempts.iter().position(|attempt| attempt.fence == *fence)
            }
            Command::Workflow(WorkflowCommand::CallNext(call)) => {
                self.attempts.iter().position(|attempt| attempt.fence == call.fence)
            }
            Command::Lease(LeaseCommand::Message(message)) => {
                self.attempts.iter().position(|attempt| attempt.fence.attempt_id == message.lease)
            }
            _ => None,
        };
        let Some(found) = found else { return };
        if let (Reply::NextAnswered(answer), Some(caller)) = (reply, self.attempts[found].caller.as_mut()) {
            // One that waits already waits on.
            caller.waits &= *answer == NextAnswer::rejected(NextCode::Duplicate);
        }
        let ended = match command {
            Command::Finish(..) => true,
            // A message of another worker or of an operator is not the attempt's own.
            Command::Lease(LeaseCommand::Message(message)) => {
                matches!(message.update, LeaseUpdate::Ended(_)) && *reply != Reply::NotYours
            }
            _ => false,
        };
        match (command, reply) {
            _ if ended => self.forget_attempt(found),
            (_, Reply::Stale) => self.forget_attempt(found),
            (_, Reply::Alive { lease, stop }) => {
                let attempt = &mut self.attempts[found];
                match attempt.phase {
                    // Its time may be over already: an attempt that is asked to stop before it begins must not begin.
                    Phase::Offered if *stop => attempt.phase = Phase::Ended,
                    // An attempt that ended in the meantime does not begin again.
                    Phase::Ended => {}
                    _ => attempt.renewed(at, lease.0),
                }
                attempt.asked_to_stop |= *stop;
            }
            _ => {}
        }
    }

    /// What executors do with a notice.
    pub(super) fn notice_received(&mut self, notice: &Notice, at: u64) -> Checked {
        match notice {
            Notice::Offer(offer) if offer.to.is_some() => {
                if let Some(to) = &offer.to {
                    self.task_offered(offer, to, at)?;
                }
            }
            Notice::Offer(offer) => {
                let open = self.checker.ledger.fits(&offer.fence).and_then(|entry| entry.open.as_ref());
                let Some(open) = open else {
                    self.remember_fence(offer.fence);
                    return Ok(());
                };
                let mut attempt = SimAttempt::new(offer, open.mode == ExecutorMode::Leased, at);
                attempt.stubborn = !self.healed && self.rng.chance(self.shape.faults.stubborn);
                attempt.cut = !self.healed && attempt.leased && self.rng.chance(self.shape.faults.cut);
                attempt.caller = self.caller_of(&offer.fence);
                self.attempts.push(attempt);
            }
            Notice::Deliver { seq, job, number } => {
                self.deliveries.push(DeliveryTry { seq: *seq, job: *job, number: *number });
            }
            Notice::ProbeConnection(connection) => self.probed.push(*connection),
            Notice::Superseded(_)
            | Notice::DrainConnection(_)
            | Notice::Waited { .. }
            | Notice::Unserved { .. } => {}
            Notice::Stop { fence, connection, .. } => {
                let same =
                    |attempt: &&mut SimAttempt| attempt.fence.attempt_id == fence.attempt_id && !attempt.cut;
                if let Some(attempt) = self.attempts.iter_mut().find(same) {
                    attempt.asked_to_stop = true;
                    attempt.fence = *fence;
                    if let (Some(at), Some(connection)) = (attempt.at.as_mut(), connection) {
                        at.connection = *connection;
                    }
                }
            }
            Notice::Next { fence, .. } => {
                let same =
                    |attempt: &&mut SimAttempt| attempt.fence.attempt_id == fence.attempt_id && !attempt.cut;
                let caller = self.attempts.iter_mut().find(same).and_then(|attempt| attempt.caller.as_mut());
                if let Some(caller) = caller {
                    caller.waits = false;
                }
            }
        }
        Ok(())
    }

    /// Time passed: attempts look at their own clocks.
    pub(super) fn attempts_look_at_clock(&mut self) {
        let at = self.clock.moment().at;
        for attempt in &mut self.attempts {
            attempt.looks_at_clock(at);
        }
    }

    /// An executor drops attached attempts that were closed without them, and no job runs twice at the same time.
    pub(super) fn settle_attempts(&mut self) -> Checked {
        let mut at = 0;
        while at < self.attempts.len() {
            let attempt = &self.attempts[at];
            let closed = !attempt.leased && self.checker.ledger.fits(&attempt.fence).is_none();
            if closed {
                self.forget_attempt(at);
            } else {
                at += 1;
            }
        }
        let twice = doubled(&self.attempts);
        hold("I10", twice.is_none(), || format!("job {twice:?} really runs twice at the same time"))
    }

    /// The process died, and attached attempts with it.
    pub(super) fn attached_attempts_die(&mut self) {
        while let Some(at) = self.attempts.iter().position(|attempt| !attempt.leased) {
            self.forget_attempt(at);
        }
    }

    pub(super) fn forget_attempt(&mut self, at: usize) {
        let attempt = self.attempts.swap_remove(at);
        self.remember_fence(attempt.fence);
    }

    fn remember_fence(&mut self, fence: Fence) {
        if self.old_fences.len() == REMEMBERED_FENCES {
            self.old_fences.pop_front();
        }
        self.old_fences.push_back(fence);
    }
}

/// A fence, short enough for a line.
pub(super) fn short(fence: &Fence) -> String {
    format!("{:x}#{}", fence.job.0 & 0xFFFF, fence.attempt)
}
