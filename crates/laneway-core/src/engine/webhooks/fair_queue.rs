//! The fair order of deliveries: each tenant and host has a queue of its own, and queues are served in rotation.
//!
//! Each queue has only so many deliveries under way. A receiver that does not answer fills its own queue and delays no
//! delivery to other hosts. Nor do many such receivers of one tenant: the tenant with the fewest under way goes first, and
//! every tenant leaves the reserve of [`crate::share`] to others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::share::Pool;
use crate::{DeliveryRow, Mono, Name, Seq};

/// Names a queue: a tenant, and a host that it calls.
pub(super) type QueueKey = (Name, Arc<str>);

/// Every queue with a delivery that waits or is under way.
#[derive(Default)]
pub(super) struct FairQueue {
    queues: BTreeMap<QueueKey, HostQueue>,
    /// Queues below their limit whose first delivery waits for its time, by that time.
    later: BTreeSet<(Mono, QueueKey)>,
    /// Every tenant that has a queue.
    tenants: BTreeMap<Name, Tenant>,
    /// Tenants with a ready queue: the one with the fewest under way first, then the least recently served.
    order: BTreeSet<(Standing, Name)>,
    /// Deliveries handed out so far; dates when a queue was served.
    served: u64,
    /// How many of one queue may be under way.
    open_max: u32,
}

/// The queues of one tenant, together.
#[derive(Default)]
struct Tenant {
    /// How many deliveries are under way.
    open: u32,
    /// How many queues there are.
    queues: usize,
    /// Queues below their limit whose first delivery can be handed out, the least recently served first.
    ready: BTreeSet<(u64, Arc<str>)>,
    /// Its entry in the order of tenants.
    standing: Option<Standing>,
}

/// Deliveries under way, and when the first ready queue was last served.
type Standing = (u32, u64);

/// The deliveries of one tenant to one host.
#[derive(Default)]
struct HostQueue {
    /// Deliveries that are not under way, by when they are due.
    due: BTreeSet<(Mono, Seq)>,
    /// How many are under way.
    open: u32,
    /// When it was last served.
    served: u64,
    position: Option<Position>,
}

/// Where a queue is listed. One without a waiting delivery, or at its limit, is listed nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Later(Mono),
    Ready(u64),
}

/// The queue of a delivery.
pub(super) fn queue_of(row: &DeliveryRow) -> QueueKey {
    (row.tenant.clone(), row.host.clone())
}

impl FairQueue {
    /// Adds a delivery that waits until `due`.
    pub(super) fn wait(&mut self, key: &QueueKey, due: Mono, seq: Seq) {
        self.change(key, |queue| {
            queue.due.insert((due, seq));
        });
    }

    /// Removes a delivery that waits.
    pub(super) fn leave(&mut self, key: &QueueKey, due: Mono, seq: Seq) {
        self.change(key, |queue| {
            queue.due.remove(&(due, seq));
        });
    }

    /// Counts a delivery under way that was handed out before a restart.
    pub(super) fn opened(&mut self, key: &QueueKey) {
        self.change(key, |queue| queue.open += 1);
    }

    /// A delivery is no longer under way.
    pub(super) fn closed(&mut self, key: &QueueKey) {
        self.change(key, |queue| queue.open -= 1);
    }

    /// Hands out the first delivery of the next ready queue; it is under way from here on. `pool`: how many may be.
    pub(super) fn next(&mut self, now: Mono, pool: Pool) -> Option<Seq> {
        while let Some((at, key)) = self.later.first().filter(|(at, _)| *at <= now).cloned() {
            self.later.remove(&(at, key.clone()));
            let queue = self.queues.get_mut(&key).expect("a listed queue exists");
            queue.position = Some(Position::Ready(queue.served));
            let served = queue.served;
            self.change_tenant(&key.0, |tenant| {
                tenant.ready.insert((served, key.1.clone()));
            });
        }
        let key = self.next_queue(pool)?;
        self.served += 1;
        let served = self.served;
        let mut taken = None;
        self.change(&key, |queue| {
            taken = queue.due.pop_first().map(|(_, seq)| seq);
            queue.open += 1;
            queue.served = served;
        });
        taken
    }

    /// When the next delivery is due, of the queues below their limit and of tenants that may have one more under way.
    pub(super) fn next_at(&self, pool: Pool) -> Option<Mono> {
        let first = |key: QueueKey| self.queues[&key].due.first().map(|(at, _)| *at);
        self.next_queue(pool).and_then(first).or(self.later.first().map(|(at, _)| *at))
    }

    /// The ready queue that is served next. The first tenant has the fewest under way: if its share is used, so are all
    /// others'.
    fn next_queue(&self, pool: Pool) -> Option<QueueKey> {
        let ((open, _), tenant) = self.order.first()?;
        let (_, host) = self.tenants[tenant].ready.first()?;
        (pool.left_to(*open, false) > 0).then(|| (tenant.clone(), host.clone()))
    }

