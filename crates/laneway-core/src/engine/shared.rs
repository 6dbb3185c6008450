//! The things that jobs share (tenants, kinds, classes, agents in lanes, sessions, keys): found, made and forgotten.

use super::Engine;
use super::fleet::Want;
use super::slab::{Ix, NONE};
use super::state::{Class, ClassKey, Gate, KeyEntry, KeyName, Kind, Lane, Need, Node, Tenant};
use super::submit::Belongs;
use crate::settings::{LaneSettings, MAIN_LANE, TenantSettings};
use crate::{Key, Name, Wants};

/// Agents that are remembered although they have no job, so that the order of turns is kept.
const IDLE_NODES_MAX: usize = 10_000;

impl Engine {
    /// The lane that stands for unknown ones.
    pub(super) fn main_lane(&self) -> Ix {
        self.lane_of[&Name::fixed(MAIN_LANE)]
    }

    /// Adds a user of a tenant's jobs of a kind in a lane; handles that are known already save looking them up.
    pub(super) fn hold_class(
        &mut self,
        known: Belongs,
        tenant: &Name,
        kind: &Name,
        want: Option<Want>,
        need: Option<Need>,
    ) -> Ix {
        let need = self.hold_need(need);
        let want = want.map_or(NONE, |want| self.wants.hold(&want, || ()));
        let Belongs { lane, tenant: known_tenant, kind: known_kind, node: _ } = known;
        let known = ClassKey { tenant: known_tenant, lane, kind: known_kind, place: NONE, want, need };
        if let Some(class) = self.classes.find(&known) {
            // The class itself is one user of its want and its need.
            self.release_want(want);
            self.release_need(need);
            self.classes.hold_again(class);
            return class;
        }
        let tenant = self.hold_tenant(tenant);
        let kind = self.hold_kind(kind);
        let class = self.classes.hold(&ClassKey { tenant, kind, ..known }, || Class {
            tenant,
            lane,
            kind,
            place: NONE,
            want,
            need,
            route: NONE,
            shelf: NONE,
            lanes: Default::default(),
        });
        self.tenants[tenant].classes.insert(class);
        self.kinds[kind].classes.insert(class);
        self.classes[class].shelf = class;
        self.reshelve_class(class);
        class
    }

    pub(super) fn hold_tenant(&mut self, tenant: &Name) -> Ix {
        let limits = self.tenant_limits(tenant);
        self.tenants.hold(tenant, || Tenant {
            waiting: 0,
            states: Default::default(),
            gate: Gate::with_limit(limits.running_max),
            classes: Default::default(),
        })
    }

    pub(super) fn release_class(&mut self, class: Ix) {
        if let Some((ClassKey { tenant, kind, want, need, .. }, gone)) = self.classes.release(class) {
            self.release_want(want);
            self.release_need(need);
            if gone.route != NONE {
                self.fleet.routes[gone.route].classes.remove(&class);
                self.release_route(gone.route);
            }
            if gone.shelf != class {
                self.release_shelf(gone.shelf);
            }
            self.tenants[tenant].classes.remove(&class);
            self.kinds[kind].classes.remove(&class);
            self.tenants.release(tenant);
            self.kinds.release(kind);
        }
    }

    fn release_want(&mut self, want: Ix) {
        if want != NONE {
            self.wants.release(want);
        }
    }

    pub(super) fn hold_kind(&mut self, name: &Name) -> Ix {
        let settings = self.settings.kinds.get(name);
        self.kinds.hold(name, || {
            let settings = settings.cloned().unwrap_or_default();
            let gate = Gate::with_limit(settings.running_max.unwrap_or(u32::MAX));
            Kind { settings, gate, place: NONE, classes: Default::default() }
        })
    }

    pub(super) fn tenant_limits(&self, tenant: &Name) -> TenantSettings {
        *self.settings.tenants.get(tenant).unwrap_or(&self.settings.tenant_default)
    }

