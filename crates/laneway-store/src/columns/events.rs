//! Batches of events: their columns, the chain of hashes over them, and pages of them.

use laneway_core::{Event, Wall};
use sha2::{Digest, Sha256};

use super::{Columns, number};
use crate::codec::{EventReader, EventWriter};
use crate::rows::stored_digest;
use crate::store::ROWS_SCANNED_MAX;
use crate::{EventFilter, Page, StoreError};

/// The columns that [`read_batch`] reads, in its order.
pub(crate) const BATCH: &str = "first, count, bytes";

/// Batches that one step of the check of the chain reads.
pub(crate) const VERIFIED_AT_ONCE: usize = 256;

/// The events of a batch, from the columns [`BATCH`].
pub(crate) fn read_batch(row: &impl Columns) -> Result<EventReader<'_>, StoreError> {
    EventReader::new(row.get_ref(2)?.as_blob()?, number(row, 0)?, number(row, 1)?)
}

/// A page while it fills.
pub(crate) struct PageOfEvents<'a> {
    filter: &'a EventFilter,
    limit: usize,
    items: Vec<Event>,
    looked_at: usize,
    last: Option<u64>,
}

impl<'a> PageOfEvents<'a> {
    /// An empty page.
    pub fn new(filter: &'a EventFilter, limit: usize) -> PageOfEvents<'a> {
        PageOfEvents { filter, limit: limit.max(1), items: Vec::new(), looked_at: 0, last: None }
    }

    /// Processes one more event. False: the page was full before it.
    pub fn take(&mut self, event: Event) -> bool {
        if self.items.len() >= self.limit || self.looked_at >= ROWS_SCANNED_MAX {
            return false;
        }
        self.looked_at += 1;
        self.last = Some(event.number);
        if self.filter.matches(&event) {
            self.items.push(event);
        }
        true
    }

    /// There are more.
    pub fn full(self) -> Page<Event> {
        Page { items: self.items, next: self.last }
    }

    /// The list has ended.
    pub fn ended(self) -> Page<Event> {
        Page { items: self.items, next: None }
    }
}

/// Event numbers have no gaps, so that a reader knows that it has seen everything.
pub(crate) fn check_numbers(last: u64, events: &[Event]) -> Result<(), StoreError> {
    match events.iter().zip(last + 1..).find(|(event, number)| event.number != *number) {
        None => Ok(()),
        Some((event, number)) => {
            Err(StoreError::Disagree(format!("event {} comes where {number} must", event.number)))
        }
    }
}

/// One link of the chain over all event batches.
pub(crate) fn next_hash(previous: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(previous).chain_update(bytes).finalize().into()
}

/// The events of one commit, in the form that is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventBytes {
    /// The number of the first one.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// The latest time among them.
    pub at: Wall,
    /// Their form.
    pub bytes: Box<[u8]>,
}

impl EventBytes {
    /// Encodes the events of a commit; `None`: there are none.
    pub fn of(writer: &mut EventWriter, events: &[Event]) -> Option<EventBytes> {
        let (first, at) = (events.first()?.number, events.iter().map(|event| event.at).max()?);
        Some(EventBytes { first, count: events.len() as u64, at, bytes: writer.write(events).into() })
    }
}

/// Where the check of the chain stands: the event that must come next, and the hash before its batch.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub next: u64,
    pub hash: [u8; 32],
}

impl Link {
    /// The oldest link, from the columns `pruned_event` and `pruned_hash`.
    pub fn oldest(row: &impl Columns) -> Result<Link, StoreError> {
        Ok(Link { next: number(row, 0)? + 1, hash: stored_digest(row.get_ref(1)?.as_blob()?)? })
    }

    /// Checks the next batch, from the columns [`BATCH`] and `hash`: it must follow, and be what was written.
    pub fn follow(&mut self, row: &impl Columns) -> Result<(), StoreError> {
        let first = number(row, 0)?;
        if first != self.next {
            return Err(StoreError::Damaged(format!("events from {} on are missing", self.next)));
        }
        self.hash = next_hash(&self.hash, row.get_ref(2)?.as_blob()?);
        if self.hash != stored_digest(row.get_ref(3)?.as_blob()?)? {
            return Err(StoreError::Damaged(format!("events from {first} on are not what was written")));
        }
        for event in read_batch(row)? {
            event?;
            self.next += 1;
        }
        Ok(())
    }
}
