//! The stores from outside: one suite for all of them, and what is special about SQLite.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agree;
mod figures;
mod memory;
mod sqlite;

use std::path::PathBuf;

use laneway_store::suite::{Place, exercise};
use laneway_store::{MemoryStore, SqliteOptions, SqliteStore, Store};

/// A state in memory; every store opened there shares it.
struct MemoryPlace(MemoryStore);

impl Place for MemoryPlace {
    fn open(&self) -> Box<dyn Store> {
        Box::new(self.0.reopen())
    }
}

/// A directory that goes when the place does.
struct SqlitePlace {
    dir: tempfile::TempDir,
}

impl SqlitePlace {
    fn new() -> SqlitePlace {
        SqlitePlace { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

impl Place for SqlitePlace {
    fn open(&self) -> Box<dyn Store> {
        Box::new(SqliteStore::open(&self.path(), SqliteOptions::default()).unwrap())
    }
}

#[test]
fn memory_passes_the_suite() {
    exercise(&|| Box::new(MemoryPlace(MemoryStore::new())));
}

#[test]
fn sqlite_passes_the_suite() {
    exercise(&|| Box::new(SqlitePlace::new()));
}
