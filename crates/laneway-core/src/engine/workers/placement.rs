//! Which worker gets a job.
//!
//! The first of its route, unless a placement constraint names one: the worker that has a resource of the job (a pin), or
//! the one that ran the first job of its affinity key. A job fails when its pinned worker is gone.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::ending::JobEnding;
use crate::engine::queue::{Class, KeyName, Kind, Queue};
use crate::engine::workers::record::{MISSES_MAX, Registration};
use crate::engine::workers::{Worker, Workers};
use crate::worker::{Affinity, AffinityMode, PLACEMENT_LIST_MAX, RESOURCES_MAX};
use crate::{Effects, Failure, JobState, Now, Placement, Reason, Rejection, RejectionCode, Wall};

/// Which worker gets a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pick {
    /// This one.
    Worker(Ix<Worker>),
    /// This one, when it has a free slot (for the kind, where one is named).
    Later { worker: Ix<Worker>, kind: Option<Ix<Kind>> },
    /// One that will not come back, or cannot run it.
    Missing,
    /// None: the job goes to no worker, or none is free.
    None,
}

fn keys_of<'a>(queue: &'a Queue, job: &Job) -> impl Iterator<Item = &'a KeyName> {
    queue.keys_of(job).iter().map(|&key| queue.key_name(key))
}

/// The affinity of a job.
fn affinity_of<'a>(queue: &'a Queue, job: &Job) -> Option<&'a Affinity> {
    keys_of(queue, job).find_map(|key| match key {
        KeyName::Affinity { affinity, .. } => Some(affinity),
        _ => None,
    })
}

/// The worker that has a resource of a job, and when the resource expires.
fn pin_of(queue: &Queue, job: &Job) -> Option<(Ix<Worker>, Option<Wall>)> {
    keys_of(queue, job).find_map(|key| match key {
        KeyName::Pin { worker, expires_at } => Some((*worker, *expires_at)),
        _ => None,
    })
}

/// When a resource of a job expires.
pub(in crate::engine) fn pin_expiry(queue: &Queue, job: &Job) -> Option<Wall> {
    if !may_be_pinned(queue, job) {
        return None;
    }
    pin_of(queue, job)?.1
}

fn may_be_pinned(queue: &Queue, job: &Job) -> bool {
    queue.class(job.class()).placement().is_some() && queue.goes_to_workers(job.class())
}

