//! Messages of push workers, and workers that send none.
//!
//! The fence of a message is the connection together with the job and the number of its dispatch: a message over a replaced
//! connection changes nothing. A heartbeat keeps all attempts of its worker alive and is never stored: the lease is the
//! worker's, and an attempt whose own lease is over is lost only when its worker's is, too.

use crate::effect::{Offer, OfferTo};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::{AttemptEnding, JobEnding};
use crate::engine::jobs::{Job, Wake};
use crate::engine::workers::Worker;
use crate::engine::workers::record::MISSES_MAX;
use crate::worker::{Beat, WorkerMessage, WorkerReport};
use crate::{
    AttemptEnd, Change, Effects, EventKind, Failure, JobState, Name, Notice, Now, Origin, Outcome, Reason,
    Reply, Seq, Span, Task,
};

/// The executor of all attempts of push workers. No other executor may have this name.
pub(in crate::engine) const WORKERS: &str = "workers";
/// How long a job waits that a worker did not accept, the first time; each time it is twice as long.
const REJECTED: Span = Span::secs(1);
/// Most workers that one tick checks.
const WATCHED_MAX: usize = 1_024;

impl Engine {
    /// A message over a worker's connection.
    pub(in crate::engine) fn worker_message(
        &mut self,
        now: Now,
        message: WorkerMessage,
        effects: &mut Effects,
    ) -> Reply {
        let WorkerMessage { connection, report } = message;
        let known = self.workers.pool.connections.get(&connection).copied();
        let Some(worker) = known else { return Reply::Stale };
        match report {
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
            WorkerReport::Offers(offer) => {
                self.workers.change_offer(&self.settings, &mut self.queue, worker, *offer)
            }
            WorkerReport::Gone => self.connection_gone(now, worker, effects),
        }
    }

    /// The tenant, the worker and the task of a report on the end of a task that the engine does not know. The caller looks
    /// up in the store how that attempt ended, and fills in `stored` of the report.
    pub fn unknown_task(&self, message: &WorkerMessage) -> Option<(&Name, &Name, Task)> {
        let WorkerReport::Ended { task, .. } = message.report else { return None };
        let worker = *self.workers.pool.connections.get(&message.connection)?;
        match self.find_task(worker, task) {
            Ok(_) | Err(Reply::Gap) => None,
            Err(_) => {
                let (tenant, name) = self.workers.entries.key(worker);
                Some((self.queue.tenant_name(*tenant), name, task))
            }
        }
    }

    /// The job of a task that this worker holds, or the reply to its report.
    fn find_task(&self, worker: Ix<Worker>, task: Task) -> Result<Ix<Job>, Reply> {
        let tenant = self.workers.entries.key(worker).0;
        let found = self.jobs.find(task.job);
        let Some(job) = found.filter(|&job| self.queue.tenant_of(&self.jobs[job]) == tenant) else {
            return Err(Reply::Stale);
        };
        let current = self.workflows.dispatch_seq(&self.jobs, job);
        if task.dispatch_seq > current {
            return Err(Reply::Gap);
        }
        let entry = &self.jobs[job];
        if task.dispatch_seq < current || !entry.has_attempt() {
            return Err(Reply::Stale);
        }
        let open = self.jobs.open(job);
        if open.pushed_to() != Some(worker) {
            return Err(Reply::NotYours);
        }
        Ok(job)
    }

