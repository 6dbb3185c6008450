//! Opens the data directory: lock, checks, settings of the connections, migrations.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use laneway_core::Name;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::checkpoint::Checkpoints;
use super::live::Live;
use super::lock::{DirLock, check_file_system};
use super::migrate::{MIGRATIONS, migrate};
use super::pool::Pool;
use super::{Numbers, SqliteStore};
use crate::StoreError;
use crate::codec::EventWriter;
use crate::rows::{stored_digest, stored_name};

/// The database's file within the data directory.
const FILE: &str = "laneway.db";
/// Older versions may lose a commit when a WAL is reset.
const VERSION_MIN: i32 = 3_051_003;
/// Statements kept prepared on one connection; more than the store has.
const STATEMENTS: usize = 64;
/// How long to wait for a lock. The directory's lock keeps other servers out, so this is for a person with a shell.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// What can be chosen about a store.
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    /// Most connections that read at once. Defaults to 4.
    pub readers_max: usize,
    /// Page cache of the writing connection in KiB. Defaults to 16 MiB: what is written goes to the right edges of few trees.
    pub cache_kib: u32,
    /// Page cache of each reading connection in KiB. Defaults to 4 MiB.
    pub reader_cache_kib: u32,
    /// True: a network file system is not refused. Defaults to false.
    pub allow_network_file_system: bool,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions {
            readers_max: 4,
            cache_kib: 16 * 1024,
            reader_cache_kib: 4 * 1024,
            allow_network_file_system: false,
        }
    }
}

/// Opens the store in `dir`; makes both where they are missing.
pub(super) fn open(dir: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
    let SqliteOptions { readers_max, cache_kib, reader_cache_kib, allow_network_file_system } = options;
    if rusqlite::version_number() < VERSION_MIN {
        let found = rusqlite::version();
        return Err(StoreError::Unusable(format!("SQLite {found} is too old; 3.51.3 or later is needed")));
    }
    make_dir(dir)?;
    if !allow_network_file_system {
        check_file_system(dir)?;
    }
    let lock = DirLock::take(dir)?;
    let path = dir.join(FILE);
    let conn = open_writer(&path, cache_kib).map_err(|error| in_dir(dir, error))?;
    migrate(&conn, MIGRATIONS).map_err(|error| in_dir(dir, error))?;
    sync_dirs(dir)?;
    let live = Live::read(&conn)?;
    let head = read_numbers(&conn)?;
    let lanes = read_lanes(&conn)?;
    let pool = Arc::new(Pool::new(readers_max, move || open_reader(&path, reader_cache_kib)));
    Ok(SqliteStore {
        conn,
        pool,
        live,
        head,
        lanes,
        events: EventWriter::default(),
        blob: Vec::new(),
        checkpoints: Checkpoints::default(),
        failed: None,
        _lock: lock,
    })
}

fn make_dir(dir: &Path) -> Result<(), StoreError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let cannot =
        |error| StoreError::Unusable(format!("cannot make data directory {}: {error}", dir.display()));
    builder.create(dir).map_err(cannot)
}

/// Makes the names of new files and of the directory itself durable. SQLite does so for the WAL only.
fn sync_dirs(dir: &Path) -> Result<(), StoreError> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let sync = |dir: &Path| File::open(dir).and_then(|dir| dir.sync_all());
    sync(&dir).map_err(|error| StoreError::Failed(format!("cannot sync {}: {error}", dir.display())))?;
    // The directory above may not be ours to open; then it was not made by us either.
    if let Some(above) = dir.parent() {
        let _ = sync(above);
    }
    Ok(())
}

fn open_writer(path: &Path, cache_kib: u32) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    settle(&conn, cache_kib)?;
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::Unusable(format!("its file system cannot do write-ahead logging ({mode})")));
    }
    conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA foreign_keys = ON;",
    )?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(conn)
}

fn open_reader(path: &Path, cache_kib: u32) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    settle(&conn, cache_kib)?;
    conn.execute_batch("PRAGMA query_only = ON;")?;
    Ok(conn)
}

/// What holds for every connection.
fn settle(conn: &Connection, cache_kib: u32) -> Result<(), StoreError> {
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.execute_batch(&format!(
        "PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF; PRAGMA cache_size = -{cache_kib};"
    ))?;
    Ok(())
}

/// Says which directory an error is about.
fn in_dir(dir: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Unusable(why) => {
            StoreError::Unusable(format!("data directory {} cannot be used: {why}", dir.display()))
        }
        StoreError::Failed(why) => {
            StoreError::Failed(format!("cannot open data directory {}: {why}", dir.display()))
        }
        other => other,
    }
}

pub(super) fn read_lanes(conn: &Connection) -> Result<HashMap<Name, i64>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT name, number FROM lane")?;
    let mut rows = statement.query([])?;
    let mut lanes = HashMap::new();
    while let Some(row) = rows.next()? {
        lanes.insert(stored_name(row.get_ref(0)?.as_str()?)?, row.get(1)?);
    }
    Ok(lanes)
}

fn read_numbers(conn: &Connection) -> Result<Numbers, StoreError> {
    let sql = "SELECT max(last_seq, coalesce((SELECT max(seq) FROM job), 0)),
                      max(last_ended, coalesce((SELECT max(ended) FROM done), 0)),
                      purged_event, purged_hash
               FROM head";
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    let row = rows.next()?.ok_or_else(|| StoreError::Damaged("the row of table head is missing".into()))?;
    let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let mut numbers = Numbers {
        last_seq: number(0)?,
        last_ended: number(1)?,
        last_event: number(2)?,
        hash: stored_digest(row.get_ref(3)?.as_blob()?)?,
    };
    let mut statement =
        conn.prepare("SELECT first + count - 1, hash FROM event_batch ORDER BY first DESC LIMIT 1")?;
    let mut rows = statement.query([])?;
    if let Some(row) = rows.next()? {
        numbers.last_event = row.get::<_, i64>(0)?.cast_unsigned();
        numbers.hash = stored_digest(row.get_ref(1)?.as_blob()?)?;
    }
    Ok(numbers)
}
