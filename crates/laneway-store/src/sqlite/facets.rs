//! The indexes of lists: for each state, name and word, the set of jobs that have it.
//!
//! Jobs are divided into chunks by their numbers. A list intersects the sets of its filter, chunk by chunk from the newest one
//! back: a few thousand bytes for each 16,384 jobs, whatever the filter is, and no job is read that the list does not show. The
//! number of jobs that a filter matches is the size of the same sets. `docs/decisions/0019-lists.md` has the reasons.
//!
//! The sets are derived: `build.rs` makes them from the tables of jobs, and `verify.rs` compares them.

mod bits;
pub(super) mod build;
mod count;
mod ends;
mod list;
mod names;
mod plan;
mod times;
pub(super) mod verify;
mod write;

pub(super) use count::count;
pub(super) use list::list;
pub(super) use write::{Facets, remove, write};

use laneway_core::{JobState, Seq};

use bits::CHUNK;

/// What jobs of a set have in common. The codes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(super) enum Dimension {
    /// The number is the code of the state, or [`ALL_JOBS`].
    State = 0,
    /// The number is the code of the reason of the end.
    Reason = 1,
    Tenant = 2,
    /// The number is that of table `lane`.
    Lane = 3,
    Kind = 4,
    Agent = 5,
    Session = 6,
    Tag = 7,
    ErrorCode = 8,
    Word = 9,
}

/// The number of the set of all jobs, beside those of the states.
const ALL_JOBS: i64 = JobState::ALL.len() as i64;
/// Bits of a number in a key.
const NUMBER_BITS: u32 = 33;
/// Bits of dimension and number in a key.
const FACET_BITS: u32 = 37;

/// A dimension and a number: a key without its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Facet(i64);

impl Facet {
    fn new(dimension: Dimension, number: i64) -> Facet {
        Facet((i64::from(dimension as u8) << NUMBER_BITS) | (number & ((1 << NUMBER_BITS) - 1)))
    }

    fn state(state: JobState) -> Facet {
        Facet::new(Dimension::State, state.code().into())
    }

    fn all() -> Facet {
        Facet::new(Dimension::State, ALL_JOBS)
    }

    /// Its key in a chunk.
    fn key(self, chunk: u64) -> i64 {
        (chunk.cast_signed() << FACET_BITS) | self.0
    }

    /// The number of table `facet_name` in a key, if it has one.
    fn name_of(key: i64) -> Option<i64> {
        let dimension = (key >> NUMBER_BITS) & 15;
        (dimension > i64::from(Dimension::Reason as u8) && dimension != i64::from(Dimension::Lane as u8))
            .then_some(number_of(key))
    }
}

fn number_of(key: i64) -> i64 {
    key & ((1 << NUMBER_BITS) - 1)
}

fn chunk_of(seq: Seq) -> u64 {
    seq.0 / CHUNK
}

fn place_of(seq: Seq) -> u16 {
    (seq.0 % CHUNK) as u16
}

fn seq_at(chunk: u64, place: u16) -> Seq {
    Seq(chunk * CHUNK + u64::from(place))
}
