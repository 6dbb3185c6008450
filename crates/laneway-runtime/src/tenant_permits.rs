//! Permits for work of which only a few pieces may be done at once, and of each tenant only one or a few. A tenant with many
//! waiting calls delays another tenant by no more than that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::Name;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A pool of permits. Clones share it.
#[derive(Clone)]
pub struct TenantPermits {
    all: Arc<Semaphore>,
    per_tenant: usize,
    tenants: Arc<Mutex<HashMap<Name, Queue>>>,
}

/// The calls of one tenant: those that wait, and those that have a permit.
struct Queue {
    permit: Arc<Semaphore>,
    calls: usize,
}

/// A permit; returned when dropped.
pub struct TenantPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    _call: Call,
}

/// One call of a tenant.
struct Call {
    tenant: Name,
    tenants: Arc<Mutex<HashMap<Name, Queue>>>,
}

impl TenantPermits {
    /// A pool of `max` permits, one for each tenant.
    pub fn new(max: usize) -> TenantPermits {
        TenantPermits::with_share(max, 1)
    }

    /// A pool of `max` permits, of which each tenant has at most `per_tenant`.
    pub fn with_share(max: usize, per_tenant: usize) -> TenantPermits {
        TenantPermits { all: Arc::new(Semaphore::new(max)), per_tenant, tenants: Arc::default() }
    }

    /// Waits for a permit. Callers without a tenant count as one more tenant.
    pub async fn take(&self, tenant: Option<&Name>) -> TenantPermit {
        let (own, call) = self.enqueue(tenant.cloned().unwrap_or_else(|| Name::fixed("*")));
        // A permit of the tenant first: calls of one tenant wait for one another before they wait for others.
        let own = own.acquire_owned().await.expect("the semaphore is never closed");
        let all = Arc::clone(&self.all).acquire_owned().await.expect("the semaphore is never closed");
        TenantPermit { _own: own, _all: all, _call: call }
    }

    fn enqueue(&self, tenant: Name) -> (Arc<Semaphore>, Call) {
        let mut tenants = lock(&self.tenants);
        let queue = tenants
            .entry(tenant.clone())
            .or_insert_with(|| Queue { permit: Arc::new(Semaphore::new(self.per_tenant)), calls: 0 });
        queue.calls += 1;
        (Arc::clone(&queue.permit), Call { tenant, tenants: Arc::clone(&self.tenants) })
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
        let permits = TenantPermits::new(2);
        let (a, b) = (Name::fixed("a"), Name::fixed("b"));
        let first = permits.take(Some(&a)).await;
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(permits.take(Some(&a)))).collect();
        for call in &mut waiting {
            assert!(call.as_mut().now_or_never().is_none(), "a tenant has one permit at a time");
        }
        let other = permits.take(Some(&b)).now_or_never();
        assert!(other.is_some(), "another tenant does not wait for the ten");
        drop((first, other));
        let mut served = 0;
        for call in waiting {
            drop(call.await);
            served += 1;
        }
        assert_eq!((served, lock(&permits.tenants).len()), (10, 0));
    }
}
