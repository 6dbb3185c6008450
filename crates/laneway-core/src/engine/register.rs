//! Workers that come, come again and go.
//!
//! A worker is known by its tenant and its name, a connection by its number. A second connection of the same worker takes
//! the first one's place with everything that the worker holds: the same attempts, under the next lease epoch, durable
//! before anybody is told. What was said over the first one and is heard later changes nothing, its end included.

use std::collections::{BTreeMap, VecDeque};

use super::Engine;
use super::fleet::Post;
use super::slab::Ix;
use super::submit::refuse;
use super::workers::lease_for;
use crate::effect::Offer;
use crate::worker::{
    Beat, ConnectionId, MAX_PARALLEL_MAX, OFFER_LIST_MAX, Register, Registered, WorkerOffer,
};
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{Change, Effects, EventKind, Fence, Name, Notice, Now, Refusal, RefusalCode, Reply, Span};

/// The shortest time between two signs of life that a worker may ask for.
const HEARTBEAT_MIN: Span = Span(100);
/// The longest.
const HEARTBEAT_MAX: Span = Span::mins(10);

impl Engine {
    /// A worker registers over a connection.
    pub(super) fn register(&mut self, now: Now, register: Register, effects: &mut Effects) -> Reply {
        let Register { connection, offer, heartbeat, orders } = register;
        if let Err(refusal) = self.check_register(connection, &offer, heartbeat) {
            return Reply::Refused(refusal);
        }
        let tenant = self.hold_tenant(&offer.tenant);
        let worker = self.hold_worker(tenant, &offer.worker);
        // An operator's word is known over a new connection, also when the last task that the worker held is over only now.
        let orders = self.workers[worker].post.as_ref().map_or(orders, |post| post.orders.clone());
        self.settle_leases(now, worker, effects);
        self.no_longer_awaited(worker);
        let before = self.workers[worker].post.take();
        let superseded = before.as_ref().and_then(|post| post.connection);
        match &before {
            // The registration was one user of both already.
            Some(_) => {
                self.workers.release(worker);
                self.tenants.release(tenant);
            }
            None => *self.fleet.posts.entry(tenant).or_default() += 1,
        }
        // And so is a result that was taken over the old one.
        let mut kept = (VecDeque::new(), Default::default());
        let before_group = before.map(|mut post| {
            kept = (std::mem::take(&mut post.recent), std::mem::take(&mut post.bound));
            self.vacate(worker, *post)
        });
        let drained = orders.drained;
        self.post(now, worker, Register { connection, offer, heartbeat, orders });
        if let Some(group) = before_group {
            self.leave_group(group);
        }
        if let Some(post) = self.workers[worker].post.as_mut() {
            (post.recent, post.bound) = kept;
        }
        effects.notices.extend(drained.then_some(Notice::DrainConnection(connection)));
        #[cfg(feature = "zoo")]
        self.fleet.ever.insert(connection, worker);
        if let Some(old) = superseded {
            let why = format!("{connection} takes the place of {old}");
            self.worker_event(now, EventKind::WorkerSuperseded, worker, &why, None, effects);
            effects.notices.push(Notice::Superseded(old));
        }
        let rebound = self.rebind(now, worker, effects);
        let lease = self.renew_worker(now, worker, effects);
        let why = format!("registered over {connection}, {} attempts rebound", rebound.len());
        self.worker_event(now, EventKind::WorkerConnected, worker, &why, None, effects);
        self.reseat(worker);
        self.throw_gates_open(worker);
        Reply::Registered(Box::new(Registered { lease, superseded, rebound }))
    }

    fn check_register(
        &self,
        connection: ConnectionId,
        offer: &WorkerOffer,
        heartbeat: Span,
    ) -> Result<(), Refusal> {
        let invalid = |message: String| Err(refuse(RefusalCode::Invalid, message));
        if self.fleet.connections.contains_key(&connection) {
            return invalid(format!(
                "connection: {connection} has registered already; change the offer instead"
            ));
        }
        if !(HEARTBEAT_MIN..=HEARTBEAT_MAX).contains(&heartbeat) {
            let (min, max) = (HEARTBEAT_MIN.0, HEARTBEAT_MAX.0);
            return invalid(format!("heartbeat: is {} ms; give {min} to {max} ms", heartbeat.0));
        }
        check_offer(offer)?;
        if self.find_post(&offer.tenant, &offer.worker).is_some() {
            return Ok(());
        }
        let settings = &self.settings.workers;
        let tenant = self.tenants.find(&offer.tenant).and_then(|tenant| self.fleet.posts.get(&tenant));
        let of_tenant = tenant.copied().unwrap_or(0);
        let full = |what: &str, max: u32| {
            let message =
                format!("{what}: {max} workers are registered already; end one, or raise the limit");
            Err(Refusal { retry_after: Some(Span::secs(5)), ..refuse(RefusalCode::TooMany, message) })
        };
        if self.fleet.post_count() >= settings.workers_max {
            return full("workers_max", settings.workers_max);
        }
        if of_tenant >= settings.workers_per_tenant_max {
            return full("workers_per_tenant_max", settings.workers_per_tenant_max);
        }
        Ok(())
    }

