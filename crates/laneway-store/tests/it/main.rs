//! The stores from outside: one suite for all of them, and what is special about SQLite.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agree;
mod benchmark;
mod bit_flips;
mod cluster;
mod copies;
mod disk_faults;
mod killed;
mod lists;
mod memory;
mod ownership;
mod pooler;
mod postgres;
mod postgres_faults;
mod postgres_server;
mod power_cuts;
mod sqlite;
mod test_store;
mod transfers;

use std::path::PathBuf;

use laneway_store::suite::{Fixture, exercise};
use laneway_store::{MemoryStore, SqliteOptions, SqliteStore, Store};

/// A state in memory; every store opened there shares it.
struct MemoryFixture(MemoryStore);

impl Fixture for MemoryFixture {
    fn open(&self) -> Box<dyn Store> {
        Box::new(self.0.reopen())
    }
}

/// A temporary directory for stores.
struct SqliteFixture {
    dir: tempfile::TempDir,
}

impl SqliteFixture {
    fn new() -> SqliteFixture {
        SqliteFixture { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

impl Fixture for SqliteFixture {
    fn open(&self) -> Box<dyn Store> {
        Box::new(SqliteStore::open(&self.path(), SqliteOptions::default()).unwrap())
    }
}

#[test]
fn memory_passes_the_suite() {
    exercise(&|| Box::new(MemoryFixture(MemoryStore::new())));
}

#[test]
fn sqlite_passes_the_suite() {
    exercise(&|| Box::new(SqliteFixture::new()));
}

/// Every store that is opened anew finds commits in the log that the tables lack.
#[test]
fn sqlite_passes_the_suite_when_it_is_killed() {
    exercise(&|| Box::new(killed::KilledFixture(SqliteFixture::new())));
}
