//! Receivers of webhooks, and clients that request a webhook again.

use laneway_core::command::DeliveryCommand;
use laneway_core::{Command, JobId, Origin, Seq, Span, TryOutcome};

use super::World;

/// Tries of webhook deliveries that the server handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeliveryTry {
    pub(super) seq: Seq,
    pub(super) job: JobId,
    pub(super) number: u32,
}

impl World {
    /// A call has ended, one way or another.
    pub(super) fn end_delivery(&mut self) -> Option<Command> {
        if self.deliveries.is_empty() {
            return None;
        }
        let DeliveryTry { seq, number, .. } = *self.rng.pick(&self.deliveries);
        // Now and then the report is about a try that is over.
        let number = if !self.healed && self.rng.chance(5) { number - 1 } else { number };
        let outcome = match self.rng.below(10) {
            _ if self.healed => TryOutcome::Answered(200),
            0..4 => TryOutcome::Answered(204),
            4..6 => TryOutcome::Answered(500),
            6 => TryOutcome::Answered(410),
            7 => TryOutcome::NotAllowed("it is not allowed".into()),
            _ => TryOutcome::Unanswered("no answer".into()),
        };
        let took = Span(self.rng.below(10_000));
        Some(Command::Delivery(DeliveryCommand::Tried { seq, number, took, outcome }))
    }

    /// A client requests a webhook again, perhaps one of another tenant.
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

    /// The end of a try is not reported again.
    pub(super) fn delivery_answered(&mut self, command: &Command) {
        if let Command::Delivery(DeliveryCommand::Tried { seq, number, .. }) = command {
            self.deliveries.retain(|deliveries| (deliveries.seq, deliveries.number) != (*seq, *number));
        }
    }
}
