//! Limits the requests that wait for an owner: in all, and for each address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests that wait at once.
const WAITS_MAX: usize = 4_096;
/// Requests of one address that wait at once.
const WAITS_PER_ADDRESS_MAX: usize = 512;

/// The requests that wait. Clones share them.
#[derive(Clone, Default)]
pub struct Waits(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    all: usize,
    of: BTreeMap<IpAddr, usize>,
}

/// A request that waits. Dropping it ends that.
pub struct Wait {
    waits: Waits,
    address: IpAddr,
}

impl Waits {
    /// One more. `None`: too many wait already.
    pub fn enter(&self, address: IpAddr) -> Option<Wait> {
        let mut counts = self.lock();
        let own = counts.of.get(&address).copied().unwrap_or_default();
        if counts.all >= WAITS_MAX || own >= WAITS_PER_ADDRESS_MAX {
            return None;
        }
        counts.all += 1;
        counts.of.insert(address, own + 1);
        Some(Wait { waits: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut counts = self.waits.lock();
        counts.all -= 1;
        if let Some(own) = counts.of.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                counts.of.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others() {
        let waits = Waits::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let held: Vec<_> = (0..WAITS_PER_ADDRESS_MAX).map(|_| waits.enter(one).unwrap()).collect();
        assert!(waits.enter(one).is_none());
        assert!(waits.enter(other).is_some());
        drop(held);
        assert!(waits.enter(one).is_some());
        assert!(waits.lock().of.is_empty() && waits.lock().all == 0);
    }
}
