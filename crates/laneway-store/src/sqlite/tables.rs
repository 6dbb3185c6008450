//! The tables: one connection that writes them, and what is kept of them in memory.
//!
//! They are written behind the commit log, many commits in one transaction, by one thread at a time. A transaction is not
//! synced: after a power cut the tables are as some transaction left them, and the log has the rest. A checkpoint syncs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::Name;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

use super::checkpoint::{self, Checkpoints};
use super::facets::Facets;
use super::mark::Marker;
use super::pending::Commit;
use super::{at_commit, commit, files, lacks_index_space, live, open, row_sums};
use crate::StoreError;
use crate::live::Live;

/// How often space is looked for: the reserve is given back in halves, and then there is the write-ahead log.
const SPACE_TRIES: u32 = 32;

/// The tables.
pub(super) struct Tables {
    pub conn: Connection,
    pub live: Live,
    pub numbers: Numbers,
    pub lanes: HashMap<Name, i64>,
    /// The indexes of lists.
    pub facets: Facets,
    /// A buffer for the forms of columns.
    pub blob: Vec<u8>,
    /// The last commit of the log that is written here.
    pub stored: u64,
    /// `None`: a file on its own, without a write-ahead log.
    marker: Option<Arc<Mutex<Marker>>>,
    checkpoints: Checkpoints,
    /// Frames in the write-ahead log after the last transaction, as SQLite reports them.
    frames: Arc<AtomicU64>,
    /// How many checkpoints were begun; the row of table `store_state` has the same number.
    begun: u64,
    dir: PathBuf,
}

/// The counters of the tables, and the end of the chain of hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    /// Highest job number ever stored.
    pub last_seq: u64,
    /// How many jobs have ended, ever.
    pub last_ended: u64,
    /// Highest event number ever stored.
    pub last_event: u64,
    /// Hash of the last event batch.
    pub hash: [u8; 32],
}

impl Tables {
    /// Reads what is kept in memory. `begun` is the number of the last checkpoint, `stored` that of the last commit.
    pub fn read(
        conn: Connection,
        dir: &Path,
        marker: Option<Arc<Mutex<Marker>>>,
        frames: Arc<AtomicU64>,
        (begun, stored): (u64, u64),
    ) -> Result<Tables, StoreError> {
        Ok(Tables {
            live: live::read(&conn)?,
            numbers: open::read_numbers(&conn)?,
            lanes: open::read_lanes(&conn)?,
            facets: Facets::default(),
            blob: Vec::new(),
            stored,
            marker,
            checkpoints: Checkpoints::default(),
            frames,
            begun,
            dir: dir.to_owned(),
            conn,
        })
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes commits in one transaction. A full disk is tried again with the space that the store can find by itself.
    pub fn store(&mut self, commits: &[Arc<Commit>]) -> Result<(), StoreError> {
        for _ in 0..SPACE_TRIES {
            match self.store_once(commits) {
                Err(StoreError::Full(_)) if self.make_space() => {}
                other => return other.map_err(|error| files::name_full(&self.dir, error)),
            }
        }
        self.store_once(commits).map_err(|error| files::name_full(&self.dir, error))
    }

    fn store_once(&mut self, commits: &[Arc<Commit>]) -> Result<(), StoreError> {
        self.begin(commits)?;
        self.end()
    }

    /// Begins a transaction and writes commits in it. After an error, nothing is written, and no transaction is open.
    pub fn begin(&mut self, commits: &[Arc<Commit>]) -> Result<(), StoreError> {
        let Some(last) = commits.last() else { return Ok(()) };
        let (numbers, stored) = (self.numbers, self.stored);
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let written = commit::write(self, commits).and_then(|()| {
            let sql = format!("UPDATE store_state SET stored = ?1 WHERE {}", row_sums::STORE_STATE.check);
            self.conn.prepare_cached(&sql)?.execute([last.number.cast_signed()])?;
            Ok(())
        });
        if let Err(error) = written {
            (self.numbers, self.stored) = (numbers, stored);
            self.roll_back()?;
            return Err(error);
        }
        self.stored = last.number;
        Ok(())
    }

    /// Ends the transaction. After an error nothing of it is written, and its commits may be written again.
    pub fn end(&mut self) -> Result<(), StoreError> {
        let ended = self.conn.prepare_cached("COMMIT")?.execute([]);
        if let Err(error) = ended {
            if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
                self.undo()?;
            } else if lacks_index_space(&error) {
                // The next start will read the write-ahead log and needs space for the index, too.
                files::release_reserve(&self.dir);
            }
            return Err(at_commit(error));
        }
        self.live.committed();
        if let Some(marker) = &self.marker {
            lock(marker).transacted(self.begun);
        }
        Ok(())
    }

