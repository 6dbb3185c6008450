//! Opens the data directory: lock, checks, settings of the connections, migrations.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_core::Name;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::lock::{DirLock, check_file_system};
use super::mark::Marker;
use super::migrate::{MIGRATIONS, migrate};
use super::pool::Pool;
use super::replay::Replay;
use super::shared::Shared;
use super::tables::{self, Numbers, Tables};
use super::whole::{Found, REMEDY, State, read_state};
use super::{SqliteStore, check, checkpoint, epoch, facets, files, row_sums};
use crate::log::{self, CommitLog, KeptSegments, LogId, Scan};
use crate::rows::{stored_digest, stored_name};
use crate::{Epoch, StoreError};

/// Older versions may lose a commit when a WAL is reset.
const VERSION_MIN: i32 = 3_051_003;
/// Statements kept prepared on one connection; more than the store has.
const STATEMENTS: usize = 128;
/// How long to wait for a lock. The directory's lock keeps other servers out, so this is for a person with a shell.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// The options of a store.
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    /// Most connections that read at once. Defaults to 4.
    pub readers_max: usize,
    /// Page cache of the writing connection in KiB. Defaults to 16 MiB: what is written goes to the right edges of few trees.
    pub cache_kib: u32,
    /// Page cache of each reading connection in KiB. Defaults to 4 MiB.
    pub reader_cache_kib: u32,
    /// True: a network file system is not rejected. Defaults to false.
    pub allow_network_file_system: bool,
    /// True: files that do not belong together are opened all the same; what is missing stays missing. Defaults to false.
    pub accept_loss: bool,
    /// How long segments of the commit log are kept that the tables do not need any more; zero: not at all. `None`: they are
    /// kept if the directory has some already. Defaults to that.
    pub log_keep: Option<Duration>,
    /// True: no thread writes the tables. They are written when a read needs them, when too much waits, and by
    /// [`SqliteStore::write_tables`]. For simulations: what is in the tables after a crash does not depend on time. Defaults to
    /// false.
    pub tables_by_hand: bool,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions {
            readers_max: 4,
            cache_kib: 16 * 1024,
            reader_cache_kib: 4 * 1024,
            allow_network_file_system: false,
            accept_loss: false,
            log_keep: None,
            tables_by_hand: false,
        }
    }
}

/// Opens the store in `dir`; creates both where they are missing.
pub(super) fn open(dir: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
    let SqliteOptions {
        readers_max,
        cache_kib,
        reader_cache_kib,
        allow_network_file_system,
        accept_loss,
        log_keep,
        tables_by_hand,
    } = options;
    check_version()?;
    files::make_dir(dir)?;
    if !allow_network_file_system {
        check_file_system(dir)?;
    }
    let lock = DirLock::take(dir)?;
    files::narrow(dir);
    if !files::has_database(dir)? {
        files::create(dir).map_err(|error| in_dir(dir, error))?;
    }
    let found = Found::look(dir);
    let path = dir.join(files::DB);
    let mut conn = open_writer(&path, cache_kib).map_err(|error| in_dir(dir, error))?;
    let frames = Arc::new(AtomicU64::new(0));
    check_whole(&conn, &found, accept_loss).map_err(|error| in_dir(dir, error))?;
    watch_log(&mut conn, &frames)?;
    migrate(&conn, MIGRATIONS).map_err(|error| in_dir(dir, error))?;
    files::sync_dirs(dir)?;
    let state = read_state(&conn)?.unwrap_or_default();
    let mark = dir.join(files::MARK);
    let cannot = |error| files::not_written(&mark, &error);
    let marker = Marker::begin(dir, found.mark()).map_err(cannot)?;
    let marker = Arc::new(Mutex::new(marker));
    let numbers = (state.checkpoints, state.stored);
    let mut tables = Tables::read(conn, dir, Some(Arc::clone(&marker)), frames, numbers)?;
    facets::build::complete(&mut tables).map_err(|error| in_dir(dir, error))?;
    let replayed = replay(dir, tables, &found, state, accept_loss);
    let (mut tables, scan) = replayed.map_err(|error| in_dir(dir, error))?;
    tables::lock(&marker).settle(scan.last, state.closed).map_err(cannot)?;
    let log_dir = dir.join(log::DIR);
    files::make_private_dir(&log_dir).map_err(|error| files::not_written(&log_dir, &error))?;
    files::sync_dirs(dir)?;
    let (epoch, id) = begin(&mut tables, state, &scan)?;
    let log = CommitLog::continue_after(&log_dir, id, scan, KeptSegments::of(dir, log_keep));
    let log = log.map_err(|error| {
        StoreError::Failed(format!("cannot write the commit log {}: {error}", log_dir.display()))
    })?;
    let pool = Arc::new(Pool::new(readers_max, move || open_reader(&path, reader_cache_kib)));
    let shared = Shared::new(tables, log, marker, pool, tables_by_hand);
    SqliteStore::start(shared, epoch, lock)
}

