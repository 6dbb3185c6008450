//! What workers say over their connections, and what time does to those that say nothing.
//!
//! The fence of a word is the connection together with the job and the number of its dispatch: what comes over a connection
//! that lost its place changes nothing. A sign of life keeps all attempts of its worker alive and is never written: the
//! lease is the worker's, and an attempt whose own has ended looks at it before it is lost.

use crate::effect::{Offer, OfferTo};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::{AttemptEnding, JobEnding};
use crate::engine::state::{Executor, Job, Open, Tenant, Wake};
use crate::engine::workers::pool::{MISSES_MAX, RECENT_MAX, Worker};
use crate::worker::{Beat, ConnectionId, WorkerMessage, WorkerReport, WorkerView};
use crate::{
    AttemptEnd, Change, Effects, EventKind, ExecutorMode, ExecutorOffer, Failure, JobState, Mono, Name,
    Notice, Now, Origin, Outcome, Reason, Reply, Seq, Span, Task,
};

/// The place of all attempts that workers are told of. Nobody else may offer it.
pub(in crate::engine) const WORKERS: &str = "workers";
/// How long a job that a worker did not take waits, the first time; each time it is twice as long.
const REJECTED: Span = Span::secs(1);
/// Most workers that one tick looks at.
const WATCHED_MAX: usize = 1_024;

impl Engine {
    /// Something is said over a worker's connection.
    pub(in crate::engine) fn worker_message(
        &mut self,
        now: Now,
        word: WorkerMessage,
        effects: &mut Effects,
    ) -> Reply {
        let WorkerMessage { connection, report: said } = word;
        let known = self.workers.pool.connections.get(&connection).copied();
        let Some(worker) = known else { return Reply::Stale };
        match said {
            WorkerReport::Beat(beat) => self.beat(now, worker, beat, effects),
            WorkerReport::Accepted(task) => match self.find_task(worker, task) {
                Ok(job) => self.accepted(now, job, effects),
                Err(reply) => reply,
            },
            WorkerReport::Rejected(task, code) => match self.find_task(worker, task) {
                Ok(job) => self.rejected(now, job, &code, effects),
                Err(reply) => reply,
            },
            WorkerReport::Ended { task, outcome, stored } => {
                self.task_ended(now, worker, task, outcome, stored, effects)
            }
            WorkerReport::Offers(offer) => self.change_offer(worker, *offer),
            WorkerReport::Gone => self.connection_gone(now, worker, effects),
        }
    }

    /// The job of a task that this worker holds, or what its word is worth.
    fn find_task(&self, worker: Ix<Worker>, task: Task) -> Result<Ix<Job>, Reply> {
        let tenant = self.workers.entries.key(worker).0;
        let found = self.find_job(task.job);
        let Some(job) = found.filter(|&job| self.tenant_of(job) == tenant) else {
            return Err(Reply::Stale);
        };
        let current = self.dispatch_seq(job);
        if task.dispatch_seq > current {
            return Err(Reply::Gap);
        }
        let entry = &self.jobs[job];
        if task.dispatch_seq < current || entry.open.is_none() {
            return Err(Reply::Stale);
        }
        let open = &self.jobs.attempts[entry.attempt()];
        if open.pushed_to() != Some(worker) {
            return Err(Reply::NotYours);
        }
        Ok(job)
    }

