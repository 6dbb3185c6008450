//! The clock of retention: it follows the wall clock only as far as the monotonic clock confirms it.
//!
//! A wall clock that is ahead for a moment must delete nothing. A jump ahead is ignored until it has lasted; time that
//! passed while no process ran is such a jump, too. A clock that is set back is followed at once: that only keeps rows
//! longer.

use crate::{Mono, Now, Span, Wall};

/// How far the wall clock may run ahead of the monotonic clock between two looks without being a jump.
const TOLERANCE: Span = Span::secs(5);
/// How long a wall clock must have been ahead before retention believes it.
const LASTED: Span = Span::hours(1);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetentionClock {
    at: Wall,
    /// Both clocks at the last look.
    looked_at: Now,
    /// Since when the wall clock is ahead of what was seen to pass, and has not jumped further.
    ahead_since: Option<Mono>,
}

impl RetentionClock {
    /// Goes on from where the last process was, as stored.
    pub(super) fn new(now: Now, stored: Option<Wall>) -> RetentionClock {
        let at = stored.unwrap_or(now.wall);
        RetentionClock { at, looked_at: Now { mono: now.mono, wall: at }, ahead_since: None }
    }

    /// Moves on. Gives how far the wall clock is ahead when a jump is noticed.
    pub(super) fn advance(&mut self, now: Now) -> Option<Span> {
        let before = std::mem::replace(&mut self.looked_at, now);
        let passed = now.mono.since(before.mono);
        let expected = self.at + passed;
        if now.wall <= expected + TOLERANCE {
            (self.at, self.ahead_since) = (now.wall, None);
            return None;
        }
        let jumps = now.wall > before.wall + passed + TOLERANCE;
        if jumps || self.ahead_since.is_none() {
            // What ended after an earlier jump is old only by this one.
            self.ahead_since = Some(now.mono);
        }
        if self.ahead_since.is_some_and(|since| now.mono.since(since) >= LASTED) {
            (self.at, self.ahead_since) = (now.wall, None);
            return None;
        }
        self.at = expected;
        jumps.then(|| now.wall.since(expected))
    }

    /// The time of retention.
    pub(super) fn wall(&self) -> Wall {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Now = Now { mono: Mono(5_000_000), wall: Wall(1_800_000_000_000) };
    const WEEK: Span = Span::hours(7 * 24);

    fn later(passed: Span, ahead: Span) -> Now {
        Now { mono: START.mono + passed, wall: START.wall + passed + ahead }
    }

    #[test]
    fn defect_05_a_jump_counts_only_when_it_has_lasted() {
        let mut clock = RetentionClock::new(START, None);
        assert_eq!(clock.advance(later(Span::secs(10), Span(0))), None);
        assert_eq!(clock.advance(later(Span::secs(20), WEEK)), Some(WEEK));
        assert_eq!(clock.wall(), START.wall + Span::secs(20));
        assert_eq!(clock.advance(later(Span::mins(59), WEEK)), None, "it is reported once");
        assert_eq!(clock.wall(), START.wall + Span::mins(59));
        clock.advance(later(Span::mins(61), WEEK));
        assert_eq!(clock.wall(), START.wall + WEEK + Span::mins(61));
    }

    #[test]
    fn defect_05_a_jump_and_back_counts_nothing() {
        let mut clock = RetentionClock::new(START, None);
        for second in 0..100 {
            let ahead = if second % 20 < 10 { WEEK } else { Span(0) };
            clock.advance(later(Span::secs(second), ahead));
            assert_eq!(clock.wall(), START.wall + Span::secs(second));
        }
    }

    #[test]
    fn defect_05_a_second_jump_must_last_as_well() {
        let mut clock = RetentionClock::new(START, None);
        assert_eq!(clock.advance(later(Span::secs(10), Span::hours(1))), Some(Span::hours(1)));
        assert_eq!(clock.advance(later(Span::mins(30), WEEK)), Some(WEEK));
        clock.advance(later(Span::mins(61), WEEK));
        assert_eq!(clock.wall(), START.wall + Span::mins(61));
        clock.advance(later(Span::mins(91), WEEK));
        assert_eq!(clock.wall(), START.wall + WEEK + Span::mins(91));
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed_and_its_return_is_a_jump() {
        let mut clock = RetentionClock::new(later(Span(0), WEEK), None);
        assert_eq!(clock.advance(later(Span::secs(1), Span(0))), None);
        assert_eq!(clock.wall(), START.wall + Span::secs(1));
        assert_eq!(clock.advance(later(Span::secs(2), WEEK)), Some(WEEK));
        assert_eq!(clock.wall(), START.wall + Span::secs(2));
    }

    #[test]
    fn time_without_a_process_is_a_jump() {
        let mut clock = RetentionClock::new(later(Span(0), WEEK), Some(START.wall));
        assert_eq!(clock.advance(later(Span(0), WEEK)), Some(WEEK));
        assert_eq!(clock.wall(), START.wall);
    }
}
