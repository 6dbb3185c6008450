//! Whose turn it is among the hosts that wait for news: one after the other, none with too many calls at once, and no tenant
//! with more than its share of them.
//!
//! A host that does not answer holds up its own news only, and a tenant whose hosts do not answer only its own.

use std::collections::{BTreeMap, VecDeque};

use laneway_core::Name;
use laneway_core::share::may_take;

/// A tenant, and a host that it calls.
pub(super) type Line = (Name, Box<str>);

/// News that waits, by tenant and host.
pub(super) struct Hosts<T> {
    waiting_in: BTreeMap<Line, VecDeque<T>>,
    /// Lines with news, in the order of their turns.
    turns: VecDeque<Line>,
    waiting: usize,
    open: usize,
    /// Calls under way to each host, whosever they are.
    open_of_host: BTreeMap<Box<str>, usize>,
    /// Calls under way of each tenant.
    open_of_tenant: BTreeMap<Name, usize>,
}

impl<T> Hosts<T> {
    pub(super) fn new() -> Hosts<T> {
        Hosts {
            waiting_in: BTreeMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            open: 0,
            open_of_host: BTreeMap::new(),
            open_of_tenant: BTreeMap::new(),
        }
    }

    /// News for a host.
    pub(super) fn add(&mut self, line: Line, news: T) {
        self.waiting += 1;
        let waiting = self.waiting_in.entry(line.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(line);
        }
        waiting.push_back(news);
    }

    /// What is sent next, if a call more is allowed; it counts as a call from here on.
    pub(super) fn next(&mut self, open_max: usize, per_host_max: usize) -> Option<(Line, T)> {
        let free = open_max.saturating_sub(self.open);
        for _ in 0..self.turns.len() {
            let line = self.turns.pop_front()?;
            if !self.may_call(&line, free, per_host_max) {
                self.turns.push_back(line);
                continue;
            }
            let waiting = self.waiting_in.get_mut(&line)?;
            let news = waiting.pop_front()?;
            match waiting.is_empty() {
                true => drop(self.waiting_in.remove(&line)),
                false => self.turns.push_back(line.clone()),
            }
            (self.open, self.waiting) = (self.open + 1, self.waiting - 1);
            *self.open_of_tenant.entry(line.0.clone()).or_default() += 1;
            *self.open_of_host.entry(line.1.clone()).or_default() += 1;
            return Some((line, news));
        }
        None
    }

    fn may_call(&self, (tenant, host): &Line, free: usize, per_host_max: usize) -> bool {
        let of_host = self.open_of_host.get(host).copied().unwrap_or(0);
        let of_tenant = self.open_of_tenant.get(tenant).copied().unwrap_or(0);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        of_host < per_host_max && may_take(count(of_tenant), count(free))
    }

    /// A call of the line has ended.
    pub(super) fn ended(&mut self, (tenant, host): &Line) {
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

    /// How much waits.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(tenant: &'static str, host: &str) -> Line {
        (Name::fixed(tenant), host.into())
    }

    /// What is sent until no call more is allowed.
    fn sent(hosts: &mut Hosts<i32>, open_max: usize, per_host_max: usize) -> Vec<String> {
        std::iter::from_fn(|| hosts.next(open_max, per_host_max))
            .map(|((tenant, host), news)| format!("{tenant}/{host}{news}"))
            .collect()
    }

    #[test]
    fn hosts_take_turns_and_a_slow_one_holds_up_nobody_else() {
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
    fn a_host_without_news_is_forgotten() {
        let mut hosts = Hosts::new();
        hosts.add(line("t", "a"), 1);
        assert!(hosts.next(1, 1).is_some());
        hosts.ended(&line("t", "a"));
        assert!(hosts.waiting_in.is_empty() && hosts.turns.is_empty());
        assert!(hosts.open_of_host.is_empty() && hosts.open_of_tenant.is_empty());
    }
}
