//! Workers that are told what to run, as the engine keeps them: who is there, who has a free slot, and whom a class fits.
//!
//! Workers with an equal offer form a group. The members of a group that have a free slot sit on its idle lists by load: one
//! idle list for all kinds, and one for each kind that the group limits. A route is the set of idle lists whose workers fit a class;
//! classes with the same set share it. Which groups fit is computed when a class or a group appears, never when a job
//! starts: a start or an end moves one worker, and shows or hides classes only when a route gets its first free worker or
//! loses its last.

use crate::engine::state::{Class, Job, KeyEntry, Kind, Tenant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Ix, Pool, Slab};
use crate::engine::jobs::submit::Belongs;
use crate::engine::workers::placement::Bindings;
use crate::engine::workflows::chain_limits::Mates;
use crate::worker::{Beat, ConnectionId, Orders, Package, Pressure, Standing, WorkerOffer};
use crate::{JobSpec, Mono, Name, Placement, Span, Task, Wall};

/// Results whose tasks are remembered of each worker, so that one that comes again is known.
pub(in crate::engine) const RECENT_MAX: usize = 256;
/// Heartbeats that a worker may miss before it is lost.
pub(in crate::engine) const MISSES_MAX: u8 = 3;

/// A worker that holds attempts, is registered, or is waited for.
#[derive(Default)]
pub(in crate::engine) struct Worker {
    /// Jobs whose open attempts it holds, those it asked for included.
    pub(in crate::engine) held: BTreeSet<Ix<Job>>,
    /// The process that has the attempts that it was told of, if it has a boot id. They all have the same one: whatever
    /// another process had is closed when this one registers.
    pub(in crate::engine) boot: Option<Name>,
    /// What is known of it while it is registered.
    pub(in crate::engine) registration: Option<Box<Registration>>,
    /// Different pins of jobs that use something on it.
    pub(in crate::engine) pins: u32,
    /// For one that is not registered and has what jobs use: until when it may come back.
    pub(in crate::engine) awaited_until: Option<Mono>,
    /// Gates on which jobs wait for a free slot of it, by kind or (`None`) for any.
    pub(in crate::engine) gates: BTreeMap<Option<Ix<Kind>>, Ix<KeyEntry>>,
}

/// A registered worker.
pub(in crate::engine) struct Registration {
    pub(in crate::engine) offer: WorkerOffer,
    pub(in crate::engine) group: Ix<Group>,
    /// `None` while it is away.
    pub(in crate::engine) connection: Option<ConnectionId>,
    pub(in crate::engine) connected_at: Wall,
    /// How often it gives a sign of life.
    pub(in crate::engine) heartbeat: Span,
    pub(in crate::engine) heard_at: Mono,
    pub(in crate::engine) misses: u8,
    /// When it is looked at again.
    pub(in crate::engine) watch_at: Mono,
    /// The longest lease that it was told.
    pub(in crate::engine) lease: Span,
    /// Until when it must be heard of, or what it runs is lost.
    pub(in crate::engine) lease_until: Mono,
    pub(in crate::engine) beat: Beat,
    /// What an operator said of it.
    pub(in crate::engine) orders: Orders,
    /// Its memory or its disk is too full.
    pub(in crate::engine) pressed: bool,
    /// Open attempts that it was told of, and the same by kind.
    pub(in crate::engine) used: u32,
    pub(in crate::engine) used_of: BTreeMap<Ix<Kind>, u32>,
    /// When it was last given something, as a count of starts.
    pub(in crate::engine) served: u64,
    /// Since when it has no free slot, and whether that was told.
    pub(in crate::engine) full_since: Option<Mono>,
    pub(in crate::engine) full_told: bool,
    /// Where it sits on the idle lists of its group, if it sits.
    pub(in crate::engine) free_slot: Option<(u64, u64)>,
    /// Affinity keys that are bound to it.
    pub(in crate::engine) bound: BTreeSet<Name>,
    /// Tasks whose results were taken, the newest last.
    pub(in crate::engine) recent: VecDeque<Task>,
}

