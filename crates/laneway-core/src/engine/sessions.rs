//! Sessions: what a new job does to the others of its session, what is remembered of a session, and how it is stopped.

pub(in crate::engine) mod arrival;
mod entry;
pub(in crate::engine) mod eviction;
pub(in crate::engine) mod state;
pub(in crate::engine) mod stop;

pub(in crate::engine) use entry::{DebounceBatch, SessionEntry, SessionState};

use crate::Name;
use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Ix, Pool};
use crate::engine::queue::Tenant;
use eviction::IdleSessions;

/// Every session that has jobs or that is remembered.
pub(in crate::engine) struct Sessions {
    /// By tenant and name.
    pub(in crate::engine) entries: Pool<(Ix<Tenant>, Name), SessionEntry>,
    /// Sessions without jobs that are remembered, by when they last changed.
    pub(in crate::engine) idle: IdleSessions,
}

impl Sessions {
    pub(in crate::engine) fn new(hashing: Hashing) -> Sessions {
        Sessions { entries: Pool::new(hashing), idle: IdleSessions::default() }
    }
}
