//! Registered workers for people, and registrations for an engine that replaces this one.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Jobs;
use crate::engine::queue::{Class, Queue, Tenant};
use crate::engine::workers::pool::Group;
use crate::engine::workers::record::Registration;
use crate::engine::workers::{Lack, Worker, Workers};
use crate::worker::{ConnectionId, Register, Standing, TasksKept, WorkerView};
use crate::{Name, Now};

/// The workers that fit a class, by how they are.
pub(in crate::engine) struct FittingWorkers {
    /// The last constraint that a group does not meet, of those that meet the most.
    pub(in crate::engine) nearest: Option<Lack>,
    pub(in crate::engine) fit: u32,
    pub(in crate::engine) full: u32,
    pub(in crate::engine) draining: u32,
    pub(in crate::engine) unwell: u32,
}

impl Workers {
    fn view(&self, now: Now, jobs: &Jobs, worker: Ix<Worker>) -> Option<WorkerView> {
        let registration = self.registration(worker)?;
        let pushed = self.entries[worker].attempts.iter().filter(|job| jobs.open(**job).is_pushed());
        Some(WorkerView {
            offer: registration.offer.clone(),
            connection: registration.connection,
            standing: registration.standing(),
            open: u32::try_from(pushed.count()).unwrap_or(u32::MAX),
            connected_at: registration.connected_at,
            silent: now.mono.since(registration.heard_at),
            heartbeat: registration.heartbeat,
            beat: registration.beat,
            lanes: self.pool.groups[registration.group].skills.lanes.clone(),
            orders: registration.orders.clone(),
            pressed: registration.pressed,
        })
    }

    /// The workers of the tenant that fit a class, by how they are; `None` when the tenant has no workers.
    pub(in crate::engine) fn fitting(&self, queue: &Queue, class: Ix<Class>) -> Option<FittingWorkers> {
        let groups = self.pool.groups_of.get(&queue.class(class).tenant())?;
        let lacks: Vec<(Ix<Group>, Option<Lack>)> =
            groups.iter().map(|&group| (group, self.group_lacks(queue, group, class))).collect();
        // A group that lacks the last constraint in the order of checks meets all the others.
        let nearest = lacks.iter().map(|(_, lack)| *lack).max().flatten();
        let mut fitting = FittingWorkers { nearest, fit: 0, full: 0, draining: 0, unwell: 0 };
        let registered = self.pool.watch.iter().filter_map(|(_, worker)| self.registration(*worker));
        for registration in registered.filter(|registration| lacks.contains(&(registration.group, None))) {
            fitting.fit += 1;
            match registration.standing() {
                Standing::Draining => fitting.draining += 1,
                Standing::Lost | Standing::Away | Standing::Unhealthy => fitting.unwell += 1,
                Standing::Ready | Standing::Late | Standing::Degraded => fitting.full += 1,
            }
        }
        Some(fitting)
    }

    /// The standing of a worker; `None` when it is not registered.
    pub(in crate::engine) fn standing_of(&self, worker: Ix<Worker>) -> Option<Standing> {
        self.registration(worker).map(Registration::standing)
    }
}

impl Engine {
    /// Registered workers by tenant and name; of one tenant, or of all.
    pub fn workers(&self, now: Now, tenant: Option<&Name>) -> Vec<WorkerView> {
        let theirs = |of: Ix<Tenant>| tenant.is_none_or(|tenant| self.queue.tenant_name(of) == tenant);
        let workers = self.workers.entries.iter().filter(|(_, (of, _), _)| theirs(*of));
        let mut views: Vec<WorkerView> =
            workers.filter_map(|(worker, _, _)| self.workers.view(now, &self.jobs, worker)).collect();
        views.sort_by(|a, b| (&a.offer.tenant, &a.offer.worker).cmp(&(&b.offer.tenant, &b.offer.worker)));
        views
    }

    /// A registered worker by name.
    pub fn worker(&self, now: Now, tenant: &Name, worker: &Name) -> Option<WorkerView> {
        let worker = self.workers.find_registered(&self.queue, tenant, worker)?;
        self.workers.view(now, &self.jobs, worker)
    }

    /// The registration of a connection; an engine that replaces this one must get it.
    pub fn registration(&self, connection: ConnectionId) -> Option<Register> {
        let worker = *self.workers.pool.connections.get(&connection)?;
        let registration = self.workers.registration(worker)?;
        Some(Register {
            connection,
            offer: registration.offer.clone(),
            heartbeat: registration.heartbeat,
            orders: registration.orders.clone(),
            boot: self.workers.entries[worker].boot.clone(),
            tasks: TasksKept::All,
        })
    }

    /// The registration of a connected worker.
    pub fn registration_of(&self, tenant: &Name, worker: &Name) -> Option<Register> {
        let worker = self.workers.find_registered(&self.queue, tenant, worker)?;
        self.registration(self.workers.registration(worker)?.connection?)
    }

    /// The registrations of all connections.
    pub fn registrations(&self) -> Vec<Register> {
        self.workers.pool.connections.keys().filter_map(|connection| self.registration(*connection)).collect()
    }
}