impl Registration {
    /// May it get something new, as far as it is concerned?
    pub(in crate::engine) fn is_willing(&self) -> bool {
        self.connection.is_some()
            && self.misses < MISSES_MAX
            && self.beat.healthy
            && !self.beat.draining
            && !self.is_drained()
            && !self.pressed
    }

    fn is_drained(&self) -> bool {
        self.orders.drained
    }

    /// Its place among others: the share of its slots that is taken, then whose turn it is.
    fn slot_now(&self) -> Option<(u64, u64)> {
        let max = self.offer.max_parallel;
        (self.is_willing() && self.used < max)
            .then(|| ((u64::from(self.used) << 32) / u64::from(max), self.served))
    }

    pub(in crate::engine) fn standing(&self) -> Standing {
        match self.misses {
            _ if self.connection.is_none() => Standing::Away,
            MISSES_MAX.. => Standing::Lost,
            _ if self.orders.drained || self.pressed || self.beat.draining => Standing::Draining,
            _ if !self.beat.healthy => Standing::Unhealthy,
            2 => Standing::Degraded,
            1 => Standing::Late,
            0 => Standing::Ready,
        }
    }

    /// What it last said of itself decides whether it is too full, with a distance between full and not.
    pub(in crate::engine) fn is_pressed_at(&self, at: &Pressure) -> bool {
        let over = |share: Option<u16>, limit: u16| {
            let limit = if self.pressed { limit.saturating_sub(at.relief) } else { limit };
            share.is_some_and(|share| share >= limit)
        };
        over(self.beat.memory, at.memory) || over(self.beat.disk, at.disk)
    }
}

/// What workers of a group have in common, each list in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Skills {
    pub(in crate::engine) kinds: Vec<Name>,
    pub(in crate::engine) kind_limits: Vec<(Name, u32)>,
    pub(in crate::engine) packages: Vec<Package>,
    pub(in crate::engine) features: Vec<Name>,
    pub(in crate::engine) labels: Vec<(Name, Name)>,
    /// The lanes whose jobs they get; empty: every one.
    pub(in crate::engine) lanes: Vec<Name>,
}

/// Which part of what a class asks for a group does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Lack {
    Kind,
    Package,
    Feature,
    Label,
    Lane,
}

impl Skills {
    /// The skills of a worker that serves these lanes now.
    pub(in crate::engine) fn of(offer: &WorkerOffer, lanes: &[Name]) -> Skills {
        fn sorted<T: Ord + Clone>(list: &[T]) -> Vec<T> {
            let mut list = list.to_vec();
            list.sort();
            list.dedup();
            list
        }
        Skills {
            kinds: sorted(&offer.kinds),
            kind_limits: sorted(&offer.kind_limits),
            packages: sorted(&offer.packages),
            features: sorted(&offer.features),
            labels: sorted(&offer.labels),
            lanes: sorted(lanes),
        }
    }

    /// The first part of what is asked for that is not there. With a package, the package counts and not the kind.
    pub(in crate::engine) fn lacks(
        &self,
        lane: &Name,
        kind: &Name,
        placement: Option<&PlacementRule>,
    ) -> Option<Lack> {
        match placement.and_then(|placement| placement.package.as_ref()) {
            Some(package) if self.packages.binary_search(package).is_err() => return Some(Lack::Package),
            None if self.kinds.binary_search(kind).is_err() => return Some(Lack::Kind),
            _ => {}
        }
        if let Some(placement) = placement {
            if placement.features.iter().any(|feature| self.features.binary_search(feature).is_err()) {
                return Some(Lack::Feature);
            }
            if placement.labels.iter().any(|label| self.labels.binary_search(label).is_err()) {
                return Some(Lack::Label);
            }
        }
        (!self.serves(lane)).then_some(Lack::Lane)
    }