    /// A sign of life, and how the worker is.
    fn beat(&mut self, now: Now, worker: Ix<Worker>, beat: Beat, effects: &mut Effects) -> Reply {
        let tenant = self.workers.entries.key(worker).0;
        let pressure = self.pressure_for(tenant);
        let saturated_after = self.settings.workers.saturated_after;
        let registration =
            self.workers.entries[worker].registration.as_mut().expect("a connection has a registered worker");
        let was_willing = registration.is_willing();
        (registration.heard_at, registration.misses, registration.beat) = (now.mono, 0, beat);
        registration.pressed = registration.is_pressed_at(&pressure);
        let drains = was_willing && (registration.pressed || beat.draining);
        let pressed = registration.pressed;
        match registration.full_since {
            _ if registration.used < registration.offer.max_parallel => {
                (registration.full_since, registration.full_told) = (None, false)
            }
            None => registration.full_since = Some(now.mono),
            Some(_) => {}
        }
        let saturated = !registration.full_told
            && registration.full_since.is_some_and(|since| now.mono.since(since) >= saturated_after);
        registration.full_told |= saturated;
        if drains {
            let why = if pressed { "its memory or its disk is too full" } else { "it says so" };
            self.worker_event(now, EventKind::WorkerDrained, worker, why, None, effects);
        }
        if saturated {
            self.worker_event(now, EventKind::WorkerSaturated, worker, "no slot is free", None, effects);
        }
        let lease = self.renew_worker(now, worker, effects);
        self.update_slot(worker);
        Reply::Alive { lease, stop: false }
    }

    /// The lease of a worker starts anew; it is never cut short.
    pub(in crate::engine) fn renew_worker(
        &mut self,
        now: Now,
        worker: Ix<Worker>,
        effects: &mut Effects,
    ) -> Span {
        let settings_lease = self.settings.lease;
        let registration = self.workers.entries[worker].registration.as_mut().expect("it is registered");
        let lease = lease_for(settings_lease, registration.heartbeat);
        registration.lease_until = registration.lease_until.max(now.mono + lease);
        if lease > registration.lease {
            registration.lease = lease;
            let held: Vec<Ix<Job>> = self.workers.entries[worker].held.iter().copied().collect();
            for job in held {
                let open = self.jobs.open_mut(job);
                if open.is_pushed() && open.lease < lease {
                    // A restart must know that the runner was told a longer one.
                    open.lease = lease;
                    effects.changes.push(Change::LeaseExtended(self.open_row(job)));
                }
            }
        }
        lease
    }

