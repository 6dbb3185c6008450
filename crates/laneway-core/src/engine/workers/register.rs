//! Workers that register, reconnect and leave.
//!
//! A worker is known by its tenant and its name, its process by a boot id, a connection by its number. A second connection
//! of the same process replaces the first one and keeps the attempts that the process says it still has: the same
//! attempts, under the next lease epoch, durable before the worker gets its answer. Every other attempt of the worker is
//! lost, because its process is. Another process is rejected while the first connection answers. Late messages of a replaced
//! connection change nothing, its end included.

use std::collections::{BTreeMap, VecDeque};

use crate::effect::Offer;
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::reject;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::{Kind, Queue};
use crate::engine::schedules::stamp;
use crate::engine::workers::lanes::skills_of;
use crate::engine::workers::messages::lease_for;
use crate::engine::workers::pool::Group;
use crate::engine::workers::record::{MISSES_MAX, Registration};
use crate::engine::workers::{Worker, Workers};
use crate::engine::workflows::Workflows;
use crate::engine::workflows::chain_limits::{Level, slots};

use crate::worker::{
    Beat, ConnectionId, MAX_PARALLEL_MAX, OFFER_LIST_MAX, Orders, Register, Registered, TasksKept,
    WorkerOffer, WorkerSettings,
};
use crate::{
    Change, Effects, EventKind, Fence, Name, Notice, Now, Rejection, RejectionCode, Reply, Settings, Span,
    Task, Wall,
};

/// The shortest time between two heartbeats that a worker may ask for.
const HEARTBEAT_MIN: Span = Span(100);
/// The longest.
const HEARTBEAT_MAX: Span = Span::mins(10);

/// Slots that the pushed attempts of a worker take, and the same by kind.
pub(super) type SlotsTaken = (u32, BTreeMap<Ix<Kind>, u32>);

/// The parts of a new registration.
struct New {
    connection: ConnectionId,
    offer: WorkerOffer,
    heartbeat: Span,
    orders: Orders,
    slots: SlotsTaken,
}

impl Engine {
    /// A worker registers over a connection.
    pub(in crate::engine) fn register(
        &mut self,
        now: Now,
        register: Register,
        effects: &mut Effects,
    ) -> Reply {
        let Register { connection, offer, heartbeat, orders, boot, tasks } = register;
        if let Err(rejection) =
            self.workers.check_register(connection, &offer, heartbeat, &self.settings.workers, &self.queue)
        {
            return Reply::Rejected(rejection);
        }
        if let Some((other, since)) = self.workers.other_process(now, &offer, boot.as_ref(), &self.queue) {
            effects.notices.push(Notice::ProbeConnection(other));
            return Reply::Rejected(taken_by(&offer.worker, since));
        }
        let tenant = self.queue.hold_tenant(&self.settings, &offer.tenant);
        let worker = self.workers.hold(tenant, &offer.worker);
        // An operator's orders hold over a new connection, also when the last task that the worker held ends only now.
        let before = self.workers.registration(worker);
        let orders = before.map_or(orders, |registration| registration.orders.clone());
        self.settle_leases(now, worker, effects);
        self.workers.no_longer_awaited(worker);
        let before = self.workers.entries[worker].registration.take();
        let superseded = before.as_ref().and_then(|registration| registration.connection);
        match &before {
            // The registration is one user of both already.
            Some(_) => {
                self.workers.entries.release(worker);
                self.queue.release_tenant(tenant);
            }
            None => *self.workers.pool.registrations.entry(tenant).or_default() += 1,
        }
        // And so do results that were accepted over the old one.
        let mut kept = (VecDeque::new(), Default::default());
        let before_group = before.map(|mut registration| {
            kept = (std::mem::take(&mut registration.recent), std::mem::take(&mut registration.bound));
            self.workers.vacate(&mut self.queue, worker, *registration)
        });
        let drained = orders.drained;
        let slots = self.workers.slots_taken(&self.jobs, &self.queue, &self.workflows, worker);
        let new = New { connection, offer, heartbeat, orders, slots };
        self.workers.add_registration(now, &self.settings, &mut self.queue, worker, new);
        if let Some(group) = before_group {
            self.workers.leave_group(&mut self.queue, group);
        }
        let registration = self.workers.registered_mut(worker);
        (registration.recent, registration.bound) = kept;
        effects.notices.extend(drained.then_some(Notice::DrainConnection(connection)));
        if let Some(old) = superseded {
            let why = format!("{connection} takes the place of {old}");
            self.worker_event(now, EventKind::WorkerSuperseded, worker, &why, None, effects);
            effects.notices.push(Notice::Superseded(old));
        }
        let rebound = self.rebind(now, worker, boot, &tasks, effects);
        let lease = self.renew_worker(now, worker, effects);
        let why = format!("registered over {connection}, {} attempts rebound", rebound.len());
        self.worker_event(now, EventKind::WorkerConnected, worker, &why, None, effects);
        self.workers.update_slot(&mut self.queue, worker);
        self.workers.open_slot_gates(&mut self.queue, worker);
        Reply::Registered(Box::new(Registered { lease, superseded, rebound }))
    }

