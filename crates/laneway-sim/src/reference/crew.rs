//! Workers as the reference sees them: who is there, who has a free slot counted anew every time, and who must get a job.

use std::collections::{BTreeMap, VecDeque};

use laneway_core::settings::MAIN_LANE;
use laneway_core::worker::{AffinityMode, Beat, Orders, Register};
use laneway_core::{ConnectionId, JobSpec, Name, Placement, Settings, Task, TasksKept, Wall, WorkerOffer};

use crate::ledger::{Entry, Ledger};

/// The place of attempts that workers are told of.
pub const WORKERS: &str = "workers";
/// Results whose tasks are remembered of each worker.
const RECENT_MAX: usize = 256;

/// A tenant and a worker's name, or an affinity key.
pub type Who = (Name, Name);

/// All workers.
#[derive(Debug, Clone, Default)]
pub struct Crew {
    /// Those that are registered.
    pub members: BTreeMap<Who, Member>,
    /// Whose a connection is.
    pub connections: BTreeMap<ConnectionId, Who>,
    bindings: BTreeMap<Who, Binding>,
}

/// A registered worker.
#[derive(Debug, Clone)]
pub struct Member {
    /// What it offers.
    pub offer: WorkerOffer,
    /// Its connection, if it has one.
    pub connection: Option<ConnectionId>,
    /// Its process, if that has a boot id.
    pub boot: Option<Name>,
    /// How often it gives a sign of life, in milliseconds.
    pub heartbeat: u64,
    /// When it last did.
    pub heard: u64,
    /// It was said to be lost.
    pub lost: bool,
    beat: Beat,
    /// What an operator said of it.
    orders: Orders,
    pressed: bool,
    /// The longest lease that it was told.
    pub lease: u64,
    /// Until when its signs of life keep its attempts.
    pub lease_until: u64,
    served: u64,
    /// Tasks whose results were taken.
    pub recent: VecDeque<Task>,
}

#[derive(Debug, Clone)]
struct Binding {
    worker: Name,
    expires_at: Option<Wall>,
    number: u64,
}

impl Member {
    fn is_willing(&self) -> bool {
        self.connection.is_some()
            && !self.lost
            && self.beat.healthy
            && !self.beat.draining
            && !self.orders.drained
            && !self.pressed
    }

    /// Can it run a job of this lane?
    pub fn fits(&self, settings: &Settings, lane: &Name, spec: &JobSpec) -> bool {
        let served = match &self.orders.lanes {
            Some(lanes) => lanes,
            None => &self.offer.lanes,
        };
        let counts = self.orders.lanes.is_some() || served.iter().any(|lane| is_lane(settings, lane));
        fits(&self.offer, spec) && (!counts || served.is_empty() || served.contains(lane))
    }

    /// Three signs of life are missing.
    pub fn is_silent(&self, at: u64) -> bool {
        self.connection.is_some() && at.saturating_sub(self.heard) >= 3 * self.heartbeat
    }
}

/// Must a worker run it, whatever places there are?
pub fn wants_worker(spec: &JobSpec) -> bool {
    spec.placement.as_ref().is_some_and(|wants| {
        let Placement { package, features, labels, affinity: _, resources } = &**wants;
        package.is_some() || !features.is_empty() || !labels.is_empty() || !resources.is_empty()
    })
}

/// May new jobs come to this lane?
pub fn is_lane(settings: &Settings, name: &Name) -> bool {
    settings.lanes.contains_key(name) || name.as_str() == MAIN_LANE
}

/// Can a worker with this offer run it, as far as lanes leave it to?
fn fits(offer: &WorkerOffer, spec: &JobSpec) -> bool {
    let wants = spec.placement.as_deref().cloned().unwrap_or_default();
    let runs = match &wants.package {
        Some(package) => offer.packages.contains(package),
        None => offer.kinds.contains(&spec.kind),
    };
    runs && offer.tenant == spec.tenant
        && wants.features.iter().all(|feature| offer.features.contains(feature))
        && wants.labels.iter().all(|label| offer.labels.contains(label))
}

