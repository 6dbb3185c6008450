//! Who runs next: takes heads until every free slot is used or every head is held.
//!
//! Between lanes: the lowest share of open attempts, then the one served longest ago. Within a lane: its first head.
//! A head's gates are looked at again before it starts, the most specific first; a closed one moves the bin to that
//! gate's source. Run to quiescence after every command, so that decisions do not depend on how commands were batched.

use super::Engine;
use super::slab::{Ix, NONE};
use super::state::{BinKey, MaybeMono, Open, SourceKey};
use crate::effect::Offer;
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{Change, Effects, EventKind, JobState, Notice, Now, OpenAttempt, PlaceMode, Reason};

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
        while let Some((job, bin)) = self.next_start(now, &mut expiries_left, effects) {
            self.open_attempt(now, job, bin, effects);
            #[cfg(feature = "zoo")]
            if zoo::is_out(Bug::LimitCheckBeforeReserve) {
                let lane = self.nodes[self.jobs[job].node].lane as usize;
                self.lanes[lane].open -= 1;
                unreserved.push(lane);
            }
        }
        #[cfg(feature = "zoo")]
        for lane in unreserved {
            self.lanes[lane].open += 1;
        }
    }

    /// The job that starts next, with its bin, or `None` when nothing can start.
    fn next_start(&mut self, now: Now, expiries_left: &mut u32, effects: &mut Effects) -> Option<(Ix, Ix)> {
        if self.open >= self.settings.running_max {
            return None;
        }
        loop {
            let lane = self.next_lane()?;
            let &(_, node, source) = self.lanes[lane].heads.first().expect("the next lane has a head");
            let group = self.nodes[node].groups.get(source).expect("a head has its group");
            let ((_, bin), ()) = group.bins.first().expect("a shown group is not empty");
            let (_, job) = self.bins[bin].jobs.first().expect("bins are not empty");
            if self.is_overdue(now, job) {
                // The rest follows in the next turn: their timers are due, so it comes at once.
                *expiries_left = expiries_left.checked_sub(1)?;
                self.expire(now, job, effects);
                continue;
            }
            let class = match *self.bins.key(bin) {
                BinKey::Plain { shelf, .. } if self.fits_shelf(job, shelf) => shelf,
                BinKey::Plain { .. } => {
                    // Its kind has a limit now that the rest of the shelf must not wait for.
                    self.dequeue(job);
                    self.enqueue(job);
                    continue;
                }
                BinKey::Session(_) => self.jobs[job].class,
            };
            if let Some(key) = self.first_closed_key(job) {
                self.park(bin, SourceKey { class, key });
                continue;
            }
            if !self.class_is_open(class) {
                self.park(bin, SourceKey { class, key: NONE });
                continue;
            }
            return Some((job, bin));
        }
    }

    /// The lane whose turn it is among those that can start something.
    fn next_lane(&self) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (ix, lane) in self.lanes.iter().enumerate() {
            if lane.settings.paused || lane.open >= lane.settings.running_max || lane.heads.is_empty() {
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

    pub(super) fn first_closed_key(&self, job: Ix) -> Option<Ix> {
        let keyset = self.jobs[job].keyset;
        if keyset == NONE {
            return None;
        }
        self.keysets.key(keyset).iter().copied().find(|&key| !self.keys[key].gate.is_open())
    }

    /// Opens the next attempt of a job: takes its gates, and says so durably before anybody is offered it.
    fn open_attempt(&mut self, now: Now, job: Ix, bin: Ix, effects: &mut Effects) {
        self.starts += 1;
        let place = self.kinds[self.classes[self.jobs[job].class].kind].place;
        let leased = self.places[place].mode == PlaceMode::Leased;
        let entry = &mut self.jobs[job];
        entry.attempts += 1;
        entry.queue_until = MaybeMono::NONE;
        let open = Open {
            attempt_id: self.rng.attempt_id(),
            lease_epoch: 1,
            place,
            opened_at: now.wall,
            started_at: (!leased).then_some(now.wall),
            lease: if leased { self.settings.lease } else { crate::Span(0) },
            lease_until: leased.then(|| now.mono + self.settings.ack_timeout),
            timeout_at: (!leased).then(|| now.mono + crate::Span(entry.timeout_ms)),
            stopping: None,
            dispatch_seq: entry.attempts.into(),
        };
        entry.open = self.attempts.insert(open);
        if self.jobs[job].in_run {
            let number = self.member_starts(now, job, effects);
            self.attempts[self.jobs[job].open].dispatch_seq = number;
        }
        self.run_starts(job, now.wall);
        self.set_state(job, if leased { JobState::Assigned } else { JobState::Running });

        let node = self.jobs[job].node;
        let lane = self.nodes[node].lane as usize;
        self.nodes[node].served = self.starts;
        self.lanes[lane].served = self.starts;
        let (order, _) = self.bins[bin].jobs.first().expect("the job is the head of its bin");
        self.bins[bin].jobs.remove(&order);
        self.jobs[job].bin = NONE;
        self.uncount_waiting(job);
        self.take_gates(job);
        // Back to the ready source: the gate it was parked on may have room for more.
        self.refresh_in(bin, SourceKey::READY);
        self.rekey_node(node);
        self.arm(job);
        self.count_dispatch(now, job);

        let kind = if leased { EventKind::JobAssigned } else { EventKind::JobStarted };
        self.job_event(now, kind, job, None, None, effects);
        effects.changes.push(Change::AttemptOpened(self.open_row(job)));
        effects.notices.push(Notice::Offer(self.offer(job)));
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
            dispatch_seq: open.dispatch_seq,
        }
    }

    fn offer(&self, job: Ix) -> Offer {
        let entry = &self.jobs[job];
        let open = &self.attempts[entry.open];
        Offer {
            seq: crate::Seq(entry.seq),
            fence: self.fence_of(job),
            place: self.places.key(open.place).clone(),
            kind: self.kinds.key(self.classes[entry.class].kind).clone(),
            timeout: Some(crate::Span(entry.timeout_ms)),
            deadline: entry.deadline.get(),
            dispatch_seq: open.dispatch_seq,
        }
    }

    /// True when the job must not start any more, although no timer has said so yet.
    fn is_overdue(&self, now: Now, job: Ix) -> bool {
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
