//! Webhooks of ended jobs: exactly one delivery for each job with a callback (N1), no try is sent before it is durable or
//! while it is not the next one (N2), every change of a delivery has a cause (N3), and each is tried in the end (N4).

use laneway_core::command::DeliveryCommand;
use laneway_core::share::Pool;
use std::collections::{BTreeMap, BTreeSet};

use laneway_core::{
    Change, Command, DeliveryRow, DeliveryState, DeliveryTry, JobEnd, JobId, JobState, Name, Reply, Seq,
};

use super::{Checker, Given};
use crate::violation::{Checked, Violation, hold};

/// The webhook deliveries of one commit.
#[derive(Clone, Debug, Default)]
pub(super) struct CommitDeliveries {
    /// Jobs that ended and have a callback.
    ended: BTreeSet<Seq>,
    /// Records that were made.
    made: BTreeSet<Seq>,
    /// Tries that ended.
    tried: BTreeMap<Seq, u32>,
}

impl Checker {
    /// A job ended: does it need a delivery?
    pub(super) fn ended_now(&mut self, end: &JobEnd) {
        let owes = self.ledger.jobs.get(&end.seq).is_some_and(|entry| entry.row.spec.callback.is_some());
        if owes && end.state != JobState::Rejected {
            self.deliveries.ended.insert(end.seq);
        }
    }

    /// May this try be kept?
    pub(super) fn may_be_tried(&mut self, given: Given<'_>, tried: &DeliveryTry) -> Checked {
        let record = self.ledger.deliveries.get(&tried.seq);
        let next =
            record.is_some_and(|row| row.state == DeliveryState::Waiting && row.tries + 1 == tried.number);
        let reported = given.commands.iter().any(|command| {
            matches!(command, Command::Delivery(DeliveryCommand::Tried { seq, number, .. }) if *seq == tried.seq && *number == tried.number)
        });
        hold("N3", next && reported, || format!("{tried:?} is kept, and the record is {record:?}"))?;
        self.deliveries.tried.insert(tried.seq, tried.number);
        Ok(())
    }

    /// May this record be kept, new or changed?
    pub(super) fn may_be_owed(&mut self, given: Given<'_>, row: &DeliveryRow) -> Checked {
        let Some(known) = self.ledger.deliveries.get(&row.seq) else { return self.is_newly_owed(row) };
        let mut replays = given.commands.iter().filter(|command| match command {
            Command::Delivery(DeliveryCommand::Redeliver { job, tenant, .. }) => {
                *job == row.job && tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
            }
            _ => false,
        });
        let same = known.job == row.job
            && known.tenant == row.tenant
            && known.created_at == row.created_at
            && known.host == row.host;
        let tried = self.deliveries.tried.get(&row.seq) == Some(&row.tries) && row.tries == known.tries + 1;
        let asked =
            row.state == DeliveryState::Waiting && row.tries == known.tries && replays.next().is_some();
        hold("N3", same && (tried || asked), || format!("a delivery goes from {known:?} to {row:?}"))
    }

    fn is_newly_owed(&mut self, row: &DeliveryRow) -> Checked {
        let waiting = self.ledger.waiting_deliveries().count();
        let of_tenant =
            self.ledger.waiting_deliveries().filter(|waiting| waiting.tenant == row.tenant).count();
        let webhooks = &self.reference.settings.webhooks;
        let left = Pool::new(webhooks.pending_max, waiting as u64).left_to(of_tenant as u64, false);
        let fits = left > 0 && of_tenant < webhooks.pending_per_tenant_max as usize;
        let state = if fits { DeliveryState::Waiting } else { DeliveryState::Dropped };
        let owed = self.deliveries.ended.contains(&row.seq) && row.tries == 0 && row.state == state;
        let job = self.ledger.jobs.get(&row.seq).map(|entry| {
            let host = entry.row.spec.callback.as_ref().map(|callback| callback.host());
            (entry.row.id, entry.row.spec.tenant.clone(), host.unwrap_or_default())
        });
        let whole = job == Some((row.job, row.tenant.clone(), row.host.to_string()));
        hold("N1", owed && whole, || {
            format!("{row:?} is owed although {waiting} wait and the job is {job:?}")
        })?;
        self.deliveries.made.insert(row.seq);
        Ok(())
    }