    /// Adds a user of an agent in a lane; a handle that is known already saves looking it up.
    pub(super) fn hold_node(&mut self, known: Ix, lane: Ix, tenant: Ix, agent: &Name) -> Ix {
        if known != NONE {
            if self.nodes[known].idle {
                // The remembered agent has had one user all along: being remembered.
                self.nodes[known].idle = false;
                self.idle_nodes.remove(&(self.nodes[known].served, known));
            } else {
                self.nodes.hold_again(known);
            }
            return known;
        }
        let weight = self.weight_of(agent);
        let served = self.starts.saturating_sub(1);
        let counts = self.forgotten.take_stranger(lane, self.tenants.key(tenant), agent);
        self.tenants.hold_again(tenant);
        self.nodes.hold(&(lane, tenant, agent.clone()), || Node {
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

    pub(super) fn release_node(&mut self, node: Ix) {
        if self.nodes.users(node) > 1 {
            self.nodes.release(node);
            return;
        }
        self.nodes[node].idle = true;
        self.idle_nodes.insert((self.nodes[node].served, node));
        if self.idle_nodes.len() > IDLE_NODES_MAX
            && let Some((_, oldest)) = self.idle_nodes.pop_first()
            && let Some(((lane, tenant, _), gone)) = self.nodes.release(oldest)
        {
            self.keep_counts(lane, tenant, &gone.counts);
            self.tenants.release(tenant);
        }
    }

    pub(super) fn weight_of(&self, agent: &Name) -> u32 {
        self.settings.agents.get(agent).map_or(1, |agent| agent.weight.clamp(1, 1_000))
    }

    /// Adds a user of a set of keys; `NONE` for the empty set.
    pub(super) fn hold_keyset(&mut self, tenant: Ix, keys: &[Key], wants: Option<&Wants>) -> Ix {
        if keys.is_empty() && wants.is_none() {
            return NONE;
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
            return NONE;
        }
        let handles: Box<[Ix]> = handles.into();
        let known = self.keysets.find(&handles).is_some();
        let keyset = self.keysets.hold(&handles, || ());
        if known {
            // The set itself is one user of each of its keys.
            for key in handles.iter() {
                self.keys.release(*key);
            }
        }
        keyset
    }

    fn hold_key(&mut self, name: &KeyName, limit: u32) -> Ix {
        self.keys.hold(name, || KeyEntry { gate: Gate::with_limit(limit), sources: Default::default() })
    }

    pub(super) fn key_limit(&self, name: &Name) -> u32 {
        self.settings.keys.get(name).copied().unwrap_or(self.settings.key_default)
    }

    /// Makes a lane that is not there yet, in the place of one that is named no more and has no jobs.
    pub(super) fn add_lane(&mut self, name: &Name, settings: LaneSettings) {
        let lane = Lane {
            name: name.clone(),
            settings,
            open: 0,
            waiting: 0,
            served: 0,
            ended: 0,
            refusals: Default::default(),
            sources: Default::default(),
            classes: Default::default(),
            heads: Default::default(),
            needy: Default::default(),
            aside: Default::default(),
        };
        let is_free = |lane: &Lane| !self.lane_of.contains_key(&lane.name) && lane.waiting + lane.open == 0;
        let ix = match self.lanes.iter().position(is_free) {
            Some(free) => {
                let free_ix = Ix::try_from(free).expect("lanes are few");
                self.forget_idle_nodes(free_ix);
                self.forgotten.drop_lane(free_ix);
                self.lanes[free] = lane;
                free
            }
            None => {
                self.lanes.push(lane);
                self.lanes.len() - 1
            }
        };
        self.lane_of.insert(name.clone(), Ix::try_from(ix).expect("lanes are few"));
    }

    fn forget_idle_nodes(&mut self, lane: Ix) {
        let (gone, kept) =
            self.idle_nodes.iter().copied().partition(|&(_, node)| self.nodes[node].lane == lane);
        self.idle_nodes = kept;
        let gone: std::collections::BTreeSet<(u64, Ix)> = gone;
        for (_, node) in gone {
            if let Some(((_, tenant, _), _)) = self.nodes.release(node) {
                self.tenants.release(tenant);
            }
        }
    }
}