    /// Attempts that were kept alive by the lease of their worker get the rest of it as their own lease. Those whose lease
    /// is over end before the new connection can take them over.
    fn settle_leases(&mut self, now: Now, worker: Ix<Worker>, effects: &mut Effects) {
        let held: Vec<Ix<Job>> = self.workers.entries[worker].attempts.iter().copied().collect();
        for job in held {
            if !self.jobs.open(job).is_pushed() {
                continue;
            }
            let until = self.workers.lease_end(self.jobs.open(job));
            self.jobs.open_mut(job).set_lease_until(until);
            if self.clock.is_over(now, until) {
                self.look_at_attempt(now, job, effects);
            } else {
                self.arm(job);
            }
        }
    }

    /// Binds the attempts that the process of this connection still has to this connection, and those that it was offered
    /// and never received. Every other pushed attempt of the worker belonged to another process, and is lost.
    fn rebind(
        &mut self,
        now: Now,
        worker: Ix<Worker>,
        boot: Option<Name>,
        tasks: &TasksKept,
        effects: &mut Effects,
    ) -> Vec<Fence> {
        let pushed = |job: &Ix<Job>| self.jobs.open(*job).is_pushed();
        let held: Vec<Ix<Job>> =
            self.workers.entries[worker].attempts.iter().copied().filter(pushed).collect();
        let same_process = self.workers.entries[worker].boot == boot;
        let is_kept = |job: &Ix<Job>| match tasks {
            TasksKept::All => true,
            TasksKept::Listed(tasks) => {
                let open = self.jobs.open(*job);
                let task = Task { job: self.jobs.fence_of(*job).job, dispatch_seq: open.dispatch_seq() };
                let unheard = boot.is_some() && open.started_at().is_none();
                same_process && (unheard || tasks.contains(&task))
            }
        };
        let (kept, lost): (Vec<Ix<Job>>, Vec<Ix<Job>>) = held.into_iter().partition(is_kept);
        let rebound = kept.into_iter().map(|job| self.rebind_attempt(now, worker, job, effects)).collect();
        for job in lost {
            // The end of one attempt may have closed another one of the same run.
            if self.workers.entries[worker].attempts.contains(&job) {
                self.lose_with_process(now, job, effects);
            }
        }
        self.workers.entries[worker].boot = boot;
        rebound
    }

    /// An attempt whose process is gone ends with it.
    fn lose_with_process(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        match self.jobs.open(job).stopping() {
            _ if self.jobs[job].state().is_terminal() => self.release_still_running(now, job, effects),
            Some((cause, _)) => self.close_stopped(now, job, cause, effects),
            None => self.lose(now, job, effects),
        }
    }

    fn rebind_attempt(&mut self, now: Now, worker: Ix<Worker>, job: Ix<Job>, effects: &mut Effects) -> Fence {
        let lease = self.workers.lease_at(worker, self.settings.lease);
        let open = self.jobs.open_mut(job);
        open.rebind(now.mono, lease, self.settings.ack_timeout, self.settings.stop_grace);
        let stopping = open.stopping().is_some();
        self.arm(job);
        effects.changes.push(Change::AttemptRebound(self.open_row(job)));
        if stopping || self.jobs[job].state().is_terminal() {
            self.send_stop(job, effects);
        } else {
            effects.notices.push(Notice::Offer(self.offer_again(now, job)));
        }
        self.jobs.fence_of(job)
    }

    /// The second offer of an attempt to its worker. A worker that lost the task and starts it again gets the rest of the
    /// timeout, so that it has ended when the attempt times out.
    fn offer_again(&self, now: Now, job: Ix<Job>) -> Offer {
        let offer = self.offer(job, true);
        Offer { timeout: self.jobs.open(job).time_left(now.mono).or(offer.timeout), ..offer }
    }

