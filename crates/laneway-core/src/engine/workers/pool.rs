//! The pool of push workers: who is registered, who has a free slot, and which workers fit a class.
//!
//! Workers with an equal offer form a group. The members of a group that have a free slot are in its idle lists by load:
//! one idle list for all kinds, and one for each kind that the group limits. A route is the set of idle lists whose workers
//! fit a class; classes with the same set share it. Which groups fit is computed when a class or a group appears, never when
//! a job starts: a start or an end moves one worker, and shows or hides classes only when a route gets its first free worker
//! or loses its last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Ix, Pool, Slab};
use crate::engine::jobs::submit::Belongs;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::{Class, Kind, Queue, Tenant};
use crate::engine::workers::bindings::Bindings;
use crate::engine::workers::skills::{Lack, PlacementRule, Skills};
use crate::engine::workers::{Worker, Workers};
use crate::engine::workflows::chain_limits::Mates;
use crate::worker::ConnectionId;
use crate::{JobSpec, Mono, Name, Settings, Span};

/// Workers with an equal offer.
pub(super) struct Group {
    pub(super) skills: Arc<Skills>,
    /// For kinds without a limit.
    pub(super) idle_list: Ix<IdleWorkers>,
    /// For each kind with a limit: the idle list and the limit.
    pub(super) limited: BTreeMap<Ix<Kind>, (Ix<IdleWorkers>, u32)>,
}

/// The share of its slots that is taken, when it last got a task, and the worker.
pub(super) type FreeSlot = (u64, u64, Ix<Worker>);

/// Members of a group that have a free slot.
#[derive(Default)]
pub(super) struct IdleWorkers {
    pub(super) free: BTreeSet<FreeSlot>,
    /// Its first worker, as its routes list it.
    pub(super) head: Option<FreeSlot>,
    pub(super) routes: BTreeSet<Ix<Route>>,
}

/// The workers that fit some classes.
#[derive(Default)]
pub(in crate::engine) struct Route {
    /// The first of each idle list.
    pub(super) heads: BTreeSet<FreeSlot>,
    pub(super) classes: BTreeSet<Ix<Class>>,
}

/// All registered workers, by what they can run.
pub(super) struct WorkerPool {
    pub(super) connections: BTreeMap<ConnectionId, Ix<Worker>>,
    /// By tenant and skills.
    pub(super) groups: Pool<(Ix<Tenant>, Arc<Skills>), Group>,
    pub(super) groups_of: BTreeMap<Ix<Tenant>, BTreeSet<Ix<Group>>>,
    pub(super) idle_lists: Slab<IdleWorkers>,
    /// By the idle lists they are made of.
    pub(super) routes: Pool<Box<[Ix<IdleWorkers>]>, Route>,
    /// When each worker is checked next: those that are registered, and those that are awaited.
    pub(super) watch: BTreeSet<(Mono, Ix<Worker>)>,
    /// Registered workers, by tenant.
    pub(super) registrations: BTreeMap<Ix<Tenant>, u32>,
    pub(super) bindings: Bindings,
    /// Gates of workers made so far.
    pub(super) gates_made: u64,
}

impl WorkerPool {
    pub(super) fn new(hashing: Hashing) -> WorkerPool {
        WorkerPool {
            connections: BTreeMap::new(),
            groups: Pool::new(hashing),
            groups_of: BTreeMap::new(),
            idle_lists: Slab::new(),
            routes: Pool::new(hashing),
            watch: BTreeSet::new(),
            registrations: BTreeMap::new(),
            bindings: Bindings::default(),
            gates_made: 0,
        }
    }

    pub(super) fn registered_count(&self) -> u32 {
        self.registrations.values().sum()
    }
}

impl Workers {
    /// True when a worker of the tenant can run jobs like this one.
    pub(in crate::engine) fn can_run(&self, queue: &Queue, spec: &JobSpec, belongs: Belongs) -> bool {
        let Some(groups) = belongs.tenant.and_then(|tenant| self.pool.groups_of.get(&tenant)) else {
            return false;
        };
        let lane = queue.lane(belongs.lane).name();
        let placement = PlacementRule::of(spec.placement.as_deref());
        let lacks =
            |group: Ix<Group>| self.pool.groups[group].skills.lacks(lane, &spec.kind, placement.as_ref());
        groups.iter().any(|group| lacks(*group).is_none())
    }