/// The worker that has what a job uses.
pub fn pin(spec: &JobSpec) -> Option<&Name> {
    spec.placement.as_ref()?.resources.first().map(|resource| &resource.worker)
}

/// When what a job uses is gone.
pub fn pin_expiry(spec: &JobSpec) -> Option<Wall> {
    spec.placement.as_ref()?.resources.iter().filter_map(|resource| resource.expires_at).min()
}

fn lease_for(settings: &Settings, heartbeat: u64) -> u64 {
    settings.lease.0.max(3 * heartbeat)
}

/// Attempts that a worker was told of.
pub fn held<'a>(ledger: &'a Ledger, who: &'a Who) -> impl Iterator<Item = &'a Entry> {
    ledger.open().filter(move |entry| is_held(entry, who))
}

/// Is its attempt one that this worker was told of?
pub fn is_held(entry: &Entry, who: &Who) -> bool {
    let open = entry.open.as_ref();
    let holder = open.filter(|open| open.executor.as_str() == WORKERS).and_then(|open| open.holder.as_ref());
    entry.row.spec.tenant == who.0 && holder.is_some_and(|holder| holder.worker == who.1)
}

impl Crew {
    /// A worker registers, or takes its place again.
    pub fn register(&mut self, settings: &Settings, register: &Register, at: u64, starts: u64) {
        let Register { connection, offer, heartbeat, orders, boot, tasks: _ } = register;
        let who = (offer.tenant.clone(), offer.worker.clone());
        let before = self.members.remove(&who);
        if let Some(old) = before.as_ref().and_then(|member| member.connection) {
            self.connections.remove(&old);
        }
        let lease = lease_for(settings, heartbeat.0);
        let member = Member {
            offer: offer.clone(),
            connection: Some(*connection),
            boot: boot.clone(),
            heartbeat: heartbeat.0,
            heard: at,
            lost: false,
            beat: Beat::default(),
            orders: before.as_ref().map_or_else(|| orders.clone(), |member| member.orders.clone()),
            pressed: false,
            lease,
            lease_until: at + lease,
            served: starts,
            recent: before.map(|member| member.recent).unwrap_or_default(),
        };
        self.connections.insert(*connection, who.clone());
        self.members.insert(who, member);
    }

    /// Must a registration be denied, because another process of that name answers?
    pub fn is_taken(&self, register: &Register, at: u64) -> bool {
        let who = (register.offer.tenant.clone(), register.offer.worker.clone());
        self.members.get(&who).is_some_and(|member| {
            let same = register.boot.is_some() && register.boot == member.boot;
            member.connection.is_some() && !member.is_silent(at) && !same
        })
    }

    /// What must be said again to an engine that was built anew.
    pub fn registrations(&self) -> Vec<Register> {
        let of = |(connection, who): (&ConnectionId, &Who)| {
            let member = self.members.get(who)?;
            let heartbeat = laneway_core::Span(member.heartbeat);
            let (offer, orders) = (member.offer.clone(), member.orders.clone());
            let (boot, tasks) = (member.boot.clone(), TasksKept::All);
            Some(Register { connection: *connection, offer, heartbeat, orders, boot, tasks })
        };
        self.connections.iter().filter_map(of).collect()
    }

    /// The member that speaks over this connection.
    pub fn speaks(&self, connection: ConnectionId) -> Option<&Who> {
        self.connections.get(&connection)
    }

    /// A sign of life.
    pub fn beat(&mut self, settings: &Settings, connection: ConnectionId, beat: Beat, at: u64) {
        let Some(member) = self.connections.get(&connection).and_then(|who| self.members.get_mut(who)) else {
            return;
        };
        let pressure = settings.workers.pressure;
        let relief = if member.pressed { pressure.relief } else { 0 };
        let over = |share: Option<u16>, limit: u16| share.is_some_and(|share| share >= limit - relief);
        member.pressed = over(beat.memory, pressure.memory) || over(beat.disk, pressure.disk);
        (member.beat, member.heard, member.lost) = (beat, at, false);
        let lease = lease_for(settings, member.heartbeat);
        member.lease = member.lease.max(lease);
        member.lease_until = member.lease_until.max(at + lease);
    }

