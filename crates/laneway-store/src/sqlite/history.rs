//! Adds commits of a kept log to a restored backup, up to a point in time.

use std::path::{Path, PathBuf};

use laneway_core::Wall;
use rusqlite::{Connection, OpenFlags};

use super::migrate::{MIGRATIONS, migrate};
use super::replay::Replay;
use super::row_sums;
use super::tables::Tables;
use super::whole::read_state;
use crate::StoreError;
use crate::log::{self, Known};

/// Commits that a restore adds to a backup.
#[derive(Clone, Debug)]
pub struct History {
    /// The data directory with the log.
    pub from: PathBuf,
    /// No commit later than this is added. `None`: all are.
    pub until: Option<Wall>,
}

/// What was added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    /// How many commits.
    pub commits: u64,
    /// When the last one was made.
    pub last_at: Option<Wall>,
}

/// Adds commits to the backup `file`.
pub(super) fn add(file: &Path, history: &History) -> Result<Added, StoreError> {
    let conn = open(file)?;
    migrate(&conn, MIGRATIONS)?;
    let state = read_state(&conn)?.unwrap_or_default();
    let Some(id) = state.log_id else {
        return Err(StoreError::Unusable(
            "the backup is of a version without a commit log: no commits can be added to it".into(),
        ));
    };
    let folder = file.parent().unwrap_or(Path::new("."));
    let tables = Tables::read(conn, folder, None, Default::default(), (state.checkpoints, state.stored))?;
    let mut replay = Replay::new(tables);
    let (mut added, mut is_over) = (Added::default(), false);
    let known = Known { id, stored: state.stored, complete: 0, accept_loss: false };
    log::read_history(&history.from, known, &mut |logged| {
        if is_over {
            return Ok(());
        }
        let commit = replay.decode(&logged)?;
        let at = commit.events.as_ref().map(|events| events.at);
        is_over = history.until.zip(at).is_some_and(|(until, at)| at > until);
        if is_over {
            return Ok(());
        }
        added = Added { commits: added.commits + 1, last_at: at.or(added.last_at) };
        replay.add(commit)
    })?;
    close(replay.finish()?)?;
    Ok(added)
}

/// Gives a restored store an identity of its own: the log of the store that the backup was made of goes on differently, and
/// must not be taken for the log of this one.
pub(super) fn separate(file: &Path) -> Result<(), StoreError> {
    let conn = open(file)?;
    if read_state(&conn)?.is_some_and(|state| state.log_id.is_some()) {
        let sql = format!("UPDATE store_state SET log_id = NULL WHERE {}", row_sums::STORE_STATE.check);
        conn.execute(&sql, [])?;
    }
    close(conn)
}

fn open(file: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags)?;
    row_sums::add_functions(&conn)?;
    // The caller syncs the file before it gets its name.
    conn.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON;")?;
    Ok(conn)
}

fn close(conn: Connection) -> Result<(), StoreError> {
    conn.close().map_err(|(_, error)| StoreError::from(error))
}
