//! Which worker gets a job.
//!
//! The first of its route, unless it wants a certain one: the worker that has what it uses (a pin), or the one that ran the
//! first job of its affinity key. A job whose worker is busy hangs on a gate of that worker and of nobody else, so that it
//! holds up no other job and is looked at again only when that worker has a free slot. A worker that is pinned and gone is
//! no reason to wait: the job fails.

use crate::engine::jobs::ending::JobEnding;
use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{Class, KeyEntry, KeyName, Kind, Tenant};
use crate::engine::workers::pool::{MISSES_MAX, Registration, Worker};
use crate::worker::{Affinity, AffinityMode, PLACEMENT_LIST_MAX, RESOURCES_MAX};
use crate::{
    Effects, Failure, JobState, Mono, Name, Now, Placement, Reason, Rejection, RejectionCode, Span, Wall,
};

/// Which worker gets a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pick {
    /// This one.
    Worker(Ix<Worker>),
    /// This one, when it has a free slot (for the kind, where one is named).
    Later { worker: Ix<Worker>, kind: Option<Ix<Kind>> },
    /// One that will not come back, or cannot run it.
    Missing,
    /// None: no worker is asked for, or none is free.
    Nobody,
}

/// Which workers ran the first job of which affinity key.
#[derive(Default)]
pub(in crate::engine) struct Bindings {
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
    pub(in crate::engine) fn next_expiry(&self) -> Option<Wall> {
        self.expiries.first().map(|(at, _, _)| *at)
    }

    fn worker_of(&self, tenant: Ix<Tenant>, key: &Name) -> Option<Ix<Worker>> {
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
    pub(in crate::engine) fn keys_of(&self, worker: Ix<Worker>) -> BTreeSet<Name> {
        let theirs = self.by_key.iter().filter(|(_, binding)| binding.worker == worker);
        theirs.map(|((_, key), _)| key.clone()).collect()
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.by_key.len()
    }
}

impl Engine {
    /// The worker that gets this job now. `None`: its kind has a place of its own.
    pub(in crate::engine) fn told_worker(&self, job: Ix<Job>) -> Option<Ix<Worker>> {
        match self.pick(job) {
            Pick::Worker(worker) => Some(worker),
            _ => None,
        }
    }

    /// True when the jobs of a class go to workers.
    pub(in crate::engine) fn goes_to_workers(&self, class: Ix<Class>) -> bool {
        let class = self.queue.class(class);
        class.route().is_some() || (class.placement().is_some() && !self.queue.is_pull(class.demand()))
    }

    /// Which worker gets this job now.
    pub(in crate::engine) fn pick(&self, job: Ix<Job>) -> Pick {
        let entry = &self.jobs[job];
        let class = self.queue.class(entry.class());
        if self.placement_of(entry.class()).is_some_and(|placement| placement.pinned) {
            return self.pick_pinned(job);
        }
        let Some(route) = class.route() else { return Pick::Nobody };
        if let Some(affinity) = self.affinity_of(job)
            && let Some(worker) = self.workers.pool.bindings.worker_of(class.tenant(), &affinity.key)
            && let Some(registration) = self.workers.entries[worker].registration.as_deref()
            // One that cannot run it is no place for it; then the key says nothing.
            && self.fits(registration, entry.class())
        {
            match (self.free_for_job(job, worker, registration), affinity.mode) {
                (Ok(()), _) => return Pick::Worker(worker),
                (Err(kind), AffinityMode::Sticky) => return Pick::Later { worker, kind },
                (Err(_), AffinityMode::Preferred) => {}
            }
        }
        if let Some(worker) = self.worker_of_chain(job) {
            return Pick::Worker(worker);
        }
        match self.workers.pool.routes[route].heads.first() {
            Some((_, _, worker)) => Pick::Worker(*worker),
            None => Pick::Nobody,
        }
    }

    /// The worker that runs what waits for this called node, if it can run the node, too: there it needs no slot.
    pub(in crate::engine) fn worker_of_chain(&self, job: Ix<Job>) -> Option<Ix<Worker>> {
        let entry = &self.jobs[job];
        if !entry.in_run() || self.goes_to_place(entry.class()) {
            return None;
        }
        let mates = self.workflows.slot_sharers(&self.jobs, &self.queue, job);
        let kind = self.queue.kind_of(&self.jobs[job]);
        let workers = mates.linked().filter_map(|mate| self.jobs.open(mate).pushed_to());
        workers.into_iter().find(|worker| {
            let registration = self.workers.entries[*worker].registration.as_deref();
            registration.is_some_and(|registration| {
                mates.slot_at(&self.jobs, &self.queue, *worker, kind).0
                    && self.fits(registration, entry.class())
                    && self.free_for_job(job, *worker, registration).is_ok()
            })
        })
    }

