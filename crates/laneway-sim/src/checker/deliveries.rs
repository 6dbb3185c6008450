//! News of ended jobs: exactly one record for each job that owes it (N1), nothing of it is told before it is durable or
//! when it is not due (N2), every change of a record has a cause (N3), and everybody hears in the end (N4).

use laneway_core::command::DeliveryCommand;
use std::collections::{BTreeMap, BTreeSet};

use laneway_core::{
    Change, Command, DeliveryRow, DeliveryState, DeliveryTry, JobEnd, JobId, JobState, Name, Reply, Seq,
};

use super::{Checker, Given};
use crate::violation::{Checked, Violation, hold};

/// What one commit says of news.
#[derive(Clone, Debug, Default)]
pub(super) struct CommitNews {
    /// Jobs that ended and owe news.
    ended: BTreeSet<Seq>,
    /// Records that were made.
    made: BTreeSet<Seq>,
    /// Tries that ended.
    tried: BTreeMap<Seq, u32>,
}

impl Checker {
    /// A job ended: does it owe news?
    pub(super) fn ended_now(&mut self, end: &JobEnd) {
        let owes = self.ledger.jobs.get(&end.seq).is_some_and(|entry| entry.row.spec.callback.is_some());
        if owes && end.state != JobState::Rejected {
            self.news.ended.insert(end.seq);
        }
    }

    /// May this try be kept?
    pub(super) fn may_be_tried(&mut self, given: Given<'_>, tried: &DeliveryTry) -> Checked {
        let record = self.ledger.deliveries.get(&tried.seq);
        let next =
            record.is_some_and(|row| row.state == DeliveryState::Waiting && row.tries + 1 == tried.number);
        let said = given.commands.iter().any(|command| {
            matches!(command, Command::Delivery(DeliveryCommand::Tried { seq, number, .. }) if *seq == tried.seq && *number == tried.number)
        });
        hold("N3", next && said, || format!("{tried:?} is kept, and the record is {record:?}"))?;
        self.news.tried.insert(tried.seq, tried.number);
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
        let tried = self.news.tried.get(&row.seq) == Some(&row.tries) && row.tries == known.tries + 1;
        let asked =
            row.state == DeliveryState::Waiting && row.tries == known.tries && replays.next().is_some();
        hold("N3", same && (tried || asked), || format!("a delivery goes from {known:?} to {row:?}"))
    }

    fn is_newly_owed(&mut self, row: &DeliveryRow) -> Checked {
        let waiting = self.ledger.waiting_deliveries().count();
        let of_tenant =
            self.ledger.waiting_deliveries().filter(|waiting| waiting.tenant == row.tenant).count();
        let webhooks = &self.reference.settings.webhooks;
        let fits =
            waiting < webhooks.pending_max as usize && of_tenant < webhooks.pending_per_tenant_max as usize;
        let state = if fits { DeliveryState::Waiting } else { DeliveryState::Dropped };
        let owed = self.news.ended.contains(&row.seq) && row.tries == 0 && row.state == state;
        let job = self.ledger.jobs.get(&row.seq).map(|entry| {
            let host = entry.row.spec.callback.as_ref().map(|callback| callback.host());
            (entry.row.id, entry.row.spec.tenant.clone(), host.unwrap_or_default())
        });
        let whole = job == Some((row.job, row.tenant.clone(), row.host.to_string()));
        hold("N1", owed && whole, || {
            format!("{row:?} is owed although {waiting} wait and the job is {job:?}")
        })?;
        self.news.made.insert(row.seq);
        Ok(())
    }

    /// Whoever is owed news by this commit has a record by it.
    pub(super) fn all_news_is_kept(&self) -> Checked {
        let forgotten = self.news.ended.difference(&self.news.made).next();
        hold("N1", forgotten.is_none(), || format!("job {forgotten:?} ended and nobody is owed its news"))
    }

    /// Somebody is told to tell.
    pub(super) fn news_noticed(&self, seq: Seq, job: JobId, number: u32) -> Checked {
        let record = self.ledger.deliveries.get(&seq);
        let due = record.is_some_and(|row| {
            row.job == job && row.state == DeliveryState::Waiting && row.tries + 1 == number
        });
        hold("N2", due, || format!("try {number} of {job} is told, and durable is {record:?}"))
    }

    /// What is said about a try, or to somebody who wants another one, is true.
    pub(super) fn told_news(&self, command: &Command, reply: &Reply) -> Checked {
        match (command, reply) {
            (Command::Delivery(DeliveryCommand::Tried { seq, number, .. }), Reply::Done) => {
                let tries = self.ledger.deliveries.get(seq).map_or(0, |row| row.tries);
                hold("I6", tries >= *number, || format!("try {number} of job {} is not durable", seq.0))
            }
            (Command::Delivery(DeliveryCommand::Tried { .. }), Reply::Stale) => Ok(()),
            (Command::Delivery(DeliveryCommand::Redeliver { tenant, job, .. }), _) => {
                self.told_replay(tenant.as_ref(), *job, reply)
            }
            _ => Err(Violation::new("N3", format!("{command:?} is answered with {reply:?}"))),
        }
    }

    fn told_replay(&self, tenant: Option<&Name>, job: JobId, reply: &Reply) -> Checked {
        let record = self.ledger.deliveries.values().find(|row| row.job == job);
        let mine = record.filter(|row| tenant.is_none_or(|tenant| *tenant == row.tenant));
        let told = match reply {
            Reply::Done | Reply::Rejected(_) => mine.is_some(),
            // It may have come into being in this very turn, or its job may be gone.
            Reply::NotFound => true,
            _ => false,
        };
        hold("X2", told, || {
            format!("a replay of {job} for {tenant:?} is answered with {reply:?}; kept is {record:?}")
        })
    }

    /// In the end everybody has heard, or was tried at least once, or is on record as dropped.
    pub fn everybody_has_heard(&self) -> Checked {
        let unheard = self.ledger.deliveries.values().find(|row| match row.state {
            DeliveryState::Waiting => true,
            DeliveryState::Delivered | DeliveryState::Failed => row.tries == 0,
            DeliveryState::Dropped => false,
        });
        hold("N4", unheard.is_none(), || format!("nobody was told: {unheard:?}"))
    }

    /// Follows a change that is about news.
    pub(super) fn follow_news(&mut self, given: Given<'_>, change: &Change) -> Checked {
        match change {
            Change::DeliveryPut(row) => self.may_be_owed(given, row)?,
            Change::DeliveryTried(tried) => self.may_be_tried(given, tried)?,
            _ => {}
        }
        self.ledger.change(change)
    }
}
