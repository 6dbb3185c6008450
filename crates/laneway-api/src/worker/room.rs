//! How many sockets of workers there may be: in all, of one tenant, and of strangers who have not said who they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::Name;
use laneway_runtime::config::WorkersConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for sockets. Clones are the same room.
#[derive(Clone)]
pub struct Room {
    sockets: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    members: Arc<Mutex<BTreeMap<Name, u32>>>,
}

/// A socket that is open.
pub struct Seat {
    _socket: OwnedSemaphorePermit,
    /// Until it is known who it is.
    stranger: Option<OwnedSemaphorePermit>,
    member: Option<Name>,
    members: Arc<Mutex<BTreeMap<Name, u32>>>,
}

impl Room {
    /// As much as the configuration allows.
    pub fn new(config: &WorkersConfig) -> Room {
        Room {
            sockets: Arc::new(Semaphore::new(config.sockets_max as usize)),
            strangers: Arc::new(Semaphore::new(config.strangers_max as usize)),
            members: Arc::default(),
        }
    }

    /// A seat for somebody who has just come. `None`: there is no room.
    pub fn enter(&self) -> Option<Seat> {
        let stranger = Arc::clone(&self.strangers).try_acquire_owned().ok()?;
        let socket = Arc::clone(&self.sockets).try_acquire_owned().ok()?;
        let members = Arc::clone(&self.members);
        Some(Seat { _socket: socket, stranger: Some(stranger), member: None, members })
    }
}

impl Seat {
    /// It is known who sits here. False: the tenant has its share of the room already.
    pub fn belongs_to(&mut self, tenant: &Name, max: u32) -> bool {
        let members = Arc::clone(&self.members);
        let mut members = lock(&members);
        let count = members.entry(tenant.clone()).or_insert(0);
        if *count >= max {
            return false;
        }
        *count += 1;
        self.stranger = None;
        self.member = Some(tenant.clone());
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(tenant) = &self.member else { return };
        let mut members = lock(&self.members);
        if let Some(count) = members.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                members.remove(tenant);
            }
        }
    }
}

fn lock(members: &Mutex<BTreeMap<Name, u32>>) -> MutexGuard<'_, BTreeMap<Name, u32>> {
    members.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Room {
        Room::new(&WorkersConfig {
            sockets_max: 4,
            sockets_per_tenant_max: 2,
            strangers_max: 2,
            require_certificate: false,
        })
    }

    #[test]
    fn strangers_cannot_take_the_room_of_members() {
        let room = room();
        let strangers: Vec<Seat> = std::iter::from_fn(|| room.enter()).collect();
        assert_eq!(strangers.len(), 2);
        drop(strangers);
        let mut seats: Vec<Seat> = Vec::new();
        for tenant in ["a", "b", "a", "b"] {
            let mut seat = room.enter().unwrap();
            assert!(seat.belongs_to(&Name::new(tenant).unwrap(), 2));
            seats.push(seat);
        }
        assert!(room.enter().is_none(), "there is no more room at all");
        seats.pop();
        let mut seat = room.enter().unwrap();
        assert!(!seat.belongs_to(&Name::fixed("a"), 2), "a tenant has its share only");
        assert!(seat.belongs_to(&Name::fixed("b"), 2));
        drop((seats, seat));
        assert!(room.members.lock().unwrap().is_empty());
    }
}
