//! Settings that change while jobs wait and run, and places that come and go.
//!
//! A lower limit starts nothing new and stops nothing that runs; a higher one is used in the same turn.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::reject;
use crate::engine::leases::by_id::LEASES;
use crate::engine::queue::{Executor, Gate, KeyName};
use crate::engine::workers::messages::WORKERS;
use crate::settings::MAIN_LANE;
use crate::{
    Bytes, Change, Effects, EventKind, ExecutorOffer, Name, Now, Origin, RejectionCode, Reply, Settings,
};

impl Engine {
    /// Replaces all settings at once.
    pub(in crate::engine) fn configure(
        &mut self,
        now: Now,
        settings: Settings,
        overrides: Option<Bytes>,
        detail: Box<str>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let agents_changed = self.settings.agents != settings.agents;
        self.settings = settings;
        let lanes_before: Vec<Name> = self.queue.lane_of.keys().cloned().collect();
        self.apply_lanes(agents_changed);
        self.apply_gates();
        self.recount_shares();
        if !self.queue.lane_of.keys().eq(&lanes_before) {
            self.review_lanes_served();
        }
        self.numbers.server_event(now, EventKind::ConfigChanged, None, Some(origin), detail, effects);
        if let Some(bytes) = overrides {
            effects.changes.push(Change::OverridesPut(bytes));
        }
        Reply::Done
    }

    /// Brings the lanes in line with the settings. A lane that is no longer named keeps its last settings for the jobs
    /// it has, and gets no new ones.
    fn apply_lanes(&mut self, agents_changed: bool) {
        let named = std::mem::take(&mut self.settings.lanes);
        for (name, &ix) in &self.queue.lane_of {
            if !named.contains_key(name) && name.as_str() != MAIN_LANE {
                let retention = self.queue.lanes[ix].settings.retention;
                self.queue.removed_lanes.insert(name.clone(), retention);
            }
        }
        self.queue.removed_lanes.retain(|name, _| !named.contains_key(name));
        self.queue.lane_of.retain(|name, _| named.contains_key(name) || name.as_str() == MAIN_LANE);
        for (name, settings) in &named {
            let known = self.queue.lanes.iter().find(|(_, lane)| lane.name == *name).map(|(ix, _)| ix);
            let Some(ix) = known else {
                self.add_lane(name, settings.clone());
                continue;
            };
            self.queue.lane_of.insert(name.clone(), ix);
            let was = std::mem::replace(&mut self.queue.lanes[ix].settings, settings.clone());
            if was.order != settings.order
                || was.aging_step != settings.aging_step
                || was.running_per_agent_max != settings.running_per_agent_max
            {
                self.replant_lane(ix, &was);
            }
            // Only now: a job is found in its bin by the order of the lane.
            if was.pull.is_pull() != settings.pull.is_pull() {
                self.change_demands_in(ix);
            }
        }
        self.settings.lanes = named;
        if agents_changed {
            for agent_queue in self.queue.agent_queues.handles() {
                self.queue.agent_queues[agent_queue].weight =
                    self.weight_of(&self.queue.agent_queues.key(agent_queue).2);
                self.rekey_agent(agent_queue);
            }
        }
    }

    /// Brings every gate in line with the settings and shows or hides what hangs on it.
    fn apply_gates(&mut self) {
        for kind in self.queue.kinds.handles() {
            let settings = self.settings.kinds.get(self.queue.kinds.key(kind)).cloned().unwrap_or_default();
            self.queue.kinds[kind].gate.limit = settings.running_max.unwrap_or(u32::MAX);
            self.queue.kinds[kind].settings = settings;
            self.regroup_kind(kind);
        }
        for tenant in self.queue.tenants.handles() {
            self.queue.tenants[tenant].gate.limit =
                self.tenant_limits(self.queue.tenants.key(tenant)).running_max;
        }
        for class in self.queue.classes.handles() {
            self.reshow_class(class);
        }
        for key in self.queue.keys.handles() {
            let KeyName::Named(_, name, _) = self.queue.keys.key(key) else { continue };
            self.queue.keys[key].gate.limit = self.key_limit(name);
            self.reshow_key(key);
        }
    }

    /// A place appears or changes what it offers.
    pub(in crate::engine) fn offer_executor(&mut self, offer: ExecutorOffer) -> Reply {
        let ExecutorOffer { executor: name, mode, kinds, slots } = offer;
        let known = self.queue.executors.find(&name);
        let taken = kinds.iter().find(|kind| {
            let owner = self.queue.kinds.find(kind).and_then(|kind| self.queue.kinds[kind].executor);
            owner.is_some() && owner != known
        });
        if let Some(kind) = taken {
            let message =
                format!("kinds: another place offers {:?} already; a kind runs in one place", kind.as_str());
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        let executor = known.unwrap_or_else(|| {
            self.queue.executors.hold(&name, || Executor {
                mode,
                gate: Gate::with_limit(slots),
                kinds: Default::default(),
                shared_classes: Default::default(),
            })
        });
        self.queue.executors[executor].mode = mode;
        self.queue.executors[executor].gate.limit = slots;
        let mut offered = std::collections::BTreeSet::new();
        for kind in &kinds {
            // The place is a user of the kinds it offers.
            let held = self.hold_kind(kind);
            if !offered.insert(held) {
                self.queue.kinds.release(held);
            }
        }
        let before = std::mem::replace(&mut self.queue.executors[executor].kinds, offered.clone());
        for &kind in &before {
            self.queue.kinds[kind].executor = None;
        }
        for &kind in &offered {
            self.queue.kinds[kind].executor = Some(executor);
        }
        for &kind in before.union(&offered) {
            self.regroup_kind(kind);
            self.reshow_kind(kind);
        }
        if !before.is_subset(&offered) {
            self.clear_shared_classes(executor);
        }
        self.reshow_executor(executor);
        for kind in before {
            self.queue.kinds.release(kind);
        }
        Reply::Done
    }

    /// A place is gone. Its open attempts end by their own leases or runners.
    pub(in crate::engine) fn withdraw_executor(&mut self, name: &Name) -> Reply {
        let Some(executor) = self.queue.executors.find(name) else { return Reply::NotFound };
        let (mode, slots) = (self.queue.executors[executor].mode, self.queue.executors[executor].gate.limit);
        let reply =
            self.offer_executor(ExecutorOffer { executor: name.clone(), mode, kinds: Vec::new(), slots });
        self.forget_executor(executor);
        reply
    }

    /// Forgets a place that offers nothing and runs nothing.
    pub(in crate::engine) fn forget_executor(&mut self, executor: Ix<Executor>) {
        if self.queue.executors[executor].kinds.is_empty() && self.queue.executors[executor].gate.used == 0 {
            self.queue.executors.release(executor);
        }
    }

    /// What the places offer now; to be given again to an engine that replaces this one.
    pub fn offers(&self) -> Vec<ExecutorOffer> {
        self.queue
            .executors
            .iter()
            .filter(|(_, name, _)| !matches!(name.as_str(), LEASES | WORKERS))
            .map(|(_, name, executor)| ExecutorOffer {
                executor: name.clone(),
                mode: executor.mode,
                kinds: executor.kinds.iter().map(|&kind| self.queue.kinds.key(kind).clone()).collect(),
                slots: executor.gate.limit,
            })
            .collect()
    }
}
