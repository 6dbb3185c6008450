//! Ending jobs on request.

use super::Engine;
use super::slab::{Ix, NONE};
use crate::{
    AttemptEnd, Effects, JobId, JobState, Name, Notice, Now, Origin, Reason, Reply, Seq, ShutdownPolicy,
};

impl Engine {
    /// Ends a live job. A run that is under way is told to stop and holds its gates until it has.
    pub(super) fn cancel(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        job: JobId,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(ix) = self.find_job(job) else { return Reply::NotFound };
        let was = self.jobs[ix].state;
        let owner = self.tenants.key(self.classes[self.jobs[ix].class].tenant);
        #[cfg(feature = "zoo")]
        let tenant = tenant.filter(|_| !crate::zoo::is_out(crate::zoo::Bug::TenantMissingInWhere));
        if was.is_terminal() || tenant.is_some_and(|tenant| tenant != owner) {
            return Reply::NotFound;
        }
        let seq = Seq(self.jobs[ix].seq);
        self.cancel_job(now, ix, Reason::Requested, Some(origin), effects);
        Reply::Canceled { seq, was }
    }

    /// Ends a job. A run that is under way is told to stop and holds its gates until it has; a job that is only set aside has
    /// nobody who must be waited for.
    pub(super) fn cancel_job(
        &mut self,
        now: Now,
        job: Ix,
        reason: Reason,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        let closed = self.is_aside(job).then_some((AttemptEnd::Canceled, None));
        if closed.is_none() && self.jobs[job].state.is_open() {
            self.ask_to_stop(now, job, AttemptEnd::Canceled, effects);
            #[cfg(feature = "zoo")]
            if crate::zoo::is_out(crate::zoo::Bug::CounterDoubleRelease) {
                self.free_gates(job);
            }
        }
        self.end_job(now, job, JobState::Canceled, reason, closed, None, origin, effects);
    }

    /// Tells a run to stop and gives it the grace to do so.
    pub(super) fn ask_to_stop(&mut self, now: Now, job: Ix, cause: AttemptEnd, effects: &mut Effects) {
        let until = now.mono + self.settings.stop_grace;
        let open = &mut self.attempts[self.jobs[job].open];
        open.stopping = Some((cause, until));
        open.timeout_at = None;
        self.arm(job);
        self.tell_stop(job, effects);
    }

    /// Tells the runner of an attempt to stop.
    pub(super) fn tell_stop(&self, job: Ix, effects: &mut Effects) {
        let open = &self.attempts[self.jobs[job].open];
        effects.notices.push(Notice::Stop {
            seq: Seq(self.jobs[job].seq),
            fence: self.fence_of(job),
            place: self.places.key(open.place).clone(),
            connection: self.connection_of(open),
            dispatch_seq: self.dispatch_seq(job),
        });
    }

    /// The server stops: admit and start nothing; cancel what waits in lanes that say so.
    pub(super) fn drain(&mut self, now: Now, effects: &mut Effects) -> Reply {
        if self.draining {
            return Reply::Done;
        }
        self.draining = true;
        self.house_event(now, crate::EventKind::DrainBegan, None, None, "the server stops".into(), effects);
        let waiting: Vec<Ix> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.open == NONE)
            .filter(|(_, job)| {
                let lane = &self.lanes[self.nodes[job.node].lane as usize];
                lane.settings.on_shutdown == ShutdownPolicy::Cancel
            })
            .map(|(ix, _)| ix)
            .collect();
        for job in waiting {
            self.end_job(now, job, JobState::Canceled, Reason::Shutdown, None, None, None, effects);
        }
        Reply::Done
    }
}