    /// Every job with a callback that this commit ends has a delivery by the same commit.
    pub(super) fn deliveries_are_stored(&self) -> Checked {
        let forgotten = self.deliveries.ended.difference(&self.deliveries.made).next();
        hold("N1", forgotten.is_none(), || format!("job {forgotten:?} ended and has no delivery"))
    }

    /// A try is handed out.
    pub(super) fn delivery_noticed(&self, seq: Seq, job: JobId, number: u32) -> Checked {
        let record = self.ledger.deliveries.get(&seq);
        let due = record.is_some_and(|row| {
            row.job == job && row.state == DeliveryState::Waiting && row.tries + 1 == number
        });
        hold("N2", due, || format!("try {number} of {job} is handed out, and durable is {record:?}"))
    }

    /// The answers to the end of a try and to the request for another one are true.
    pub(super) fn delivery_answered(&self, command: &Command, reply: &Reply) -> Checked {
        match (command, reply) {
            (Command::Delivery(DeliveryCommand::Tried { seq, number, .. }), Reply::Done) => {
                let tries = self.ledger.deliveries.get(seq).map_or(0, |row| row.tries);
                // A later call of the same batch may have deleted the job, and its delivery with it.
                let deleted = self.ledger.ended.get(seq).is_some_and(|entry| entry.deleted);
                hold("I6", deleted || tries >= *number, || {
                    format!("try {number} of job {} is not durable", seq.0)
                })
            }
            (Command::Delivery(DeliveryCommand::Tried { .. }), Reply::Stale) => Ok(()),
            (Command::Delivery(DeliveryCommand::Redeliver { tenant, job, .. }), _) => {
                self.replay_answered(tenant.as_ref(), *job, reply)
            }
            _ => Err(Violation::new("N3", format!("{command:?} is answered with {reply:?}"))),
        }
    }

    fn replay_answered(&self, tenant: Option<&Name>, job: JobId, reply: &Reply) -> Checked {
        let record = self.ledger.deliveries.values().find(|row| row.job == job);
        let mine = record.filter(|row| tenant.is_none_or(|tenant| *tenant == row.tenant));
        let answer = match reply {
            Reply::Done => mine.is_some(),
            // A later call of the same batch may have deleted the job.
            Reply::Rejected(_) => mine.is_some() || self.seen(tenant, job).is_some_and(|entry| entry.deleted),
            // It may have come into being in this very batch, or its job may be gone.
            Reply::NotFound => true,
            _ => false,
        };
        hold("X2", answer, || {
            format!("a replay of {job} for {tenant:?} is answered with {reply:?}; kept is {record:?}")
        })
    }

    /// In the end every delivery was received, was tried at least once, or is recorded as dropped.
    pub fn every_delivery_was_tried(&self) -> Checked {
        let unheard = self.ledger.deliveries.values().find(|row| match row.state {
            DeliveryState::Waiting => true,
            DeliveryState::Delivered | DeliveryState::Failed => row.tries == 0,
            DeliveryState::Dropped => false,
        });
        hold("N4", unheard.is_none(), || format!("a delivery was never tried: {unheard:?}"))
    }

    /// Follows a change of a delivery.
    pub(super) fn follow_delivery(&mut self, given: Given<'_>, change: &Change) -> Checked {
        match change {
            Change::DeliveryPut(row) => self.may_be_owed(given, row)?,
            Change::DeliveryTried(tried) => self.may_be_tried(given, tried)?,
            _ => {}
        }
        self.ledger.change(change)
    }
}
