//! Checks that the files of a data directory belong together, and that every acknowledged commit is there.
//!
//! Only files as a crash may leave them are accepted: the database as some checkpoint left it, the log with every
//! frame that was committed since its generation began, and a mark that is not ahead of both. A copy of the directory
//! that was made while a server wrote, a log that is missing, cut or damaged, and a database of another time are not.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::mark::{LogEnd, Mark, salts_of};
use super::{Numbers, files};
use crate::StoreError;
use crate::rows::stored_digest;

/// The row of table `store_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// True: closed in order; the database is whole without its log.
    pub closed: bool,
    /// How many checkpoints were begun.
    pub checkpoints: u64,
}

/// The files of the directory before anything is opened.
pub(super) struct Found {
    /// The row as the database file alone has it; `None` where that cannot be read.
    raw: Option<State>,
    mark: Option<Mark>,
    /// The generation of the log; `None`: there is no log file.
    salts: Option<[u8; 8]>,
    copied: bool,
}

/// The result of the check.
#[derive(Default)]
pub(super) struct Whole {
    /// How far the log is.
    pub log: LogEnd,
    /// `base` and `done` for the mark, where it does not know them.
    pub moved: Option<(u64, u64)>,
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

    /// The result where files that do not belong together are accepted.
    pub fn accepted(&self, frames: u64) -> Whole {
        let salts = self.salts.filter(|_| frames > 0).unwrap_or_default();
        Whole { log: LogEnd { salts, frames }, moved: Some((0, 0)), doubtful: false }
    }

    /// The mark that was found.
    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// Compares the files with what SQLite makes of them: the numbers, the row and the frames of the log that it reads.
    pub fn check(
        &self,
        conn: &Connection,
        numbers: &Numbers,
        state: Option<State>,
        frames: u64,
    ) -> Result<Whole, StoreError> {
        let torn = |why: String| StoreError::Damaged(format!("{why}; {REMEDY}"));
        if let Some(mark) = &self.mark {
            mark_fits(mark, conn, numbers)?.map_err(torn)?;
        }
        let log = LogEnd { salts: if frames == 0 { [0; 8] } else { self.salts.unwrap_or_default() }, frames };
        let checkpoints = state.map_or(0, |state| state.checkpoints);
        let raw = self.raw.map(|raw| raw.checkpoints);
        if self.raw.is_some_and(|raw| raw.closed) && frames > 0 && self.mark.is_none() {
            return Err(torn(format!("{} was closed in order; {} is not its log", files::DB, files::WAL)));
        }
        let older =
            |mark: &Mark| frames > 0 && log.salts == mark.salts && raw.is_some_and(|raw| raw < mark.base);
        if self.mark.as_ref().is_some_and(older) {
            return Err(torn(format!("{} is older than {}", files::DB, files::WAL)));
        }
        if state.is_none_or(|state| state.closed) {
            let raw = raw.unwrap_or(0);
            return Ok(Whole { log, moved: Some((raw, raw.min(checkpoints))), doubtful: false });
        }
        let Some(mark) = &self.mark else {
            return Err(torn(format!(
                "{} was not closed in order, and {} is missing or unreadable: what was committed last is not known",
                files::DB,
                files::MARK
            )));
        };
        if raw.is_some_and(|raw| raw > checkpoints) {
            return Err(torn(format!("{} is newer than {}", files::DB, files::WAL)));
        }
        if frames == 0 && mark.frames > 0 {
            // The log is gone. All of it may be in the database, but only a checkpoint that was completed shows that.
            if mark.quiet > 0 || mark.done != checkpoints || mark.last_event != numbers.last_event {
                return Err(torn(format!("{} is missing, empty or unreadable", files::WAL)));
            }
        } else if log.salts == mark.salts {
            if frames < mark.frames {
                let lost = mark.frames - frames;
                return Err(torn(format!(
                    "{} is cut off or damaged: its last {lost} pages are lost",
                    files::WAL
                )));
            }
        } else if self.copied {
            return Err(torn(format!("{} and {} are of different times", files::WAL, files::MARK)));
        }
        let moved = (log.salts != mark.salts).then(|| (raw.unwrap_or(0), 0));
        Ok(Whole { log, moved, doubtful: self.copied })
    }
}

/// What to do about files that do not belong together.
const REMEDY: &str = "commits that were acknowledged are missing or cannot be distinguished from others. Copy all files of the \
     directory again while no server runs, restore a backup (`laneway restore`), or go on with what is there \
     (`laneway store accept`)";

/// Checks that the mark names a commit that the database has. The inner error says why not.
fn mark_fits(mark: &Mark, conn: &Connection, numbers: &Numbers) -> Result<Result<(), String>, StoreError> {
    if mark.last_event > numbers.last_event {
        return Ok(Err(format!(
            "{} and {} end with event {}, but event {} was committed",
            files::DB,
            files::WAL,
            numbers.last_event,
            mark.last_event
        )));
    }
    let other = || Err(format!("{} is of another database than {}", files::MARK, files::DB));
    if mark.last_event == numbers.last_event {
        return Ok(if mark.hash == numbers.hash || mark.last_event == 0 { Ok(()) } else { other() });
    }
    let sql = "SELECT first + count - 1, hash FROM event_batch WHERE first <= ?1 ORDER BY first DESC LIMIT 1";
    let mut find = conn.prepare(sql)?;
    let mut rows = find.query([mark.last_event.cast_signed()])?;
    // Older batches may have been pruned.
    let Some(row) = rows.next()? else { return Ok(Ok(())) };
    let fits = row.get::<_, i64>(0)?.cast_unsigned() == mark.last_event
        && stored_digest(row.get_ref(1)?.as_blob()?)? == mark.hash;
    Ok(if fits { Ok(()) } else { other() })
}

/// The row of table `store_state`; `None`: the database is of a version without it.
pub(super) fn read_state(conn: &Connection) -> Result<Option<State>, StoreError> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'store_state'";
    if conn.query_row(sql, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    let read = |row: &rusqlite::Row<'_>| {
        Ok(State { closed: row.get(0)?, checkpoints: row.get::<_, i64>(1)?.cast_unsigned() })
    };
    let state = conn.query_row("SELECT closed, checkpoints FROM store_state", [], read).optional()?;
    state.map(Some).ok_or_else(|| StoreError::Damaged("the row of table store_state is missing".into()))
}

/// The same, of the database file alone. A checkpoint that a crash broke off may leave it unreadable; that is no damage
/// while the log is there.
fn raw_state(path: &Path) -> Option<State> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(files::immutable_uri(path), flags).ok()?;
    read_state(&conn).ok().flatten()
}
