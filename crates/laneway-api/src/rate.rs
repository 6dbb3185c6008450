//! Counts requests by token, or by address where there is none, for routes that allow only so many.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use laneway_core::{Name, Span};

use crate::auth::network_of;

/// Most parties that are remembered; beyond, all others are counted as one.
const PARTIES_MAX: usize = 4_096;

/// Who is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// The owner of a token, wherever it calls from.
    Token(Name),
    /// Whoever calls from this address without one.
    Address(IpAddr),
    /// All who are too many to be told apart.
    Rest,
}

/// Requests of late, by who sent them.
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
    /// Counts one more request of `party`. False: there were `max` in this window already.
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
    fn takes_so_many_in_a_window_and_again_in_the_next() {
        let (rates, start) = (RateLimit::default(), Instant::now());
        let one: IpAddr = "10.0.0.1".parse().unwrap();
        let take = |address, now| rates.take(Party::Address(address), 3, Span::secs(10), now);
        assert!((0..3).all(|_| take(one, start)));
        assert!(!take(one, start));
        assert!(take("10.0.0.2".parse().unwrap(), start), "another address has a count of its own");
        assert!(rates.take(Party::Token(Name::fixed("t")), 3, Span::secs(10), start), "so has a token");
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
        assert!(!rest, "the rest is counted as one");
    }
}
