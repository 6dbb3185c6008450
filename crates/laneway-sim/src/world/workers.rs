//! Runs and those who pretend to be runs: what they say to the house, and what they make of its answers.

use laneway_core::command::LogLine;
use laneway_core::command::{LeaseCommand, WorkerCommand, WorkflowCommand};
use laneway_core::lease::LeaseUpdate;
use laneway_core::{
    AttemptId, Bytes, Command, ExecutorMode, Failure, Fence, JobId, Name, NextAnswer, NextCode, Notice,
    Outcome, Reply,
};

use super::news::News;
use super::{REMEMBERED_FENCES, World};
use crate::runs::{Phase, Run, doubled};
use crate::violation::{Checked, hold};

impl World {
    /// A run that somebody can hear says the next thing.
    pub(super) fn speak(&mut self) -> Option<Command> {
        let is_heard = |&at: &usize| !self.runs[at].cut && self.is_connected(&self.runs[at]);
        let heard: Vec<usize> = (0..self.runs.len()).filter(is_heard).collect();
        if heard.is_empty() {
            return None;
        }
        let at = *self.rng.pick(&heard);
        if let Some(word) = self.caller_speaks(at) {
            return word;
        }
        if self.runs[at].at.is_some() {
            return self.task_speaks(at);
        }
        let run = &self.runs[at];
        let fence = run.fence;
        let (leased, stops) = (run.leased, run.told_to_stop && !run.stubborn);
        let dice = self.rng.below(100);
        match run.phase {
            Phase::Offered if dice < 85 => Some(Command::Start(fence)),
            Phase::Offered if dice < 92 => Some(self.finish(at, Outcome::HandedBack)),
            Phase::Working if stops && dice < 80 => Some(self.finish(at, Outcome::Canceled)),
            Phase::Working if leased && dice < 45 => Some(Command::Heartbeat(fence)),
            Phase::Working if leased && dice < 50 => Some(Command::Start(fence)),
            Phase::Working if dice < 5 => Some(Command::Heartbeat(fence)),
            _ => {
                let outcome = self.outcome();
                Some(self.finish(at, outcome))
            }
        }
    }

    /// The run at `at` has ended, and says so.
    pub(super) fn finish(&mut self, at: usize, outcome: Outcome) -> Command {
        self.runs[at].phase = Phase::Ended;
        Command::Finish(self.runs[at].fence, outcome)
    }

