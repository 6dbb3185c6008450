//! Whose news is handed out next: deliveries wait in lines, one for each tenant and host, and lines take turns.
//!
//! Each line has only so many under way. A receiver that does not answer fills its own line and keeps nobody else's news
//! from being handed out. Nor do many such receivers of one tenant: a tenant never has more under way than are still free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::share::may_take;
use crate::{DeliveryRow, Mono, Name, Seq};

/// Names a line: a tenant, and a host that it has called.
pub(in crate::engine) type QueueKey = (Name, Arc<str>);

/// Every line that something waits in or is under way of.
#[derive(Default)]
pub(in crate::engine) struct FairQueue {
    lines: BTreeMap<QueueKey, Line>,
    /// Queues with room whose first delivery is not due yet, by when it is.
    later: BTreeSet<(Mono, QueueKey)>,
    /// Every tenant that has a line.
    tenants: BTreeMap<Name, Tenant>,
    /// Tenants with a line whose first delivery is due: the one with the fewest under way first, then the least recently
    /// served.
    order: BTreeSet<(Standing, Name)>,
    /// Turns that were taken; dates whose was the last.
    served: u64,
    /// How many of one line may be under way.
    open_max: u32,
}

/// What the lines of one tenant have in common.
#[derive(Default)]
struct Tenant {
    /// How many are under way.
    open: u32,
    /// How many lines there are.
    lines: usize,
    /// Queues with room whose first delivery is due, least recently served first.
    turns: BTreeSet<(u64, Arc<str>)>,
    /// Where it stands in the order.
    filed: Option<Standing>,
}

/// Calls under way, and when the first line's turn last came.
type Standing = (u32, u64);

#[derive(Default)]
struct Line {
    /// Deliveries that are not under way, by when they are due.
    due: BTreeSet<(Mono, Seq)>,
    /// How many are under way.
    open: u32,
    /// When its turn last came.
    served: u64,
    filed: Option<Filed>,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filed {
    Later(Mono),
    FairKey(u64),
}

/// The line of a delivery.
pub(in crate::engine) fn queue_of(row: &DeliveryRow) -> QueueKey {
    (row.tenant.clone(), row.host.clone())
}

impl FairQueue {
    /// Something waits, from now on or from some time.
    pub(in crate::engine) fn wait(&mut self, key: &QueueKey, due: Mono, seq: Seq) {
        self.change(key, |line| {
            line.due.insert((due, seq));
        });
    }

    /// Something waits no longer, and is not under way.
    pub(in crate::engine) fn leave(&mut self, key: &QueueKey, due: Mono, seq: Seq) {
        self.change(key, |line| {
            line.due.remove(&(due, seq));
        });
    }

    /// Something is under way that was not handed out here.
    pub(in crate::engine) fn opened(&mut self, key: &QueueKey) {
        self.change(key, |line| line.open += 1);
    }

    /// Something is under way no longer.
    pub(in crate::engine) fn closed(&mut self, key: &QueueKey) {
        self.change(key, |line| line.open -= 1);
    }

    /// Hands out what is due in the line whose turn it is; it is under way from here on. `free`: how many more may be.
    pub(in crate::engine) fn next(&mut self, now: Mono, free: u32) -> Option<Seq> {
        while let Some((at, key)) = self.later.first().filter(|(at, _)| *at <= now).cloned() {
            self.later.remove(&(at, key.clone()));
            let line = self.lines.get_mut(&key).expect("a line that is filed is there");
            line.filed = Some(Filed::FairKey(line.served));
            let served = line.served;
            self.change_tenant(&key.0, |tenant| {
                tenant.turns.insert((served, key.1.clone()));
            });
        }
        let key = self.next_line(free)?;
        self.served += 1;
        let served = self.served;
        let mut taken = None;
        self.change(&key, |line| {
            taken = line.due.pop_first().map(|(_, seq)| seq);
            line.open += 1;
            line.served = served;
        });
        taken
    }

    /// When something is due next in a line that has room, of a tenant that has a share left of what is free.
    pub(in crate::engine) fn next_at(&self, free: u32) -> Option<Mono> {
        let first = |key: QueueKey| self.lines[&key].due.first().map(|(at, _)| *at);
        self.next_line(free).and_then(first).or(self.later.first().map(|(at, _)| *at))
    }

    /// The line whose turn it is. The first tenant has the fewest under way: if its share is used, so are all others'.
    fn next_line(&self, free: u32) -> Option<QueueKey> {
        let ((open, _), tenant) = self.order.first()?;
        let (_, host) = self.tenants[tenant].turns.first()?;
        may_take(*open, free).then(|| (tenant.clone(), host.clone()))
    }

    /// Lets so many of one line be under way at once.
    pub(in crate::engine) fn limit(&mut self, open_max: u32) {
        if self.open_max == open_max {
            return;
        }
        self.open_max = open_max;
        let keys: Vec<QueueKey> = self.lines.keys().cloned().collect();
        keys.iter().for_each(|key| self.change(key, |_| {}));
    }

