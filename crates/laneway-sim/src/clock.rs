//! The world's clocks: the time that really passes, and the two clocks that the server reads.
//!
//! Real time only goes on. The monotonic clock follows it but begins anew with each process; the wall clock may be set
//! to anything at any moment.

use laneway_core::{Mono, Now, Span, Wall};

/// 2026-01-01, where every world begins.
const WALL_START_MS: i64 = 1_767_225_600_000;

/// The clocks of one world.
#[derive(Clone, Debug)]
pub struct Clock {
    at: u64,
    mono_offset: u64,
    wall_offset: i64,
}

/// One moment, on every clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time that has really passed, in milliseconds.
    pub at: u64,
    /// What the server reads.
    pub now: Now,
}

impl Clock {
    /// A world begins; its first process has a monotonic clock that starts here.
    pub fn new(mono_offset: u64) -> Clock {
        Clock { at: 0, mono_offset, wall_offset: WALL_START_MS }
    }

    /// This moment.
    pub fn moment(&self) -> Moment {
        let wall = Wall(self.wall_offset.saturating_add_unsigned(self.at));
        Moment { at: self.at, now: Now { mono: Mono(self.mono_offset + self.at), wall } }
    }

    /// Time passes.
    pub fn advance(&mut self, by: Span) {
        self.at += by.0;
    }

    /// A new process has another monotonic clock.
    pub fn reboot(&mut self, mono_offset: u64) {
        self.mono_offset = mono_offset;
    }

    /// The wall clock is set.
    pub fn set_wall(&mut self, by_ms: i64) {
        self.wall_offset += by_ms;
    }

    /// How long until a point of the server's clocks; zero when it has passed.
    pub fn until(&self, mono: Option<Mono>, wall: Option<Wall>) -> Option<Span> {
        let now = self.moment().now;
        let by_mono = mono.map(|at| at.since(now.mono));
        let by_wall = wall.map(|at| at.since(now.wall));
        match (by_mono, by_wall) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
