//! Pull workers: the answer to a claim or a request, the job that it opens, and the effect of messages by lease id.
//!
//! I11 (an attempt has one holder), I17 (units and quiet hold when an attempt opens), I23 and I24c for claims.

use laneway_core::command::LeaseCommand;
use laneway_core::lease::{Grant, LeaseFor, LeaseMessage, LeaseRequest, LeaseUpdate};
use laneway_core::{Claim, Command, JobState, Name, OpenAttempt, RejectionCode, Reply, Seq};

use super::published::Found;
use super::{Checker, Given, Verdict};
use crate::clock::Moment;
use crate::ledger::Entry;
use crate::reference::{Capacity, is_overdue};
use crate::violation::{Checked, Violation, hold};

/// The executor of attempts that pull workers hold.
pub(super) const LEASES: &str = "leases";

/// The answer that a claim or a request must get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing of that name is there.
    NotFound,
    /// This cannot be asked.
    Rejected(RejectionCode),
    /// One of these jobs.
    Granted(Vec<Seq>),
    /// A job, or nothing: which one it may be is seen when it opens.
    Either,
    /// Nothing, for now.
    Denied,
}

impl Checker {
    /// What a claim must be answered.
    pub(super) fn expect_claim(&mut self, claim: &Claim, moment: Moment) -> Answer {
        let Some(lane) = self.reference.settings.lanes.get(&claim.lane) else {
            return Answer::Rejected(RejectionCode::UnknownLane);
        };
        if !lane.pull.is_pull() {
            return Answer::Rejected(RejectionCode::Invalid);
        }
        let reserved = self.ledger.open().filter(|entry| self.is_reserved(entry));
        let reserved: Vec<Seq> = reserved
            .filter(|entry| self.reference.suits(&self.ledger, entry, claim))
            .map(|entry| entry.row.seq)
            .collect();
        if !reserved.is_empty() {
            return Answer::Granted(reserved);
        }
        // A claim that meets a job that is too late ends it, and the next of its session may be what it gets.
        let mut waiting = self.ledger.waiting().filter(|entry| entry.lane == claim.lane);
        if waiting.any(|entry| entry.row.spec.session.is_some() && is_overdue(moment, entry)) {
            return Answer::Either;
        }
        match self.reference.claim_choice(&self.ledger, moment, claim) {
            Some(seq) => Answer::Granted(vec![seq]),
            None => Answer::Denied,
        }
    }

    /// What a request for one job must be answered.
    pub(super) fn expect_request(&mut self, request: &LeaseRequest, moment: Moment) -> Answer {
        let worker = &request.holder.worker;
        match &request.what {
            LeaseFor::New(submission) => match self.verdict(submission, moment) {
                _ if !self.is_pull_lane(&self.lane_of(&submission.spec)) => {
                    Answer::Rejected(RejectionCode::Invalid)
                }
                // What the store rejects is seen only when it is stored.
                Verdict::Rejected(code) if code != RejectionCode::Invalid => Answer::Rejected(code),
                // Whether there is capacity is seen when it opens.
                _ => Answer::Either,
            },
            LeaseFor::Job { tenant, job } => {
                let capacity = self.reference.capacity(&self.ledger, moment);
                let entry = self.ledger.find(*job).filter(|entry| entry.end.is_none());
                let entry = entry
                    .filter(|entry| tenant.as_ref().is_none_or(|tenant| *tenant == entry.row.spec.tenant));
                match entry {
                    None => Answer::NotFound,
                    Some(entry) if entry.open.is_none() && is_overdue(moment, entry) => Answer::NotFound,
                    Some(entry) if self.may_have(entry, worker, moment, &capacity) => {
                        Answer::Granted(vec![entry.row.seq])
                    }
                    Some(_) => Answer::Denied,
                }
            }
        }
    }

    fn may_have(&self, entry: &Entry, worker: &Name, moment: Moment, capacity: &Capacity) -> bool {
        match &entry.open {
            Some(open) => {
                let mine = open.holder.as_ref().is_some_and(|holder| holder.worker == *worker);
                let stopping = self.watches.get(&entry.row.seq).and_then(|watch| watch.run.as_ref());
                let stopping = stopping.is_some_and(|run| run.stop.is_some());
                !stopping && (mine || self.is_reserved(entry))
            }
            None => {
                self.is_pull_lane(&entry.lane)
                    && self.reference.is_eligible(&self.ledger, moment, entry, capacity)
                    && self.reference.suits_worker(&self.ledger, entry, worker)
            }
        }
    }

    fn is_pull_lane(&self, lane: &Name) -> bool {
        self.reference.lane(lane).is_some_and(|lane| lane.pull.is_pull())
    }

