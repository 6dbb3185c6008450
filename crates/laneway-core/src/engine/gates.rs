//! The gates an attempt holds: taken together when it opens, freed together when it closes, and at no other time.

use super::Engine;
use super::slab::{Ix, NONE};
use super::state::Gate;

impl Engine {
    /// An attempt of `job` opens.
    pub(super) fn take_gates(&mut self, job: Ix) {
        let (node, class, keyset, session) = self.held_by(job);
        let place = self.place_of(job);
        self.open += 1;
        self.lanes[self.nodes[node].lane as usize].open += 1;
        self.nodes[node].open += 1;
        if session != NONE {
            self.sessions[session].runs.push(job);
        }
        self.turn_class_gates(class, place, take);
        self.turn_key_gates(keyset, take);
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
        let (node, class, keyset, session) = self.held_by(job);
        let place = self.place_of(job);
        self.open -= 1;
        self.lanes[self.nodes[node].lane as usize].open -= 1;
        self.nodes[node].open -= 1;
        self.turn_class_gates(class, place, free);
        self.turn_key_gates(keyset, free);
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

    fn turn_class_gates(&mut self, class: Ix, place: Ix, turn: fn(&mut Gate) -> bool) {
        let (tenant, kind) = (self.classes[class].tenant, self.classes[class].kind);
        if turn(&mut self.kinds[kind].gate) {
            self.reshow_kind(kind);
        }
        if turn(&mut self.tenants[tenant].gate) {
            self.reshow_tenant(tenant);
        }
        if turn(&mut self.places[place].gate) {
            self.reshow_place(place);
        }
    }

    fn turn_key_gates(&mut self, keyset: Ix, turn: fn(&mut Gate) -> bool) {
        if keyset == NONE {
            return;
        }
        for at in 0..self.keysets.key(keyset).len() {
            let key = self.keysets.key(keyset)[at];
            if turn(&mut self.keys[key].gate) {
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