    pub(super) fn outcome(&mut self) -> Outcome {
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
            _ => Outcome::Succeeded(Some(Bytes::from(&b"result"[..]))),
        }
    }

    /// Somebody says something about an attempt that is over.
    pub(super) fn speak_late(&mut self) -> Option<Command> {
        if self.old_fences.is_empty() {
            return None;
        }
        let fence = self.old_fences[self.rng.below(self.old_fences.len() as u64) as usize];
        Some(self.any_word(fence))
    }

    /// Somebody says something with a fence that never was.
    pub(super) fn speak_forged(&mut self) -> Option<Command> {
        let mut fences: Vec<Fence> = self.runs.iter().map(|run| run.fence).collect();
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
        Some(self.any_word(fence))
    }

    fn any_word(&mut self, fence: Fence) -> Command {
        match self.rng.below(9) {
            0 | 1 => Command::Start(fence),
            2 | 3 => Command::Heartbeat(fence),
            4 => self.call(fence, 0, 0),
            _ => Command::Finish(fence, self.outcome()),
        }
    }

    pub(super) fn log(&mut self) -> Option<Command> {
        let working: Vec<Fence> =
            self.runs.iter().filter(|run| run.works() && !run.cut).map(|run| run.fence).collect();
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

    /// A leased run dies without a word, or nobody hears it any more. Attached ones die with their process only.
    pub(super) fn strike_a_run(&mut self) {
        let leased: Vec<usize> = (0..self.runs.len()).filter(|&at| self.runs[at].leased).collect();
        if leased.is_empty() {
            return;
        }
        let at = *self.rng.pick(&leased);
        let dies = self.rng.chance(50);
        let fence = self.runs[at].fence;
        self.diary.note(|| format!("the run {} {}", told(&fence), if dies { "dies" } else { "is cut off" }));
        if dies {
            self.forget_run(at);
        } else {
            self.runs[at].cut = true;
        }
    }

    /// What a run makes of an answer.
    pub(super) fn run_heard(&mut self, command: &Command, reply: &Reply, at: u64) {
        if matches!(
            command,
            Command::Lease(LeaseCommand::Claim(_)) | Command::Lease(LeaseCommand::Request(_))
        ) {
            return self.worker_heard(reply, at);
        }
        if let Command::Worker(WorkerCommand::Message(word)) = command {
            return self.hand_heard(word, reply, at);
        }
        if let Command::Worker(WorkerCommand::Register(register)) = command {
            return self.register_heard(register, reply);
        }
        let found = match command {
            Command::Start(fence) | Command::Heartbeat(fence) | Command::Finish(fence, _) => {
                self.runs.iter().position(|run| run.fence == *fence)
            }
            Command::Workflow(WorkflowCommand::CallNext(call)) => {
                self.runs.iter().position(|run| run.fence == call.fence)
            }
            Command::Lease(LeaseCommand::Message(word)) => {
                self.runs.iter().position(|run| run.fence.attempt_id == word.lease)
            }
            _ => None,
        };
        let Some(found) = found else { return };
        if let (Reply::NextAnswered(answer), Some(caller)) = (reply, self.runs[found].caller.as_mut()) {
            // One that waits already waits on.
            caller.waits &= *answer == NextAnswer::rejected(NextCode::Duplicate);
        }
        let ended = match command {
            Command::Finish(..) => true,
            // What a stranger or an operator says is not the run's own word.
            Command::Lease(LeaseCommand::Message(word)) => {
                matches!(word.update, LeaseUpdate::Ended(_)) && *reply != Reply::NotYours
            }
            _ => false,
        };
        match (command, reply) {
            _ if ended => self.forget_run(found),
            (_, Reply::Stale) => self.forget_run(found),
            (_, Reply::Alive { lease, stop }) => {
                let run = &mut self.runs[found];
                match run.phase {
                    // Its time may be over already: whoever is told to stop before it begins must not begin.
                    Phase::Offered if *stop => run.phase = Phase::Ended,
                    // A run that ended in the meantime does not begin again.
                    Phase::Ended => {}
                    _ => run.renewed(at, lease.0),
                }
                run.told_to_stop |= *stop;
            }
            _ => {}
        }
    }

    /// What places make of a notice.
    pub(super) fn place_heard(&mut self, notice: &Notice, at: u64) -> Checked {
        match notice {
            Notice::Offer(offer) if offer.to.is_some() => {
                if let Some(to) = &offer.to {
                    self.hand_offered(offer, to, at)?;
                }
            }
            Notice::Offer(offer) => {
                let open = self.checker.ledger.fits(&offer.fence).and_then(|entry| entry.open.as_ref());
                let Some(open) = open else {
                    self.remember_fence(offer.fence);
                    return Ok(());
                };
                let mut run = Run::new(offer, open.mode == ExecutorMode::Leased, at);
                run.stubborn = !self.healed && self.rng.chance(self.shape.faults.stubborn);
                run.cut = !self.healed && run.leased && self.rng.chance(self.shape.faults.cut);
                run.caller = self.caller_of(&offer.fence);
                self.runs.push(run);
            }
            Notice::Deliver { seq, job, number } => {
                self.news.push(News { seq: *seq, job: *job, number: *number });
            }
            Notice::ProbeConnection(connection) => self.probed.push(*connection),
            Notice::Superseded(_) | Notice::DrainConnection(_) | Notice::Unserved { .. } => {}
            Notice::Stop { fence, connection, .. } => {
                let same = |run: &&mut Run| run.fence.attempt_id == fence.attempt_id && !run.cut;
                if let Some(run) = self.runs.iter_mut().find(same) {
                    run.told_to_stop = true;
                    run.fence = *fence;
                    if let (Some(at), Some(connection)) = (run.at.as_mut(), connection) {
                        at.connection = *connection;
                    }
                }
            }
            Notice::Next { fence, .. } => {
                let same = |run: &&mut Run| run.fence.attempt_id == fence.attempt_id && !run.cut;
                let caller = self.runs.iter_mut().find(same).and_then(|run| run.caller.as_mut());
                if let Some(caller) = caller {
                    caller.waits = false;
                }
            }
        }
        Ok(())
    }

    /// Time passed: runs look at their own clocks.
    pub(super) fn runs_look_at_clock(&mut self) {
        let at = self.clock.moment().at;
        for run in &mut self.runs {
            run.looks_at_clock(at);
        }
    }

    /// A place drops attached runs whose attempt was closed without them, and nothing runs twice at the same time.
    pub(super) fn settle_runs(&mut self) -> Checked {
        let mut at = 0;
        while at < self.runs.len() {
            let run = &self.runs[at];
            let closed = !run.leased && self.checker.ledger.fits(&run.fence).is_none();
            if closed {
                self.forget_run(at);
            } else {
                at += 1;
            }
        }
        let twice = doubled(&self.runs);
        hold("I10", twice.is_none(), || format!("job {twice:?} really runs twice at the same time"))
    }

    /// The process died, and attached runs with it.
    pub(super) fn attached_runs_die(&mut self) {
        while let Some(at) = self.runs.iter().position(|run| !run.leased) {
            self.forget_run(at);
        }
    }

    pub(super) fn forget_run(&mut self, at: usize) {
        let run = self.runs.swap_remove(at);
        self.remember_fence(run.fence);
    }

    fn remember_fence(&mut self, fence: Fence) {
        if self.old_fences.len() == REMEMBERED_FENCES {
            self.old_fences.pop_front();
        }
        self.old_fences.push_back(fence);
    }
}

/// A fence, short enough for a line.
pub(super) fn told(fence: &Fence) -> String {
    format!("{:x}#{}", fence.job.0 & 0xFFFF, fence.attempt)
}
