//! Copies of a store: a backup while a server writes, and its restore.
//!
//! A backup is read from one committed state over a connection of its own, so the server neither waits for it nor sees
//! it; the log grows meanwhile. The copy is complete in one file, is checked, and only then gets its name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::check::{CheckProgress, check_file};
pub use super::history::{Added, History};
use super::lock::{DirLock, check_file_system};
use super::replay::Replay;
use super::tables::Tables;
use super::whole::read_state;
use super::{files, history, migrate, open, row_sums};
use crate::log::{self, Known};
use crate::{SqliteOptions, SqliteStore, Store, StoreError};

/// Pages (4 KiB) between two calls for progress: 4 MiB.
const PAGES: std::ffi::c_int = 1024;
/// Bytes that a restore copies at once.
const CHUNK: usize = 1 << 20;

/// The progress of a copy.
#[derive(Clone, Copy, Debug)]
pub enum CopyProgress {
    /// Bytes copied, of how many.
    Copied(u64, u64),
    /// The copy, or what is to be copied, is being checked.
    Checked(CheckProgress),
}

/// What a backup holds.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Bytes of the file.
    pub bytes: u64,
    /// Jobs in it.
    pub jobs: u64,
    /// The last event in it.
    pub last_event: u64,
}

/// Writes the store in `dir` to `file`, while a server uses it or not. An existing file is replaced only with `force`.
pub fn back_up(
    dir: &Path,
    file: &Path,
    force: bool,
    progress: &mut dyn FnMut(CopyProgress),
) -> Result<Copied, StoreError> {
    open::check_version()?;
    if !force && file.exists() {
        return Err(StoreError::Unusable(format!("{} exists; --force replaces it", file.display())));
    }
    if !files::has_database(dir)? {
        return Err(StoreError::Unusable(format!(
            "{} holds no database; name the data directory",
            dir.display()
        )));
    }
    // Without a server, the files must first be found to belong together. With one, it has done so.
    match SqliteStore::open(dir, SqliteOptions::default()) {
        Ok(mut store) => drop(store.close()?),
        Err(StoreError::Locked(_)) => {}
        Err(other) => return Err(other),
    }
    let partial = beside(file, "partial");
    let written = write_copy(dir, &partial, progress).and_then(|()| take_name(&partial, file, progress));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written
}

/// A name in the same folder that no other process uses.
fn beside(file: &Path, what: &str) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}-{}", std::process::id()));
    file.with_file_name(name)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> StoreError + '_ {
    move |error| StoreError::Failed(format!("cannot write {}: {error}", path.display()))
}

fn write_copy(dir: &Path, partial: &Path, progress: &mut dyn FnMut(CopyProgress)) -> Result<(), StoreError> {
    drop(files::open_private(partial).map_err(failed(partial))?);
    let from = open::open_reader(&dir.join(files::DB), 1024)?;
    // One state for the whole copy: without this, every commit would begin the copy anew.
    from.execute_batch("BEGIN")?;
    let sql = format!("SELECT {} FROM server_state", row_sums::SERVER_STATE.check);
    from.query_row(&sql, [], |_| Ok(()))?;
    let mut to = Connection::open(partial)?;
    row_sums::add_functions(&to)?;
    to.execute_batch("PRAGMA synchronous = OFF")?;
    {
        let backup = Backup::new(&from, &mut to)?;
        loop {
            let step = backup.step(PAGES)?;
            let at = backup.progress();
            let bytes = |pages: std::ffi::c_int| u64::try_from(pages).unwrap_or(0) * 4096;
            progress(CopyProgress::Copied(bytes(at.pagecount - at.remaining), bytes(at.pagecount)));
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                _ => std::thread::yield_now(),
            }
        }
    }
    // While the copied state is read, no later segment of the log goes.
    let to = add_logged(dir, to)?;
    drop(from);
    // The copy needs no log: it is complete as it is.
    if read_state(&to)?.is_some() {
        let sql = format!("UPDATE store_state SET closed = 1 WHERE {}", row_sums::STORE_STATE.check);
        to.execute(&sql, [])?;
    }
    let _mode: String = to.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
    to.close().map_err(|(_, error)| StoreError::from(error))
}

