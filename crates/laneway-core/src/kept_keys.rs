//! Kept keys: keys that a job holds beyond its end, until they are released.
//!
//! A runner that reports success names them (see [`crate::Outcome::SucceededKeeping`]). They count against the limit of
//! the key exactly as an open attempt does, so no other job can take them between the end of the job and the release. They
//! are for resources that outlive the job that made them, such as a browser that a job has started.

use crate::{JobId, Key, Name, Wall};

/// Most ended jobs of one tenant that keep keys.
pub const KEEPERS_PER_TENANT_MAX: usize = 10_000;
/// Most ended jobs of all tenants that keep keys: they stay in memory.
pub const KEEPERS_MAX: usize = 100_000;

/// The keys that an ended job keeps, as stored. The row outlives the row of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptKeys {
    /// The job.
    pub job: JobId,
    /// Its tenant.
    pub tenant: Name,
    /// The keys, in the order of the job; never empty.
    pub keys: Vec<Key>,
    /// When the job ended.
    pub since: Wall,
}

/// How much of a key is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Open attempts that hold it.
    pub open: u32,
    /// Ended jobs that keep it.
    pub kept: u32,
    /// Most at once, both together.
    pub limit: u32,
}

impl KeyUse {
    /// True when a job with this key would have to wait for it.
    pub fn is_full(self) -> bool {
        self.open.saturating_add(self.kept) >= self.limit
    }
}
