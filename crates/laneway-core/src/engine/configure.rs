//! Settings that change while jobs wait and run, and places that come and go.
//!
//! A lower limit starts nothing new and stops nothing that runs; a higher one is used in the same turn.

use super::Engine;
use super::held::LEASES;
use super::slab::{Ix, NONE};
use super::state::{Gate, KeyName, Place};
use super::submit::refuse;
use super::workers::WORKERS;
use crate::settings::MAIN_LANE;
use crate::{Bytes, Change, Effects, EventKind, Name, Now, Origin, PlaceOffer, RefusalCode, Reply, Settings};

impl Engine {
    /// Replaces all settings at once.
    pub(super) fn configure(
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
        let lanes_before: Vec<Name> = self.lane_of.keys().cloned().collect();
        self.apply_lanes(agents_changed);
        self.apply_gates();
        if !self.lane_of.keys().eq(&lanes_before) {
            self.review_lanes_served();
        }
        self.house_event(now, EventKind::ConfigChanged, None, Some(origin), detail, effects);
        if let Some(bytes) = overrides {
            effects.changes.push(Change::OverridesPut(bytes));
        }
        Reply::Done
    }

    /// Brings the lanes in line with the settings. A lane that is no longer named keeps its last settings for the jobs
    /// it has, and gets no new ones.
    fn apply_lanes(&mut self, agents_changed: bool) {
        let named = std::mem::take(&mut self.settings.lanes);
        self.lane_of.retain(|name, _| named.contains_key(name) || name.as_str() == MAIN_LANE);
        for (name, settings) in &named {
            let known = self.lanes.iter().position(|lane| lane.name == *name);
            let Some(ix) = known else {
                self.add_lane(name, settings.clone());
                continue;
            };
            let ix = u32::try_from(ix).expect("lanes are few");
            self.lane_of.insert(name.clone(), ix);
            let was = std::mem::replace(&mut self.lanes[ix as usize].settings, settings.clone());
            if was.order != settings.order
                || was.aging_step != settings.aging_step
                || was.running_per_agent_max != settings.running_per_agent_max
            {
                self.replant_lane(ix, &was);
            }
            // Only now: a job is found in its bin by the order of the lane.
            if was.pull.is_pull() != settings.pull.is_pull() {
                self.change_needs_in(ix);
            }
        }
        self.settings.lanes = named;
        if agents_changed {
            for node in self.nodes.handles() {
                self.nodes[node].weight = self.weight_of(&self.nodes.key(node).2);
                self.rekey_node(node);
            }
        }
    }

    /// Brings every gate in line with the settings and shows or hides what hangs on it.
    fn apply_gates(&mut self) {
        for kind in self.kinds.handles() {
            let settings = self.settings.kinds.get(self.kinds.key(kind)).cloned().unwrap_or_default();
            self.kinds[kind].gate.limit = settings.running_max.unwrap_or(u32::MAX);
            self.kinds[kind].settings = settings;
            self.reshelve_kind(kind);
        }
        for tenant in self.tenants.handles() {
            self.tenants[tenant].gate.limit = self.tenant_limits(self.tenants.key(tenant)).running_max;
        }
        for class in self.classes.handles() {
            self.reshow_class(class);
        }
        for key in self.keys.handles() {
            let KeyName::Named(_, name, _) = self.keys.key(key) else { continue };
            self.keys[key].gate.limit = self.key_limit(name);
            self.reshow_key(key);
        }
    }

    /// A place appears or changes what it offers.
    pub(super) fn offer_place(&mut self, offer: PlaceOffer) -> Reply {
        let PlaceOffer { place: name, mode, kinds, slots } = offer;
        let known = self.places.find(&name);
        let taken = kinds.iter().find(|kind| {
            let owner = self.kinds.find(kind).map_or(NONE, |kind| self.kinds[kind].place);
            owner != NONE && Some(owner) != known
        });
        if let Some(kind) = taken {
            let message =
                format!("kinds: another place offers {:?} already; a kind runs in one place", kind.as_str());
            return Reply::Refused(refuse(RefusalCode::Invalid, message));
        }
        let place = known.unwrap_or_else(|| {
            self.places.hold(&name, || Place {
                mode,
                gate: Gate::with_limit(slots),
                kinds: Default::default(),
                shelves: Default::default(),
            })
        });
        self.places[place].mode = mode;
        self.places[place].gate.limit = slots;
        let mut offered = std::collections::BTreeSet::new();
        for kind in &kinds {
            // The place is a user of the kinds it offers.
            let held = self.hold_kind(kind);
            if !offered.insert(held) {
                self.kinds.release(held);
            }
        }
        let before = std::mem::replace(&mut self.places[place].kinds, offered.clone());
        for &kind in &before {
            self.kinds[kind].place = NONE;
        }
        for &kind in &offered {
            self.kinds[kind].place = place;
        }
        for &kind in before.union(&offered) {
            self.reshelve_kind(kind);
            self.reshow_kind(kind);
        }
        if !before.is_subset(&offered) {
            self.clear_shelves(place);
        }
        self.reshow_place(place);
        for kind in before {
            self.kinds.release(kind);
        }
        Reply::Done
    }

    /// A place is gone. Its open attempts end by their own leases or runners.
    pub(super) fn withdraw_place(&mut self, name: &Name) -> Reply {
        let Some(place) = self.places.find(name) else { return Reply::NotFound };
        let (mode, slots) = (self.places[place].mode, self.places[place].gate.limit);
        let reply = self.offer_place(PlaceOffer { place: name.clone(), mode, kinds: Vec::new(), slots });
        self.forget_place(place);
        reply
    }

    /// Forgets a place that offers nothing and runs nothing.
    pub(super) fn forget_place(&mut self, place: Ix) {
        if self.places[place].kinds.is_empty() && self.places[place].gate.used == 0 {
            self.places.release(place);
        }
    }

    /// What the places offer now; to be given again to an engine that replaces this one.
    pub fn offers(&self) -> Vec<PlaceOffer> {
        self.places
            .iter()
            .filter(|(_, name, _)| !matches!(name.as_str(), LEASES | WORKERS))
            .map(|(_, name, place)| PlaceOffer {
                place: name.clone(),
                mode: place.mode,
                kinds: place.kinds.iter().map(|&kind| self.kinds.key(kind).clone()).collect(),
                slots: place.gate.limit,
            })
            .collect()
    }
}
