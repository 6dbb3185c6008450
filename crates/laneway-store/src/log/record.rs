//! The form of segments and records.
//!
//! A segment begins with a header of one sector. A record is a head of 32 bytes and its body, padded to whole sectors, so that
//! a write that a power cut tears does not touch the records before it.

use crate::{Epoch, StoreError};

/// Records begin at multiples of this.
pub(super) const RECORD_ALIGN: usize = 512;
const SEGMENT_MAGIC: &[u8; 8] = b"LNWYLOG1";
const RECORD_MAGIC: [u8; 4] = *b"LNWR";

/// Distinguishes the log of one store from all others. The tables have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogId(pub [u8; 16]);

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The log that it belongs to.
    pub id: LogId,
    /// The number of its first record.
    pub first: u64,
    /// The checksum of the record before that.
    pub sum_before: u32,
}

impl SegmentHeader {
    /// Bytes of a header.
    pub const LEN: usize = RECORD_ALIGN;

    /// The form of the header.
    pub fn encode(&self) -> [u8; SegmentHeader::LEN] {
        let mut bytes = [0; SegmentHeader::LEN];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..24].copy_from_slice(&self.id.0);
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.sum_before.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..36]);
        bytes[36..40].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header back; `None`: it is not one.
    pub fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes = bytes.get(..40)?;
        if &bytes[..8] != SEGMENT_MAGIC || bytes[36..40] != crc32fast::hash(&bytes[..36]).to_le_bytes() {
            return None;
        }
        Some(SegmentHeader {
            id: LogId(bytes[8..24].try_into().ok()?),
            first: u64::from_le_bytes(bytes[24..32].try_into().ok()?),
            sum_before: u32::from_le_bytes(bytes[32..36].try_into().ok()?),
        })
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the body.
    pub len: usize,
    /// The checksum of the body, its number and its epoch, continued from the record before.
    pub sum: u32,
    /// Its number.
    pub number: u64,
    /// The epoch of the writer.
    pub epoch: Epoch,
}

impl Head {
    /// Bytes of a head.
    pub const LEN: usize = 32;

    /// Completes a record: `record` has space for the head, then the body. Pads it, and returns its checksum.
    pub fn seal(
        record: &mut Vec<u8>,
        id: LogId,
        number: u64,
        epoch: Epoch,
        before: u32,
    ) -> Result<u32, StoreError> {
        let len = record.len() - Head::LEN;
        let stored_len = u32::try_from(len)
            .map_err(|_| StoreError::Rejected(format!("a commit of {len} bytes is too large")))?;
        let sum = Head::sum_of(before, number, epoch, &record[Head::LEN..]);
        record[..4].copy_from_slice(&RECORD_MAGIC);
        record[8..12].copy_from_slice(&stored_len.to_le_bytes());
        record[12..16].copy_from_slice(&sum.to_le_bytes());
        record[16..24].copy_from_slice(&number.to_le_bytes());
        record[24..32].copy_from_slice(&epoch.0.to_le_bytes());
        let head_sum = Head::head_sum(id, &record[8..32]);
        record[4..8].copy_from_slice(&head_sum.to_le_bytes());
        record.resize(record.len().next_multiple_of(RECORD_ALIGN), 0);
        Ok(sum)
    }

    /// Reads a head back; `None`: it is not one of this log.
    pub fn decode(id: LogId, bytes: &[u8]) -> Option<Head> {
        let bytes = bytes.get(..Head::LEN)?;
        if bytes[..4] != RECORD_MAGIC || bytes[4..8] != Head::head_sum(id, &bytes[8..32]).to_le_bytes() {
            return None;
        }
        let small = |at: usize| Some(u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?));
        let large = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        Some(Head {
            len: usize::try_from(small(8)?).ok()?,
            sum: small(12)?,
            number: large(16)?,
            epoch: Epoch(large(24)?),
        })
    }

    /// Is this the body of the record, after the record with the checksum `before`?
    pub fn fits(&self, before: u32, body: &[u8]) -> bool {
        self.sum == Head::sum_of(before, self.number, self.epoch, body)
    }

    fn sum_of(before: u32, number: u64, epoch: Epoch, body: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        hasher.update(&number.to_le_bytes());
        hasher.update(&epoch.0.to_le_bytes());
        hasher.update(body);
        hasher.finalize()
    }

    fn head_sum(id: LogId, fields: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&id.0);
        hasher.update(fields);
        hasher.finalize()
    }
}
