//! Push workers: registration, messages, and which worker gets a job.

pub(in crate::engine) mod lanes;
pub(in crate::engine) mod messages;
pub(in crate::engine) mod placement;
pub(in crate::engine) mod pool;
pub(in crate::engine) mod register;

use crate::Name;
use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Interned, Ix, Pool};
use crate::engine::queue::Tenant;
use pool::{PlacementRule, Worker, WorkerPool};

/// Every worker that is registered or holds attempts.
pub(in crate::engine) struct Workers {
    /// By tenant and name.
    pub(in crate::engine) entries: Pool<(Ix<Tenant>, Name), Worker>,
    pub(in crate::engine) pool: WorkerPool,
    pub(in crate::engine) placements: Interned<PlacementRule>,
}

impl Workers {
    pub(in crate::engine) fn new(hashing: Hashing) -> Workers {
        Workers {
            entries: Pool::new(hashing),
            pool: WorkerPool::new(hashing),
            placements: Interned::new(hashing),
        }
    }
}
