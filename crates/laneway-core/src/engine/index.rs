//! Finding a handle by its key: a hash table of handles that is never walked, so that its order can matter to nobody.
//!
//! The keys stand where the handles point. Names are client input, so hashes are mixed with the seed of the boot: nobody
//! outside can choose names that collide.

use std::hash::{Hash, Hasher};

use super::slab::{Ix, NONE};

/// A table of handles, open addressed, at most half full.
pub(super) struct Index {
    slots: Vec<Ix>,
    len: usize,
}

/// How keys are hashed in this boot.
#[derive(Clone, Copy)]
pub(super) struct Hashing {
    pub(super) seed: u64,
}

impl Hashing {
    pub(super) fn hash(self, key: &impl Hash) -> u64 {
        let mut mixer = Mixer(self.seed);
        key.hash(&mut mixer);
        mixer.finish()
    }
}

impl Index {
    pub(super) fn new() -> Index {
        Index { slots: vec![NONE; 16], len: 0 }
    }

    /// The handle for which `is_it` holds, among those with this hash.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(Ix) -> bool) -> Option<Ix> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != NONE {
            if is_it(self.slots[at]) {
                return Some(self.slots[at]);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Adds a handle that is not there yet. `hash_of` gives the hash of any handle in the table.
    pub(super) fn insert(&mut self, hash: u64, ix: Ix, hash_of: impl Fn(Ix) -> u64) {
        if (self.len + 1) * 2 > self.slots.len() {
            let doubled = vec![NONE; self.slots.len() * 2];
            for old in std::mem::replace(&mut self.slots, doubled).into_iter().filter(|&ix| ix != NONE) {
                self.place(hash_of(old), old);
            }
        }
        self.place(hash, ix);
        self.len += 1;
    }

    fn place(&mut self, hash: u64, ix: Ix) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != NONE {
            at = (at + 1) & mask;
        }
        self.slots[at] = ix;
    }

    /// Removes a handle; those behind it close the gap, so that no search ever stops too early.
    pub(super) fn remove(&mut self, hash: u64, ix: Ix, hash_of: impl Fn(Ix) -> u64) {
        let mask = self.slots.len() - 1;
        let mut gap = hash as usize & mask;
        while self.slots[gap] != ix {
            assert!(self.slots[gap] != NONE, "a removed handle is in the table");
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            if self.slots[at] == NONE {
                break;
            }
            let home = hash_of(self.slots[at]) as usize & mask;
            // It may move to the gap only if its home does not lie between the gap and itself.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
        }
        self.slots[gap] = NONE;
        self.len -= 1;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Mixes words by folded multiplication.
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ self.0.rotate_left(23);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_le_bytes(chunk.try_into().expect("chunks of eight")));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.mix(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_u128(&mut self, word: u128) {
        self.mix(word as u64 ^ (word >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
