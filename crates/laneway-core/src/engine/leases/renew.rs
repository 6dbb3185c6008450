//! Messages of a runner about its attempt: it started, it still runs, it wrote log lines.

use crate::command::LogLine;
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::record::JobEvent;
use crate::worker::DispatchLine;
use crate::{Change, Effects, EventKind, ExecutorMode, Fence, JobState, Now, Reply, Seq};

impl Engine {
    /// A runner started its attempt.
    pub(in crate::engine) fn start(&mut self, now: Now, fence: &Fence, effects: &mut Effects) -> Reply {
        let Some(job) = self.jobs.fenced(fence) else { return Reply::Stale };
        if self.jobs[job].state() == JobState::Assigned {
            self.mark_running(now, job, effects);
        }
        self.renew(now, job, effects)
    }

    /// A heartbeat of one attempt.
    pub(in crate::engine) fn heartbeat(&mut self, now: Now, fence: &Fence, effects: &mut Effects) -> Reply {
        match self.jobs.fenced(fence) {
            Some(job) => self.renew(now, job, effects),
            None => Reply::Stale,
        }
    }

    /// An attempt wrote log lines.
    pub(in crate::engine) fn log(
        &mut self,
        fence: &Fence,
        lines: Vec<LogLine>,
        effects: &mut Effects,
    ) -> Reply {
        let Some(job) = self.jobs.fenced(fence) else { return Reply::Stale };
        let entry = &self.jobs[job];
        effects.changes.push(Change::LogAppended { seq: Seq(entry.seq()), attempt: entry.attempts(), lines });
        Reply::Done
    }

    /// From assigned to running: the lease and the timeout begin.
    pub(in crate::engine) fn mark_running(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        self.set_state(job, JobState::Running);
        let (timeout, lease) = (self.jobs[job].timeout(), self.lease_of(job));
        let open = self.jobs.open_mut(job);
        open.start(now, timeout, lease);
        if open.pull() {
            // A runner that knows its fence has claimed it.
            let number = open.number();
            self.queue.unreserve(job, &self.jobs[job], number);
        }
        self.arm(job);
        let detail = self.dispatch_line(job, DispatchLine::TAKEN);
        let event = JobEvent::new(EventKind::JobStarted, None);
        self.job_event(now, job, JobEvent { detail, ..event }, effects);
        effects.changes.push(Change::AttemptStarted(self.open_row(job)));
    }

    /// Extends the lease. Timers are left as they are: one that fires too early checks again. A lease is never shortened: the
    /// answer may get lost, and the runner would go by the longer one.
    pub(in crate::engine) fn renew(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) -> Reply {
        let state = self.jobs[job].state();
        let (lease, deadline) = (self.lease_of(job), self.jobs[job].deadline());
        let open = self.jobs.open_mut(job);
        // Its time may be over although no timer has fired yet: a runner that starts only now must stop.
        let late = open.timeout_at().is_some_and(|at| at <= now.mono) || deadline.is_due(now.wall);
        let stop = state.is_terminal() || open.stopping().is_some() || late;
        if open.mode() == ExecutorMode::Leased && state != JobState::Assigned {
            open.renew_lease(now.mono + lease);
            if open.started_at().is_some() && open.lengthen_lease(lease) {
                // A restart must know that the runner has a longer one.
                effects.changes.push(Change::LeaseExtended(self.open_row(job)));
            }
        }
        Reply::Alive { lease, stop }
    }
}
