//! How often equal notes of rejected calls are written: a client that is rejected in a tight loop must not fill the disk.
//!
//! Beyond a rate, equal notes are counted, and the next one that is written says how many were not. The caller brings the
//! time. This is not the list itself: that is the trail.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use laneway_core::Name;

/// Equal notes that are written in one window.
const NOTES_MAX: u32 = 20;
/// How long equal notes are counted together.
const WINDOW: Duration = Duration::from_secs(1);
/// Most sorts of notes that are remembered.
const SORTS_MAX: usize = 4_096;
/// How many equal notes were written of late.
#[derive(Default)]
pub struct NoteLimits {
    by_sort: Mutex<HashMap<Sort, Count>>,
}

/// What makes notes equal: who, what, and why not.
pub type Sort = (Name, &'static str, &'static str);

struct Count {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl NoteLimits {
    /// May one more note be written? Then: how many were left out since the last.
    pub fn take(&self, sort: Sort, now: Instant) -> Option<u64> {
        let mut sorts = self.by_sort.lock().unwrap_or_else(PoisonError::into_inner);
        if sorts.len() >= SORTS_MAX && !sorts.contains_key(&sort) {
            sorts.retain(|_, count| now.duration_since(count.since) < WINDOW || count.left_out > 0);
            if sorts.len() >= SORTS_MAX {
                sorts.clear();
            }
        }
        let count = sorts.entry(sort).or_insert(Count { since: now, written: 0, left_out: 0 });
        if now.duration_since(count.since) >= WINDOW {
            (count.since, count.written) = (now, 0);
        }
        if count.written >= NOTES_MAX {
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
        let (limits, start) = (NoteLimits::default(), Instant::now());
        let sort = || (Name::fixed("a"), "submit_job", "queue_full");
        for _ in 0..NOTES_MAX {
            assert_eq!(limits.take(sort(), start), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(limits.take(sort(), start), None);
        }
        assert_eq!(limits.take((Name::fixed("b"), "submit_job", "queue_full"), start), Some(0));
        assert_eq!(limits.take(sort(), start + WINDOW), Some(7));
        assert_eq!(limits.take(sort(), start + WINDOW), Some(0));
    }

    #[test]
    fn stays_bounded() {
        let (limits, start) = (NoteLimits::default(), Instant::now());
        for n in 0..10_000 {
            limits.take((Name::new(&n.to_string()).unwrap(), "submit_job", "queue_full"), start);
        }
        assert!(limits.by_sort.lock().unwrap().len() <= SORTS_MAX);
    }
}
