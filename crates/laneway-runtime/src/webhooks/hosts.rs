//! The order of requests between hosts: one host after the other, with a limit on the requests to one host and on the share of
//! one tenant.
//!
//! A host that does not answer delays only its own deliveries, and a tenant whose hosts do not answer only its own.

use std::collections::{BTreeMap, VecDeque};

use laneway_core::Name;
use laneway_core::share::may_take;

/// A tenant and one of its hosts.
pub(super) type HostKey = (Name, Box<str>);

/// Waiting deliveries, by tenant and host.
pub(super) struct Hosts<T> {
    waiting_in: BTreeMap<HostKey, VecDeque<T>>,
    /// The keys with waiting deliveries, in the order in which they are served.
    order: VecDeque<HostKey>,
    waiting: usize,
    open: usize,
    /// Requests in flight to each host, of all tenants.
    open_of_host: BTreeMap<Box<str>, usize>,
    /// Requests in flight of each tenant.
    open_of_tenant: BTreeMap<Name, usize>,
}

impl<T> Hosts<T> {
    pub(super) fn new() -> Hosts<T> {
        Hosts {
            waiting_in: BTreeMap::new(),
            order: VecDeque::new(),
            waiting: 0,
            open: 0,
            open_of_host: BTreeMap::new(),
            open_of_tenant: BTreeMap::new(),
        }
    }

    /// Adds a delivery.
    pub(super) fn add(&mut self, key: HostKey, delivery: T) {
        self.waiting += 1;
        let waiting = self.waiting_in.entry(key.clone()).or_default();
        if waiting.is_empty() {
            self.order.push_back(key);
        }
        waiting.push_back(delivery);
    }

    /// The next delivery, if one more request is allowed. It counts as in flight from now on.
    pub(super) fn next(&mut self, open_max: usize, per_host_max: usize) -> Option<(HostKey, T)> {
        let free = open_max.saturating_sub(self.open);
        for _ in 0..self.order.len() {
            let key = self.order.pop_front()?;
            if !self.may_call(&key, free, per_host_max) {
                self.order.push_back(key);
                continue;
            }
            let waiting = self.waiting_in.get_mut(&key)?;
            let delivery = waiting.pop_front()?;
            match waiting.is_empty() {
                true => drop(self.waiting_in.remove(&key)),
                false => self.order.push_back(key.clone()),
            }
            (self.open, self.waiting) = (self.open + 1, self.waiting - 1);
            *self.open_of_tenant.entry(key.0.clone()).or_default() += 1;
            *self.open_of_host.entry(key.1.clone()).or_default() += 1;
            return Some((key, delivery));
        }
        None
    }

    fn may_call(&self, (tenant, host): &HostKey, free: usize, per_host_max: usize) -> bool {
        let of_host = self.open_of_host.get(host).copied().unwrap_or(0);
        let of_tenant = self.open_of_tenant.get(tenant).copied().unwrap_or(0);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        of_host < per_host_max && may_take(count(of_tenant), count(free))
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, (tenant, host): &HostKey) {
        self.open -= 1;
        if let Some(open) = self.open_of_tenant.get_mut(tenant) {
            *open -= 1;
        }
        if let Some(open) = self.open_of_host.get_mut(host) {
            *open -= 1;
        }
        self.open_of_tenant.retain(|_, open| *open > 0);
        self.open_of_host.retain(|_, open| *open > 0);
    }

    /// The number of waiting deliveries.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(tenant: &'static str, host: &str) -> HostKey {
        (Name::fixed(tenant), host.into())
    }

    /// The deliveries that are sent until no further request is allowed.
    fn sent(hosts: &mut Hosts<i32>, open_max: usize, per_host_max: usize) -> Vec<String> {
        std::iter::from_fn(|| hosts.next(open_max, per_host_max))
            .map(|((tenant, host), delivery)| format!("{tenant}/{host}{delivery}"))
            .collect()
    }

    #[test]
    fn hosts_are_served_in_turn_and_a_slow_one_delays_no_other() {
        let mut hosts = Hosts::new();
        (0..6).for_each(|n| hosts.add(line("t", "slow"), n));
        hosts.add(line("t", "b"), 10);
        hosts.add(line("t", "c"), 20);
        assert_eq!(sent(&mut hosts, 10, 2), ["t/slow0", "t/b10", "t/c20", "t/slow1"]);
        hosts.ended(&line("t", "b"));
        hosts.add(line("t", "b"), 11);
        assert_eq!(sent(&mut hosts, 10, 2), ["t/b11"], "the slow one has its two calls");
        hosts.ended(&line("t", "slow"));
        assert_eq!(sent(&mut hosts, 10, 2), ["t/slow2"]);
        assert_eq!(hosts.waiting(), 3);
    }

    #[test]
    fn defect_11_slow_receivers_of_one_tenant_leave_calls_for_others() {
        let mut hosts = Hosts::new();
        for host in ["s1", "s2", "s3", "s4"] {
            (0..4).for_each(|n| hosts.add(line("slow", host), n));
        }
        assert_eq!(sent(&mut hosts, 16, 4).len(), 8, "one tenant alone has half of all calls");
        (0..4).for_each(|n| hosts.add(line("other", "b"), n));
        assert_eq!(sent(&mut hosts, 16, 4).len(), 4, "another one is sent at once");
        hosts.add(line("third", "c"), 1);
        assert_eq!(sent(&mut hosts, 16, 4), ["third/c1"]);
        hosts.ended(&line("slow", "s1"));
        assert!(sent(&mut hosts, 16, 4).is_empty(), "the slow one has more than is free");
    }

    #[test]
    fn a_host_without_deliveries_is_forgotten() {
        let mut hosts = Hosts::new();
        hosts.add(line("t", "a"), 1);
        assert!(hosts.next(1, 1).is_some());
        hosts.ended(&line("t", "a"));
        assert!(hosts.waiting_in.is_empty() && hosts.order.is_empty());
        assert!(hosts.open_of_host.is_empty() && hosts.open_of_tenant.is_empty());
    }
}
