//! Resends frames until they are acknowledged, with growing waits. Both sides of the worker protocol use it.
//!
//! Pure: it takes the time and the random numbers, and returns what to send.

use std::collections::BTreeMap;
use std::time::Duration;

/// How often a frame is sent again before the connection counts as broken.
pub const RESENDS_MAX: u32 = 6;

/// A wait that doubles from `base` to `max`, with jitter, so that many peers do not wake up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
    /// The random part of a wait in percent: 25 means from three quarters of it to all of it.
    pub jitter_pct: u32,
}

impl Backoff {
    /// For frames that need an acknowledgement: 200 ms, 400 ms, …, 5 s.
    pub const FRAMES: Backoff =
        Backoff { base: Duration::from_millis(200), max: Duration::from_secs(5), jitter_pct: 25 };

    /// The wait after `failures` failures in a row (from 0). `random` is between 0 and 1.
    pub fn wait(&self, failures: u32, random: f64) -> Duration {
        let factor = 2u32.saturating_pow(failures.min(30));
        let full = self.base.saturating_mul(factor).min(self.max);
        let drawn = f64::from(self.jitter_pct) / 100.0 * random.clamp(0.0, 1.0);
        full.mul_f64(1.0 - drawn)
    }
}

/// Items that wait for an acknowledgement, by number.
pub struct Resends<T> {
    entries: BTreeMap<u64, Entry<T>>,
}

struct Entry<T> {
    item: T,
    resends: u32,
    due: Duration,
}

/// The items to send now.
pub struct Due<'a, T> {
    /// The items with their numbers, oldest first.
    pub items: Vec<(u64, &'a T)>,
    /// True when an item was sent as often as allowed. The connection should be closed.
    pub exhausted: bool,
}

impl<T> Default for Resends<T> {
    fn default() -> Resends<T> {
        Resends { entries: BTreeMap::new() }
    }
}

impl<T> Resends<T> {
    /// Keeps an item that was just sent.
    pub fn insert(&mut self, now: Duration, number: u64, item: T, random: f64) {
        let due = now + Backoff::FRAMES.wait(0, random);
        self.entries.insert(number, Entry { item, resends: 0, due });
    }

    /// Removes an item that was acknowledged or is not needed any more.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        self.entries.remove(&number).map(|entry| entry.item)
    }

    /// The items with their numbers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().map(|(number, entry)| (*number, &entry.item))
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without items.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes the items that `which` selects due at once and resets their resend counts.
    pub fn rewind(&mut self, now: Duration, which: impl Fn(&T) -> bool) {
        for entry in self.entries.values_mut().filter(|entry| which(&entry.item)) {
            entry.resends = 0;
            entry.due = now;
        }
    }

    /// When the next item that `which` selects is due.
    pub fn next_due(&self, which: impl Fn(&T) -> bool) -> Option<Duration> {
        self.entries.values().filter(|entry| which(&entry.item)).map(|entry| entry.due).min()
    }

    /// The items that `which` selects and that are due.
    pub fn take_due(
        &mut self,
        now: Duration,
        which: impl Fn(&T) -> bool,
        mut random: impl FnMut() -> f64,
    ) -> Due<'_, T> {
        let mut due = Due { items: Vec::new(), exhausted: false };
        let is_due = |entry: &Entry<T>| entry.due <= now && which(&entry.item);
        for (number, entry) in self.entries.iter_mut().filter(|(_, entry)| is_due(entry)) {
            if entry.resends >= RESENDS_MAX {
                due.exhausted = true;
                continue;
            }
            entry.resends += 1;
            entry.due = now + Backoff::FRAMES.wait(entry.resends, random());
            due.items.push((*number, &entry.item));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d7_frames_wait_200_ms_to_5_s_with_jitter() {
        let waits = |random| {
            (0..RESENDS_MAX).map(|n| Backoff::FRAMES.wait(n, random).as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(waits(0.0), [200, 400, 800, 1_600, 3_200, 5_000]);
        assert_eq!(waits(1.0), [150, 300, 600, 1_200, 2_400, 3_750]);
    }

    #[test]
    fn waits_never_grow_beyond_their_limit() {
        for failures in [0, 7, 31, 1_000, u32::MAX] {
            for random in [-1.0, 0.0, 0.5, 1.0, 7.0] {
                let wait = Backoff::FRAMES.wait(failures, random);
                assert!(wait >= Duration::from_millis(150) && wait <= Duration::from_secs(5), "{wait:?}");
            }
        }
    }

    #[test]
    fn d7_an_item_is_sent_six_more_times_and_then_the_connection_is_exhausted() {
        let mut resends = Resends::default();
        resends.insert(Duration::ZERO, 1, "frame", 0.0);
        let mut sent = Vec::new();
        loop {
            let at = resends.next_due(|_| true).unwrap();
            let due = resends.take_due(at, |_| true, || 0.0);
            if due.exhausted {
                break;
            }
            assert_eq!(due.items, [(1, &"frame")]);
            sent.push(at.as_millis());
        }
        assert_eq!(sent, [200, 600, 1_400, 3_000, 6_200, 11_200]);
        assert_eq!(resends.len(), 1, "an item without an acknowledgement is kept");
        resends.rewind(Duration::from_secs(60), |_| true);
        assert_eq!(resends.take_due(Duration::from_secs(60), |_| true, || 0.0).items.len(), 1);
    }

    #[test]
    fn removed_and_unselected_items_are_not_sent() {
        let mut resends = Resends::default();
        resends.insert(Duration::ZERO, 1, "a", 0.0);
        resends.insert(Duration::ZERO, 2, "b", 0.0);
        assert_eq!((resends.remove(1), resends.remove(1)), (Some("a"), None));
        assert_eq!(resends.next_due(|item| *item == "a"), None);
        assert!(resends.take_due(Duration::from_secs(1), |item| *item == "a", || 0.0).items.is_empty());
        assert_eq!(resends.iter().collect::<Vec<_>>(), [(2, &"b")]);
    }
}
