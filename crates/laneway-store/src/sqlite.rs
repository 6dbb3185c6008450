//! The store in SQLite: one file, one writer, durable before it answers.
//!
//! One connection both writes and checkpoints; readers are read-only and see committed state. A commit is one
//! transaction with one fsync. After a commit, fsync or checkpoint that failed, the store rejects everything: what is on
//! disk is not known, and only a fresh start finds out.

mod attempts;
pub mod check;
mod checkpoint;
mod columns;
mod commit;
pub mod copy;
mod deliveries;
mod epoch;
mod events;
pub mod files;
mod firing_log;
mod live;
mod load;
mod lock;
mod mark;
mod migrate;
mod offline;
mod open;
mod pages;
mod pool;
mod prune;
mod query;
mod runs;
mod schedules;
mod sessions;
mod sums;
mod whole;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, Name, TokenRecord};
use rusqlite::config::DbConfig;
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, ErrorCode, ffi};

use crate::codec::EventWriter;
use crate::{Epoch, Keys, Loaded, Priors, Reader, Store, StoreError};
use checkpoint::Checkpoints;
use live::Live;
use lock::DirLock;
use mark::{LogEnd, Marker};
pub use open::SqliteOptions;
use pool::Pool;
use query::SqliteReader;

/// The store in SQLite. Holds the lock on its data directory for as long as it lives.
pub struct SqliteStore {
    // Fields drop in order: the connection closes before the lock goes.
    conn: Connection,
    pool: Arc<Pool>,
    live: Live,
    numbers: Numbers,
    /// The epoch that this opening took.
    epoch: Epoch,
    lanes: HashMap<Name, i64>,
    events: EventWriter,
    blob: Vec<u8>,
    checkpoints: Checkpoints,
    marker: Marker,
    /// Frames in the log after the last commit, as SQLite reports them.
    frames: Arc<AtomicU64>,
    /// How many checkpoints were begun; the row of table `store_state` has the same number.
    begun: u64,
    failed: Option<String>,
    dir: PathBuf,
    _lock: DirLock,
}

/// The counters of the store, and the end of its chain of hashes.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    /// Highest job number ever stored.
    last_seq: u64,
    /// How many jobs have ended, ever.
    last_ended: u64,
    /// Highest event number ever stored.
    last_event: u64,
    /// Hash of the last event batch.
    hash: [u8; 32],
}

impl SqliteStore {
    /// Opens the store in `dir`; creates both where they are missing.
    pub fn open(dir: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        loop {
            match open::open(dir, options) {
                // A start writes a little. The reserve is given back in halves, so that this ends.
                Err(StoreError::Full(_)) if files::release_reserve(dir) => {}
                other => return other.map_err(|error| files::name_full(dir, error)),
            }
        }
    }

    /// Writes down that the commit that just returned is durable.
    fn mark_commit(&mut self) {
        self.marker.committed(&self.numbers, self.frames.load(Ordering::Relaxed), self.begun);
    }

