//! Who runs next: takes heads until every free slot is used or every head is held.
//!
//! First whoever was called by somebody who runs. Between lanes: the lowest share of open attempts, then the one served longest ago. Within a lane: its first head.
//! A head's gates are looked at again before it starts, the most specific first; a closed one moves the bin to that
//! gate's source. Run to quiescence after every command, so that decisions do not depend on how commands were batched.

use super::Engine;
use super::claim::Taker;
use super::needs::Room;
use super::placing::Pick;
use super::record::tell_dispatch;
use super::slab::{Ix, NONE};
use super::state::{BinKey, Head, MaybeMono, Open, SourceKey};
use crate::lease::Dispatch;
use crate::worker::DispatchLine;
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{Change, Effects, EventKind, JobState, Notice, Now, OpenAttempt, PlaceMode, Reason, Span};

/// Most overdue jobs that one dispatch ends on its way: a million that expire together must not become one commit.
const EXPIRIES_MAX: u32 = 1_024;

impl Engine {
    /// Starts whatever can start.
    pub(super) fn dispatch(&mut self, now: Now, effects: &mut Effects) {
        if self.draining {
            return;
        }
        #[cfg(feature = "zoo")]
        let mut unreserved = Vec::new();
        let mut expiries_left = EXPIRIES_MAX;
        while let Some(job) = self.next_start(now, &mut expiries_left, effects) {
            self.open_attempt(now, job, None, effects);
            #[cfg(feature = "zoo")]
            if zoo::is_out(Bug::LimitCheckBeforeReserve) {
                let lane = self.nodes[self.jobs[job].node].lane as usize;
                self.lanes[lane].open -= 1;
                unreserved.push(lane);
            }
        }
        if !self.needs.is_empty() {
            self.note_denied(now, effects);
        }
        #[cfg(feature = "zoo")]
        for lane in unreserved {
            self.lanes[lane].open += 1;
        }
    }

