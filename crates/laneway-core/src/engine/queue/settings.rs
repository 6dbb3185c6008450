//! Settings in the queue: lanes, weights and limits follow them, and executors offer kinds.

use std::collections::BTreeSet;

use crate::engine::collections::slab::Ix;
use crate::engine::queue::{Executor, Gate, KeyName, Kind, Lane, Queue};
use crate::engine::workers::Workers;
use crate::settings::MAIN_LANE;
use crate::{ExecutorMode, ExecutorOffer, LaneSettings, Name, Settings};

/// How new settings changed the lanes.
pub(in crate::engine) struct LaneChanges {
    /// Lanes that existed before, with the settings that they had.
    pub(in crate::engine) changed: Vec<(Ix<Lane>, LaneSettings)>,
    /// True when other lanes have a name than before.
    pub(in crate::engine) renamed: bool,
}

impl Queue {
    /// Brings the lanes in line with the settings. A lane that is no longer named keeps its last settings for the jobs it
    /// has, and gets no new ones.
    pub(in crate::engine) fn apply_lanes(&mut self, settings: &Settings) -> LaneChanges {
        let before: Vec<Name> = self.by_name.keys().cloned().collect();
        let named = &settings.lanes;
        for (name, &ix) in &self.by_name {
            if !named.contains_key(name) && name.as_str() != MAIN_LANE {
                let retention = self.lanes[ix].settings.retention;
                self.removed_lanes.insert(name.clone(), retention);
            }
        }
        self.removed_lanes.retain(|name, _| !named.contains_key(name));
        self.by_name.retain(|name, _| named.contains_key(name) || name.as_str() == MAIN_LANE);
        let mut changed = Vec::new();
        for (name, settings) in named {
            let known = self.lanes.iter().find(|(_, lane)| lane.name == *name).map(|(ix, _)| ix);
            let Some(ix) = known else {
                self.add_lane(name, settings.clone());
                continue;
            };
            self.by_name.insert(name.clone(), ix);
            let was = std::mem::replace(&mut self.lanes[ix].settings, settings.clone());
            changed.push((ix, was));
        }
        LaneChanges { changed, renamed: !self.by_name.keys().eq(&before) }
    }

    /// Brings the weights of agents in line with the settings.
    pub(in crate::engine) fn apply_weights(&mut self, workers: &Workers, settings: &Settings) {
        for agent_queue in self.agent_queues.handles() {
            self.agent_queues[agent_queue].weight = settings.weight_of(&self.agent_queues.key(agent_queue).2);
            self.rekey_agent(workers, agent_queue);
        }
    }

    /// Brings the kinds in line with the settings. Returns all of them.
    pub(in crate::engine) fn apply_kinds(&mut self, settings: &Settings) -> Vec<Ix<Kind>> {
        let kinds = self.kinds.handles();
        for &kind in &kinds {
            let settings = settings.kinds.get(self.kinds.key(kind)).cloned().unwrap_or_default();
            self.kinds[kind].gate.limit = settings.running_max.unwrap_or(u32::MAX);
            self.kinds[kind].settings = settings;
        }
        kinds
    }

    /// Brings the limits of tenants and keys in line with the settings, and shows or hides what hangs on them.
    pub(in crate::engine) fn apply_limits(&mut self, workers: &Workers, settings: &Settings) {
        for tenant in self.tenants.handles() {
            self.tenants[tenant].gate.limit = settings.tenant_limits(self.tenants.key(tenant)).running_max;
        }
        for class in self.classes.handles() {
            self.reshow_class(workers, class);
        }
        for key in self.keys.handles() {
            if let KeyName::Named(_, name, _) = self.keys.key(key) {
                let limit = settings.key_limit(name);
                self.set_key_limit(workers, key, limit);
            }
        }
    }

    /// The first of these kinds that an executor of another name offers.
    pub(in crate::engine) fn offered_by_another<'a>(
        &self,
        executor: &Name,
        kinds: &'a [Name],
    ) -> Option<&'a Name> {
        let known = self.find_executor(executor);
        kinds.iter().find(|kind| {
            let owner = self.kinds.find(kind).and_then(|kind| self.kinds[kind].executor);
            owner.is_some() && owner != known
        })
    }

    /// Changes the mode and the slots of an executor; makes it when it is new.
    pub(in crate::engine) fn put_executor(
        &mut self,
        name: &Name,
        mode: ExecutorMode,
        slots: u32,
    ) -> Ix<Executor> {
        let known = self.executors.find(name);
        let executor = known.unwrap_or_else(|| {
            self.executors.hold(name, || Executor {
                mode,
                gate: Gate::with_limit(slots),
                kinds: BTreeSet::new(),
                shared_classes: BTreeSet::new(),
            })
        });
        self.executors[executor].mode = mode;
        self.executors[executor].gate.limit = slots;
        executor
    }

    /// An executor offers these kinds from now on. Returns the kinds that it offered before, each with one user that the
    /// caller takes away, and those that it offers now.
    pub(in crate::engine) fn set_kinds_of(
        &mut self,
        executor: Ix<Executor>,
        settings: &Settings,
        kinds: &[Name],
    ) -> (BTreeSet<Ix<Kind>>, BTreeSet<Ix<Kind>>) {
        let mut offered = BTreeSet::new();
        for kind in kinds {
            // The executor is a user of the kinds it offers.
            let held = self.hold_kind(settings, kind);
            if !offered.insert(held) {
                self.kinds.release(held);
            }
        }
        let before = std::mem::replace(&mut self.executors[executor].kinds, offered.clone());
        for &kind in &before {
            self.kinds[kind].executor = None;
        }
        for &kind in &offered {
            self.kinds[kind].executor = Some(executor);
        }
        (before, offered)
    }

    pub(in crate::engine) fn mode_and_slots(&self, executor: Ix<Executor>) -> (ExecutorMode, u32) {
        (self.executors[executor].mode, self.executors[executor].gate.limit)
    }

    /// Forgets an executor that offers nothing and runs nothing.
    pub(in crate::engine) fn forget_executor(&mut self, executor: Ix<Executor>) {
        if self.executors[executor].kinds.is_empty() && self.executors[executor].gate.used == 0 {
            self.executors.release(executor);
        }
    }

    /// The offer of every executor.
    pub(in crate::engine) fn offers(&self) -> impl Iterator<Item = ExecutorOffer> {
        self.executors.iter().map(|(_, name, executor)| ExecutorOffer {
            executor: name.clone(),
            mode: executor.mode,
            kinds: executor.kinds.iter().map(|&kind| self.kinds.key(kind).clone()).collect(),
            slots: executor.gate.limit,
        })
    }
}
