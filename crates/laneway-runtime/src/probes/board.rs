//! The ratings of the machine: the latest one, and one for each minute of the last day.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::{QuietState, Wall};

use super::rating::Rating;

/// Minutes that are remembered: a day.
const MINUTES_MAX: usize = 24 * 60;
const MINUTE_MS: i64 = 60_000;

/// Remembers looks at the machine. Clones are the same board.
#[derive(Clone, Default)]
pub struct LoadBoard {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    latest: Option<(Wall, Rating)>,
    minutes: VecDeque<Minute>,
}

/// The looks of one minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minute {
    /// When it began.
    pub begin: Wall,
    /// The busy rating, on average.
    pub busy: f64,
    /// The worst state.
    pub quiet: QuietState,
    /// How many looks there were.
    pub looks: u32,
}

impl LoadBoard {
    /// Remembers a look.
    pub(crate) fn put(&self, at: Wall, rating: Rating) {
        let mut inner = self.inner();
        let begin = Wall(at.0.div_euclid(MINUTE_MS) * MINUTE_MS);
        let busy = f64::from(rating.busy);
        match inner.minutes.back_mut() {
            Some(minute) if minute.begin == begin => {
                minute.looks = minute.looks.saturating_add(1);
                minute.busy += (busy - minute.busy) / f64::from(minute.looks);
                minute.quiet = minute.quiet.max(rating.quiet);
            }
            _ => {
                if inner.minutes.len() == MINUTES_MAX {
                    inner.minutes.pop_front();
                }
                inner.minutes.push_back(Minute { begin, busy, quiet: rating.quiet, looks: 1 });
            }
        }
        inner.latest = Some((at, rating));
    }

    /// The latest look, and when it was.
    pub fn latest(&self) -> Option<(Wall, Rating)> {
        self.inner().latest.clone()
    }

    /// The minutes since this time, oldest first; minutes without a look are left out.
    pub fn minutes_since(&self, from: Wall) -> Vec<Minute> {
        self.inner().minutes.iter().filter(|minute| minute.begin >= from).copied().collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ApiLoad, HostSample};
    use super::*;

    fn look(busy: u8, quiet: QuietState) -> Rating {
        let host = HostSample {
            cpu_percent: 0.0,
            memory_percent: 0.0,
            load_per_core: 0.0,
            io_pressure: None,
            memory_pressure: None,
            cpu_pressure: None,
            drops_per_second: None,
        };
        Rating { busy, quiet, host, api: ApiLoad::default() }
    }

    #[test]
    fn looks_of_a_minute_are_averaged_and_a_day_is_kept() {
        let board = LoadBoard::default();
        assert_eq!(board.latest(), None);
        board.put(Wall(60_000), look(2, QuietState::Quiet));
        board.put(Wall(119_999), look(5, QuietState::Normal));
        board.put(Wall(120_000), look(1, QuietState::Quiet));
        let minutes = board.minutes_since(Wall(0));
        assert_eq!((minutes[0].busy, minutes[0].quiet, minutes[0].looks), (3.5, QuietState::Normal, 2));
        assert_eq!((minutes.len(), minutes[1].busy), (2, 1.0));
        assert_eq!(board.latest().map(|(at, rating)| (at, rating.busy)), Some((Wall(120_000), 1)));
        for minute in 0..2 * MINUTES_MAX as i64 {
            board.put(Wall((3 + minute) * MINUTE_MS), look(0, QuietState::Quiet));
        }
        assert_eq!(board.minutes_since(Wall(i64::MIN)).len(), MINUTES_MAX);
        assert_eq!(board.minutes_since(Wall((2 * MINUTES_MAX as i64) * MINUTE_MS)).len(), 3);
    }
}