    /// A worker offers something else.
    pub fn offers(&mut self, connection: ConnectionId, offer: &WorkerOffer) {
        if let Some(member) = self.connections.get(&connection).and_then(|who| self.members.get_mut(who)) {
            member.offer = offer.clone();
        }
    }

    /// An operator wants a worker to drain, or no longer.
    pub fn drain(&mut self, who: &Who, drain: bool) {
        if let Some(member) = self.members.get_mut(who) {
            member.orders.drained = drain;
        }
    }

    /// An operator says which lanes a worker serves. One that is not there changes nothing.
    pub fn rebind(&mut self, settings: &Settings, who: &Who, lanes: &[Name]) {
        if let Some(member) = self.members.get_mut(who)
            && lanes.iter().all(|lane| is_lane(settings, lane))
        {
            member.orders.lanes = Some(lanes.to_vec());
        }
    }

    /// A connection is gone.
    pub fn gone(&mut self, ledger: &Ledger, connection: ConnectionId) {
        let Some(who) = self.connections.remove(&connection) else { return };
        if let Some(member) = self.members.get_mut(&who) {
            member.connection = None;
        }
        self.forget_away(ledger, &who);
    }

    /// One without a connection that holds nothing is forgotten.
    pub fn forget_away(&mut self, ledger: &Ledger, who: &Who) {
        let away = self.members.get(who).is_some_and(|member| member.connection.is_none());
        if away && held(ledger, who).next().is_none() {
            self.members.remove(who);
            self.unbind(who);
        }
    }

    /// A worker is lost.
    pub fn lost(&mut self, who: &Who) {
        if let Some(member) = self.members.get_mut(who) {
            member.lost = true;
        }
        self.unbind(who);
    }

    fn unbind(&mut self, who: &Who) {
        self.bindings.retain(|(tenant, _), binding| *tenant != who.0 || binding.worker != who.1);
    }

    /// Has a binding expired that the house has not looked at?
    pub fn has_expired(&self, wall: Wall) -> bool {
        self.bindings.values().any(|binding| binding.expires_at.is_some_and(|at| at <= wall))
    }

    /// The house looked at the clock.
    pub fn expire(&mut self, wall: Wall) {
        self.bindings.retain(|_, binding| binding.expires_at.is_none_or(|at| at > wall));
    }

    /// Does somebody offer to run it?
    pub fn is_offered(&self, settings: &Settings, lane: &Name, spec: &JobSpec) -> bool {
        self.members.values().any(|member| member.fits(settings, lane, spec))
    }

    /// Has it a slot for this job? `shared`: what runs of its chain there has one for it.
    fn is_free(&self, ledger: &Ledger, who: &Who, member: &Member, entry: &Entry, shared: bool) -> bool {
        let kind = &entry.row.spec.kind;
        let limit = member.offer.kind_limits.iter().find(|(of, _)| of == kind);
        let here = |other: &Entry| is_held(other, who);
        let of_kind = |other: &Entry| here(other) && other.row.spec.kind == *kind;
        let is_open = |limit: u32, counts: &dyn Fn(&Entry) -> bool| {
            ledger.executors(counts) < limit || (shared && ledger.chain_has_place(entry, counts))
        };
        member.is_willing()
            && is_open(member.offer.max_parallel, &here)
            && limit.is_none_or(|(_, limit)| is_open(*limit, &of_kind))
    }

