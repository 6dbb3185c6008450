//! Sessions without jobs of which something is remembered: which is forgotten next when there are too many.
//!
//! The tenant with the most of them pays: however many one tenant leaves behind, those of the others stay.

use std::collections::{BTreeMap, BTreeSet};

use super::slab::Ix;
use crate::Wall;

/// Idle sessions by when they last changed, of all tenants and of each.
#[derive(Default)]
pub(super) struct IdleSessions {
    all: BTreeSet<(Wall, Ix)>,
    by_tenant: BTreeMap<Ix, BTreeSet<(Wall, Ix)>>,
    /// Tenants by how many they have.
    by_count: BTreeSet<(usize, Ix)>,
}

impl IdleSessions {
    pub(super) fn insert(&mut self, tenant: Ix, changed_at: Wall, session: Ix) {
        if self.all.insert((changed_at, session)) {
            self.change(tenant, |theirs| theirs.insert((changed_at, session)));
        }
    }

    pub(super) fn remove(&mut self, tenant: Ix, changed_at: Wall, session: Ix) {
        if self.all.remove(&(changed_at, session)) {
            self.change(tenant, |theirs| theirs.remove(&(changed_at, session)));
        }
    }

    pub(super) fn contains(&self, changed_at: Wall, session: Ix) -> bool {
        self.all.contains(&(changed_at, session))
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The one that changed longest ago.
    pub(super) fn oldest(&self) -> Option<(Wall, Ix)> {
        self.all.first().copied()
    }

    /// The one that changed longest ago of the tenant that has the most.
    pub(super) fn oldest_of_most(&self) -> Option<Ix> {
        let (_, tenant) = self.by_count.last()?;
        self.by_tenant[tenant].first().map(|(_, session)| *session)
    }

    /// Says where the parts do not agree.
    pub(super) fn check(&self) -> Result<(), String> {
        let counted: BTreeSet<(usize, Ix)> =
            self.by_tenant.iter().map(|(tenant, theirs)| (theirs.len(), *tenant)).collect();
        let whole = self.by_tenant.values().map(BTreeSet::len).sum::<usize>() == self.all.len();
        if !whole || counted != self.by_count || self.by_tenant.values().any(BTreeSet::is_empty) {
            return Err(format!("idle sessions by tenant are {:?}, counted {counted:?}", self.by_count));
        }
        Ok(())
    }

    fn change(&mut self, tenant: Ix, change: impl FnOnce(&mut BTreeSet<(Wall, Ix)>) -> bool) {
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
