//! The open attempt of a job.

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::job::Job;
use crate::engine::queue::Executor;
use crate::engine::workers::Worker;
use crate::{AttemptEnd, AttemptId, ExecutorMode, Mono, Now, OpenAttempt, Span, Wall};

/// An open attempt.
pub(in crate::engine) struct Open {
    pub(super) job: Ix<Job>,
    pub(super) attempt_id: AttemptId,
    pub(super) lease_epoch: u32,
    pub(super) executor: Ix<Executor>,
    pub(super) opened_at: Wall,
    pub(super) started_at: Option<Wall>,
    /// The longest lease that its runner knows of.
    pub(super) lease: Span,
    /// When its lease ends. `None`: it is attached and needs no lease.
    pub(super) lease_until: Option<Mono>,
    /// Until when it may run.
    pub(super) timeout_at: Option<Mono>,
    /// Why it was asked to stop, and when its stop grace ends.
    pub(super) stopping: Option<(AttemptEnd, Mono)>,
    /// True: a pull worker gets it, and the lease is found by its id.
    pub(super) pull: bool,
    /// The worker that claimed it or that it was pushed to.
    pub(super) worker: Option<Ix<Worker>>,
    /// For a push worker: it acknowledged the attempt over its current connection. Only then its heartbeats keep the attempt
    /// alive.
    pub(super) acked: bool,
    /// That worker's process.
    pub(super) pid: Option<u32>,
    /// How many attempts were opened up to it, since the start; 0 for one from before.
    pub(super) number: u64,
    /// Which attempt of its workflow run it is; outside of runs, of its job.
    pub(super) dispatch_seq: u64,
    /// When the call that it waits for times out.
    pub(super) next_until: Option<Mono>,
}

impl Open {
    /// An attempt from before a restart. Its lease and its timeout begin anew: no heartbeat could arrive meanwhile.
    pub(in crate::engine) fn resumed(job: Ix<Job>, row: &OpenAttempt, from: Resumed) -> Open {
        let Resumed { executor, worker, pull, now, lease, timeout } = from;
        Open {
            job,
            attempt_id: row.fence.attempt_id,
            lease_epoch: row.fence.lease_epoch,
            executor,
            opened_at: row.opened_at,
            started_at: row.started_at,
            lease: row.lease,
            lease_until: (row.mode == ExecutorMode::Leased).then(|| now + lease),
            timeout_at: row.started_at.map(|_| now + timeout),
            stopping: None,
            pull,
            worker,
            acked: row.started_at.is_some(),
            pid: row.holder.as_ref().and_then(|holder| holder.pid),
            number: 0,
            dispatch_seq: row.dispatch_seq,
            next_until: None,
        }
    }

    pub(in crate::engine) fn job(&self) -> Ix<Job> {
        self.job
    }

    pub(in crate::engine) fn attempt_id(&self) -> AttemptId {
        self.attempt_id
    }

    pub(in crate::engine) fn executor(&self) -> Ix<Executor> {
        self.executor
    }

    pub(in crate::engine) fn opened_at(&self) -> Wall {
        self.opened_at
    }

    pub(in crate::engine) fn started_at(&self) -> Option<Wall> {
        self.started_at
    }

    /// The longest lease that its runner knows of.
    pub(in crate::engine) fn lease(&self) -> Span {
        self.lease
    }

    /// When its lease ends. `None`: it is attached and needs no lease.
    pub(in crate::engine) fn lease_until(&self) -> Option<Mono> {
        self.lease_until
    }

    /// The rest of the timeout of an attempt that has started.
    pub(in crate::engine) fn time_left(&self, now: Mono) -> Option<Span> {
        self.timeout_at.map(|at| at.since(now).max(Span(1)))
    }

    pub(in crate::engine) fn timeout_at(&self) -> Option<Mono> {
        self.timeout_at
    }

    /// Why it was asked to stop, and when its stop grace ends.
    pub(in crate::engine) fn stopping(&self) -> Option<(AttemptEnd, Mono)> {
        self.stopping
    }

    /// True: a pull worker gets it, and the lease is found by its id.
    pub(in crate::engine) fn pull(&self) -> bool {
        self.pull
    }

    /// The worker that claimed it or that it was pushed to.
    pub(in crate::engine) fn worker(&self) -> Option<Ix<Worker>> {
        self.worker
    }

    pub(in crate::engine) fn acked(&self) -> bool {
        self.acked
    }

    /// The process of that worker.
    pub(in crate::engine) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// How many attempts were opened up to it, since the start; 0 for one from before.
    pub(in crate::engine) fn number(&self) -> u64 {
        self.number
    }

