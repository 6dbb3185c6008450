//! What workers say over their connections, and what time does to those that say nothing.
//!
//! The fence of a word is the connection together with the job and the number of its dispatch: what comes over a connection
//! that lost its place changes nothing. A sign of life keeps all attempts of its worker alive and is never written: the
//! lease is the worker's, and an attempt whose own has ended looks at it before it is lost.

use super::Engine;
use super::fleet::{MISSES_MAX, Post, RECENT_MAX, Worker};
use super::slab::{Ix, NONE};
use super::state::{Open, Wake};
use crate::effect::{Offer, OfferTo};
use crate::worker::{Beat, ConnectionId, WorkerSaid, WorkerView, WorkerWord};
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{
    AttemptEnd, Change, Effects, EventKind, Failure, JobState, Mono, Name, Notice, Now, Origin, Outcome,
    PlaceMode, PlaceOffer, Reason, Reply, Seq, Span, Task,
};

/// The place of all attempts that workers are told of. Nobody else may offer it.
pub(super) const WORKERS: &str = "workers";
/// How long a job that a worker did not take waits, the first time; each time it is twice as long.
const REFUSED: Span = Span::secs(1);
/// Most workers that one tick looks at.
const WATCHED_MAX: usize = 1_024;

impl Engine {
    /// Something is said over a worker's connection.
    pub(super) fn worker_word(&mut self, now: Now, word: WorkerWord, effects: &mut Effects) -> Reply {
        let WorkerWord { connection, said } = word;
        let known = self.fleet.connections.get(&connection).copied();
        #[cfg(feature = "zoo")]
        let known = known.or_else(|| self.believed_in_the_zoo(connection, &said));
        let Some(worker) = known else { return Reply::Stale };
        match said {
            WorkerSaid::Beat(beat) => self.beat(now, worker, beat, effects),
            WorkerSaid::Accepted(task) => match self.find_task(worker, task) {
                Ok(job) => self.accepted(now, job, effects),
                Err(reply) => reply,
            },
            WorkerSaid::Rejected(task, code) => match self.find_task(worker, task) {
                Ok(job) => self.rejected(now, job, &code, effects),
                Err(reply) => reply,
            },
            WorkerSaid::Ended { task, outcome, stored } => {
                self.task_ended(now, worker, task, outcome, stored, effects)
            }
            WorkerSaid::Offers(offer) => self.change_offer(worker, *offer),
            WorkerSaid::Gone => self.connection_gone(now, worker, effects),
        }
    }

    /// Bugs that believe connections that lost their place.
    #[cfg(feature = "zoo")]
    fn believed_in_the_zoo(&self, connection: ConnectionId, said: &WorkerSaid) -> Option<Ix> {
        let bug = match said {
            WorkerSaid::Gone => Bug::SupersededCloseEvictsNew,
            WorkerSaid::Ended { .. } => Bug::ResultOfOldConnectionCounted,
            _ => return None,
        };
        let worker = *self.fleet.ever.get(&connection)?;
        let there = self.fleet.connections.values().any(|known| *known == worker);
        (zoo::is_out(bug) && there).then_some(worker)
    }

    /// The job of a task that this worker holds, or what its word is worth.
    fn find_task(&self, worker: Ix, task: Task) -> Result<Ix, Reply> {
        let tenant = self.workers.key(worker).0;
        let found = self.find_job(task.job);
        let Some(job) = found.filter(|&job| self.classes[self.jobs[job].class].tenant == tenant) else {
            return Err(Reply::Stale);
        };
        let current = self.dispatch_seq(job);
        #[cfg(feature = "zoo")]
        let task = if zoo::is_out(Bug::DuplicateResultCounted) && task.dispatch_seq < current {
            Task { dispatch_seq: current, ..task }
        } else {
            task
        };
        if task.dispatch_seq > current {
            return Err(Reply::Gap);
        }
        let entry = &self.jobs[job];
        if task.dispatch_seq < current || entry.open == NONE {
            return Err(Reply::Stale);
        }
        let open = &self.attempts[entry.open];
        if open.worker != worker || !open.is_pushed() {
            return Err(Reply::NotYours);
        }
        Ok(job)
    }

