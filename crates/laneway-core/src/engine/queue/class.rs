//! Classes: jobs that the same gates hold back, with the tenants, kinds and executors that have these gates.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use crate::capacity::QuietRule;
use crate::engine::collections::slab::Ix;
use crate::engine::queue::gates::Gate;
use crate::engine::queue::lane::Lane;
use crate::engine::workers::{PlacementRule, Route};
use crate::settings::KindSettings;
use crate::{CapacityRequest, ExecutorMode, JobState, LaneSettings};

/// A tenant.
pub(in crate::engine) struct Tenant {
    pub(super) waiting: u32,
    /// The same by lane.
    pub(super) waiting_in: BTreeMap<Ix<Lane>, u32>,
    /// Jobs in memory by the code of their state.
    pub(super) states: [u32; JobState::ALL.len()],
    pub(super) gate: Gate,
    pub(super) classes: BTreeSet<Ix<Class>>,
}

impl Tenant {
    /// How many of its jobs wait in a lane.
    pub(super) fn waiting_in(&self, lane: Ix<Lane>) -> u32 {
        self.waiting_in.get(&lane).copied().unwrap_or(0)
    }

    pub(in crate::engine) fn is_open(&self) -> bool {
        self.gate.is_open()
    }
}

/// A kind.
pub(in crate::engine) struct Kind {
    /// Its settings; the default where the configuration does not name it.
    pub(super) settings: KindSettings,
    pub(super) gate: Gate,
    /// The executor that runs it.
    pub(super) executor: Option<Ix<Executor>>,
    pub(super) classes: BTreeSet<Ix<Class>>,
}

impl Kind {
    pub(in crate::engine) fn is_open(&self) -> bool {
        self.gate.is_open()
    }

    /// The executor that runs it.
    pub(in crate::engine) fn executor(&self) -> Option<Ix<Executor>> {
        self.executor
    }
}

/// A tenant's jobs of a kind in a lane: the same gates of tenant, kind and executor block them, and the same workers may run
/// them. Or a shared class: a tenant's jobs of all kinds of one executor that have no limit of their own. Only the gates of
/// tenant and executor block those, in every lane.
pub(in crate::engine) struct Class {
    pub(super) tenant: Ix<Tenant>,
    /// `None` for a shared class.
    pub(super) lane: Option<Ix<Lane>>,
    /// `None` for a shared class.
    pub(super) kind: Option<Ix<Kind>>,
    /// The executor of a shared class.
    pub(super) executor: Option<Ix<Executor>>,
    /// The placement constraints of its jobs.
    pub(super) placement: Option<Ix<PlacementRule>>,
    /// The capacity request of its jobs.
    pub(super) demand: Option<Ix<Demand>>,
    /// The workers that fit.
    pub(super) route: Option<Ix<Route>>,
    /// The shared class in whose bins its jobs wait; `None`: they wait in bins of the class itself.
    pub(super) shared_class: Option<Ix<Class>>,
    /// Lanes where bins hang on it.
    pub(super) lanes: BTreeSet<Ix<Lane>>,
}

impl Class {
    pub(super) fn new(key: ClassKey) -> Class {
        let ClassKey { tenant, lane, kind, executor, placement, demand } = key;
        Class {
            tenant,
            lane,
            kind,
            executor,
            placement,
            demand,
            route: None,
            shared_class: None,
            lanes: BTreeSet::new(),
        }
    }

    pub(in crate::engine) fn tenant(&self) -> Ix<Tenant> {
        self.tenant
    }

    /// `None` for a shared class.
    pub(in crate::engine) fn kind(&self) -> Option<Ix<Kind>> {
        self.kind
    }

    /// The placement constraints of its jobs.
    pub(in crate::engine) fn placement(&self) -> Option<Ix<PlacementRule>> {
        self.placement
    }

    /// The capacity request of its jobs.
    pub(in crate::engine) fn demand(&self) -> Option<Ix<Demand>> {
        self.demand
    }

    /// The workers that fit.
    pub(in crate::engine) fn route(&self) -> Option<Ix<Route>> {
        self.route
    }

