//! Whose turn it is among the hosts that wait for news: one after the other, and none with too many calls at once.
//!
//! A host that does not answer holds up its own news only.

use std::collections::{BTreeMap, VecDeque};

/// News that waits, by host.
pub(super) struct Hosts<T> {
    by_host: BTreeMap<Box<str>, Host<T>>,
    /// Hosts with news, in the order of their turns.
    turns: VecDeque<Box<str>>,
    waiting: usize,
    open: usize,
}

struct Host<T> {
    waiting: VecDeque<T>,
    open: usize,
}

impl<T> Hosts<T> {
    pub(super) fn new() -> Hosts<T> {
        Hosts { by_host: BTreeMap::new(), turns: VecDeque::new(), waiting: 0, open: 0 }
    }

    /// News for a host.
    pub(super) fn add(&mut self, host: &str, news: T) {
        self.waiting += 1;
        let entry = self.by_host.entry(host.into()).or_insert(Host { waiting: VecDeque::new(), open: 0 });
        if entry.waiting.is_empty() {
            self.turns.push_back(host.into());
        }
        entry.waiting.push_back(news);
    }

    /// What is sent next, if a call more is allowed; it counts as a call from here on.
    pub(super) fn next(&mut self, open_max: usize, per_host_max: usize) -> Option<(Box<str>, T)> {
        if self.open >= open_max {
            return None;
        }
        for _ in 0..self.turns.len() {
            let host = self.turns.pop_front()?;
            let entry = self.by_host.get_mut(&host)?;
            if entry.open >= per_host_max {
                self.turns.push_back(host);
                continue;
            }
            let news = entry.waiting.pop_front()?;
            entry.open += 1;
            (self.open, self.waiting) = (self.open + 1, self.waiting - 1);
            if !entry.waiting.is_empty() {
                self.turns.push_back(host.clone());
            }
            return Some((host, news));
        }
        None
    }

    /// A call to the host has ended.
    pub(super) fn ended(&mut self, host: &str) {
        self.open -= 1;
        if let Some(entry) = self.by_host.get_mut(host) {
            entry.open -= 1;
            if entry.open == 0 && entry.waiting.is_empty() {
                self.by_host.remove(host);
            }
        }
    }

    /// How much waits.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_take_turns_and_a_slow_one_holds_up_nobody_else() {
        let mut hosts = Hosts::new();
        (0..6).for_each(|n| hosts.add("slow", n));
        hosts.add("b", 10);
        hosts.add("c", 20);
        let sent = |hosts: &mut Hosts<i32>| hosts.next(5, 2).map(|(host, news)| format!("{host}{news}"));
        let first: Vec<String> = std::iter::from_fn(|| sent(&mut hosts)).collect();
        assert_eq!(first, ["slow0", "b10", "c20", "slow1"]);
        hosts.ended("b");
        hosts.add("b", 11);
        assert_eq!(sent(&mut hosts).as_deref(), Some("b11"));
        assert_eq!(sent(&mut hosts), None, "the slow one has its two calls");
        hosts.ended("slow");
        assert_eq!(sent(&mut hosts).as_deref(), Some("slow2"));
        assert_eq!(sent(&mut hosts), None, "five are under way");
        assert_eq!(hosts.waiting(), 3);
    }

    #[test]
    fn a_host_without_news_is_forgotten() {
        let mut hosts = Hosts::new();
        hosts.add("a", ());
        assert!(hosts.next(1, 1).is_some());
        hosts.ended("a");
        assert!(hosts.by_host.is_empty() && hosts.turns.is_empty());
    }
}