    /// A sign of life, and how the worker is.
    fn beat(&mut self, now: Now, worker: Ix, beat: Beat, effects: &mut Effects) -> Reply {
        let tenant = self.workers.key(worker).0;
        let pressure = self.pressure_for(tenant);
        let saturated_after = self.settings.workers.saturated_after;
        let post = self.workers[worker].post.as_mut().expect("a connection has a registered worker");
        let was_willing = post.is_willing();
        (post.heard_at, post.misses, post.beat) = (now.mono, 0, beat);
        post.pressed = post.is_pressed_at(&pressure);
        let drains = was_willing && (post.pressed || beat.draining);
        let pressed = post.pressed;
        match post.full_since {
            _ if post.used < post.offer.max_parallel => (post.full_since, post.full_told) = (None, false),
            None => post.full_since = Some(now.mono),
            Some(_) => {}
        }
        let saturated =
            !post.full_told && post.full_since.is_some_and(|since| now.mono.since(since) >= saturated_after);
        post.full_told |= saturated;
        if drains {
            let why = if pressed { "its memory or its disk is too full" } else { "it says so" };
            self.worker_event(now, EventKind::WorkerDrained, worker, why, None, effects);
        }
        if saturated {
            self.worker_event(now, EventKind::WorkerSaturated, worker, "no slot is free", None, effects);
        }
        let lease = self.renew_worker(now, worker, effects);
        self.reseat(worker);
        Reply::Alive { lease, stop: false }
    }

    /// The lease of a worker starts anew; it is never cut short.
    pub(super) fn renew_worker(&mut self, now: Now, worker: Ix, effects: &mut Effects) -> Span {
        let settings_lease = self.settings.lease;
        let post = self.workers[worker].post.as_mut().expect("it is registered");
        let lease = lease_for(settings_lease, post.heartbeat);
        post.lease_until = post.lease_until.max(now.mono + lease);
        if lease > post.lease {
            post.lease = lease;
            let held: Vec<Ix> = self.workers[worker].held.iter().copied().collect();
            for job in held {
                let open = &mut self.attempts[self.jobs[job].open];
                if open.is_pushed() && open.lease < lease {
                    // A restart must know that the runner was told a longer one.
                    open.lease = lease;
                    effects.changes.push(Change::AttemptStarted(self.open_row(job)));
                }
            }
        }
        lease
    }

