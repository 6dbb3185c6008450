//! Limits the sockets of workers: in total, for each tenant, and for unauthenticated clients.
//!
//! Tenants share them as [`laneway_core::share`] describes. A socket does not come back by itself, so a tenant whose share
//! is used up gets a socket of the tenant with the most, if one of these has no task: that socket is closed. A socket
//! with a task is never closed for another tenant. Sockets with a token but without a handshake are counted apart, so
//! that silent sockets take nothing from workers; their time is limited.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::share;
use laneway_core::{Name, Role};
use laneway_runtime::config::WorkersConfig;
use laneway_runtime::unauthenticated::{
    Arrival, ReadBudget, Shown, UNAUTHENTICATED_BYTES_MAX, UnauthenticatedSocket, UnauthenticatedSockets,
};
use tokio_util::sync::CancellationToken;

/// The connection limits. Clones share them.
#[derive(Clone)]
pub struct ConnectionLimits {
    unauthenticated: UnauthenticatedSockets,
    /// Sockets with a token that have not sent a handshake yet.
    arriving: Pool,
    /// Sockets of workers.
    workers: Pool,
}

/// A pool of sockets that parties share. Clones share the pool.
#[derive(Clone)]
struct Pool {
    max: u32,
    sockets: Arc<Mutex<Sockets>>,
}

#[derive(Default)]
struct Sockets {
    count: u32,
    last: u64,
    /// By tenant, in the order of their arrival. Server-wide tokens are a party of their own.
    of: BTreeMap<Name, BTreeMap<u64, Socket>>,
}

struct Socket {
    /// True: a worker without a task, which may have to make way.
    idle: bool,
    evicted: CancellationToken,
}

/// One socket of a pool. Dropping it releases it.
struct PoolSlot {
    party: Name,
    number: u64,
    evicted: CancellationToken,
    pool: Pool,
}

/// An open socket.
pub struct ConnectionSlot {
    limits: ConnectionLimits,
    /// Set until the client has authenticated. Such a socket takes nothing from other clients.
    unauthenticated: Option<(UnauthenticatedSocket, ReadBudget)>,
    /// Set until the handshake, if the request had a token.
    arriving: Option<PoolSlot>,
    worker_slot: Option<PoolSlot>,
    /// The worker has no task.
    idle: bool,
}

/// Why a socket must make way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// It sent no handshake, and newer sockets came.
    Unauthenticated,
    /// Its worker had no task, and another tenant needs the socket.
    Idle,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// The limit of all sockets.
    Sockets,
    /// The limit of the tenant.
    Tenant,
    /// The tenant's share: the free sockets are reserved for others.
    Share,
}

impl ConnectionLimits {
    /// The limits of the configuration.
    pub fn new(config: &WorkersConfig) -> ConnectionLimits {
        ConnectionLimits {
            unauthenticated: UnauthenticatedSockets::new(
                config.unauthenticated_max,
                config.unauthenticated_per_address_max,
            ),
            arriving: Pool::new(config.sockets_max),
            workers: Pool::new(config.sockets_max),
        }
    }

    /// Takes a slot for a new client. `max` is the limit of a tenant. An unauthenticated client gets one as well, for
    /// a short time and a few bytes.
    pub fn enter(&self, arrival: &Arrival, max: u32) -> Result<ConnectionSlot, LimitReached> {
        let mut slot = ConnectionSlot {
            limits: self.clone(),
            unauthenticated: None,
            arriving: None,
            worker_slot: None,
            idle: false,
        };
        match &arrival.shown {
            Some(Shown { role: Role::Worker | Role::Admin, tenant }) => {
                if let Some(tenant) = tenant {
                    // Rejected now rather than after the handshake.
                    self.workers.check(tenant, max)?;
                }
                let party = tenant.clone().unwrap_or_else(|| Name::fixed("*"));
                slot.arriving = Some(self.arriving.take(&party, u32::MAX)?);
            }
            _ => {
                arrival.budget.limit(UNAUTHENTICATED_BYTES_MAX);
                let socket = self.unauthenticated.enter(arrival.address);
                slot.unauthenticated = Some((socket, arrival.budget.clone()));
            }
        }
        Ok(slot)
    }
}

impl Pool {
    fn new(max: u32) -> Pool {
        Pool { max, sockets: Arc::default() }
    }

    /// Checks whether a party may have one more, with its share and with the limit `most`.
    fn check(&self, party: &Name, most: u32) -> Result<(), LimitReached> {
        lock(&self.sockets).find_space(self.max, party, most).map(drop)
    }

    /// Takes a socket for a party, if need be one of another party.
    fn take(&self, party: &Name, most: u32) -> Result<PoolSlot, LimitReached> {
        let mut sockets = lock(&self.sockets);
        if let Space::Of(other, number) = sockets.find_space(self.max, party, most)? {
            sockets.remove(&other, number).inspect(|socket| socket.evicted.cancel());
        }
        let evicted = CancellationToken::new();
        let number = sockets.put(party, evicted.clone());
        Ok(PoolSlot { party: party.clone(), number, evicted, pool: self.clone() })
    }
}

