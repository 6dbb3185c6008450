//! Shared classes: jobs of kinds without a limit of their own wait together.
//!
//! Only the gates of tenant and executor block such a kind, so all such kinds of an executor share bins: an agent with jobs of
//! twenty kinds has one bin instead of twenty. A kind that gets a limit leaves the shared class job by job, as its jobs come
//! to the front (behind the same gates they would wait anyway). A kind that leaves its executor takes its jobs with it at
//! once, because the shared class may hang on an executor that no longer runs them.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::bin::BinKey;
use crate::engine::queue::class::ClassKey;
use crate::engine::queue::{Class, Demand, Executor, Kind, Queue, Tenant};
use crate::engine::workers::Workers;

impl Engine {
    /// Jobs of kinds that have left the executor go to the bins of their own classes.
    pub(in crate::engine) fn clear_shared_classes(&mut self, executor: Ix<Executor>) {
        for bin in self.queue.bins.handles() {
            let BinKey::Plain { shared_class, .. } = *self.queue.bins.key(bin) else { continue };
            if self.queue.classes[shared_class].executor != Some(executor) {
                continue;
            }
            let gone: Vec<Ix<Job>> = self.queue.bins[bin]
                .jobs
                .iter()
                .map(|(_, job)| job)
                .filter(|&job| !self.queue.fits_shared_class(&self.jobs[job], shared_class))
                .collect();
            for job in gone {
                self.dequeue(job);
                self.enqueue(job);
            }
        }
    }
}

impl Queue {
    /// The limit or the executor of a kind changed: its jobs go to other bins from now on.
    pub(in crate::engine) fn regroup_kind(&mut self, workers: &mut Workers, kind: Ix<Kind>) {
        let classes: Vec<Ix<Class>> = self.kinds[kind].classes.iter().copied().collect();
        for class in classes {
            self.regroup_class(workers, class);
        }
    }

    /// Finds the workers and the shared class of a class anew.
    pub(super) fn regroup_class(&mut self, workers: &mut Workers, class: Ix<Class>) {
        let (tenant, demand) = (self.classes[class].tenant, self.classes[class].demand);
        if workers.reroute_class(self, class) {
            workers.open_slot_gates_of(self, tenant);
        }
        let kind = &self.kinds[self.classes[class].own_kind()];
        // Pull workers name kinds, and push workers are found by them, so each of those kinds has its own bins.
        let shared = kind.gate.limit == u32::MAX && !self.is_pull(demand) && self.goes_to_executor(class);
        let executor = kind.executor.filter(|_| shared);
        let shared_class = executor.map(|executor| self.hold_shared_class(tenant, executor, demand));
        let before = std::mem::replace(&mut self.classes[class].shared_class, shared_class);
        if let Some(before) = before {
            self.release_shared_class(before);
        }
    }

    /// A bin of this class is gone.
    pub(super) fn release_any_class(&mut self, workers: &mut Workers, class: Ix<Class>) {
        match self.classes[class].kind {
            None => self.release_shared_class(class),
            Some(_) => self.release_class(workers, class),
        }
    }

    /// Do the gates of a shared class decide for this job, which waits in a bin of that class?
    pub(in crate::engine) fn fits_shared_class(&self, job: &Job, shared_class: Ix<Class>) -> bool {
        let class = job.class();
        class == shared_class || self.classes[class].shared_class == Some(shared_class)
    }

    /// Adds a user of the shared class of a tenant and an executor.
    fn hold_shared_class(
        &mut self,
        tenant: Ix<Tenant>,
        executor: Ix<Executor>,
        demand: Option<Ix<Demand>>,
    ) -> Ix<Class> {
        let key =
            ClassKey { tenant, lane: None, kind: None, executor: Some(executor), placement: None, demand };
        let (shared_class, new) = self.classes.find_or_make(&key, || Class::new(key));
        match (new, demand) {
            (false, _) => self.classes.hold_again(shared_class),
            (true, None) => {}
            (true, Some(demand)) => self.demands.hold_again(demand),
        }
        self.tenants[tenant].classes.insert(shared_class);
        self.executors[executor].shared_classes.insert(shared_class);
        shared_class
    }

    pub(in crate::engine) fn release_shared_class(&mut self, shared_class: Ix<Class>) {
        if let Some((ClassKey { tenant, executor, demand, .. }, _)) = self.classes.release(shared_class) {
            self.release_demand(demand);
            self.tenants[tenant].classes.remove(&shared_class);
            let executor = executor.expect("a shared class has an executor");
            self.executors[executor].shared_classes.remove(&shared_class);
        }
    }
}
