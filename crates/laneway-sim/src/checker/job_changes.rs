//! Calls that change waiting jobs and delete ended ones: J1 (only what waits is changed, and only as a call asks), J2 (only what
//! has ended and is not needed is deleted, and nothing of it is left).

use laneway_core::{
    Change, Command, DeliveryState, JobId, JobPatch, JobState, JobStatus, Name, RejectionCode, Reply, Seq,
    Wall,
};

use super::published::Expected;
use super::{Checker, Given};
use crate::clock::Moment;
use crate::ledger::Entry;
use crate::violation::{Checked, Violation, hold};

/// The answer that a change or a deletion of one job must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is done.
    Done,
    /// The caller sees no such job.
    NotFound,
    /// It is rejected with this code.
    Rejected(RejectionCode),
    /// Retention may have deleted the job, or a part of the answer is not compared.
    Open,
}

/// The changes of the batch that is being followed.
#[derive(Debug, Default)]
pub(super) struct JobChanges {
    /// The job that was changed last and its new time, until its status follows.
    revised: Option<(Seq, Option<Wall>)>,
    /// Every job that was changed.
    revisions: Vec<Seq>,
}

impl JobChanges {
    /// True for the job whose status follows.
    pub(super) fn awaits(&self, seq: Seq) -> bool {
        self.revised.is_some_and(|(of, _)| of == seq)
    }
}

impl Checker {
    /// What a change of a job must be answered.
    pub(super) fn expect_update(
        &self,
        tenant: Option<&Name>,
        job: JobId,
        patch: JobPatch,
        moment: Moment,
    ) -> Wanted {
        let live = self.seen(tenant, job).filter(|entry| entry.end.is_none());
        let Some(entry) = live else { return Wanted::NotFound };
        if entry.open.is_some() {
            return Wanted::Rejected(RejectionCode::NotWaiting);
        }
        let Some(at) = patch.start.map(|start| start.time(moment.now.wall)) else { return Wanted::Done };
        if entry.is_called() {
            return Wanted::Rejected(RejectionCode::Invalid);
        }
        match entry.row.spec.deadline {
            Some(deadline) if at >= deadline => Wanted::Rejected(RejectionCode::DeadlinePast),
            _ => Wanted::Done,
        }
    }

    /// What a deletion of a job must be answered.
    pub(super) fn expect_delete(&self, tenant: Option<&Name>, job: JobId) -> Wanted {
        let Some(entry) = self.seen(tenant, job).filter(|entry| !entry.deleted) else {
            return Wanted::NotFound;
        };
        match self.needs(entry) {
            _ if entry.purgeable => Wanted::Open,
            Some(code) => Wanted::Rejected(code),
            None => Wanted::Done,
        }
    }

    pub(super) fn seen(&self, tenant: Option<&Name>, job: JobId) -> Option<&Entry> {
        let entry = self.ledger.find(job)?;
        tenant.is_none_or(|tenant| *tenant == entry.row.spec.tenant).then_some(entry)
    }

    /// Why a job cannot be deleted.
    fn needs(&self, entry: &Entry) -> Option<RejectionCode> {
        let Some(end) = entry.end.as_ref().filter(|_| entry.open.is_none()) else {
            return Some(RejectionCode::NotEnded);
        };
        let leader = end.merged_into.and_then(|into| self.ledger.jobs.get(&into.seq));
        let delivery = self.ledger.deliveries.get(&entry.row.seq);
        let needed = entry.row.spec.member.is_some()
            || leader.is_some_and(|leader| leader.end.is_none())
            || self.ledger.kept_keys.contains_key(&entry.row.id)
            || delivery.is_some_and(|row| row.state == DeliveryState::Waiting);
        needed.then_some(RejectionCode::InUse)
    }

    /// A change or a deletion was answered.
    pub(super) fn job_change_answered(
        &self,
        command: &Command,
        reply: &Reply,
        expected: &Expected,
    ) -> Checked {
        let wanted = if let Expected::JobChange(wanted) = expected { *wanted } else { Wanted::Open };
        let same = match (wanted, reply) {
            (Wanted::Done, Reply::Updated { .. } | Reply::Deleted { .. }) => true,
            (Wanted::NotFound, Reply::NotFound) => true,
            (Wanted::Rejected(code), Reply::Rejected(rejection)) => rejection.code == code,
            (Wanted::Open, Reply::Updated { .. } | Reply::Deleted { .. }) => true,
            (Wanted::Open, Reply::NotFound | Reply::Rejected(_)) => true,
            _ => false,
        };
        let rule = if matches!(command, Command::Update { .. }) { "J1" } else { "J2" };
        hold(rule, same, || format!("{command:?} is answered with {reply:?} and not with {wanted:?}"))?;
        match (command, reply) {
            (Command::Update { tenant, job, patch, .. }, Reply::Updated { seq, .. }) => {
                let entry = self.seen(tenant.as_ref(), *job).filter(|entry| entry.row.seq == *seq);
                // Only the first command of a batch is compared: a later one may have changed the job again.
                let times = self.job_changes.revisions.iter().filter(|of| *of == seq).count();
                let alone = wanted == Wanted::Done && times < 2;
                let stored = |entry: &Entry| patch.priority.is_none_or(|to| to == entry.row.spec.priority);
                hold("J1", entry.is_some_and(|entry| !alone || stored(entry)), || {
                    format!("job {} is reported as changed and is not", seq.0)
                })
            }
            (Command::Delete { tenant, job, .. }, Reply::Deleted { seq }) => {
                let entry = self.seen(tenant.as_ref(), *job);
                hold("J2", entry.is_some_and(|entry| entry.row.seq == *seq && entry.deleted), || {
                    format!("job {} is reported as deleted and is not", seq.0)
                })
            }
            _ => Ok(()),
        }
    }

