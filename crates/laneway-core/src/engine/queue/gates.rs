//! The gates of an attempt: taken together when it opens, freed together when it closes, and at no other time. A key that
//! the job keeps stays taken beyond that.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::{Class, Executor, KeyEntry, KeySet, Kind, Queue, Tenant};
use crate::engine::workers::Workers;
use crate::engine::workflows::chain_limits::{Mates, Shared};

/// A limit and how much of it open attempts use. `used` changes only when an attempt opens or closes, and for
/// a kept key when it is kept or released.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Gate {
    pub(super) limit: u32,
    pub(super) used: u32,
}

impl Gate {
    pub(in crate::engine) fn with_limit(limit: u32) -> Gate {
        Gate { limit, used: 0 }
    }

    pub(in crate::engine) fn is_open(&self) -> bool {
        self.used < self.limit
    }
}

impl Engine {
    /// An attempt of `job` opens. It takes no slot where others of its chain have one.
    pub(in crate::engine) fn take_gates(&mut self, job: Ix<Job>) {
        self.workflows.enter_chain(&self.jobs, job);
        let mates = self.workflows.mates(&self.jobs, job);
        let shared = mates.shared(&self.jobs, &self.queue, job);
        let entry = &self.jobs[job];
        let (agent_queue, class) = (entry.agent_queue(), entry.class());
        let (keyset, session) = (entry.keyset(), entry.session());
        let executor = self.jobs.open(job).executor();
        self.queue.open += u32::from(!shared.any);
        self.queue.lanes[self.queue.agent_queues[agent_queue].lane].open += u32::from(!shared.lane);
        self.queue.agent_queues[agent_queue].open += u32::from(!shared.agent);
        if let Some(session) = session {
            self.sessions.opened(session, job);
        }
        self.queue.change_class_gates(&self.workers, class, executor, shared, take);
        self.queue.change_key_gates(&self.jobs, &self.workers, keyset, &mates, take);
        let open = self.jobs.open(job);
        let (pull, has_worker) = (open.pull(), open.worker().is_some());
        if self.queue.classes[class].demand.is_some() || pull {
            self.take_units(job);
        }
        if has_worker {
            self.workers.take_slot(&self.jobs, &mut self.queue, job, &mates);
        }
    }

    /// The attempt of `job` closed. The session's next job may start now.
    pub(in crate::engine) fn free_gates(&mut self, job: Ix<Job>) {
        let mates = self.workflows.leave_chain(&self.jobs, job);
        let shared = mates.shared(&self.jobs, &self.queue, job);
        let entry = &self.jobs[job];
        let (agent_queue, class) = (entry.agent_queue(), entry.class());
        let (keyset, session) = (entry.keyset(), entry.session());
        let executor = self.jobs.open(job).executor();
        self.queue.open -= u32::from(!shared.any);
        self.queue.lanes[self.queue.agent_queues[agent_queue].lane].open -= u32::from(!shared.lane);
        self.queue.agent_queues[agent_queue].open -= u32::from(!shared.agent);
        self.queue.change_class_gates(&self.workers, class, executor, shared, free);
        self.queue.change_key_gates(&self.jobs, &self.workers, keyset, &mates, free);
        let open = self.jobs.open(job);
        let (pull, has_worker) = (open.pull(), open.worker().is_some());
        if self.queue.classes[class].demand.is_some() || pull {
            self.free_units(job);
        }
        if has_worker {
            self.workers.free_slot(&self.jobs, &mut self.queue, job, &mates, self.settings.lease);
        }
        self.queue.rekey_agent(&self.workers, agent_queue);
        if let Some(session) = session {
            self.sessions.closed(session, job);
            if let Some(bin) = self.sessions.bin_of(session) {
                self.refresh(bin);
            }
        }
        if self.queue.executors[executor].kinds.is_empty() {
            self.queue.forget_executor(executor);
        }
    }
}

impl Queue {
    /// An ended job keeps a key from now on.
    pub(in crate::engine) fn keep_key(&mut self, workers: &Workers, key: Ix<KeyEntry>) {
        self.keys[key].kept += 1;
        if take(&mut self.keys[key].gate) {
            self.reshow_key(workers, key);
        }
    }

    /// An ended job keeps a key no longer.
    pub(in crate::engine) fn free_kept_key(&mut self, workers: &Workers, key: Ix<KeyEntry>) {
        self.keys[key].kept -= 1;
        if free(&mut self.keys[key].gate) {
            self.reshow_key(workers, key);
        }
    }

    fn change_key_gates(
        &mut self,
        jobs: &Jobs,
        workers: &Workers,
        keyset: Option<Ix<KeySet>>,
        mates: &Mates,
        change: fn(&mut Gate) -> bool,
    ) {
        let Some(keyset) = keyset else { return };
        for at in 0..self.keysets[keyset].0.len() {
            let key = self.keysets[keyset].0[at];
            if !mates.hold_key(jobs, self, key) && change(&mut self.keys[key].gate) {
                self.reshow_key(workers, key);
            }
        }
    }

    fn change_class_gates(
        &mut self,
        workers: &Workers,
        class: Ix<Class>,
        executor: Ix<Executor>,
        shared: Shared,
        change: fn(&mut Gate) -> bool,
    ) {
        let (tenant, kind) = (self.classes[class].tenant, self.classes[class].own_kind());
        if !shared.kind && change(&mut self.kinds[kind].gate) {
            self.reshow_kind(workers, kind);
        }
        if !shared.any && change(&mut self.tenants[tenant].gate) {
            self.reshow_tenant(workers, tenant);
        }
        if change(&mut self.executors[executor].gate) {
            self.reshow_executor(workers, executor);
        }
    }

    pub(in crate::engine) fn reshow_kind(&mut self, workers: &Workers, kind: Ix<Kind>) {
        let classes: Vec<Ix<Class>> = self.kinds[kind].classes.iter().copied().collect();
        for class in classes {
            self.reshow_class(workers, class);
        }
    }

    pub(in crate::engine) fn reshow_tenant(&mut self, workers: &Workers, tenant: Ix<Tenant>) {
        let classes: Vec<Ix<Class>> = self.tenants[tenant].classes.iter().copied().collect();
        for class in classes {
            self.reshow_class(workers, class);
        }
    }

    pub(in crate::engine) fn reshow_executor(&mut self, workers: &Workers, executor: Ix<Executor>) {
        let kinds: Vec<Ix<Kind>> = self.executors[executor].kinds.iter().copied().collect();
        for kind in kinds {
            self.reshow_kind(workers, kind);
        }
        let shared_classes: Vec<Ix<Class>> =
            self.executors[executor].shared_classes.iter().copied().collect();
        for shared_class in shared_classes {
            self.reshow_class(workers, shared_class);
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
