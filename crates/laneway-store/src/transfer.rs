//! Copies a whole store into an empty one of the other sort: from a data directory to PostgreSQL, and back.
//!
//! Both sorts have the same tables. No server may use either of them meanwhile. The copy appears as a whole or not at all: in
//! PostgreSQL it is one transaction, and a data directory gets a file that was checked. The rows of every table are counted on
//! both sides.

mod from_postgres;
mod from_sqlite;
mod rows;

use crate::{StoreAddress, StoreError};

/// How far a copy is.
#[derive(Clone, Copy, Debug)]
pub struct TransferProgress {
    /// What is copied or checked now.
    pub stage: &'static str,
    /// Rows so far, of all tables.
    pub done: u64,
    /// Rows in all.
    pub total: u64,
}

/// A table that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableCopied {
    /// Its name.
    pub table: &'static str,
    /// How many rows both sides have.
    pub rows: u64,
}

/// Copies all tables of the store `from` into the store `to`, which must be empty.
pub fn transfer(
    from: &StoreAddress,
    to: &StoreAddress,
    progress: &mut dyn FnMut(TransferProgress),
) -> Result<Vec<TableCopied>, StoreError> {
    match (from, to) {
        (StoreAddress::Directory(dir), StoreAddress::Postgres(url)) => from_sqlite::copy(dir, url, progress),
        (StoreAddress::Postgres(url), StoreAddress::Directory(dir)) => {
            from_postgres::copy(url, dir, progress)
        }
        (StoreAddress::Directory(_), StoreAddress::Directory(_)) => Err(StoreError::Unusable(
            "both stores are data directories; use `laneway backup` and `laneway restore`".into(),
        )),
        (StoreAddress::Postgres(_), StoreAddress::Postgres(_)) => {
            Err(StoreError::Unusable("both stores are in PostgreSQL; use pg_dump and pg_restore".into()))
        }
    }
}

/// The tables that are copied, each with the columns of its key. Indexes of lists are made anew.
const TABLES: &[(&str, &str)] = &[
    ("lane", "number"),
    ("job", "seq"),
    ("payload", "seq"),
    ("live_chunk", "chunk"),
    ("open_attempt", "seq"),
    ("attempt", "seq, attempt"),
    ("done", "ended"),
    ("idempotency", "tenant, key"),
    ("log", "seq, line"),
    ("event_batch", "first"),
    ("token", "id"),
    ("session", "tenant, key"),
    ("merged", "leader, seq"),
    ("schedule", "id"),
    ("schedule_payload", "id"),
    ("schedule_slot", "schedule, slot"),
    ("firing_log", "number"),
    ("firing_count", "schedule"),
    ("delivery", "seq"),
    ("delivery_try", "seq, number"),
    ("run", "first"),
    ("run_definition", "seq"),
    ("run_call", "target"),
    ("kept_key", "job, position"),
    ("record", "tenant, collection, id"),
];

/// The columns of the only row of table `server_state` that both sorts have.
const STATE: &str = "last_seq, last_ended, pruned_event, pruned_hash, overrides, clock_seen";