    /// Sets how many of one queue may be under way at once.
    pub(super) fn limit(&mut self, open_max: u32) {
        if self.open_max == open_max {
            return;
        }
        self.open_max = open_max;
        let keys: Vec<QueueKey> = self.queues.keys().cloned().collect();
        keys.iter().for_each(|key| self.change(key, |_| {}));
    }

    /// Changes a queue and lists it where it now belongs.
    fn change(&mut self, key: &QueueKey, change: impl FnOnce(&mut HostQueue)) {
        let is_new = !self.queues.contains_key(key);
        let queue = self.queues.entry(key.clone()).or_default();
        let open_before = queue.open;
        change(queue);
        let position = queue.position_now(self.open_max);
        let before = std::mem::replace(&mut queue.position, position);
        let (idle, open) = (queue.due.is_empty() && queue.open == 0, queue.open);
        if let Some(Position::Later(at)) = before {
            self.later.remove(&(at, key.clone()));
        }
        if let Some(Position::Later(at)) = position {
            self.later.insert((at, key.clone()));
        }
        if idle {
            self.queues.remove(key);
        }
        let (tenant, host) = key;
        self.change_tenant(tenant, |tenant| {
            tenant.open = tenant.open + open - open_before;
            tenant.queues = tenant.queues + usize::from(is_new) - usize::from(idle);
            if let Some(Position::Ready(served)) = before {
                tenant.ready.remove(&(served, host.clone()));
            }
        });
    }

    /// Changes a tenant and lists it where it now belongs.
    fn change_tenant(&mut self, name: &Name, change: impl FnOnce(&mut Tenant)) {
        let tenant = self.tenants.entry(name.clone()).or_default();
        change(tenant);
        let standing = tenant.ready.first().map(|(served, _)| (tenant.open, *served));
        let before = std::mem::replace(&mut tenant.standing, standing);
        let idle = tenant.queues == 0;
        if before != standing {
            before.map(|standing| self.order.remove(&(standing, name.clone())));
            standing.map(|standing| self.order.insert((standing, name.clone())));
        }
        if idle {
            self.tenants.remove(name);
        }
    }

    /// True when this delivery waits in this queue.
    pub(super) fn holds(&self, key: &QueueKey, due: Mono, seq: Seq) -> bool {
        self.queues.get(key).is_some_and(|queue| queue.due.contains(&(due, seq)))
    }

    /// Checks that every queue is listed where it belongs; returns how many deliveries wait and how many are under way.
    pub(super) fn check(&self) -> Result<(usize, u32), String> {
        let mut listed = (0, 0);
        for (key, queue) in &self.queues {
            let agrees = match queue.position {
                None => queue.position_now(self.open_max).is_none(),
                Some(Position::Later(at)) => {
                    listed.0 += 1;
                    let first = queue.due.first().map(|(at, _)| *at);
                    queue.open < self.open_max && first == Some(at) && self.later.contains(&(at, key.clone()))
                }
                Some(Position::Ready(served)) => {
                    listed.1 += 1;
                    let may = queue.open < self.open_max && !queue.due.is_empty();
                    may && self.tenants[&key.0].ready.contains(&(served, key.1.clone()))
                }
            };
            if !agrees || (queue.due.is_empty() && queue.open == 0) {
                return Err(format!("the queue of {key:?} is listed as {:?}", queue.position));
            }
        }
        let ready = self.tenants.values().map(|tenant| tenant.ready.len()).sum();
        if listed != (self.later.len(), ready) {
            return Err(format!(
                "{listed:?} queues say that they are listed, {} and {ready} are",
                self.later.len()
            ));
        }
        self.check_tenants()?;
        let queues = self.queues.values();
        Ok(queues.fold((0, 0), |(due, open), queue| (due + queue.due.len(), open + queue.open)))
    }

    fn check_tenants(&self) -> Result<(), String> {
        let mut counted: BTreeMap<&Name, (usize, u32)> = BTreeMap::new();
        for ((tenant, _), queue) in &self.queues {
            let entry = counted.entry(tenant).or_default();
            *entry = (entry.0 + 1, entry.1 + queue.open);
        }
        let kept = self.tenants.iter().map(|(name, tenant)| (name, (tenant.queues, tenant.open))).collect();
        if counted != kept {
            return Err(format!("tenants have queues and open deliveries {kept:?}, counted {counted:?}"));
        }
        let in_place = |(name, tenant): (&Name, &Tenant)| {
            let first = tenant.ready.first().map(|(served, _)| (tenant.open, *served));
            tenant.standing == first && first.is_none_or(|first| self.order.contains(&(first, name.clone())))
        };
        let in_order = self.tenants.values().filter(|tenant| tenant.standing.is_some()).count();
        match self.tenants.iter().all(in_place) && in_order == self.order.len() {
            true => Ok(()),
            false => Err(format!("tenants are not listed as in {:?}", self.order)),
        }
    }
}

impl HostQueue {
    /// Where the queue is listed until [`FairQueue::next`] sees that its first delivery is due.
    fn position_now(&self, open_max: u32) -> Option<Position> {
        let (first, _) = self.due.first().filter(|_| self.open < open_max)?;
        Some(Position::Later(*first))
    }
}
