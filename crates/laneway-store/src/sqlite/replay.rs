//! Writes commits of the log to tables that lack them: after a crash, and to a backup.

use std::sync::Arc;

use rusqlite::Connection;

use super::pending::Commit;
use super::tables::Tables;
use crate::StoreError;
use crate::log::Logged;
use crate::rows::Interner;

/// Changes that are written in one transaction.
const CHANGES: usize = 8 * 1_024;

/// The tables, and commits that are written to them together.
pub(super) struct Replay {
    tables: Tables,
    names: Interner,
    commits: Vec<Arc<Commit>>,
    changes: usize,
}

impl Replay {
    /// Begins with the tables as they are.
    pub fn new(tables: Tables) -> Replay {
        Replay { tables, names: Interner::default(), commits: Vec::new(), changes: 0 }
    }

    /// Takes the next commit of the log.
    pub fn take(&mut self, logged: &Logged<'_>) -> Result<(), StoreError> {
        let commit = self.decode(logged)?;
        self.add(commit)
    }

    /// Reads a commit of the log.
    pub fn decode(&mut self, logged: &Logged<'_>) -> Result<Commit, StoreError> {
        Commit::decode(logged, &mut self.names)
    }

    /// Takes the next commit.
    pub fn add(&mut self, commit: Commit) -> Result<(), StoreError> {
        self.changes += commit.changes.len();
        self.commits.push(Arc::new(commit));
        if self.changes >= CHANGES { self.write() } else { Ok(()) }
    }

    /// The number of the last commit that was taken.
    pub fn last(&self) -> u64 {
        self.commits.last().map_or(self.tables.stored, |commit| commit.number)
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if self.commits.is_empty() {
            return Ok(());
        }
        self.tables.store(&self.commits)?;
        self.commits.clear();
        self.changes = 0;
        self.tables.checkpoint_if_due(usize::MAX).map(drop)
    }

    /// Writes what is left, and gives the tables back.
    pub fn finish_tables(mut self) -> Result<Tables, StoreError> {
        self.write()?;
        Ok(self.tables)
    }

    /// Writes what is left, and gives the connection back.
    pub fn finish(self) -> Result<Connection, StoreError> {
        Ok(self.finish_tables()?.conn)
    }
}
