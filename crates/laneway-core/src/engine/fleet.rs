//! Workers that are told what to run, as the engine keeps them: who is there, who has a free slot, and whom a class fits.
//!
//! Workers with an equal offer form a group. The members of a group that have a free slot sit on its benches by load: one
//! bench for all kinds, and one for each kind that the group limits. A route is the set of benches whose workers fit a class;
//! classes with the same set share it. Which groups fit is computed when a class or a group appears, never when a job
//! starts: a start or an end re-seats one worker, and shows or hides classes only when a route gets its first free worker or
//! loses its last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::Engine;
use super::index::Hashing;
use super::placing::Bindings;
use super::slab::{Ix, NONE, Pool, Slab};
use super::submit::Belongs;
use crate::worker::{Beat, ConnectionId, Orders, Package, Pressure, Standing, WorkerOffer};
use crate::{JobSpec, Mono, Name, Span, Task, Wall, Wants};

/// Results whose tasks are remembered of each worker, so that one that comes again is known.
pub(super) const RECENT_MAX: usize = 256;
/// Heartbeats that a worker may miss before it is lost.
pub(super) const MISSES_MAX: u8 = 3;

/// A worker that holds attempts, is registered, or is waited for.
#[derive(Default)]
pub(super) struct Worker {
    /// Jobs whose open attempts it holds, those it asked for included.
    pub(super) held: BTreeSet<Ix>,
    /// What is known of it while it is registered.
    pub(super) post: Option<Box<Post>>,
    /// Different pins of jobs that use something on it.
    pub(super) pins: u32,
    /// For one that is not registered and has what jobs use: until when it may come back.
    pub(super) awaited_until: Option<Mono>,
    /// Gates on which jobs wait for a free slot of it, by kind or (`NONE`) for any.
    pub(super) gates: BTreeMap<Ix, Ix>,
}

/// A registered worker.
pub(super) struct Post {
    pub(super) offer: WorkerOffer,
    pub(super) group: Ix,
    /// `None` while it is away.
    pub(super) connection: Option<ConnectionId>,
    pub(super) connected_at: Wall,
    /// How often it gives a sign of life.
    pub(super) heartbeat: Span,
    pub(super) heard_at: Mono,
    pub(super) misses: u8,
    /// When it is looked at again.
    pub(super) watch_at: Mono,
    /// The longest lease that it was told.
    pub(super) lease: Span,
    /// Until when it must be heard of, or what it runs is lost.
    pub(super) lease_until: Mono,
    pub(super) beat: Beat,
    /// What an operator said of it.
    pub(super) orders: Orders,
    /// Its memory or its disk is too full.
    pub(super) pressed: bool,
    /// Open attempts that it was told of, and the same by kind.
    pub(super) used: u32,
    pub(super) used_of: BTreeMap<Ix, u32>,
    /// When it was last given something, as a count of starts.
    pub(super) served: u64,
    /// Since when it has no free slot, and whether that was told.
    pub(super) full_since: Option<Mono>,
    pub(super) full_told: bool,
    /// Where it sits on the benches of its group, if it sits.
    pub(super) seat: Option<(u64, u64)>,
    /// Affinity keys that are bound to it.
    pub(super) bound: BTreeSet<Name>,
    /// Tasks whose results were taken, the newest last.
    pub(super) recent: VecDeque<Task>,
}

impl Post {
    /// May it get something new, as far as it is concerned?
    pub(super) fn is_willing(&self) -> bool {
        self.connection.is_some()
            && self.misses < MISSES_MAX
            && self.beat.healthy
            && !self.beat.draining
            && !self.is_drained()
            && !self.pressed
    }

    fn is_drained(&self) -> bool {
        #[cfg(feature = "zoo")]
        if crate::zoo::is_out(crate::zoo::Bug::DrainedWorkerGetsWork) {
            return false;
        }
        self.orders.drained
    }

    /// Its place among others: the share of its slots that is taken, then whose turn it is.
    fn seat_now(&self) -> Option<(u64, u64)> {
        let max = self.offer.max_parallel;
        #[cfg(feature = "zoo")]
        let max = if crate::zoo::is_out(crate::zoo::Bug::MaxParallelIgnored) { max + 1 } else { max };
        (self.is_willing() && self.used < max)
            .then(|| ((u64::from(self.used) << 32) / u64::from(max), self.served))
    }

