//! The record of one session.

use std::collections::BTreeMap;

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{Bin, Rank};
use crate::{Mono, Wall};

/// A session.
#[derive(Default)]
pub(in crate::engine) struct SessionEntry {
    /// Its jobs with an open attempt, in the order in which they opened; canceled jobs that still run included.
    pub(super) open: Vec<Ix<Job>>,
    /// The bin of its waiting jobs.
    pub(super) bin: Option<Ix<Bin>>,
    /// Its jobs that wait for their not-before time, which are in no bin.
    pub(super) later: BTreeMap<Rank, Ix<Job>>,
    /// The debounce batch that collects.
    pub(super) batch: Option<DebounceBatch>,
    /// Its stored state, if it has one.
    pub(super) state: Option<Box<SessionState>>,
}

/// A debounce batch: jobs that arrive within the debounce window of one another and run as one.
pub(super) struct DebounceBatch {
    /// The job that runs for all of them.
    pub(super) leader: Ix<Job>,
    /// Its window never reaches past this.
    pub(super) until_max: Mono,
    /// Jobs that joined.
    pub(super) merged: u32,
    /// Bytes of payload so far.
    pub(super) bytes: u64,
}

/// The stored state of a session.
pub(super) struct SessionState {
    pub(super) cutoff: Option<Wall>,
    pub(super) generation: u64,
    pub(super) tokens: u64,
    pub(super) window: u64,
    pub(super) updated_at: Wall,
}
