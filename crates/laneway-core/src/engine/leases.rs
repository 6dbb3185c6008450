//! Pull workers: claims, leases by id, and how a lease is renewed.

pub(in crate::engine) mod by_id;
pub(in crate::engine) mod claim;
mod renew;
pub(in crate::engine) mod view;

use std::collections::BTreeMap;

use crate::AttemptId;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;

/// Open attempts of lanes with pull workers, by their ids.
#[derive(Default)]
pub(in crate::engine) struct Leases {
    by_id: BTreeMap<AttemptId, Ix<Job>>,
}

impl Leases {
    pub(in crate::engine) fn find(&self, lease: AttemptId) -> Option<Ix<Job>> {
        self.by_id.get(&lease).copied()
    }

    pub(in crate::engine) fn insert(&mut self, lease: AttemptId, job: Ix<Job>) {
        self.by_id.insert(lease, job);
    }

    pub(in crate::engine) fn remove(&mut self, lease: AttemptId) {
        self.by_id.remove(&lease);
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.by_id.len()
    }
}
