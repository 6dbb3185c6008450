//! Moves pages from the write-ahead log into the database, between commits, by the one connection that writes.

use std::time::Duration;

use rusqlite::Connection;

use super::open::BUSY;
use crate::StoreError;

/// Pages (4 KiB each) in the log after which a checkpoint is made: a compromise between many small ones and long pauses.
const PAGES_DUE: i64 = 4_000;
/// How often the size of the log is read, in commits. A commit writes a few hundred pages at most, and a read is not
/// cheap: it drops pages from the cache.
const LOOK_EVERY: u32 = 16;
/// Bytes of payloads and results after which the size of the log is read, whatever the number of commits.
const LOOK_BYTES: usize = 2 << 20;
/// Pages in the log at which readers are waited for, so that it can begin anew: 256 MiB. Until then a checkpoint waits
/// for no reader, and readers that always overlap may keep the log from beginning anew.
const PAGES_MANY: i64 = 64_000;
/// How long readers are waited for. Every commit waits as long, so it is short; the next try comes after as many pages.
const PATIENCE: Duration = Duration::from_millis(100);

/// When to checkpoint.
pub(super) struct Checkpoints {
    due: i64,
    many: i64,
    look_every: u32,
    /// Commits since the size of the log was last read.
    unseen: u32,
    /// Bytes of payloads and results in those commits.
    unseen_bytes: usize,
    /// Pages in the log when a checkpoint was last tried.
    tried_at: i64,
}

/// How far the log is.
struct Log {
    /// Pages in the log.
    pages: i64,
    /// How many of them are in the database already.
    moved: i64,
}

impl Default for Checkpoints {
    fn default() -> Checkpoints {
        Checkpoints {
            due: PAGES_DUE,
            many: PAGES_MANY,
            look_every: LOOK_EVERY,
            unseen: 0,
            unseen_bytes: 0,
            tried_at: 0,
        }
    }
}

impl Checkpoints {
    /// Checkpoints when the log has grown enough; `number` is called before, to write down that one begins. True: one was
    /// made and everything is in the database. An error is as bad as one of the commit itself: its fsync may have lost
    /// pages.
    pub fn after_commit(
        &mut self,
        conn: &Connection,
        bytes: usize,
        number: impl FnOnce(&Connection) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        self.unseen += 1;
        self.unseen_bytes += bytes;
        if self.unseen < self.look_every && self.unseen_bytes < LOOK_BYTES {
            return Ok(false);
        }
        (self.unseen, self.unseen_bytes) = (0, 0);
        let log = state(conn, "PRAGMA wal_checkpoint(NOOP)")?;
        if log.pages < self.tried_at {
            // The log has begun anew.
            self.tried_at = 0;
        }
        if log.pages - log.moved.max(self.tried_at) < self.due {
            return Ok(false);
        }
        self.tried_at = log.pages;
        number(conn)?;
        if log.pages < self.many {
            return Ok(state(conn, "PRAGMA wal_checkpoint(PASSIVE)")?.is_moved());
        }
        conn.busy_timeout(PATIENCE)?;
        let log = state(conn, "PRAGMA wal_checkpoint(RESTART)")?;
        conn.busy_timeout(BUSY)?;
        Ok(log.is_moved())
    }
}

impl Log {
    /// Is everything in the database?
    pub fn is_moved(&self) -> bool {
        self.moved >= self.pages
    }
}

/// Moves everything; the log stays. False: a reader is in the way.
pub(super) fn full(conn: &Connection) -> Result<bool, StoreError> {
    Ok(state(conn, "PRAGMA wal_checkpoint(FULL)")?.is_moved())
}

/// Moves everything and empties the log. False: a reader is in the way.
pub(super) fn truncate(conn: &Connection) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
    let busy: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(busy == 0)
}

/// How many frames SQLite reads from the log.
pub(super) fn frames(conn: &Connection) -> Result<u64, StoreError> {
    Ok(state(conn, "PRAGMA wal_checkpoint(NOOP)")?.pages.max(0).cast_unsigned())
}

fn state(conn: &Connection, pragma: &str) -> Result<Log, StoreError> {
    let mut statement = conn.prepare_cached(pragma)?;
    Ok(statement.query_row([], |row| Ok(Log { pages: row.get(1)?, moved: row.get(2)? }))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &tempfile::TempDir) -> Connection {
        let conn = Connection::open(dir.path().join("db")).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
        conn
    }

    fn write(conn: &Connection, checkpoints: &mut Checkpoints) -> i64 {
        conn.execute("INSERT INTO t VALUES (zeroblob(4000))", []).unwrap();
        checkpoints.after_commit(conn, 0, |_| Ok(())).unwrap();
        state(conn, "PRAGMA wal_checkpoint(NOOP)").unwrap().pages
    }

    #[test]
    fn the_log_begins_anew_when_it_is_long_enough() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open(&dir);
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        let mut checkpoints = Checkpoints { due: 20, many: 1_000, look_every: 1, ..Checkpoints::default() };
        let longest = (0..100).map(|_| write(&conn, &mut checkpoints)).max().unwrap();
        assert!((20..40).contains(&longest), "{longest} pages");
    }

    #[test]
    fn a_reader_that_stays_stops_neither_writes_nor_the_log_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open(&dir);
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        let mut checkpoints = Checkpoints { due: 20, many: 60, look_every: 1, ..Checkpoints::default() };
        let reader = open(&dir);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let grown = (0..60).map(|_| write(&conn, &mut checkpoints)).max().unwrap();
        assert!(grown > 100, "the reader keeps the log: {grown} pages");
        reader.execute_batch("ROLLBACK").unwrap();
        let last = (0..30).map(|_| write(&conn, &mut checkpoints)).last().unwrap();
        assert!(last < grown, "{last} pages after {grown}");
    }
}
