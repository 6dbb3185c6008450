//! The gates an attempt holds: taken together when it opens, freed together when it closes, and at no other time.

use super::Engine;
use super::chains::Shared;
use super::slab::{Ix, NONE};
use super::state::Gate;

impl Engine {
    /// An attempt of `job` opens. Where others of its chain have a place, it takes none.
    pub(super) fn take_gates(&mut self, job: Ix) {
        self.enter_chain(job);
        let mates = self.mates(job);
        let shared = self.shared_with(job, &mates);
        let (node, class, keyset, session) = self.held_by(job);
        let place = self.place_of(job);
        self.open += u32::from(!shared.any);
        self.lanes[self.nodes[node].lane as usize].open += u32::from(!shared.lane);
        self.nodes[node].open += u32::from(!shared.agent);
        if session != NONE {
            self.sessions[session].runs.push(job);
        }
        self.turn_class_gates(class, place, shared, take);
        self.turn_key_gates(keyset, &mates, take);
        let open = &self.attempts[self.jobs[job].open];
        let (pull, held) = (open.pull, open.worker != NONE);
        if self.classes[class].need != NONE || pull {
            self.take_units(job);
        }
        if held {
            self.take_worker(job);
        }
    }

    /// The attempt of `job` closed. The session's next job may start now.
    pub(super) fn free_gates(&mut self, job: Ix) {
        let mates = self.leave_chain(job);
        let shared = self.shared_with(job, &mates);
        let (node, class, keyset, session) = self.held_by(job);
        let place = self.place_of(job);
        self.open -= u32::from(!shared.any);
        self.lanes[self.nodes[node].lane as usize].open -= u32::from(!shared.lane);
        self.nodes[node].open -= u32::from(!shared.agent);
        self.turn_class_gates(class, place, shared, free);
        self.turn_key_gates(keyset, &mates, free);
        let open = &self.attempts[self.jobs[job].open];
        let (pull, held) = (open.pull, open.worker != NONE);
        if self.classes[class].need != NONE || pull {
            self.free_units(job);
        }
        if held {
            self.free_worker(job);
        }
        self.rekey_node(node);
        if session != NONE {
            self.sessions[session].runs.retain(|&run| run != job);
            let bin = self.sessions[session].bin;
            if bin != NONE {
                self.refresh(bin);
            }
        }
        if self.places[place].kinds.is_empty() {
            self.forget_place(place);
        }
    }

    fn held_by(&self, job: Ix) -> (Ix, Ix, Ix, Ix) {
        let entry = &self.jobs[job];
        (entry.node, entry.class, entry.keyset, entry.session)
    }

    fn place_of(&self, job: Ix) -> Ix {
        self.attempts[self.jobs[job].open].place
    }

    fn turn_class_gates(&mut self, class: Ix, place: Ix, shared: Shared, turn: fn(&mut Gate) -> bool) {
        let (tenant, kind) = (self.classes[class].tenant, self.classes[class].kind);
        if !shared.kind && turn(&mut self.kinds[kind].gate) {
            self.reshow_kind(kind);
        }
        if !shared.any && turn(&mut self.tenants[tenant].gate) {
            self.reshow_tenant(tenant);
        }
        if turn(&mut self.places[place].gate) {
            self.reshow_place(place);
        }
    }

    fn turn_key_gates(&mut self, keyset: Ix, mates: &[Ix], turn: fn(&mut Gate) -> bool) {
        if keyset == NONE {
            return;
        }
        for at in 0..self.keysets.key(keyset).len() {
            let key = self.keysets.key(keyset)[at];
            if !self.holds_key(mates, key) && turn(&mut self.keys[key].gate) {
                self.reshow_key(key);
            }
        }
    }

    pub(super) fn reshow_kind(&mut self, kind: Ix) {
        let classes: Vec<Ix> = self.kinds[kind].classes.iter().copied().collect();
        for class in classes {
            self.reshow_class(class);
        }
    }

    pub(super) fn reshow_tenant(&mut self, tenant: Ix) {
        let classes: Vec<Ix> = self.tenants[tenant].classes.iter().copied().collect();
        for class in classes {
            self.reshow_class(class);
        }
    }

    pub(super) fn reshow_place(&mut self, place: Ix) {
        let kinds: Vec<Ix> = self.places[place].kinds.iter().copied().collect();
        for kind in kinds {
            self.reshow_kind(kind);
        }
        let shelves: Vec<Ix> = self.places[place].shelves.iter().copied().collect();
        for shelf in shelves {
            self.reshow_class(shelf);
        }
    }
}

/// Takes one; true when that closed the gate.
fn take(gate: &mut Gate) -> bool {
    let was_open = gate.is_open();
    gate.used += 1;
    was_open && !gate.is_open()
}

/// Frees one; true when that opened the gate.
fn free(gate: &mut Gate) -> bool {
    let was_open = gate.is_open();
    gate.used -= 1;
    !was_open && gate.is_open()
}
