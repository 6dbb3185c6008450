//! Sessions: the effect of a new job on the others of its session, the stored state of a session, and its stop.

pub(in crate::engine) mod arrival;
mod entry;
mod eviction;
pub(in crate::engine) mod order;
pub(in crate::engine) mod state;
mod stop;

pub(in crate::engine) use entry::SessionEntry;

use crate::Name;
use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Ix, Pool};
use crate::engine::queue::{Bin, Tenant};
use eviction::IdleSessions;

/// Every session that has jobs or a state.
pub(in crate::engine) struct Sessions {
    /// By tenant and name.
    entries: Pool<(Ix<Tenant>, Name), SessionEntry>,
    /// Sessions that have a state and no jobs, by when they last changed.
    idle: IdleSessions,
}

impl Sessions {
    pub(in crate::engine) fn new(hashing: Hashing) -> Sessions {
        Sessions { entries: Pool::new(hashing), idle: IdleSessions::default() }
    }

    pub(in crate::engine) fn find(&self, tenant: Ix<Tenant>, key: &Name) -> Option<Ix<SessionEntry>> {
        self.entries.find(&(tenant, key.clone()))
    }

    /// The name of a session.
    pub(in crate::engine) fn key_of(&self, session: Ix<SessionEntry>) -> &Name {
        &self.entries.key(session).1
    }

    /// Adds a user of a session.
    pub(in crate::engine) fn hold(&mut self, tenant: Ix<Tenant>, key: &Name) -> Ix<SessionEntry> {
        let session = self.entries.hold(&(tenant, key.clone()), SessionEntry::default);
        if let Some(state) = &self.entries[session].state {
            self.idle.remove(tenant, state.updated_at, session);
        }
        session
    }

    /// Removes a user of a session. A session without users is forgotten, unless it has a state.
    pub(in crate::engine) fn release(&mut self, session: Ix<SessionEntry>) {
        if self.entries.release(session).is_none() {
            self.note_idle(session);
        }
    }

    fn note_idle(&mut self, session: Ix<SessionEntry>) {
        if self.entries.users(session) == 1
            && let Some(state) = &self.entries[session].state
        {
            let tenant = self.entries.key(session).0;
            self.idle.insert(tenant, state.updated_at, session);
        }
    }

    /// The bin of a session's waiting jobs.
    pub(in crate::engine) fn bin_of(&self, session: Ix<SessionEntry>) -> Option<Ix<Bin>> {
        self.entries[session].bin
    }

    pub(in crate::engine) fn set_bin(&mut self, session: Ix<SessionEntry>, bin: Option<Ix<Bin>>) {
        self.entries[session].bin = bin;
    }
}
