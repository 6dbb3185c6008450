//! Turns: work that only a few may do at once, and each tenant only once at a time, so that a tenant with many waiting
//! calls keeps no other tenant waiting longer than one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::Name;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns. Clones are the same turns.
#[derive(Clone)]
pub struct Turns {
    all: Arc<Semaphore>,
    tenants: Arc<Mutex<HashMap<Name, Queue>>>,
}

/// The calls of one tenant: those that wait, and the one whose turn it is.
struct Queue {
    turn: Arc<Semaphore>,
    calls: usize,
}

/// A turn; over when dropped.
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    _call: Call,
}

/// One call of a tenant.
struct Call {
    tenant: Name,
    tenants: Arc<Mutex<HashMap<Name, Queue>>>,
}

impl Turns {
    /// Turns for `max` at once.
    pub fn new(max: usize) -> Turns {
        Turns { all: Arc::new(Semaphore::new(max)), tenants: Arc::default() }
    }

    /// Waits for a turn. `tenant`: whose call it is; callers of no tenant are a party of their own.
    pub async fn take(&self, tenant: Option<&Name>) -> Turn {
        let (own, call) = self.enqueue(tenant.cloned().unwrap_or_else(|| Name::fixed("*")));
        // Its own turn first: a tenant's calls wait for one another before they wait for others.
        let own = own.acquire_owned().await.expect("turns are never closed");
        let all = Arc::clone(&self.all).acquire_owned().await.expect("turns are never closed");
        Turn { _own: own, _all: all, _call: call }
    }

    fn enqueue(&self, tenant: Name) -> (Arc<Semaphore>, Call) {
        let mut tenants = lock(&self.tenants);
        let queue = tenants
            .entry(tenant.clone())
            .or_insert_with(|| Queue { turn: Arc::new(Semaphore::new(1)), calls: 0 });
        queue.calls += 1;
        (Arc::clone(&queue.turn), Call { tenant, tenants: Arc::clone(&self.tenants) })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut tenants = lock(&self.tenants);
        if let Some(queue) = tenants.get_mut(&self.tenant) {
            queue.calls -= 1;
            if queue.calls == 0 {
                tenants.remove(&self.tenant);
            }
        }
    }
}

fn lock(tenants: &Mutex<HashMap<Name, Queue>>) -> MutexGuard<'_, HashMap<Name, Queue>> {
    tenants.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_tenant_waits_for_itself_before_it_waits_for_others() {
        let turns = Turns::new(2);
        let (a, b) = (Name::fixed("a"), Name::fixed("b"));
        let first = turns.take(Some(&a)).await;
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(turns.take(Some(&a)))).collect();
        for call in &mut waiting {
            assert!(call.as_mut().now_or_never().is_none(), "a tenant has one turn at a time");
        }
        let other = turns.take(Some(&b)).now_or_never();
        assert!(other.is_some(), "another tenant does not wait for the ten");
        drop((first, other));
        let mut served = 0;
        for call in waiting {
            drop(call.await);
            served += 1;
        }
        assert_eq!((served, lock(&turns.tenants).len()), (10, 0));
    }
}