    fn serves(&self, lane: &Name) -> bool {
        self.lanes.is_empty() || self.lanes.binary_search(lane).is_ok()
    }
}

/// What a class asks of workers, beside its kind. There are few different ones: what names single workers or keys is not in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::engine) struct PlacementRule {
    pub(in crate::engine) package: Option<Package>,
    pub(in crate::engine) features: Vec<Name>,
    pub(in crate::engine) labels: Vec<(Name, Name)>,
    /// One worker has what its jobs use, whoever else fits.
    pub(in crate::engine) pinned: bool,
}

impl PlacementRule {
    /// `None`: nothing that a class must know.
    pub(in crate::engine) fn of(wants: Option<&Placement>) -> Option<PlacementRule> {
        let Placement { package, features, labels, affinity: _, resources } = wants?;
        let pinned = !resources.is_empty();
        if package.is_none() && features.is_empty() && labels.is_empty() && !pinned {
            return None;
        }
        let (mut features, mut labels) = (features.clone(), labels.clone());
        features.sort();
        labels.sort();
        Some(PlacementRule { package: package.clone(), features, labels, pinned })
    }
}

/// Workers with an equal offer.
pub(in crate::engine) struct Group {
    pub(in crate::engine) skills: Arc<Skills>,
    /// For kinds without a limit.
    pub(in crate::engine) idle_list: Ix<IdleWorkers>,
    /// For each kind with a limit: the idle list and the limit.
    pub(in crate::engine) limited: BTreeMap<Ix<Kind>, (Ix<IdleWorkers>, u32)>,
}

/// Share of slots taken, when last served, who.
pub(in crate::engine) type FreeSlot = (u64, u64, Ix<Worker>);

/// Members of a group that have a free slot.
#[derive(Default)]
pub(in crate::engine) struct IdleWorkers {
    pub(in crate::engine) free: BTreeSet<FreeSlot>,
    /// What its routes show of it.
    pub(in crate::engine) head: Option<FreeSlot>,
    pub(in crate::engine) routes: BTreeSet<Ix<Route>>,
}

/// Where the jobs of some classes can go.
#[derive(Default)]
pub(in crate::engine) struct Route {
    /// The first of each idle list.
    pub(in crate::engine) heads: BTreeSet<FreeSlot>,
    pub(in crate::engine) classes: BTreeSet<Ix<Class>>,
}

/// All workers that are told what to run.
pub(in crate::engine) struct WorkerPool {
    pub(in crate::engine) connections: BTreeMap<ConnectionId, Ix<Worker>>,
    /// By tenant and skills.
    pub(in crate::engine) groups: Pool<(Ix<Tenant>, Arc<Skills>), Group>,
    pub(in crate::engine) groups_of: BTreeMap<Ix<Tenant>, BTreeSet<Ix<Group>>>,
    pub(in crate::engine) idle_lists: Slab<IdleWorkers>,
    /// By the idle lists they are made of.
    pub(in crate::engine) routes: Pool<Box<[Ix<IdleWorkers>]>, Route>,
    /// When to look at which worker again: at those that are registered, and those that are awaited.
    pub(in crate::engine) watch: BTreeSet<(Mono, Ix<Worker>)>,
    /// Registered workers, by tenant.
    pub(in crate::engine) registrations: BTreeMap<Ix<Tenant>, u32>,
    pub(in crate::engine) bindings: Bindings,
    /// Gates of workers made so far.
    pub(in crate::engine) gates_made: u64,
}

