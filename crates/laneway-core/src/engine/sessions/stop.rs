//! Stopping sessions: one job of a session, all its jobs, or the running jobs of all sessions.

use crate::command::{SessionStopped, StopWhat};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::ending::JobEnding;
use crate::{AttemptEnd, Effects, EventKind, ExecutorMode, JobState, Name, Now, Origin, Reason, Reply};

impl Engine {
    /// Ends jobs of a session, and lists them.
    pub(in crate::engine) fn stop_session(
        &mut self,
        now: Now,
        tenant: &Name,
        key: &Name,
        what: StopWhat,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let mut stopped = match what {
            StopWhat::One => self.stop_one(now, tenant, key, origin, effects),
            StopWhat::All | StopWhat::Reset => {
                let session = self.session_with_state(now, tenant, key);
                let reset = what == StopWhat::Reset;
                let reason = if reset { Reason::Cleared } else { Reason::Stopped };
                let (running, waiting) = self.end_session_jobs(now, session, reason, origin, effects);
                // Also for a session without jobs: a job that is still on its way was sent before the stop.
                self.sessions.change_state(now, session, &self.queue, effects, |state| {
                    state.cutoff = Some(now.wall);
                    state.generation += u64::from(reset);
                });
                let mut stopped = stopped(running, waiting);
                stopped.generation = self.sessions.generation_of(session);
                self.sessions.trim(&mut self.queue, effects);
                stopped
            }
        };
        let verb = match what {
            StopWhat::One => "stop",
            StopWhat::All => "stopall",
            StopWhat::Reset => "reset",
        };
        let detail =
            format!("{verb} session {key}: {} ran, {} waited", stopped.running_count, stopped.waiting_count);
        self.numbers.server_event(
            now,
            EventKind::CallDone,
            Some(tenant.clone()),
            Some(origin),
            detail.into(),
            effects,
        );
        stopped.running.truncate(SessionStopped::LISTED_MAX);
        stopped.waiting.truncate(SessionStopped::LISTED_MAX);
        Reply::SessionStopped(stopped)
    }

    /// Ends the job that has run longest, or the one that waits first when none runs.
    fn stop_one(
        &mut self,
        now: Now,
        tenant: &Name,
        key: &Name,
        origin: &Origin,
        effects: &mut Effects,
    ) -> SessionStopped {
        let Some(session) = self.find_session(tenant, key) else { return SessionStopped::default() };
        let generation = self.sessions.generation_of(session);
        let running = self.sessions.running(&self.jobs, session).next();
        let first_waiting = || self.sessions.first_waiting(&self.queue, session);
        let waiting = if running.is_none() { first_waiting() } else { None };
        let ids = |job: Option<Ix<Job>>| job.iter().map(|&job| self.jobs[job].id()).collect();
        let stopped = stopped(ids(running), ids(waiting));
        if let Some(job) = running {
            self.cancel_job(now, job, Reason::Stopped, Some(origin), effects);
        }
        if let Some(job) = waiting {
            let ending = JobEnding::new(JobState::Canceled, Reason::Stopped);
            self.end_job(now, job, JobEnding { origin: Some(origin), ..ending }, effects);
        }
        SessionStopped { generation, ..stopped }
    }

    /// Resets every session that runs a job. Attempts of this process are asked to stop, and their jobs are queued again
    /// when they have: a late report has an old fence and changes nothing.
    pub(in crate::engine) fn reset_sessions(
        &mut self,
        now: Now,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let mut count = 0;
        for session in self.sessions.entries.handles() {
            let running: Vec<Ix<Job>> = self.sessions.running(&self.jobs, session).collect();
            if running.is_empty() {
                continue;
            }
            count += 1;
            let (tenant, key) = self.sessions.entries.key(session).clone();
            let tenant = self.queue.tenant_name(tenant).clone();
            let session = self.session_with_state(now, &tenant, &key);
            self.sessions.change_state(now, session, &self.queue, effects, |state| state.generation += 1);
            for job in running {
                let open = self.jobs.open(job);
                if open.mode() == ExecutorMode::Attached && open.stopping().is_none() {
                    self.ask_to_stop(now, job, AttemptEnd::HandedBack, effects);
                }
            }
        }
        let detail = format!("{count} sessions were reset");
        self.numbers.server_event(now, EventKind::CallDone, None, Some(origin), detail.into(), effects);
        Reply::Done
    }
}

fn stopped(running: Vec<crate::JobId>, waiting: Vec<crate::JobId>) -> SessionStopped {
    let count = |jobs: &[crate::JobId]| u32::try_from(jobs.len()).unwrap_or(u32::MAX);
    let (running_count, waiting_count) = (count(&running), count(&waiting));
    SessionStopped { running, waiting, running_count, waiting_count, generation: 0 }
}
