//! Those who tell news of ended jobs, and those who want to hear it again.

use laneway_core::command::DeliveryCommand;
use laneway_core::{Command, JobId, Origin, Seq, Span, TryOutcome};

use super::World;

/// News that the house wants told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) seq: Seq,
    pub(super) job: JobId,
    pub(super) number: u32,
}

impl World {
    /// A call has ended, one way or another.
    pub(super) fn tell(&mut self) -> Option<Command> {
        if self.news.is_empty() {
            return None;
        }
        let News { seq, number, .. } = *self.rng.pick(&self.news);
        // Now and then somebody speaks of a try that is over.
        let number = if !self.healed && self.rng.chance(5) { number - 1 } else { number };
        let outcome = match self.rng.below(10) {
            _ if self.healed => TryOutcome::Answered(200),
            0..4 => TryOutcome::Answered(204),
            4..6 => TryOutcome::Answered(500),
            6 => TryOutcome::Answered(410),
            7 => TryOutcome::NotAllowed("it is not allowed".into()),
            _ => TryOutcome::Unanswered("nobody answers".into()),
        };
        let took = Span(self.rng.below(10_000));
        Some(Command::Delivery(DeliveryCommand::Tried { seq, number, took, outcome }))
    }

    /// Somebody wants to hear the news again, perhaps somebody else's.
    pub(super) fn redeliver(&mut self) -> Option<Command> {
        let (job, owner) = match self.known_jobs.len() {
            0 => return None,
            known => self.known_jobs[self.rng.below(known as u64) as usize].clone(),
        };
        let tenant = match self.rng.below(4) {
            0 => None,
            1 => Some(self.rng.pick(&self.shape.tenants).clone()),
            _ => Some(owner),
        };
        Some(Command::Delivery(DeliveryCommand::Redeliver {
            tenant,
            job,
            stored: None,
            origin: Origin::server("client"),
        }))
    }

    /// What was said about a try is not said again.
    pub(super) fn news_heard(&mut self, command: &Command) {
        if let Command::Delivery(DeliveryCommand::Tried { seq, number, .. }) = command {
            self.news.retain(|news| (news.seq, news.number) != (*seq, *number));
        }
    }
}
