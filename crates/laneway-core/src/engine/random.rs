//! Seeded randomness.

pub(in crate::engine) mod chacha;
pub(in crate::engine) mod rng;
