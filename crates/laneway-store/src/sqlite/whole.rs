//! Checks that the files of a data directory belong together, and that every acknowledged commit is there.
//!
//! Only files as a crash may leave them are accepted: the database as some checkpoint left it, a write-ahead log that fits it,
//! a commit log that has every commit which the tables lack, and a mark that is not ahead of them. A copy of the directory that
//! was made while a server wrote, a log that is missing, cut or damaged, and a database of another time are not.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::mark::{Mark, salts_of};
use super::row_sums::STORE_STATE;
use super::{files, row_sums};
use crate::StoreError;
use crate::log::{Known, LogId};

/// The row of table `store_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// True: closed in order; the database is whole without its logs.
    pub closed: bool,
    /// How many checkpoints were begun.
    pub checkpoints: u64,
    /// The id of the commit log; `None`: there was none yet.
    pub log_id: Option<LogId>,
    /// The last commit of the log that the tables have.
    pub stored: u64,
}

/// The files of the directory before anything is opened.
pub(super) struct Found {
    /// The row as the database file alone has it; `None` where that cannot be read.
    raw: Option<State>,
    mark: Option<Mark>,
    /// The generation of the write-ahead log; `None`: there is no such file.
    salts: Option<[u8; 8]>,
    copied: bool,
}

/// The result of the check.
#[derive(Default)]
pub(super) struct Whole {
    /// The files are a copy of files that were in use: every row must be checked.
    pub doubtful: bool,
}

impl Found {
    /// Reads the files. No connection may be open in this process.
    pub fn look(dir: &Path) -> Found {
        let mark = Mark::read(dir);
        let inodes = (files::inode(&dir.join(files::DB)), files::inode(&dir.join(files::MARK)));
        Found {
            raw: raw_state(&dir.join(files::DB)),
            salts: salts_of(dir),
            copied: mark.is_some_and(|mark| (mark.db_inode, mark.mark_inode) != inodes),
            mark,
        }
    }

    /// The mark that was found.
    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// What is known about the commit log. `None`: the store never had one.
    pub fn known(&self, state: State, accept_loss: bool) -> Option<Known> {
        let complete = self.mark.map_or(0, |mark| mark.commit);
        state.log_id.map(|id| Known { id, stored: state.stored, complete, accept_loss })
    }

    /// Compares the files with what SQLite makes of them: the row, and the frames of the write-ahead log that it reads.
    pub fn check(&self, state: Option<State>, frames: u64) -> Result<Whole, StoreError> {
        let torn = |why: String| StoreError::Damaged(format!("{why}; {REMEDY}"));
        let salts = if frames == 0 { [0; 8] } else { self.salts.unwrap_or_default() };
        if self.raw.is_some_and(|raw| raw.closed) && frames > 0 && self.mark.is_none() {
            return Err(torn(format!(
                "{} was closed in order; {} does not belong to it",
                files::DB,
                files::WAL
            )));
        }
        let Some(state) = state.filter(|state| !state.closed) else { return Ok(Whole::default()) };
        let Some(mark) = &self.mark else {
            return Err(torn(format!(
                "{} was not closed in order, and {} is missing or unreadable: what was committed last is not known",
                files::DB,
                files::MARK
            )));
        };
        if self.raw.is_some_and(|raw| raw.checkpoints > state.checkpoints) {
            return Err(torn(format!("{} is newer than {}", files::DB, files::WAL)));
        }
        // A start moves its own row into the database before anything else.
        let is_older = |raw: State| {
            (raw.closed && raw.stored < state.stored) || (salts == mark.wal && raw.checkpoints < mark.base)
        };
        if frames > 0 && self.raw.is_some_and(is_older) {
            return Err(torn(format!("{} is older than {}", files::DB, files::WAL)));
        }
        // Without a checkpoint under way, the database is complete as of the one before, and the commit log has the rest.
        if mark.is_moving() {
            if frames == 0 {
                return Err(torn(format!("{} is missing, empty or unreadable", files::WAL)));
            }
            if salts == mark.salts && frames < mark.frames {
                let lost = mark.frames - frames;
                return Err(torn(format!(
                    "{} is cut off or damaged: its last {lost} pages are lost",
                    files::WAL
                )));
            }
        }
        if self.copied && frames > 0 && salts != mark.wal {
            return Err(torn(format!("{} and {} are of different times", files::WAL, files::MARK)));
        }
        Ok(Whole { doubtful: self.copied })
    }
}

/// What to do about files that do not belong together.
pub(super) const REMEDY: &str = "commits that were acknowledged are missing or cannot be distinguished from others. Copy all files \
     of the directory again while no server runs, restore a backup (`laneway restore`), or go on with what is there \
     (`laneway store accept`)";

/// The row of table `store_state`; `None`: the database is of a version without it.
pub(super) fn read_state(conn: &Connection) -> Result<Option<State>, StoreError> {
    let columns = "SELECT count(*) FROM pragma_table_xinfo('store_state') WHERE name = 'sum'";
    if conn.query_row(columns, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(None);
    }
    let sql = format!("SELECT closed, checkpoints, log_id, stored, {} FROM store_state", STORE_STATE.check);
    let read = |row: &rusqlite::Row<'_>| {
        Ok(State {
            closed: row.get(0)?,
            checkpoints: row.get::<_, i64>(1)?.cast_unsigned(),
            log_id: row.get::<_, Option<[u8; 16]>>(2)?.map(LogId),
            stored: row.get::<_, i64>(3)?.cast_unsigned(),
        })
    };
    let state = conn.query_row(&sql, [], read).optional()?;
    state.map(Some).ok_or_else(|| StoreError::Damaged("the row of table store_state is missing".into()))
}

/// The same, of the database file alone. A checkpoint that a crash broke off may leave it unreadable; that is no damage
/// while the write-ahead log is there.
fn raw_state(path: &Path) -> Option<State> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(files::immutable_uri(path), flags).ok()?;
    row_sums::add_functions(&conn).ok()?;
    read_state(&conn).ok().flatten()
}