    /// Its lane. It must not be a shared class.
    pub(in crate::engine) fn own_lane(&self) -> Ix<Lane> {
        self.lane.expect("a job's class has a lane")
    }

    /// Its kind. It must not be a shared class.
    pub(in crate::engine) fn own_kind(&self) -> Ix<Kind> {
        self.kind.expect("a job's class has a kind")
    }
}

/// The key of a class. A shared class has an executor, every other class a lane and a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClassKey {
    pub(super) tenant: Ix<Tenant>,
    pub(super) lane: Option<Ix<Lane>>,
    pub(super) kind: Option<Ix<Kind>>,
    pub(super) executor: Option<Ix<Executor>>,
    pub(super) placement: Option<Ix<PlacementRule>>,
    pub(super) demand: Option<Ix<Demand>>,
}

impl Hash for ClassKey {
    /// Three numbers instead of six with a tag each: every submit looks its class up.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ClassKey { tenant, lane, kind, executor, placement, demand } = *self;
        let pair = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        state.write_u64(pair(Ix::number_of(Some(tenant)), Ix::number_of(lane)));
        state.write_u64(pair(Ix::number_of(kind), Ix::number_of(executor)));
        state.write_u64(pair(Ix::number_of(placement), Ix::number_of(demand)));
    }
}

/// The capacity request of a job, and whether pull workers get it. There are few different ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::engine) struct Demand {
    pub(super) cost: u32,
    pub(super) rule: Option<QuietRule>,
    /// Pull workers get it: no executor need offer its kind.
    pub(super) pull: bool,
    /// Only for a pull worker that holds nothing else.
    pub(super) unique: bool,
}

impl Demand {
    /// What a job with this capacity request asks for in a lane. `None`: nothing. `near`: its deadline is near.
    pub(in crate::engine) fn of(
        request: &CapacityRequest,
        near: bool,
        lane: &LaneSettings,
    ) -> Option<Demand> {
        let pull = lane.pull.is_pull();
        let demand = Demand { cost: request.cost, rule: request.quiet, pull, unique: pull && request.unique };
        let demand = if near { demand.near_deadline() } else { demand };
        demand.asks_for_something().then_some(demand)
    }

    /// What a job with this demand asks for when its lane gets or loses pull workers.
    pub(in crate::engine) fn moved(demand: Option<Demand>, pull: bool, unique: bool) -> Option<Demand> {
        let (cost, rule) = demand.map_or((0, None), |demand| (demand.cost, demand.rule));
        let demand = Demand { cost, rule, pull, unique: pull && unique };
        demand.asks_for_something().then_some(demand)
    }

    /// The deadline of a job is near: it does not need a quiet machine any more.
    pub(in crate::engine) fn near_deadline(self) -> Demand {
        let rule = match self.rule {
            Some(QuietRule::Quiet) => Some(QuietRule::Normal),
            rule => rule,
        };
        Demand { rule, ..self }
    }

    /// Units of capacity.
    pub(in crate::engine) fn cost(&self) -> u32 {
        self.cost
    }

    /// How quiet the machine must be.
    pub(in crate::engine) fn rule(&self) -> Option<QuietRule> {
        self.rule
    }

    /// Pull workers get it.
    pub(in crate::engine) fn pull(&self) -> bool {
        self.pull
    }

    /// Only for a pull worker that holds nothing else.
    pub(in crate::engine) fn unique(&self) -> bool {
        self.unique
    }

    fn asks_for_something(&self) -> bool {
        self.cost > 0 || self.rule.is_some() || self.pull
    }
}

/// An executor: where attempts run.
pub(in crate::engine) struct Executor {
    pub(super) mode: ExecutorMode,
    pub(super) gate: Gate,
    /// Kinds it offers now; empty when withdrawn.
    pub(super) kinds: BTreeSet<Ix<Kind>>,
    /// The shared classes of its kinds, one a tenant.
    pub(super) shared_classes: BTreeSet<Ix<Class>>,
}