    /// A heartbeat.
    fn beat(&mut self, now: Now, worker: Ix<Worker>, beat: Beat, effects: &mut Effects) -> Reply {
        let (settings, tenant) = (&self.settings.workers, self.workers.entries.key(worker).0);
        let own = settings.pressure_of.get(self.queue.tenant_name(tenant));
        let pressure = *own.unwrap_or(&settings.pressure);
        let saturated_after = settings.saturated_after;
        let registration = self.workers.registered_mut(worker);
        let was_willing = registration.is_willing();
        (registration.heard_at, registration.misses, registration.beat) = (now.mono, 0, beat);
        registration.pressed = registration.is_pressed_at(&pressure);
        let drains = was_willing && (registration.pressed || beat.draining);
        let pressed = registration.pressed;
        match registration.full_since {
            _ if registration.used < registration.offer.max_parallel => {
                (registration.full_since, registration.full_noted) = (None, false)
            }
            None => registration.full_since = Some(now.mono),
            Some(_) => {}
        }
        let saturated = !registration.full_noted
            && registration.full_since.is_some_and(|since| now.mono.since(since) >= saturated_after);
        registration.full_noted |= saturated;
        if drains {
            let why = if pressed { "its memory or its disk is too full" } else { "it says so" };
            self.worker_event(now, EventKind::WorkerDrained, worker, why, None, effects);
        }
        if saturated {
            self.worker_event(now, EventKind::WorkerSaturated, worker, "no slot is free", None, effects);
        }
        let lease = self.renew_worker(now, worker, effects);
        self.workers.update_slot(&mut self.queue, worker);
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
        let registration = self.workers.registered_mut(worker);
        let lease = lease_for(settings_lease, registration.heartbeat);
        registration.lease_until = registration.lease_until.max(now.mono + lease);
        if lease > registration.lease {
            registration.lease = lease;
            let held: Vec<Ix<Job>> = self.workers.entries[worker].attempts.iter().copied().collect();
            for job in held {
                let open = self.jobs.open_mut(job);
                if open.is_pushed() && open.lengthen_lease(lease) {
                    // A restart must know that the runner has a longer one.
                    effects.changes.push(Change::LeaseExtended(self.open_row(job)));
                }
            }
        }
        lease
    }

    /// The worker accepted the task; or it still runs one that was offered again.
    fn accepted(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) -> Reply {
        self.jobs.open_mut(job).acknowledge();
        if self.jobs[job].state() == JobState::Assigned {
            self.mark_running(now, job, effects);
        }
        self.renew(now, job, effects)
    }

    /// The worker rejected the task.
    fn rejected(&mut self, now: Now, job: Ix<Job>, code: &Name, effects: &mut Effects) -> Reply {
        if self.jobs[job].state().is_terminal() {
            self.release_still_running(now, job, effects);
        } else if let Some((cause, _)) = self.jobs.open(job).stopping() {
            self.close_stopped(now, job, cause, effects);
        } else {
            let why = format!("the last worker rejected it: {code}");
            // The worker's own code says more than that the attempt was handed back.
            let (end, code) = (AttemptEnd::HandedBack, Some(code.as_str()));
            self.not_taken(now, job, AttemptEnding { end, failure: None, code }, &why, effects);
        }
        Reply::Done
    }

    /// The worker did not accept the task in time.
    pub(in crate::engine) fn unanswered(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        self.send_stop(job, effects);
        let why = "the last worker did not answer in time";
        self.not_taken(now, job, AttemptEnd::Unanswered.into(), why, effects);
    }

    /// A job that a worker did not accept waits, longer each time, and fails when that happened too often.
    fn not_taken(
        &mut self,
        now: Now,
        job: Ix<Job>,
        closed: AttemptEnding<'_>,
        why: &str,
        effects: &mut Effects,
    ) {
        let times = self.jobs[job].count_rejection();
        if times > self.settings.workers.rejections_max {
            let message = format!("no worker took it, {times} times; {why}");
            let failure = Failure::permanent("E.DISPATCH.UNAVAILABLE", message);
            let closed = Some(AttemptEnding { failure: Some(failure), ..closed });
            let ending = JobEnding { closed, ..JobEnding::new(JobState::Failed, Reason::Unavailable) };
            return self.end_job(now, job, ending, effects);
        }
        let ends = self.ends_with_server(job);
        self.hand_back(now, job, closed, effects);
        if !ends && self.jobs[job].state() == JobState::Queued {
            let wait = Span(REJECTED.0 << times.saturating_sub(1).min(16));
            self.defer(now, job, Wake::Backoff(now.mono + wait), Reason::HandedBack, effects);
        }
    }