    /// Checkpoints when the log has grown enough.
    fn checkpoint_if_due(&mut self, bytes: usize) -> Result<(), StoreError> {
        let (numbers, marker, begun, frames) =
            (&self.numbers, &mut self.marker, &mut self.begun, &self.frames);
        // The number is in the log before its checkpoint, so the database never has a higher one than the log.
        let number = |conn: &Connection| {
            let sql = "UPDATE store_state SET checkpoints = ?1";
            let numbered = conn.prepare_cached(sql)?.execute([(*begun + 1).cast_signed()]);
            numbered.map_err(at_commit)?;
            marker.committed(numbers, frames.load(Ordering::Relaxed), *begun);
            *begun += 1;
            Ok(())
        };
        match self.checkpoints.after_commit(&self.conn, bytes, number) {
            Ok(true) => self.marker.moved(self.begun),
            // Nothing is lost: what does not fit into the database stays in the log until it does.
            Ok(false) | Err(StoreError::Full(_)) => {}
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Finds space on a full disk: first the reserve, then the log, which begins anew once all of it is in the database.
    fn make_space(&mut self) -> bool {
        if files::release_reserve(&self.dir) {
            return true;
        }
        self.move_all().unwrap_or(false)
    }

    /// Moves everything into the database and empties the log. False: a reader is in the way. The mark knows that everything
    /// is there before the log goes, so that a crash at any moment leaves files that belong together.
    fn move_all(&mut self) -> Result<bool, StoreError> {
        if !checkpoint::full(&self.conn)? {
            return Ok(false);
        }
        self.marker.moved(self.begun);
        checkpoint::truncate(&self.conn)
    }

    /// Moves everything into the database, and records there that it is complete without its log.
    fn close_in_order(&mut self) -> Result<bool, StoreError> {
        // In two steps: the row must not be in the database before everything else is.
        if !self.move_all()? {
            return Ok(false);
        }
        self.conn.execute("UPDATE store_state SET closed = 1", [])?;
        if !self.move_all()? {
            return Ok(false);
        }
        let settled = self.marker.settle(&self.numbers, LogEnd::default(), Some((self.begun, self.begun)));
        settled.map_err(|error| StoreError::Failed(format!("cannot write {}: {error}", files::MARK)))?;
        // Where no reader is left, the empty log goes with the last connection.
        self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        Ok(true)
    }

    /// Fails once a commit has failed.
    fn check_well(&self) -> Result<(), StoreError> {
        match &self.failed {
            None => Ok(()),
            Some(why) => Err(StoreError::Failed(format!("it failed before and must be opened anew: {why}"))),
        }
    }
}

impl Store for SqliteStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.check_well()?;
        load::load(self, visit)
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.check_well()?;
        load::counters(self)
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.check_well()?;
        load::tokens(&self.conn)
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.check_well()?;
        load::overrides(&self.conn)
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        self.check_well()?;
        let result = commit::commit(self, epoch, effects);
        if let Err(StoreError::Failed(why) | StoreError::Damaged(why) | StoreError::Full(why)) = &result {
            self.failed = Some(why.clone());
        }
        result
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.check_well()?;
        Ok(Priors {
            jobs: load::priors(&self.conn, &keys.jobs)?,
            runs: runs::priors(&self.conn, &keys.runs)?,
        })
    }

    fn close(&mut self) -> Result<bool, StoreError> {
        self.check_well()?;
        self.pool.close_idle();
        let closed = self.close_in_order();
        self.failed = Some("it was closed".to_owned());
        closed
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(SqliteReader(Arc::clone(&self.pool)))
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Damaged(error.to_string())
            }
            Some(ErrorCode::DiskFull) => StoreError::Full(error.to_string()),
            _ if lacks_index_space(&error) => {
                StoreError::Full(format!("{} cannot be made longer: {error}", files::SHM))
            }
            _ => StoreError::Failed(error.to_string()),
        }
    }
}

/// True when SQLite could not extend its index of the log. It reports that as an I/O error. At a COMMIT the frames may be in the log
/// already.
fn lacks_index_space(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| matches!(code, ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_SHMOPEN))
}

/// An error of a COMMIT. A full disk may be tried again; where only the index of the log could not be made longer, the
/// frames may be in the log already, and what is on disk is not known.
fn at_commit(error: rusqlite::Error) -> StoreError {
    if lacks_index_space(&error) {
        return StoreError::Failed(format!(
            "the disk is full, {} cannot be made longer: {error}; free disk space and start again",
            files::SHM
        ));
    }
    error.into()
}

impl From<FromSqlError> for StoreError {
    fn from(error: FromSqlError) -> StoreError {
        StoreError::Damaged(format!("a column holds something else than it must: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_06_an_index_that_cannot_grow_is_a_full_disk_but_not_at_a_commit() {
        let error = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_SHMOPEN] {
            assert!(matches!(StoreError::from(error(code)), StoreError::Full(_)), "{code}");
        }
        assert!(matches!(StoreError::from(error(ffi::SQLITE_IOERR_WRITE)), StoreError::Failed(_)));
        // The frames may be in the log: a second try could write them twice.
        assert!(matches!(at_commit(error(ffi::SQLITE_IOERR_SHMSIZE)), StoreError::Failed(_)));
        assert!(matches!(at_commit(error(ffi::SQLITE_FULL)), StoreError::Full(_)));
    }
}
