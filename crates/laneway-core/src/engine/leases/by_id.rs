//! What is said about an attempt that a worker asked for, by the attempt's id alone: it lives, it has ended, it must end.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::{AttemptEnding, JobEnding};
use crate::engine::jobs::record::JobEvent;
use crate::engine::leases::claim::Taker;
use crate::engine::state::{Executor, Job, Open, Wake};
use crate::lease::{Holder, LeaseMessage, LeaseUpdate, LostPolicy};
use crate::{
    AttemptEnd, Change, Effects, EventKind, ExecutorMode, ExecutorOffer, Failure, JobState, Name, Now,
    Reason, Reply, Seq, Span,
};

/// The place of all attempts that workers ask for. Nobody else may offer it.
pub(in crate::engine) const LEASES: &str = "leases";
/// How long a job that nobody took waits before it is reserved again, the first time.
const REJECTED: Span = Span::secs(5);
/// The same, at most: each time it is twice as long.
pub(in crate::engine) const REJECTED_MAX: Span = Span::mins(5);

impl Engine {
    /// Something is said about an attempt, by its id alone.
    pub(in crate::engine) fn lease_message(
        &mut self,
        now: Now,
        word: LeaseMessage,
        effects: &mut Effects,
    ) -> Reply {
        let LeaseMessage { lease, tenant, worker, pid, update: said } = word;
        let Some(&job) = self.capacity.leases.get(&lease) else { return Reply::NotFound };
        let owner = self.queue.tenants.key(self.tenant_of(job));
        if tenant.is_some_and(|tenant| tenant != *owner) {
            return Reply::NotFound;
        }
        let holder = self.holder_of(self.jobs.open(job));
        if let Some(worker) = worker {
            match holder {
                Some(holder) if holder.worker != worker => return Reply::NotYours,
                Some(_) => self.note_pid(job, pid, effects),
                // Whoever knows the id of a job that is reserved may take it by saying that it lives.
                None if said == LeaseUpdate::Alive && !self.jobs[job].state.is_terminal() => {
                    let holder = Holder { worker, pid, boot: None };
                    self.bind(now, job, &Taker { holder: &holder, start: true }, effects);
                }
                None => return Reply::NotYours,
            }
        }
        let fence = self.fence_of(job);
        match said {
            LeaseUpdate::Alive => self.start(now, &fence, effects),
            LeaseUpdate::Report => Reply::Done,
            LeaseUpdate::Ended(outcome) => self.finish(now, &fence, outcome, effects),
            LeaseUpdate::Revoke(text) => self.revoke(now, job, &text, effects),
        }
    }

    fn note_pid(&mut self, job: Ix<Job>, pid: Option<u32>, effects: &mut Effects) {
        let open = self.jobs.open_mut(job);
        if pid.is_some() && open.pid != pid {
            open.pid = pid;
            effects.changes.push(Change::HolderChanged(self.open_row(job)));
        }
    }

    /// The job has failed because somebody says so; its run holds what it holds until it has ended.
    fn revoke(&mut self, now: Now, job: Ix<Job>, text: &str, effects: &mut Effects) -> Reply {
        if self.jobs[job].state.is_terminal() {
            return Reply::NotFound;
        }
        let failure = Failure::permanent("revoked", text);
        let ending = JobEnding::new(JobState::Failed, Reason::Revoked);
        if self.is_reserved(job) {
            let closed = Some(AttemptEnding::failed(AttemptEnd::Canceled, failure));
            self.end_job(now, job, JobEnding { closed, ..ending }, effects);
        } else {
            self.ask_to_stop(now, job, AttemptEnd::Canceled, effects);
            self.end_job(now, job, JobEnding { error: Some(failure), ..ending }, effects);
        }
        Reply::Done
    }

    /// True for a job that is reserved and that nobody has taken.
    pub(in crate::engine) fn is_reserved(&self, job: Ix<Job>) -> bool {
        let entry = &self.jobs[job];
        entry.open.is_some() && {
            let open = &self.jobs.attempts[entry.attempt()];
            open.worker.is_none() && open.pull && open.started_at.is_none()
        }
    }

    /// The place of attempts that workers ask for.
    pub(in crate::engine) fn leases_executor(&mut self) -> Ix<Executor> {
        let name = Name::fixed(LEASES);
        if let Some(executor) = self.queue.executors.find(&name) {
            return executor;
        }
        let (mode, kinds) = (ExecutorMode::Leased, Vec::new());
        self.offer_executor(ExecutorOffer { executor: name.clone(), mode, kinds, slots: u32::MAX });
        self.queue.executors.find(&name).expect("it was just made")
    }

    pub(in crate::engine) fn holder_of(&self, open: &Open) -> Option<Holder> {
        open.worker.map(|worker| Holder {
            worker: self.workers.entries.key(worker).1.clone(),
            pid: open.pid,
            boot: self.workers.entries[worker].boot.clone().filter(|_| open.is_pushed()),
        })
    }

    /// How long an attempt of this job lives without a heartbeat.
    pub(in crate::engine) fn lease_of(&self, job: Ix<Job>) -> Span {
        if let Some(lease) = self.worker_lease_of(job) {
            return lease;
        }
        let lane = self.queue.agent_queues[self.jobs[job].node].lane;
        self.queue.lanes[lane].settings.pull.lease.unwrap_or(self.settings.lease)
    }

    /// Does a job whose worker went silent end with that?
    pub(in crate::engine) fn ends_when_lost(&self, job: Ix<Job>) -> bool {
        let lane = &self.queue.lanes[self.queue.agent_queues[self.jobs[job].node].lane].settings.pull;
        lane.is_pull() && lane.on_lease_lost == LostPolicy::Fail
    }

    /// Nobody took a job that was reserved: it waits a while, at no other cost, and longer each time.
    pub(in crate::engine) fn reject(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        self.jobs[job].rejections = self.jobs[job].rejections.saturating_add(1);
        let doubled = self.jobs[job].rejections.saturating_sub(1).min(16);
        let wait = Span((REJECTED.0 << doubled).min(REJECTED_MAX.0));
        let ends = self.ends_with_server(job);
        self.hand_back(now, job, AttemptEnd::Unanswered.into(), effects);
        if ends || self.jobs[job].state != JobState::Queued {
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
        // Who waits for a time of day holds nobody up; who waits out a backoff keeps its place, so that its session does not
        // go on without it.
        let leaves_queue = matches!(wake, Wake::NotBefore(_)) || self.jobs[job].session.is_none();
        if leaves_queue {
            self.dequeue(job);
        }
        let entry = &mut self.jobs[job];
        entry.wake = Some(wake);
        entry.queue_until = Default::default();
        self.set_state(job, JobState::Scheduled);
        match self.jobs[job].bin {
            None => self.wait_for_later(job),
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
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
    }
}