    /// The job that starts next, or `None` when nothing can start.
    fn next_start(&mut self, now: Now, expiries_left: &mut u32, effects: &mut Effects) -> Option<Ix> {
        let full = self.open >= self.settings.running_max;
        if full && self.nobody_is_called() {
            return None;
        }
        loop {
            let room = if self.needs.is_empty() { None } else { Some(self.room(now)) };
            if let Some(room) = room
                && let Some((job, cost)) = room.due
                && cost <= room.free
            {
                return Some(job);
            }
            let called = self.next_called(now, room.as_ref());
            if called.is_some() || full {
                return called;
            }
            let lane = self.next_lane(room.as_ref())?;
            let (_, node, source) = self.first_head(lane, room.as_ref()).expect("the next lane has a head");
            let (bin, job) = self.head_of(node, source);
            if self.is_overdue(now, job) {
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
    pub(super) fn head_of(&self, node: Ix, source: SourceKey) -> (Ix, Ix) {
        let group = self.nodes[node].groups.get(source).expect("a head has its group");
        let ((_, bin), ()) = group.bins.first().expect("a shown group is not empty");
        let (_, job) = self.bins[bin].jobs.first().expect("bins are not empty");
        (bin, job)
    }

    /// Looks at the gates of a head again, the most specific first. One that is closed gets the bin, and the answer is no.
    pub(super) fn is_clear(&mut self, bin: Ix, job: Ix) -> bool {
        let class = match *self.bins.key(bin) {
            BinKey::Plain { shelf, .. } if self.fits_shelf(job, shelf) => shelf,
            BinKey::Plain { .. } => {
                // Its kind has a limit now that the rest of the shelf must not wait for.
                self.dequeue(job);
                self.enqueue(job);
                return false;
            }
            BinKey::Session(_) => self.jobs[job].class,
        };
        if let Some(key) = self.first_closed_key(job) {
            self.park(bin, SourceKey { class, key });
            return false;
        }
        if !self.class_is_open(class) {
            self.park(bin, SourceKey { class, key: NONE });
            return false;
        }
        if self.goes_to_workers(class)
            && let Pick::Later { worker, kind } = self.pick(job)
        {
            let (key, new) = self.slot_gate(worker, kind);
            self.park(bin, SourceKey { class, key });
            if new {
                // From now on bins that hang on it are its only users.
                self.release_key(key);
            }
            return false;
        }
        true
    }

    /// The head that a lane would start next.
    fn first_head(&self, lane: usize, room: Option<&Room>) -> Option<Head> {
        let lane = &self.lanes[lane];
        let plain = lane.heads.first();
        let Some(room) = room.filter(|_| !lane.needy.is_empty()) else { return plain.copied() };
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::HeadHidesQueue) {
            let first = lane.needy.iter().filter_map(|(need, heads)| Some((heads.first()?, need))).min()?;
            return room.takes(*self.needs.key(*first.1)).then_some(*first.0);
        }
        let open = lane.needy.iter().filter(|(need, _)| room.takes(*self.needs.key(**need)));
        plain.into_iter().chain(open.filter_map(|(_, heads)| heads.first())).min().copied()
    }

    /// The lane whose turn it is among those that can start something.
    fn next_lane(&self, room: Option<&Room>) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (ix, lane) in self.lanes.iter().enumerate() {
            if lane.settings.paused || lane.open >= lane.settings.running_max {
                continue;
            }
            if lane.heads.is_empty() && (lane.needy.is_empty() || !self.has_needy_start(ix, room)) {
                continue;
            }
            let before = best.is_some_and(|best| {
                let other = &self.lanes[best];
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

    /// Can the dispatcher start something with a need in this lane?
    fn has_needy_start(&self, lane: usize, room: Option<&Room>) -> bool {
        self.lanes[lane].settings.pull.dispatch != Dispatch::Claim && self.first_head(lane, room).is_some()
    }

    pub(super) fn first_closed_key(&self, job: Ix) -> Option<Ix> {
        let keyset = self.jobs[job].keyset;
        if keyset == NONE {
            return None;
        }
        self.keysets.key(keyset).iter().copied().find(|&key| !self.keys[key].gate.is_open())
    }

    /// Opens the next attempt of a job: takes its gates, and says so durably before anybody is offered it.
    pub(super) fn open_attempt(
        &mut self,
        now: Now,
        job: Ix,
        taker: Option<&Taker<'_>>,
        effects: &mut Effects,
    ) {
        let need = self.need_of_job(job);
        if need.is_some_and(|need| need.cost > 0) {
            self.note_overtaken(now, job);
        }
        self.starts += 1;
        let running = self.make_attempt(now, job, need.is_some_and(|need| need.pull), taker);
        if self.jobs[job].in_run {
            let number = self.member_starts(now, job, effects);
            self.attempts[self.jobs[job].open].dispatch_seq = number;
        }
        self.run_starts(job, now.wall);
        self.set_state(job, if running { JobState::Running } else { JobState::Assigned });

        let node = self.jobs[job].node;
        let lane = self.nodes[node].lane as usize;
        self.nodes[node].served = self.starts;
        self.lanes[lane].served = self.starts;
        let bin = std::mem::replace(&mut self.jobs[job].bin, NONE);
        let (first, head) = self.bins[bin].jobs.first().expect("a job waits in its bin");
        let order = if head == job { first } else { self.order_in_bin(job) };
        self.bins[bin].jobs.remove(&order);
        self.uncount_waiting(job);
        self.take_gates(job);
        let open = &self.attempts[self.jobs[job].open];
        if open.is_pushed() {
            self.note_affinity(now, job, open.worker);
        }
        // Back to where it hangs by itself: the gate it was parked on may have room for more.
        self.refresh_in(bin, self.home_of(bin));
        self.rekey_node(node);
        self.arm(job);
        self.count_dispatch(now, job);

        let kind = if running { EventKind::JobStarted } else { EventKind::JobAssigned };
        self.job_event(now, kind, job, None, None, effects);
        tell_dispatch(self.dispatch_line(job, DispatchLine::SENT), effects);
        effects.changes.push(Change::AttemptOpened(self.open_row(job)));
        if need.is_some() {
            self.forget_overtaken(job);
            self.forget_denied(job);
            let decision = self.decision_about(now, job, None);
            self.remember_decision(decision);
        }
        if need.is_none_or(|need| !need.pull) {
            effects.notices.push(Notice::Offer(self.offer(job, false)));
        }
    }

    /// The lease that an attempt's runner is told, and how long it may be silent at first.
    fn first_lease(&self, job: Ix, pull: bool, taker: Option<&Taker<'_>>) -> (Span, Span) {
        let lease = self.lease_of(job);
        let lane = self.nodes[self.jobs[job].node].lane as usize;
        let until = match (pull, taker) {
            (false, _) => self.settings.ack_timeout,
            (true, Some(_)) => lease,
            (true, None) => self.lanes[lane].settings.pull.reservation_timeout,
        };
        (lease, until)
    }

    /// Makes the attempt itself; true when it runs from now on.
    fn make_attempt(&mut self, now: Now, job: Ix, pull: bool, taker: Option<&Taker<'_>>) -> bool {
        let class = &self.classes[self.jobs[job].class];
        let (tenant, kind) = (class.tenant, class.kind);
        let told = if pull { None } else { self.told_worker(job) };
        let place = match told {
            _ if pull => self.leases_place(),
            Some(_) => self.workers_place(),
            None => self.kinds[kind].place,
        };
        let leased = self.places[place].mode == PlaceMode::Leased;
        let (lease, until) = match told {
            Some(worker) => (self.lease_at(worker), self.settings.ack_timeout),
            None if leased => self.first_lease(job, pull, taker),
            None => Default::default(),
        };
        let running = !leased || taker.is_some_and(|taker| taker.start);
        let worker = match (told, taker) {
            (Some(worker), _) => {
                self.workers.hold_again(worker);
                worker
            }
            (None, Some(taker)) => self.hold_worker(tenant, &taker.holder.worker),
            (None, None) => NONE,
        };
        let entry = &mut self.jobs[job];
        entry.attempts += 1;
        entry.queue_until = MaybeMono::NONE;
        let open = Open {
            job,
            attempt_id: self.rng.attempt_id(),
            lease_epoch: 1,
            place,
            opened_at: now.wall,
            started_at: running.then_some(now.wall),
            lease,
            lease_until: leased.then(|| now.mono + until),
            timeout_at: running.then(|| now.mono + Span(entry.timeout_ms)),
            stopping: None,
            pull,
            worker,
            acked: false,
            pid: taker.and_then(|taker| taker.holder.pid),
            number: self.starts,
            dispatch_seq: entry.attempts.into(),
            next_until: None,
        };
        entry.open = self.attempts.insert(open);
        running
    }

    /// The stored form of a job's open attempt.
    pub(super) fn open_row(&self, job: Ix) -> OpenAttempt {
        let entry = &self.jobs[job];
        let open = &self.attempts[entry.open];
        OpenAttempt {
            seq: crate::Seq(entry.seq),
            fence: self.fence_of(job),
            place: self.places.key(open.place).clone(),
            mode: open.mode(),
            state: if open.started_at.is_some() { JobState::Running } else { JobState::Assigned },
            opened_at: open.opened_at,
            started_at: open.started_at,
            lease: open.lease,
            last_event: entry.last_event,
            holder: self.holder_of(open),
            dispatch_seq: open.dispatch_seq,
        }
    }

    /// True when the job must not start any more, although no timer has said so yet.
    pub(super) fn is_overdue(&self, now: Now, job: Ix) -> bool {
        let entry = &self.jobs[job];
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::StartAfterDeadline) {
            return entry.queue_until.is_due(now.mono);
        }
        entry.deadline.is_due(now.wall) || entry.queue_until.is_due(now.mono)
    }

    /// Ends a waiting job whose deadline or queue timeout has passed.
    pub(super) fn expire(&mut self, now: Now, job: Ix, effects: &mut Effects) {
        let late = self.jobs[job].deadline.is_due(now.wall);
        let reason = if late { Reason::Expired } else { Reason::QueueTimeout };
        self.end_job(now, job, JobState::Failed, reason, None, None, None, effects);
    }
}
