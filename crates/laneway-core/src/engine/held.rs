//! What is said about an attempt that a worker asked for, by the attempt's id alone: it lives, it has ended, it must end.

use super::Engine;
use super::claim::Taker;
use super::slab::{Ix, NONE};
use super::state::{Open, Wake};
use crate::lease::{Holder, LeaseWord, LostPolicy, Said};
use crate::{
    AttemptEnd, Change, Effects, EventKind, Failure, JobState, Name, Now, PlaceMode, PlaceOffer, Reason,
    Reply, Seq, Span,
};

/// The place of all attempts that workers ask for. Nobody else may offer it.
pub(super) const LEASES: &str = "leases";
/// How long a job that nobody took waits before it is set aside again, the first time.
const REJECTED: Span = Span::secs(5);
/// The same, at most: each time it is twice as long.
pub(super) const REJECTED_MAX: Span = Span::mins(5);

impl Engine {
    /// Something is said about an attempt, by its id alone.
    pub(super) fn lease_word(&mut self, now: Now, word: LeaseWord, effects: &mut Effects) -> Reply {
        let LeaseWord { lease, tenant, worker, pid, said } = word;
        let Some(&job) = self.capacity.leases.get(&lease) else { return Reply::NotFound };
        let owner = self.tenants.key(self.classes[self.jobs[job].class].tenant);
        if tenant.is_some_and(|tenant| tenant != *owner) {
            return Reply::NotFound;
        }
        let holder = self.holder_of(&self.attempts[self.jobs[job].open]);
        if let Some(worker) = worker {
            match holder {
                Some(holder) if holder.worker != worker => return Reply::NotYours,
                Some(_) => self.note_pid(job, pid, effects),
                // Whoever knows the id of a job that is set aside may take it by saying that it lives.
                None if said == Said::Alive && !self.jobs[job].state.is_terminal() => {
                    let holder = Holder { worker, pid };
                    self.bind(now, job, &Taker { holder: &holder, start: true }, effects);
                }
                None => return Reply::NotYours,
            }
        }
        let fence = self.fence_of(job);
        match said {
            Said::Alive => self.start(now, &fence, effects),
            Said::Report => Reply::Done,
            Said::Ended(outcome) => self.finish(now, &fence, outcome, effects),
            Said::Revoke(text) => self.revoke(now, job, &text, effects),
        }
    }

    fn note_pid(&mut self, job: Ix, pid: Option<u32>, effects: &mut Effects) {
        let open = &mut self.attempts[self.jobs[job].open];
        if pid.is_some() && open.pid != pid {
            open.pid = pid;
            effects.changes.push(Change::AttemptStarted(self.open_row(job)));
        }
    }

    /// The job has failed because somebody says so; its run holds what it holds until it has ended.
    fn revoke(&mut self, now: Now, job: Ix, text: &str, effects: &mut Effects) -> Reply {
        if self.jobs[job].state.is_terminal() {
            return Reply::NotFound;
        }
        let failure = Failure::permanent("revoked", text);
        let (state, reason) = (JobState::Failed, Reason::Revoked);
        if self.is_aside(job) {
            let closed = Some((AttemptEnd::Canceled, Some(failure)));
            self.end_job(now, job, state, reason, closed, None, None, effects);
        } else {
            self.ask_to_stop(now, job, AttemptEnd::Canceled, effects);
            self.end_job_with(now, job, state, reason, None, Some(failure), None, None, effects);
        }
        Reply::Done
    }

    /// True for a job that is set aside and that nobody has taken.
    pub(super) fn is_aside(&self, job: Ix) -> bool {
        let entry = &self.jobs[job];
        entry.open != NONE && {
            let open = &self.attempts[entry.open];
            open.worker == NONE && open.pull && open.started_at.is_none()
        }
    }

    /// The place of attempts that workers ask for.
    pub(super) fn leases_place(&mut self) -> Ix {
        let name = Name::fixed(LEASES);
        if let Some(place) = self.places.find(&name) {
            return place;
        }
        let (mode, kinds) = (PlaceMode::Leased, Vec::new());
        self.offer_place(PlaceOffer { place: name.clone(), mode, kinds, slots: u32::MAX });
        self.places.find(&name).expect("it was just made")
    }

    pub(super) fn holder_of(&self, open: &Open) -> Option<Holder> {
        (open.worker != NONE)
            .then(|| Holder { worker: self.workers.key(open.worker).1.clone(), pid: open.pid })
    }

    /// How long an attempt of this job lives without a heartbeat.
    pub(super) fn lease_of(&self, job: Ix) -> Span {
        if let Some(lease) = self.worker_lease_of(job) {
            return lease;
        }
        let lane = self.nodes[self.jobs[job].node].lane as usize;
        self.lanes[lane].settings.pull.lease.unwrap_or(self.settings.lease)
    }

    /// Does a job whose worker went silent end with that?
    pub(super) fn ends_when_lost(&self, job: Ix) -> bool {
        let lane = &self.lanes[self.nodes[self.jobs[job].node].lane as usize].settings.pull;
        lane.is_pull() && lane.on_lease_lost == LostPolicy::Fail
    }

    /// Nobody took a job that was set aside: it waits a while, at no other cost, and longer each time.
    pub(super) fn reject(&mut self, now: Now, job: Ix, effects: &mut Effects) {
        self.jobs[job].rejections = self.jobs[job].rejections.saturating_add(1);
        let doubled = self.jobs[job].rejections.saturating_sub(1).min(16);
        let wait = Span((REJECTED.0 << doubled).min(REJECTED_MAX.0));
        let ends = self.ends_with_server(job);
        self.hand_back(now, job, AttemptEnd::Unanswered, effects);
        if ends || self.jobs[job].state != JobState::Queued {
            return;
        }
        self.defer(now, job, Wake::Backoff(now.mono + wait), Reason::HandedBack, effects);
    }

    /// A queued job waits for a time.
    pub(super) fn defer(&mut self, now: Now, job: Ix, wake: Wake, reason: Reason, effects: &mut Effects) {
        // Who waits for a time of day holds nobody up; who waits out a backoff keeps its place, so that its session does not
        // go on without it.
        let steps_aside = matches!(wake, Wake::NotBefore(_)) || self.jobs[job].session == NONE;
        if steps_aside {
            self.dequeue(job);
        }
        let entry = &mut self.jobs[job];
        entry.wake = Some(wake);
        entry.queue_until = Default::default();
        self.set_state(job, JobState::Scheduled);
        match self.jobs[job].bin {
            NONE => self.wait_for_later(job),
            bin => self.refresh(bin),
        }
        self.arm(job);
        self.job_event(now, EventKind::JobDeferred, job, Some(reason), None, effects);
        let at = match wake {
            Wake::NotBefore(at) => Some(at),
            Wake::Backoff(at) | Wake::Debounce(at) => Some(now.wall + at.since(now.mono)),
            Wake::Upstream | Wake::Called => None,
        };
        let status = self.status_of(job, at);
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
    }
}
