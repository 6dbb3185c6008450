//! Counts requests by token, or by address without one, for routes with a rate limit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use laneway_core::{Name, Span};

use crate::auth::network_of;

/// The number of parties that are counted separately. All further parties share one counter.
const PARTIES_MAX: usize = 4_096;

/// A party that is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// The owner of a token, from any address.
    Token(Name),
    /// Clients without a token at this address.
    Address(IpAddr),
    /// All parties beyond the limit.
    Rest,
}

/// The recent requests, by party.
#[derive(Default)]
pub struct RateLimit {
    by_party: Mutex<HashMap<Party, Count>>,
}

#[derive(Clone, Copy)]
struct Count {
    since: Instant,
    taken: u32,
}

impl RateLimit {
    /// Counts a request of `party`. False when there were `max` in this window already.
    pub fn take(&self, party: Party, max: u32, window: Span, now: Instant) -> bool {
        let window = Duration::from_millis(window.0);
        let mut counts = self.by_party.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = match party {
            Party::Address(address) => Party::Address(network_of(address)),
            other => other,
        };
        if counts.len() >= PARTIES_MAX && !counts.contains_key(&key) {
            counts.retain(|_, count| now.duration_since(count.since) < window);
            if counts.len() >= PARTIES_MAX {
                key = Party::Rest;
            }
        }
        let count = counts.entry(key).or_insert(Count { since: now, taken: 0 });
        if now.duration_since(count.since) >= window {
            *count = Count { since: now, taken: 0 };
        }
        count.taken = count.taken.saturating_add(1);
        count.taken <= max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_so_many_requests_in_each_window() {
        let (rates, start) = (RateLimit::default(), Instant::now());
        let one: IpAddr = "10.0.0.1".parse().unwrap();
        let take = |address, now| rates.take(Party::Address(address), 3, Span::secs(10), now);
        assert!((0..3).all(|_| take(one, start)));
        assert!(!take(one, start));
        assert!(take("10.0.0.2".parse().unwrap(), start), "another address has its own counter");
        assert!(rates.take(Party::Token(Name::fixed("t")), 3, Span::secs(10), start), "so does a token");
        assert!(take(one, start + Duration::from_secs(10)));
    }

    #[test]
    fn stays_bounded() {
        let (rates, start) = (RateLimit::default(), Instant::now());
        for n in 0..10_000u32 {
            rates.take(Party::Address(IpAddr::V4(n.into())), 3, Span::secs(10), start);
        }
        assert!(rates.by_party.lock().unwrap().len() <= PARTIES_MAX + 1);
        let rest = rates.take(Party::Address("99.99.99.99".parse().unwrap()), 3, Span::secs(10), start);
        assert!(!rest, "further parties share one counter");
    }
}
