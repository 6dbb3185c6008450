//! The store in SQLite: a commit log that acknowledges, and tables behind it.
//!
//! A commit is appended to the log, with one fsync, and is durable then. A second thread writes commits to the tables, many in
//! one transaction; so a job that comes and goes in the meantime is written once. What the tables lack after a crash is
//! written there at the next start. Readers see everything that is durable: one job is read from the tables and the commits
//! that wait, and lists wait until the tables have caught up.
//!
//! After an append, a transaction or a checkpoint that failed, the store rejects everything: what is on disk is not known,
//! and only a fresh start finds out.

mod attempts;
pub mod check;
mod checkpoint;
mod commit;
pub mod copy;
mod deliveries;
mod epoch;
mod events;
mod facets;
pub mod files;
mod firing_log;
mod history;
mod kept_keys;
mod live;
mod load;
mod lock;
mod mark;
mod migrate;
mod offline;
mod open;
mod overlay;
mod pages;
mod pending;
mod pool;
mod precheck;
mod prune;
mod query;
mod records;
mod replay;
pub mod row_sums;
mod runs;
mod schedules;
mod sessions;
mod shared;
mod tables;
pub(crate) mod transfer;
mod whole;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, Fence, JobId, Prior, Seq, TokenRecord};
use rusqlite::types::FromSqlError;
use rusqlite::{ErrorCode, ffi};

use crate::codec::EventWriter;
use crate::columns::events::{EventBytes, check_numbers};
use crate::columns::{number, small};
use crate::rows::{stored_attempt_id, stored_job_id};
use crate::{Epoch, Keys, Loaded, Priors, Reader, Store, StoreError};
use lock::DirLock;
pub use open::SqliteOptions;
use pending::Commit;
use precheck::Precheck;
use query::SqliteReader;
use shared::Shared;
use tables::Tables;

#[cfg(test)]
pub(crate) use migrate::MIGRATIONS;

/// The store in SQLite. Holds the lock on its data directory for as long as it lives.
pub struct SqliteStore {
    // Fields drop in order: the connections close before the lock goes.
    shared: Arc<Shared>,
    precheck: Precheck,
    events: EventWriter,
    last_event: u64,
    /// The last commit that deletes jobs, and so their idempotency keys.
    prunes: u64,
    /// The epoch that this opening took.
    epoch: Epoch,
    failed: Option<String>,
    /// The thread that writes the tables.
    writer: Option<JoinHandle<()>>,
    _lock: DirLock,
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

    /// Starts the thread that writes the tables.
    fn start(shared: Shared, epoch: Epoch, lock: DirLock) -> Result<SqliteStore, StoreError> {
        let shared = Arc::new(shared);
        let (precheck, last_event) = {
            let tables = shared.tables_now()?;
            (precheck_of(&tables)?, tables.numbers.last_event)
        };
        let write = |shared: Arc<Shared>| {
            let thread = std::thread::Builder::new().name("laneway-tables".into());
            thread.spawn(move || shared.write_tables())
        };
        let writer = shared.needs_writer().then(|| write(Arc::clone(&shared))).transpose();
        let cannot =
            |error| StoreError::Failed(format!("cannot start the thread that writes the tables: {error}"));
        Ok(SqliteStore {
            shared,
            precheck,
            events: EventWriter::default(),
            last_event,
            prunes: 0,
            epoch,
            failed: None,
            writer: writer.map_err(cannot)?,
            _lock: lock,
        })
    }

    /// Ends the store as a kill would: commits that are not in the tables stay in the log, and the next start writes them.
    pub fn abandon(mut self) {
        self.end();
        self.failed = Some("it was abandoned".to_owned());
    }

    /// Writes every commit that waits to the tables. Only a store with [`SqliteOptions::tables_by_hand`] needs this.
    pub fn write_tables(&self) -> Result<(), StoreError> {
        self.shared.catch_up()
    }

    /// The last commit of the log, and the last one that the tables have.
    pub fn last_commits(&self) -> (u64, u64) {
        (self.shared.last_logged(), self.shared.pending.stored_until())
    }

    /// The next commit breaks off while it is appended to the log, as if the process ended: nothing of it is there, or, with
    /// `torn`, a part of it. For simulations. The store has failed then.
    pub fn break_next_commit(&mut self, torn: bool) {
        self.shared.break_next_append(torn);
    }

    fn stop_writer(&mut self) {
        self.shared.pending.stop();
        if let Some(writer) = self.writer.take() {
            // A panic of the thread was reported, and the store has failed.
            let _ = writer.join();
        }
    }

    fn end(&mut self) {
        self.stop_writer();
        self.shared.close_tables();
    }

