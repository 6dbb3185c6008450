//! Sets of jobs within a chunk, in memory and as they are stored.
//!
//! A small set is stored as the places of its jobs in the chunk, two bytes each, ascending. A large one has a bit for each place.
//! The length of the stored form tells which one it is.

use crate::StoreError;

/// Jobs a chunk. A set with a bit for each fits into a page of 4 KiB, so that no set needs a second page.
pub(super) const CHUNK: u64 = 16_384;
const WORDS: usize = CHUNK as usize / 64;
/// Bytes of the form with a bit for each place.
const DENSE_LEN: usize = CHUNK as usize / 8;

/// A set of places in a chunk.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bits([u64; WORDS]);

impl Default for Bits {
    fn default() -> Bits {
        Bits([0; WORDS])
    }
}

impl Bits {
    /// All places before `end`.
    pub fn before(end: u64) -> Bits {
        let mut bits = Bits::default();
        let end = end.min(CHUNK) as usize;
        bits.0[..end / 64].fill(u64::MAX);
        if !end.is_multiple_of(64) {
            bits.0[end / 64] = (1 << (end % 64)) - 1;
        }
        bits
    }

    /// Reads a stored set.
    pub fn read(stored: &[u8]) -> Result<Bits, StoreError> {
        let mut bits = Bits::default();
        bits.add(stored)?;
        Ok(bits)
    }

    /// Adds a stored set.
    pub fn add(&mut self, stored: &[u8]) -> Result<(), StoreError> {
        if stored.len() == DENSE_LEN {
            for (word, bytes) in self.0.iter_mut().zip(stored.chunks_exact(8)) {
                *word |= u64::from_le_bytes(bytes.try_into().expect("chunks have eight bytes"));
            }
            return Ok(());
        }
        if !stored.len().is_multiple_of(2) || stored.len() > DENSE_LEN {
            return Err(StoreError::Damaged("a set of table facet has the wrong length".into()));
        }
        for place in stored.chunks_exact(2) {
            self.insert(u16::from_le_bytes([place[0], place[1]]));
        }
        Ok(())
    }

    /// The form to store.
    pub fn write(&self) -> Vec<u8> {
        if self.count() as usize * 2 >= DENSE_LEN {
            return self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        }
        let mut stored = Vec::with_capacity(self.count() as usize * 2);
        for (index, word) in self.0.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                let place = index as u16 * 64 + word.trailing_zeros() as u16;
                stored.extend_from_slice(&place.to_le_bytes());
                word &= word - 1;
            }
        }
        stored
    }

    pub fn insert(&mut self, place: u16) {
        self.0[usize::from(place) / 64 % WORDS] |= 1 << (place % 64);
    }

    pub fn remove(&mut self, place: u16) {
        self.0[usize::from(place) / 64 % WORDS] &= !(1 << (place % 64));
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many places are in this set and in a stored one. Most stored sets are small, and are not decoded.
    pub fn count_common(&self, stored: &[u8]) -> u64 {
        if stored.len() == DENSE_LEN {
            let words = stored.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
            return self
                .0
                .iter()
                .zip(words)
                .map(|(left, right)| u64::from((left & right).count_ones()))
                .sum();
        }
        let places = stored.chunks_exact(2).map(|place| u16::from_le_bytes([place[0], place[1]]));
        places.filter(|place| self.0[usize::from(*place) / 64 % WORDS] & (1 << (place % 64)) != 0).count()
            as u64
    }

    pub fn keep(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
    }

    pub fn join(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    /// Removes the places of a block of 256.
    pub fn clear_block(&mut self, block: usize) {
        self.0[block * 4..block * 4 + 4].fill(0);
    }

    /// The places, from the last to the first.
    pub fn descending(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().enumerate().rev().flat_map(|(index, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = 63u32.checked_sub(word.leading_zeros())?;
                word ^= 1 << bit;
                Some(index as u16 * 64 + bit as u16)
            })
        })
    }
}

/// Adds places, ascending, to a stored set. New jobs have the highest places: most sets grow at their end, without being decoded.
pub(super) fn extend(stored: &mut Vec<u8>, places: &[u16]) -> Result<(), StoreError> {
    let Some(first) = places.first() else { return Ok(()) };
    let grows = match stored.last_chunk::<2>() {
        Some(last) => stored.len() < DENSE_LEN && u16::from_le_bytes(*last) < *first,
        None => true,
    };
    if grows && stored.len() + places.len() * 2 < DENSE_LEN {
        let mut last = None;
        for place in places.iter().filter(|place| last.replace(**place) != Some(**place)) {
            stored.extend_from_slice(&place.to_le_bytes());
        }
        return Ok(());
    }
    if stored.len() == DENSE_LEN {
        for place in places {
            stored[usize::from(*place) / 8 % DENSE_LEN] |= 1 << (place % 8);
        }
        return Ok(());
    }
    let mut bits = Bits::read(stored)?;
    places.iter().for_each(|place| bits.insert(*place));
    *stored = bits.write();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(bits: &Bits) -> Vec<u16> {
        let mut places: Vec<u16> = bits.descending().collect();
        places.reverse();
        places
    }

    #[test]
    fn sets_come_back_small_and_large() {
        for step in [1, 3, 15, 16, 17, 500] {
            let all: Vec<u16> = (0..CHUNK as u16).step_by(step).collect();
            let mut stored = Vec::new();
            for part in all.chunks(37) {
                extend(&mut stored, part).unwrap();
            }
            let bits = Bits::read(&stored).unwrap();
            assert_eq!((places(&bits), bits.count()), (all.clone(), all.len() as u64), "step {step}");
            assert_eq!(Bits::read(&bits.write()).unwrap().write(), bits.write());
            assert!(stored.len() <= DENSE_LEN);
            let half = Bits::before(CHUNK / 2);
            let common = all.iter().filter(|place| u64::from(**place) < CHUNK / 2).count() as u64;
            assert_eq!(half.count_common(&stored), common, "step {step}");
            // In any other order.
            let mut stored = Vec::new();
            for place in all.iter().rev() {
                extend(&mut stored, &[*place, *place]).unwrap();
            }
            assert!(Bits::read(&stored).unwrap() == bits, "step {step}");
        }
    }

    #[test]
    fn places_before_an_end_and_blocks() {
        for end in [0, 1, 63, 64, 65, 16_383, 16_384, 99_999] {
            assert_eq!(Bits::before(end).count(), end.min(CHUNK), "{end}");
        }
        let mut bits = Bits::before(CHUNK);
        bits.clear_block(63);
        assert_eq!(bits.count(), CHUNK - 256);
        assert_eq!(bits.descending().next(), Some(16_127));
        assert!(Bits::read(&[1, 2, 3]).is_err());
    }
}
