//! Jobs that wait for one worker: the gates of its free slots, and the workers whose resources jobs use.
//!
//! A job whose worker is busy hangs on a gate of that worker alone, so that it delays no other job and is looked at again
//! only when that worker has a free slot.

use crate::engine::collections::slab::Ix;
use crate::engine::queue::{KeyEntry, KeyName, Kind, Queue, Tenant};
use crate::engine::workers::record::Registration;
use crate::engine::workers::{Worker, Workers};
use crate::{Mono, Name, Wall};

impl Workers {
    /// The gate on which jobs wait for a free slot of one worker, closed while it has none; and whether it is new.
    pub(in crate::engine) fn slot_gate(
        &mut self,
        queue: &mut Queue,
        worker: Ix<Worker>,
        kind: Option<Ix<Kind>>,
    ) -> (Ix<KeyEntry>, bool) {
        if let Some(&key) = self.entries[worker].gates.get(&kind) {
            return (key, false);
        }
        self.pool.gates_made += 1;
        let key = queue.hold_key(&KeyName::Slot { worker, kind, number: self.pool.gates_made }, 0);
        self.entries.hold_again(worker);
        self.entries[worker].gates.insert(kind, key);
        (key, true)
    }

    /// Opens and closes the gates of a worker as it has free slots or not.
    pub(super) fn update_slot_gates(&mut self, queue: &mut Queue, worker: Ix<Worker>) {
        if self.entries[worker].gates.is_empty() {
            return;
        }
        let gates: Vec<(Option<Ix<Kind>>, Ix<KeyEntry>)> =
            self.entries[worker].gates.iter().map(|(kind, key)| (*kind, *key)).collect();
        for (kind, key) in gates {
            let open = self.registration(worker).is_some_and(|registration| match kind {
                None => registration.free_slot.is_some(),
                Some(kind) => self.free_for(registration, kind).is_ok(),
            });
            queue.set_key_limit(self, key, u32::from(open));
        }
    }

    /// Jobs that wait for a worker may fail, or go to another one: opens all its gates, so that they are looked at again.
    pub(super) fn open_slot_gates(&mut self, queue: &mut Queue, worker: Ix<Worker>) {
        let gates = std::mem::take(&mut self.entries[worker].gates);
        for key in gates.into_values() {
            queue.set_key_limit(self, key, 1);
        }
    }

    /// The routes of a tenant's jobs changed: jobs that wait for one of its workers are looked at again.
    pub(in crate::engine) fn open_slot_gates_of(&mut self, queue: &mut Queue, tenant: Ix<Tenant>) {
        for worker in self.entries.handles() {
            if self.entries.key(worker).0 == tenant && !self.entries[worker].gates.is_empty() {
                self.open_slot_gates(queue, worker);
            }
        }
    }

    /// Whether a worker has a free slot for a kind. If not: whether any slot is missing, or one of the kind.
    pub(super) fn free_for(
        &self,
        registration: &Registration,
        kind: Ix<Kind>,
    ) -> Result<(), Option<Ix<Kind>>> {
        if registration.free_slot.is_none() {
            return Err(None);
        }
        self.within_kind_limit(registration, kind)
    }

    pub(super) fn within_kind_limit(
        &self,
        registration: &Registration,
        kind: Ix<Kind>,
    ) -> Result<(), Option<Ix<Kind>>> {
        let limit = self.pool.groups[registration.group].limited.get(&kind);
        let used = registration.used_of.get(&kind).copied().unwrap_or(0);
        if limit.is_some_and(|(_, limit)| used >= *limit) { Err(Some(kind)) } else { Ok(()) }
    }

    /// Removes a user of a key; the last one also releases the worker of the key.
    pub(in crate::engine) fn release_key(&mut self, queue: &mut Queue, key: Ix<KeyEntry>) {
        match queue.release_key(key) {
            Some(KeyName::Slot { worker, kind, .. }) => {
                if self.entries[worker].gates.get(&kind) == Some(&key) {
                    self.entries[worker].gates.remove(&kind);
                }
                self.entries.release(worker);
            }
            Some(KeyName::Pin { worker, .. }) => {
                self.entries[worker].pins -= 1;
                if self.entries[worker].pins == 0 {
                    self.no_longer_awaited(worker);
                }
                self.entries.release(worker);
            }
            _ => {}
        }
    }

    /// The key of jobs that use a resource of a worker. A worker that is not registered is awaited until `awaited_until`: it
    /// may still come after a restart.
    pub(in crate::engine) fn hold_pin(
        &mut self,
        queue: &mut Queue,
        (tenant, name): (Ix<Tenant>, &Name),
        expires_at: Option<Wall>,
        awaited_until: Option<Mono>,
    ) -> Ix<KeyEntry> {
        let worker = self.hold(tenant, name);
        let (key, new) = queue.find_or_make_key(&KeyName::Pin { worker, expires_at }, u32::MAX);
        if !new {
            // The key itself is one user of the worker.
            self.entries.release(worker);
            queue.hold_key_again(key);
            return key;
        }
        self.entries[worker].pins += 1;
        let known = &self.entries[worker];
        if let Some(until) = awaited_until
            && known.registration.is_none()
            && known.awaited_until.is_none()
        {
            self.await_until(worker, until);
        }
        key
    }

    pub(super) fn await_until(&mut self, worker: Ix<Worker>, until: Mono) {
        self.entries[worker].awaited_until = Some(until);
        self.pool.watch.insert((until, worker));
    }

    pub(super) fn no_longer_awaited(&mut self, worker: Ix<Worker>) {
        if let Some(at) = self.entries[worker].awaited_until.take() {
            self.pool.watch.remove(&(at, worker));
        }
    }
}
