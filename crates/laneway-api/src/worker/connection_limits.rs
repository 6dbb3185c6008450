//! Limits the sockets of workers: in total, for each tenant, and for unauthenticated clients.
//!
//! Tenants share them dynamically: a tenant gets another socket while it has fewer than are free. Sockets with a
//! token but without a handshake are counted apart, in the same way, so that silent sockets take nothing from
//! workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::share::may_take;
use laneway_core::{Name, Role};
use laneway_runtime::config::WorkersConfig;
use laneway_runtime::unauthenticated::{
    Arrival, ReadBudget, Shown, UNAUTHENTICATED_BYTES_MAX, UnauthenticatedSocket, UnauthenticatedSockets,
};

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
    counts: Arc<Mutex<PoolCounts>>,
}

#[derive(Default)]
struct PoolCounts {
    count: u32,
    /// By tenant. Server-wide tokens are a party of their own.
    of: BTreeMap<Name, u32>,
}

/// One socket of a pool. Dropping it releases it.
struct PoolSlot {
    party: Name,
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
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// The limit of all sockets.
    Sockets,
    /// The limit of the tenant.
    Tenant,
    /// The tenant's share: it has as many sockets as are free.
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
        let mut slot =
            ConnectionSlot { limits: self.clone(), unauthenticated: None, arriving: None, worker_slot: None };
        match &arrival.shown {
            Some(Shown { role: Role::Worker | Role::Admin, tenant }) => {
                if let Some(tenant) = tenant {
                    // Rejected now rather than after the handshake.
                    self.workers.may_take(tenant, max)?;
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
        Pool { max, counts: Arc::default() }
    }

    /// Checks whether a party may have one more, with its share and with the limit `most`.
    fn may_take(&self, party: &Name, most: u32) -> Result<(), LimitReached> {
        lock(&self.counts).may_take(self.max, party, most)
    }

    fn take(&self, party: &Name, most: u32) -> Result<PoolSlot, LimitReached> {
        let mut counts = lock(&self.counts);
        counts.may_take(self.max, party, most)?;
        counts.count += 1;
        *counts.of.entry(party.clone()).or_default() += 1;
        Ok(PoolSlot { party: party.clone(), pool: self.clone() })
    }
}

impl PoolCounts {
    fn may_take(&self, max: u32, party: &Name, most: u32) -> Result<(), LimitReached> {
        let (own, free) = (self.of.get(party).copied().unwrap_or(0), max.saturating_sub(self.count));
        match () {
            () if own >= most => Err(LimitReached::Tenant),
            () if free == 0 => Err(LimitReached::Sockets),
            () if !may_take(own, free) => Err(LimitReached::Share),
            () => Ok(()),
        }
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        let mut counts = lock(&self.pool.counts);
        counts.count -= 1;
        let own = counts.of.get_mut(&self.party).expect("a taken slot is counted");
        *own -= 1;
        if *own == 0 {
            counts.of.remove(&self.party);
        }
    }
}

impl ConnectionSlot {
    /// The client has authenticated.
    pub fn assign_to(&mut self, tenant: &Name, max: u32) -> Result<(), LimitReached> {
        if self.worker_slot.as_ref().is_none_or(|worker_slot| worker_slot.party != *tenant) {
            self.worker_slot = Some(self.limits.workers.take(tenant, max)?);
        }
        self.arriving = None;
        if let Some((_, budget)) = self.unauthenticated.take() {
            budget.lift();
        }
        Ok(())
    }

    /// Waits until a newer socket evicts this one, which happens only before the client has authenticated.
    pub async fn displaced(&self) {
        match &self.unauthenticated {
            Some((socket, _)) => socket.displaced().await,
            None => std::future::pending().await,
        }
    }
}

fn lock(counts: &Mutex<PoolCounts>) -> MutexGuard<'_, PoolCounts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
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
            "the last one is for another tenant"
        );
        slots.push(connected(&limits, "d"));
        assert!(matches!(limits.enter(&worker("e"), 2), Err(LimitReached::Sockets)), "the limit is reached");
        drop((slots, slot, silent, viewer_slot));
        assert!(lock(&limits.workers.counts).of.is_empty() && lock(&limits.arriving.counts).of.is_empty());
        assert_eq!((limits.unauthenticated.count(), lock(&limits.workers.counts).count), (0, 0));
    }

    /// One tenant takes half of the free sockets, and the next one half of the rest.
    #[test]
    fn defect_11_tenants_share_the_sockets_of_workers() {
        let limits = limits();
        let slots = |tenant: &'static str| {
            let mut slots = Vec::new();
            while let Ok(mut slot) = limits.enter(&worker(tenant), 100) {
                slot.assign_to(&Name::fixed(tenant), 100).unwrap();
                slots.push(slot);
            }
            slots
        };
        let (first, second, third) = (slots("a"), slots("b"), slots("c"));
        assert_eq!([first.len(), second.len(), third.len()], [3, 2, 1]);
        assert!(matches!(limits.enter(&worker("a"), 100), Err(LimitReached::Sockets)));
    }

    /// Silent sockets with a token take nothing from workers, of their own tenant or of another one.
    #[test]
    fn defect_11_silent_sockets_with_a_token_are_counted_apart() {
        let limits = limits();
        let mut silent = Vec::new();
        while let Ok(slot) = limits.enter(&worker("a"), 100) {
            silent.push(slot);
        }
        assert_eq!(silent.len(), 3);
        assert_eq!(lock(&limits.workers.counts).count, 0);
        let late = arrival(None);
        let mut slot = limits.enter(&late, 100).unwrap();
        assert_eq!(slot.assign_to(&Name::fixed("a"), 100), Ok(()));
        let _other = connected(&limits, "b");
    }
}