    fn commit_checked(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        epoch.check(self.epoch)?;
        check_numbers(self.last_event, &effects.events)?;
        if effects.changes.is_empty() && effects.events.is_empty() {
            return Ok(());
        }
        self.shared.wait_for_space()?;
        self.precheck.written(self.shared.pending.stored_until());
        let events = EventBytes::of(&mut self.events, &effects.events);
        let last_event = effects.events.last().map_or(self.last_event, |event| event.number);
        if self.precheck.admit(&effects.changes) {
            let number = self.shared.append(epoch, &effects.changes, events.as_ref())?;
            self.precheck.appended(number, &effects.changes);
            let commit = Commit::new(number, effects.changes.clone(), events);
            if commit.prunes() {
                self.prunes = number;
            }
            self.shared.pending.push(commit);
        } else {
            self.shared.commit_to_tables(epoch, effects.changes.clone(), events)?;
            self.precheck.take_in(&effects.changes);
        }
        self.last_event = last_event;
        Ok(())
    }

    /// Fails once a commit has failed.
    fn check_well(&self) -> Result<(), StoreError> {
        match self.failed.clone().or_else(|| self.shared.pending.failure()) {
            None => Ok(()),
            Some(why) => Err(StoreError::Failed(format!("it failed before and must be opened anew: {why}"))),
        }
    }
}

impl Drop for SqliteStore {
    /// Writes the commits that wait to the tables, unless the store has failed: the next start has less to do then.
    fn drop(&mut self) {
        let has_writer = self.writer.is_some() || !self.shared.needs_writer();
        if has_writer && self.check_well().is_ok() {
            let _ = self.shared.catch_up();
        }
        self.end();
    }
}

impl Store for SqliteStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.check_well()?;
        let pool = &self.shared.pool;
        let loaded = load::load(&mut *self.shared.tables_now()?, pool, visit);
        // Their page caches hold what is not read again soon.
        pool.close_idle();
        loaded
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.check_well()?;
        load::counters(&*self.shared.tables_now()?)
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.check_well()?;
        load::tokens(&self.shared.tables_now()?.conn)
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.check_well()?;
        load::overrides(&self.shared.tables_now()?.conn)
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        self.check_well()?;
        let result = self.commit_checked(epoch, effects);
        if let Err(StoreError::Failed(why) | StoreError::Damaged(why) | StoreError::Full(why)) = &result {
            self.failed = Some(why.clone());
        }
        result
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.check_well()?;
        if keys.is_empty() {
            return Ok(Priors::default());
        }
        if self.prunes > self.shared.pending.stored_until() {
            self.shared.catch_up()?;
        }
        // What the tables have may be deleted there already.
        self.precheck.written(self.shared.pending.stored_until());
        let precheck = &mut self.precheck;
        self.shared.pool.read(|conn| {
            let mut jobs: Vec<Option<Prior>> = load::priors(conn, &keys.jobs)?;
            for ((tenant, key), prior) in keys.jobs.iter().zip(&mut jobs) {
                // A key whose commit waits is not in the tables yet.
                *prior = prior.or_else(|| precheck.prior(tenant, key));
                if prior.is_none() {
                    precheck.key_is_free(tenant, key);
                }
            }
            Ok(Priors { jobs, runs: runs::priors(conn, &keys.runs)? })
        })
    }

    fn close(&mut self) -> Result<bool, StoreError> {
        self.check_well()?;
        self.shared.catch_up()?;
        self.stop_writer();
        let closed = self.shared.close();
        self.failed = Some("it was closed".to_owned());
        closed
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(SqliteReader(Arc::clone(&self.shared)))
    }
}

/// What the next commit must fit.
fn precheck_of(tables: &Tables) -> Result<Precheck, StoreError> {
    let last_id =
        tables.conn.query_row("SELECT max(id) FROM job", [], |row| row.get::<_, Option<Vec<u8>>>(0))?;
    let last_id = last_id.map_or(Ok(JobId(0)), |id| stored_job_id(&id))?;
    let mut select = tables.conn.prepare(&format!(
        "SELECT open_attempt.seq, attempt, attempt_id, lease_epoch, job.id, {} FROM open_attempt JOIN job ON job.seq = open_attempt.seq",
        row_sums::OPEN_ATTEMPT.check
    ))?;
    let mut rows = select.query([])?;
    let mut open: Vec<(Seq, Fence)> = Vec::new();
    while let Some(row) = rows.next()? {
        let fence = Fence {
            job: stored_job_id(row.get_ref(4)?.as_blob()?)?,
            attempt: small(row, 1)?,
            attempt_id: stored_attempt_id(row.get_ref(2)?.as_blob()?)?,
            lease_epoch: small(row, 3)?,
        };
        open.push((Seq(number(row, 0)?), fence));
    }
    let live = tables.live.chunks().into_iter().flat_map(|chunk| chunk.jobs());
    Ok(Precheck::new(tables.numbers.last_seq, last_id, live, open.into_iter()))
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        if let rusqlite::Error::SqliteFailure(_, Some(text)) = &error
            && let Some(why) = text.strip_prefix(row_sums::DAMAGED)
        {
            return StoreError::Damaged(why.to_owned());
        }
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
