//! Randomness from a seed: ids and jitter. The caller gives a fresh seed at every boot, or ids would repeat.

use crate::{AttemptId, JobId, Wall};

/// A small, fast generator (splitmix64) and the state for time-ordered ids.
pub(super) struct Rng {
    state: u64,
    last_ms: u64,
    in_ms: u64,
}

impl Rng {
    /// The seed is mixed first: seeds that differ by a step of the generator would else give the same numbers, one later.
    pub(super) fn new(seed: u64) -> Rng {
        Rng { state: mix(seed ^ 0xD1B5_4A32_D192_ED03), last_ms: 0, in_ms: 0 }
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A UUID of version 7: milliseconds, then a count within the millisecond, then random bits. Strictly growing within
    /// one boot, also when the clock is set back, so that inserts by id always go to the right edge of the index.
    pub(super) fn job_id(&mut self, at: Wall) -> JobId {
        let ms = u64::try_from(at.0).unwrap_or(0) & 0xFFFF_FFFF_FFFF;
        if ms > self.last_ms {
            self.last_ms = ms;
            self.in_ms = 0;
        } else {
            self.in_ms += 1;
            if self.in_ms > 0xFFF {
                self.last_ms += 1;
                self.in_ms = 0;
            }
        }
        let random = self.next_u64() & 0x3FFF_FFFF_FFFF_FFFF;
        let high = (self.last_ms << 16) | 0x7000 | self.in_ms;
        JobId((u128::from(high) << 64) | 0x8000_0000_0000_0000 | u128::from(random))
    }

    pub(super) fn attempt_id(&mut self) -> AttemptId {
        AttemptId((u128::from(self.next_u64()) << 64) | u128::from(self.next_u64()))
    }
}

/// The output function of splitmix64.
fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
