//! Sessions that have a state and no jobs: which one is forgotten next when there are too many.
//!
//! The tenant with the most of them loses one: however many one tenant leaves behind, those of the others stay.

use crate::engine::queue::Tenant;
use crate::engine::sessions::SessionEntry;
use std::collections::{BTreeMap, BTreeSet};

use crate::Wall;
use crate::engine::collections::slab::Ix;

/// Idle sessions by when they last changed, of all tenants and of each.
#[derive(Default)]
pub(super) struct IdleSessions {
    all: BTreeSet<(Wall, Ix<SessionEntry>)>,
    by_tenant: BTreeMap<Ix<Tenant>, BTreeSet<(Wall, Ix<SessionEntry>)>>,
    /// Tenants by how many they have.
    by_count: BTreeSet<(usize, Ix<Tenant>)>,
}

impl IdleSessions {
    pub(super) fn insert(&mut self, tenant: Ix<Tenant>, changed_at: Wall, session: Ix<SessionEntry>) {
        if self.all.insert((changed_at, session)) {
            self.change(tenant, |theirs| theirs.insert((changed_at, session)));
        }
    }

    pub(super) fn remove(&mut self, tenant: Ix<Tenant>, changed_at: Wall, session: Ix<SessionEntry>) {
        if self.all.remove(&(changed_at, session)) {
            self.change(tenant, |theirs| theirs.remove(&(changed_at, session)));
        }
    }

    pub(super) fn contains(&self, changed_at: Wall, session: Ix<SessionEntry>) -> bool {
        self.all.contains(&(changed_at, session))
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The one that changed longest ago.
    pub(super) fn oldest(&self) -> Option<(Wall, Ix<SessionEntry>)> {
        self.all.first().copied()
    }

    /// The one that changed longest ago of the tenant that has the most.
    pub(super) fn oldest_of_most(&self) -> Option<Ix<SessionEntry>> {
        let (_, tenant) = self.by_count.last()?;
        self.by_tenant[tenant].first().map(|(_, session)| *session)
    }

    /// Compares the parts with one another.
    pub(super) fn check(&self) -> Result<(), String> {
        let counted: BTreeSet<(usize, Ix<Tenant>)> =
            self.by_tenant.iter().map(|(tenant, theirs)| (theirs.len(), *tenant)).collect();
        let whole = self.by_tenant.values().map(BTreeSet::len).sum::<usize>() == self.all.len();
        if !whole || counted != self.by_count || self.by_tenant.values().any(BTreeSet::is_empty) {
            return Err(format!("idle sessions by tenant are {:?}, counted {counted:?}", self.by_count));
        }
        Ok(())
    }

    fn change(
        &mut self,
        tenant: Ix<Tenant>,
        change: impl FnOnce(&mut BTreeSet<(Wall, Ix<SessionEntry>)>) -> bool,
    ) {
        let theirs = self.by_tenant.entry(tenant).or_default();
        self.by_count.remove(&(theirs.len(), tenant));
        change(theirs);
        if theirs.is_empty() {
            self.by_tenant.remove(&tenant);
        } else {
            self.by_count.insert((theirs.len(), tenant));
        }
    }
}
