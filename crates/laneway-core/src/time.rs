//! Time as the engine sees it: two clocks in milliseconds, both given by the caller.
//!
//! The monotonic clock measures (leases, timeouts, backoff); the wall clock dates (not-before, deadlines, what people
//! read). A wall clock that jumps never ends a lease.

use std::ops::Add;

/// A point of the monotonic clock, in milliseconds since some start that means nothing across processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Mono(pub u64);

/// A point of the wall clock, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Wall(pub i64);

/// A length of time in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Span(pub u64);

/// Both clocks, read at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// What the monotonic clock says.
    pub mono: Mono,
    /// What the wall clock says.
    pub wall: Wall,
}

impl Span {
    /// `n` seconds.
    pub const fn secs(n: u64) -> Span {
        Span(n * 1_000)
    }

    /// `n` minutes.
    pub const fn mins(n: u64) -> Span {
        Span(n * 60_000)
    }

    /// `n` hours.
    pub const fn hours(n: u64) -> Span {
        Span(n * 3_600_000)
    }
}

impl Mono {
    /// The time from `earlier` to here; zero when `earlier` is later.
    pub fn since(self, earlier: Mono) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Wall {
    /// The time from `earlier` to here; zero when `earlier` is later.
    pub fn since(self, earlier: Wall) -> Span {
        Span(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The point `span` before this one.
    pub fn before(self, span: Span) -> Wall {
        Wall(self.0.saturating_sub(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }
}

impl Add<Span> for Mono {
    type Output = Mono;
    fn add(self, span: Span) -> Mono {
        Mono(self.0.saturating_add(span.0))
    }
}

impl Add<Span> for Wall {
    type Output = Wall;
    fn add(self, span: Span) -> Wall {
        Wall(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }
}
