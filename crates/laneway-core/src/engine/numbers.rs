//! The numbers that the engine gives out: jobs, events, batches, and what chance decides.

use crate::Seed;
use crate::engine::collections::fresh::BatchNumber;
use crate::engine::random::rng::Rng;

/// The last numbers given out.
pub(in crate::engine) struct Numbers {
    pub(in crate::engine) rng: Rng,
    pub(in crate::engine) last_seq: u64,
    pub(in crate::engine) last_event: u64,
    /// The batch that commands are applied for.
    pub(in crate::engine) batch: BatchNumber,
}

impl Numbers {
    pub(in crate::engine) fn new(seed: Seed) -> Numbers {
        Numbers { rng: Rng::new(seed), last_seq: 0, last_event: 0, batch: BatchNumber::default() }
    }
}
