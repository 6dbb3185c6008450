//! The things that jobs share (tenants, kinds, classes, agents in lanes, sessions, keys): found, made and forgotten.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::Belongs;
use crate::engine::queue::{
    AgentQueue, Class, ClassKey, Demand, Gate, KeyEntry, KeyName, KeySet, Kind, Lane, Tenant,
};
use crate::engine::workers::pool::PlacementRule;
use crate::settings::{LaneSettings, MAIN_LANE, TenantSettings};
use crate::{Key, Name, Placement};

/// Agents that are remembered although they have no job, so that the order of turns is kept.
const IDLE_AGENT_QUEUES_MAX: usize = 10_000;

impl Engine {
    /// The lane that stands for unknown ones.
    pub(in crate::engine) fn main_lane(&self) -> Ix<Lane> {
        self.queue.lane_of[&Name::fixed(MAIN_LANE)]
    }

    /// Adds a user of a tenant's jobs of a kind in a lane; handles that are known already save looking them up.
    pub(in crate::engine) fn hold_class(
        &mut self,
        known: Belongs,
        tenant: &Name,
        kind: &Name,
        placement: Option<PlacementRule>,
        demand: Option<Demand>,
    ) -> Ix<Class> {
        let demand = self.hold_demand(demand);
        let placement = placement.map(|placement| self.workers.placements.hold(&placement));
        let Belongs { lane, tenant: known_tenant, kind: known_kind, agent_queue: _ } = known;
        let lane = Some(lane);
        let key = |tenant, kind| ClassKey { tenant, lane, kind, executor: None, placement, demand };
        if let Some(tenant) = known_tenant
            && known_kind.is_some()
            && let Some(class) = self.queue.classes.find(&key(tenant, known_kind))
        {
            // The class itself is one user of its placement and its demand.
            self.release_placement(placement);
            self.release_demand(demand);
            self.queue.classes.hold_again(class);
            return class;
        }
        let tenant = self.hold_tenant(tenant);
        let kind = self.hold_kind(kind);
        let class = self.queue.classes.hold(&key(tenant, Some(kind)), || Class {
            tenant,
            lane,
            kind: Some(kind),
            executor: None,
            placement,
            demand,
            route: None,
            shared_class: None,
            lanes: Default::default(),
        });
        self.queue.tenants[tenant].classes.insert(class);
        self.queue.kinds[kind].classes.insert(class);
        self.regroup_class(class);
        class
    }

    pub(in crate::engine) fn hold_tenant(&mut self, tenant: &Name) -> Ix<Tenant> {
        let limits = self.tenant_limits(tenant);
        self.queue.tenants.hold(tenant, || Tenant {
            waiting_in: Default::default(),
            waiting: 0,
            states: Default::default(),
            gate: Gate::with_limit(limits.running_max),
            classes: Default::default(),
        })
    }

    pub(in crate::engine) fn release_class(&mut self, class: Ix<Class>) {
        if let Some((ClassKey { tenant, kind, placement, demand, .. }, gone)) =
            self.queue.classes.release(class)
        {
            self.release_placement(placement);
            self.release_demand(demand);
            if let Some(route) = gone.route {
                self.workers.pool.routes[route].classes.remove(&class);
                self.release_route(route);
            }
            if let Some(shared_class) = gone.shared_class {
                self.release_shared_class(shared_class);
            }
            self.queue.tenants[tenant].classes.remove(&class);
            self.queue.tenants.release(tenant);
            let kind = kind.expect("a job's class has a kind");
            self.queue.kinds[kind].classes.remove(&class);
            self.queue.kinds.release(kind);
        }
    }

    fn release_placement(&mut self, placement: Option<Ix<PlacementRule>>) {
        if let Some(placement) = placement {
            self.workers.placements.release(placement);
        }
    }

    pub(in crate::engine) fn hold_kind(&mut self, name: &Name) -> Ix<Kind> {
        let settings = self.settings.kinds.get(name);
        self.queue.kinds.hold(name, || {
            let settings = settings.cloned().unwrap_or_default();
            let gate = Gate::with_limit(settings.running_max.unwrap_or(u32::MAX));
            Kind { settings, gate, executor: None, classes: Default::default() }
        })
    }

    pub(in crate::engine) fn tenant_limits(&self, tenant: &Name) -> TenantSettings {
        *self.settings.tenants.get(tenant).unwrap_or(&self.settings.tenant_default)
    }