impl WorkerPool {
    pub(in crate::engine) fn new(hashing: Hashing) -> WorkerPool {
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

    pub(in crate::engine) fn registered_count(&self) -> u32 {
        self.registrations.values().sum()
    }
}

impl Engine {
    /// Does a worker of the tenant run jobs like this one?
    pub(in crate::engine) fn is_offered_by_workers(&self, spec: &JobSpec, belongs: Belongs) -> bool {
        let Some(tenant) = belongs.tenant else { return false };
        let Some(groups) = self.workers.pool.groups_of.get(&tenant) else { return false };
        let (lane, placement) =
            (&self.queue.lanes[belongs.lane].name, PlacementRule::of(spec.placement.as_deref()));
        let lacks = |group: Ix<Group>| {
            self.workers.pool.groups[group].skills.lacks(lane, &spec.kind, placement.as_ref())
        };
        groups.iter().any(|group| lacks(*group).is_none())
    }

    /// Is there something now that runs the kind of a job? A job that asks for a package or for what one worker has is not
    /// asked about: the kind does not decide there.
    pub(in crate::engine) fn is_served(&self, job: Ix<Job>) -> bool {
        let class = &self.queue.classes[self.jobs[job].class];
        let kind = class.own_kind();
        if self.is_pull(class.demand) || class.route.is_some() || self.queue.kinds[kind].executor.is_some() {
            return true;
        }
        if self
            .placement_of(self.jobs[job].class)
            .is_some_and(|placement| placement.package.is_some() || placement.pinned)
        {
            return true;
        }
        let kind = self.queue.kinds.key(kind);
        let mut groups = self.workers.pool.groups_of.get(&class.tenant).into_iter().flatten();
        groups.any(|&group| self.workers.pool.groups[group].skills.kinds.binary_search(kind).is_ok())
    }

    /// Kinds that are run now for a tenant, [`Engine::KINDS_LISTED_MAX`] at most: by handlers and targets of the server, and
    /// by workers of this tenant alone.
    pub fn kinds_served(&self, tenant: &Name) -> BTreeSet<Name> {
        let placed =
            self.queue.kinds.iter().filter(|(_, _, kind)| kind.executor.is_some()).map(|(_, name, _)| name);
        let groups =
            self.queue.tenants.find(tenant).and_then(|tenant| self.workers.pool.groups_of.get(&tenant));
        let groups = groups.into_iter().flatten();
        let offered = groups.flat_map(|&group| &self.workers.pool.groups[group].skills.kinds);
        placed.chain(offered).take(Engine::KINDS_LISTED_MAX).cloned().collect()
    }

    /// Most kinds that [`Engine::kinds_served`] looks at.
    pub const KINDS_LISTED_MAX: usize = 1_000;

    /// A worker joins the group of its skills; makes the group where it is the first.
    pub(in crate::engine) fn join_group(&mut self, tenant: Ix<Tenant>, skills: Skills) -> Ix<Group> {
        let key = (tenant, Arc::new(skills));
        if let Some(group) = self.workers.pool.groups.find(&key) {
            self.workers.pool.groups.hold_again(group);
            return group;
        }
        let idle_list = self.workers.pool.idle_lists.insert(IdleWorkers::default());
        let mut limited = BTreeMap::new();
        for (kind, limit) in &key.1.kind_limits {
            let kind = self.hold_kind(kind);
            limited.insert(kind, (self.workers.pool.idle_lists.insert(IdleWorkers::default()), *limit));
        }
        self.queue.tenants.hold_again(tenant);
        let skills = key.1.clone();
        let group = self.workers.pool.groups.hold(&key, || Group { skills, idle_list, limited });
        self.workers.pool.groups_of.entry(tenant).or_default().insert(group);
        self.reroute_tenant(tenant);
        group
    }

    /// A worker leaves its group; the last one takes the group with it.
    pub(in crate::engine) fn leave_group(&mut self, group: Ix<Group>) {
        let tenant = self.workers.pool.groups.key(group).0;
        if self.workers.pool.groups.users(group) > 1 {
            self.workers.pool.groups.release(group);
            return;
        }
        if let Some(groups) = self.workers.pool.groups_of.get_mut(&tenant) {
            groups.remove(&group);
            if groups.is_empty() {
                self.workers.pool.groups_of.remove(&tenant);
            }
        }
        // Routes over its idle lists must be gone before the idle lists are.
        self.reroute_tenant(tenant);
        if let Some((_, gone)) = self.workers.pool.groups.release(group) {
            self.workers.pool.idle_lists.remove(gone.idle_list);
            for (kind, (idle_list, _)) in gone.limited {
                self.workers.pool.idle_lists.remove(idle_list);
                self.queue.kinds.release(kind);
            }
        }
        self.queue.tenants.release(tenant);
    }

