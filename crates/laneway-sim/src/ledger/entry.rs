//! What the changes tell of one job, and what calls change of it.

use laneway_core::{Event, JobState, Seq, Wall};

use super::{Entry, Ledger};
use crate::violation::{Checked, hold};

impl Entry {
    /// True while the job waits for a time or in the queue.
    pub fn is_waiting(&self) -> bool {
        self.end.is_none() && self.open.is_none()
    }

    /// True for a job that waits for the time that a call or its submit gave it.
    pub fn waits_for_its_time(&self) -> bool {
        let wake_at = self.wake_at();
        self.state == JobState::Scheduled && wake_at.is_some() && wake_at == self.row.spec.not_before
    }

    /// True for a job whose not-before time has not come.
    pub fn is_never_due(&self) -> bool {
        let by_wall = self.row.spec.not_before.is_some_and(|at| at > self.row.created_at);
        let released = self.row.spec.member.is_some() && self.wake_at().is_some();
        self.waits_for_its_time()
            || (self.state == JobState::Scheduled && self.attempts == 0 && (by_wall || released))
    }

    /// True for a member that waits for other nodes of its run.
    pub fn waits_upstream(&self) -> bool {
        let waits = self.state == JobState::Scheduled && self.wake_at().is_none();
        waits && self.row.spec.member.is_some() && !self.is_called()
    }

    /// True for a job that waits for others of its session to join it.
    pub fn collects(&self) -> bool {
        // A clock that was set back makes the time of a rescheduled job earlier than its submit.
        let by_wall =
            self.row.spec.not_before.is_some_and(|at| at > self.row.created_at) || self.waits_for_its_time();
        let member = self.row.spec.member.is_some();
        self.state == JobState::Scheduled && self.attempts == 0 && !by_wall && !member
    }
}

impl Ledger {
    /// A call changed the priority or the time of a waiting job. Its status follows.
    pub(super) fn revise(
        &mut self,
        seq: Seq,
        priority: i32,
        rank_time: u64,
        not_before: Option<Wall>,
    ) -> Checked {
        let entry = self.entry(seq)?;
        hold("J1", entry.is_waiting(), || format!("job {} is changed while it is {}", seq.0, entry.state))?;
        (entry.row.spec.priority, entry.row.rank_time) = (priority, rank_time);
        entry.row.spec.not_before = not_before.or(entry.row.spec.not_before);
        entry.rank_time = rank_time;
        self.revised = Some(seq);
        Ok(())
    }

    /// A call deleted an ended job.
    pub(super) fn delete(&mut self, seq: Seq) -> Checked {
        let ended = self.ended.get_mut(&seq).filter(|entry| !entry.deleted);
        hold("J2", ended.is_some(), || format!("job {} is deleted, and is live or not there", seq.0))?;
        if let Some(entry) = ended {
            (entry.deleted, entry.purgeable) = (true, true);
        }
        self.deliveries.remove(&seq);
        Ok(())
    }

    /// The event of a deletion is the last one of its job.
    pub(super) fn deletion_event(&self, event: &Event, seq: Seq) -> Checked {
        let entry = self.ended.get(&seq).filter(|entry| entry.deleted);
        let fits = entry.is_some_and(|entry| {
            let line = event.job.as_ref();
            let follows = |previous: u64| entry.events.contains(&previous);
            line.is_some_and(|line| line.id == entry.row.id && follows(line.previous))
                && event.tenant.as_ref() == Some(&entry.row.spec.tenant)
        });
        hold("J2", fits, || format!("event {} says that job {} is deleted", event.number, seq.0))
    }
}
