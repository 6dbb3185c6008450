//! Counts requests by address, for routes that allow only so many.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use laneway_core::Span;

use crate::auth::network_of;

/// Most addresses that are remembered; beyond, all others are counted as one.
const ADDRESSES_MAX: usize = 4_096;

/// Requests of late, by address.
#[derive(Default)]
pub struct RateLimit {
    by_address: Mutex<HashMap<IpAddr, Count>>,
}

#[derive(Clone, Copy)]
struct Count {
    since: Instant,
    taken: u32,
}

impl RateLimit {
    /// Counts one more request of `address`. False: there were `max` in this window already.
    pub fn take(&self, address: IpAddr, max: u32, window: Span, now: Instant) -> bool {
        let window = Duration::from_millis(window.0);
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = network_of(address);
        if counts.len() >= ADDRESSES_MAX && !counts.contains_key(&key) {
            counts.retain(|_, count| now.duration_since(count.since) < window);
            if counts.len() >= ADDRESSES_MAX {
                key = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
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
        let take = |address, now| rates.take(address, 3, Span::secs(10), now);
        assert!((0..3).all(|_| take(one, start)));
        assert!(!take(one, start));
        assert!(take("10.0.0.2".parse().unwrap(), start), "another address has a count of its own");
        assert!(take(one, start + Duration::from_secs(10)));
    }

    #[test]
    fn stays_bounded() {
        let (rates, start) = (RateLimit::default(), Instant::now());
        for n in 0..10_000u32 {
            rates.take(IpAddr::V4(n.into()), 3, Span::secs(10), start);
        }
        assert!(rates.by_address.lock().unwrap().len() <= ADDRESSES_MAX + 1);
        let rest = rates.take("99.99.99.99".parse().unwrap(), 3, Span::secs(10), start);
        assert!(!rest, "the rest is counted as one");
    }
}