    pub(super) fn standing(&self) -> Standing {
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
    pub(super) fn is_pressed_at(&self, at: &Pressure) -> bool {
        let over = |share: Option<u16>, limit: u16| {
            let limit = if self.pressed { limit.saturating_sub(at.relief) } else { limit };
            share.is_some_and(|share| share >= limit)
        };
        over(self.beat.memory, at.memory) || over(self.beat.disk, at.disk)
    }
}

/// What workers of a group have in common, each list in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Skills {
    pub(super) kinds: Vec<Name>,
    pub(super) kind_limits: Vec<(Name, u32)>,
    pub(super) packages: Vec<Package>,
    pub(super) features: Vec<Name>,
    pub(super) labels: Vec<(Name, Name)>,
    /// The lanes whose jobs they get; empty: every one.
    pub(super) lanes: Vec<Name>,
}

/// Which part of what a class asks for a group does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    Kind,
    Package,
    Feature,
    Label,
    Lane,
}

impl Skills {
    /// The skills of a worker that serves these lanes now.
    pub(super) fn of(offer: &WorkerOffer, lanes: &[Name]) -> Skills {
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
    pub(super) fn lacks(&self, lane: &Name, kind: &Name, want: Option<&Want>) -> Option<Lack> {
        match want.and_then(|want| want.package.as_ref()) {
            Some(package) if self.packages.binary_search(package).is_err() => return Some(Lack::Package),
            None if self.kinds.binary_search(kind).is_err() => return Some(Lack::Kind),
            _ => {}
        }
        if let Some(want) = want {
            if want.features.iter().any(|feature| self.features.binary_search(feature).is_err()) {
                return Some(Lack::Feature);
            }
            if want.labels.iter().any(|label| self.labels.binary_search(label).is_err()) {
                return Some(Lack::Label);
            }
        }
        (!self.serves(lane)).then_some(Lack::Lane)
    }

    fn serves(&self, lane: &Name) -> bool {
        #[cfg(feature = "zoo")]
        if crate::zoo::is_out(crate::zoo::Bug::WorkerGetsForeignLane) {
            return true;
        }
        self.lanes.is_empty() || self.lanes.binary_search(lane).is_ok()
    }
}

/// What a class asks of workers, beside its kind. There are few different ones: what names single workers or keys is not in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Want {
    pub(super) package: Option<Package>,
    pub(super) features: Vec<Name>,
    pub(super) labels: Vec<(Name, Name)>,
    /// One worker has what its jobs use, whoever else fits.
    pub(super) pinned: bool,
}

impl Want {
    /// `None`: nothing that a class must know.
    pub(super) fn of(wants: Option<&Wants>) -> Option<Want> {
        let Wants { package, features, labels, affinity: _, resources } = wants?;
        let pinned = !resources.is_empty();
        if package.is_none() && features.is_empty() && labels.is_empty() && !pinned {
            return None;
        }
        let (mut features, mut labels) = (features.clone(), labels.clone());
        features.sort();
        labels.sort();
        Some(Want { package: package.clone(), features, labels, pinned })
    }
}

/// Workers with an equal offer.
pub(super) struct Group {
    pub(super) skills: Arc<Skills>,
    /// For kinds without a limit.
    pub(super) bench: Ix,
    /// For each kind with a limit: the bench and the limit.
    pub(super) limited: BTreeMap<Ix, (Ix, u32)>,
}

/// Share of slots taken, when last served, who.
pub(super) type Seat = (u64, u64, Ix);

/// Members of a group that have a free slot.
#[derive(Default)]
pub(super) struct Bench {
    pub(super) free: BTreeSet<Seat>,
    /// What its routes show of it.
    pub(super) head: Option<Seat>,
    pub(super) routes: BTreeSet<Ix>,
}

/// Where the jobs of some classes can go.
#[derive(Default)]
pub(super) struct Route {
    /// The first of each bench.
    pub(super) heads: BTreeSet<Seat>,
    pub(super) classes: BTreeSet<Ix>,
}

/// All workers that are told what to run.
pub(super) struct Fleet {
    pub(super) connections: BTreeMap<ConnectionId, Ix>,
    /// By tenant and skills.
    pub(super) groups: Pool<(Ix, Arc<Skills>), Group>,
    pub(super) groups_of: BTreeMap<Ix, BTreeSet<Ix>>,
    pub(super) benches: Slab<Bench>,
    /// By the benches they are made of.
    pub(super) routes: Pool<Box<[Ix]>, Route>,
    /// When to look at which worker again: at those that are registered, and those that are awaited.
    pub(super) watch: BTreeSet<(Mono, Ix)>,
    /// Registered workers, by tenant.
    pub(super) posts: BTreeMap<Ix, u32>,
    pub(super) bindings: Bindings,
    /// Gates of workers made so far.
    pub(super) gates_made: u64,
    /// Every connection that ever was, for bugs that believe what old ones say.
    #[cfg(feature = "zoo")]
    pub(super) ever: BTreeMap<ConnectionId, Ix>,
}

