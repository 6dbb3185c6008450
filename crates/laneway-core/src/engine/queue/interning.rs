//! What jobs share (tenants, kinds, classes, agent queues, keys): each is made for its first user and dropped with the last.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::Belongs;
use crate::engine::queue::class::ClassKey;
use crate::engine::queue::{
    AgentQueue, Class, Demand, Gate, KeyEntry, KeyName, KeySet, Kind, Lane, Queue, Tenant,
};
use crate::engine::workers::{PlacementRule, Route, Workers};
use crate::settings::LaneSettings;
use crate::{Key, Name, Placement, Settings};

/// Agents that are remembered although they have no job, so that the fair order is kept.
const IDLE_AGENT_QUEUES_MAX: usize = 10_000;

/// The class of a job, by names.
pub(in crate::engine) struct ClassWanted<'a> {
    pub(in crate::engine) tenant: &'a Name,
    pub(in crate::engine) kind: &'a Name,
    pub(in crate::engine) placement: Option<PlacementRule>,
    pub(in crate::engine) demand: Option<Demand>,
}

impl Engine {
    /// Adds a user of a set of keys; `None` for the empty set.
    pub(in crate::engine) fn hold_keyset(
        &mut self,
        tenant: Ix<Tenant>,
        keys: &[Key],
        placement: Option<&Placement>,
    ) -> Option<Ix<KeySet>> {
        if keys.is_empty() && placement.is_none() {
            return None;
        }
        let mut handles = Vec::with_capacity(keys.len());
        for key in keys {
            let limit = self.settings.key_limit(&key.name);
            let name = KeyName::Named(tenant, key.name.clone(), key.value.clone());
            handles.push(self.queue.hold_key(&name, limit));
        }
        if let Some(affinity) = placement.and_then(|placement| placement.affinity.clone()) {
            handles.push(self.queue.hold_key(&KeyName::Affinity { tenant, affinity }, u32::MAX));
        }
        if let Some(first) = placement.and_then(|placement| placement.resources.first()) {
            let expiries = placement.into_iter().flat_map(|placement| &placement.resources);
            let expires_at = expiries.filter_map(|resource| resource.expires_at).min();
            let until = self.clock.born() + self.settings.lease;
            let awaited_until = (until > self.clock.looked_at()).then_some(until);
            let worker = (tenant, &first.worker);
            handles.push(self.workers.hold_pin(&mut self.queue, worker, expires_at, awaited_until));
        }
        if handles.is_empty() {
            return None;
        }
        let set = KeySet(handles.into());
        let (keyset, new) = self.queue.keysets.find_or_make(&set);
        if !new {
            self.queue.keysets.hold_again(keyset);
            // The set itself is one user of each of its keys.
            for key in set.0.iter() {
                self.queue.keys.release(*key);
            }
        }
        Some(keyset)
    }
}

impl Queue {
    /// Adds a user of a tenant's jobs of a kind in a lane; handles that are known already save looking them up.
    pub(in crate::engine) fn hold_class(
        &mut self,
        workers: &mut Workers,
        settings: &Settings,
        known: Belongs,
        wanted: ClassWanted<'_>,
    ) -> Ix<Class> {
        let ClassWanted { tenant, kind, placement, demand } = wanted;
        let demand = self.hold_demand(demand);
        let placement = placement.map(|placement| workers.hold_placement(&placement));
        let Belongs { lane, tenant: known_tenant, kind: known_kind, agent_queue: _ } = known;
        let lane = Some(lane);
        let key = |tenant, kind| ClassKey { tenant, lane, kind, executor: None, placement, demand };
        if let Some(tenant) = known_tenant
            && known_kind.is_some()
            && let Some(class) = self.classes.find(&key(tenant, known_kind))
        {
            // The class itself is one user of its placement and its demand.
            release_placement(workers, placement);
            self.release_demand(demand);
            self.classes.hold_again(class);
            return class;
        }
        let tenant = self.hold_tenant(settings, tenant);
        let kind = self.hold_kind(settings, kind);
        let key = key(tenant, Some(kind));
        let class = self.classes.hold(&key, || Class::new(key));
        self.tenants[tenant].classes.insert(class);
        self.kinds[kind].classes.insert(class);
        self.regroup_class(workers, class);
        class
    }

