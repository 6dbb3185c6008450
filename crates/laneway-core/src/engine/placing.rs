//! Which worker gets a job.

use super::Engine;
use super::slab::{Ix, NONE};
use crate::Span;

impl Engine {
    /// The worker that gets this job now. `None`: its kind has a place of its own.
    pub(super) fn told_worker(&self, job: Ix) -> Option<Ix> {
        let route = self.classes[self.jobs[job].class].route;
        if route == NONE {
            return None;
        }
        let (_, _, worker) = self.fleet.routes[route].heads.first()?;
        Some(*worker)
    }

    /// The lease that a registered worker is told.
    pub(super) fn lease_at(&self, worker: Ix) -> Span {
        self.workers[worker].post.as_ref().map_or(self.settings.lease, |post| post.lease)
    }
}
