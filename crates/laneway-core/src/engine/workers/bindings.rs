//! Affinity: jobs of one affinity key go to the worker that ran the first of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::collections::slab::Ix;
use crate::engine::queue::{Queue, Tenant};
use crate::engine::workers::{Worker, Workers};
use crate::worker::Affinity;
use crate::{Name, Now, Wall};

/// The worker that ran the first job of each affinity key.
#[derive(Default)]
pub(super) struct Bindings {
    by_key: BTreeMap<(Ix<Tenant>, Name), Binding>,
    by_age: BTreeSet<(Ix<Tenant>, u64, Name)>,
    expiries: BTreeSet<(Wall, Ix<Tenant>, Name)>,
    counts: BTreeMap<Ix<Tenant>, u32>,
}

#[derive(Clone, Debug)]
struct Binding {
    worker: Ix<Worker>,
    expires_at: Option<Wall>,
    number: u64,
}

impl Bindings {
    pub(super) fn next_expiry(&self) -> Option<Wall> {
        self.expiries.first().map(|(at, _, _)| *at)
    }

    pub(super) fn worker_of(&self, tenant: Ix<Tenant>, key: &Name) -> Option<Ix<Worker>> {
        self.by_key.get(&(tenant, key.clone())).map(|binding| binding.worker)
    }

    fn insert(&mut self, tenant: Ix<Tenant>, key: &Name, binding: Binding) {
        self.by_age.insert((tenant, binding.number, key.clone()));
        self.expiries.extend(binding.expires_at.map(|at| (at, tenant, key.clone())));
        *self.counts.entry(tenant).or_default() += 1;
        self.by_key.insert((tenant, key.clone()), binding);
    }

    fn remove(&mut self, tenant: Ix<Tenant>, key: &Name) -> Option<Ix<Worker>> {
        let binding = self.by_key.remove(&(tenant, key.clone()))?;
        self.by_age.remove(&(tenant, binding.number, key.clone()));
        if let Some(at) = binding.expires_at {
            self.expiries.remove(&(at, tenant, key.clone()));
        }
        if let Some(count) = self.counts.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&tenant);
            }
        }
        Some(binding.worker)
    }

    fn oldest(&self, tenant: Ix<Tenant>) -> Option<Name> {
        self.by_age
            .range((tenant, 0, Name::fixed("!"))..)
            .next()
            .filter(|(of, _, _)| *of == tenant)
            .map(|(_, _, key)| key.clone())
    }

    /// Keys that are bound to a worker, as the check counts them.
    pub(super) fn keys_of(&self, worker: Ix<Worker>) -> BTreeSet<Name> {
        let theirs = self.by_key.iter().filter(|(_, binding)| binding.worker == worker);
        theirs.map(|((_, key), _)| key.clone()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}

impl Workers {
    /// A job of an affinity key starts: binds the key to its worker, unless it is bound already.
    pub(in crate::engine) fn note_affinity(
        &mut self,
        now: Now,
        queue: &mut Queue,
        (tenant, affinity): (Ix<Tenant>, &Affinity),
        worker: Ix<Worker>,
        max_per_tenant: u32,
    ) {
        let Affinity { key, expires_at, .. } = affinity;
        if expires_at.is_some_and(|at| at <= now.wall) {
            return;
        }
        let bindings = &mut self.pool.bindings;
        let Some(binding) = bindings.by_key.get(&(tenant, key.clone())).cloned() else {
            let binding = Binding { worker, expires_at: *expires_at, number: queue.starts() };
            return self.bind(queue, tenant, key, binding, max_per_tenant);
        };
        if binding.worker != worker {
            return;
        }
        // The later time counts: as long as one of the jobs asks for it.
        let later = match (binding.expires_at, *expires_at) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
        if later != binding.expires_at {
            bindings.remove(tenant, key);
            bindings.insert(tenant, key, Binding { expires_at: later, ..binding });
        }
    }

    fn bind(
        &mut self,
        queue: &mut Queue,
        tenant: Ix<Tenant>,
        key: &Name,
        binding: Binding,
        max_per_tenant: u32,
    ) {
        let bindings = &self.pool.bindings;
        if bindings.counts.get(&tenant).is_some_and(|count| *count >= max_per_tenant.max(1))
            && let Some(oldest) = bindings.oldest(tenant)
        {
            self.end_binding(queue, tenant, &oldest);
        }
        let worker = binding.worker;
        self.pool.bindings.insert(tenant, key, binding);
        if let Some(registration) = self.entries[worker].registration.as_mut() {
            registration.bound.insert(key.clone());
        }
    }

    /// A key is bound to no worker any more.
    fn end_binding(&mut self, queue: &mut Queue, tenant: Ix<Tenant>, key: &Name) {
        let Some(worker) = self.pool.bindings.remove(tenant, key) else { return };
        if let Some(registration) = self.entries[worker].registration.as_mut() {
            registration.bound.remove(key);
        }
        self.open_slot_gates(queue, worker);
    }

    /// A worker is lost or gone: jobs of its affinity keys go to other workers.
    pub(super) fn end_bindings_of(&mut self, queue: &mut Queue, worker: Ix<Worker>) {
        let tenant = self.entries.key(worker).0;
        let registration = self.entries[worker].registration.as_mut();
        let bound = registration.map(|registration| std::mem::take(&mut registration.bound));
        for key in bound.into_iter().flatten() {
            self.pool.bindings.remove(tenant, &key);
        }
        self.open_slot_gates(queue, worker);
    }

    /// Ends expired bindings.
    pub(in crate::engine) fn expire_bindings(&mut self, now: Now, queue: &mut Queue) {
        while let Some((at, tenant, key)) = self.pool.bindings.expiries.first().cloned()
            && at <= now.wall
        {
            self.end_binding(queue, tenant, &key);
        }
    }
}