/// Where the next socket comes from.
enum Space {
    /// One is free.
    Free,
    /// This socket of another party makes way.
    Of(Name, u64),
}

impl Sockets {
    fn own(&self, party: &Name) -> usize {
        self.of.get(party).map_or(0, BTreeMap::len)
    }

    fn find_space(&self, max: u32, party: &Name, most: u32) -> Result<Space, LimitReached> {
        let own = self.own(party);
        if own >= most as usize {
            return Err(LimitReached::Tenant);
        }
        let pool = share::Pool::new(max, self.count);
        if pool.left_to(own as u64, false) > 0 {
            return Ok(Space::Free);
        }
        let full = if pool.free == 0 { LimitReached::Sockets } else { LimitReached::Share };
        self.find_idle(own).map(|(other, number)| Space::Of(other, number)).ok_or(full)
    }

    /// The newest idle socket of the party with the most of those that have at least two more than `own`. With a
    /// difference of one, two parties would only swap.
    fn find_idle(&self, own: usize) -> Option<(Name, u64)> {
        let mut larger: Vec<_> = self.of.iter().filter(|(_, sockets)| sockets.len() > own + 1).collect();
        larger.sort_by_key(|(_, sockets)| std::cmp::Reverse(sockets.len()));
        larger.into_iter().find_map(|(party, sockets)| {
            let newest = sockets.iter().rev().find(|(_, socket)| socket.idle);
            newest.map(|(number, _)| (party.clone(), *number))
        })
    }

    fn put(&mut self, party: &Name, evicted: CancellationToken) -> u64 {
        self.last += 1;
        self.count += 1;
        self.of.entry(party.clone()).or_default().insert(self.last, Socket { idle: false, evicted });
        self.last
    }

    /// Forgets a socket. An evicted one is forgotten already.
    fn remove(&mut self, party: &Name, number: u64) -> Option<Socket> {
        let sockets = self.of.get_mut(party)?;
        let socket = sockets.remove(&number)?;
        if sockets.is_empty() {
            self.of.remove(party);
        }
        self.count -= 1;
        Some(socket)
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        lock(&self.pool.sockets).remove(&self.party, self.number);
    }
}

impl ConnectionSlot {
    /// The client has authenticated.
    pub fn assign_to(&mut self, tenant: &Name, max: u32) -> Result<(), LimitReached> {
        if self.worker_slot.as_ref().is_none_or(|worker_slot| worker_slot.party != *tenant) {
            self.worker_slot = Some(self.limits.workers.take(tenant, max)?);
            self.idle = false;
        }
        self.arriving = None;
        if let Some((_, budget)) = self.unauthenticated.take() {
            budget.lift();
        }
        Ok(())
    }

    /// The worker has a task, or none.
    pub fn set_idle(&mut self, idle: bool) {
        if self.idle == idle {
            return;
        }
        self.idle = idle;
        let Some(PoolSlot { party, number, pool, .. }) = &self.worker_slot else { return };
        let mut sockets = lock(&pool.sockets);
        let socket = sockets.of.get_mut(party).and_then(|sockets| sockets.get_mut(number));
        socket.into_iter().for_each(|socket| socket.idle = idle);
    }

    /// Waits until the socket must make way: an unauthenticated one for a newer one, an idle one of a worker for another
    /// tenant.
    pub async fn evicted(&self) -> Evicted {
        match (&self.unauthenticated, &self.worker_slot) {
            (Some((socket, _)), _) => {
                socket.displaced().await;
                Evicted::Unauthenticated
            }
            (None, Some(worker_slot)) => {
                worker_slot.evicted.cancelled().await;
                Evicted::Idle
            }
            (None, None) => std::future::pending().await,
        }
    }
}

