//! The open attempt of a job.

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::job::Job;
use crate::engine::queue::Executor;
use crate::engine::workers::pool::Worker;
use crate::{AttemptEnd, AttemptId, ExecutorMode, Mono, Span, Wall};

/// An open attempt.
pub(in crate::engine) struct Open {
    pub(in crate::engine) job: Ix<Job>,
    pub(in crate::engine) attempt_id: AttemptId,
    pub(in crate::engine) lease_epoch: u32,
    pub(in crate::engine) executor: Ix<Executor>,
    pub(in crate::engine) opened_at: Wall,
    pub(in crate::engine) started_at: Option<Wall>,
    /// The longest lease that its runner was told.
    pub(in crate::engine) lease: Span,
    /// Until when it must be heard of. `None`: it is attached and needs no lease.
    pub(in crate::engine) lease_until: Option<Mono>,
    /// Until when it may run.
    pub(in crate::engine) timeout_at: Option<Mono>,
    /// Why it was told to stop, and until when it may take to do so.
    pub(in crate::engine) stopping: Option<(AttemptEnd, Mono)>,
    /// True: workers ask for it, and somebody may find it by its id.
    pub(in crate::engine) pull: bool,
    /// The worker that asked for it or was told of it.
    pub(in crate::engine) worker: Option<Ix<Worker>>,
    /// For a worker that was told: it said that it took it, over the connection it has now. Only then its signs of life keep
    /// the attempt alive.
    pub(in crate::engine) acked: bool,
    /// That worker's process.
    pub(in crate::engine) pid: Option<u32>,
    /// How many attempts were opened up to it, since the start; 0 for one from before.
    pub(in crate::engine) number: u64,
    /// Which attempt of its run it is; outside of runs, of its job.
    pub(in crate::engine) dispatch_seq: u64,
    /// Until when the call that it waits for must be answered.
    pub(in crate::engine) next_until: Option<Mono>,
}

impl Open {
    /// True for an attempt that a worker was told of.
    pub(in crate::engine) fn is_pushed(&self) -> bool {
        self.pushed_to().is_some()
    }

    /// The worker that was told of it.
    pub(in crate::engine) fn pushed_to(&self) -> Option<Ix<Worker>> {
        self.worker.filter(|_| !self.pull)
    }

    /// How it lives and dies. Fixed when it opened: a place may change its mode while its attempts go on.
    pub(in crate::engine) fn mode(&self) -> ExecutorMode {
        if self.lease_until.is_some() { ExecutorMode::Leased } else { ExecutorMode::Attached }
    }
}