    /// A connection is gone. The attempts of its worker live as long as their leases.
    pub(in crate::engine) fn connection_gone(
        &mut self,
        now: Now,
        worker: Ix<Worker>,
        effects: &mut Effects,
    ) -> Reply {
        let registration = self.workers.registered_mut(worker);
        let connection = registration.connection.take().expect("the worker was found by its connection");
        let used = registration.used;
        self.workers.pool.connections.remove(&connection);
        let why = format!("{connection} is gone, {used} attempts are held");
        self.worker_event(now, EventKind::WorkerDisconnected, worker, &why, None, effects);
        self.workers.update_slot(&mut self.queue, worker);
        self.workers.forget_if_away(&mut self.queue, worker, self.settings.lease);
        Reply::Done
    }
}

impl Workers {
    /// The connection of another process that has the worker's name and answers, and when it connected. A process that has
    /// missed three heartbeats does not answer.
    fn other_process(
        &self,
        now: Now,
        offer: &WorkerOffer,
        boot: Option<&Name>,
        queue: &Queue,
    ) -> Option<(ConnectionId, Wall)> {
        let worker = self.find_registered(queue, &offer.tenant, &offer.worker)?;
        let registration = self.registration(worker)?;
        let silent = now.mono.since(registration.heard_at).0 / registration.heartbeat.0.max(1);
        let same = boot.is_some() && self.entries[worker].boot.as_ref() == boot;
        let answers = silent < u64::from(MISSES_MAX);
        registration
            .connection
            .filter(|_| answers && !same)
            .map(|connection| (connection, registration.connected_at))
    }

    fn check_register(
        &self,
        connection: ConnectionId,
        offer: &WorkerOffer,
        heartbeat: Span,
        settings: &WorkerSettings,
        queue: &Queue,
    ) -> Result<(), Rejection> {
        let invalid = |message: String| Err(reject(RejectionCode::Invalid, message));
        if self.pool.connections.contains_key(&connection) {
            return invalid(format!(
                "connection: {connection} has registered already; change the offer instead"
            ));
        }
        if !(HEARTBEAT_MIN..=HEARTBEAT_MAX).contains(&heartbeat) {
            let (min, max) = (HEARTBEAT_MIN.0, HEARTBEAT_MAX.0);
            return invalid(format!("heartbeat: is {} ms; give {min} to {max} ms", heartbeat.0));
        }
        check_offer(offer)?;
        if self.find_registered(queue, &offer.tenant, &offer.worker).is_some() {
            return Ok(());
        }
        let tenant = queue.find_tenant(&offer.tenant);
        let registered = tenant.and_then(|tenant| self.pool.registrations.get(&tenant));
        let of_tenant = registered.copied().unwrap_or(0);
        let full = |what: &str, max: u32| {
            let message =
                format!("{what}: {max} workers are registered already; end one, or raise the limit");
            Err(Rejection { retry_after: Some(Span::secs(5)), ..reject(RejectionCode::TooMany, message) })
        };
        if self.pool.registered_count() >= settings.workers_max {
            return full("workers_max", settings.workers_max);
        }
        if of_tenant >= settings.workers_per_tenant_max {
            return full("workers_per_tenant_max", settings.workers_per_tenant_max);
        }
        Ok(())
    }

    fn add_registration(
        &mut self,
        now: Now,
        settings: &Settings,
        queue: &mut Queue,
        worker: Ix<Worker>,
        new: New,
    ) {
        let New { connection, offer, heartbeat, orders, slots: (used, used_of) } = new;
        let tenant = self.entries.key(worker).0;
        let skills = skills_of(queue, &offer, &orders);
        let group = self.join_group(settings, queue, tenant, skills);
        let lease = lease_for(settings.lease, heartbeat);
        let watch_at = now.mono + heartbeat;
        self.entries[worker].registration = Some(Box::new(Registration {
            offer,
            group,
            connection: Some(connection),
            connected_at: now.wall,
            heartbeat,
            heard_at: now.mono,
            misses: 0,
            watch_at,
            lease,
            lease_until: now.mono + lease,
            beat: Beat::default(),
            orders,
            pressed: false,
            used,
            used_of,
            served: queue.starts(),
            full_since: None,
            full_noted: false,
            free_slot: None,
            bound: Default::default(),
            recent: VecDeque::new(),
        }));
        self.pool.connections.insert(connection, worker);
        self.pool.watch.insert((watch_at, worker));
    }

