//! Counts bad tokens by address, so that guessing is slow and visible.
//!
//! A valid token is never rejected here, so a flood from a shared address locks no other client out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of bad tokens in one window before the response changes.
const BAD_MAX: u32 = 10;
/// The length of the window.
const WINDOW: Duration = Duration::from_secs(60);
/// The number of addresses that are counted separately. All further addresses share one counter.
const ADDRESSES_MAX: usize = 4_096;

/// The recent bad tokens, by address.
#[derive(Default)]
pub struct BadTokens {
    by_address: Mutex<HashMap<IpAddr, Count>>,
}

#[derive(Clone, Copy)]
struct Count {
    since: Instant,
    bad: u32,
}

impl BadTokens {
    /// Counts a bad token from `address`. `Some`: there were too many; the time until they are forgotten.
    pub fn count(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = network_of(address);
        if counts.len() >= ADDRESSES_MAX && !counts.contains_key(&key) {
            counts.retain(|_, count| now.duration_since(count.since) < WINDOW);
            if counts.len() >= ADDRESSES_MAX {
                key = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            }
        }
        let count = counts.entry(key).or_insert(Count { since: now, bad: 0 });
        if now.duration_since(count.since) >= WINDOW {
            *count = Count { since: now, bad: 0 };
        }
        count.bad = count.bad.saturating_add(1);
        (count.bad > BAD_MAX).then(|| WINDOW.saturating_sub(now.duration_since(count.since)))
    }
}

/// The network of an address. One customer of an IPv6 provider has at least 2⁶⁴ addresses.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slows_down_after_ten_in_a_minute() {
        let (bad, start) = (BadTokens::default(), Instant::now());
        let one: IpAddr = "10.0.0.1".parse().unwrap();
        for _ in 0..10 {
            assert_eq!(bad.count(one, start), None);
        }
        assert_eq!(bad.count(one, start), Some(WINDOW));
        assert_eq!(bad.count("10.0.0.2".parse().unwrap(), start), None);
        assert_eq!(bad.count(one, start + WINDOW), None);
    }

    #[test]
    fn counts_a_network_of_ipv6_as_one() {
        let (bad, start) = (BadTokens::default(), Instant::now());
        for host in 0..10u32 {
            assert_eq!(bad.count(format!("2001:db8::{host:x}").parse().unwrap(), start), None);
        }
        assert!(bad.count("2001:db8::ffff".parse().unwrap(), start).is_some());
        assert!(bad.count("2001:db8:0:1::1".parse().unwrap(), start).is_none());
    }

    #[test]
    fn stays_bounded() {
        let (bad, start) = (BadTokens::default(), Instant::now());
        for n in 0..10_000u32 {
            bad.count(IpAddr::V4(n.into()), start);
        }
        assert!(bad.by_address.lock().unwrap().len() <= ADDRESSES_MAX + 1);
        assert!(
            bad.count("99.99.99.99".parse().unwrap(), start).is_some(),
            "further addresses share one counter"
        );
    }
}