    fn pick_pinned(&self, job: Ix<Job>) -> Pick {
        let Some((worker, _)) = self.pin_of(job) else { return Pick::Missing };
        let entry = &self.workers.entries[worker];
        let Some(registration) = entry.registration.as_deref() else {
            let later = Pick::Later { worker, kind: None };
            return if entry.awaited_until.is_some() { later } else { Pick::Missing };
        };
        if registration.misses >= MISSES_MAX || !self.fits(registration, self.jobs[job].class()) {
            return Pick::Missing;
        }
        match self.free_for_job(job, worker, registration) {
            Ok(()) => Pick::Worker(worker),
            Err(kind) => Pick::Later { worker, kind },
        }
    }

    fn fits(&self, registration: &Registration, class: Ix<Class>) -> bool {
        self.group_lacks(registration.group, class).is_none()
    }

    /// Has a worker a free slot for a job, or its chain one there? If not: whether any, or one of the kind.
    fn free_for_job(
        &self,
        job: Ix<Job>,
        worker: Ix<Worker>,
        registration: &Registration,
    ) -> Result<(), Option<Ix<Kind>>> {
        let kind = self.queue.kind_of(&self.jobs[job]);
        let (of_chain, of_kind_of_chain) = match self.jobs[job].in_run() {
            true => {
                let mates = self.workflows.slot_sharers(&self.jobs, &self.queue, job);
                mates.slot_at(&self.jobs, &self.queue, worker, kind)
            }
            false => (false, false),
        };
        match of_chain && registration.is_willing() {
            true if of_kind_of_chain => Ok(()),
            true => self.within_kind_limit(registration, kind),
            false => self.free_for(registration, kind),
        }
    }

    /// Has a worker a free slot for a kind? If not: whether any, or one of the kind.
    fn free_for(&self, registration: &Registration, kind: Ix<Kind>) -> Result<(), Option<Ix<Kind>>> {
        if registration.free_slot.is_none() {
            return Err(None);
        }
        self.within_kind_limit(registration, kind)
    }

    fn within_kind_limit(&self, registration: &Registration, kind: Ix<Kind>) -> Result<(), Option<Ix<Kind>>> {
        let limit = self.workers.pool.groups[registration.group].limited.get(&kind);
        let used = registration.used_of.get(&kind).copied().unwrap_or(0);
        if limit.is_some_and(|(_, limit)| used >= *limit) { Err(Some(kind)) } else { Ok(()) }
    }

    fn keys_of(&self, job: Ix<Job>) -> impl Iterator<Item = &KeyName> {
        self.queue.keys_of(&self.jobs[job]).iter().map(|&key| self.queue.key_name(key))
    }

    pub(in crate::engine) fn affinity_of(&self, job: Ix<Job>) -> Option<&Affinity> {
        self.keys_of(job).find_map(|key| match key {
            KeyName::Affinity { affinity, .. } => Some(affinity),
            _ => None,
        })
    }

    /// The worker that has what a job uses, and until when.
    pub(in crate::engine) fn pin_of(&self, job: Ix<Job>) -> Option<(Ix<Worker>, Option<Wall>)> {
        self.keys_of(job).find_map(|key| match key {
            KeyName::Pin { worker, expires_at } => Some((*worker, *expires_at)),
            _ => None,
        })
    }

    /// When what a job uses is gone.
    pub(in crate::engine) fn pin_expiry(&self, job: Ix<Job>) -> Option<Wall> {
        let class = self.jobs[job].class();
        if self.queue.class(class).placement().is_none() || !self.goes_to_workers(class) {
            return None;
        }
        self.pin_of(job)?.1
    }

    /// True for a job that waits for nothing: what it uses is gone, or nobody has it any more.
    pub(in crate::engine) fn is_missing(&self, now: Now, job: Ix<Job>) -> bool {
        let class = self.jobs[job].class();
        if self.queue.class(class).placement().is_none() || !self.goes_to_workers(class) {
            return false;
        }
        self.pin_expiry(job).is_some_and(|at| at <= now.wall) || self.pick(job) == Pick::Missing
    }

