//! Recounts workers: what they hold, where they sit, and which classes go to them.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{KeyName, Tenant};
use crate::engine::workers::pool::{FreeSlot, IdleWorkers, Registration, Worker};

impl Engine {
    /// Slots, free slots and routes are what open attempts and offers say.
    pub(in crate::engine) fn check_workers(&self) -> Result<(), String> {
        let mut held: BTreeMap<Ix<Worker>, BTreeSet<Ix<Job>>> = BTreeMap::new();
        for open in self.jobs.open_attempts() {
            if let Some(worker) = open.worker() {
                held.entry(worker).or_default().insert(open.job());
            }
        }
        let mut named: BTreeMap<Ix<Worker>, (usize, usize)> = BTreeMap::new();
        for name in self.queue.key_names() {
            match name {
                KeyName::Pin { worker, .. } => named.entry(*worker).or_default().0 += 1,
                KeyName::Slot { worker, .. } => named.entry(*worker).or_default().1 += 1,
                _ => {}
            }
        }
        let mut awaited = 0;
        let mut bound = 0;
        let mut free_slots: BTreeMap<Ix<IdleWorkers>, BTreeSet<FreeSlot>> = BTreeMap::new();
        let (mut registrations, mut connections) = (BTreeMap::<Ix<Tenant>, u32>::new(), 0);
        for (ix, (tenant, name), worker) in self.workers.entries.iter() {
            let fault = |what: &str| Err(format!("worker {name}: {what}"));
            let theirs = held.get(&ix).cloned().unwrap_or_default();
            if theirs != worker.held {
                return fault("does not hold what it is said to");
            }
            let (pins, gates) = named.get(&ix).copied().unwrap_or_default();
            let users = theirs.len() + pins + gates + usize::from(worker.registration.is_some());
            if self.workers.entries.users(ix) as usize != users || pins != worker.pins as usize {
                return fault("has strangers among its users");
            }
            awaited += usize::from(worker.awaited_until.is_some());
            let Some(registration) = worker.registration.as_deref() else { continue };
            bound += registration.bound.len();
            if worker.awaited_until.is_some() || registration.bound != self.workers.pool.bindings.keys_of(ix)
            {
                return fault("is awaited and there, or is not bound to what it is said to");
            }
            *registrations.entry(*tenant).or_default() += 1;
            if let Some(connection) = registration.connection {
                connections += 1;
                if self.workers.pool.connections.get(&connection) != Some(&ix) {
                    return fault("is not found by its connection");
                }
            }
            if let Err(what) = self.check_registration(ix, registration, &mut free_slots) {
                return fault(&what);
            }
        }
        if registrations != self.workers.pool.registrations
            || connections != self.workers.pool.connections.len()
        {
            return Err("registered workers are not counted rightly".into());
        }
        if bound != self.workers.pool.bindings.len() {
            return Err("affinity keys are bound to nobody".into());
        }
        if self.workers.pool.watch.len() != registrations.values().sum::<u32>() as usize + awaited {
            return Err("workers are watched that are not registered".into());
        }
        self.check_routes(&free_slots)
    }

    fn check_registration(
        &self,
        ix: Ix<Worker>,
        registration: &Registration,
        free_slots: &mut BTreeMap<Ix<IdleWorkers>, BTreeSet<FreeSlot>>,
    ) -> Result<(), String> {
        let (used, used_of) = self.slots_taken(ix);
        if used_of != registration.used_of || used != registration.used {
            return Err(format!(
                "{} slots are taken, but attempts say {used}: {used_of:?}",
                registration.used
            ));
        }
        if *self.workers.pool.groups[registration.group].skills
            != self.skills_of(&registration.offer, &registration.orders)
        {
            return Err("sits with others than those who are like it".into());
        }
        if !self.workers.pool.watch.contains(&(registration.watch_at, ix)) {
            return Err("is not watched".into());
        }
        let sits = registration.is_willing() && registration.used < registration.offer.max_parallel;
        if sits != registration.free_slot.is_some() {
            return Err("sits and is not free, or is free and does not sit".into());
        }
        let Some((load, served)) = registration.free_slot else { return Ok(()) };
        let group = &self.workers.pool.groups[registration.group];
        free_slots.entry(group.idle_list).or_default().insert((load, served, ix));
        for (kind, (idle_list, limit)) in &group.limited {
            if used_of.get(kind).copied().unwrap_or(0) < *limit {
                free_slots.entry(*idle_list).or_default().insert((load, served, ix));
            }
        }
        Ok(())
    }

    fn check_routes(&self, free_slots: &BTreeMap<Ix<IdleWorkers>, BTreeSet<FreeSlot>>) -> Result<(), String> {
        for (ix, idle_list) in self.workers.pool.idle_lists.iter() {
            let expected = free_slots.get(&ix).cloned().unwrap_or_default();
            if idle_list.free != expected || idle_list.head != expected.first().copied() {
                return Err(format!("idle list {ix} holds {:?} instead of {expected:?}", idle_list.free));
            }
        }
        for (ix, idle_lists, route) in self.workers.pool.routes.iter() {
            let heads: BTreeSet<FreeSlot> = idle_lists
                .iter()
                .filter_map(|&idle_list| self.workers.pool.idle_lists[idle_list].head)
                .collect();
            if heads != route.heads {
                return Err(format!("route {ix} shows {:?} instead of {heads:?}", route.heads));
            }
            if route.classes.len() != self.workers.pool.routes.users(ix) as usize {
                return Err(format!("route {ix} has users that are no classes"));
            }
        }
        for (ix, class) in self.queue.classes() {
            let idle_lists = self.fitting_lists(ix);
            let known = match class.route() {
                None => &[][..],
                Some(route) => self.workers.pool.routes.key(route),
            };
            if known != &*idle_lists {
                return Err(format!("class {ix} goes to idle lists {known:?} instead of {idle_lists:?}"));
            }
        }
        Ok(())
    }
}