    /// The worker took the task; or it still runs one that was offered again.
    fn accepted(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) -> Reply {
        self.jobs.open_mut(job).acked = true;
        if self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        }
        self.renew(now, job, effects)
    }

    /// The worker did not take the task.
    fn rejected(&mut self, now: Now, job: Ix<Job>, code: &Name, effects: &mut Effects) -> Reply {
        if self.jobs[job].state.is_terminal() {
            self.release_lingering(now, job, effects);
        } else if let Some((cause, _)) = self.jobs.open(job).stopping {
            self.close_stopped(now, job, cause, effects);
        } else {
            let why = format!("the last worker rejected it: {code}");
            // The worker's own code says more than that the attempt was handed back.
            let (end, code) = (AttemptEnd::HandedBack, Some(code.as_str()));
            self.not_taken(now, job, AttemptEnding { end, failure: None, code }, &why, effects);
        }
        Reply::Done
    }

    /// The worker did not say in time whether it took the task.
    pub(in crate::engine) fn unanswered(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        self.tell_stop(job, effects);
        let why = "the last worker did not answer in time";
        self.not_taken(now, job, AttemptEnd::Unanswered.into(), why, effects);
    }

    /// A job that no worker took waits a while, longer each time, and fails when that came too often.
    fn not_taken(
        &mut self,
        now: Now,
        job: Ix<Job>,
        closed: AttemptEnding<'_>,
        why: &str,
        effects: &mut Effects,
    ) {
        let entry = &mut self.jobs[job];
        entry.rejections = entry.rejections.saturating_add(1);
        let times = entry.rejections;
        if times > self.settings.workers.rejections_max {
            let message = format!("no worker took it, {times} times; {why}");
            let failure = Failure::permanent("E.DISPATCH.UNAVAILABLE", message);
            let closed = Some(AttemptEnding { failure: Some(failure), ..closed });
            let ending = JobEnding { closed, ..JobEnding::new(JobState::Failed, Reason::Unavailable) };
            return self.end_job(now, job, ending, effects);
        }
        let ends = self.ends_with_server(job);
        self.hand_back(now, job, closed, effects);
        if !ends && self.jobs[job].state == JobState::Queued {
            let wait = Span(REJECTED.0 << times.saturating_sub(1).min(16));
            self.defer(now, job, Wake::Backoff(now.mono + wait), Reason::HandedBack, effects);
        }
    }

    /// A task has ended, or is said to have.
    fn task_ended(
        &mut self,
        now: Now,
        worker: Ix<Worker>,
        task: Task,
        outcome: Outcome,
        stored: Option<AttemptEnd>,
        effects: &mut Effects,
    ) -> Reply {
        let job = match self.find_task(worker, task) {
            Ok(job) => job,
            Err(reply) => {
                let registration = self.workers.entries[worker]
                    .registration
                    .as_ref()
                    .expect("a connection has a registered worker");
                let by_result = matches!(stored, Some(AttemptEnd::Succeeded | AttemptEnd::Failed));
                let known = by_result || registration.recent.contains(&task);
                return if known { Reply::Duplicate } else { reply };
            }
        };
        let fence = self.fence_of(job);
        // The result is remembered first: with it the last attempt of a worker that is away would take its registration with it.
        let reply = self.finish(now, &fence, outcome, effects);
        if reply == Reply::Done
            && let Some(registration) = self.workers.entries[worker].registration.as_mut()
        {
            if registration.recent.len() == RECENT_MAX {
                registration.recent.pop_front();
            }
            registration.recent.push_back(task);
        }
        reply
    }

    /// Somebody wants a worker to take nothing new, or something again.
    pub(in crate::engine) fn drain_worker(
        &mut self,
        now: Now,
        tenant: &Name,
        worker: &Name,
        drain: bool,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(worker) = self.find_registered(tenant, worker) else { return Reply::NotFound };
        let registration = self.workers.entries[worker].registration.as_mut().expect("it is registered");
        if registration.orders.drained == drain {
            return Reply::Done;
        }
        registration.orders.drained = drain;
        let connection = registration.connection;
        self.update_slot(worker);
        if drain {
            let why = "somebody said so";
            self.worker_event(now, EventKind::WorkerDrained, worker, why, Some(origin), effects);
            effects.notices.extend(connection.map(Notice::DrainConnection));
        } else {
            let detail = format!("worker {} takes tasks again", self.workers.entries.key(worker).1);
            let tenant = Some(tenant.clone());
            self.server_event(now, EventKind::CallDone, tenant, Some(origin), detail.into(), effects);
        }
        Reply::Done
    }

    /// Looks at workers of which nothing was heard for a while.
    pub(in crate::engine) fn watch_workers(&mut self, now: Now, effects: &mut Effects) {
        for _ in 0..WATCHED_MAX {
            match self.workers.pool.watch.first() {
                Some(&(at, worker)) if at <= now.mono => self.look_at_worker(now, worker, effects),
                _ => return,
            }
        }
    }

    fn look_at_worker(&mut self, now: Now, worker: Ix<Worker>, effects: &mut Effects) {
        let floor = self.clock.lease_floor;
        let Some(registration) = self.workers.entries[worker].registration.as_mut() else {
            // It was waited for long enough: what it has is not there.
            self.no_longer_awaited(worker);
            self.throw_gates_open(worker);
            return;
        };
        self.workers.pool.watch.remove(&(registration.watch_at, worker));
        if floor > now.mono {
            // This process heard nobody for a while: what waits to be heard comes first.
            registration.watch_at = floor;
            self.workers.pool.watch.insert((floor, worker));
            return;
        }
        if registration.connection.is_none() {
            // Nobody expects a sign of life of one that is away; its leases end by themselves.
            registration.watch_at = now.mono + registration.heartbeat;
            self.workers.pool.watch.insert((registration.watch_at, worker));
            return;
        }
        let every = registration.heartbeat.0.max(1);
        let missed = now.mono.since(registration.heard_at).0 / every;
        let missed = u8::try_from(missed).unwrap_or(u8::MAX).min(MISSES_MAX);
        let before = std::mem::replace(&mut registration.misses, missed);
        // One that is lost is looked at again when it was heard of.
        let next = if missed == MISSES_MAX {
            now.mono + registration.heartbeat
        } else {
            registration.heard_at + Span(every * u64::from(missed + 1))
        };
        registration.watch_at = next;
        self.workers.pool.watch.insert((next, worker));
        if missed <= before {
            return;
        }
        if missed == MISSES_MAX {
            let why = "three heartbeats are missing";
            self.worker_event(now, EventKind::WorkerLost, worker, why, None, effects);
            self.update_slot(worker);
            self.end_bindings_of(worker);
        } else if missed == 2 {
            let why = "two heartbeats are missing";
            self.worker_event(now, EventKind::WorkerDegraded, worker, why, None, effects);
        }
    }

    pub(in crate::engine) fn worker_event(
        &mut self,
        now: Now,
        kind: EventKind,
        worker: Ix<Worker>,
        why: &str,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        let (tenant, name) = self.workers.entries.key(worker);
        let (tenant, detail) = (self.queue.tenants.key(*tenant).clone(), format!("{name}: {why}"));
        self.server_event(now, kind, Some(tenant), origin, detail.into(), effects);
    }

    /// Adds a user of a worker.
    pub(in crate::engine) fn hold_worker(&mut self, tenant: Ix<Tenant>, name: &Name) -> Ix<Worker> {
        self.workers.entries.hold(&(tenant, name.clone()), Worker::default)
    }

    /// A registered worker by name.
    pub(in crate::engine) fn find_registered(&self, tenant: &Name, worker: &Name) -> Option<Ix<Worker>> {
        let worker = self.workers.entries.find(&(self.queue.tenants.find(tenant)?, worker.clone()))?;
        self.workers.entries[worker].registration.is_some().then_some(worker)
    }

    /// The place of attempts that workers are told of.
    pub(in crate::engine) fn workers_executor(&mut self) -> Ix<Executor> {
        let name = Name::fixed(WORKERS);
        if let Some(executor) = self.queue.executors.find(&name) {
            return executor;
        }
        let (mode, kinds) = (ExecutorMode::Leased, Vec::new());
        self.offer_executor(ExecutorOffer { executor: name.clone(), mode, kinds, slots: u32::MAX });
        self.queue.executors.find(&name).expect("it was just made")
    }

    /// Until when an attempt lives without being heard of: its own lease, or its worker's.
    pub(in crate::engine) fn lease_end(&self, open: &Open) -> Option<Mono> {
        let Some(worker) = open.pushed_to().filter(|_| open.acked) else { return open.lease_until };
        let registration = self.workers.entries[worker].registration.as_ref();
        open.lease_until.max(registration.map(|registration| registration.lease_until))
    }

    /// The lease of an attempt that a worker was told of.
    pub(in crate::engine) fn worker_lease_of(&self, job: Ix<Job>) -> Option<Span> {
        let open = self.attempt_of(job)?;
        let registration = self.workers.entries[open.pushed_to()?].registration.as_ref();
        Some(registration.map_or(self.settings.lease.max(open.lease), |registration| registration.lease))
    }

    /// True for an attempt whose worker has no connection: it hears nothing, and runs on until its lease ends.
    pub(in crate::engine) fn hears_nothing(&self, open: &Open) -> bool {
        open.is_pushed() && self.connection_of(open).is_none()
    }

    pub(in crate::engine) fn connection_of(&self, open: &Open) -> Option<ConnectionId> {
        self.workers.entries[open.pushed_to()?].registration.as_ref()?.connection
    }

    /// Which dispatch of a job, or of its run, its latest attempt is. Of a node that is not open it is the latest of its
    /// run: whatever was sent before is stale.
    pub(in crate::engine) fn dispatch_seq(&self, job: Ix<Job>) -> u64 {
        let entry = &self.jobs[job];
        match entry.open {
            None if entry.in_run => self.dispatched_in_run(job),
            None => entry.attempts.into(),
            Some(open) => self.jobs.attempts[open].dispatch_seq,
        }
    }

    /// How many attempts of a member's run were opened.
    fn dispatched_in_run(&self, job: Ix<Job>) -> u64 {
        let run = self.workflows.runs.members.get(&job).and_then(|(id, _)| self.workflows.runs.open.get(id));
        run.map_or(self.jobs[job].attempts.into(), |run| run.dispatched)
    }

    /// The offer of a job's open attempt.
    pub(in crate::engine) fn offer(&self, job: Ix<Job>, again: bool) -> Offer {
        let entry = &self.jobs[job];
        let open = &self.jobs.attempts[entry.attempt()];
        let to = open.pushed_to().zip(self.connection_of(open)).map(|(worker, connection)| {
            let (tenant, worker) = self.workers.entries.key(worker);
            let (tenant, worker) = (self.queue.tenants.key(*tenant).clone(), worker.clone());
            OfferTo { connection, tenant, worker, lease: self.lease_of(job), again }
        });
        Offer {
            seq: Seq(entry.seq),
            fence: self.fence_of(job),
            executor: self.queue.executors.key(open.executor).clone(),
            kind: self.queue.kinds.key(self.kind_of(job)).clone(),
            timeout: Some(Span(entry.timeout_ms)),
            deadline: entry.deadline.get(),
            dispatch_seq: self.dispatch_seq(job),
            to,
        }
    }

    fn pressure_for(&self, tenant: Ix<Tenant>) -> crate::worker::Pressure {
        let settings = &self.settings.workers;
        *settings.pressure_of.get(self.queue.tenants.key(tenant)).unwrap_or(&settings.pressure)
    }

    /// Registered workers by tenant and name; of one tenant, or of all.
    pub fn workers(&self, now: Now, tenant: Option<&Name>) -> Vec<WorkerView> {
        let theirs = |of: Ix<Tenant>| tenant.is_none_or(|tenant| self.queue.tenants.key(of) == tenant);
        let registered = self.workers.entries.iter().filter(|(_, (of, _), _)| theirs(*of));
        let mut views: Vec<WorkerView> =
            registered.filter_map(|(_, _, worker)| self.view(now, worker)).collect();
        views.sort_by(|a, b| (&a.offer.tenant, &a.offer.worker).cmp(&(&b.offer.tenant, &b.offer.worker)));
        views
    }

    /// A registered worker by name.
    pub fn worker(&self, now: Now, tenant: &Name, worker: &Name) -> Option<WorkerView> {
        let worker = self.find_registered(tenant, worker)?;
        self.view(now, &self.workers.entries[worker])
    }

    fn view(&self, now: Now, worker: &Worker) -> Option<WorkerView> {
        let registration = worker.registration.as_deref()?;
        let pushed = |job: &&Ix<Job>| self.jobs.attempts[self.jobs[**job].attempt()].is_pushed();
        let open = u32::try_from(worker.held.iter().filter(pushed).count()).unwrap_or(u32::MAX);
        Some(WorkerView {
            offer: registration.offer.clone(),
            connection: registration.connection,
            standing: registration.standing(),
            open,
            connected_at: registration.connected_at,
            silent: now.mono.since(registration.heard_at),
            heartbeat: registration.heartbeat,
            beat: registration.beat,
            lanes: self.workers.pool.groups[registration.group].skills.lanes.clone(),
            orders: registration.orders.clone(),
            pressed: registration.pressed,
        })
    }
}

/// The lease of a worker: no shorter than the heartbeats that it may miss.
pub(in crate::engine) fn lease_for(lease: Span, heartbeat: Span) -> Span {
    lease.max(Span(heartbeat.0.saturating_mul(u64::from(MISSES_MAX))))
}