/// Writes the commits to the tables that only the log has. Returns the end of the log.
fn replay(
    dir: &Path,
    tables: Tables,
    found: &Found,
    state: State,
    accept_loss: bool,
) -> Result<(Tables, Scan), StoreError> {
    let log_dir = dir.join(log::DIR);
    let Some(known) = found.known(state, accept_loss) else {
        return Ok((tables, no_log(&log_dir, state, accept_loss)?));
    };
    let mut replay = Replay::new(tables);
    let scan = log::scan(&log_dir, known, &mut |logged| replay.take(&logged));
    let scan = scan.map_err(|error| match error {
        StoreError::Damaged(why) => StoreError::Damaged(format!("{why}; {REMEDY}")),
        other => other,
    })?;
    if state.closed && scan.last > state.stored && !accept_loss {
        return Err(StoreError::Damaged(format!(
            "{} was closed in order after commit {}, and the commit log has commit {}: they are of different times; {REMEDY}",
            files::DB,
            state.stored,
            scan.last
        )));
    }
    let tables = replay.finish_tables()?;
    let replayed = scan.last.saturating_sub(state.stored);
    if replayed > 0 {
        tracing::info!(commits = replayed, "commits of the log were written to the tables");
    }
    Ok((tables, scan))
}

/// A store of a version without a log: there must be none.
fn no_log(dir: &Path, state: State, accept_loss: bool) -> Result<Scan, StoreError> {
    if !accept_loss && !log::segments_of(dir)?.is_empty() {
        return Err(StoreError::Damaged(format!(
            "the commit log {} is of another store; {REMEDY}",
            dir.display()
        )));
    }
    Ok(Scan { last: state.stored, ..Scan::default() })
}

pub(super) fn check_version() -> Result<(), StoreError> {
    if rusqlite::version_number() < VERSION_MIN {
        let found = rusqlite::version();
        return Err(StoreError::Unusable(format!("SQLite {found} is too old; 3.51.3 or later is needed")));
    }
    Ok(())
}

/// Checks that the files are as a stop or a crash leaves them. Nothing is written before that is known.
fn check_whole(conn: &Connection, found: &Found, accept_loss: bool) -> Result<(), StoreError> {
    if !is_ours(conn)? {
        // Of another program, or of a first start that died: the migrations find out which.
        return Ok(());
    }
    let checked = (|| {
        let whole = found.check(read_state(conn)?, checkpoint::frames(conn)?)?;
        if whole.doubtful {
            tracing::info!("the data directory is a copy of one that was in use: every row is checked");
            check::every_row(conn)?;
        }
        Ok(())
    })();
    match checked {
        Err(StoreError::Damaged(why)) if accept_loss => {
            tracing::warn!(%why, "damage accepted");
            Ok(())
        }
        other => other,
    }
}

/// True when the database has the tables of a store.
pub(super) fn is_ours(conn: &Connection) -> Result<bool, StoreError> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'server_state'";
    Ok(conn.query_row(sql, [], |row| row.get::<_, i64>(0))? > 0)
}

/// Lets SQLite report how many frames the log has after each commit.
fn watch_log(conn: &mut Connection, frames: &Arc<AtomicU64>) -> Result<(), StoreError> {
    let frames = Arc::clone(frames);
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
        frames.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(())
}

