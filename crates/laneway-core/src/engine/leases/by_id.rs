//! Messages about a lease, by its id alone: it is alive, it has ended, it is revoked.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::{AttemptEnding, JobEnding};
use crate::engine::jobs::record::JobEvent;
use crate::engine::jobs::{Job, Wake};
use crate::engine::leases::claim::Taker;
use crate::engine::queue::Executor;
use crate::lease::{Holder, LeaseMessage, LeaseUpdate, LostPolicy, PullSettings};
use crate::{
    AttemptEnd, Change, Effects, EventKind, ExecutorMode, ExecutorOffer, Failure, JobState, Name, Now,
    Reason, Reply, Seq, Span,
};

/// The executor of all attempts of pull workers. No other executor may have this name.
pub(in crate::engine) const LEASES: &str = "leases";
/// How long a job that no worker claimed waits before it is reserved again, the first time.
const REJECTED: Span = Span::secs(5);
/// The longest such wait: each one is twice as long as the one before.
pub(in crate::engine) const REJECTED_MAX: Span = Span::mins(5);

impl Engine {
    /// A message about a lease, by its id alone.
    pub(in crate::engine) fn lease_message(
        &mut self,
        now: Now,
        message: LeaseMessage,
        effects: &mut Effects,
    ) -> Reply {
        let LeaseMessage { lease, tenant, worker, pid, update } = message;
        let Some(job) = self.leases.find(lease) else { return Reply::NotFound };
        let owner = self.queue.owner_of(&self.jobs[job]);
        if tenant.is_some_and(|tenant| tenant != *owner) {
            return Reply::NotFound;
        }
        let holder = self.workers.holder_of(self.jobs.open(job));
        if let Some(worker) = worker {
            match holder {
                Some(holder) if holder.worker != worker => return Reply::NotYours,
                Some(_) => {
                    if pid.is_some_and(|pid| self.jobs.open_mut(job).note_pid(pid)) {
                        effects.changes.push(Change::HolderChanged(self.open_row(job)));
                    }
                }
                // A worker that knows the id of a reserved job takes it with its first sign of life.
                None if update == LeaseUpdate::Alive && !self.jobs[job].state().is_terminal() => {
                    let holder = Holder { worker, pid, boot: None };
                    self.bind(now, job, &Taker { holder: &holder, start: true }, effects);
                }
                None => return Reply::NotYours,
            }
        }
        let fence = self.jobs.fence_of(job);
        match update {
            LeaseUpdate::Alive => self.start(now, &fence, effects),
            LeaseUpdate::Report => Reply::Done,
            LeaseUpdate::Ended(outcome) => self.finish(now, &fence, outcome, effects),
            LeaseUpdate::Revoke(text) => self.revoke(now, job, &text, effects),
        }
    }

    /// Fails a job. Its attempt keeps its slots until it has ended.
    fn revoke(&mut self, now: Now, job: Ix<Job>, text: &str, effects: &mut Effects) -> Reply {
        if self.jobs[job].state().is_terminal() {
            return Reply::NotFound;
        }
        let failure = Failure::permanent("revoked", text);
        let ending = JobEnding::new(JobState::Failed, Reason::Revoked);
        if self.jobs.is_reserved(job) {
            let closed = Some(AttemptEnding::failed(AttemptEnd::Canceled, failure));
            self.end_job(now, job, JobEnding { closed, ..ending }, effects);
        } else {
            self.ask_to_stop(now, job, AttemptEnd::Canceled, effects);
            self.end_job(now, job, JobEnding { error: Some(failure), ..ending }, effects);
        }
        Reply::Done
    }

    /// An executor of the server itself: [`LEASES`], or the one of push workers.
    pub(in crate::engine) fn server_executor(&mut self, name: &'static str) -> Ix<Executor> {
        let name = Name::fixed(name);
        if let Some(executor) = self.queue.find_executor(&name) {
            return executor;
        }
        let (mode, kinds) = (ExecutorMode::Leased, Vec::new());
        self.offer_executor(ExecutorOffer { executor: name.clone(), mode, kinds, slots: u32::MAX });
        self.queue.find_executor(&name).expect("it was just created")
    }

    /// How long an attempt of this job lives without a heartbeat.
    pub(in crate::engine) fn lease_of(&self, job: Ix<Job>) -> Span {
        let open = self.jobs.attempt_of(job);
        if let Some(lease) = open.and_then(|open| self.workers.lease_of(open, self.settings.lease)) {
            return lease;
        }
        let lane = self.queue.lane_of(&self.jobs[job]);
        self.queue.lane(lane).settings().pull.lease.unwrap_or(self.settings.lease)
    }

    /// No worker claimed a reserved job: it waits a while, at no other cost, and longer each time.
    pub(in crate::engine) fn unclaimed(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let doubled = self.jobs[job].count_rejection().saturating_sub(1).min(16);
        let wait = Span((REJECTED.0 << doubled).min(REJECTED_MAX.0));
        let ends = self.ends_with_server(job);
        self.hand_back(now, job, AttemptEnd::Unanswered.into(), effects);
        if ends || self.jobs[job].state() != JobState::Queued {
            return;
        }
        self.defer(now, job, Wake::Backoff(now.mono + wait), Reason::HandedBack, effects);
    }

    /// A queued job waits for a time.
    pub(in crate::engine) fn defer(
        &mut self,
        now: Now,
        job: Ix<Job>,
        wake: Wake,
        reason: Reason,
        effects: &mut Effects,
    ) {
        // A job that waits for a time of day blocks no other job. A job that waits for a backoff keeps its position, so that
        // its session does not go on without it.
        let leaves_queue = matches!(wake, Wake::NotBefore(_)) || self.jobs[job].session().is_none();
        if leaves_queue {
            self.dequeue(job);
        }
        self.jobs[job].wait_for(wake);
        self.set_state(job, JobState::Scheduled);
        match self.jobs[job].bin() {
            None => self.sessions.wait_for_later(&self.jobs, job),
            Some(bin) => self.refresh(bin),
        }
        self.arm(job);
        self.job_event(now, job, JobEvent::new(EventKind::JobDeferred, Some(reason)), effects);
        let at = match wake {
            Wake::NotBefore(at) => Some(at),
            Wake::Backoff(at) | Wake::Debounce(at) => Some(now.wall + at.since(now.mono)),
            Wake::Upstream | Wake::Called => None,
        };
        let status = self.status_of(job, at);
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq()), status });
    }
}

/// True when a job ends with the loss of its lease.
pub(in crate::engine) fn ends_when_lost(pull: &PullSettings) -> bool {
    pull.is_pull() && pull.on_lease_lost == LostPolicy::Fail
}
