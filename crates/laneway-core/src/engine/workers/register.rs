//! Workers that come, come again and go.
//!
//! A worker is known by its tenant and its name, its process by a boot id, a connection by its number. A second connection
//! of the same process replaces the first one and keeps the attempts that the process says it still has: the same
//! attempts, under the next lease epoch, durable before anybody is told. Every other attempt of the worker is lost, because
//! its process is. Another process is denied while the first connection answers. What was said over a connection that was
//! replaced and is heard later changes nothing, its end included.

use crate::engine::jobs::Job;
use crate::engine::queue::Kind;
use std::collections::{BTreeMap, VecDeque};

use crate::effect::Offer;
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::reject;
use crate::engine::schedules::stamp;
use crate::engine::workers::messages::lease_for;
use crate::engine::workers::pool::{Group, MISSES_MAX, Registration, Worker};
use crate::engine::workflows::chain_limits::{Level, slots};
use crate::worker::{
    Beat, ConnectionId, MAX_PARALLEL_MAX, OFFER_LIST_MAX, Orders, Register, Registered, TasksKept,
    WorkerOffer,
};
use crate::{
    Change, Effects, EventKind, Fence, Name, Notice, Now, Rejection, RejectionCode, Reply, Span, Task, Wall,
};

/// The shortest time between two signs of life that a worker may ask for.
const HEARTBEAT_MIN: Span = Span(100);
/// The longest.
const HEARTBEAT_MAX: Span = Span::mins(10);

impl Engine {
    /// A worker registers over a connection.
    pub(in crate::engine) fn register(
        &mut self,
        now: Now,
        register: Register,
        effects: &mut Effects,
    ) -> Reply {
        let Register { connection, offer, heartbeat, orders, boot, tasks } = register;
        if let Err(rejection) = self.check_register(connection, &offer, heartbeat) {
            return Reply::Rejected(rejection);
        }
        if let Some((other, since)) = self.other_process(now, &offer, boot.as_ref()) {
            effects.notices.push(Notice::ProbeConnection(other));
            return Reply::Rejected(taken_by(&offer.worker, since));
        }
        let tenant = self.queue.hold_tenant(&self.settings, &offer.tenant);
        let worker = self.hold_worker(tenant, &offer.worker);
        // An operator's word is known over a new connection, also when the last task that the worker held is over only now.
        let orders = self.workers.entries[worker]
            .registration
            .as_ref()
            .map_or(orders, |registration| registration.orders.clone());
        self.settle_leases(now, worker, effects);
        self.no_longer_awaited(worker);
        let before = self.workers.entries[worker].registration.take();
        let superseded = before.as_ref().and_then(|registration| registration.connection);
        match &before {
            // The registration was one user of both already.
            Some(_) => {
                self.workers.entries.release(worker);
                self.queue.release_tenant(tenant);
            }
            None => *self.workers.pool.registrations.entry(tenant).or_default() += 1,
        }
        // And so is a result that was taken over the old one.
        let mut kept = (VecDeque::new(), Default::default());
        let before_group = before.map(|mut registration| {
            kept = (std::mem::take(&mut registration.recent), std::mem::take(&mut registration.bound));
            self.vacate(worker, *registration)
        });
        let drained = orders.drained;
        self.add_registration(now, worker, connection, offer, heartbeat, orders);
        if let Some(group) = before_group {
            self.leave_group(group);
        }
        if let Some(registration) = self.workers.entries[worker].registration.as_mut() {
            (registration.recent, registration.bound) = kept;
        }
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
        self.update_slot(worker);
        self.throw_gates_open(worker);
        Reply::Registered(Box::new(Registered { lease, superseded, rebound }))
    }