fn lock(sockets: &Mutex<Sockets>) -> MutexGuard<'_, Sockets> {
    sockets.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn limits() -> ConnectionLimits {
        ConnectionLimits::new(&WorkersConfig {
            sockets_max: 6,
            sockets_per_tenant_max: 2,
            unauthenticated_max: 2,
            unauthenticated_per_address_max: 2,
            require_certificate: false,
        })
    }

    fn arrival(shown: Option<Shown>) -> Arrival {
        Arrival { address: IpAddr::from([192, 0, 2, 1]), budget: ReadBudget::default(), shown }
    }

    fn worker(tenant: &'static str) -> Arrival {
        arrival(Some(Shown { role: Role::Worker, tenant: Some(Name::fixed(tenant)) }))
    }

    /// A worker with a token and a handshake.
    fn connected(limits: &ConnectionLimits, tenant: &'static str) -> ConnectionSlot {
        let mut slot = limits.enter(&worker(tenant), 2).unwrap();
        slot.assign_to(&Name::fixed(tenant), 2).unwrap();
        slot
    }

    #[test]
    fn defect_07_silent_sockets_take_nothing_from_workers() {
        let limits = limits();
        let silent: Vec<ConnectionSlot> =
            (0..100).map(|_| limits.enter(&arrival(None), 2).unwrap()).collect();
        assert_eq!(limits.unauthenticated.count(), 2, "the older ones were evicted");
        let viewer = arrival(Some(Shown { role: Role::Viewer, tenant: None }));
        let viewer_slot = limits.enter(&viewer, 2).unwrap();
        assert!(
            !viewer.budget.take(UNAUTHENTICATED_BYTES_MAX + 1),
            "a token that may not run jobs opens no socket"
        );
        let mut slots: Vec<ConnectionSlot> = Vec::new();
        for tenant in ["a", "b", "a"] {
            slots.push(connected(&limits, tenant));
        }
        assert!(
            matches!(limits.enter(&worker("a"), 2), Err(LimitReached::Tenant)),
            "a tenant gets only its share"
        );
        // A client that authenticates later counts from then on.
        let late = arrival(None);
        let mut slot = limits.enter(&late, 2).unwrap();
        assert!(matches!(slot.assign_to(&Name::fixed("a"), 2), Err(LimitReached::Tenant)));
        assert_eq!(slot.assign_to(&Name::fixed("b"), 2), Ok(()));
        assert!(late.budget.take(1 << 30), "it may send any number of bytes now");
        slots.push(connected(&limits, "c"));
        assert!(
            matches!(limits.enter(&worker("c"), 2), Err(LimitReached::Share)),
            "the last one is for another tenant, and no tenant has two more"
        );
        slots.push(connected(&limits, "d"));
        assert!(matches!(limits.enter(&worker("e"), 2), Err(LimitReached::Sockets)), "the limit is reached");
        drop((slots, slot, silent, viewer_slot));
        assert!(lock(&limits.workers.sockets).of.is_empty() && lock(&limits.arriving.sockets).of.is_empty());
        assert_eq!((limits.unauthenticated.count(), lock(&limits.workers.sockets).count), (0, 0));
    }

    /// Every socket that a tenant gets, with workers that have a task or none.
    fn greedy(limits: &ConnectionLimits, tenant: &'static str, idle: bool) -> Vec<ConnectionSlot> {
        let mut slots = Vec::new();
        while let Ok(mut slot) = limits.enter(&worker(tenant), 100) {
            slot.assign_to(&Name::fixed(tenant), 100).unwrap();
            slot.set_idle(idle);
            slots.push(slot);
            assert!(slots.len() < 100, "it ends");
        }
        slots
    }

    fn open(slots: &[ConnectionSlot]) -> Vec<usize> {
        let evicted = |slot: &ConnectionSlot| slot.worker_slot.as_ref().unwrap().evicted.is_cancelled();
        slots.iter().enumerate().filter(|(_, slot)| !evicted(slot)).map(|(at, _)| at).collect()
    }

    /// Workers with tasks keep their sockets; another tenant finds the reserve.
    #[test]
    fn defect_11_busy_workers_leave_the_reserve_to_other_tenants() {
        let limits = limits();
        let (first, second) = (greedy(&limits, "a", false), greedy(&limits, "b", false));
        assert_eq!([open(&first).len(), open(&second).len()], [5, 1]);
        assert!(matches!(limits.enter(&worker("a"), 100), Err(LimitReached::Sockets)));
        assert!(matches!(limits.enter(&worker("c"), 100), Err(LimitReached::Sockets)));
    }

    /// A tenant alone has all sockets but the reserve. Of idle workers, others get an equal part, the newest first.
    #[test]
    fn defect_11_idle_workers_make_way_until_all_tenants_have_equally_many() {
        let limits = limits();
        let mut first = greedy(&limits, "a", true);
        assert_eq!(first.len(), 5);
        first[4].set_idle(false);
        let second = greedy(&limits, "b", true);
        assert_eq!((open(&first), open(&second)), (vec![0, 1, 4], vec![0, 1, 2]));
        let third = greedy(&limits, "c", true);
        assert_eq!([open(&first).len(), open(&second).len(), open(&third).len()], [2, 2, 2]);
        assert!(open(&first).contains(&4), "a worker with a task keeps its socket");
        drop((first, second, third));
        assert_eq!(lock(&limits.workers.sockets).count, 0);
        assert!(lock(&limits.workers.sockets).of.is_empty());
    }

    /// Silent sockets with a token take nothing from workers, of their own tenant or of another one.
    #[test]
    fn defect_11_silent_sockets_with_a_token_are_counted_apart() {
        let limits = limits();
        let mut silent = Vec::new();
        while let Ok(slot) = limits.enter(&worker("a"), 100) {
            silent.push(slot);
        }
        assert_eq!(silent.len(), 5);
        assert_eq!(lock(&limits.workers.sockets).count, 0);
        let late = arrival(None);
        let mut slot = limits.enter(&late, 100).unwrap();
        assert_eq!(slot.assign_to(&Name::fixed("a"), 100), Ok(()));
        let _other = connected(&limits, "b");
    }
}