/// Checks the placement constraints of a job.
pub(in crate::engine) fn check_placement(placement: &Placement) -> Result<(), Rejection> {
    let invalid = |message: String| Err(Rejection::new(RejectionCode::Invalid, message));
    let Placement { package: _, features, labels, affinity: _, resources } = placement;
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

impl Workers {
    fn fits(&self, queue: &Queue, registration: &Registration, class: Ix<Class>) -> bool {
        self.group_lacks(queue, registration.group, class).is_none()
    }
}

impl Engine {
    /// The push worker that gets this job now.
    pub(in crate::engine) fn picked_worker(&self, job: Ix<Job>) -> Option<Ix<Worker>> {
        match self.pick(job) {
            Pick::Worker(worker) => Some(worker),
            _ => None,
        }
    }

    /// Which worker gets this job now.
    pub(in crate::engine) fn pick(&self, job: Ix<Job>) -> Pick {
        let entry = &self.jobs[job];
        let class = self.queue.class(entry.class());
        if class.placement().is_some_and(|placement| self.workers.is_pinned(placement)) {
            return self.pick_pinned(job);
        }
        let Some(route) = class.route() else { return Pick::None };
        if let Some(affinity) = affinity_of(&self.queue, entry)
            && let Some(worker) = self.workers.pool.bindings.worker_of(class.tenant(), &affinity.key)
            && let Some(registration) = self.workers.registration(worker)
            // A worker that cannot run the job does not count; then the key has no effect.
            && self.workers.fits(&self.queue, registration, entry.class())
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
            None => Pick::None,
        }
    }

    /// The worker that runs the caller of this called node, if it can run the node, too: there the node needs no slot.
    pub(in crate::engine) fn worker_of_chain(&self, job: Ix<Job>) -> Option<Ix<Worker>> {
        let entry = &self.jobs[job];
        if !entry.in_run() || self.queue.goes_to_executor(entry.class()) {
            return None;
        }
        let mates = self.workflows.slot_sharers(&self.jobs, &self.queue, job);
        let kind = self.queue.kind_of(entry);
        let mut workers = mates.linked().filter_map(|mate| self.jobs.open(mate).pushed_to());
        workers.find(|worker| {
            self.workers.registration(*worker).is_some_and(|registration| {
                mates.slot_at(&self.jobs, &self.queue, *worker, kind).0
                    && self.workers.fits(&self.queue, registration, entry.class())
                    && self.free_for_job(job, *worker, registration).is_ok()
            })
        })
    }

    fn pick_pinned(&self, job: Ix<Job>) -> Pick {
        let entry = &self.jobs[job];
        let Some((worker, _)) = pin_of(&self.queue, entry) else { return Pick::Missing };
        let Some(registration) = self.workers.registration(worker) else {
            let later = Pick::Later { worker, kind: None };
            return if self.workers.entries[worker].awaited_until.is_some() { later } else { Pick::Missing };
        };
        if registration.misses >= MISSES_MAX || !self.workers.fits(&self.queue, registration, entry.class()) {
            return Pick::Missing;
        }
        match self.free_for_job(job, worker, registration) {
            Ok(()) => Pick::Worker(worker),
            Err(kind) => Pick::Later { worker, kind },
        }
    }

    /// Whether a worker has a free slot for a job, or the job's chain has one there. If not: whether any slot is missing, or
    /// one of the kind.
    fn free_for_job(
        &self,
        job: Ix<Job>,
        worker: Ix<Worker>,
        registration: &Registration,
    ) -> Result<(), Option<Ix<Kind>>> {
        let entry = &self.jobs[job];
        let kind = self.queue.kind_of(entry);
        let (of_chain, of_kind_of_chain) = if entry.in_run() {
            let mates = self.workflows.slot_sharers(&self.jobs, &self.queue, job);
            mates.slot_at(&self.jobs, &self.queue, worker, kind)
        } else {
            (false, false)
        };
        match of_chain && registration.is_willing() {
            true if of_kind_of_chain => Ok(()),
            true => self.workers.within_kind_limit(registration, kind),
            false => self.workers.free_for(registration, kind),
        }
    }

    /// True for a job that waits in vain: its resource has expired, or no worker has it any more.
    pub(in crate::engine) fn is_missing(&self, now: Now, job: Ix<Job>) -> bool {
        let entry = &self.jobs[job];
        may_be_pinned(&self.queue, entry)
            && (pin_expiry(&self.queue, entry).is_some_and(|at| at <= now.wall)
                || self.pick(job) == Pick::Missing)
    }

    /// A job starts on a push worker: binds its affinity key to the worker.
    pub(in crate::engine) fn note_affinity(&mut self, now: Now, job: Ix<Job>, worker: Ix<Worker>) {
        let Some(affinity) = affinity_of(&self.queue, &self.jobs[job]).cloned() else { return };
        let tenant = self.queue.tenant_of(&self.jobs[job]);
        let max = self.settings.workers.affinities_per_tenant_max;
        self.workers.note_affinity(now, &mut self.queue, (tenant, &affinity), worker, max);
    }

    /// Fails a job whose resource is not there any more: a retry cannot help.
    pub(in crate::engine) fn fail_missing(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let message = match pin_of(&self.queue, &self.jobs[job]) {
            Some((_, Some(at))) if at <= now.wall => "a resource that it uses has expired".to_owned(),
            Some((worker, _)) => {
                let name = self.workers.name_of(worker);
                format!("worker {name} has a resource that it uses, and is gone or cannot run it")
            }
            None => "a resource that it uses is not there".to_owned(),
        };
        let failure = Failure::permanent("E.RESOURCE.MISSING", message);
        let ending = JobEnding::new(JobState::Failed, Reason::Unavailable);
        self.end_job(now, job, JobEnding { error: Some(failure), ..ending }, effects);
    }
}