    fn reroute_tenant(&mut self, tenant: Ix<Tenant>) {
        let classes: Vec<Ix<Class>> = self.queue.tenants[tenant].classes.iter().copied().collect();
        let mut changed = false;
        for class in classes {
            if self.reroute_class(class) {
                changed = true;
                self.reshow_class(class);
            }
        }
        if changed {
            self.throw_gates_of(tenant);
        }
    }

    /// Does the static place of its kind run the jobs of this class?
    pub(in crate::engine) fn goes_to_place(&self, class: Ix<Class>) -> bool {
        let class = &self.queue.classes[class];
        self.queue.kinds[class.own_kind()].executor.is_some() && class.placement.is_none()
    }

    /// Finds the workers that fit a class; true when those are others than before.
    pub(in crate::engine) fn reroute_class(&mut self, class: Ix<Class>) -> bool {
        let entry = &self.queue.classes[class];
        let before = entry.route;
        if before.is_none() && !self.workers.pool.groups_of.contains_key(&entry.tenant) {
            return false;
        }
        let idle_lists = self.fitting_lists(class);
        let route = (!idle_lists.is_empty()).then(|| self.hold_route(idle_lists));
        self.queue.classes[class].route = route;
        if let Some(route) = route {
            self.workers.pool.routes[route].classes.insert(class);
        }
        if let Some(gone) = before {
            if before != route {
                self.workers.pool.routes[gone].classes.remove(&class);
            }
            self.release_route(gone);
        }
        before != route
    }

    /// The idle lists of the groups that fit a class, in order.
    pub(in crate::engine) fn fitting_lists(&self, class: Ix<Class>) -> Box<[Ix<IdleWorkers>]> {
        let entry = &self.queue.classes[class];
        let Some(kind) = entry.kind else { return Box::default() };
        if self.is_pull(entry.demand) || self.goes_to_place(class) {
            return Box::default();
        }
        let Some(groups) = self.workers.pool.groups_of.get(&entry.tenant) else { return Box::default() };
        if self.placement_of(class).is_some_and(|placement| placement.pinned) {
            return Box::default();
        }
        let mut idle_lists = Vec::new();
        for &group in groups {
            if self.group_lacks(group, class).is_none() {
                let group = &self.workers.pool.groups[group];
                idle_lists
                    .push(group.limited.get(&kind).map_or(group.idle_list, |(idle_list, _)| *idle_list));
            }
        }
        idle_lists.sort_unstable();
        idle_lists.into()
    }

    /// What the workers of a group do not have that the jobs of a class ask for.
    pub(in crate::engine) fn group_lacks(&self, group: Ix<Group>, class: Ix<Class>) -> Option<Lack> {
        let entry = &self.queue.classes[class];
        let lane = &self.queue.lanes[entry.own_lane()].name;
        let kind = self.queue.kinds.key(entry.own_kind());
        self.workers.pool.groups[group].skills.lacks(lane, kind, self.placement_of(class))
    }

    /// What a class asks of workers beside its kind.
    pub(in crate::engine) fn placement_of(&self, class: Ix<Class>) -> Option<&PlacementRule> {
        self.queue.classes[class].placement.map(|placement| &self.workers.placements[placement])
    }

