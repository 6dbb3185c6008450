//! The files of a data directory: their names, their modes, and how a new database comes into being.
//!
//! SQLite holds POSIX locks on the database and on its index of the log. Closing any other handle of these files in the
//! same process would drop the locks, so nothing here opens them while a connection is open.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::migrate::{MIGRATIONS, migrate};
use super::{facets, row_sums};
use crate::{StoreError, log};

/// The database.
pub(super) const DB: &str = "laneway.db";
/// The write-ahead log.
pub const WAL: &str = "laneway.db-wal";
/// SQLite's index of the log.
pub(super) const SHM: &str = "laneway.db-shm";
/// What was last committed, to notice files that do not belong together.
pub(super) const MARK: &str = "laneway.db-mark";
/// A database that is not complete yet.
pub(super) const NEW: &str = "laneway.db-new";
/// The lock of the directory.
pub(super) const LOCK: &str = "lock";
/// Disk space that is kept for results; given back when the disk is full.
pub const RESERVE: &str = "reserve";
/// The key that stored secrets are encrypted with.
pub const SECRET_KEY: &str = "secret.key";

/// A reserve is not halved below this.
const RESERVE_BYTES_MIN: u64 = 128 << 10;
/// The smallest database SQLite writes: one page.
const DB_BYTES_MIN: u64 = 4096;

/// Makes the directory, for its owner only.
pub(super) fn make_dir(dir: &Path) -> Result<(), StoreError> {
    let cannot =
        |error| StoreError::Unusable(format!("cannot make data directory {}: {error}", dir.display()));
    make_private_dir(dir).map_err(cannot)
}

/// Makes a directory, and those above it, for its owner only.
pub(crate) fn make_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Opens a file for reading and writing that only its owner may read; makes it where it is missing.
pub fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes the names of new files and of the directory itself durable. SQLite does so for the log only.
pub(super) fn sync_dirs(dir: &Path) -> Result<(), StoreError> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let sync = |dir: &Path| File::open(dir).and_then(|dir| dir.sync_all());
    sync(&dir).map_err(|error| StoreError::Failed(format!("cannot sync {}: {error}", dir.display())))?;
    // The directory above may not be ours to open; then it was not made by us either.
    if let Some(above) = dir.parent() {
        let _ = sync(above);
    }
    Ok(())
}

/// Takes rights of others away from files that an earlier version or a copy left readable.
#[cfg(unix)]
pub(super) fn narrow(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let names = [DB, WAL, SHM, MARK, NEW, LOCK, RESERVE, SECRET_KEY];
    let log = std::fs::read_dir(dir.join(log::DIR)).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in names.into_iter().map(|name| dir.join(name)).chain(log) {
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        let mode = found.permissions().mode() & 0o777;
        if !found.is_file() || mode & 0o077 == 0 {
            continue;
        }
        match std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)) {
            Ok(()) => {
                tracing::warn!(file = %path.display(), mode = %format!("{mode:o}"), "the file was readable by others; its mode is 600 now");
            }
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "the file is readable by others and its mode cannot be changed");
            }
        }
    }
}

#[cfg(not(unix))]
pub(super) fn narrow(_dir: &Path) {}

/// Is there a database? An empty one, or one that is missing beside its own files, is an error: a start would begin with
/// nothing where jobs were.
pub(super) fn has_database(dir: &Path) -> Result<bool, StoreError> {
    let path = dir.join(DB);
    match std::fs::metadata(&path) {
        Ok(found) if found.len() >= DB_BYTES_MIN => Ok(true),
        Ok(found) => Err(StoreError::Damaged(format!(
            "{} has {} bytes, which is not a database; remove it if no job was ever stored here",
            path.display(),
            found.len()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            for name in [WAL, MARK] {
                if std::fs::metadata(dir.join(name)).is_ok_and(|found| found.len() > 0) {
                    return Err(StoreError::Damaged(format!(
                        "{} is missing although {name} is there; copy it, too, or remove {name} to begin with an empty store",
                        path.display()
                    )));
                }
            }
            Ok(false)
        }
        Err(error) => Err(StoreError::Unusable(format!("cannot read {}: {error}", path.display()))),
    }
}

/// Makes an empty database under another name and renames it when it is complete and durable, so that a database that
/// is half made is never taken for one that was lost.
pub(super) fn create(dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(NEW);
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let _ = std::fs::remove_file(dir.join(format!("{NEW}{suffix}")));
    }
    let cannot = |error: io::Error| not_written(&path, &error);
    let file = open_private(&path).map_err(cannot)?;
    let conn = Connection::open(&path)?;
    row_sums::add_functions(&conn)?;
    conn.execute_batch("PRAGMA synchronous = OFF")?;
    migrate(&conn, MIGRATIONS)?;
    // Without jobs, the sets of lists are complete. The first start then writes nothing before its mark is there.
    facets::build::mark_complete(&conn)?;
    let _mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    conn.close().map_err(|(_, error)| StoreError::from(error))?;
    file.sync_all().map_err(cannot)?;
    std::fs::rename(&path, dir.join(DB)).map_err(cannot)?;
    sync_dirs(dir)
}

/// The error for a file that could not be written.
pub(super) fn not_written(path: &Path, error: &io::Error) -> StoreError {
    let why = format!("cannot write {}: {error}", path.display());
    if error.kind() == io::ErrorKind::StorageFull { StoreError::Full(why) } else { StoreError::Failed(why) }
}

/// Gives half of the reserve back to the disk, and a small one as a whole: something is left for the next start. False:
/// there is none.
pub(super) fn release_reserve(dir: &Path) -> bool {
    let path = dir.join(RESERVE);
    let Ok(found) = std::fs::metadata(&path) else { return false };
    let left = found.len() / 2;
    let released = if left < RESERVE_BYTES_MIN {
        std::fs::remove_file(&path)
    } else {
        OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(left))
    };
    if released.is_ok() {
        tracing::warn!(file = %path.display(), left, "the disk is full: a part of the reserve was given back, so that results can be stored");
    }
    released.is_ok()
}

/// Adds to the error of a full disk where it is, how much is free, and what to do.
pub(super) fn name_full(dir: &Path, error: StoreError) -> StoreError {
    let StoreError::Full(why) = error else { return error };
    let free = rustix::fs::statvfs(dir).map_or_else(
        |_| "an unknown number of".to_owned(),
        |stat| stat.f_bavail.saturating_mul(stat.f_frsize).to_string(),
    );
    StoreError::Full(format!(
        "the disk of data directory {} is full ({free} bytes free): {why}; nothing that was acknowledged is lost. Free \
         disk space there and start again",
        dir.display()
    ))
}

/// The number of a file within its file system; 0 where there is none. A copy has another one.
pub(super) fn inode(path: &Path) -> u64 {
    #[cfg(unix)]
    return std::fs::metadata(path).map_or(0, |found| std::os::unix::fs::MetadataExt::ino(&found));
    #[cfg(not(unix))]
    {
        let _ = path;
        0
    }
}

/// A URI that opens the database file alone, without its log and without locks.
pub(super) fn immutable_uri(path: &Path) -> PathBuf {
    let mut uri = String::from("file:");
    for c in path.to_string_lossy().chars() {
        match c {
            '%' => uri.push_str("%25"),
            '?' => uri.push_str("%3f"),
            '#' => uri.push_str("%23"),
            c => uri.push(c),
        }
    }
    uri.push_str("?immutable=1");
    PathBuf::from(uri)
}