    /// The slots that the attempts of a worker take; nodes of a chain share theirs.
    pub(super) fn slots_taken(
        &self,
        jobs: &Jobs,
        queue: &Queue,
        workflows: &Workflows,
        worker: Ix<Worker>,
    ) -> SlotsTaken {
        let mut of_kinds: BTreeMap<Ix<Kind>, Vec<&[Level]>> = BTreeMap::new();
        for &job in self.entries[worker].attempts.iter().filter(|job| jobs.open(**job).is_pushed()) {
            let kind = queue.kind_of(&jobs[job]);
            of_kinds.entry(kind).or_default().push(workflows.open_levels(job).unwrap_or_default());
        }
        let used = slots(of_kinds.values().flatten().copied());
        (used, of_kinds.into_iter().map(|(kind, jobs)| (kind, slots(jobs))).collect())
    }

    /// Removes a registration from every list but its group, which is returned.
    fn vacate(&mut self, queue: &mut Queue, worker: Ix<Worker>, mut gone: Registration) -> Ix<Group> {
        let (group, connection, watch_at) = (gone.group, gone.connection, gone.watch_at);
        // Without a connection it is in no idle list.
        gone.connection = None;
        self.entries[worker].registration = Some(Box::new(gone));
        self.update_slot(queue, worker);
        self.entries[worker].registration = None;
        self.pool.watch.remove(&(watch_at, worker));
        if let Some(connection) = connection {
            self.pool.connections.remove(&connection);
        }
        group
    }

    /// The offer of a worker has changed.
    pub(super) fn change_offer(
        &mut self,
        settings: &Settings,
        queue: &mut Queue,
        worker: Ix<Worker>,
        offer: WorkerOffer,
    ) -> Reply {
        let (tenant, name) = self.entries.key(worker);
        if offer.worker != *name || offer.tenant != *queue.tenant_name(*tenant) {
            let message =
                "worker: tenant and name are those of the registration; register anew to change them";
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if let Err(rejection) = check_offer(&offer) {
            return Reply::Rejected(rejection);
        }
        self.change_registration(settings, queue, worker, |registration| registration.offer = offer);
        Reply::Done
    }

    /// Forgets the registration of a worker that has no connection and no pushed attempt. `lease`: the one of the settings.
    pub(super) fn forget_if_away(&mut self, queue: &mut Queue, worker: Ix<Worker>, lease: Span) {
        let Some(registration) = self.registration(worker) else { return };
        if registration.connection.is_some() || registration.used > 0 {
            return;
        }
        self.end_bindings_of(queue, worker);
        let Some(registration) = self.entries[worker].registration.take() else { return };
        let heard_at = registration.heard_at;
        let group = self.vacate(queue, worker, *registration);
        self.leave_group(queue, group);
        let (tenant, _) = *self.entries.key(worker);
        if let Some(count) = self.pool.registrations.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.pool.registrations.remove(&tenant);
            }
        }
        if self.entries[worker].pins > 0 {
            // Jobs use a resource of it: it may come back.
            self.await_until(worker, heard_at + lease);
        }
        self.entries.release(worker);
        queue.release_tenant(tenant);
    }
}

/// Another process has the name.
fn taken_by(worker: &Name, since: Wall) -> Rejection {
    let since = stamp(since);
    let message = format!(
        "worker: {worker:?} is connected already since {since} and answers; stop it or choose another id (--id)"
    );
    Rejection { retry_after: Some(Span::secs(5)), ..reject(RejectionCode::NameTaken, message) }
}

/// Checks the form of an offer.
fn check_offer(offer: &WorkerOffer) -> Result<(), Rejection> {
    let WorkerOffer { max_parallel, kind_limits, kinds, packages, features, runtimes, labels, lanes, .. } =
        offer;
    if !(1..=MAX_PARALLEL_MAX).contains(max_parallel) {
        let message = format!("max_parallel: is {max_parallel}; give 1 to {MAX_PARALLEL_MAX}");
        return Err(reject(RejectionCode::Invalid, message));
    }
    let lists = [
        ("kind_limits", kind_limits.len()),
        ("kinds", kinds.len()),
        ("packages", packages.len()),
        ("features", features.len()),
        ("runtimes", runtimes.len()),
        ("labels", labels.len()),
        ("lanes", lanes.len()),
    ];
    if let Some((name, len)) = lists.into_iter().find(|(_, len)| *len > OFFER_LIST_MAX) {
        let message = format!("{name}: has {len} entries; at most {OFFER_LIST_MAX} are allowed");
        return Err(reject(RejectionCode::Invalid, message));
    }
    let named_twice = |kind: &Name| kind_limits.iter().filter(|(name, _)| name == kind).count() > 1;
    if let Some((kind, _)) = kind_limits.iter().find(|(kind, _)| named_twice(kind)) {
        let message = format!("kind_limits: {:?} is named twice; give one limit", kind.as_str());
        return Err(reject(RejectionCode::Invalid, message));
    }
    Ok(())
}
