//! Opening an attempt, and its stored form.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Open};
use crate::engine::leases::by_id::LEASES;
use crate::engine::leases::claim::Taker;
use crate::engine::workers::messages::WORKERS;
use crate::{ExecutorMode, JobState, Now, OpenAttempt, Span};

impl Engine {
    /// The lease that the runner of an attempt gets, and how long it may be silent at first.
    fn first_lease(&self, job: Ix<Job>, pull: bool, taker: Option<&Taker<'_>>) -> (Span, Span) {
        let lease = self.lease_of(job);
        let lane = self.queue.agent_queue(self.jobs[job].agent_queue).lane();
        let until = match (pull, taker) {
            (false, _) => self.settings.ack_timeout,
            (true, Some(_)) => lease,
            (true, None) => self.queue.lane(lane).settings().pull.reservation_timeout,
        };
        (lease, until)
    }

    /// Makes the attempt itself; true when it runs from now on.
    pub(in crate::engine) fn make_attempt(
        &mut self,
        now: Now,
        job: Ix<Job>,
        pull: bool,
        taker: Option<&Taker<'_>>,
    ) -> bool {
        let class = self.queue.class(self.jobs[job].class);
        let (tenant, kind) = (class.tenant(), class.own_kind());
        let push_worker = if pull { None } else { self.picked_worker(job) };
        let executor = match push_worker {
            _ if pull => self.server_executor(LEASES),
            Some(_) => self.server_executor(WORKERS),
            None => self.queue.kind(kind).executor().expect("a kind that starts has an executor"),
        };
        let leased = self.queue.mode_and_slots(executor).0 == ExecutorMode::Leased;
        let (lease, until) = match push_worker {
            Some(worker) => (self.workers.lease_at(worker, self.settings.lease), self.settings.ack_timeout),
            None if leased => self.first_lease(job, pull, taker),
            None => Default::default(),
        };
        let running = !leased || taker.is_some_and(|taker| taker.start);
        let worker = match (push_worker, taker) {
            (Some(worker), _) => {
                self.workers.hold_again(worker);
                Some(worker)
            }
            (None, Some(taker)) => Some(self.workers.hold(tenant, &taker.holder.worker)),
            (None, None) => None,
        };
        let entry = &mut self.jobs[job];
        entry.attempts += 1;
        entry.end_queue_timeout();
        let open = Open {
            job,
            attempt_id: self.numbers.attempt_id(),
            lease_epoch: 1,
            executor,
            opened_at: now.wall,
            started_at: running.then_some(now.wall),
            lease,
            lease_until: leased.then(|| now.mono + until),
            timeout_at: running.then(|| now.mono + entry.timeout()),
            stopping: None,
            pull,
            worker,
            acked: false,
            pid: taker.and_then(|taker| taker.holder.pid),
            number: self.queue.starts(),
            dispatch_seq: entry.attempts.into(),
            next_until: None,
        };
        self.jobs.set_open(open);
        running
    }

    /// The stored form of a job's open attempt.
    pub(in crate::engine) fn open_row(&self, job: Ix<Job>) -> OpenAttempt {
        let entry = &self.jobs[job];
        let open = self.jobs.open(job);
        OpenAttempt {
            seq: crate::Seq(entry.seq),
            fence: self.jobs.fence_of(job),
            executor: self.queue.executor_name(open.executor).clone(),
            mode: open.mode(),
            state: if open.started_at.is_some() { JobState::Running } else { JobState::Assigned },
            opened_at: open.opened_at,
            started_at: open.started_at,
            lease: open.lease,
            last_event: entry.last_event,
            holder: self.workers.holder_of(open),
            dispatch_seq: open.dispatch_seq,
        }
    }
}