    /// True when an executor or a worker runs the kind of a class now. Also for a class with a package or a resource: the
    /// kind does not decide there.
    pub(in crate::engine) fn is_served(&self, queue: &Queue, class: Ix<Class>) -> bool {
        let placement = self.placement_of(queue, class);
        let class = queue.class(class);
        let kind = class.own_kind();
        queue.is_pull(class.demand())
            || class.route().is_some()
            || queue.kind(kind).executor().is_some()
            || placement.is_some_and(|placement| placement.package.is_some() || placement.pinned)
            || self.kinds_of(class.tenant()).any(|offered| offered == queue.kind_name(kind))
    }

    /// The kinds that workers of a tenant offer.
    fn kinds_of(&self, tenant: Ix<Tenant>) -> impl Iterator<Item = &Name> {
        let groups = self.pool.groups_of.get(&tenant).into_iter().flatten();
        groups.flat_map(|&group| &self.pool.groups[group].skills.kinds)
    }

    /// True while a worker of a route has a free slot.
    pub(in crate::engine) fn has_free_slot(&self, route: Ix<Route>) -> bool {
        !self.pool.routes[route].heads.is_empty()
    }

    /// True when no group of workers of the tenant fits a class.
    pub(in crate::engine) fn none_fits(&self, queue: &Queue, class: Ix<Class>) -> bool {
        let groups = self.pool.groups_of.get(&queue.class(class).tenant());
        groups
            .is_none_or(|groups| groups.iter().all(|&group| self.group_lacks(queue, group, class).is_some()))
    }

    /// A worker joins the group of its skills; the first one creates the group.
    pub(super) fn join_group(
        &mut self,
        settings: &Settings,
        queue: &mut Queue,
        tenant: Ix<Tenant>,
        skills: Skills,
    ) -> Ix<Group> {
        let key = (tenant, Arc::new(skills));
        if let Some(group) = self.pool.groups.find(&key) {
            self.pool.groups.hold_again(group);
            return group;
        }
        let idle_list = self.pool.idle_lists.insert(IdleWorkers::default());
        let mut limited = BTreeMap::new();
        for (kind, limit) in &key.1.kind_limits {
            let kind = queue.hold_kind(settings, kind);
            limited.insert(kind, (self.pool.idle_lists.insert(IdleWorkers::default()), *limit));
        }
        queue.hold_tenant_again(tenant);
        let skills = key.1.clone();
        let group = self.pool.groups.hold(&key, || Group { skills, idle_list, limited });
        self.pool.groups_of.entry(tenant).or_default().insert(group);
        self.reroute_tenant(queue, tenant);
        group
    }

    /// A worker leaves its group; the last one removes the group.
    pub(super) fn leave_group(&mut self, queue: &mut Queue, group: Ix<Group>) {
        let tenant = self.pool.groups.key(group).0;
        if self.pool.groups.users(group) > 1 {
            self.pool.groups.release(group);
            return;
        }
        if let Some(groups) = self.pool.groups_of.get_mut(&tenant) {
            groups.remove(&group);
            if groups.is_empty() {
                self.pool.groups_of.remove(&tenant);
            }
        }
        // Routes over its idle lists must be gone before the idle lists are.
        self.reroute_tenant(queue, tenant);
        if let Some((_, gone)) = self.pool.groups.release(group) {
            self.pool.idle_lists.remove(gone.idle_list);
            for (kind, (idle_list, _)) in gone.limited {
                self.pool.idle_lists.remove(idle_list);
                queue.release_kind(kind);
            }
        }
        queue.release_tenant(tenant);
    }

    fn reroute_tenant(&mut self, queue: &mut Queue, tenant: Ix<Tenant>) {
        let classes: Vec<Ix<Class>> = queue.classes_of_tenant(tenant);
        let mut changed = false;
        for class in classes {
            if self.reroute_class(queue, class) {
                changed = true;
                queue.reshow_class(self, class);
            }
        }
        if changed {
            self.open_slot_gates_of(queue, tenant);
        }
    }