    fn hold_route(&mut self, idle_lists: Box<[Ix<IdleWorkers>]>) -> Ix<Route> {
        let (route, new) = self.workers.pool.routes.find_or_make(&idle_lists, Route::default);
        if !new {
            self.workers.pool.routes.hold_again(route);
            return route;
        }
        for idle_list in idle_lists {
            let idle_list = &mut self.workers.pool.idle_lists[idle_list];
            idle_list.routes.insert(route);
            self.workers.pool.routes[route].heads.extend(idle_list.head);
        }
        route
    }

    /// A class no longer uses a route.
    pub(in crate::engine) fn release_route(&mut self, route: Ix<Route>) {
        if let Some((idle_lists, _)) = self.workers.pool.routes.release(route) {
            for idle_list in idle_lists {
                self.workers.pool.idle_lists[idle_list].routes.remove(&route);
            }
        }
    }

    /// What a worker can take has changed: it sits where it belongs now.
    pub(in crate::engine) fn update_slot(&mut self, worker: Ix<Worker>) {
        let Some(registration) = self.workers.entries[worker].registration.as_mut() else { return };
        let now = registration.slot_now();
        let was = std::mem::replace(&mut registration.free_slot, now);
        let group = registration.group;
        let mut moves = vec![(self.workers.pool.groups[group].idle_list, now)];
        for (kind, (idle_list, limit)) in &self.workers.pool.groups[group].limited {
            let used = registration.used_of.get(kind).copied().unwrap_or(0);
            moves.push((*idle_list, now.filter(|_| used < *limit)));
        }
        for (idle_list, now) in moves {
            self.sit(idle_list, worker, was, now);
        }
        self.turn_slot_gates(worker);
    }

    fn sit(
        &mut self,
        idle_list: Ix<IdleWorkers>,
        worker: Ix<Worker>,
        was: Option<(u64, u64)>,
        now: Option<(u64, u64)>,
    ) {
        let entry = &mut self.workers.pool.idle_lists[idle_list];
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
            let heads = &mut self.workers.pool.routes[route].heads;
            let was_open = !heads.is_empty();
            if let Some(free_slot) = before {
                heads.remove(&free_slot);
            }
            heads.extend(head);
            if was_open != heads.is_empty() {
                continue;
            }
            let classes: Vec<Ix<Class>> = self.workers.pool.routes[route].classes.iter().copied().collect();
            for class in classes {
                self.reshow_class(class);
            }
        }
    }

    /// An attempt opened that a worker holds. Where others of its chain run there already, it takes no slot of its own.
    pub(in crate::engine) fn take_worker(&mut self, job: Ix<Job>, mates: &Mates) {
        let open = self.jobs.open(job);
        let Some(worker) = open.worker else { return };
        let pushed = open.is_pushed();
        self.workers.entries[worker].held.insert(job);
        if pushed {
            self.turn_slot(worker, job, mates, 1);
        }
    }

    /// The attempt closed.
    pub(in crate::engine) fn free_worker(&mut self, job: Ix<Job>, mates: &Mates) {
        let open = self.jobs.open(job);
        let Some(worker) = open.worker else { return };
        let pushed = open.is_pushed();
        self.workers.entries[worker].held.remove(&job);
        if pushed {
            self.turn_slot(worker, job, mates, -1);
            self.forget_if_away(worker);
        }
        self.workers.entries.release(worker);
    }

    fn turn_slot(&mut self, worker: Ix<Worker>, job: Ix<Job>, mates: &Mates, by: i32) {
        let kind = self.kind_of(job);
        let served = self.queue.starts;
        let (of_chain, of_kind_of_chain) = self.mates_at(worker, kind, mates);
        let Some(registration) = self.workers.entries[worker].registration.as_mut() else { return };
        if !of_chain {
            registration.used = registration.used.saturating_add_signed(by);
        }
        if !of_kind_of_chain {
            let of_kind = registration.used_of.entry(kind).or_default();
            *of_kind = of_kind.saturating_add_signed(by);
            if *of_kind == 0 {
                registration.used_of.remove(&kind);
            }
        }
        if by > 0 {
            registration.served = served;
        }
        self.update_slot(worker);
    }
}