    /// Adds a user of an agent in a lane; a handle that is known already saves looking it up.
    pub(in crate::engine) fn hold_agent_queue(
        &mut self,
        known: Option<Ix<AgentQueue>>,
        lane: Ix<Lane>,
        tenant: Ix<Tenant>,
        agent: &Name,
    ) -> Ix<AgentQueue> {
        if let Some(known) = known {
            if self.queue.agent_queues[known].idle {
                // The remembered agent has had one user all along: being remembered.
                self.queue.agent_queues[known].idle = false;
                self.queue.idle_agent_queues.remove(&(self.queue.agent_queues[known].served, known));
            } else {
                self.queue.agent_queues.hold_again(known);
            }
            return known;
        }
        let weight = self.weight_of(agent);
        let served = self.queue.starts.saturating_sub(1);
        let counts = self.queue.forgotten.take_stranger(lane, self.queue.tenants.key(tenant), agent);
        self.queue.tenants.hold_again(tenant);
        self.queue.agent_queues.hold(&(lane, tenant, agent.clone()), || AgentQueue {
            lane,
            weight,
            open: 0,
            waiting: 0,
            // It enters at the end of the round that goes on now: a name that nobody has seen gains nothing over those
            // who wait already.
            served,
            idle: false,
            counts,
            groups: Default::default(),
        })
    }

    pub(in crate::engine) fn release_agent_queue(&mut self, agent_queue: Ix<AgentQueue>) {
        if self.queue.agent_queues.users(agent_queue) > 1 {
            self.queue.agent_queues.release(agent_queue);
            return;
        }
        self.queue.agent_queues[agent_queue].idle = true;
        self.queue.idle_agent_queues.insert((self.queue.agent_queues[agent_queue].served, agent_queue));
        if self.queue.idle_agent_queues.len() > IDLE_AGENT_QUEUES_MAX
            && let Some((_, oldest)) = self.queue.idle_agent_queues.pop_first()
            && let Some(((lane, tenant, _), gone)) = self.queue.agent_queues.release(oldest)
        {
            self.keep_counts(lane, tenant, &gone.counts);
            self.queue.tenants.release(tenant);
        }
    }

    pub(in crate::engine) fn weight_of(&self, agent: &Name) -> u32 {
        self.settings.agents.get(agent).map_or(1, |agent| agent.weight.clamp(1, 1_000))
    }

    /// Adds a user of a set of keys; `None` for the empty set.
    pub(in crate::engine) fn hold_keyset(
        &mut self,
        tenant: Ix<Tenant>,
        keys: &[Key],
        wants: Option<&Placement>,
    ) -> Option<Ix<KeySet>> {
        if keys.is_empty() && wants.is_none() {
            return None;
        }
        let mut handles = Vec::with_capacity(keys.len());
        for key in keys {
            let limit = self.key_limit(&key.name);
            let name = KeyName::Named(tenant, key.name.clone(), key.value.clone());
            handles.push(self.hold_key(&name, limit));
        }
        if let Some(affinity) = wants.and_then(|wants| wants.affinity.clone()) {
            handles.push(self.hold_key(&KeyName::Affinity { tenant, affinity }, u32::MAX));
        }
        if let Some(first) = wants.and_then(|wants| wants.resources.first()) {
            let expiries = wants.into_iter().flat_map(|wants| &wants.resources);
            let expires_at = expiries.filter_map(|resource| resource.expires_at).min();
            handles.push(self.hold_pin(tenant, &first.worker, expires_at));
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

    fn hold_key(&mut self, name: &KeyName, limit: u32) -> Ix<KeyEntry> {
        self.queue.keys.hold(name, || KeyEntry { gate: Gate::with_limit(limit), sources: Default::default() })
    }

    pub(in crate::engine) fn key_limit(&self, name: &Name) -> u32 {
        self.settings.keys.get(name).copied().unwrap_or(self.settings.key_default)
    }

    /// Makes a lane that is not there yet, in the place of one that is named no more and has no jobs.
    pub(in crate::engine) fn add_lane(&mut self, name: &Name, settings: LaneSettings) {
        let lane = Lane {
            name: name.clone(),
            settings,
            open: 0,
            waiting: 0,
            share: Default::default(),
            served: 0,
            ended: 0,
            rejections: Default::default(),
            sources: Default::default(),
            classes: Default::default(),
            heads: Default::default(),
            by_demand: Default::default(),
            reserved: Default::default(),
        };
        let is_free =
            |lane: &Lane| !self.queue.lane_of.contains_key(&lane.name) && lane.waiting + lane.open == 0;
        let free = self.queue.lanes.iter().find(|(_, lane)| is_free(lane)).map(|(ix, _)| ix);
        let ix = match free {
            Some(free) => {
                self.forget_idle_agent_queues(free);
                self.queue.forgotten.drop_lane(free);
                self.queue.lanes[free] = lane;
                free
            }
            None => self.queue.lanes.push(lane),
        };
        self.queue.lane_of.insert(name.clone(), ix);
    }

    fn forget_idle_agent_queues(&mut self, lane: Ix<Lane>) {
        let (gone, kept) = self
            .queue
            .idle_agent_queues
            .iter()
            .copied()
            .partition(|&(_, agent_queue)| self.queue.agent_queues[agent_queue].lane == lane);
        self.queue.idle_agent_queues = kept;
        let gone: std::collections::BTreeSet<(u64, Ix<AgentQueue>)> = gone;
        for (_, agent_queue) in gone {
            if let Some(((_, tenant, _), _)) = self.queue.agent_queues.release(agent_queue) {
                self.queue.tenants.release(tenant);
            }
        }
    }
}