    /// A job is changed as a call asks, and keeps its position where only its priority changes.
    pub(super) fn may_be_revised(&mut self, given: Given<'_>, change: &Change) -> Checked {
        let Change::JobRevised { seq, priority, rank_time, not_before } = change else { return Ok(()) };
        let Some(entry) = self.ledger.jobs.get(seq) else {
            return Err(Violation::new("J1", format!("job {} is changed and is not live", seq.0)));
        };
        let now = given.moment.now.wall;
        let spec = &entry.row.spec;
        let asks = |patch: &JobPatch| {
            let start = patch.start.map(|start| start.time(now));
            (patch.priority == Some(*priority) || *priority == spec.priority)
                && (not_before.is_none() || *not_before == start)
        };
        let asked = given.commands.iter().any(|command| match command {
            Command::Update { tenant, job, patch, .. } => {
                *job == entry.row.id
                    && tenant.as_ref().is_none_or(|tenant| *tenant == spec.tenant)
                    && asks(patch)
            }
            _ => false,
        });
        hold("J1", asked, || format!("job {} is changed as no call asks: {change:?}", seq.0))?;
        let rank_now = self.rank_now(given.moment);
        let wanted = match not_before.filter(|_| !entry.waits_upstream()) {
            None => entry.rank_time,
            Some(at) if at > now => rank_now + at.since(now).0,
            Some(_) => entry.rank_time.min(rank_now),
        };
        hold("I24b", *rank_time == wanted, || {
            format!("job {} gets the rank time {rank_time}, not {wanted}", seq.0)
        })?;
        self.job_changes.revised = Some((*seq, *not_before));
        self.job_changes.revisions.push(*seq);
        Ok(())
    }

    /// The status of a changed job: it waits for its new time, is queued, or waits as before.
    pub(super) fn follow_revised(&mut self, given: Given<'_>, seq: Seq, status: &JobStatus) -> Checked {
        let start = self.job_changes.revised.take().and_then(|(_, start)| start);
        let Some(entry) = self.ledger.jobs.get(&seq) else { return Ok(()) };
        let (now, was) = (given.moment.now.wall, entry.state);
        let fits = match start {
            None => status.state == was && status.wake_at.is_some() == entry.wake_at().is_some(),
            Some(_) if entry.waits_upstream() => *status == keeps(entry, status),
            Some(at) if at > now => (status.state, status.wake_at) == (JobState::Scheduled, Some(at)),
            Some(_) => status.state == JobState::Queued,
        };
        let same =
            *status == JobStatus { state: status.state, wake_at: status.wake_at, ..keeps(entry, status) };
        hold("J1", fits && same, || {
            format!("job {} is to start at {start:?}, and waits as {status:?}", seq.0)
        })?;
        let waits_upstream = entry.waits_upstream();
        let first = entry.attempts == 0;
        self.ledger.change(&Change::JobMoved { seq, status: status.clone() })?;
        if start.is_none() || waits_upstream {
            return Ok(());
        }
        self.session_job_queued(seq);
        let watch = self.watches.entry(seq).or_default();
        (watch.not_before, watch.due) = (0, None);
        if status.state == JobState::Scheduled {
            self.reference.forget_bypassed(seq);
            if let Some(entry) = self.ledger.jobs.get_mut(&seq) {
                entry.queue_until = None;
            }
        } else if first {
            watch.since = given.moment.at;
            self.begin_queue_timeout(seq, given.moment.at);
        }
        Ok(())
    }

    /// A job that was tried before and that a call gave another time is queued: it ranks by that time.
    pub(super) fn time_has_come(&mut self, seq: Seq, status: &JobStatus, moment: Moment) {
        let rank_now = self.rank_now(moment);
        let Some(entry) = self.ledger.jobs.get_mut(&seq) else { return };
        if entry.waits_for_its_time() && status.state == JobState::Queued {
            entry.rank_time = entry.rank_time.min(rank_now);
        }
    }

    /// A job is deleted as a call asks, when nothing needs it.
    pub(super) fn may_be_deleted(&self, given: Given<'_>, seq: Seq) -> Checked {
        let entry = self.ledger.ended.get(&seq).or_else(|| self.ledger.jobs.get(&seq));
        let Some(entry) = entry else {
            return Err(Violation::new("J2", format!("job {} is deleted and never was", seq.0)));
        };
        let asked = given.commands.iter().any(|command| match command {
            Command::Delete { tenant, job, .. } => {
                let theirs = tenant.as_ref().is_some_and(|tenant| *tenant != entry.row.spec.tenant);
                *job == entry.row.id && !theirs
            }
            _ => false,
        });
        hold("J2", asked, || format!("job {} is deleted as no call asks", seq.0))?;
        let needed = self.needs(entry);
        hold("J2", needed.is_none(), || format!("job {} is deleted and is needed: {needed:?}", seq.0))
    }
}

/// The status of a job that a call changes, apart from its state and its event.
fn keeps(entry: &Entry, status: &JobStatus) -> JobStatus {
    JobStatus {
        last_event: status.last_event,
        denials: status.denials,
        denied_until: status.denied_until,
        ..entry.row.status.clone()
    }
}