    /// Finds the workers that fit a class. Returns true when they are others than before.
    pub(in crate::engine) fn reroute_class(&mut self, queue: &mut Queue, class: Ix<Class>) -> bool {
        let entry = queue.class(class);
        let before = entry.route();
        if before.is_none() && !self.pool.groups_of.contains_key(&entry.tenant()) {
            return false;
        }
        let idle_lists = self.fitting_lists(queue, class);
        let route = (!idle_lists.is_empty()).then(|| self.hold_route(idle_lists));
        queue.set_route(class, route);
        if let Some(route) = route {
            self.pool.routes[route].classes.insert(class);
        }
        if let Some(gone) = before {
            if before != route {
                self.pool.routes[gone].classes.remove(&class);
            }
            self.release_route(gone);
        }
        before != route
    }

    /// The idle lists of the groups that fit a class, in order.
    pub(super) fn fitting_lists(&self, queue: &Queue, class: Ix<Class>) -> Box<[Ix<IdleWorkers>]> {
        let entry = queue.class(class);
        let Some(kind) = entry.kind() else { return Box::default() };
        if queue.is_pull(entry.demand()) || queue.goes_to_executor(class) {
            return Box::default();
        }
        let Some(groups) = self.pool.groups_of.get(&entry.tenant()) else { return Box::default() };
        if self.placement_of(queue, class).is_some_and(|placement| placement.pinned) {
            return Box::default();
        }
        let mut idle_lists = Vec::new();
        for &group in groups {
            if self.group_lacks(queue, group, class).is_none() {
                let group = &self.pool.groups[group];
                idle_lists
                    .push(group.limited.get(&kind).map_or(group.idle_list, |(idle_list, _)| *idle_list));
            }
        }
        idle_lists.sort_unstable();
        idle_lists.into()
    }

    /// The first placement constraint of a class that the workers of a group do not meet.
    pub(super) fn group_lacks(&self, queue: &Queue, group: Ix<Group>, class: Ix<Class>) -> Option<Lack> {
        let entry = queue.class(class);
        let lane = queue.lane(entry.own_lane()).name();
        let kind = queue.kind_name(entry.own_kind());
        self.pool.groups[group].skills.lacks(lane, kind, self.placement_of(queue, class))
    }

    /// The placement constraints of a class beside its kind.
    pub(in crate::engine) fn placement_of(&self, queue: &Queue, class: Ix<Class>) -> Option<&PlacementRule> {
        queue.class(class).placement().map(|placement| &self.placements[placement])
    }

    fn hold_route(&mut self, idle_lists: Box<[Ix<IdleWorkers>]>) -> Ix<Route> {
        let (route, new) = self.pool.routes.find_or_make(&idle_lists, Route::default);
        if !new {
            self.pool.routes.hold_again(route);
            return route;
        }
        for idle_list in idle_lists {
            let idle_list = &mut self.pool.idle_lists[idle_list];
            idle_list.routes.insert(route);
            self.pool.routes[route].heads.extend(idle_list.head);
        }
        route
    }

    /// A class is forgotten, and no longer uses its route.
    pub(in crate::engine) fn forget_class(&mut self, route: Ix<Route>, class: Ix<Class>) {
        self.pool.routes[route].classes.remove(&class);
        self.release_route(route);
    }

    fn release_route(&mut self, route: Ix<Route>) {
        if let Some((idle_lists, _)) = self.pool.routes.release(route) {
            for idle_list in idle_lists {
                self.pool.idle_lists[idle_list].routes.remove(&route);
            }
        }
    }

    /// A worker may have a free slot, or none, from now on: moves it in the idle lists of its group.
    pub(super) fn update_slot(&mut self, queue: &mut Queue, worker: Ix<Worker>) {
        let Some(registration) = self.entries[worker].registration.as_mut() else { return };
        let now = registration.slot_now();
        let was = std::mem::replace(&mut registration.free_slot, now);
        let group = registration.group;
        let mut moves = vec![(self.pool.groups[group].idle_list, now)];
        for (kind, (idle_list, limit)) in &self.pool.groups[group].limited {
            let used = registration.used_of.get(kind).copied().unwrap_or(0);
            moves.push((*idle_list, now.filter(|_| used < *limit)));
        }
        for (idle_list, now) in moves {
            self.move_in_list(queue, idle_list, worker, (was, now));
        }
        self.update_slot_gates(queue, worker);
    }