/// Writes the commits to a copy that were durable in the log only when it was made.
fn add_logged(dir: &Path, to: Connection) -> Result<Connection, StoreError> {
    let Some(state) = read_state(&to)? else { return Ok(to) };
    let Some(id) = state.log_id.filter(|_| !state.closed) else { return Ok(to) };
    let known = Known { id, stored: state.stored, complete: 0, accept_loss: false };
    let mut replay =
        Replay::new(Tables::read(to, dir, None, Default::default(), (state.checkpoints, state.stored))?);
    // The server appends meanwhile: a segment that changes while it is read may look damaged.
    for _ in 0..SCAN_TRIES {
        let from = replay.last();
        match log::scan(&dir.join(log::DIR), Known { stored: from, ..known }, &mut |logged| {
            replay.take(&logged)
        }) {
            Ok(_) => return replay.finish(),
            Err(StoreError::Damaged(why)) => tracing::debug!(%why, "the log changed while it was read"),
            Err(other) => return Err(other),
        }
    }
    log::scan(&dir.join(log::DIR), Known { stored: replay.last(), ..known }, &mut |logged| {
        replay.take(&logged)
    })?;
    replay.finish()
}

/// How often a log that a server writes is read anew.
const SCAN_TRIES: u32 = 5;

/// Checks the copy, makes it durable, and gives it its name.
fn take_name(
    partial: &Path,
    file: &Path,
    progress: &mut dyn FnMut(CopyProgress),
) -> Result<Copied, StoreError> {
    let copied = verify(partial, progress)?;
    File::open(partial).and_then(|file| file.sync_all()).map_err(failed(partial))?;
    std::fs::rename(partial, file).map_err(failed(file))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    files::sync_dirs(folder)?;
    Ok(copied)
}

/// Is this a whole store in one file?
fn verify(file: &Path, progress: &mut dyn FnMut(CopyProgress)) -> Result<Copied, StoreError> {
    let named = |error: StoreError| match error {
        StoreError::Damaged(why) => StoreError::Damaged(format!("{}: {why}", file.display())),
        StoreError::Failed(why) => StoreError::Failed(format!("{}: {why}", file.display())),
        StoreError::Unusable(why) => StoreError::Unusable(format!("{}: {why}", file.display())),
        other => other,
    };
    let bytes = std::fs::metadata(file)
        .map_err(|error| StoreError::Unusable(format!("cannot read {}: {error}", file.display())))?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let look = || -> Result<Copied, StoreError> {
        let conn = Connection::open_with_flags(files::immutable_uri(file), flags)?;
        row_sums::add_functions(&conn)?;
        migrate::check_ours(&conn, migrate::MIGRATIONS)?;
        if read_state(&conn)?.is_some_and(|state| !state.closed) {
            return Err(StoreError::Damaged(
                "it was copied from a server that ran and lacks what was in the log; use a file that `laneway backup` wrote"
                    .into(),
            ));
        }
        let jobs: i64 = conn.query_row("SELECT count(*) FROM job", [], |row| row.get(0))?;
        let last_event = open::read_numbers(&conn)?.last_event;
        Ok(Copied { bytes: bytes.len(), jobs: jobs.cast_unsigned(), last_event })
    };
    let copied = look().map_err(named)?;
    let report = check_file(file, &mut |at| progress(CopyProgress::Checked(at))).map_err(named)?;
    report.into_result().map_err(named)?;
    Ok(copied)
}

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Restored {
    /// What is there now.
    pub copied: Copied,
    /// What was added to it from a log.
    pub added: Option<Added>,
    /// Where the files are that were there before.
    pub replaced: Option<PathBuf>,
}