    /// Takes a user of a class away.
    pub(in crate::engine) fn release_class(&mut self, workers: &mut Workers, class: Ix<Class>) {
        if let Some((ClassKey { tenant, kind, placement, demand, .. }, gone)) = self.classes.release(class) {
            release_placement(workers, placement);
            self.release_demand(demand);
            if let Some(route) = gone.route {
                workers.forget_class(route, class);
            }
            if let Some(shared_class) = gone.shared_class {
                self.release_shared_class(shared_class);
            }
            self.tenants[tenant].classes.remove(&class);
            self.tenants.release(tenant);
            let kind = kind.expect("a job's class has a kind");
            self.kinds[kind].classes.remove(&class);
            self.kinds.release(kind);
        }
    }

    /// Adds a user of a tenant.
    pub(in crate::engine) fn hold_tenant(&mut self, settings: &Settings, tenant: &Name) -> Ix<Tenant> {
        let limits = settings.tenant_limits(tenant);
        self.tenants.hold(tenant, || Tenant {
            waiting_in: Default::default(),
            waiting: 0,
            states: Default::default(),
            gate: Gate::with_limit(limits.running_max),
            classes: Default::default(),
        })
    }

    /// Adds a user of a kind.
    pub(in crate::engine) fn hold_kind(&mut self, settings: &Settings, name: &Name) -> Ix<Kind> {
        let settings = settings.kinds.get(name);
        self.kinds.hold(name, || {
            let settings = settings.cloned().unwrap_or_default();
            let gate = Gate::with_limit(settings.running_max.unwrap_or(u32::MAX));
            Kind { settings, gate, executor: None, classes: Default::default() }
        })
    }

    /// Adds a user of an agent in a lane; a handle that is known already saves looking it up.
    pub(in crate::engine) fn hold_agent_queue(
        &mut self,
        settings: &Settings,
        known: Option<Ix<AgentQueue>>,
        lane: Ix<Lane>,
        tenant: Ix<Tenant>,
        agent: &Name,
    ) -> Ix<AgentQueue> {
        if let Some(known) = known {
            if self.agent_queues[known].idle {
                // A remembered agent queue has one user: the memory of it.
                self.agent_queues[known].idle = false;
                self.idle_agent_queues.remove(&(self.agent_queues[known].served, known));
            } else {
                self.agent_queues.hold_again(known);
            }
            return known;
        }
        let weight = settings.weight_of(agent);
        let served = self.starts.saturating_sub(1);
        let counts = self.forgotten.take_unadmitted(lane, self.tenants.key(tenant), agent);
        self.tenants.hold_again(tenant);
        self.agent_queues.hold(&(lane, tenant, agent.clone()), || AgentQueue {
            lane,
            weight,
            open: 0,
            waiting: 0,
            // It enters at the end of the current round: a new name gains nothing over agents that wait already.
            served,
            idle: false,
            counts,
            groups: Default::default(),
        })
    }

    /// Takes a user of an agent queue away. The last one leaves it remembered, so that the fair order is kept.
    pub(in crate::engine) fn release_agent_queue(&mut self, agent_queue: Ix<AgentQueue>) {
        if self.agent_queues.users(agent_queue) > 1 {
            self.agent_queues.release(agent_queue);
            return;
        }
        self.agent_queues[agent_queue].idle = true;
        self.idle_agent_queues.insert((self.agent_queues[agent_queue].served, agent_queue));
        if self.idle_agent_queues.len() > IDLE_AGENT_QUEUES_MAX
            && let Some((_, oldest)) = self.idle_agent_queues.pop_first()
            && let Some(((lane, tenant, _), gone)) = self.agent_queues.release(oldest)
        {
            self.keep_counts(lane, tenant, &gone.counts);
            self.tenants.release(tenant);
        }
    }

