//! Push workers: registration, messages, and which worker gets a job.

mod bindings;
mod check;
mod lanes;
pub(in crate::engine) mod messages;
pub(in crate::engine) mod placement;
mod pool;
mod record;
mod register;
mod skills;
mod slot_gates;
mod view;

pub(in crate::engine) use pool::Route;
pub(in crate::engine) use record::Worker;
pub(in crate::engine) use skills::{Lack, PlacementRule};
pub(in crate::engine) use view::FittingWorkers;

use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Interned, Ix, Pool};
use crate::engine::jobs::{Job, Open};
use crate::engine::queue::{Queue, Tenant};
use crate::lease::Holder;
use crate::worker::ConnectionId;
use crate::{Mono, Name, Span, Wall};
use pool::WorkerPool;
use record::Registration;

/// Every worker that is registered, holds attempts, or is awaited.
pub(in crate::engine) struct Workers {
    /// By tenant and name.
    entries: Pool<(Ix<Tenant>, Name), Worker>,
    pool: WorkerPool,
    placements: Interned<PlacementRule>,
}

impl Workers {
    pub(in crate::engine) fn new(hashing: Hashing) -> Workers {
        Workers {
            entries: Pool::new(hashing),
            pool: WorkerPool::new(hashing),
            placements: Interned::new(hashing),
        }
    }

    /// Adds a user of a worker.
    pub(in crate::engine) fn hold(&mut self, tenant: Ix<Tenant>, name: &Name) -> Ix<Worker> {
        self.entries.hold(&(tenant, name.clone()), Worker::default)
    }

    /// Adds a user of a known worker.
    pub(in crate::engine) fn hold_again(&mut self, worker: Ix<Worker>) {
        self.entries.hold_again(worker);
    }

    /// Adds a user of a placement rule.
    pub(in crate::engine) fn hold_placement(&mut self, placement: &PlacementRule) -> Ix<PlacementRule> {
        self.placements.hold(placement)
    }

    /// Removes a user of a placement rule.
    pub(in crate::engine) fn release_placement(&mut self, placement: Ix<PlacementRule>) {
        self.placements.release(placement);
    }

    /// True for a placement rule whose jobs use a resource of one worker.
    pub(in crate::engine) fn is_pinned(&self, placement: Ix<PlacementRule>) -> bool {
        self.placements[placement].pinned
    }

    pub(in crate::engine) fn name_of(&self, worker: Ix<Worker>) -> &Name {
        &self.entries.key(worker).1
    }

    /// A registered worker by name.
    pub(super) fn find_registered(&self, queue: &Queue, tenant: &Name, worker: &Name) -> Option<Ix<Worker>> {
        let worker = self.entries.find(&(queue.find_tenant(tenant)?, worker.clone()))?;
        self.entries[worker].registration.is_some().then_some(worker)
    }

    fn registration(&self, worker: Ix<Worker>) -> Option<&Registration> {
        self.entries[worker].registration.as_deref()
    }

    fn registered_mut(&mut self, worker: Ix<Worker>) -> &mut Registration {
        self.entries[worker].registration.as_mut().expect("the worker is registered")
    }

    /// True when the worker of that name holds an attempt.
    pub(in crate::engine) fn is_busy(&self, tenant: Ix<Tenant>, worker: &Name) -> bool {
        let known = self.entries.find(&(tenant, worker.clone()));
        known.is_some_and(|worker| !self.entries[worker].attempts.is_empty())
    }

    /// The worker holds the attempt of a job.
    pub(in crate::engine) fn add_attempt(&mut self, worker: Ix<Worker>, job: Ix<Job>) {
        self.entries[worker].attempts.insert(job);
    }

    /// The process of a worker, after a restart.
    pub(in crate::engine) fn set_boot(&mut self, worker: Ix<Worker>, boot: Option<&Name>) {
        self.entries[worker].boot = boot.cloned();
    }

    /// The worker that holds an attempt.
    pub(in crate::engine) fn holder_of(&self, open: &Open) -> Option<Holder> {
        open.worker().map(|worker| Holder {
            worker: self.name_of(worker).clone(),
            pid: open.pid(),
            boot: self.entries[worker].boot.clone().filter(|_| open.is_pushed()),
        })
    }

    /// When the first worker is checked next.
    pub(in crate::engine) fn next_check(&self) -> Option<Mono> {
        self.pool.watch.first().map(|&(at, _)| at)
    }

    /// When the next affinity binding expires.
    pub(in crate::engine) fn next_expiry(&self) -> Option<Wall> {
        self.pool.bindings.next_expiry()
    }

    /// When an attempt is lost without a sign of life: at the end of its own lease, or of its worker's.
    pub(in crate::engine) fn lease_end(&self, open: &Open) -> Option<Mono> {
        let Some(worker) = open.pushed_to().filter(|_| open.acked()) else { return open.lease_until() };
        let of_worker = self.registration(worker).map(|registration| registration.lease_until);
        open.lease_until().max(of_worker)
    }

    /// The lease of an attempt of a push worker; `None` for other attempts. `lease`: the one of the settings.
    pub(in crate::engine) fn lease_of(&self, open: &Open, lease: Span) -> Option<Span> {
        let registration = self.registration(open.pushed_to()?);
        Some(registration.map_or(lease.max(open.lease()), |registration| registration.lease))
    }

    /// The lease of a worker. `lease`: the one of the settings, for a worker that is not registered.
    pub(in crate::engine) fn lease_at(&self, worker: Ix<Worker>, lease: Span) -> Span {
        self.registration(worker).map_or(lease, |registration| registration.lease)
    }

    /// True for an attempt whose worker has no connection: the worker hears nothing, and runs on until its lease ends.
    pub(in crate::engine) fn is_unreachable(&self, open: &Open) -> bool {
        open.is_pushed() && self.connection_of(open).is_none()
    }

    pub(in crate::engine) fn connection_of(&self, open: &Open) -> Option<ConnectionId> {
        self.registration(open.pushed_to()?)?.connection
    }
}
