//! Who uses the data directory of a profile: at most one at a time, so that no directory is copied, cleared or deleted while a
//! browser writes to it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::Name;
use laneway_core::share::Pool;

use crate::profiles::ProfileId;

/// What a data directory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A browser starts with it.
    Starting,
    /// A browser is open.
    Open,
    /// Its cache is cleared.
    Clearing,
    /// It is copied.
    Copying,
    /// The profile is moved into or out of the recycle bin, or deleted.
    Changing,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Use::Starting => "its browser is starting",
            Use::Open => "its browser is open",
            Use::Clearing => "its cache is being cleared",
            Use::Copying => "it is being copied",
            Use::Changing => "it is being moved or deleted",
        })
    }
}

/// A profile of a tenant.
pub(crate) type Owned = (Name, ProfileId);

/// Every use. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Uses {
    table: Arc<Mutex<BTreeMap<Owned, Use>>>,
}

impl Uses {
    /// Takes the directory until the returned value is dropped. The error says who has it.
    pub fn take(&self, tenant: &Name, id: &ProfileId, purpose: Use) -> Result<Taken, Use> {
        let owned = (tenant.clone(), id.clone());
        let mut table = self.table();
        match table.get(&owned) {
            Some(taken) => Err(*taken),
            None => {
                table.insert(owned.clone(), purpose);
                Ok(Taken { owned, uses: self.clone() })
            }
        }
    }

    /// Takes the directory for a browser, if the machine has a place for it: of `open_max` places, a tenant has all but a reserve for
    /// the others. The error says who has the directory, or that there is no place.
    pub fn take_place(&self, tenant: &Name, id: &ProfileId, open_max: u32) -> Result<Taken, NoPlace> {
        let owned = (tenant.clone(), id.clone());
        let mut table = self.table();
        if let Some(taken) = table.get(&owned) {
            return Err(NoPlace::InUse(*taken));
        }
        has_place(&table, tenant, open_max)?;
        table.insert(owned.clone(), Use::Starting);
        Ok(Taken { owned, uses: self.clone() })
    }

    /// Checks that the machine has a place for one more browser of the tenant.
    pub fn has_place(&self, tenant: &Name, open_max: u32) -> Result<(), NoPlace> {
        has_place(&self.table(), tenant, open_max)
    }

    /// The profiles of a tenant whose browsers are starting.
    pub fn starting(&self, tenant: &Name) -> Vec<ProfileId> {
        let table = self.table();
        let starting =
            table.iter().filter(|((owner, _), purpose)| owner == tenant && **purpose == Use::Starting);
        starting.map(|((_, id), _)| id.clone()).collect()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<Owned, Use>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_place(table: &BTreeMap<Owned, Use>, tenant: &Name, open_max: u32) -> Result<(), NoPlace> {
    let browsers = table.iter().filter(|(_, purpose)| matches!(purpose, Use::Starting | Use::Open));
    let (mut open, mut of_tenant) = (0_u32, 0_u32);
    for ((owner, _), _) in browsers {
        open += 1;
        of_tenant += u32::from(owner == tenant);
    }
    match Pool::new(open_max, open).left_to(of_tenant, false) {
        0 => Err(NoPlace::Full { open, of_tenant, open_max }),
        _ => Ok(()),
    }
}

/// Why there is no browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// The directory is in use.
    InUse(Use),
    /// The machine has no place for another browser of this tenant.
    Full {
        /// Browsers that are open or start, of all tenants.
        open: u32,
        /// Those of the tenant.
        of_tenant: u32,
        /// Most of all tenants together.
        open_max: u32,
    },
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPlace::InUse(by) => by.fmt(f),
            NoPlace::Full { open, of_tenant, open_max } => write!(
                f,
                "{open} browsers of all tenants are open, {of_tenant} of them of this tenant; browsers.open_max allows {open_max} together and keeps the last ones for tenants that have fewer; close one"
            ),
        }
    }
}

/// A directory that was taken.
pub(crate) struct Taken {
    owned: Owned,
    uses: Uses,
}

impl Taken {
    /// Uses it for something else from now on.
    pub fn becomes(&self, purpose: Use) {
        self.uses.table().insert(self.owned.clone(), purpose);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.uses.table().remove(&self.owned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_leaves_places_for_the_others() {
        let uses = Uses::default();
        let id = |number: usize| ProfileId::parse(&format!("p{number}")).unwrap();
        let take_all = |tenant: &'static str, first: usize| {
            let take = |number| uses.take_place(&Name::fixed(tenant), &id(number), 16).ok();
            (first..).map_while(take).collect::<Vec<Taken>>()
        };
        // One that copies its profile has no browser.
        let _copying = uses.take(&Name::fixed("a"), &id(99), Use::Copying).unwrap();
        let a = take_all("a", 0);
        let b = take_all("b", 0);
        assert_eq!((a.len(), b.len(), take_all("c", 0).len()), (14, 1, 1));
        assert_eq!(
            uses.has_place(&Name::fixed("a"), 16),
            Err(NoPlace::Full { open: 15, of_tenant: 14, open_max: 16 })
        );
        assert_eq!(uses.has_place(&Name::fixed("c"), 16), Ok(()));
        drop(a);
        assert_eq!(take_all("b", 1).len(), 13, "what is free goes to the tenant that asks");
        let in_use = uses.take_place(&Name::fixed("a"), &id(99), 16).err();
        assert_eq!(in_use, Some(NoPlace::InUse(Use::Copying)));
    }

    #[test]
    fn a_directory_has_one_user_at_a_time() {
        let uses = Uses::default();
        let (acme, other) = (Name::fixed("acme"), Name::fixed("other"));
        let id = ProfileId::parse("p1").unwrap();
        let taken = uses.take(&acme, &id, Use::Starting).unwrap();
        assert_eq!((uses.starting(&acme).len(), uses.starting(&other).len()), (1, 0));
        assert_eq!(uses.take(&acme, &id, Use::Copying).err(), Some(Use::Starting));
        taken.becomes(Use::Open);
        assert_eq!(uses.starting(&acme), []);
        assert_eq!(uses.take(&acme, &id, Use::Copying).err(), Some(Use::Open));
        assert!(uses.take(&other, &id, Use::Copying).is_ok());
        drop(taken);
        assert!(uses.take(&acme, &id, Use::Copying).is_ok());
    }
}
