//! Which job starts next: takes heads until every free slot is used or every head is blocked.
//!
//! First a node that a running one called. Between lanes: the lowest share of open attempts, then the lane served longest
//! ago. Within a lane: its first head. The gates of a head are checked again before it starts, the most specific first; a
//! closed one moves the bin to that gate's source. Dispatch goes on after every command until nothing more can start, so that
//! decisions do not depend on how commands were batched.

use crate::engine::Engine;
use crate::engine::capacity::FreeCapacity;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::ending::JobEnding;
use crate::engine::jobs::record::JobEvent;
use crate::engine::leases::claim::Taker;
use crate::engine::queue::bin::BinKey;
use crate::engine::queue::{Bin, Lane, Queue, QueueHead, SourceKey};
use crate::engine::schedules::text_of;
use crate::engine::workers::placement::Pick;
use crate::lease::Dispatch;
use crate::worker::DispatchLine;
use crate::{Change, Effects, EventKind, Failure, JobState, Notice, Now, Reason, Seq};

/// Most overdue jobs that one dispatch ends on its way: a million that expire together must not become one commit.
const EXPIRIES_MAX: u32 = 1_024;

impl Engine {
    /// Starts every job that can start.
    pub(in crate::engine) fn dispatch(&mut self, now: Now, effects: &mut Effects) {
        if self.server.starts_nothing() {
            return;
        }
        let mut expiries_left = EXPIRIES_MAX;
        while let Some(job) = self.next_start(now, &mut expiries_left, effects) {
            self.open_attempt(now, job, None, effects);
        }
        if self.queue.has_demands() {
            self.note_denied(now, effects);
        }
    }

    /// The job that starts next, or `None` when nothing can start.
    fn next_start(&mut self, now: Now, expiries_left: &mut u32, effects: &mut Effects) -> Option<Ix<Job>> {
        let full = self.queue.open >= self.settings.running_max;
        if full && self.workflows.no_called_node_waits() {
            return None;
        }
        loop {
            let capacity = if self.queue.has_demands() { Some(self.free_capacity(now)) } else { None };
            if let Some(capacity) = capacity
                && let Some((job, cost)) = capacity.next_in_line()
                && cost <= capacity.units()
            {
                return Some(job);
            }
            let called = self.next_called(now, capacity.as_ref());
            if called.is_some() || full {
                return called;
            }
            let lane = self.queue.next_lane(capacity.as_ref())?;
            let head = self.queue.first_head(lane, capacity.as_ref()).expect("the next lane has a head");
            if !self.queue.is_current(head) {
                // It was further in front than it is now: others may go first.
                self.queue.catch_up(&self.workers, lane, head.2);
                continue;
            }
            let (bin, job) = self.queue.head_of(head);
            if self.jobs[job].is_overdue(now) {
                // The rest follows in the next batch: their timers are due, so it comes at once.
                *expiries_left = expiries_left.checked_sub(1)?;
                self.expire(now, job, effects);
            } else if self.is_missing(now, job) {
                *expiries_left = expiries_left.checked_sub(1)?;
                self.fail_missing(now, job, effects);
            } else if self.is_clear(bin, job) {
                return Some(job);
            }
        }
    }

    /// Checks the gates of a head again, the most specific first. The bin is parked on the first closed one.
    pub(in crate::engine) fn is_clear(&mut self, bin: Ix<Bin>, job: Ix<Job>) -> bool {
        let class = match *self.queue.bins.key(bin) {
            BinKey::Plain { shared_class, .. }
                if self.queue.fits_shared_class(&self.jobs[job], shared_class) =>
            {
                shared_class
            }
            BinKey::Plain { .. } => {
                // Its kind has a limit now that the rest of the shared class must not wait for.
                self.dequeue(job);
                self.enqueue(job);
                return false;
            }
            BinKey::Session(_) => self.jobs[job].class(),
        };
        if let Some(key) = self.queue.first_closed_key(&self.jobs[job]) {
            self.park(bin, SourceKey { class: Some(class), key: Some(key) });
            return false;
        }
        if !self.queue.class_is_open(&self.workers, class) {
            self.park(bin, SourceKey { class: Some(class), key: None });
            return false;
        }
        if self.queue.goes_to_workers(class)
            && let Pick::Later { worker, kind } = self.pick(job)
        {
            let (key, new) = self.workers.slot_gate(&mut self.queue, worker, kind);
            self.park(bin, SourceKey { class: Some(class), key: Some(key) });
            if new {
                // From now on bins that hang on it are its only users.
                self.workers.release_key(&mut self.queue, key);
            }
            return false;
        }
        true
    }