    /// Changes a line and files it where it now belongs.
    fn change(&mut self, key: &QueueKey, change: impl FnOnce(&mut Line)) {
        let is_new = !self.lines.contains_key(key);
        let line = self.lines.entry(key.clone()).or_default();
        let open_before = line.open;
        change(line);
        let filed = line.executor(self.open_max);
        let before = std::mem::replace(&mut line.filed, filed);
        let (idle, open) = (line.due.is_empty() && line.open == 0, line.open);
        if let Some(Filed::Later(at)) = before {
            self.later.remove(&(at, key.clone()));
        }
        if let Some(Filed::Later(at)) = filed {
            self.later.insert((at, key.clone()));
        }
        if idle {
            self.lines.remove(key);
        }
        let (tenant, host) = key;
        self.change_tenant(tenant, |tenant| {
            tenant.open = tenant.open + open - open_before;
            tenant.lines = tenant.lines + usize::from(is_new) - usize::from(idle);
            if let Some(Filed::FairKey(served)) = before {
                tenant.turns.remove(&(served, host.clone()));
            }
        });
    }

    /// Changes a tenant and files it where it now belongs.
    fn change_tenant(&mut self, name: &Name, change: impl FnOnce(&mut Tenant)) {
        let tenant = self.tenants.entry(name.clone()).or_default();
        change(tenant);
        let filed = tenant.turns.first().map(|(served, _)| (tenant.open, *served));
        let before = std::mem::replace(&mut tenant.filed, filed);
        let idle = tenant.lines == 0;
        if before != filed {
            before.map(|standing| self.order.remove(&(standing, name.clone())));
            filed.map(|standing| self.order.insert((standing, name.clone())));
        }
        if idle {
            self.tenants.remove(name);
        }
    }

    /// Does this delivery wait in this line?
    pub(in crate::engine) fn holds(&self, key: &QueueKey, due: Mono, seq: Seq) -> bool {
        self.lines.get(key).is_some_and(|line| line.due.contains(&(due, seq)))
    }

    /// Checks that every line stands where it belongs; gives how many wait and how many are under way.
    pub(in crate::engine) fn check(&self) -> Result<(usize, u32), String> {
        let mut filed = (0, 0);
        for (key, line) in &self.lines {
            let stands = match line.filed {
                None => line.executor(self.open_max).is_none(),
                Some(Filed::Later(at)) => {
                    filed.0 += 1;
                    let first = line.due.first().map(|(at, _)| *at);
                    line.open < self.open_max && first == Some(at) && self.later.contains(&(at, key.clone()))
                }
                Some(Filed::FairKey(served)) => {
                    filed.1 += 1;
                    let may = line.open < self.open_max && !line.due.is_empty();
                    may && self.tenants[&key.0].turns.contains(&(served, key.1.clone()))
                }
            };
            if !stands || (line.due.is_empty() && line.open == 0) {
                return Err(format!("the line of {key:?} stands as {:?}", line.filed));
            }
        }
        let turns = self.tenants.values().map(|tenant| tenant.turns.len()).sum();
        if filed != (self.later.len(), turns) {
            return Err(format!("{filed:?} lines are filed, {} and {turns}", self.later.len()));
        }
        self.check_tenants()?;
        let lines = self.lines.values();
        Ok(lines.fold((0, 0), |(due, open), line| (due + line.due.len(), open + line.open)))
    }
}

impl FairQueue {
    fn check_tenants(&self) -> Result<(), String> {
        let mut counted: BTreeMap<&Name, (usize, u32)> = BTreeMap::new();
        for ((tenant, _), line) in &self.lines {
            let entry = counted.entry(tenant).or_default();
            *entry = (entry.0 + 1, entry.1 + line.open);
        }
        let kept = self.tenants.iter().map(|(name, tenant)| (name, (tenant.lines, tenant.open))).collect();
        if counted != kept {
            return Err(format!("tenants have lines and calls {kept:?}, counted {counted:?}"));
        }
        let filed = |(name, tenant): (&Name, &Tenant)| {
            let first = tenant.turns.first().map(|(served, _)| (tenant.open, *served));
            tenant.filed == first && first.is_none_or(|first| self.order.contains(&(first, name.clone())))
        };
        let in_order = self.tenants.values().filter(|tenant| tenant.filed.is_some()).count();
        match self.tenants.iter().all(filed) && in_order == self.order.len() {
            true => Ok(()),
            false => Err(format!("tenants do not stand in the order of {:?}", self.order)),
        }
    }
}

impl Line {
    /// Where the line belongs until the clock is looked at: [`FairQueue::next`] gives it a turn when its first is due.
    fn executor(&self, open_max: u32) -> Option<Filed> {
        let (first, _) = self.due.first().filter(|_| self.open < open_max)?;
        Some(Filed::Later(*first))
    }
}
