//! Which jobs are live, in memory and in the table `live_chunk`.
//!
//! A job's row stays where it was inserted when the job ends, so something else must say which jobs are live. One bit a
//! job does: a commit of a thousand submits writes one or two small rows, and a start reads a few thousand. In memory
//! each live job also has the retention bucket of its end, which saves a look into its row.

use std::collections::{BTreeMap, BTreeSet};

use laneway_core::Seq;

use crate::StoreError;

/// Jobs a chunk. The table's check knows it, too: 128 bytes.
pub(crate) const CHUNK: u64 = 1024;
/// Bytes of a row.
pub(crate) const BYTES: usize = CHUNK as usize / 8;

/// Not live.
const GONE: u16 = 0;
/// Live; the bucket is not known.
const UNKNOWN: u16 = 1;
/// Live, in the bucket of members.
const MEMBER: u16 = 2;
/// Live, in bucket 0; higher marks are higher buckets.
const FIRST_BUCKET: u16 = 3;

/// The bucket of all members of runs.
pub(crate) const MEMBERS: i64 = -1;

type Marks = [u16; CHUNK as usize];

/// Which jobs are live, and the retention bucket of each.
#[derive(Default)]
pub(crate) struct Live {
    chunks: BTreeMap<u64, Box<Marks>>,
    dirty: BTreeSet<u64>,
    undo: Vec<(Seq, u16)>,
}

/// What is known of a live job's retention bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bucket {
    /// Its number.
    Known(i64),
    /// The job's row says so.
    Unknown,
}

/// The live jobs of one chunk, as they were.
pub(crate) struct LiveChunk {
    chunk: u64,
    bits: [u8; BYTES],
}

impl LiveChunk {
    /// A row of the table.
    pub fn of_row(chunk: u64, bits: &[u8]) -> Result<LiveChunk, StoreError> {
        let bits = bits.try_into().map_err(|_| wrong_length())?;
        Ok(LiveChunk { chunk, bits })
    }

    /// The first number of the chunk.
    pub fn first(&self) -> Seq {
        Seq(self.chunk * CHUNK)
    }

    /// Was this job of the chunk live?
    pub fn has(&self, seq: Seq) -> bool {
        let (chunk, at) = position(seq);
        chunk == self.chunk && self.bits[at / 8] >> (at % 8) & 1 == 1
    }

    /// The live jobs, ascending.
    pub fn jobs(&self) -> Vec<Seq> {
        let first = self.first().0;
        (first..first + CHUNK).map(Seq).filter(|seq| self.has(*seq)).collect()
    }
}

impl Live {
    /// Takes in a row of the table.
    pub fn read_chunk(&mut self, chunk: u64, bits: &[u8]) -> Result<(), StoreError> {
        if bits.len() != BYTES {
            return Err(wrong_length());
        }
        let mut marks = Box::new([GONE; CHUNK as usize]);
        for (at, mark) in marks.iter_mut().enumerate() {
            *mark = u16::from(bits[at / 8] >> (at % 8) & 1);
        }
        self.chunks.insert(chunk, marks);
        Ok(())
    }

    /// The bucket of a live job; `None`: it is not live.
    pub fn get(&self, seq: Seq) -> Option<Bucket> {
        let (chunk, at) = position(seq);
        match self.chunks.get(&chunk)?[at] {
            GONE => None,
            UNKNOWN => Some(Bucket::Unknown),
            MEMBER => Some(Bucket::Known(MEMBERS)),
            mark => Some(Bucket::Known(i64::from(mark - FIRST_BUCKET))),
        }
    }

    /// The job is live, and this is its bucket.
    pub fn add(&mut self, seq: Seq, bucket: i64) {
        self.set(seq, mark_of(bucket));
    }

    /// The job has ended.
    pub fn remove(&mut self, seq: Seq) {
        self.set(seq, GONE);
    }

    /// A live job's bucket has become known. Not a change: nothing is written and nothing can be undone.
    pub fn learn(&mut self, seq: Seq, bucket: i64) {
        let (chunk, at) = position(seq);
        if let Some(marks) = self.chunks.get_mut(&chunk)
            && marks[at] == UNKNOWN
        {
            marks[at] = mark_of(bucket);
        }
    }

    /// The rows of all chunks that changed; `None`: the row goes.
    pub fn changed(&self) -> impl Iterator<Item = (u64, Option<[u8; BYTES]>)> {
        self.dirty.iter().map(|chunk| (*chunk, self.chunks.get(chunk).and_then(|marks| bits_of(marks))))
    }

    /// The changes so far are committed.
    pub fn committed(&mut self) {
        self.undo.clear();
        while let Some(chunk) = self.dirty.pop_first() {
            if self.chunks.get(&chunk).is_some_and(|marks| marks.iter().all(|mark| *mark == GONE)) {
                self.chunks.remove(&chunk);
            }
        }
    }

    /// The changes so far are rolled back.
    pub fn rolled_back(&mut self) {
        while let Some((seq, mark)) = self.undo.pop() {
            let (chunk, at) = position(seq);
            if let Some(marks) = self.chunks.get_mut(&chunk) {
                marks[at] = mark;
            }
        }
        self.dirty.clear();
    }

    /// All chunks with a live job, ascending.
    pub fn chunks(&self) -> Vec<LiveChunk> {
        let chunks = self.chunks.iter();
        chunks.filter_map(|(chunk, marks)| Some(LiveChunk { chunk: *chunk, bits: bits_of(marks)? })).collect()
    }

    fn set(&mut self, seq: Seq, mark: u16) {
        let (chunk, at) = position(seq);
        let marks = self.chunks.entry(chunk).or_insert_with(|| Box::new([GONE; CHUNK as usize]));
        self.undo.push((seq, marks[at]));
        marks[at] = mark;
        self.dirty.insert(chunk);
    }
}

fn wrong_length() -> StoreError {
    StoreError::Damaged("a row of table live_chunk has the wrong length".into())
}

fn position(seq: Seq) -> (u64, usize) {
    (seq.0 / CHUNK, (seq.0 % CHUNK) as usize)
}

fn mark_of(bucket: i64) -> u16 {
    if bucket == MEMBERS {
        return MEMBER;
    }
    u16::try_from(bucket).ok().and_then(|bucket| bucket.checked_add(FIRST_BUCKET)).unwrap_or(UNKNOWN)
}

/// One bit for each live job; `None` when there is none.
fn bits_of(marks: &Marks) -> Option<[u8; BYTES]> {
    let mut bits = [0; BYTES];
    for (byte, marks) in bits.iter_mut().zip(marks.chunks_exact(8)) {
        for (at, mark) in marks.iter().enumerate() {
            *byte |= u8::from(*mark != GONE) << at;
        }
    }
    (bits != [0; BYTES]).then_some(bits)
}
