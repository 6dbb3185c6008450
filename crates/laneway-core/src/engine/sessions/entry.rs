//! What the engine knows of one session.

use std::collections::BTreeMap;

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{Bin, Rank};
use crate::{Mono, Wall};

/// A session.
#[derive(Default)]
pub(in crate::engine) struct SessionEntry {
    /// Its jobs with an open attempt, in the order in which they opened; ended ones whose run has not ended included.
    pub(in crate::engine) runs: Vec<Ix<Job>>,
    /// The bin of its waiting jobs.
    pub(in crate::engine) bin: Option<Ix<Bin>>,
    /// Its jobs that wait for their not-before time, which are in no bin.
    pub(in crate::engine) later: BTreeMap<Rank, Ix<Job>>,
    /// The batch that collects.
    pub(in crate::engine) batch: Option<DebounceBatch>,
    /// What is remembered of it beside its jobs.
    pub(in crate::engine) state: Option<Box<SessionState>>,
}

/// A batch that collects: jobs that come within the debounce window of one another and run as one.
pub(in crate::engine) struct DebounceBatch {
    /// The job that runs for all of them.
    pub(in crate::engine) leader: Ix<Job>,
    /// Its window never reaches past this.
    pub(in crate::engine) until_max: Mono,
    /// Jobs that joined.
    pub(in crate::engine) merged: u32,
    /// Bytes of payload so far.
    pub(in crate::engine) bytes: u64,
}

/// What is remembered of a session beside its jobs.
pub(in crate::engine) struct SessionState {
    pub(in crate::engine) cutoff: Option<Wall>,
    pub(in crate::engine) generation: u64,
    pub(in crate::engine) tokens: u64,
    pub(in crate::engine) window: u64,
    pub(in crate::engine) updated_at: Wall,
}
