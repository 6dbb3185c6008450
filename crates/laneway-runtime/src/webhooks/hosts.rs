//! The order of requests between hosts: the tenant with the fewest requests in flight first, of its hosts one after the
//! other, with a limit on the requests to one host and on the share of one tenant.
//!
//! A host that does not answer delays only its own deliveries, and a tenant whose hosts do not answer only its own.

use std::collections::{BTreeMap, VecDeque};

use laneway_core::Name;
use laneway_core::share::Pool;

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
        let (at, open_of_tenant) = self.next_key(per_host_max)?;
        if Pool::new(open_max as u64, self.open as u64).left_to(open_of_tenant as u64, false) == 0 {
            return None;
        }
        // The keys before it keep their places: each of them goes first when it may.
        let key = self.order.remove(at)?;
        let waiting = self.waiting_in.get_mut(&key)?;
        let delivery = waiting.pop_front()?;
        match waiting.is_empty() {
            true => drop(self.waiting_in.remove(&key)),
            false => self.order.push_back(key.clone()),
        }
        (self.open, self.waiting) = (self.open + 1, self.waiting - 1);
        *self.open_of_tenant.entry(key.0.clone()).or_default() += 1;
        *self.open_of_host.entry(key.1.clone()).or_default() += 1;
        Some((key, delivery))
    }

    /// The position of the first key whose host may be called, of the tenant with the fewest requests in flight, and how many
    /// these are.
    fn next_key(&self, per_host_max: usize) -> Option<(usize, usize)> {
        let mut next = None;
        for (at, (tenant, host)) in self.order.iter().enumerate() {
            if self.open_of_host.get(host).is_some_and(|open| *open >= per_host_max) {
                continue;
            }
            let open = self.open_of_tenant.get(tenant).copied().unwrap_or(0);
            if next.is_none_or(|(_, fewest)| open < fewest) {
                next = Some((at, open));
            }
            if open == 0 {
                break;
            }
        }
        next
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
        for host in ["s1", "s2", "s3", "s4", "s5"] {
            (0..8).for_each(|n| hosts.add(line("slow", host), n));
        }
        assert_eq!(sent(&mut hosts, 16, 4).len(), 14, "one tenant alone has all calls but the reserve");
        (0..8).for_each(|n| hosts.add(line("other", "b"), n));
        assert_eq!(sent(&mut hosts, 16, 8), ["other/b0"], "another one is sent at once");
        hosts.add(line("third", "c"), 1);
        assert_eq!(sent(&mut hosts, 16, 8), ["third/c1"]);
        // Calls that end go to the tenant with the fewest, until both have equally many and the reserve is free.
        let mut next = Vec::new();
        for host in ["s1", "s2", "s3", "s4", "s1", "s2", "s3"] {
            hosts.ended(&line("slow", host));
            next.extend(sent(&mut hosts, 16, 8));
        }
        assert_eq!(next, ["other/b1", "other/b2", "other/b3", "other/b4", "other/b5"]);
    }

    /// However many hosts a tenant calls, a tenant with fewer calls in flight is served before it.
    #[test]
    fn defect_11_the_tenant_with_the_fewest_calls_goes_first() {
        let mut hosts = Hosts::new();
        (0..10).for_each(|n| hosts.add(line("many", &format!("h{n}")), 0));
        assert_eq!(sent(&mut hosts, 8, 4).len(), 7);
        hosts.add(line("few", "b"), 0);
        hosts.add(line("few", "b"), 1);
        assert_eq!(sent(&mut hosts, 8, 4), ["few/b0"]);
        hosts.ended(&line("many", "h0"));
        hosts.ended(&line("many", "h1"));
        assert_eq!(sent(&mut hosts, 8, 4), ["few/b1"]);
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
