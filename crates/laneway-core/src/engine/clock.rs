//! What the engine knows of time beside `now`: when it was built, when it last looked at the clock, and the clock of retention.

mod retention;

use crate::{Mono, Now, Span, Wall};
use retention::RetentionClock;

/// How often the engine looks for rows whose retention has passed.
const SWEEP_EVERY: Span = Span::secs(10);
/// How soon the next sweep follows one that left rows over.
const SWEEP_AGAIN: Span = Span::secs(1);
/// A look at the clock that is late by more than this means that the process did not run. The messages that arrived
/// meanwhile must be handled before a lease expires.
const STALL: Span = Span::secs(1);

/// The engine's view of both clocks.
pub(in crate::engine) struct EngineClock {
    /// When the engine looks for rows whose retention has passed.
    sweep_at: Mono,
    /// The clock that retention counts by.
    retention: RetentionClock,
    /// When the engine last looked at the clock.
    looked_at: Mono,
    /// When the engine was built.
    born: Mono,
    /// No lease ends before this time: the process did not run for a while.
    lease_floor: Mono,
    /// Engine time for ordering when the engine was built: the wall clock, or later where a stored job is. From then on
    /// it follows the monotonic clock, so that a wall clock that is set makes no job older or younger than another.
    rank_base: u64,
}

/// How the wall clock changed since the last look.
pub(in crate::engine) struct ClockChange {
    /// It was set back: retention counts from this time.
    pub(in crate::engine) set_back_to: Option<Wall>,
    /// It jumped ahead by so much.
    pub(in crate::engine) jumped_by: Option<Span>,
}

impl EngineClock {
    /// `seen`: the time up to which retention has counted, as stored.
    pub(in crate::engine) fn new(now: Now, seen: Option<Wall>) -> EngineClock {
        EngineClock {
            sweep_at: now.mono,
            retention: RetentionClock::new(now, seen),
            looked_at: now.mono,
            born: now.mono,
            lease_floor: Mono(0),
            rank_base: u64::try_from(now.wall.0).unwrap_or(0),
        }
    }

    /// When the engine was built.
    pub(in crate::engine) fn born(&self) -> Mono {
        self.born
    }

    /// When the engine last looked at the clock.
    pub(in crate::engine) fn looked_at(&self) -> Mono {
        self.looked_at
    }

    /// The time up to which retention has counted.
    pub(in crate::engine) fn seen(&self) -> Wall {
        self.retention.wall()
    }

    /// Moves the clock of retention on.
    pub(in crate::engine) fn advance(&mut self, now: Now) -> ClockChange {
        let before = self.retention.wall();
        let jumped_by = self.retention.advance(now);
        let seen = self.retention.wall();
        ClockChange { set_back_to: (seen < before).then_some(seen), jumped_by }
    }

    /// Engine time for ordering.
    pub(in crate::engine) fn rank_now(&self, now: Now) -> u64 {
        self.rank_base.saturating_add(now.mono.since(self.born).0)
    }

    /// A stored job has this rank time: jobs to come are younger.
    pub(in crate::engine) fn raise_rank(&mut self, rank_time: u64) {
        self.rank_base = self.rank_base.max(rank_time);
    }

    /// No lease ends before this time.
    pub(in crate::engine) fn lease_floor(&self) -> Mono {
        self.lease_floor
    }

    /// Is a lease over that lasts until then?
    pub(in crate::engine) fn is_over(&self, now: Now, until: Option<Mono>) -> bool {
        until.is_some_and(|until| until.max(self.lease_floor) <= now.mono)
    }

    /// The engine looks at the clock. It asked to do so at `asked`. If the process did not run meanwhile, no heartbeat could
    /// arrive: leases get the lost time back, up to one lease.
    pub(in crate::engine) fn look(&mut self, now: Now, asked: Option<Mono>, lease: Span) {
        let looked_at = std::mem::replace(&mut self.looked_at, now.mono);
        let Some(asked) = asked else { return };
        let late = now.mono.since(asked.max(looked_at));
        if late > STALL {
            self.lease_floor = now.mono + Span(late.0.min(lease.0));
        }
    }

    /// When the next sweep is due.
    pub(in crate::engine) fn sweep_at(&self) -> Mono {
        self.sweep_at
    }

    /// A sweep is done. `left_over`: there may be more rows to delete.
    pub(in crate::engine) fn swept(&mut self, now: Mono, left_over: bool) {
        self.sweep_at = now + if left_over { SWEEP_AGAIN } else { SWEEP_EVERY };
    }
}