    /// What the job uses is not there any more: it has failed, and trying again cannot help.
    pub(in crate::engine) fn fail_missing(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let message = match self.pin_of(job) {
            Some((_, Some(at))) if at <= now.wall => "a resource that it uses has expired".to_owned(),
            Some((worker, _)) => {
                let name = &self.workers.entries.key(worker).1;
                format!("worker {name} has a resource that it uses, and is gone or cannot run it")
            }
            None => "a resource that it uses is not there".to_owned(),
        };
        let failure = Failure::permanent("E.RESOURCE.MISSING", message);
        let ending = JobEnding::new(JobState::Failed, Reason::Unavailable);
        self.end_job(now, job, JobEnding { error: Some(failure), ..ending }, effects);
    }

    /// The gate on which jobs wait for a free slot of one worker, closed as long as it has none; and whether it is new.
    pub(in crate::engine) fn slot_gate(
        &mut self,
        worker: Ix<Worker>,
        kind: Option<Ix<Kind>>,
    ) -> (Ix<KeyEntry>, bool) {
        if let Some(&key) = self.workers.entries[worker].gates.get(&kind) {
            return (key, false);
        }
        self.workers.pool.gates_made += 1;
        let name = KeyName::Slot { worker, kind, number: self.workers.pool.gates_made };
        let key = self.queue.hold_key(&name, 0);
        self.workers.entries.hold_again(worker);
        self.workers.entries[worker].gates.insert(kind, key);
        (key, true)
    }

    /// Opens and closes the gates of a worker as it has free slots or not.
    pub(in crate::engine) fn turn_slot_gates(&mut self, worker: Ix<Worker>) {
        if self.workers.entries[worker].gates.is_empty() {
            return;
        }
        let gates: Vec<(Option<Ix<Kind>>, Ix<KeyEntry>)> =
            self.workers.entries[worker].gates.iter().map(|(kind, key)| (*kind, *key)).collect();
        for (kind, key) in gates {
            let open = match self.workers.entries[worker].registration.as_deref() {
                Some(registration) => match kind {
                    None => registration.free_slot.is_some(),
                    Some(kind) => self.free_for(registration, kind).is_ok(),
                },
                None => false,
            };
            self.queue.set_key_limit(&self.workers, key, u32::from(open));
        }
    }

    /// What waits for a worker may wait for nothing, or for another one: all of it is looked at again.
    pub(in crate::engine) fn throw_gates_open(&mut self, worker: Ix<Worker>) {
        let gates = std::mem::take(&mut self.workers.entries[worker].gates);
        for key in gates.into_values() {
            self.queue.set_key_limit(&self.workers, key, 1);
        }
    }

    /// Jobs of a tenant go other ways than before: what waits for one of its workers is looked at again.
    pub(in crate::engine) fn throw_gates_of(&mut self, tenant: Ix<Tenant>) {
        for worker in self.workers.entries.handles() {
            if self.workers.entries.key(worker).0 == tenant && !self.workers.entries[worker].gates.is_empty()
            {
                self.throw_gates_open(worker);
            }
        }
    }

    /// Takes a user of a key away, and what only it used.
    pub(in crate::engine) fn release_key(&mut self, key: Ix<KeyEntry>) {
        match self.queue.release_key(key) {
            Some(KeyName::Slot { worker, kind, .. }) => {
                if self.workers.entries[worker].gates.get(&kind) == Some(&key) {
                    self.workers.entries[worker].gates.remove(&kind);
                }
                self.workers.entries.release(worker);
            }
            Some(KeyName::Pin { worker, .. }) => {
                self.workers.entries[worker].pins -= 1;
                if self.workers.entries[worker].pins == 0 {
                    self.no_longer_awaited(worker);
                }
                self.workers.entries.release(worker);
            }
            _ => {}
        }
    }

    /// The key of jobs that use something on a worker. One that is not there may still come after a restart.
    pub(in crate::engine) fn hold_pin(
        &mut self,
        tenant: Ix<Tenant>,
        name: &Name,
        expires_at: Option<Wall>,
    ) -> Ix<KeyEntry> {
        let worker = self.hold_worker(tenant, name);
        let (key, new) = self.queue.find_or_make_key(&KeyName::Pin { worker, expires_at }, u32::MAX);
        if !new {
            // The key itself is one user of the worker.
            self.workers.entries.release(worker);
            self.queue.hold_key_again(key);
            return key;
        }
        self.workers.entries[worker].pins += 1;
        let until = self.clock.born() + self.settings.lease;
        let known = &self.workers.entries[worker];
        if known.registration.is_none() && known.awaited_until.is_none() && until > self.clock.looked_at() {
            self.await_until(worker, until);
        }
        key
    }

    pub(in crate::engine) fn await_until(&mut self, worker: Ix<Worker>, until: Mono) {
        self.workers.entries[worker].awaited_until = Some(until);
        self.workers.pool.watch.insert((until, worker));
    }