/// Takes the next epoch, and gives the store a log if it has none. From here on the database needs its logs, and records that
/// before anything is acknowledged.
fn begin(tables: &mut Tables, state: State, scan: &Scan) -> Result<(Epoch, LogId), StoreError> {
    let conn = &tables.conn;
    conn.execute_batch("PRAGMA synchronous = FULL")?;
    let transaction = conn.unchecked_transaction()?;
    let epoch = epoch::take_next(&transaction)?;
    // Where damage was accepted, numbers of lost commits are not given out again.
    let sql = format!(
        "UPDATE store_state SET closed = 0, stored = ?1, log_id = coalesce(log_id, randomblob(16)) WHERE {}",
        row_sums::STORE_STATE.check
    );
    transaction.execute(&sql, [scan.last.cast_signed()])?;
    let id = transaction.query_row("SELECT log_id FROM store_state", [], |row| row.get::<_, [u8; 16]>(0))?;
    transaction.commit()?;
    conn.execute_batch("PRAGMA synchronous = NORMAL")?;
    tables.stored = scan.last;
    if state.closed {
        tables.move_all()?;
    }
    Ok((epoch, LogId(id)))
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
        "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; PRAGMA foreign_keys = ON;",
    )?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // A log that is found damaged must stay as it is when the start is given up.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(conn)
}

pub(super) fn open_reader(path: &Path, cache_kib: u32) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    settle(&conn, cache_kib)?;
    conn.execute_batch("PRAGMA query_only = ON;")?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(conn)
}

/// The settings of every connection.
fn settle(conn: &Connection, cache_kib: u32) -> Result<(), StoreError> {
    row_sums::add_functions(conn)?;
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.execute_batch(&format!(
        "PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF; PRAGMA cache_size = -{cache_kib};"
    ))?;
    Ok(())
}

/// Adds the directory to an error.
pub(super) fn in_dir(dir: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Unusable(why) => {
            StoreError::Unusable(format!("data directory {} cannot be used: {why}", dir.display()))
        }
        StoreError::Failed(why) => {
            StoreError::Failed(format!("cannot open data directory {}: {why}", dir.display()))
        }
        StoreError::Damaged(why) => StoreError::Damaged(format!("data directory {}: {why}", dir.display())),
        other => other,
    }
}

pub(super) fn read_lanes(conn: &Connection) -> Result<HashMap<Name, i64>, StoreError> {
    let sql = format!("SELECT name, number, {} FROM lane", row_sums::LANE.check);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    let mut lanes = HashMap::new();
    while let Some(row) = rows.next()? {
        lanes.insert(stored_name(row.get_ref(0)?.as_str()?)?, row.get(1)?);
    }
    Ok(lanes)
}

pub(super) fn read_numbers(conn: &Connection) -> Result<Numbers, StoreError> {
    let sql = format!(
        "SELECT max(last_seq, coalesce((SELECT max(seq) FROM job), 0)),
                max(last_ended, coalesce((SELECT max(ended) FROM done), 0)),
                pruned_event, pruned_hash, {}
         FROM server_state",
        row_sums::SERVER_STATE.check
    );
    let mut statement = conn.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let row =
        rows.next()?.ok_or_else(|| StoreError::Damaged("the row of table server_state is missing".into()))?;
    let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let mut numbers = Numbers {
        last_seq: number(0)?,
        last_ended: number(1)?,
        last_event: number(2)?,
        hash: stored_digest(row.get_ref(3)?.as_blob()?)?,
    };
    let mut statement = conn.prepare(&format!(
        "SELECT first + count - 1, hash, {} FROM event_batch ORDER BY first DESC LIMIT 1",
        row_sums::EVENT_BATCH.check
    ))?;
    let mut rows = statement.query([])?;
    if let Some(row) = rows.next()? {
        numbers.last_event = row.get::<_, i64>(0)?.cast_unsigned();
        numbers.hash = stored_digest(row.get_ref(1)?.as_blob()?)?;
    }
    Ok(numbers)
}