    /// Reserved for pull workers, and not claimed.
    pub(super) fn is_reserved(&self, entry: &Entry) -> bool {
        let run = self.watches.get(&entry.row.seq).and_then(|watch| watch.run.as_ref());
        let stopping = run.is_some_and(|run| run.stop.is_some());
        let open = entry.open.as_ref();
        entry.end.is_none()
            && !stopping
            && open.is_some_and(|open| {
                open.holder.is_none() && open.started_at.is_none() && open.executor.as_str() == LEASES
            })
    }

    /// How long an attempt of this job lives without a heartbeat.
    pub(super) fn lease_of(&self, entry: &Entry) -> u64 {
        if let Some(lease) = self.worker_lease_of(entry) {
            return lease;
        }
        let lane = self.reference.lane(&entry.lane).and_then(|lane| lane.pull.lease);
        lane.unwrap_or(self.reference.settings.lease).0
    }

    /// A claim or a request was answered.
    pub(super) fn lease_answered(&self, worker: &Name, reply: &Reply, expected: Option<&Answer>) -> Checked {
        if let Reply::Granted(grant) = reply {
            self.is_granted(worker, grant)?;
        }
        let same = match (expected, reply) {
            (None, _) => true,
            (Some(Answer::NotFound), reply) => *reply == Reply::NotFound,
            (Some(Answer::Rejected(code)), Reply::Rejected(rejection)) => rejection.code == *code,
            (Some(Answer::Granted(jobs)), Reply::Granted(grant)) => jobs.contains(&grant.seq),
            (Some(Answer::Either), reply) => matches!(reply, Reply::Granted(_) | Reply::Denied(_)),
            (Some(Answer::Denied), reply) => matches!(reply, Reply::Denied(_)),
            _ => false,
        };
        hold("I24c", same, || format!("{worker} asks and is answered {reply:?}, not {expected:?}"))
    }

    fn is_granted(&self, worker: &Name, grant: &Grant) -> Checked {
        let entry = self.ledger.fits(&grant.fence);
        let open = entry.and_then(|entry| entry.open.as_ref());
        let held = open.and_then(|open| open.holder.as_ref()).is_some_and(|holder| holder.worker == *worker);
        hold("I6", held, || format!("{worker} is granted {grant:?}, which is not durable"))?;
        let cost = entry.map_or(0, |entry| entry.row.spec.capacity.cost);
        hold("I17", cost == grant.cost, || {
            format!("{worker} is granted a cost of {}, it is {cost}", grant.cost)
        })
    }

    /// Units and quiet at the moment an attempt opens.
    pub(super) fn machine_takes(&mut self, given: Given<'_>, open: &OpenAttempt) -> Checked {
        let capacity = self.reference.capacity(&self.ledger, given.moment);
        let Some(entry) = self.ledger.jobs.get(&open.seq) else { return Ok(()) };
        let demand = self.reference.demand(entry);
        hold("I17", demand.cost <= capacity.free, || {
            format!("job {} costs {} of {} free units", open.seq.0, demand.cost, capacity.free)
        })?;
        hold("I17", capacity.is_quiet_for(demand.rule), || {
            format!("job {} starts in a machine that is {}", open.seq.0, capacity.quiet.as_str())
        })?;
        let due = capacity
            .next_in_line
            .filter(|(seq, cost)| *seq != open.seq && *cost > capacity.free && demand.cost > 0);
        hold("I25", due.is_none(), || {
            format!(
                "job {} bypasses job {}, which was bypassed too often",
                open.seq.0,
                due.map_or(0, |due| due.0.0)
            )
        })
    }

    /// An attempt that a pull worker requested: the worker gets the job that the rules give it.
    pub(super) fn right_answer(&mut self, given: Given<'_>, open: &OpenAttempt) -> Checked {
        self.decisions += 1;
        let asked = given.commands.iter().find_map(|command| match command {
            Command::Lease(LeaseCommand::Claim(claim)) => {
                let choice = self.reference.claim_choice(&self.ledger, given.moment, claim);
                Some(choice == Some(open.seq))
            }
            Command::Lease(LeaseCommand::Request(request)) => {
                let capacity = self.reference.capacity(&self.ledger, given.moment);
                let entry = self.ledger.jobs.get(&open.seq)?;
                let asked = match &request.what {
                    LeaseFor::Job { job, .. } => *job == entry.row.id,
                    LeaseFor::New(_) => entry.attempts == 0,
                };
                Some(asked && self.may_have(entry, &request.holder.worker, given.moment, &capacity))
            }
            _ => None,
        });
        hold("I23", asked == Some(true), || {
            format!("job {} is given to {:?}, who must not have it", open.seq.0, open.holder)
        })
    }

