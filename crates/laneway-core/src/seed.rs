//! The source of ids and jitter: a secret of 256 bits that the caller gives at boot.
//!
//! A caller that knows an attempt's id may report about that attempt, so ids must not be guessable from other ids.
//! Core has no randomness of its own: the runtime asks the operating system, and the simulator and tests make a seed
//! of a number.

use std::fmt;

/// A secret of 256 bits, fresh at every boot, or ids would repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    pub(crate) key: [u32; 8],
    pub(crate) stream: u64,
}

impl Seed {
    /// The seed of this secret.
    pub fn new(secret: [u8; 32]) -> Seed {
        let mut key = [0; 8];
        for (word, bytes) in key.iter_mut().zip(secret.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("chunks of four have four bytes"));
        }
        Seed { key, stream: 0 }
    }

    /// Another seed of the same secret for each number. What is drawn from one says nothing about the others.
    #[must_use]
    pub fn stream(self, number: u64) -> Seed {
        Seed { stream: number, ..self }
    }
}

/// For simulations and tests, which must be repeatable. Anyone who guesses the number knows every id.
impl From<u64> for Seed {
    fn from(number: u64) -> Seed {
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&number.to_le_bytes());
        Seed::new(secret)
    }
}

/// Shows nothing of the secret.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed").field("stream", &self.stream).finish_non_exhaustive()
    }
}