    /// Workers of which one must get the job: several where nothing tells them apart; none where it must wait. `shared`: its
    /// chain's slots are its own, too.
    pub fn pick(&self, settings: &Settings, ledger: &Ledger, entry: &Entry, shared: bool) -> Vec<Name> {
        let (lane, spec) = (&entry.lane, &entry.row.spec);
        let who = |worker: &Name| (spec.tenant.clone(), worker.clone());
        let free = |worker: &Name| {
            let who = who(worker);
            self.members.get(&who).is_some_and(|member| self.is_free(ledger, &who, member, entry, shared))
        };
        let fits = |member: &Member| member.fits(settings, lane, spec);
        let fitting = |worker: &Name| self.members.get(&who(worker)).is_some_and(fits);
        if let Some(worker) = pin(spec) {
            return if fitting(worker) && free(worker) { vec![worker.clone()] } else { Vec::new() };
        }
        if let Some(affinity) = spec.placement.as_ref().and_then(|wants| wants.affinity.as_ref())
            && let Some(binding) = self.bindings.get(&(spec.tenant.clone(), affinity.key.clone()))
            && fitting(&binding.worker)
        {
            if free(&binding.worker) {
                return vec![binding.worker.clone()];
            }
            if affinity.mode == AffinityMode::Sticky {
                return Vec::new();
            }
        }
        let candidates: Vec<(&Who, &Member)> = self
            .members
            .iter()
            .filter(|(who, member)| fits(member) && self.is_free(ledger, who, member, entry, shared))
            .collect();
        let has_chain = |who: &Who| shared && ledger.chain_has_place(entry, &|other| is_held(other, who));
        let of_chain: Vec<Name> =
            candidates.iter().filter(|(who, _)| has_chain(who)).map(|(who, _)| who.1.clone()).collect();
        if !of_chain.is_empty() {
            return of_chain;
        }
        let load = |who: &Who, member: &Member| {
            let used = u64::from(ledger.executors(&|other| is_held(other, who)));
            ((used << 32) / u64::from(member.offer.max_parallel), member.served)
        };
        let ranked: Vec<((u64, u64), &Name)> =
            candidates.into_iter().map(|(who, member)| (load(who, member), &who.1)).collect();
        let least = ranked.iter().map(|(load, _)| *load).min();
        ranked.into_iter().filter(|(load, _)| Some(*load) == least).map(|(_, name)| name.clone()).collect()
    }

    /// An attempt opened at a worker, as the `number`th of all.
    pub fn opened(&mut self, settings: &Settings, spec: &JobSpec, worker: &Name, number: u64, wall: Wall) {
        let who = (spec.tenant.clone(), worker.clone());
        if let Some(member) = self.members.get_mut(&who) {
            member.served = number;
        }
        let Some(affinity) = spec.placement.as_ref().and_then(|wants| wants.affinity.clone()) else { return };
        if affinity.expires_at.is_some_and(|at| at <= wall) {
            return;
        }
        let key = (spec.tenant.clone(), affinity.key);
        if let Some(binding) = self.bindings.get_mut(&key) {
            if binding.worker == *worker {
                binding.expires_at = match (binding.expires_at, affinity.expires_at) {
                    (Some(one), Some(other)) => Some(one.max(other)),
                    _ => None,
                };
            }
            return;
        }
        let theirs = self.bindings.iter().filter(|((tenant, _), _)| *tenant == spec.tenant);
        let (count, oldest) = (
            theirs.clone().count(),
            theirs.min_by_key(|(_, binding)| binding.number).map(|(key, _)| key.clone()),
        );
        if count as u32 >= settings.workers.affinities_per_tenant_max
            && let Some(oldest) = oldest
        {
            self.bindings.remove(&oldest);
        }
        let binding = Binding { worker: worker.clone(), expires_at: affinity.expires_at, number };
        self.bindings.insert(key, binding);
    }

    /// The result of a task was taken.
    pub fn took(&mut self, connection: ConnectionId, task: Task) {
        let Some(member) = self.connections.get(&connection).and_then(|who| self.members.get_mut(who)) else {
            return;
        };
        if member.recent.len() == RECENT_MAX {
            member.recent.pop_front();
        }
        member.recent.push_back(task);
    }
}
