//! Reads a data directory that no server uses, and changes nothing: no file is created, written or removed.
//!
//! A plain read-only connection would make the log and its index anew, and so hide what is missing.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::lock::{DirLock, UnchangedLock};
use super::open::{BUSY, is_ours};
use super::pending::Commit;
use super::whole::{Found, read_state};
use super::{checkpoint, files, row_sums};
use crate::StoreError;
use crate::log::{self, Logged};
use crate::rows::Interner;

/// A directory that no server uses, kept so for as long as this lives.
pub(super) struct Offline {
    // Fields drop in order: the connection closes before the lock goes.
    conn: Connection,
    found: Found,
    dir: PathBuf,
    /// True: the database is read with its log.
    with_log: bool,
    _lock: UnchangedLock,
}

impl Offline {
    /// Opens the database of `dir`, which must be there. `None`: a server uses it.
    pub fn open(dir: &Path) -> Result<Option<Offline>, StoreError> {
        let Some(lock) = DirLock::take_unchanged(dir) else { return Ok(None) };
        let found = Found::look(dir);
        let with_log = std::fs::metadata(dir.join(files::WAL)).is_ok_and(|log| log.len() > 0);
        let path = dir.join(files::DB);
        let conn = if with_log { open_with_log(&path)? } else { open_alone(&path)? };
        row_sums::add_functions(&conn)?;
        conn.execute_batch(
            "PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF; PRAGMA query_only = ON;",
        )?;
        Ok(Some(Offline { conn, found, dir: dir.to_owned(), with_log, _lock: lock }))
    }

    /// The connection.
    pub fn conn(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// Checks that the files belong together, that every acknowledged commit is there, and that the log can be read.
    pub fn check_files(&self) -> Result<(), StoreError> {
        if !is_ours(&self.conn)? {
            return Ok(());
        }
        let frames = if self.with_log { checkpoint::frames(&self.conn)? } else { 0 };
        let state = read_state(&self.conn)?;
        self.found.check(state, frames)?;
        let Some(known) = state.and_then(|state| self.found.known(state, false)) else { return Ok(()) };
        let mut names = Interner::default();
        let read = |logged: Logged<'_>| Commit::decode(&logged, &mut names).map(drop);
        log::scan(&self.dir.join(log::DIR), known, &mut { read }).map(drop)
    }
}

/// Opens a database without a log: it is read as it is.
fn open_alone(path: &Path) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(files::immutable_uri(path), flags)?)
}

/// Opens a database with its log. With the exclusive mode SQLite keeps the index of the log in memory; that mode asks for a
/// connection that could write.
fn open_with_log(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let _mode: String = conn.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |row| row.get(0))?;
    conn.execute_batch("PRAGMA wal_autocheckpoint = 0;")?;
    Ok(conn)
}