    /// A worker reports the end of a task.
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
                let by_result = matches!(stored, Some(AttemptEnd::Succeeded | AttemptEnd::Failed));
                let known = by_result || self.workers.registered_mut(worker).recent.contains(&task);
                return if known { Reply::Duplicate } else { reply };
            }
        };
        let fence = self.jobs.fence_of(job);
        let reply = self.finish(now, &fence, outcome, effects);
        if reply == Reply::Done
            && let Some(registration) = self.workers.entries[worker].registration.as_mut()
        {
            registration.remember(task);
        }
        reply
    }

    /// An operator drains a worker, or lets it take tasks again.
    pub(in crate::engine) fn drain_worker(
        &mut self,
        now: Now,
        tenant: &Name,
        worker: &Name,
        drain: bool,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(worker) = self.workers.find_registered(&self.queue, tenant, worker) else {
            return Reply::NotFound;
        };
        let registration = self.workers.registered_mut(worker);
        if registration.orders.drained == drain {
            return Reply::Done;
        }
        registration.orders.drained = drain;
        let connection = registration.connection;
        self.workers.update_slot(&mut self.queue, worker);
        if drain {
            let why = "an operator drains it";
            self.worker_event(now, EventKind::WorkerDrained, worker, why, Some(origin), effects);
            effects.notices.extend(connection.map(Notice::DrainConnection));
        } else {
            let detail = format!("worker {} takes tasks again", self.workers.name_of(worker));
            let tenant = Some(tenant.clone());
            self.numbers.server_event(now, EventKind::CallDone, tenant, Some(origin), detail.into(), effects);
        }
        Reply::Done
    }

    /// Checks workers that sent no heartbeat for a while.
    pub(in crate::engine) fn check_silent_workers(&mut self, now: Now, effects: &mut Effects) {
        for _ in 0..WATCHED_MAX {
            match self.workers.pool.watch.first() {
                Some(&(at, worker)) if at <= now.mono => self.check_worker(now, worker, effects),
                _ => return,
            }
        }
    }

    fn check_worker(&mut self, now: Now, worker: Ix<Worker>, effects: &mut Effects) {
        let floor = self.clock.lease_floor();
        let Some(registration) = self.workers.entries[worker].registration.as_mut() else {
            // It was awaited long enough: its resources are gone.
            self.workers.no_longer_awaited(worker);
            self.workers.open_slot_gates(&mut self.queue, worker);
            return;
        };
        self.workers.pool.watch.remove(&(registration.watch_at, worker));
        if floor > now.mono {
            // This process was stopped for a while: messages that wait in its sockets come first.
            registration.watch_at = floor;
            self.workers.pool.watch.insert((floor, worker));
            return;
        }
        if registration.connection.is_none() {
            // A disconnected worker sends no heartbeats; its leases end by themselves.
            registration.watch_at = now.mono + registration.heartbeat;
            self.workers.pool.watch.insert((registration.watch_at, worker));
            return;
        }
        let every = registration.heartbeat.0.max(1);
        let missed = now.mono.since(registration.heard_at).0 / every;
        let missed = u8::try_from(missed).unwrap_or(u8::MAX).min(MISSES_MAX);
        let before = std::mem::replace(&mut registration.misses, missed);
        // A lost worker is checked again after each heartbeat interval.
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
            self.workers.update_slot(&mut self.queue, worker);
            self.workers.end_bindings_of(&mut self.queue, worker);
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
        let (tenant, detail) = (self.queue.tenant_name(*tenant).clone(), format!("{name}: {why}"));
        self.numbers.server_event(now, kind, Some(tenant), origin, detail.into(), effects);
    }

    /// The offer of a job's open attempt.
    pub(in crate::engine) fn offer(&self, job: Ix<Job>, again: bool) -> Offer {
        let entry = &self.jobs[job];
        let open = self.jobs.open(job);
        let to = open.pushed_to().zip(self.workers.connection_of(open)).map(|(worker, connection)| {
            let (tenant, worker) = self.workers.entries.key(worker);
            let (tenant, worker) = (self.queue.tenant_name(*tenant).clone(), worker.clone());
            OfferTo { connection, tenant, worker, lease: self.lease_of(job), again }
        });
        Offer {
            seq: Seq(entry.seq()),
            fence: self.jobs.fence_of(job),
            executor: self.queue.executor_name(open.executor()).clone(),
            kind: self.queue.kind_name(self.queue.kind_of(&self.jobs[job])).clone(),
            timeout: Some(entry.timeout()),
            deadline: entry.deadline().get(),
            dispatch_seq: self.workflows.dispatch_seq(&self.jobs, job),
            to,
        }
    }
}

/// The lease of a worker: no shorter than the heartbeats that it may miss.
pub(in crate::engine) fn lease_for(lease: Span, heartbeat: Span) -> Span {
    lease.max(Span(heartbeat.0.saturating_mul(u64::from(MISSES_MAX))))
}