    fn move_in_list(
        &mut self,
        queue: &mut Queue,
        idle_list: Ix<IdleWorkers>,
        worker: Ix<Worker>,
        (was, now): (Option<(u64, u64)>, Option<(u64, u64)>),
    ) {
        let entry = &mut self.pool.idle_lists[idle_list];
        if let Some((load, served)) = was {
            entry.free.remove(&(load, served, worker));
        }
        if let Some((load, served)) = now {
            entry.free.insert((load, served, worker));
        }
        let head = entry.free.first().copied();
        let before = std::mem::replace(&mut entry.head, head);
        if before == head {
            return;
        }
        let routes: Vec<Ix<Route>> = entry.routes.iter().copied().collect();
        for route in routes {
            let heads = &mut self.pool.routes[route].heads;
            let was_open = !heads.is_empty();
            if let Some(free_slot) = before {
                heads.remove(&free_slot);
            }
            heads.extend(head);
            if was_open != heads.is_empty() {
                continue;
            }
            let classes: Vec<Ix<Class>> = self.pool.routes[route].classes.iter().copied().collect();
            for class in classes {
                queue.reshow_class(self, class);
            }
        }
    }

    /// An attempt of a worker opened. It takes no slot of its own where others of its chain run already.
    pub(in crate::engine) fn take_slot(
        &mut self,
        jobs: &Jobs,
        queue: &mut Queue,
        job: Ix<Job>,
        mates: &Mates,
    ) {
        let open = jobs.open(job);
        let Some(worker) = open.worker() else { return };
        let pushed = open.is_pushed();
        self.entries[worker].attempts.insert(job);
        if pushed {
            self.change_used(jobs, queue, job, mates, 1);
        }
    }

    /// The attempt closed. `lease`: the one of the settings.
    pub(in crate::engine) fn free_slot(
        &mut self,
        jobs: &Jobs,
        queue: &mut Queue,
        job: Ix<Job>,
        mates: &Mates,
        lease: Span,
    ) {
        let open = jobs.open(job);
        let Some(worker) = open.worker() else { return };
        let pushed = open.is_pushed();
        self.entries[worker].attempts.remove(&job);
        if pushed {
            self.change_used(jobs, queue, job, mates, -1);
            self.forget_if_away(queue, worker, lease);
        }
        self.entries.release(worker);
    }

    fn change_used(&mut self, jobs: &Jobs, queue: &mut Queue, job: Ix<Job>, mates: &Mates, by: i32) {
        let Some(worker) = jobs.open(job).worker() else { return };
        let (kind, starts) = (queue.kind_of(&jobs[job]), queue.starts());
        let (of_chain, of_kind_of_chain) = mates.slot_at(jobs, queue, worker, kind);
        let Some(registration) = self.entries[worker].registration.as_mut() else { return };
        registration.change_used(kind, (!of_chain, !of_kind_of_chain), by);
        if by > 0 {
            registration.served = starts;
        }
        self.update_slot(queue, worker);
    }
}

impl Engine {
    /// Kinds that are run now for a tenant, [`Engine::KINDS_LISTED_MAX`] at most: by handlers and targets of the server, and
    /// by workers of this tenant.
    pub fn kinds_served(&self, tenant: &Name) -> BTreeSet<Name> {
        let placed = self.queue.kinds_with_executor();
        let tenant = self.queue.find_tenant(tenant);
        let offered = tenant.into_iter().flat_map(|tenant| self.workers.kinds_of(tenant));
        placed.chain(offered).take(Engine::KINDS_LISTED_MAX).cloned().collect()
    }

    /// Most kinds that [`Engine::kinds_served`] reads.
    pub const KINDS_LISTED_MAX: usize = 1_000;
}