    pub(in crate::engine) fn no_longer_awaited(&mut self, worker: Ix<Worker>) {
        if let Some(at) = self.workers.entries[worker].awaited_until.take() {
            self.workers.pool.watch.remove(&(at, worker));
        }
    }

    /// A job starts: from now on its affinity key belongs to its worker, if it belonged to none.
    pub(in crate::engine) fn note_affinity(&mut self, now: Now, job: Ix<Job>, worker: Ix<Worker>) {
        let Some(Affinity { key, expires_at, .. }) = self.affinity_of(job).cloned() else { return };
        if expires_at.is_some_and(|at| at <= now.wall) {
            return;
        }
        let tenant = self.queue.tenant_of(&self.jobs[job]);
        let bound = self.workers.pool.bindings.worker_of(tenant, &key);
        let Some(entry) = bound else { return self.bind_affinity(tenant, &key, worker, expires_at) };
        if entry != worker {
            return;
        }
        // The later time counts: as long as one of them wants it there.
        let binding =
            self.workers.pool.bindings.by_key.get(&(tenant, key.clone())).cloned().expect("it is bound");
        let later = match (binding.expires_at, expires_at) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
        if later != binding.expires_at {
            self.workers.pool.bindings.remove(tenant, &key);
            self.workers.pool.bindings.insert(tenant, &key, Binding { expires_at: later, ..binding });
        }
    }

    fn bind_affinity(
        &mut self,
        tenant: Ix<Tenant>,
        key: &Name,
        worker: Ix<Worker>,
        expires_at: Option<Wall>,
    ) {
        let max = self.settings.workers.affinities_per_tenant_max.max(1);
        if self.workers.pool.bindings.counts.get(&tenant).is_some_and(|count| *count >= max)
            && let Some(oldest) = self.workers.pool.bindings.oldest(tenant)
        {
            self.end_binding(tenant, &oldest);
        }
        let binding = Binding { worker, expires_at, number: self.queue.starts() };
        self.workers.pool.bindings.insert(tenant, key, binding);
        if let Some(registration) = self.workers.entries[worker].registration.as_mut() {
            registration.bound.insert(key.clone());
        }
    }

    /// A key belongs to nobody any more.
    fn end_binding(&mut self, tenant: Ix<Tenant>, key: &Name) {
        let Some(worker) = self.workers.pool.bindings.remove(tenant, key) else { return };
        if let Some(registration) = self.workers.entries[worker].registration.as_mut() {
            registration.bound.remove(key);
        }
        self.throw_gates_open(worker);
    }

    /// A worker is lost or gone: what was bound to it goes elsewhere.
    pub(in crate::engine) fn end_bindings_of(&mut self, worker: Ix<Worker>) {
        let tenant = self.workers.entries.key(worker).0;
        let bound = self.workers.entries[worker]
            .registration
            .as_mut()
            .map(|registration| std::mem::take(&mut registration.bound));
        for key in bound.into_iter().flatten() {
            self.workers.pool.bindings.remove(tenant, &key);
        }
        self.throw_gates_open(worker);
    }

    /// Ends what has expired.
    pub(in crate::engine) fn expire_bindings(&mut self, now: Now) {
        while let Some((at, tenant, key)) = self.workers.pool.bindings.expiries.first().cloned()
            && at <= now.wall
        {
            self.end_binding(tenant, &key);
        }
    }

    /// What a job wants of a worker can be.
    pub(in crate::engine) fn check_wants(&self, wants: &Placement) -> Result<(), Rejection> {
        let invalid = |message: String| Err(Rejection::new(RejectionCode::Invalid, message));
        let Placement { package: _, features, labels, affinity: _, resources } = wants;
        for (name, len) in [("features", features.len()), ("labels", labels.len())] {
            if len > PLACEMENT_LIST_MAX {
                return invalid(format!("{name}: at most {PLACEMENT_LIST_MAX} are allowed"));
            }
        }
        if resources.len() > RESOURCES_MAX {
            return invalid(format!("resources: at most {RESOURCES_MAX} are allowed"));
        }
        if let Some(first) = resources.first()
            && let Some(other) = resources.iter().find(|resource| resource.worker != first.worker)
        {
            let (one, two) = (&first.worker, &other.worker);
            return invalid(format!("resources: are on workers {one} and {two}; use those of one worker"));
        }
        Ok(())
    }

    /// The lease that a registered worker is told.
    pub(in crate::engine) fn lease_at(&self, worker: Ix<Worker>) -> Span {
        self.workers.entries[worker]
            .registration
            .as_ref()
            .map_or(self.settings.lease, |registration| registration.lease)
    }
}