    /// The worker took the task; or it still runs one that was offered again.
    fn accepted(&mut self, now: Now, job: Ix, effects: &mut Effects) -> Reply {
        self.attempts[self.jobs[job].open].acked = true;
        if self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        }
        self.renew(now, job, effects)
    }

    /// The worker did not take the task.
    fn rejected(&mut self, now: Now, job: Ix, code: &Name, effects: &mut Effects) -> Reply {
        if self.jobs[job].state.is_terminal() {
            self.release_lingering(now, job, effects);
        } else if let Some((cause, _)) = self.attempts[self.jobs[job].open].stopping {
            self.close_stopped(now, job, cause, effects);
        } else {
            let why = format!("the last worker refused it: {code}");
            let (line, before) = (self.dispatch_line(job, code.as_str()), effects.events.len());
            self.refused(now, job, AttemptEnd::HandedBack, &why, effects);
            // The worker's own code says more than that the attempt was given back.
            if let Some(event) = effects.events[before..].iter_mut().find(|event| event.detail.is_some()) {
                event.detail = line;
            }
        }
        Reply::Done
    }

    /// The worker did not say in time whether it took the task.
    pub(super) fn unanswered(&mut self, now: Now, job: Ix, effects: &mut Effects) {
        self.tell_stop(job, effects);
        self.refused(now, job, AttemptEnd::Unanswered, "the last worker did not answer in time", effects);
    }

    /// A job that no worker took waits a while, longer each time, and fails when that came too often.
    fn refused(&mut self, now: Now, job: Ix, end: AttemptEnd, why: &str, effects: &mut Effects) {
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::AckTimeoutResetsCount) && end == AttemptEnd::Unanswered {
            self.jobs[job].rejections = 0;
        }
        let entry = &mut self.jobs[job];
        entry.rejections = entry.rejections.saturating_add(1);
        let times = entry.rejections;
        if times > self.settings.workers.rejections_max {
            let message = format!("no worker took it, {times} times; {why}");
            let failure = Failure::permanent("E.DISPATCH.UNAVAILABLE", message);
            let closed = Some((end, Some(failure)));
            let (state, reason) = (JobState::Failed, Reason::Unavailable);
            return self.end_job(now, job, state, reason, closed, None, None, effects);
        }
        let ends = self.ends_with_server(job);
        self.hand_back(now, job, end, effects);
        if !ends && self.jobs[job].state == JobState::Queued {
            let wait = Span(REFUSED.0 << times.saturating_sub(1).min(16));
            self.defer(now, job, Wake::Backoff(now.mono + wait), Reason::HandedBack, effects);
        }
    }

    /// A task has ended, or is said to have.
    fn task_ended(
        &mut self,
        now: Now,
        worker: Ix,
        task: Task,
        outcome: Outcome,
        stored: Option<AttemptEnd>,
        effects: &mut Effects,
    ) -> Reply {
        let job = match self.find_task(worker, task) {
            Ok(job) => job,
            Err(reply) => {
                let post = self.workers[worker].post.as_ref().expect("a connection has a registered worker");
                let by_result = matches!(stored, Some(AttemptEnd::Succeeded | AttemptEnd::Failed));
                let known = by_result || post.recent.contains(&task);
                return if known { Reply::Duplicate } else { reply };
            }
        };
        let fence = self.fence_of(job);
        // The result is remembered first: with it the last attempt of a worker that is away would take its post with it.
        let reply = self.finish(now, &fence, outcome, effects);
        if reply == Reply::Done
            && let Some(post) = self.workers[worker].post.as_mut()
        {
            if post.recent.len() == RECENT_MAX {
                post.recent.pop_front();
            }
            post.recent.push_back(task);
        }
        reply
    }

    /// Somebody wants a worker to take nothing new, or something again.
    pub(super) fn drain_worker(
        &mut self,
        now: Now,
        tenant: &Name,
        worker: &Name,
        drain: bool,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(worker) = self.find_post(tenant, worker) else { return Reply::NotFound };
        let post = self.workers[worker].post.as_mut().expect("it is registered");
        if post.orders.drained == drain {
            return Reply::Done;
        }
        post.orders.drained = drain;
        let connection = post.connection;
        self.reseat(worker);
        if drain {
            let why = "somebody said so";
            self.worker_event(now, EventKind::WorkerDrained, worker, why, Some(origin), effects);
            effects.notices.extend(connection.map(Notice::DrainConnection));
        } else {
            let detail = format!("worker {} takes tasks again", self.workers.key(worker).1);
            let tenant = Some(tenant.clone());
            self.house_event(now, EventKind::CallDone, tenant, Some(origin), detail.into(), effects);
        }
        Reply::Done
    }

    /// Looks at workers of which nothing was heard for a while.
    pub(super) fn watch_workers(&mut self, now: Now, effects: &mut Effects) {
        for _ in 0..WATCHED_MAX {
            match self.fleet.watch.first() {
                Some(&(at, worker)) if at <= now.mono => self.look_at_worker(now, worker, effects),
                _ => return,
            }
        }
    }

    fn look_at_worker(&mut self, now: Now, worker: Ix, effects: &mut Effects) {
        let floor = self.lease_floor;
        let Some(post) = self.workers[worker].post.as_mut() else {
            // It was waited for long enough: what it has is not there.
            self.no_longer_awaited(worker);
            self.throw_gates_open(worker);
            return;
        };
        self.fleet.watch.remove(&(post.watch_at, worker));
        if floor > now.mono {
            // This process heard nobody for a while: what waits to be heard comes first.
            post.watch_at = floor;
            self.fleet.watch.insert((floor, worker));
            return;
        }
        if post.connection.is_none() {
            // Nobody expects a sign of life of one that is away; its leases end by themselves.
            post.watch_at = now.mono + post.heartbeat;
            self.fleet.watch.insert((post.watch_at, worker));
            return;
        }
        let every = post.heartbeat.0.max(1);
        let missed = now.mono.since(post.heard_at).0 / every;
        let missed = u8::try_from(missed).unwrap_or(u8::MAX).min(MISSES_MAX);
        let before = std::mem::replace(&mut post.misses, missed);
        // One that is lost is looked at again when it was heard of.
        let next = if missed == MISSES_MAX {
            now.mono + post.heartbeat
        } else {
            post.heard_at + Span(every * u64::from(missed + 1))
        };
        post.watch_at = next;
        self.fleet.watch.insert((next, worker));
        if missed <= before {
            return;
        }
        if missed == MISSES_MAX {
            let why = "three heartbeats are missing";
            self.worker_event(now, EventKind::WorkerLost, worker, why, None, effects);
            self.reseat(worker);
            self.end_bindings_of(worker);
        } else if missed == 2 {
            let why = "two heartbeats are missing";
            self.worker_event(now, EventKind::WorkerDegraded, worker, why, None, effects);
        }
    }

    pub(super) fn worker_event(
        &mut self,
        now: Now,
        kind: EventKind,
        worker: Ix,
        why: &str,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        let (tenant, name) = self.workers.key(worker);
        let (tenant, detail) = (self.tenants.key(*tenant).clone(), format!("{name}: {why}"));
        self.house_event(now, kind, Some(tenant), origin, detail.into(), effects);
    }

    /// Adds a user of a worker.
    pub(super) fn hold_worker(&mut self, tenant: Ix, name: &Name) -> Ix {
        self.workers.hold(&(tenant, name.clone()), Worker::default)
    }

    /// A registered worker by name.
    pub(super) fn find_post(&self, tenant: &Name, worker: &Name) -> Option<Ix> {
        let worker = self.workers.find(&(self.tenants.find(tenant)?, worker.clone()))?;
        self.workers[worker].post.is_some().then_some(worker)
    }

    /// The place of attempts that workers are told of.
    pub(super) fn workers_place(&mut self) -> Ix {
        let name = Name::fixed(WORKERS);
        if let Some(place) = self.places.find(&name) {
            return place;
        }
        let (mode, kinds) = (PlaceMode::Leased, Vec::new());
        self.offer_place(PlaceOffer { place: name.clone(), mode, kinds, slots: u32::MAX });
        self.places.find(&name).expect("it was just made")
    }

    /// Until when an attempt lives without being heard of: its own lease, or its worker's.
    pub(super) fn lease_end(&self, open: &Open) -> Option<Mono> {
        if !open.is_pushed() || !open.acked {
            return open.lease_until;
        }
        let post = self.workers[open.worker].post.as_ref();
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::LostWorkerKeepsAttempt) && post.is_some_and(|post| post.misses == MISSES_MAX) {
            return Some(Mono(u64::MAX));
        }
        open.lease_until.max(post.map(|post| post.lease_until))
    }

    /// The lease of an attempt that a worker was told of.
    pub(super) fn worker_lease_of(&self, job: Ix) -> Option<Span> {
        let open = (self.jobs[job].open != NONE).then(|| &self.attempts[self.jobs[job].open])?;
        if !open.is_pushed() {
            return None;
        }
        let post = self.workers[open.worker].post.as_ref();
        Some(post.map_or(self.settings.lease.max(open.lease), |post| post.lease))
    }

    /// True for an attempt whose worker has no connection: it hears nothing, and runs on until its lease ends.
    pub(super) fn hears_nothing(&self, open: &Open) -> bool {
        open.is_pushed() && self.connection_of(open).is_none()
    }

    pub(super) fn connection_of(&self, open: &Open) -> Option<ConnectionId> {
        if !open.is_pushed() {
            return None;
        }
        self.workers[open.worker].post.as_ref()?.connection
    }

    /// Which dispatch of a job, or of its run, its latest attempt is. Of a node that is not open it is the latest of its
    /// run: whatever was sent before is stale.
    pub(super) fn dispatch_seq(&self, job: Ix) -> u64 {
        let entry = &self.jobs[job];
        match entry.open {
            NONE if entry.in_run => self.dispatched_in_run(job),
            NONE => entry.attempts.into(),
            open => self.attempts[open].dispatch_seq,
        }
    }

    /// How many attempts of a member's run were opened.
    fn dispatched_in_run(&self, job: Ix) -> u64 {
        let run = self.runs.members.get(&job).and_then(|(id, _)| self.runs.open.get(id));
        run.map_or(self.jobs[job].attempts.into(), |run| run.dispatched)
    }

    /// The offer of a job's open attempt.
    pub(super) fn offer(&self, job: Ix, again: bool) -> Offer {
        let entry = &self.jobs[job];
        let open = &self.attempts[entry.open];
        let to = self.connection_of(open).map(|connection| {
            let (tenant, worker) = self.workers.key(open.worker);
            let (tenant, worker) = (self.tenants.key(*tenant).clone(), worker.clone());
            OfferTo { connection, tenant, worker, lease: self.lease_of(job), again }
        });
        Offer {
            seq: Seq(entry.seq),
            fence: self.fence_of(job),
            place: self.places.key(open.place).clone(),
            kind: self.kinds.key(self.classes[entry.class].kind).clone(),
            timeout: Some(Span(entry.timeout_ms)),
            deadline: entry.deadline.get(),
            dispatch_seq: self.dispatch_seq(job),
            to,
        }
    }

    fn pressure_for(&self, tenant: Ix) -> crate::worker::Pressure {
        let settings = &self.settings.workers;
        *settings.pressure_of.get(self.tenants.key(tenant)).unwrap_or(&settings.pressure)
    }

    /// Registered workers by tenant and name; of one tenant, or of all.
    pub fn workers(&self, now: Now, tenant: Option<&Name>) -> Vec<WorkerView> {
        let theirs = |of: Ix| tenant.is_none_or(|tenant| self.tenants.key(of) == tenant);
        let registered = self.workers.iter().filter(|(_, (of, _), _)| theirs(*of));
        let mut views: Vec<WorkerView> =
            registered.filter_map(|(_, _, worker)| Some(self.view(now, worker.post.as_deref()?))).collect();
        views.sort_by(|a, b| (&a.offer.tenant, &a.offer.worker).cmp(&(&b.offer.tenant, &b.offer.worker)));
        views
    }

    /// A registered worker by name.
    pub fn worker(&self, now: Now, tenant: &Name, worker: &Name) -> Option<WorkerView> {
        let worker = self.find_post(tenant, worker)?;
        self.workers[worker].post.as_deref().map(|post| self.view(now, post))
    }

    fn view(&self, now: Now, post: &Post) -> WorkerView {
        WorkerView {
            offer: post.offer.clone(),
            connection: post.connection,
            standing: post.standing(),
            open: post.used,
            connected_at: post.connected_at,
            silent: now.mono.since(post.heard_at),
            heartbeat: post.heartbeat,
            beat: post.beat,
            lanes: self.fleet.groups[post.group].skills.lanes.clone(),
            orders: post.orders.clone(),
            pressed: post.pressed,
        }
    }
}

/// The lease of a worker: no shorter than the heartbeats that it may miss.
pub(super) fn lease_for(lease: Span, heartbeat: Span) -> Span {
    lease.max(Span(heartbeat.0.saturating_mul(u64::from(MISSES_MAX))))
}
