//! Classes: jobs that the same gates hold back, with the tenants, kinds and executors that have these gates.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::QuietRule;
use crate::engine::collections::slab::Ix;
use crate::engine::queue::gates::Gate;
use crate::engine::queue::lane::Lane;
use crate::engine::workers::pool::{PlacementRule, Route};
use crate::settings::KindSettings;
use crate::{ExecutorMode, JobState};

/// A tenant.
pub(in crate::engine) struct Tenant {
    pub(in crate::engine) waiting: u32,
    /// The same by lane.
    pub(in crate::engine) waiting_in: BTreeMap<Ix<Lane>, u32>,
    /// Jobs in memory by the code of their state.
    pub(in crate::engine) states: [u32; JobState::ALL.len()],
    pub(in crate::engine) gate: Gate,
    pub(in crate::engine) classes: BTreeSet<Ix<Class>>,
}

/// A kind.
pub(in crate::engine) struct Kind {
    /// What the settings say of it; nothing where they do not name it.
    pub(in crate::engine) settings: KindSettings,
    pub(in crate::engine) gate: Gate,
    /// Where it runs.
    pub(in crate::engine) executor: Option<Ix<Executor>>,
    pub(in crate::engine) classes: BTreeSet<Ix<Class>>,
}

/// A tenant's jobs of a kind in a lane: what the gates of tenant, kind and place hold back together, and what the same
/// workers may run. Or a shared class: a tenant's jobs of all kinds of one place that have no limit of their own, which only tenant
/// and place hold back, whatever their lane.
pub(in crate::engine) struct Class {
    pub(in crate::engine) tenant: Ix<Tenant>,
    /// `None` for a shared class.
    pub(in crate::engine) lane: Option<Ix<Lane>>,
    /// `None` for a shared class.
    pub(in crate::engine) kind: Option<Ix<Kind>>,
    /// The place of a shared class.
    pub(in crate::engine) executor: Option<Ix<Executor>>,
    /// What its jobs want of workers beside their kind.
    pub(in crate::engine) placement: Option<Ix<PlacementRule>>,
    /// What its jobs ask of the machine.
    pub(in crate::engine) demand: Option<Ix<Demand>>,
    /// The workers that fit.
    pub(in crate::engine) route: Option<Ix<Route>>,
    /// The shared class that its jobs' bins stand for; `None`: they stand for the class itself.
    pub(in crate::engine) shared_class: Option<Ix<Class>>,
    /// Lanes where bins hang on it.
    pub(in crate::engine) lanes: BTreeSet<Ix<Lane>>,
}

impl Class {
    /// Its lane. It must not be a shared class.
    pub(in crate::engine) fn own_lane(&self) -> Ix<Lane> {
        self.lane.expect("a job's class has a lane")
    }

    /// Its kind. It must not be a shared class.
    pub(in crate::engine) fn own_kind(&self) -> Ix<Kind> {
        self.kind.expect("a job's class has a kind")
    }
}

/// What tells classes apart. A shared class has a place, every other class a lane and a kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::engine) struct ClassKey {
    pub(in crate::engine) tenant: Ix<Tenant>,
    pub(in crate::engine) lane: Option<Ix<Lane>>,
    pub(in crate::engine) kind: Option<Ix<Kind>>,
    pub(in crate::engine) executor: Option<Ix<Executor>>,
    pub(in crate::engine) placement: Option<Ix<PlacementRule>>,
    pub(in crate::engine) demand: Option<Ix<Demand>>,
}

/// What a job asks of the machine, and whether workers ask for it. There are few different ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::engine) struct Demand {
    pub(in crate::engine) cost: u32,
    pub(in crate::engine) rule: Option<QuietRule>,
    /// Workers ask for it: no executor need offer its kind.
    pub(in crate::engine) pull: bool,
    /// Only for a worker that holds nothing else.
    pub(in crate::engine) unique: bool,
}

/// A place where attempts run.
pub(in crate::engine) struct Executor {
    pub(in crate::engine) mode: ExecutorMode,
    pub(in crate::engine) gate: Gate,
    /// Kinds it offers now; empty when withdrawn.
    pub(in crate::engine) kinds: BTreeSet<Ix<Kind>>,
    /// The shared classes of its kinds, one a tenant.
    pub(in crate::engine) shared_classes: BTreeSet<Ix<Class>>,
}
