//! The rate limit of equal audit entries: a client that is rejected in a tight loop must not fill the disk.
//!
//! Beyond the rate, equal entries are only counted, and the next one that is written says how many were left out. The
//! caller passes the time. The entries themselves are events of the event log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use laneway_core::Name;

/// Equal entries that are written in one window.
const ENTRIES_MAX: u32 = 20;
/// The length of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// Most classes of entries that are remembered.
const CLASSES_MAX: usize = 4_096;

/// Counts of recent equal entries.
#[derive(Default)]
pub struct AuditRate {
    by_class: Mutex<HashMap<EntryClass, Count>>,
}

/// Entries of one class are equal: the same actor, operation and code.
pub type EntryClass = (Name, &'static str, &'static str);

struct Count {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl AuditRate {
    /// `Some` when one more entry may be written, with the number of entries that were left out since the last.
    pub fn take(&self, class: EntryClass, now: Instant) -> Option<u64> {
        let mut classes = self.by_class.lock().unwrap_or_else(PoisonError::into_inner);
        if classes.len() >= CLASSES_MAX && !classes.contains_key(&class) {
            classes.retain(|_, count| now.duration_since(count.since) < WINDOW || count.left_out > 0);
            if classes.len() >= CLASSES_MAX {
                classes.clear();
            }
        }
        let count = classes.entry(class).or_insert(Count { since: now, written: 0, left_out: 0 });
        if now.duration_since(count.since) >= WINDOW {
            (count.since, count.written) = (now, 0);
        }
        if count.written >= ENTRIES_MAX {
            count.left_out += 1;
            return None;
        }
        count.written += 1;
        Some(std::mem::take(&mut count.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_some_and_counts_the_rest() {
        let (limits, start) = (AuditRate::default(), Instant::now());
        let class = || (Name::fixed("a"), "submit_job", "queue_full");
        for _ in 0..ENTRIES_MAX {
            assert_eq!(limits.take(class(), start), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(limits.take(class(), start), None);
        }
        assert_eq!(limits.take((Name::fixed("b"), "submit_job", "queue_full"), start), Some(0));
        assert_eq!(limits.take(class(), start + WINDOW), Some(7));
        assert_eq!(limits.take(class(), start + WINDOW), Some(0));
    }

    #[test]
    fn stays_bounded() {
        let (limits, start) = (AuditRate::default(), Instant::now());
        for n in 0..10_000 {
            limits.take((Name::new(&n.to_string()).unwrap(), "submit_job", "queue_full"), start);
        }
        assert!(limits.by_class.lock().unwrap().len() <= CLASSES_MAX);
    }
}