    fn post(&mut self, now: Now, worker: Ix, register: Register) {
        let Register { connection, offer, heartbeat, orders } = register;
        let tenant = self.workers.key(worker).0;
        let group = self.join_group(tenant, self.skills_of(&offer, &orders));
        let lease = lease_for(self.settings.lease, heartbeat);
        let watch_at = now.mono + heartbeat;
        let (used, used_of) = self.slots_taken(worker);
        self.workers[worker].post = Some(Box::new(Post {
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
            served: self.starts,
            full_since: None,
            full_told: false,
            seat: None,
            bound: Default::default(),
            recent: VecDeque::new(),
        }));
        self.fleet.connections.insert(connection, worker);
        self.fleet.watch.insert((watch_at, worker));
    }

    /// Slots are what the attempts say that the worker holds.
    fn slots_taken(&self, worker: Ix) -> (u32, BTreeMap<Ix, u32>) {
        let mut used_of: BTreeMap<Ix, u32> = BTreeMap::new();
        for &job in &self.workers[worker].held {
            if self.attempts[self.jobs[job].open].is_pushed() {
                *used_of.entry(self.classes[self.jobs[job].class].kind).or_default() += 1;
            }
        }
        (used_of.values().sum(), used_of)
    }

    /// Takes a registration out of everything it stands in but its group, which is given back.
    fn vacate(&mut self, worker: Ix, post: Post) -> Ix {
        let (group, connection, watch_at) = (post.group, post.connection, post.watch_at);
        let mut gone = post;
        // It sits nowhere any more: without a connection nobody does.
        gone.connection = None;
        self.workers[worker].post = Some(Box::new(gone));
        self.reseat(worker);
        self.workers[worker].post = None;
        self.fleet.watch.remove(&(watch_at, worker));
        if let Some(connection) = connection {
            self.fleet.connections.remove(&connection);
        }
        group
    }

    /// Attempts that lived by their worker's signs of life have that for a lease of their own from now on. Those whose time
    /// is over end before anybody can take them up again.
    fn settle_leases(&mut self, now: Now, worker: Ix, effects: &mut Effects) {
        let held: Vec<Ix> = self.workers[worker].held.iter().copied().collect();
        for job in held {
            let ix = self.jobs[job].open;
            if !self.attempts[ix].is_pushed() {
                continue;
            }
            let until = self.lease_end(&self.attempts[ix]);
            self.attempts[ix].lease_until = until;
            #[cfg(feature = "zoo")]
            if zoo::is_out(Bug::RebindAfterExpiry) {
                continue;
            }
            if self.is_over(now, until) {
                self.look_at_open_or_lingering(now, job, effects);
            } else {
                self.arm(job);
            }
        }
    }

    /// Every attempt that the worker was told of is this connection's from now on.
    fn rebind(&mut self, now: Now, worker: Ix, effects: &mut Effects) -> Vec<Fence> {
        let held: Vec<Ix> = self.workers[worker].held.iter().copied().collect();
        let mut rebound = Vec::new();
        for job in held {
            let open = &self.attempts[self.jobs[job].open];
            if !open.is_pushed() {
                continue;
            }
            let lease = self.lease_at(worker);
            // Who runs it goes by the lease that it is told now, so it lives as long even if nobody answers.
            let answer = if open.started_at.is_some() { lease } else { self.settings.ack_timeout };
            let open = &mut self.attempts[self.jobs[job].open];
            open.lease_epoch += 1;
            open.acked = false;
            open.lease = open.lease.max(lease);
            open.lease_until = open.lease_until.max(Some(now.mono + answer));
            if let Some((_, until)) = &mut open.stopping {
                // It hears of it only now.
                *until = (*until).max(now.mono + self.settings.stop_grace);
            }
            let stopping = open.stopping.is_some();
            self.arm(job);
            effects.changes.push(Change::AttemptRebound(self.open_row(job)));
            rebound.push(self.fence_of(job));
            if stopping || self.jobs[job].state.is_terminal() {
                self.tell_stop(job, effects);
            } else {
                effects.notices.push(Notice::Offer(self.offer_again(now, job)));
            }
        }
        rebound
    }

