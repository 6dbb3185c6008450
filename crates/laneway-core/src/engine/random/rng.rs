//! Randomness from the seed of the boot: ids that cannot be guessed, and jitter.
//!
//! Ids come from ChaCha with eight rounds: any number of them reveals nothing about the others. Jitter is no secret and comes
//! from a smaller generator.

use crate::engine::random::chacha::{ALL_WORDS, LANES, NAMES, Row, make_blocks};
use crate::{AttemptId, JobId, Seed, Wall};

/// Rounds of ChaCha. The best attack known is on seven, and it is not practical. With eight, ids cost 0.7 % of the
/// engine's instructions in the cheapest mix of its benchmark; twelve would cost half as much again.
const ROUNDS: usize = 8;

/// The generators, and the state for time-ordered ids.
pub(in crate::engine) struct Rng {
    seed: Seed,
    /// The next blocks of the keyed generator to be made.
    counter: u64,
    /// Words that are made already; those before `taken` are used up.
    words: [Row; NAMES],
    taken: usize,
    /// State of the small generator (splitmix64).
    jitter: u64,
    last_ms: u64,
    in_ms: u64,
}

impl Rng {
    pub(in crate::engine) fn new(seed: Seed) -> Rng {
        let mut rng = Rng {
            seed,
            counter: 0,
            words: [[0; LANES]; NAMES],
            taken: ALL_WORDS,
            jitter: 0,
            last_ms: 0,
            in_ms: 0,
        };
        rng.jitter = rng.secret();
        rng
    }

    /// Sixty-four bits that cannot be guessed.
    pub(in crate::engine) fn secret(&mut self) -> u64 {
        loop {
            let rest = self.words.as_flattened().get(self.taken..).unwrap_or_default();
            if let Some(&[low, high]) = rest.first_chunk() {
                self.taken += 2;
                return u64::from(low) | u64::from(high) << 32;
            }
            self.refill();
        }
    }

    #[cold]
    fn refill(&mut self) {
        make_blocks(ROUNDS, &self.seed.key, self.seed.stream, self.counter, &mut self.words);
        self.counter += LANES as u64;
        self.taken = 0;
    }

    /// Sixty-four bits for what is no secret.
    pub(in crate::engine) fn jitter(&mut self) -> u64 {
        self.jitter = self.jitter.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.jitter ^ (self.jitter >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A UUID of version 7: milliseconds, then a count within the millisecond, then random bits. Strictly growing within
    /// one boot, also when the clock is set back, so that inserts by id always go to the right edge of the index.
    pub(in crate::engine) fn job_id(&mut self, at: Wall) -> JobId {
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
        let random = self.secret() & 0x3FFF_FFFF_FFFF_FFFF;
        let high = (self.last_ms << 16) | 0x7000 | self.in_ms;
        JobId((u128::from(high) << 64) | 0x8000_0000_0000_0000 | u128::from(random))
    }

    pub(in crate::engine) fn attempt_id(&mut self) -> AttemptId {
        AttemptId((u128::from(self.secret()) << 64) | u128::from(self.secret()))
    }
}