impl Fleet {
    pub(super) fn new(hashing: Hashing) -> Fleet {
        Fleet {
            connections: BTreeMap::new(),
            groups: Pool::new(hashing),
            groups_of: BTreeMap::new(),
            benches: Slab::new(),
            routes: Pool::new(hashing),
            watch: BTreeSet::new(),
            posts: BTreeMap::new(),
            bindings: Bindings::default(),
            gates_made: 0,
            #[cfg(feature = "zoo")]
            ever: BTreeMap::new(),
        }
    }

    pub(super) fn post_count(&self) -> u32 {
        self.posts.values().sum()
    }
}

impl Engine {
    /// Does a worker of the tenant run jobs like this one?
    pub(super) fn is_offered_by_workers(&self, spec: &JobSpec, belongs: Belongs) -> bool {
        let Some(groups) = self.fleet.groups_of.get(&belongs.tenant) else { return false };
        let (lane, want) = (&self.lanes[belongs.lane as usize].name, Want::of(spec.wants.as_deref()));
        let lacks = |group: Ix| self.fleet.groups[group].skills.lacks(lane, &spec.kind, want.as_ref());
        groups.iter().any(|group| lacks(*group).is_none())
    }

    /// A worker joins the group of its skills; makes the group where it is the first.
    pub(super) fn join_group(&mut self, tenant: Ix, skills: Skills) -> Ix {
        let key = (tenant, Arc::new(skills));
        if let Some(group) = self.fleet.groups.find(&key) {
            self.fleet.groups.hold_again(group);
            return group;
        }
        let bench = self.fleet.benches.insert(Bench::default());
        let mut limited = BTreeMap::new();
        for (kind, limit) in &key.1.kind_limits {
            let kind = self.hold_kind(kind);
            limited.insert(kind, (self.fleet.benches.insert(Bench::default()), *limit));
        }
        self.tenants.hold_again(tenant);
        let skills = key.1.clone();
        let group = self.fleet.groups.hold(&key, || Group { skills, bench, limited });
        self.fleet.groups_of.entry(tenant).or_default().insert(group);
        self.reroute_tenant(tenant);
        group
    }

    /// A worker leaves its group; the last one takes the group with it.
    pub(super) fn leave_group(&mut self, group: Ix) {
        let tenant = self.fleet.groups.key(group).0;
        if self.fleet.groups.users(group) > 1 {
            self.fleet.groups.release(group);
            return;
        }
        if let Some(groups) = self.fleet.groups_of.get_mut(&tenant) {
            groups.remove(&group);
            if groups.is_empty() {
                self.fleet.groups_of.remove(&tenant);
            }
        }
        // Routes over its benches must be gone before the benches are.
        self.reroute_tenant(tenant);
        if let Some((_, gone)) = self.fleet.groups.release(group) {
            self.fleet.benches.remove(gone.bench);
            for (kind, (bench, _)) in gone.limited {
                self.fleet.benches.remove(bench);
                self.kinds.release(kind);
            }
        }
        self.tenants.release(tenant);
    }

