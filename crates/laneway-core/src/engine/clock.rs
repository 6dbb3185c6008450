//! What the engine knows of time beside `now`: when it was built, when it last looked at the clock, and how much time counts.

use crate::engine::retention_clock::RetentionClock;
use crate::{Mono, Now};

/// The engine's view of both clocks.
pub(in crate::engine) struct EngineClock {
    /// When the engine looks for rows whose retention has passed.
    pub(in crate::engine) sweep_at: Mono,
    /// The clock that retention counts by.
    pub(in crate::engine) retention_clock: RetentionClock,
    /// When the engine last looked at the clock.
    pub(in crate::engine) looked_at: Mono,
    /// When the engine was built.
    pub(in crate::engine) born: Now,
    /// No lease ends before this time: the process did not run for a while.
    pub(in crate::engine) lease_floor: Mono,
    /// Engine time for ordering when the engine was built: the wall clock, or later where a stored job is. From then on
    /// it follows the monotonic clock, so that a wall clock that is set makes no job older or younger than another.
    pub(in crate::engine) rank_base: u64,
}

impl EngineClock {
    pub(in crate::engine) fn new(now: Now) -> EngineClock {
        EngineClock {
            sweep_at: now.mono,
            retention_clock: RetentionClock::new(now, None),
            looked_at: now.mono,
            born: now,
            lease_floor: Mono(0),
            rank_base: u64::try_from(now.wall.0).unwrap_or(0),
        }
    }
}