    /// Gives the transaction up that is open.
    pub fn undo(&mut self) -> Result<(), StoreError> {
        self.roll_back()?;
        self.numbers = open::read_numbers(&self.conn)?;
        let sql = format!("SELECT stored, {} FROM store_state", row_sums::STORE_STATE.check);
        self.stored = self.conn.query_row(&sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned();
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), StoreError> {
        self.live.rolled_back();
        self.facets.forget();
        if !self.conn.is_autocommit() {
            self.conn.prepare_cached("ROLLBACK")?.execute([])?;
        }
        self.lanes = open::read_lanes(&self.conn)?;
        Ok(())
    }

    /// Checkpoints when the write-ahead log has grown enough. True: everything is in the database now, and durable.
    pub fn checkpoint_if_due(&mut self, bytes: usize) -> Result<bool, StoreError> {
        let Some(marker) = &self.marker else { return Ok(false) };
        let (begun, frames) = (&mut self.begun, &self.frames);
        let number = |conn: &Connection| {
            next_checkpoint(conn, begun)?;
            marked(lock(marker).begins(frames.load(Ordering::Relaxed)))
        };
        match self.checkpoints.after_commit(&self.conn, bytes, number) {
            Ok(true) => marked(lock(marker).moved()).map(|()| true),
            // Nothing is lost: what does not fit into the database stays in the logs until it does.
            Ok(false) | Err(StoreError::Full(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Finds space on a full disk: first the reserve, then the write-ahead log, which begins anew once all of it is in the
    /// database.
    pub fn make_space(&mut self) -> bool {
        if files::release_reserve(&self.dir) {
            return true;
        }
        self.move_all().unwrap_or(false)
    }

    /// Moves everything into the database and empties the write-ahead log. False: a reader is in the way.
    pub fn move_all(&mut self) -> Result<bool, StoreError> {
        let Some(marker) = &self.marker else { return Ok(false) };
        match next_checkpoint(&self.conn, &mut self.begun) {
            // On a full disk the checkpoint is all the more needed.
            Ok(()) | Err(StoreError::Full(_)) => {}
            Err(other) => return Err(other),
        }
        marked(lock(marker).begins(checkpoint::frames(&self.conn)?))?;
        if !checkpoint::full(&self.conn)? {
            return Ok(false);
        }
        marked(lock(marker).moved())?;
        checkpoint::truncate(&self.conn)
    }

    /// Moves everything into the database, and records there that it is complete without logs.
    pub fn close(&mut self) -> Result<bool, StoreError> {
        // In two steps: the row must not be in the database before everything else is.
        if !self.move_all()? {
            return Ok(false);
        }
        let sql = format!("UPDATE store_state SET closed = 1 WHERE {}", row_sums::STORE_STATE.check);
        self.conn.execute(&sql, [])?;
        if !self.move_all()? {
            return Ok(false);
        }
        if let Some(marker) = &self.marker {
            marked(lock(marker).settle(self.stored, true))?;
        }
        // Where no reader is left, the empty write-ahead log goes with the last connection.
        self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        Ok(true)
    }
}

/// Numbers the next checkpoint. The number is in the write-ahead log before the checkpoint, so the database never has a higher one.
fn next_checkpoint(conn: &Connection, begun: &mut u64) -> Result<(), StoreError> {
    let sql = format!("UPDATE store_state SET checkpoints = ?1 WHERE {}", row_sums::STORE_STATE.check);
    let mut update = conn.prepare_cached(&sql)?;
    update.execute([(*begun + 1).cast_signed()]).map_err(at_commit)?;
    *begun += 1;
    Ok(())
}

/// The error of a mark that could not be written.
fn marked(written: std::io::Result<()>) -> Result<(), StoreError> {
    written.map_err(|error| files::not_written(Path::new(files::MARK), &error))
}

/// Locks the marker. A panic elsewhere leaves it as it was.
pub(super) fn lock(marker: &Mutex<Marker>) -> MutexGuard<'_, Marker> {
    marker.lock().unwrap_or_else(PoisonError::into_inner)
}
