//! Ending jobs on request.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::ending::{AttemptEnding, JobEnding};
use crate::{
    AttemptEnd, Effects, JobId, JobState, Name, Notice, Now, Origin, Reason, Reply, Seq, ShutdownPolicy,
};

impl Engine {
    /// Ends a live job on request. An open attempt is asked to stop and holds its gates until it has.
    pub(in crate::engine) fn cancel(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        job: JobId,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(ix) = self.jobs.find(job) else { return Reply::NotFound };
        let was = self.jobs[ix].state;
        let owner = self.queue.owner_of(&self.jobs[ix]);
        if was.is_terminal() || tenant.is_some_and(|tenant| tenant != owner) {
            return Reply::NotFound;
        }
        let seq = Seq(self.jobs[ix].seq);
        self.cancel_job(now, ix, Reason::Requested, Some(origin), effects);
        Reply::Canceled { seq, was }
    }

    /// Ends a job. An open attempt is asked to stop and holds its gates until it has; a reserved one closes at once, because
    /// no worker has claimed it.
    pub(in crate::engine) fn cancel_job(
        &mut self,
        now: Now,
        job: Ix<Job>,
        reason: Reason,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        let closed: Option<AttemptEnding<'_>> =
            self.jobs.is_reserved(job).then_some(AttemptEnd::Canceled.into());
        if closed.is_none() && self.jobs[job].state.is_open() {
            self.ask_to_stop(now, job, AttemptEnd::Canceled, effects);
        }
        let ending = JobEnding { closed, origin, ..JobEnding::new(JobState::Canceled, reason) };
        self.end_job(now, job, ending, effects);
    }

    /// Asks the runner of an attempt to stop, and begins the stop grace.
    pub(in crate::engine) fn ask_to_stop(
        &mut self,
        now: Now,
        job: Ix<Job>,
        cause: AttemptEnd,
        effects: &mut Effects,
    ) {
        let until = now.mono + self.settings.stop_grace;
        self.jobs.open_mut(job).stop(cause, until);
        self.arm(job);
        self.send_stop(job, effects);
    }

    /// Sends the order to stop to the runner of an attempt.
    pub(in crate::engine) fn send_stop(&self, job: Ix<Job>, effects: &mut Effects) {
        let open = self.jobs.open(job);
        effects.notices.push(Notice::Stop {
            seq: Seq(self.jobs[job].seq),
            fence: self.jobs.fence_of(job),
            executor: self.queue.executor_name(open.executor).clone(),
            connection: self.workers.connection_of(open),
            dispatch_seq: self.workflows.dispatch_seq(&self.jobs, job),
        });
    }

    /// Rejects new jobs from now on, or admits them again.
    pub(in crate::engine) fn set_admission(
        &mut self,
        now: Now,
        open: bool,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        if self.server.set_admission(open) {
            let detail = if open { "drain ended: jobs are admitted" } else { "drain: new jobs are rejected" };
            self.numbers.server_event(
                now,
                crate::EventKind::CallDone,
                None,
                Some(origin),
                detail.into(),
                effects,
            );
        }
        Reply::Done
    }

    /// The server stops: it admits and starts nothing, and cancels waiting jobs of lanes with that shutdown policy.
    pub(in crate::engine) fn drain(&mut self, now: Now, effects: &mut Effects) -> Reply {
        if !self.server.begin_drain() {
            return Reply::Done;
        }
        self.numbers.server_event(
            now,
            crate::EventKind::DrainBegan,
            None,
            None,
            "the server stops".into(),
            effects,
        );
        let waiting: Vec<Ix<Job>> = self
            .jobs
            .iter()
            .filter(|(_, job)| !job.has_attempt())
            .filter(|(_, job)| self.queue.lane_of_job(job).settings().on_shutdown == ShutdownPolicy::Cancel)
            .map(|(ix, _)| ix)
            .collect();
        for job in waiting {
            self.end_job(now, job, JobEnding::new(JobState::Canceled, Reason::Shutdown), effects);
        }
        Reply::Done
    }
}
