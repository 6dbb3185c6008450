//! Turns to resolve a name: only so many at once, shared by tenants as [`laneway_core::share`] describes.
//!
//! A turn may be held for long, because the system decides how long it looks for a name. Slow names of one tenant leave
//! turns for others. While a tenant that has fewer waits, a tenant that has more gets none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::Name;
use laneway_core::share::Pool;
use tokio::sync::Notify;

/// The turns.
pub(super) struct Turns {
    max: u32,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    held: u32,
    tenants: HashMap<Name, Counts>,
}

/// What one tenant has.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    held: u32,
    waiting: u32,
}

/// A turn; returned when dropped.
pub(super) struct Turn {
    turns: Arc<Turns>,
    tenant: Name,
}

/// A caller that waits for a turn. It leaves the queue when dropped.
struct Wait<'a> {
    turns: &'a Turns,
    tenant: &'a Name,
}

impl Turns {
    pub(super) fn new(max: u32) -> Turns {
        Turns { max, state: Mutex::default(), freed: Notify::new() }
    }

    /// Waits for a turn of a tenant.
    pub(super) async fn take(self: Arc<Self>, tenant: Name) -> Turn {
        let _wait = Wait::new(&self, &tenant);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Listen before the check: a turn that is returned between the two must not be missed.
            freed.as_mut().enable();
            if self.state().take(self.max, &tenant) {
                break;
            }
            freed.await;
        }
        Turn { turns: Arc::clone(&self), tenant: tenant.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what a tenant has, and lets others look again.
    fn change(&self, tenant: &Name, change: impl FnOnce(&mut u32, &mut Counts)) {
        let mut state = self.state();
        let State { held, tenants } = &mut *state;
        let counts = tenants.entry(tenant.clone()).or_default();
        change(held, counts);
        if *counts == Counts::default() {
            tenants.remove(tenant);
        }
        drop(state);
        self.freed.notify_waiters();
    }
}

impl State {
    /// Takes a turn for a tenant. False: it has to wait.
    fn take(&mut self, max: u32, tenant: &Name) -> bool {
        let own = self.tenants.get(tenant).map_or(0, |counts| counts.held);
        let contended = self.tenants.values().any(|other| other.waiting > 0 && other.held < own);
        if Pool::new(max, self.held).left_to(own, contended) == 0 {
            return false;
        }
        self.held += 1;
        self.tenants.entry(tenant.clone()).or_default().held += 1;
        true
    }
}

impl<'a> Wait<'a> {
    fn new(turns: &'a Turns, tenant: &'a Name) -> Wait<'a> {
        turns.state().tenants.entry(tenant.clone()).or_default().waiting += 1;
        Wait { turns, tenant }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.turns.change(self.tenant, |_, counts| counts.waiting -= 1);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.change(&self.tenant, |held, counts| {
            *held -= 1;
            counts.held -= 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn defect_11_turns_come_back_to_the_tenant_with_the_fewest() {
        let turns = Arc::new(Turns::new(16));
        let take = |tenant: &'static str| Arc::clone(&turns).take(Name::fixed(tenant));
        let mut of_a: Vec<Turn> = std::iter::from_fn(|| take("a").now_or_never()).collect();
        assert_eq!(of_a.len(), 14, "a tenant alone has all but the reserve");
        let of_b: Vec<Turn> = std::iter::from_fn(|| take("b").now_or_never()).collect();
        assert_eq!(of_b.len(), 1, "another one finds some at once");
        let (more_of_a, more_of_b) = (tokio::spawn(take("a")), tokio::spawn(take("b")));
        tokio::task::yield_now().await;
        of_a.truncate(12);
        let more_of_b = more_of_b.await.unwrap();
        assert!(!more_of_a.is_finished(), "the tenant with more asked first and waits");
        drop((of_b, more_of_b));
        drop((more_of_a.await.unwrap(), of_a));
        let state = turns.state();
        assert!(state.held == 0 && state.tenants.is_empty());
    }
}
