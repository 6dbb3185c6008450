//! Deleting ended jobs on request. Ended jobs are not in memory, so the loop gives the stored job with the command.
//!
//! A job stays while something that has not ended needs it: its run, the job that it was merged into, keys that it keeps,
//! or its webhook.

use crate::engine::Engine;
use crate::engine::jobs::submit::reject;
use crate::event::JobLine;
use crate::{
    Change, Effects, Event, EventKind, JobId, Name, Now, Origin, Rejection, RejectionCode, Reply, StoredJob,
};

impl Engine {
    /// Deletes an ended job with everything that is stored of it.
    pub(in crate::engine) fn delete_job(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        (job, stored): (JobId, Option<StoredJob>),
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let stored = stored.filter(|stored| tenant.is_none_or(|tenant| *tenant == stored.tenant));
        let Some(stored) = stored.filter(|_| !self.jobs.is_being_deleted(job)) else {
            return Reply::NotFound;
        };
        if let Err(rejection) = self.may_delete(&stored) {
            return Reply::Rejected(rejection);
        }
        self.jobs.fresh_deleted.insert(self.numbers.batch(), job, ());
        let StoredJob { seq, id, tenant, kind, lane, agent, attempts, last_event, .. } = stored;
        let line = JobLine {
            seq,
            id,
            kind,
            lane,
            agent,
            attempt: attempts,
            reason: None,
            previous: last_event,
            error: None,
        };
        effects.events.push(Event {
            number: self.numbers.next_event(),
            at: now.wall,
            kind: EventKind::JobDeleted,
            tenant: Some(tenant),
            job: Some(line),
            actor: Some(origin.actor.clone()),
            request: origin.request.clone(),
            detail: None,
        });
        effects.changes.push(Change::JobDeleted(seq));
        Reply::Deleted { seq }
    }

    /// Has the job ended, and does nothing need it?
    fn may_delete(&self, stored: &StoredJob) -> Result<(), Rejection> {
        let not_ended = |message: String| Err(reject(RejectionCode::NotEnded, message));
        if let Some(live) = self.jobs.find(stored.id).map(|ix| &self.jobs[ix]) {
            return not_ended(match live.state.is_terminal() {
                true => "job: its last attempt has not ended yet; delete the job when it has".into(),
                false => format!("job: is {}; cancel it first", live.state),
            });
        }
        if !stored.ended {
            return not_ended("job: its end is not stored yet; try again".into());
        }
        let in_use = |message: String| Err(reject(RejectionCode::InUse, message));
        if let Some(run) = stored.run {
            return in_use(format!("job: is a node of {run}; it is deleted together with the run"));
        }
        if let Some(into) = stored.merged_into
            && self.jobs.find(into.job).is_some_and(|leader| !self.jobs[leader].state.is_terminal())
        {
            let leader = into.job;
            return in_use(format!(
                "job: was merged into {leader}, which has not ended; delete it after that"
            ));
        }
        if self.keepers.keeps(stored.id) {
            return in_use("job: keeps keys; release them first".into());
        }
        if self.webhooks.waits(stored.seq) {
            return in_use("job: its webhook is not delivered yet; delete the job after that".into());
        }
        Ok(())
    }
}