    /// Adds a user of a key; makes it with this limit when it is new.
    pub(in crate::engine) fn hold_key(&mut self, name: &KeyName, limit: u32) -> Ix<KeyEntry> {
        self.keys.hold(name, || KeyEntry::with_limit(limit))
    }

    /// Makes a lane. It gets the handle of a lane that the settings do not name any more and that has no jobs.
    pub(in crate::engine) fn add_lane(&mut self, name: &Name, settings: LaneSettings) {
        let lane = Lane::new(name.clone(), settings);
        let is_free = |lane: &Lane| !self.by_name.contains_key(&lane.name) && lane.is_empty();
        let free = self.lanes.iter().find(|(_, lane)| is_free(lane)).map(|(ix, _)| ix);
        let ix = match free {
            Some(free) => {
                self.forget_idle_agent_queues(free);
                self.forgotten.drop_lane(free);
                self.lanes[free] = lane;
                free
            }
            None => self.lanes.push(lane),
        };
        self.by_name.insert(name.clone(), ix);
    }

    fn forget_idle_agent_queues(&mut self, lane: Ix<Lane>) {
        let (gone, kept) = self
            .idle_agent_queues
            .iter()
            .copied()
            .partition(|&(_, agent_queue)| self.agent_queues[agent_queue].lane == lane);
        self.idle_agent_queues = kept;
        let gone: std::collections::BTreeSet<(u64, Ix<AgentQueue>)> = gone;
        for (_, agent_queue) in gone {
            if let Some(((_, tenant, _), _)) = self.agent_queues.release(agent_queue) {
                self.tenants.release(tenant);
            }
        }
    }

    /// Adds a user of a known tenant.
    pub(in crate::engine) fn hold_tenant_again(&mut self, tenant: Ix<Tenant>) {
        self.tenants.hold_again(tenant);
    }

    /// Takes a user of a tenant away.
    pub(in crate::engine) fn release_tenant(&mut self, tenant: Ix<Tenant>) {
        self.tenants.release(tenant);
    }

    /// Takes a user of a kind away.
    pub(in crate::engine) fn release_kind(&mut self, kind: Ix<Kind>) {
        self.kinds.release(kind);
    }

    /// The key of that name, made with one user when it is new, and whether it is.
    pub(in crate::engine) fn find_or_make_key(&mut self, name: &KeyName, limit: u32) -> (Ix<KeyEntry>, bool) {
        self.keys.find_or_make(name, || KeyEntry::with_limit(limit))
    }

    /// Adds a user of a known key.
    pub(in crate::engine) fn hold_key_again(&mut self, key: Ix<KeyEntry>) {
        self.keys.hold_again(key);
    }

    /// Takes a user of a key away. Gives its name back when that was the last one.
    pub(in crate::engine) fn release_key(&mut self, key: Ix<KeyEntry>) -> Option<KeyName> {
        self.keys.release(key).map(|(name, _)| name)
    }

    /// A key lets so many attempts at once from now on.
    pub(in crate::engine) fn set_key_limit(&mut self, workers: &Workers, key: Ix<KeyEntry>, limit: u32) {
        self.keys[key].gate.limit = limit;
        self.reshow_key(workers, key);
    }

    /// Takes a user of a set of keys away. Gives the keys back when that was the last one.
    pub(in crate::engine) fn release_keyset(&mut self, keyset: Ix<KeySet>) -> Option<KeySet> {
        self.keysets.release(keyset)
    }

    fn hold_demand(&mut self, demand: Option<Demand>) -> Option<Ix<Demand>> {
        demand.map(|demand| self.demands.hold(&demand))
    }

    pub(super) fn release_demand(&mut self, demand: Option<Ix<Demand>>) {
        if let Some(demand) = demand {
            self.demands.release(demand);
        }
    }

    /// The workers that fit a class are those of this route from now on.
    pub(in crate::engine) fn set_route(&mut self, class: Ix<Class>, route: Option<Ix<Route>>) {
        self.classes[class].route = route;
    }
}

fn release_placement(workers: &mut Workers, placement: Option<Ix<PlacementRule>>) {
    if let Some(placement) = placement {
        workers.release_placement(placement);
    }
}