    /// The answer that a message by lease id must get.
    pub(super) fn expect_lease_message(&self, message: &LeaseMessage) -> LeaseAnswer {
        let fence = self.ledger.fences.get(&message.lease).map(|known| known.0);
        let entry = fence.and_then(|fence| self.ledger.fits(&fence));
        let leased =
            |entry: &&Entry| entry.open.as_ref().is_some_and(|open| open.executor.as_str() == LEASES);
        let owned =
            |entry: &&Entry| message.tenant.as_ref().is_none_or(|tenant| *tenant == entry.row.spec.tenant);
        let Some(entry) = entry.filter(leased).filter(owned) else { return LeaseAnswer::NotFound };
        let holder = entry.open.as_ref().and_then(|open| open.holder.as_ref());
        let takes = holder.is_none() && message.update == LeaseUpdate::Alive && entry.end.is_none();
        let mine = message
            .worker
            .as_ref()
            .is_none_or(|worker| holder.is_some_and(|holder| holder.worker == *worker));
        if !mine && !takes {
            return LeaseAnswer::NotYours;
        }
        let found = fence.map_or(Found::Nothing, |fence| self.find(&fence));
        match (&message.update, found) {
            (LeaseUpdate::Revoke(_), _) if entry.end.is_some() => LeaseAnswer::NotFound,
            (LeaseUpdate::Report | LeaseUpdate::Revoke(_), _) | (LeaseUpdate::Ended(_), Found::Running) => {
                LeaseAnswer::Done
            }
            (LeaseUpdate::Ended(_), _) => LeaseAnswer::Stale,
            (LeaseUpdate::Alive, found) => LeaseAnswer::Alive(found == Found::Stopping),
        }
    }

    /// A message by lease id was answered.
    pub(super) fn lease_message_answered(
        &self,
        message: &LeaseMessage,
        reply: &Reply,
        expected: Option<LeaseAnswer>,
    ) -> Checked {
        let same = match (expected, reply) {
            (None, _) => true,
            (Some(LeaseAnswer::NotFound), reply) => *reply == Reply::NotFound,
            (Some(LeaseAnswer::NotYours), reply) => *reply == Reply::NotYours,
            (Some(LeaseAnswer::Done), reply) => *reply == Reply::Done,
            (Some(LeaseAnswer::Stale), reply) => *reply == Reply::Stale,
            (Some(LeaseAnswer::Alive(wanted)), Reply::Alive { stop, .. }) => {
                // One whose time was over is asked to stop, and was stopped in this batch.
                let fence = self.ledger.fences.get(&message.lease).map(|known| known.0);
                let stopped_now = *stop && fence.is_some_and(|fence| self.find(&fence) != Found::Running);
                *stop == wanted || stopped_now
            }
            _ => false,
        };
        hold("I11", same, || format!("{message:?} is answered with {reply:?} and not with {expected:?}"))
    }

    /// A message by lease id that is accepted renews the lease.
    pub(super) fn receive_lease_message(&mut self, message: &LeaseMessage, moment: Moment) {
        if message.update != LeaseUpdate::Alive
            || !matches!(self.expect_lease_message(message), LeaseAnswer::Alive(_))
        {
            return;
        }
        let Some((fence, _)) = self.ledger.fences.get(&message.lease) else { return };
        let Some(entry) = self.ledger.fits(fence) else { return };
        let (seq, lease) = (entry.row.seq, self.lease_of(entry));
        if let Some(run) = self.watches.get_mut(&seq).and_then(|watch| watch.run.as_mut()) {
            run.lease_until = run.lease_until.max(moment.at + lease);
        }
    }
}

/// The answer that a message by lease id must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// There is no such lease.
    NotFound,
    /// It is another worker's.
    NotYours,
    /// Taken.
    Done,
    /// The attempt was asked to stop; its end is known now.
    Stale,
    /// It goes on; true: it is asked to stop.
    Alive(bool),
}

/// Is the open attempt of this job revoked in this batch?
pub(super) fn revoke_about(given: Given<'_>, entry: &Entry) -> bool {
    let Some(open) = &entry.open else { return false };
    given.commands.iter().any(|command| match command {
        Command::Lease(LeaseCommand::Message(message)) => {
            message.lease == open.fence.attempt_id
                && matches!(message.update, LeaseUpdate::Revoke(_))
                && message.tenant.as_ref().is_none_or(|tenant| *tenant == entry.row.spec.tenant)
        }
        _ => false,
    })
}

/// An attempt that is reserved opens as assigned, one that is claimed in the state that its claim requests.
pub(super) fn opens_as_asked(given: Given<'_>, open: &OpenAttempt) -> Checked {
    let starts = given.commands.iter().find_map(|command| match command {
        Command::Lease(LeaseCommand::Claim(claim)) => Some(claim.start),
        Command::Lease(LeaseCommand::Request(_)) => Some(true),
        _ => None,
    });
    let wanted = open.holder.is_some() && starts == Some(true);
    if (open.state == JobState::Running) == wanted {
        return Ok(());
    }
    Err(Violation::new("I9", format!("the attempt of job {} opens as {}", open.seq.0, open.state)))
}
