//! The tenure of a node: how long it may act as the owner of a domain, by its own clock.
//!
//! The database lets another node take a domain over when the owner has not renewed it for a while. The owner must stop before that,
//! also when it cannot reach the database any more, and also when it was paused. So it counts from the moment at which its last
//! successful renewal was sent, and stops early by a margin.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::{Epoch, StoreError};

/// Random bytes that differ for every take-over, also on a database that was restored to an earlier state.
pub(super) type Nonce = [u8; 16];

/// One part in this many of the time to live is left unused: for clocks of different speed, and for what is on its way.
const MARGIN_PART: u64 = 6;

/// A set of tenants with an engine of its own. Every server has the one domain `main` for now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(String);

impl Domain {
    /// The domain of every tenant.
    pub fn main() -> Domain {
        Domain("main".to_owned())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The right of this process to act as the owner of a domain.
pub struct Tenure {
    domain: Domain,
    epoch: Epoch,
    nonce: Nonce,
    /// The last moment, in milliseconds of [`now_ms`].
    until_ms: AtomicU64,
    ended: AtomicBool,
}

impl Tenure {
    pub(super) fn new(domain: Domain, epoch: Epoch, nonce: Nonce, began_ms: u64, ttl: Duration) -> Tenure {
        let tenure =
            Tenure { domain, epoch, nonce, until_ms: AtomicU64::new(0), ended: AtomicBool::new(false) };
        tenure.renewed(began_ms, ttl);
        tenure
    }

    /// What is owned.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The number of the take-over.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn nonce(&self) -> &Nonce {
        &self.nonce
    }

    /// A renewal that was sent at `began_ms` succeeded.
    pub(super) fn renewed(&self, began_ms: u64, ttl: Duration) {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.until_ms.fetch_max(began_ms.saturating_add(ttl - ttl / MARGIN_PART), Ordering::SeqCst);
    }

    /// Ends it: the domain was given back, or another node owns it.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// How long this process may still act as the owner; zero when it may not.
    pub fn left(&self) -> Duration {
        if self.ended.load(Ordering::SeqCst) { Duration::ZERO } else { self.time_left() }
    }

    /// The same for the statement that gives the domain back, which is sent when the tenure has ended.
    pub(super) fn time_left(&self) -> Duration {
        Duration::from_millis(self.until_ms.load(Ordering::SeqCst).saturating_sub(now_ms()))
    }

    /// Fails when this process may no longer act as the owner.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.left().is_zero() { Err(StoreError::Lapsed(self.epoch)) } else { Ok(()) }
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenure({} {}, {:?} left)", self.domain.as_str(), self.epoch.0, self.left())
    }
}

/// Milliseconds of a clock that cannot be set, and that goes on while the machine sleeps.
pub(super) fn now_ms() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000 + time.tv_nsec / 1_000_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(6);

    fn tenure(began_ms: u64) -> Tenure {
        Tenure::new(Domain::main(), Epoch(3), Nonce::default(), began_ms, TTL)
    }

    #[test]
    fn it_counts_from_the_moment_at_which_the_renewal_was_sent() {
        let now = now_ms();
        assert!(tenure(now).left() > Duration::from_millis(4_900));
        assert!(tenure(now).left() <= Duration::from_secs(5), "a margin is left unused");
        // The answer to a renewal took four seconds.
        assert!(tenure(now - 4_000).left() <= Duration::from_secs(1));
        assert!(matches!(tenure(now - 5_000).check(), Err(StoreError::Lapsed(Epoch(3)))));
    }

    #[test]
    fn a_late_answer_to_an_earlier_renewal_shortens_nothing() {
        let (now, tenure) = (now_ms(), tenure(now_ms()));
        tenure.renewed(now - 3_000, TTL);
        assert!(tenure.left() > Duration::from_millis(4_900));
    }

    #[test]
    fn what_was_given_back_is_over_at_once() {
        let tenure = tenure(now_ms());
        tenure.end();
        tenure.renewed(now_ms(), TTL);
        assert!(tenure.check().is_err());
    }
}