    /// Which attempt of its workflow run it is; outside of runs, of its job.
    pub(in crate::engine) fn dispatch_seq(&self) -> u64 {
        self.dispatch_seq
    }

    /// True for an attempt that was pushed to a worker.
    pub(in crate::engine) fn is_pushed(&self) -> bool {
        self.pushed_to().is_some()
    }

    /// The worker that it was pushed to.
    pub(in crate::engine) fn pushed_to(&self) -> Option<Ix<Worker>> {
        self.worker.filter(|_| !self.pull)
    }

    /// True while it is reserved and no worker has claimed it.
    pub(in crate::engine) fn is_reserved(&self) -> bool {
        self.worker.is_none() && self.pull && self.started_at.is_none()
    }

    /// Whether it has a lease. Fixed when it opened: an executor may change its mode while its attempts go on.
    pub(in crate::engine) fn mode(&self) -> ExecutorMode {
        if self.lease_until.is_some() { ExecutorMode::Leased } else { ExecutorMode::Attached }
    }

    /// It runs from now on: its lease and its timeout begin.
    pub(in crate::engine) fn start(&mut self, now: Now, timeout: Span, lease: Span) {
        self.started_at = Some(now.wall);
        self.acked = true;
        // An attempt that was asked to stop before it began has its grace, and no timeout beside it.
        self.timeout_at = self.stopping.is_none().then_some(now.mono + timeout);
        self.lease = self.lease.max(lease);
        self.lease_until = Some(now.mono + lease);
    }

    /// Its worker acknowledged it.
    pub(in crate::engine) fn acknowledge(&mut self) {
        self.acked = true;
    }

    /// It must stop, and has until then to do so.
    pub(in crate::engine) fn stop(&mut self, cause: AttemptEnd, until: Mono) {
        self.stopping = Some((cause, until));
        self.timeout_at = None;
    }

    /// Its runner knows of a longer lease from now on. False: of a shorter one, which changes nothing.
    pub(in crate::engine) fn lengthen_lease(&mut self, lease: Span) -> bool {
        let longer = self.lease < lease;
        self.lease = self.lease.max(lease);
        longer
    }

    /// Its lease lasts until then, or longer where it did. An attached attempt has none.
    pub(in crate::engine) fn renew_lease(&mut self, until: Mono) {
        if let Some(old) = &mut self.lease_until {
            *old = (*old).max(until);
        }
    }

    /// Its lease lasts until then, whatever it was.
    pub(in crate::engine) fn set_lease_until(&mut self, until: Option<Mono>) {
        self.lease_until = until;
    }

    /// A worker claims it.
    pub(in crate::engine) fn claim(&mut self, worker: Ix<Worker>, pid: Option<u32>, lease_until: Mono) {
        self.worker = Some(worker);
        self.pid = pid;
        self.lease_until = self.lease_until.max(Some(lease_until));
    }

    /// Its worker has another connection from now on. Reports of the old one are late: the lease has the next epoch.
    pub(in crate::engine) fn rebind(&mut self, now: Mono, lease: Span, ack_timeout: Span, stop_grace: Span) {
        // The runner goes by the lease that it gets now, so the attempt lives as long even without an answer.
        let answer = if self.started_at.is_some() { lease } else { ack_timeout };
        self.lease_epoch += 1;
        self.acked = false;
        self.lease = self.lease.max(lease);
        self.lease_until = self.lease_until.max(Some(now + answer));
        if let Some((_, until)) = &mut self.stopping {
            // The worker hears of the stop only now.
            *until = (*until).max(now + stop_grace);
        }
    }

    /// Its worker runs it in this process. False: that is known.
    pub(in crate::engine) fn note_pid(&mut self, pid: u32) -> bool {
        self.pid.replace(pid) != Some(pid)
    }

    pub(in crate::engine) fn set_dispatch_seq(&mut self, dispatch_seq: u64) {
        self.dispatch_seq = dispatch_seq;
    }

    /// It waits for the answer to a call until then, or for none.
    pub(in crate::engine) fn await_call(&mut self, until: Option<Mono>) {
        self.next_until = until;
    }
}

/// What an attempt from before a restart finds after it.
pub(in crate::engine) struct Resumed {
    pub(in crate::engine) executor: Ix<Executor>,
    pub(in crate::engine) worker: Option<Ix<Worker>>,
    pub(in crate::engine) pull: bool,
    pub(in crate::engine) now: Mono,
    pub(in crate::engine) lease: Span,
    pub(in crate::engine) timeout: Span,
}
