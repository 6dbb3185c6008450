//! Sockets whose client has not shown who it is: few in all, fewer of one address, and only so many bytes each.
//!
//! A new socket is never rejected. Instead, the oldest one of its address is closed, or the oldest one of the address that has
//! the most: a client that authenticates does so at once, and a silent one makes way.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::{Name, Role};
use tokio_util::sync::CancellationToken;

/// Most bytes that a client may send over a socket before it has shown who it is.
pub const UNAUTHENTICATED_BYTES_MAX: u64 = 64 << 10;

/// How many bytes a connection may still send. Clones are the same; unlimited at first.
#[derive(Clone, Debug)]
pub struct ReadBudget(Arc<AtomicU64>);

impl Default for ReadBudget {
    fn default() -> ReadBudget {
        ReadBudget(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

impl ReadBudget {
    /// Only so many bytes from now on.
    pub fn limit(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// As many as it wants from now on.
    pub fn lift(&self) {
        self.limit(u64::MAX);
    }

    /// So many bytes came. False: that was more than it may send.
    pub fn take(&self, bytes: u64) -> bool {
        match self.0.load(Ordering::Relaxed) {
            u64::MAX => true,
            left => {
                // A limit that is lifted meanwhile stays lifted.
                let rest = left.saturating_sub(bytes);
                let _ = self.0.compare_exchange(left, rest, Ordering::Relaxed, Ordering::Relaxed);
                bytes <= left
            }
        }
    }
}

/// Where a request for a socket comes from, and what it has shown.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The client's address.
    pub address: IpAddr,
    /// What it may send: its rights.
    pub budget: ReadBudget,
    /// The owner of a valid token or certificate in its request, if there was one.
    pub shown: Option<Shown>,
}

/// The owner and rights of a valid token or certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its role.
    pub role: Role,
    /// The tenant it is bound to.
    pub tenant: Option<Name>,
}

/// All sockets of one sort whose clients have not shown who they are. Clones are the same.
#[derive(Clone, Debug)]
pub struct UnauthenticatedSockets {
    max: usize,
    per_address_max: usize,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    count: usize,
    /// By address, the oldest first.
    of: BTreeMap<IpAddr, VecDeque<(u64, CancellationToken)>>,
}

/// A socket whose client has not shown who it is. Dropped once it has, or with the socket.
#[derive(Debug)]
pub struct UnauthenticatedSocket {
    address: IpAddr,
    number: u64,
    displaced: CancellationToken,
    open: Arc<Mutex<Open>>,
}

impl UnauthenticatedSockets {
    /// At most so many, and so many of one address.
    pub fn new(max: u32, per_address_max: u32) -> UnauthenticatedSockets {
        let (max, per_address_max) = (max.max(1) as usize, per_address_max.max(1) as usize);
        UnauthenticatedSockets { max, per_address_max, open: Arc::default() }
    }

    /// Adds a socket, and closes an older one if there are too many.
    pub fn enter(&self, address: IpAddr) -> UnauthenticatedSocket {
        let address = network_of(address);
        let mut open = lock(&self.open);
        let of_address = open.of.get(&address).map_or(0, VecDeque::len);
        if of_address >= self.per_address_max {
            open.displace(address);
        } else if open.count >= self.max {
            let crowded =
                open.of.iter().max_by_key(|(_, sockets)| sockets.len()).map(|(address, _)| *address);
            open.displace(crowded.unwrap_or(address));
        }
        open.last += 1;
        open.count += 1;
        let (number, displaced) = (open.last, CancellationToken::new());
        open.of.entry(address).or_default().push_back((number, displaced.clone()));
        UnauthenticatedSocket { address, number, displaced, open: Arc::clone(&self.open) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        lock(&self.open).count
    }
}

impl Open {
    fn displace(&mut self, address: IpAddr) {
        let oldest = self.of.get_mut(&address).and_then(VecDeque::pop_front);
        if let Some((_, displaced)) = oldest {
            displaced.cancel();
            self.left(address);
        }
    }

    fn left(&mut self, address: IpAddr) {
        self.count -= 1;
        if self.of.get(&address).is_some_and(VecDeque::is_empty) {
            self.of.remove(&address);
        }
    }
}

impl UnauthenticatedSocket {
    /// Waits until a newer socket replaces it.
    pub async fn displaced(&self) {
        self.displaced.cancelled().await;
    }
}

impl Drop for UnauthenticatedSocket {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        let Some(sockets) = open.of.get_mut(&self.address) else { return };
        let before = sockets.len();
        sockets.retain(|(number, _)| *number != self.number);
        if sockets.len() < before {
            open.left(self.address);
        }
    }
}

/// One client may have as many addresses of IPv6 as its network: the first half counts.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn is_displaced(socket: &UnauthenticatedSocket) -> bool {
        socket.displaced.is_cancelled()
    }

    #[test]
    fn defect_07_a_new_socket_displaces_the_oldest_of_its_address() {
        let sockets = UnauthenticatedSockets::new(4, 2);
        let first = sockets.enter(address(1));
        let second = sockets.enter(address(1));
        let third = sockets.enter(address(1));
        assert_eq!([&first, &second, &third].map(is_displaced), [true, false, false]);
        drop(first);
        assert_eq!(sockets.count(), 2);
        // A client of IPv6 is its network.
        let six: Vec<_> = (1..=3u16)
            .map(|host| sockets.enter(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host))))
            .collect();
        assert_eq!(six.iter().map(is_displaced).collect::<Vec<_>>(), [true, false, false]);
        drop((second, third, six));
        assert_eq!(sockets.count(), 0);
        assert!(lock(&sockets.open).of.is_empty());
    }

    #[test]
    fn defect_07_where_there_are_enough_the_address_with_most_makes_way() {
        let sockets = UnauthenticatedSockets::new(3, 3);
        let (one, two) = (sockets.enter(address(1)), sockets.enter(address(1)));
        let other = sockets.enter(address(2));
        let new = sockets.enter(address(3));
        assert_eq!([&one, &two, &other, &new].map(is_displaced), [true, false, false, false]);
        assert_eq!(sockets.count(), 3);
    }

    #[test]
    fn defect_07_a_budget_of_bytes_holds_until_it_is_lifted() {
        let budget = ReadBudget::default();
        assert!(budget.take(u64::MAX));
        budget.limit(10);
        assert!(budget.take(4) && budget.take(6) && !budget.take(1));
        budget.lift();
        assert!(budget.take(1 << 40));
    }
}
