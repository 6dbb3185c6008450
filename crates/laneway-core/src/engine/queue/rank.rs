//! The order of jobs, and the order of agents.

use std::cmp::Ordering;

/// The fair order between agents; the smallest goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct FairKey {
    /// Open attempts for its weight. 0 in lanes that go by priority.
    pub(super) load: u64,
    /// When it was last served. 0 in lanes that go by priority.
    pub(super) served: u64,
    /// Its best job.
    pub(super) rank: Rank,
}

impl Ord for FairKey {
    /// Load, then served, then rank. Written out, because agents are compared dozens of times for every job: one branch for each
    /// equal field is a third less work than a three-way comparison of each.
    #[inline]
    fn cmp(&self, other: &FairKey) -> Ordering {
        if self.load != other.load {
            return self.load.cmp(&other.load);
        }
        if self.served != other.served {
            return self.served.cmp(&other.served);
        }
        self.rank.cmp(&other.rank)
    }
}

impl PartialOrd for FairKey {
    #[inline]
    fn partial_cmp(&self, other: &FairKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of jobs; the smallest goes first. `seq` makes it unique.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::engine) struct Rank {
    high: u64,
    low: u64,
}

impl Rank {
    /// Bits for the submit number where it shares eight bytes with the time: enough for a million jobs a second for a century.
    const SEQ_BITS: u32 = 52;

    /// One number first, then the submit number.
    pub(in crate::engine) fn by_level(level: i64, seq: u64) -> Rank {
        Rank { high: (level as u64) ^ (1 << 63), low: seq }
    }

    /// Priority first, then the time (44 bits of milliseconds reach the year 2527), then the submit number.
    pub(in crate::engine) fn by_priority(priority: i32, time: u64, seq: u64) -> Rank {
        let priority = (priority as u32) ^ (1 << 31);
        let time = time.min((1 << 44) - 1);
        let rest = (u128::from(time) << Rank::SEQ_BITS) | u128::from(seq & ((1 << Rank::SEQ_BITS) - 1));
        Rank { high: (u64::from(priority) << 32) | (rest >> 64) as u64, low: rest as u64 }
    }
}
