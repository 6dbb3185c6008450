//! Recounts workers: their attempts, their entries in idle lists, and the routes of classes.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::{KeyName, Queue, Tenant};
use crate::engine::workers::lanes::skills_of;
use crate::engine::workers::pool::{FreeSlot, IdleWorkers};
use crate::engine::workers::record::Registration;
use crate::engine::workers::register::SlotsTaken;
use crate::engine::workers::skills::Skills;
use crate::engine::workers::{Worker, Workers};
use crate::engine::workflows::Workflows;

impl Workers {
    /// Compares slots, free slots and routes with open attempts and offers.
    pub(in crate::engine) fn check(
        &self,
        jobs: &Jobs,
        queue: &Queue,
        workflows: &Workflows,
    ) -> Result<(), String> {
        let mut held: BTreeMap<Ix<Worker>, BTreeSet<Ix<Job>>> = BTreeMap::new();
        for open in jobs.open_attempts() {
            if let Some(worker) = open.worker() {
                held.entry(worker).or_default().insert(open.job());
            }
        }
        let mut named: BTreeMap<Ix<Worker>, (usize, usize)> = BTreeMap::new();
        for name in queue.key_names() {
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
        for (ix, (tenant, name), worker) in self.entries.iter() {
            let fault = |what: &str| Err(format!("worker {name}: {what}"));
            let theirs = held.get(&ix).cloned().unwrap_or_default();
            if theirs != worker.attempts {
                return fault("does not hold the attempts that it should");
            }
            let (pins, gates) = named.get(&ix).copied().unwrap_or_default();
            let users = theirs.len() + pins + gates + usize::from(worker.registration.is_some());
            if self.entries.users(ix) as usize != users || pins != worker.pins as usize {
                return fault("has unknown users");
            }
            awaited += usize::from(worker.awaited_until.is_some());
            let Some(registration) = worker.registration.as_deref() else { continue };
            bound += registration.bound.len();
            if worker.awaited_until.is_some() || registration.bound != self.pool.bindings.keys_of(ix) {
                return fault("is awaited and registered, or has other bindings than it should");
            }
            *registrations.entry(*tenant).or_default() += 1;
            if let Some(connection) = registration.connection {
                connections += 1;
                if self.pool.connections.get(&connection) != Some(&ix) {
                    return fault("is not found by its connection");
                }
            }
            let slots = self.slots_taken(jobs, queue, workflows, ix);
            let skills = skills_of(queue, &registration.offer, &registration.orders);
            if let Err(what) = self.check_registration(ix, registration, (slots, skills), &mut free_slots) {
                return fault(&what);
            }
        }
        if registrations != self.pool.registrations || connections != self.pool.connections.len() {
            return Err("registered workers are miscounted".into());
        }
        if bound != self.pool.bindings.len() {
            return Err("affinity keys are bound to no worker".into());
        }
        if self.pool.watch.len() != registrations.values().sum::<u32>() as usize + awaited {
            return Err("workers are watched that are not registered".into());
        }
        self.check_routes(queue, &free_slots)
    }

    fn check_registration(
        &self,
        ix: Ix<Worker>,
        registration: &Registration,
        (slots, skills): (SlotsTaken, Skills),
        free_slots: &mut BTreeMap<Ix<IdleWorkers>, BTreeSet<FreeSlot>>,
    ) -> Result<(), String> {
        let (used, used_of) = slots;
        if used_of != registration.used_of || used != registration.used {
            return Err(format!(
                "{} slots are taken, but attempts say {used}: {used_of:?}",
                registration.used
            ));
        }
        if *self.pool.groups[registration.group].skills != skills {
            return Err("is in the wrong group".into());
        }
        if !self.pool.watch.contains(&(registration.watch_at, ix)) {
            return Err("is not watched".into());
        }
        let is_idle = registration.is_willing() && registration.used < registration.offer.max_parallel;
        if is_idle != registration.free_slot.is_some() {
            return Err("is in the idle lists without a free slot, or the other way round".into());
        }
        let Some((load, served)) = registration.free_slot else { return Ok(()) };
        let group = &self.pool.groups[registration.group];
        free_slots.entry(group.idle_list).or_default().insert((load, served, ix));
        for (kind, (idle_list, limit)) in &group.limited {
            if used_of.get(kind).copied().unwrap_or(0) < *limit {
                free_slots.entry(*idle_list).or_default().insert((load, served, ix));
            }
        }
        Ok(())
    }

    fn check_routes(
        &self,
        queue: &Queue,
        free_slots: &BTreeMap<Ix<IdleWorkers>, BTreeSet<FreeSlot>>,
    ) -> Result<(), String> {
        for (ix, idle_list) in self.pool.idle_lists.iter() {
            let expected = free_slots.get(&ix).cloned().unwrap_or_default();
            if idle_list.free != expected || idle_list.head != expected.first().copied() {
                return Err(format!("idle list {ix} holds {:?} instead of {expected:?}", idle_list.free));
            }
        }
        for (ix, idle_lists, route) in self.pool.routes.iter() {
            let heads: BTreeSet<FreeSlot> =
                idle_lists.iter().filter_map(|&idle_list| self.pool.idle_lists[idle_list].head).collect();
            if heads != route.heads {
                return Err(format!("route {ix} shows {:?} instead of {heads:?}", route.heads));
            }
            if route.classes.len() != self.pool.routes.users(ix) as usize {
                return Err(format!("route {ix} has users that are no classes"));
            }
        }
        for (ix, class) in queue.classes() {
            let idle_lists = self.fitting_lists(queue, ix);
            let known = match class.route() {
                None => &[][..],
                Some(route) => self.pool.routes.key(route),
            };
            if known != &*idle_lists {
                return Err(format!("class {ix} goes to idle lists {known:?} instead of {idle_lists:?}"));
            }
        }
        Ok(())
    }
}