    fn reroute_tenant(&mut self, tenant: Ix) {
        let classes: Vec<Ix> = self.tenants[tenant].classes.iter().copied().collect();
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
    pub(super) fn goes_to_place(&self, class: Ix) -> bool {
        let class = &self.classes[class];
        self.kinds[class.kind].place != NONE && class.want == NONE
    }

    /// Finds the workers that fit a class; true when those are others than before.
    pub(super) fn reroute_class(&mut self, class: Ix) -> bool {
        let entry = &self.classes[class];
        let before = entry.route;
        if before == NONE && !self.fleet.groups_of.contains_key(&entry.tenant) {
            return false;
        }
        let benches = self.fitting_benches(class);
        let route = match benches.is_empty() {
            true => NONE,
            false => self.hold_route(benches),
        };
        self.classes[class].route = route;
        if route != NONE {
            self.fleet.routes[route].classes.insert(class);
        }
        if before != NONE {
            if before != route {
                self.fleet.routes[before].classes.remove(&class);
            }
            self.release_route(before);
        }
        before != route
    }

    /// The benches of the groups that fit a class, in order.
    pub(super) fn fitting_benches(&self, class: Ix) -> Box<[Ix]> {
        let entry = &self.classes[class];
        if entry.kind == NONE || self.is_pull(entry.need) || self.goes_to_place(class) {
            return Box::default();
        }
        let Some(groups) = self.fleet.groups_of.get(&entry.tenant) else { return Box::default() };
        if self.want_of(class).is_some_and(|want| want.pinned) {
            return Box::default();
        }
        let mut benches = Vec::new();
        for &group in groups {
            if self.group_lacks(group, class).is_none() {
                let group = &self.fleet.groups[group];
                benches.push(group.limited.get(&entry.kind).map_or(group.bench, |(bench, _)| *bench));
            }
        }
        benches.sort_unstable();
        benches.into()
    }

    /// What the workers of a group do not have that the jobs of a class ask for.
    pub(super) fn group_lacks(&self, group: Ix, class: Ix) -> Option<Lack> {
        let entry = &self.classes[class];
        let (lane, kind) = (&self.lanes[entry.lane as usize].name, self.kinds.key(entry.kind));
        self.fleet.groups[group].skills.lacks(lane, kind, self.want_of(class))
    }

    /// What a class asks of workers beside its kind.
    pub(super) fn want_of(&self, class: Ix) -> Option<&Want> {
        match self.classes[class].want {
            NONE => None,
            want => Some(self.wants.key(want)),
        }
    }

    fn hold_route(&mut self, benches: Box<[Ix]>) -> Ix {
        let (route, new) = self.fleet.routes.find_or_make(&benches, Route::default);
        if !new {
            self.fleet.routes.hold_again(route);
            return route;
        }
        for bench in benches {
            let bench = &mut self.fleet.benches[bench];
            bench.routes.insert(route);
            self.fleet.routes[route].heads.extend(bench.head);
        }
        route
    }

    /// A class no longer uses a route.
    pub(super) fn release_route(&mut self, route: Ix) {
        if let Some((benches, _)) = self.fleet.routes.release(route) {
            for bench in benches {
                self.fleet.benches[bench].routes.remove(&route);
            }
        }
    }

    /// What a worker can take has changed: it sits where it belongs now.
    pub(super) fn reseat(&mut self, worker: Ix) {
        let Some(post) = self.workers[worker].post.as_mut() else { return };
        let now = post.seat_now();
        let was = std::mem::replace(&mut post.seat, now);
        let group = post.group;
        let mut moves = vec![(self.fleet.groups[group].bench, now)];
        for (kind, (bench, limit)) in &self.fleet.groups[group].limited {
            let used = post.used_of.get(kind).copied().unwrap_or(0);
            moves.push((*bench, now.filter(|_| used < *limit)));
        }
        for (bench, now) in moves {
            self.sit(bench, worker, was, now);
        }
        self.turn_slot_gates(worker);
    }

    fn sit(&mut self, bench: Ix, worker: Ix, was: Option<(u64, u64)>, now: Option<(u64, u64)>) {
        let entry = &mut self.fleet.benches[bench];
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
        let routes: Vec<Ix> = entry.routes.iter().copied().collect();
        for route in routes {
            let heads = &mut self.fleet.routes[route].heads;
            let was_open = !heads.is_empty();
            if let Some(seat) = before {
                heads.remove(&seat);
            }
            heads.extend(head);
            if was_open != heads.is_empty() {
                continue;
            }
            let classes: Vec<Ix> = self.fleet.routes[route].classes.iter().copied().collect();
            for class in classes {
                self.reshow_class(class);
            }
        }
    }

    /// An attempt opened that a worker holds.
    pub(super) fn take_worker(&mut self, job: Ix) {
        let open = &self.attempts[self.jobs[job].open];
        let (worker, pushed) = (open.worker, open.is_pushed());
        self.workers[worker].held.insert(job);
        if pushed {
            self.turn_slot(worker, job, 1);
        }
    }

    /// The attempt closed.
    pub(super) fn free_worker(&mut self, job: Ix) {
        let open = &self.attempts[self.jobs[job].open];
        let (worker, pushed) = (open.worker, open.is_pushed());
        self.workers[worker].held.remove(&job);
        if pushed {
            self.turn_slot(worker, job, -1);
            self.forget_if_away(worker);
        }
        self.workers.release(worker);
    }

    fn turn_slot(&mut self, worker: Ix, job: Ix, by: i32) {
        let kind = self.classes[self.jobs[job].class].kind;
        let served = self.starts;
        let Some(post) = self.workers[worker].post.as_mut() else { return };
        post.used = post.used.saturating_add_signed(by);
        let of_kind = post.used_of.entry(kind).or_default();
        *of_kind = of_kind.saturating_add_signed(by);
        if *of_kind == 0 {
            post.used_of.remove(&kind);
        }
        if by > 0 {
            post.served = served;
        }
        self.reseat(worker);
    }
}