/// Checks `file` and puts it into `dir`, which must be empty and which no server may use. With `force`, the store that is
/// there is moved into a folder beside it. With `added`, commits of a log that was kept are added to the backup.
pub fn restore(
    file: &Path,
    dir: &Path,
    force: bool,
    added: Option<&History>,
    progress: &mut dyn FnMut(CopyProgress),
) -> Result<Restored, StoreError> {
    open::check_version()?;
    let mut copied = verify(file, progress).map_err(no_backup)?;
    files::make_dir(dir)?;
    check_file_system(dir)?;
    let _lock = DirLock::take(dir)?;
    let cannot = |error| StoreError::Unusable(format!("cannot read {}: {error}", dir.display()));
    let mut others = std::fs::read_dir(dir).map_err(cannot)?;
    if others.any(|entry| entry.is_ok_and(|entry| entry.file_name() != files::LOCK)) && !force {
        return Err(StoreError::Unusable(format!(
            "{} is not empty; with --force its store is moved into a folder there and replaced",
            dir.display()
        )));
    }
    let new = dir.join(files::NEW);
    copy_bytes(file, &new, progress).map_err(failed(&new))?;
    let added = added.map(|history| history::add(&new, history)).transpose()?;
    if added.is_some() {
        copied = verify(&new, progress)?;
    }
    history::separate(&new)?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(failed(&new))?;
    let replaced = move_away(dir).map_err(failed(dir))?;
    std::fs::rename(&new, dir.join(files::DB)).map_err(failed(dir))?;
    files::sync_dirs(dir)?;
    Ok(Restored { copied, added, replaced })
}

/// The error for a file that is not a whole backup. Its store may be in order: only the file cannot be restored.
fn no_backup(error: StoreError) -> StoreError {
    match error {
        StoreError::Damaged(why) | StoreError::Failed(why) => StoreError::Unusable(format!(
            "{why}; this is not a complete backup: restore a file that `laneway backup` wrote"
        )),
        other => other,
    }
}

fn copy_bytes(from: &Path, to: &Path, progress: &mut dyn FnMut(CopyProgress)) -> io::Result<()> {
    let mut from = File::open(from)?;
    let total = from.metadata()?.len();
    let mut to = files::open_private(to)?;
    to.set_len(0)?;
    let mut chunk = vec![0; CHUNK];
    let mut copied = 0;
    loop {
        let len = from.read(&mut chunk)?;
        if len == 0 {
            break;
        }
        to.write_all(&chunk[..len])?;
        copied += len as u64;
        progress(CopyProgress::Copied(copied, total));
    }
    to.sync_all()
}

/// Moves the files of the store that is there into a folder. The database goes first: what is left of a move that broke
/// off is noticed.
fn move_away(dir: &Path) -> io::Result<Option<PathBuf>> {
    let there: Vec<&str> = [files::DB, files::WAL, files::MARK, files::SHM, log::DIR, log::KEPT]
        .into_iter()
        .filter(|name| dir.join(name).exists())
        .collect();
    if there.is_empty() {
        return Ok(None);
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let folder = dir.join(format!("replaced-{seconds}-{}", std::process::id()));
    files::make_dir(&folder).map_err(io::Error::other)?;
    for name in there {
        std::fs::rename(dir.join(name), folder.join(name))?;
    }
    Ok(Some(folder))
}

/// Opens a data directory although its files do not belong together, and closes it in order: what is there is kept, what
/// is missing stays missing. Returns the reason for which it was rejected; `None`: nothing was wrong with it.
pub fn accept(dir: &Path) -> Result<Option<String>, StoreError> {
    match SqliteStore::open(dir, SqliteOptions::default()) {
        Ok(mut store) => {
            store.close()?;
            Ok(None)
        }
        Err(StoreError::Damaged(why)) => {
            let options = SqliteOptions { accept_loss: true, ..SqliteOptions::default() };
            SqliteStore::open(dir, options)?.close()?;
            Ok(Some(why))
        }
        Err(other) => Err(other),
    }
}
