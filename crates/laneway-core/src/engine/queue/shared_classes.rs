//! Shelves: jobs of kinds that nothing tells apart wait in one bin.
//!
//! A kind without a limit of its own is held back by its tenant and its place only, so all such kinds of a place share
//! bins: an agent that asks for twenty of them has one bin instead of twenty. A kind that gets a limit leaves the shared class job
//! by job, as its jobs come to the front (behind the same gates they would wait all the same); a kind that leaves its place
//! takes its jobs with it at once, because the shared class may hang on a place that no longer matters to them.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{BinKey, Class, ClassKey, Demand, Executor, Kind, Tenant};

impl Engine {
    /// May a job of this shared class's bin be judged by the shared class's gates?
    pub(in crate::engine) fn fits_shared_class(&self, job: Ix<Job>, shared_class: Ix<Class>) -> bool {
        let class = self.jobs[job].class();
        class == shared_class || self.queue.classes[class].shared_class == Some(shared_class)
    }

    /// The limit or the place of a kind changed: from now on its jobs are put where they belong now.
    pub(in crate::engine) fn regroup_kind(&mut self, kind: Ix<Kind>) {
        let classes: Vec<Ix<Class>> = self.queue.kinds[kind].classes.iter().copied().collect();
        for class in classes {
            self.regroup_class(class);
        }
    }

    pub(in crate::engine) fn regroup_class(&mut self, class: Ix<Class>) {
        let (tenant, demand) = (self.queue.classes[class].tenant, self.queue.classes[class].demand);
        if self.reroute_class(class) {
            self.throw_gates_of(tenant);
        }
        let kind = &self.queue.kinds[self.queue.classes[class].own_kind()];
        // Workers ask for kinds by name, or are found by them, so each of those has its own bins.
        let shared = kind.gate.limit == u32::MAX && !self.is_pull(demand) && self.goes_to_place(class);
        let executor = kind.executor.filter(|_| shared);
        let shared_class = executor.map(|executor| self.hold_shared_class(tenant, executor, demand));
        let before = std::mem::replace(&mut self.queue.classes[class].shared_class, shared_class);
        if let Some(before) = before {
            self.release_shared_class(before);
        }
    }

    /// Jobs of kinds that have left the place go where they belong now.
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
                .filter(|&job| !self.fits_shared_class(job, shared_class))
                .collect();
            for job in gone {
                self.dequeue(job);
                self.enqueue(job);
            }
        }
    }

    fn hold_shared_class(
        &mut self,
        tenant: Ix<Tenant>,
        executor: Ix<Executor>,
        demand: Option<Ix<Demand>>,
    ) -> Ix<Class> {
        let key =
            ClassKey { tenant, lane: None, kind: None, executor: Some(executor), placement: None, demand };
        let (shared_class, new) = self.queue.classes.find_or_make(&key, || Class {
            tenant,
            lane: None,
            kind: None,
            executor: Some(executor),
            placement: None,
            demand,
            route: None,
            shared_class: None,
            lanes: Default::default(),
        });
        match (new, demand) {
            (false, _) => self.queue.classes.hold_again(shared_class),
            (true, None) => {}
            (true, Some(demand)) => self.queue.demands.hold_again(demand),
        }
        self.queue.tenants[tenant].classes.insert(shared_class);
        self.queue.executors[executor].shared_classes.insert(shared_class);
        shared_class
    }

    pub(in crate::engine) fn release_shared_class(&mut self, shared_class: Ix<Class>) {
        if let Some((ClassKey { tenant, executor, demand, .. }, _)) = self.queue.classes.release(shared_class)
        {
            self.release_demand(demand);
            self.queue.tenants[tenant].classes.remove(&shared_class);
            let executor = executor.expect("a shared_class has an executor");
            self.queue.executors[executor].shared_classes.remove(&shared_class);
        }
    }

    /// A bin is gone that stood for this class.
    pub(in crate::engine) fn release_any_class(&mut self, class: Ix<Class>) {
        match self.queue.classes[class].kind {
            None => self.release_shared_class(class),
            Some(_) => self.release_class(class),
        }
    }
}