    /// The connection of another process that has the worker's name and answers, and since when it is there. One that has
    /// missed three heartbeats does not answer.
    fn other_process(
        &self,
        now: Now,
        offer: &WorkerOffer,
        boot: Option<&Name>,
    ) -> Option<(ConnectionId, Wall)> {
        let worker = self.find_registered(&offer.tenant, &offer.worker)?;
        let registration = self.workers.entries[worker].registration.as_ref()?;
        let silent = now.mono.since(registration.heard_at).0 / registration.heartbeat.0.max(1);
        let same = boot.is_some() && self.workers.entries[worker].boot.as_ref() == boot;
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
    ) -> Result<(), Rejection> {
        let invalid = |message: String| Err(reject(RejectionCode::Invalid, message));
        if self.workers.pool.connections.contains_key(&connection) {
            return invalid(format!(
                "connection: {connection} has registered already; change the offer instead"
            ));
        }
        if !(HEARTBEAT_MIN..=HEARTBEAT_MAX).contains(&heartbeat) {
            let (min, max) = (HEARTBEAT_MIN.0, HEARTBEAT_MAX.0);
            return invalid(format!("heartbeat: is {} ms; give {min} to {max} ms", heartbeat.0));
        }
        check_offer(offer)?;
        if self.find_registered(&offer.tenant, &offer.worker).is_some() {
            return Ok(());
        }
        let settings = &self.settings.workers;
        let tenant = self
            .queue
            .find_tenant(&offer.tenant)
            .and_then(|tenant| self.workers.pool.registrations.get(&tenant));
        let of_tenant = tenant.copied().unwrap_or(0);
        let full = |what: &str, max: u32| {
            let message =
                format!("{what}: {max} workers are registered already; end one, or raise the limit");
            Err(Rejection { retry_after: Some(Span::secs(5)), ..reject(RejectionCode::TooMany, message) })
        };
        if self.workers.pool.registered_count() >= settings.workers_max {
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
        worker: Ix<Worker>,
        connection: ConnectionId,
        offer: WorkerOffer,
        heartbeat: Span,
        orders: Orders,
    ) {
        let tenant = self.workers.entries.key(worker).0;
        let group = self.join_group(tenant, self.skills_of(&offer, &orders));
        let lease = lease_for(self.settings.lease, heartbeat);
        let watch_at = now.mono + heartbeat;
        let (used, used_of) = self.slots_taken(worker);
        self.workers.entries[worker].registration = Some(Box::new(Registration {
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
            served: self.queue.starts(),
            full_since: None,
            full_told: false,
            free_slot: None,
            bound: Default::default(),
            recent: VecDeque::new(),
        }));
        self.workers.pool.connections.insert(connection, worker);
        self.workers.pool.watch.insert((watch_at, worker));
    }

    /// Slots are what the attempts say that the worker holds; chains share theirs.
    pub(in crate::engine) fn slots_taken(&self, worker: Ix<Worker>) -> (u32, BTreeMap<Ix<Kind>, u32>) {
        let pushed = |job: &&Ix<Job>| self.jobs.open(**job).is_pushed();
        let mut of_kinds: BTreeMap<Ix<Kind>, Vec<&[Level]>> = BTreeMap::new();
        for job in self.workers.entries[worker].held.iter().filter(pushed) {
            let kind = self.queue.kind_of(&self.jobs[*job]);
            of_kinds.entry(kind).or_default().push(self.workflows.open_levels(*job).unwrap_or_default());
        }
        let used = slots(of_kinds.values().flatten().copied());
        (used, of_kinds.into_iter().map(|(kind, jobs)| (kind, slots(jobs))).collect())
    }

    /// Takes a registration out of everything it stands in but its group, which is given back.
    fn vacate(&mut self, worker: Ix<Worker>, registration: Registration) -> Ix<Group> {
        let (group, connection, watch_at) =
            (registration.group, registration.connection, registration.watch_at);
        let mut gone = registration;
        // It sits nowhere any more: without a connection nobody does.
        gone.connection = None;
        self.workers.entries[worker].registration = Some(Box::new(gone));
        self.update_slot(worker);
        self.workers.entries[worker].registration = None;
        self.workers.pool.watch.remove(&(watch_at, worker));
        if let Some(connection) = connection {
            self.workers.pool.connections.remove(&connection);
        }
        group
    }

    /// Attempts that lived by their worker's signs of life have that for a lease of their own from now on. Those whose time
    /// is over end before anybody can take them up again.
    fn settle_leases(&mut self, now: Now, worker: Ix<Worker>, effects: &mut Effects) {
        let held: Vec<Ix<Job>> = self.workers.entries[worker].held.iter().copied().collect();
        for job in held {
            if !self.jobs.open(job).is_pushed() {
                continue;
            }
            let until = self.lease_end(self.jobs.open(job));
            self.jobs.open_mut(job).set_lease_until(until);
            if self.clock.is_over(now, until) {
                self.look_at_attempt(now, job, effects);
            } else {
                self.arm(job);
            }
        }
    }

    /// The attempts that the process of this connection still has are this connection's from now on. So are those that it
    /// was offered and never heard of. Every other attempt that the worker was told of was another process's, and is lost.
    fn rebind(
        &mut self,
        now: Now,
        worker: Ix<Worker>,
        boot: Option<Name>,
        tasks: &TasksKept,
        effects: &mut Effects,
    ) -> Vec<Fence> {
        let pushed = |job: &Ix<Job>| self.jobs.open(*job).is_pushed();
        let held: Vec<Ix<Job>> = self.workers.entries[worker].held.iter().copied().filter(pushed).collect();
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
            if self.workers.entries[worker].held.contains(&job) {
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
        let lease = self.lease_at(worker);
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

    /// The offer of an attempt that its worker was told of before. Who has lost it and begins anew gets what is left of its
    /// time, so that it has ended when the attempt is over.
    fn offer_again(&self, now: Now, job: Ix<Job>) -> Offer {
        let offer = self.offer(job, true);
        Offer { timeout: self.time_left(now, job).or(offer.timeout), ..offer }
    }

    /// What is left of the time of an attempt that has started.
    pub(in crate::engine) fn time_left(&self, now: Now, job: Ix<Job>) -> Option<Span> {
        self.jobs.open(job).timeout_at().map(|at| at.since(now.mono).max(Span(1)))
    }

    /// What a worker offers has changed.
    pub(in crate::engine) fn change_offer(&mut self, worker: Ix<Worker>, offer: WorkerOffer) -> Reply {
        let (tenant, name) = self.workers.entries.key(worker).clone();
        if offer.worker != name || offer.tenant != *self.queue.tenant_name(tenant) {
            let message =
                "worker: tenant and name are those of the registration; register anew to change them";
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if let Err(rejection) = check_offer(&offer) {
            return Reply::Rejected(rejection);
        }
        self.change_registration(worker, |registration| registration.offer = offer);
        Reply::Done
    }

    /// A connection is gone. What its worker runs lives as long as its leases do.
    pub(in crate::engine) fn connection_gone(
        &mut self,
        now: Now,
        worker: Ix<Worker>,
        effects: &mut Effects,
    ) -> Reply {
        let registration =
            self.workers.entries[worker].registration.as_mut().expect("a connection has a registered worker");
        let connection = registration.connection.take().expect("the connection was found by its number");
        let held = registration.used;
        self.workers.pool.connections.remove(&connection);
        let why = format!("{connection} is gone, {held} attempts are held");
        self.worker_event(now, EventKind::WorkerDisconnected, worker, &why, None, effects);
        self.update_slot(worker);
        self.forget_if_away(worker);
        Reply::Done
    }

    /// Forgets the registration of a worker that has no connection and holds nothing.
    pub(in crate::engine) fn forget_if_away(&mut self, worker: Ix<Worker>) {
        let Some(registration) = &self.workers.entries[worker].registration else { return };
        if registration.connection.is_some() || registration.used > 0 {
            return;
        }
        self.end_bindings_of(worker);
        let registration = self.workers.entries[worker].registration.take().expect("looked at above");
        let heard_at = registration.heard_at;
        let group = self.vacate(worker, *registration);
        self.leave_group(group);
        let (tenant, _) = *self.workers.entries.key(worker);
        if let Some(count) = self.workers.pool.registrations.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.workers.pool.registrations.remove(&tenant);
            }
        }
        if self.workers.entries[worker].pins > 0 {
            // Jobs use something on it: it may come back.
            self.await_until(worker, heard_at + self.settings.lease);
        }
        self.workers.entries.release(worker);
        self.queue.release_tenant(tenant);
    }

    /// What was registered over a connection; to be said again to an engine that replaces this one.
    pub fn registration(&self, connection: ConnectionId) -> Option<Register> {
        let worker = *self.workers.pool.connections.get(&connection)?;
        let registration = self.workers.entries[worker].registration.as_ref()?;
        let (offer, orders) = (registration.offer.clone(), registration.orders.clone());
        let boot = self.workers.entries[worker].boot.clone();
        Some(Register {
            connection,
            offer,
            heartbeat: registration.heartbeat,
            orders,
            boot,
            tasks: TasksKept::All,
        })
    }

    /// The same of a worker that is connected.
    pub fn registration_of(&self, tenant: &Name, worker: &Name) -> Option<Register> {
        let registration =
            self.workers.entries[self.find_registered(tenant, worker)?].registration.as_ref()?;
        self.registration(registration.connection?)
    }

    /// The same for all connections.
    pub fn registrations(&self) -> Vec<Register> {
        self.workers.pool.connections.keys().filter_map(|connection| self.registration(*connection)).collect()
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

/// An offer that says something which can be.
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