    /// Opens the next attempt of a job and takes its gates. The attempt is stored before an executor gets the offer.
    pub(in crate::engine) fn open_attempt(
        &mut self,
        now: Now,
        job: Ix<Job>,
        taker: Option<&Taker<'_>>,
        effects: &mut Effects,
    ) {
        let demand = self.queue.demand_of(&self.jobs[job]);
        if demand.is_some_and(|demand| demand.cost > 0) {
            self.note_bypassed(now, job);
        }
        self.queue.starts += 1;
        let running = self.make_attempt(now, job, demand.is_some_and(|demand| demand.pull), taker);
        if self.jobs[job].in_run() {
            let attempts = self.jobs[job].attempts();
            let (queue, numbers) = (&mut self.queue, &mut self.numbers);
            let number = self.workflows.member_started(now, (job, attempts), queue, numbers, effects);
            self.jobs.open_mut(job).set_dispatch_seq(number.unwrap_or(attempts.into()));
        }
        self.schedules.firing_started(job, now.wall, &self.jobs, effects);
        self.set_state(job, if running { JobState::Running } else { JobState::Assigned });

        let bin = self.jobs[job].take_bin().expect("a job that starts waits in a bin");
        self.queue.note_served(&self.jobs[job]);
        self.queue.remove_from_bin(bin, job, &self.jobs[job]);
        self.queue.uncount_waiting(&self.jobs[job]);
        self.take_gates(job);
        if let Some(worker) = self.jobs.open(job).pushed_to() {
            self.note_affinity(now, job, worker);
        }
        // Back to where it hangs by itself: the gate that it was parked on may be open for more.
        self.refresh_in(bin, self.queue.home_of(&self.jobs, &self.workers, bin));
        self.queue.rekey_agent(&self.workers, self.jobs[job].agent_queue());
        self.arm(job);
        let waited = self.queue.count_dispatch(&self.jobs[job], self.clock.rank_now(now));

        let kind = if running { EventKind::JobStarted } else { EventKind::JobAssigned };
        let detail = self.dispatch_line(job, DispatchLine::SENT);
        self.job_event(now, job, JobEvent { detail, ..JobEvent::new(kind, None) }, effects);
        effects.changes.push(Change::AttemptOpened(self.open_row(job)));
        if demand.is_some() {
            self.capacity.forget_bypassed(&mut self.jobs, job);
            self.capacity.forget_denied(job);
            self.remember_decision(now, job, None, None);
        }
        if demand.is_none_or(|demand| !demand.pull) {
            effects.notices.push(Notice::Offer(self.offer(job, false)));
        }
        let seq = Seq(self.jobs[job].seq());
        effects.notices.extend(waited.map(|wait| Notice::Waited { seq, wait }));
    }

    /// Ends a waiting job whose deadline or queue timeout has passed.
    pub(in crate::engine) fn expire(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let late = self.jobs[job].deadline().is_due(now.wall);
        let reason = if late { Reason::Expired } else { Reason::QueueTimeout };
        // No attempt closes with it, so the end itself carries the error.
        let error = Failure::permanent(reason.as_str(), text_of(reason));
        self.end_job(
            now,
            job,
            JobEnding { error: Some(error), ..JobEnding::new(JobState::Failed, reason) },
            effects,
        );
    }
}

impl Queue {
    /// An attempt of a job opened: its agent and its lane are served.
    fn note_served(&mut self, job: &Job) {
        let lane = self.lane_of(job);
        self.agent_queues[job.agent_queue()].served = self.starts;
        self.lanes[lane].served = self.starts;
    }

    /// The head that a lane would start next.
    fn first_head(&self, lane: Ix<Lane>, capacity: Option<&FreeCapacity>) -> Option<QueueHead> {
        let lane = &self.lanes[lane];
        let plain = lane.heads.first();
        let Some(capacity) = capacity.filter(|_| !lane.by_demand.is_empty()) else { return plain.copied() };
        let open = lane.by_demand.iter().filter(|(demand, _)| capacity.fits(self.demands[**demand]));
        plain.into_iter().chain(open.filter_map(|(_, heads)| heads.first())).min().copied()
    }

    /// The lane that starts a job next, among those that can.
    fn next_lane(&self, capacity: Option<&FreeCapacity>) -> Option<Ix<Lane>> {
        let mut best: Option<Ix<Lane>> = None;
        for (ix, lane) in self.lanes.iter() {
            if lane.settings.paused || lane.is_full() {
                continue;
            }
            if lane.heads.is_empty()
                && (lane.by_demand.is_empty() || !self.has_start_with_demand(ix, capacity))
            {
                continue;
            }
            if !best.is_some_and(|best| self.lanes[best].goes_before(lane)) {
                best = Some(ix);
            }
        }
        best
    }

    /// Can the dispatcher start a job with a demand in this lane?
    fn has_start_with_demand(&self, lane: Ix<Lane>, capacity: Option<&FreeCapacity>) -> bool {
        self.lanes[lane].settings.pull.dispatch != Dispatch::Claim
            && self.first_head(lane, capacity).is_some()
    }
}