    /// The offer of an attempt that its worker was told of before. Who has lost it and begins anew gets what is left of its
    /// time, so that it has ended when the attempt is over.
    fn offer_again(&self, now: Now, job: Ix) -> Offer {
        let offer = self.offer(job, true);
        Offer { timeout: self.time_left(now, job).or(offer.timeout), ..offer }
    }

    /// What is left of the time of an attempt that has started.
    pub(super) fn time_left(&self, now: Now, job: Ix) -> Option<Span> {
        self.attempts[self.jobs[job].open].timeout_at.map(|at| at.since(now.mono).max(Span(1)))
    }

    /// What a worker offers has changed.
    pub(super) fn change_offer(&mut self, worker: Ix, offer: WorkerOffer) -> Reply {
        let (tenant, name) = self.workers.key(worker).clone();
        if offer.worker != name || offer.tenant != *self.tenants.key(tenant) {
            let message =
                "worker: tenant and name are those of the registration; register anew to change them";
            return Reply::Refused(refuse(RefusalCode::Invalid, message));
        }
        if let Err(refusal) = check_offer(&offer) {
            return Reply::Refused(refusal);
        }
        self.change_post(worker, |post| post.offer = offer);
        Reply::Done
    }

    /// A connection is gone. What its worker runs lives as long as its leases do.
    pub(super) fn connection_gone(&mut self, now: Now, worker: Ix, effects: &mut Effects) -> Reply {
        let post = self.workers[worker].post.as_mut().expect("a connection has a registered worker");
        let connection = post.connection.take().expect("the connection was found by its number");
        let held = post.used;
        self.fleet.connections.remove(&connection);
        let why = format!("{connection} is gone, {held} attempts are held");
        self.worker_event(now, EventKind::WorkerDisconnected, worker, &why, None, effects);
        self.reseat(worker);
        self.forget_if_away(worker);
        Reply::Done
    }

    /// Forgets the registration of a worker that has no connection and holds nothing.
    pub(super) fn forget_if_away(&mut self, worker: Ix) {
        let Some(post) = &self.workers[worker].post else { return };
        if post.connection.is_some() || post.used > 0 {
            return;
        }
        self.end_bindings_of(worker);
        let post = self.workers[worker].post.take().expect("looked at above");
        let heard_at = post.heard_at;
        let group = self.vacate(worker, *post);
        self.leave_group(group);
        let (tenant, _) = *self.workers.key(worker);
        if let Some(count) = self.fleet.posts.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.fleet.posts.remove(&tenant);
            }
        }
        if self.workers[worker].pins > 0 {
            // Jobs use something on it: it may come back.
            self.await_until(worker, heard_at + self.settings.lease);
        }
        self.workers.release(worker);
        self.tenants.release(tenant);
    }

    /// What was registered over a connection; to be said again to an engine that replaces this one.
    pub fn registration(&self, connection: ConnectionId) -> Option<Register> {
        let post = self.workers[*self.fleet.connections.get(&connection)?].post.as_ref()?;
        let (offer, orders) = (post.offer.clone(), post.orders.clone());
        Some(Register { connection, offer, heartbeat: post.heartbeat, orders })
    }

    /// The same of a worker that is connected.
    pub fn registration_of(&self, tenant: &Name, worker: &Name) -> Option<Register> {
        let post = self.workers[self.find_post(tenant, worker)?].post.as_ref()?;
        self.registration(post.connection?)
    }

    /// The same for all connections.
    pub fn registrations(&self) -> Vec<Register> {
        self.fleet.connections.keys().filter_map(|connection| self.registration(*connection)).collect()
    }
}

/// An offer that says something which can be.
fn check_offer(offer: &WorkerOffer) -> Result<(), Refusal> {
    let WorkerOffer { max_parallel, kind_limits, kinds, packages, features, runtimes, labels, lanes, .. } =
        offer;
    if !(1..=MAX_PARALLEL_MAX).contains(max_parallel) {
        let message = format!("max_parallel: is {max_parallel}; give 1 to {MAX_PARALLEL_MAX}");
        return Err(refuse(RefusalCode::Invalid, message));
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
        return Err(refuse(RefusalCode::Invalid, message));
    }
    let named_twice = |kind: &Name| kind_limits.iter().filter(|(name, _)| name == kind).count() > 1;
    if let Some((kind, _)) = kind_limits.iter().find(|(kind, _)| named_twice(kind)) {
        let message = format!("kind_limits: {:?} is named twice; give one limit", kind.as_str());
        return Err(refuse(RefusalCode::Invalid, message));
    }
    Ok(())
}
