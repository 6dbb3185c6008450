//! Recounts workers: what they hold, where they sit, and which classes go to them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Engine;
use super::super::fleet::{Post, Seat, Worker};
use super::super::slab::{Ix, NONE};
use super::super::state::KeyName;

impl Engine {
    /// Slots, seats and routes are what open attempts and offers say.
    pub(super) fn check_fleet(&self) -> Result<(), String> {
        let mut held: BTreeMap<Ix, BTreeSet<Ix>> = BTreeMap::new();
        for (ix, job) in self.jobs.iter().filter(|(_, job)| job.open != NONE) {
            let open = &self.attempts[job.open];
            if open.worker != NONE {
                held.entry(open.worker).or_default().insert(ix);
            }
        }
        let mut named: BTreeMap<Ix, (usize, usize)> = BTreeMap::new();
        for (_, name, _) in self.keys.iter() {
            match name {
                KeyName::Pin { worker, .. } => named.entry(*worker).or_default().0 += 1,
                KeyName::Slot { worker, .. } => named.entry(*worker).or_default().1 += 1,
                _ => {}
            }
        }
        let mut awaited = 0;
        let mut bound = 0;
        let mut seats: BTreeMap<Ix, BTreeSet<Seat>> = BTreeMap::new();
        let (mut posts, mut connections) = (BTreeMap::<Ix, u32>::new(), 0);
        for (ix, (tenant, name), worker) in self.workers.iter() {
            let fault = |what: &str| Err(format!("worker {name}: {what}"));
            let theirs = held.get(&ix).cloned().unwrap_or_default();
            if theirs != worker.held {
                return fault("does not hold what it is said to");
            }
            let (pins, gates) = named.get(&ix).copied().unwrap_or_default();
            let users = theirs.len() + pins + gates + usize::from(worker.post.is_some());
            if self.workers.users(ix) as usize != users || pins != worker.pins as usize {
                return fault("has strangers among its users");
            }
            awaited += usize::from(worker.awaited_until.is_some());
            let Some(post) = worker.post.as_deref() else { continue };
            bound += post.bound.len();
            if worker.awaited_until.is_some() || post.bound != self.fleet.bindings.keys_of(ix) {
                return fault("is awaited and there, or is not bound to what it is said to");
            }
            *posts.entry(*tenant).or_default() += 1;
            if let Some(connection) = post.connection {
                connections += 1;
                if self.fleet.connections.get(&connection) != Some(&ix) {
                    return fault("is not found by its connection");
                }
            }
            if let Err(what) = self.check_post(ix, worker, post, &mut seats) {
                return fault(&what);
            }
        }
        if posts != self.fleet.posts || connections != self.fleet.connections.len() {
            return Err("registered workers are not counted rightly".into());
        }
        if bound != self.fleet.bindings.len() {
            return Err("affinity keys are bound to nobody".into());
        }
        if self.fleet.watch.len() != posts.values().sum::<u32>() as usize + awaited {
            return Err("workers are watched that are not registered".into());
        }
        self.check_routes(&seats)
    }

    fn check_post(
        &self,
        ix: Ix,
        worker: &Worker,
        post: &Post,
        seats: &mut BTreeMap<Ix, BTreeSet<Seat>>,
    ) -> Result<(), String> {
        let mut used_of: BTreeMap<Ix, u32> = BTreeMap::new();
        for &job in &worker.held {
            if self.attempts[self.jobs[job].open].is_pushed() {
                *used_of.entry(self.classes[self.jobs[job].class].kind).or_default() += 1;
            }
        }
        if used_of != post.used_of || used_of.values().sum::<u32>() != post.used {
            return Err(format!("{} slots are taken, but attempts say {used_of:?}", post.used));
        }
        if *self.fleet.groups[post.group].skills != self.skills_of(&post.offer, &post.orders) {
            return Err("sits with others than those who are like it".into());
        }
        if !self.fleet.watch.contains(&(post.watch_at, ix)) {
            return Err("is not watched".into());
        }
        let sits = post.is_willing() && post.used < post.offer.max_parallel;
        if sits != post.seat.is_some() {
            return Err("sits and is not free, or is free and does not sit".into());
        }
        let Some((load, served)) = post.seat else { return Ok(()) };
        let group = &self.fleet.groups[post.group];
        seats.entry(group.bench).or_default().insert((load, served, ix));
        for (kind, (bench, limit)) in &group.limited {
            if used_of.get(kind).copied().unwrap_or(0) < *limit {
                seats.entry(*bench).or_default().insert((load, served, ix));
            }
        }
        Ok(())
    }

    fn check_routes(&self, seats: &BTreeMap<Ix, BTreeSet<Seat>>) -> Result<(), String> {
        for (ix, bench) in self.fleet.benches.iter() {
            let expected = seats.get(&ix).cloned().unwrap_or_default();
            if bench.free != expected || bench.head != expected.first().copied() {
                return Err(format!("bench {ix} holds {:?} instead of {expected:?}", bench.free));
            }
        }
        for (ix, benches, route) in self.fleet.routes.iter() {
            let heads: BTreeSet<Seat> =
                benches.iter().filter_map(|&bench| self.fleet.benches[bench].head).collect();
            if heads != route.heads {
                return Err(format!("route {ix} shows {:?} instead of {heads:?}", route.heads));
            }
            if route.classes.len() != self.fleet.routes.users(ix) as usize {
                return Err(format!("route {ix} has users that are no classes"));
            }
        }
        for (ix, _, class) in self.classes.iter() {
            let benches = self.fitting_benches(ix);
            let known = match class.route {
                NONE => &[][..],
                route => self.fleet.routes.key(route),
            };
            if known != &*benches {
                return Err(format!("class {ix} goes to benches {known:?} instead of {benches:?}"));
            }
        }
        Ok(())
    }
}
