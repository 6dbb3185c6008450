//! The earliest and the latest time of each 256 jobs of a chunk.
//!
//! Jobs are numbered in the order of their submission, so a range of times of submission is a range of blocks, and only its two
//! ends have to be read job by job. Times of ends are less orderly. Deleted jobs do not make a range narrower.

use laneway_core::Wall;

use super::bits::{Bits, CHUNK};
use crate::StoreError;

/// Jobs a block.
pub(super) const BLOCK: usize = 256;
const BLOCKS: usize = CHUNK as usize / BLOCK;
const LEN: usize = BLOCKS * 16;

/// The ranges of times of a chunk's blocks.
#[derive(Clone)]
pub(super) struct Times([(i64, i64); BLOCKS]);

impl Default for Times {
    /// No job has a time.
    fn default() -> Times {
        Times([(i64::MAX, i64::MIN); BLOCKS])
    }
}

impl Times {
    /// Reads the stored form.
    pub fn read(stored: &[u8]) -> Result<Times, StoreError> {
        if stored.len() != LEN {
            return Err(StoreError::Damaged("a row of table facet_times has the wrong length".into()));
        }
        let mut times = Times::default();
        for (range, bytes) in times.0.iter_mut().zip(stored.chunks_exact(16)) {
            let number = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            *range = (number(0), number(8));
        }
        Ok(times)
    }

    /// The form to store.
    pub fn write(&self) -> Vec<u8> {
        self.0.iter().flat_map(|(from, to)| [from.to_le_bytes(), to.to_le_bytes()]).flatten().collect()
    }

    /// A job has this time.
    pub fn put(&mut self, place: u16, time: Wall) {
        let (from, to) = &mut self.0[usize::from(place) / BLOCK % BLOCKS];
        *from = (*from).min(time.0);
        *to = (*to).max(time.0);
    }

    /// True when the time is within the range of its block.
    pub fn covers(&self, place: u16, time: Wall) -> bool {
        let (from, to) = self.0[usize::from(place) / BLOCK % BLOCKS];
        (from..=to).contains(&time.0)
    }

    /// Removes blocks that have no time in the range. Returns the places whose own times must be compared.
    pub fn restrict(&self, jobs: &mut Bits, after: Option<Wall>, before: Option<Wall>) -> Bits {
        let (after, before) = (after.map_or(i64::MIN, |time| time.0), before.map_or(i64::MAX, |time| time.0));
        let mut doubtful = jobs.clone();
        for (block, (from, to)) in self.0.iter().enumerate() {
            if from > to || *to <= after || *from >= before {
                jobs.clear_block(block);
                doubtful.clear_block(block);
            } else if *from > after && *to < before {
                doubtful.clear_block(block);
            }
        }
        doubtful
    }
}
