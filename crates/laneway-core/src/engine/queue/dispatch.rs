//! Who runs next: takes heads until every free slot is used or every head is held.
//!
//! First whoever was called by somebody who runs. Between lanes: the lowest share of open attempts, then the one served longest ago. Within a lane: its first head.
//! A head's gates are looked at again before it starts, the most specific first; a closed one moves the bin to that
//! gate's source. Run to quiescence after every command, so that decisions do not depend on how commands were batched.

use crate::engine::Engine;
use crate::engine::capacity::FreeCapacity;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::ending::JobEnding;
use crate::engine::jobs::record::JobEvent;
use crate::engine::leases::claim::Taker;
use crate::engine::queue::{AgentQueue, Bin, BinKey, KeyEntry, Lane, QueueHead, SourceKey};
use crate::engine::schedules::text_of;
use crate::engine::workers::placement::Pick;
use crate::lease::Dispatch;
use crate::worker::DispatchLine;
use crate::{Change, Effects, EventKind, Failure, JobState, Notice, Now, Reason};

/// Most overdue jobs that one dispatch ends on its way: a million that expire together must not become one commit.
const EXPIRIES_MAX: u32 = 1_024;

impl Engine {
    /// Starts whatever can start.
    pub(in crate::engine) fn dispatch(&mut self, now: Now, effects: &mut Effects) {
        // While storage is low, the space that is left is for the results of what runs.
        if self.server.starts_nothing() {
            return;
        }
        let mut expiries_left = EXPIRIES_MAX;
        while let Some(job) = self.next_start(now, &mut expiries_left, effects) {
            self.open_attempt(now, job, None, effects);
        }
        if !self.queue.demands.is_empty() {
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
            let capacity = if self.queue.demands.is_empty() { None } else { Some(self.free_capacity(now)) };
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
            let lane = self.next_lane(capacity.as_ref())?;
            let (_, agent_queue, source) =
                self.first_head(lane, capacity.as_ref()).expect("the next lane has a head");
            let (bin, job) = self.head_of(agent_queue, source);
            if self.jobs[job].is_overdue(now) {
                // The rest follows in the next turn: their timers are due, so it comes at once.
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

    /// The bin that a head stands for, and its first job.
    pub(in crate::engine) fn head_of(
        &self,
        agent_queue: Ix<AgentQueue>,
        source: SourceKey,
    ) -> (Ix<Bin>, Ix<Job>) {
        let group = self.queue.agent_queues[agent_queue].groups.get(source).expect("a head has its group");
        let ((_, bin), ()) = group.bins.first().expect("a shown group is not empty");
        let (_, job) = self.queue.bins[bin].jobs.first().expect("bins are not empty");
        (bin, job)
    }

    /// Looks at the gates of a head again, the most specific first. One that is closed gets the bin, and the answer is no.
    pub(in crate::engine) fn is_clear(&mut self, bin: Ix<Bin>, job: Ix<Job>) -> bool {
        let class = match *self.queue.bins.key(bin) {
            BinKey::Plain { shared_class, .. } if self.fits_shared_class(job, shared_class) => shared_class,
            BinKey::Plain { .. } => {
                // Its kind has a limit now that the rest of the shared class must not wait for.
                self.dequeue(job);
                self.enqueue(job);
                return false;
            }
            BinKey::Session(_) => self.jobs[job].class(),
        };
        if let Some(key) = self.first_closed_key(job) {
            self.park(bin, SourceKey { class: Some(class), key: Some(key) });
            return false;
        }
        if !self.class_is_open(class) {
            self.park(bin, SourceKey { class: Some(class), key: None });
            return false;
        }
        if self.goes_to_workers(class)
            && let Pick::Later { worker, kind } = self.pick(job)
        {
            let (key, new) = self.slot_gate(worker, kind);
            self.park(bin, SourceKey { class: Some(class), key: Some(key) });
            if new {
                // From now on bins that hang on it are its only users.
                self.release_key(key);
            }
            return false;
        }
        true
    }

    /// The head that a lane would start next.
    fn first_head(&self, lane: Ix<Lane>, capacity: Option<&FreeCapacity>) -> Option<QueueHead> {
        let lane = &self.queue.lanes[lane];
        let plain = lane.heads.first();
        let Some(capacity) = capacity.filter(|_| !lane.by_demand.is_empty()) else { return plain.copied() };
        let open = lane.by_demand.iter().filter(|(demand, _)| capacity.fits(self.queue.demands[**demand]));
        plain.into_iter().chain(open.filter_map(|(_, heads)| heads.first())).min().copied()
    }

    /// The lane whose turn it is among those that can start something.
    fn next_lane(&self, capacity: Option<&FreeCapacity>) -> Option<Ix<Lane>> {
        let mut best: Option<Ix<Lane>> = None;
        for (ix, lane) in self.queue.lanes.iter() {
            if lane.settings.paused || lane.open >= lane.settings.running_max {
                continue;
            }
            if lane.heads.is_empty()
                && (lane.by_demand.is_empty() || !self.has_start_with_demand(ix, capacity))
            {
                continue;
            }
            let before = best.is_some_and(|best| {
                let other = &self.queue.lanes[best];
                let mine = u64::from(lane.open) * u64::from(other.settings.running_max);
                let theirs = u64::from(other.open) * u64::from(lane.settings.running_max);
                (theirs, other.served, &other.name) < (mine, lane.served, &lane.name)
            });
            if !before {
                best = Some(ix);
            }
        }
        best
    }

    /// Can the dispatcher start something with a demand in this lane?
    fn has_start_with_demand(&self, lane: Ix<Lane>, capacity: Option<&FreeCapacity>) -> bool {
        self.queue.lanes[lane].settings.pull.dispatch != Dispatch::Claim
            && self.first_head(lane, capacity).is_some()
    }

    pub(in crate::engine) fn first_closed_key(&self, job: Ix<Job>) -> Option<Ix<KeyEntry>> {
        self.keys_held_by(job).iter().copied().find(|&key| !self.queue.keys[key].gate.is_open())
    }

    /// Opens the next attempt of a job: takes its gates, and says so durably before anybody is offered it.
    pub(in crate::engine) fn open_attempt(
        &mut self,
        now: Now,
        job: Ix<Job>,
        taker: Option<&Taker<'_>>,
        effects: &mut Effects,
    ) {
        let demand = self.demand_of_job(job);
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

        let agent_queue = self.jobs[job].agent_queue();
        let lane = self.queue.agent_queues[agent_queue].lane;
        self.queue.agent_queues[agent_queue].served = self.queue.starts;
        self.queue.lanes[lane].served = self.queue.starts;
        let bin = self.jobs[job].take_bin().expect("a job that starts waits in a bin");
        let (first, head) = self.queue.bins[bin].jobs.first().expect("a job waits in its bin");
        let order = if head == job { first } else { self.order_in_bin(job) };
        self.queue.bins[bin].jobs.remove(&order);
        self.uncount_waiting(job);
        self.take_gates(job);
        if let Some(worker) = self.jobs.open(job).pushed_to() {
            self.note_affinity(now, job, worker);
        }
        // Back to where it hangs by itself: the gate it was parked on may have room for more.
        self.refresh_in(bin, self.home_of(bin));
        self.rekey_agent(agent_queue);
        self.arm(job);
        self.count_dispatch(now, job);

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
    }

    /// Ends a waiting job whose deadline or queue timeout has passed.
    pub(in crate::engine) fn expire(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let late = self.jobs[job].deadline().is_due(now.wall);
        let reason = if late { Reason::Expired } else { Reason::QueueTimeout };
        // No attempt closes with it, so the end itself has to say what went wrong.
        let error = Failure::permanent(reason.as_str(), text_of(reason));
        self.end_job(
            now,
            job,
            JobEnding { error: Some(error), ..JobEnding::new(JobState::Failed, reason) },
            effects,
        );
    }
}
