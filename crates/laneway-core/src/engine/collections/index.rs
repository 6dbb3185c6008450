//! Finding a handle by its key: a hash table of handles that is never walked, so that its order matters to no caller.
//!
//! The keys are in the records. Names are client input, so hashes are mixed with the seed of the boot: no client can choose
//! names that collide.

use std::hash::{Hash, Hasher};

use crate::engine::collections::slab::Ix;

/// A table of handles, open addressed, at most half full. Each handle stands beside a part of its hash, so that what it
/// points at is looked at only when it is very likely the right one.
pub(in crate::engine) struct Index<T> {
    slots: Vec<Slot<T>>,
    len: usize,
}

struct Slot<T> {
    hash: u32,
    ix: Option<Ix<T>>,
}

impl<T> Slot<T> {
    const EMPTY: Slot<T> = Slot { hash: 0, ix: None };
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Slot<T> {
        *self
    }
}

impl<T> Copy for Slot<T> {}

/// How keys are hashed in this boot.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Hashing {
    pub(in crate::engine) seed: u64,
}

impl Hashing {
    pub(in crate::engine) fn hash(self, key: &impl Hash) -> u32 {
        let mut mixer = Mixer(self.seed);
        key.hash(&mut mixer);
        mixer.finish() as u32
    }
}

impl<T> Index<T> {
    pub(in crate::engine) fn new() -> Index<T> {
        Index { slots: vec![Slot::EMPTY; 16], len: 0 }
    }

    /// The handle for which `is_it` holds, among those with this hash.
    pub(in crate::engine) fn find(&self, hash: u32, is_it: impl Fn(Ix<T>) -> bool) -> Option<Ix<T>> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while let Slot { hash: found, ix: Some(ix) } = self.slots[at] {
            if found == hash && is_it(ix) {
                return Some(ix);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Adds a handle that is not there yet.
    pub(in crate::engine) fn insert(&mut self, hash: u32, ix: Ix<T>) {
        if (self.len + 1) * 2 > self.slots.len() {
            let doubled = vec![Slot::EMPTY; self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, doubled);
            for slot in old.into_iter().filter(|slot| slot.ix.is_some()) {
                self.put(slot);
            }
        }
        self.put(Slot { hash, ix: Some(ix) });
        self.len += 1;
    }

    fn put(&mut self, slot: Slot<T>) {
        let mask = self.slots.len() - 1;
        let mut at = slot.hash as usize & mask;
        while self.slots[at].ix.is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Removes a handle; those behind it close the gap, so that no search ever stops too early.
    pub(in crate::engine) fn remove(&mut self, hash: u32, ix: Ix<T>) {
        let mask = self.slots.len() - 1;
        let mut gap = hash as usize & mask;
        while self.slots[gap].ix != Some(ix) {
            assert!(self.slots[gap].ix.is_some(), "a removed handle is in the table");
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            if self.slots[at].ix.is_none() {
                break;
            }
            let home = self.slots[at].hash as usize & mask;
            // It may move to the gap only if its home does not lie between the gap and itself.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
        }
        self.slots[gap] = Slot::EMPTY;
        self.len -= 1;
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.len
    }
}

/// Mixes numbers by folded multiplication.
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
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

    fn write_u32(&mut self, number: u32) {
        self.mix(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    /// Which variant of an enum it is, a missing handle among them.
    fn write_isize(&mut self, number: isize) {
        self.mix(number as u64);
    }

    fn write_u128(&mut self, number: u128) {
        self.mix(number as u64 ^ (number >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
