//! What the writer of the log, the writer of the tables, and readers share.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::Change;

use super::files;
use super::mark::Marker;
use super::pending::{Commit, Pending};
use super::pool::Pool;
use super::tables::{self, Tables};
use crate::columns::events::EventBytes;
use crate::log::{CommitLog, make_spare};
use crate::{Epoch, StoreError};

/// The parts of a store. Locks are taken in this order: tables, log, marker.
pub(super) struct Shared {
    /// `None`: the store is closed. Readers may outlive it.
    tables: Mutex<Option<Tables>>,
    log: Mutex<CommitLog>,
    marker: Arc<Mutex<Marker>>,
    pub pending: Pending,
    pub pool: Arc<Pool>,
    dir: PathBuf,
    /// No thread writes the tables.
    by_hand: bool,
}

/// The tables of a store that is open, locked.
pub(super) struct OpenTables<'a>(MutexGuard<'a, Option<Tables>>);

impl Deref for OpenTables<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        self.0.as_ref().expect("checked when it was locked")
    }
}

impl DerefMut for OpenTables<'_> {
    fn deref_mut(&mut self) -> &mut Tables {
        self.0.as_mut().expect("checked when it was locked")
    }
}

impl Shared {
    /// All commits of the log are in the tables.
    pub fn new(
        tables: Tables,
        log: CommitLog,
        marker: Arc<Mutex<Marker>>,
        pool: Arc<Pool>,
        by_hand: bool,
    ) -> Shared {
        let (pending, dir) = (Pending::new(tables.stored), tables.dir().to_owned());
        let (tables, log) = (Mutex::new(Some(tables)), Mutex::new(log));
        Shared { tables, log, marker, pending, pool, dir, by_hand }
    }

    /// Does a thread write the tables?
    pub fn needs_writer(&self) -> bool {
        !self.by_hand
    }

    /// The number of the last commit in the log.
    pub fn last_logged(&self) -> u64 {
        lock(&self.log).last()
    }

    /// The next append breaks off, as if the process ended.
    pub fn break_next_append(&self, torn: bool) {
        lock(&self.log).break_next_append(torn);
    }

    /// Waits until a commit may be added.
    pub fn wait_for_space(&self) -> Result<(), StoreError> {
        if self.by_hand && self.pending.is_full() {
            self.catch_up()?;
        }
        self.pending.wait_for_space()
    }

    /// Makes a commit durable in the log. Returns its number.
    pub fn append(
        &self,
        epoch: Epoch,
        changes: &[Change],
        events: Option<&EventBytes>,
    ) -> Result<u64, StoreError> {
        let append = || lock(&self.log).append(epoch, |out| Commit::encode(out, changes, events));
        let mut appended = append();
        for _ in 0..SPACE_TRIES {
            if !matches!(appended, Err(StoreError::Full(_))) || !self.make_space(&mut *self.tables_now()?) {
                break;
            }
            appended = append();
        }
        let number = appended.map_err(|error| files::name_full(&self.dir, error))?;
        tables::lock(&self.marker).committed(number);
        Ok(number)
    }

    /// Finds space on a full disk. False: there is none. A segment whose commits are in the database can be used again.
    fn make_space(&self, tables: &mut Tables) -> bool {
        // A checkpoint needs space itself, so it comes last.
        if files::release_reserve(&self.dir) || lock(&self.log).drop_kept() {
            return true;
        }
        let moved = tables.move_all().unwrap_or(false);
        if moved {
            lock(&self.log).release(tables.stored);
        }
        moved
    }

    /// Makes a commit durable that the tables might reject: they take it first, in a transaction that ends after the append.
    pub fn commit_to_tables(
        &self,
        epoch: Epoch,
        changes: Vec<Change>,
        events: Option<EventBytes>,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables_now()?;
        let number = lock(&self.log).last() + 1;
        let commit = Arc::new(Commit::new(number, changes, events));
        let mut logged = self.begin_and_append(&mut tables, epoch, &commit);
        for _ in 0..SPACE_TRIES {
            if !matches!(logged, Err(StoreError::Full(_))) || !self.make_space(&mut tables) {
                break;
            }
            logged = self.begin_and_append(&mut tables, epoch, &commit);
        }
        logged.map_err(|error| files::name_full(&self.dir, error))?;
        tables::lock(&self.marker).committed(number);
        // The commit is durable from here on.
        let commit = [commit];
        let ended = match tables.end() {
            Err(StoreError::Full(_)) => tables.store(&commit),
            ended => ended,
        };
        if let Err(error) = ended {
            tracing::error!(%error, "the tables could not be written; the commit log has the commit");
            self.pending.fail(error.to_string());
            return Ok(());
        }
        self.pending.stored(number);
        self.after_transaction(&mut tables, &commit)
    }

    /// Begins a transaction with a commit and appends the commit to the log. After an error neither has it.
    fn begin_and_append(
        &self,
        tables: &mut Tables,
        epoch: Epoch,
        commit: &Arc<Commit>,
    ) -> Result<(), StoreError> {
        tables.begin(std::slice::from_ref(commit))?;
        let encode = |out: &mut Vec<u8>| Commit::encode(out, &commit.changes, commit.events.as_ref());
        let appended = lock(&self.log).append(epoch, encode);
        if let Err(error) = appended {
            tables.undo()?;
            return Err(error);
        }
        Ok(())
    }

    /// The tables, with every commit that is durable now.
    pub fn tables_now(&self) -> Result<OpenTables<'_>, StoreError> {
        let mut tables = self.tables()?;
        while self.write_oldest(&mut tables)? {}
        Ok(tables)
    }

    fn tables(&self) -> Result<OpenTables<'_>, StoreError> {
        let tables = lock(&self.tables);
        match *tables {
            Some(_) => Ok(OpenTables(tables)),
            None => Err(StoreError::Failed("the store is closed".into())),
        }
    }

    /// Writes commits to the tables that wait. False: none does.
    fn write_oldest(&self, tables: &mut Tables) -> Result<bool, StoreError> {
        let commits = self.pending.oldest();
        let Some(last) = commits.last() else { return Ok(false) };
        if let Err(error) = tables.store(&commits) {
            self.pending.fail(error.to_string());
            return Err(error);
        }
        self.pending.stored(last.number);
        self.after_transaction(tables, &commits)?;
        Ok(true)
    }

    fn after_transaction(&self, tables: &mut Tables, commits: &[Arc<Commit>]) -> Result<(), StoreError> {
        let bytes = commits.iter().flat_map(|commit| &commit.changes).map(Change::opaque_len).sum();
        if tables.checkpoint_if_due(bytes)? {
            lock(&self.log).release(tables.stored);
        }
        Ok(())
    }

    /// Writes the tables until the store is stopped or fails. A thread of its own runs this.
    pub fn write_tables(&self) {
        while self.pending.wait_until_due() {
            let written = self.tables().and_then(|mut tables| self.write_oldest(&mut tables));
            if let Err(error) = written {
                tracing::error!(%error, "the tables cannot be written; nothing that was acknowledged is lost");
                self.pending.fail(error.to_string());
                return;
            }
            // Beside the loop, which would wait for it otherwise. Where it fails, the loop tries for itself.
            let wanted = lock(&self.log).spare_wanted();
            if let Some(Ok(spare)) = wanted.map(make_spare) {
                lock(&self.log).put_spare(spare);
            }
        }
    }

    /// Waits until the tables have everything that is durable now.
    pub fn catch_up(&self) -> Result<(), StoreError> {
        if self.by_hand {
            return self.tables_now().map(drop);
        }
        self.pending.catch_up()
    }

    /// Closes the connection that writes the tables. Readers may still be in use.
    pub fn close_tables(&self) {
        self.pool.close_idle();
        drop(lock(&self.tables).take());
    }

    /// Moves everything into the database, and removes the log. False: a reader is in the way.
    pub fn close(&self) -> Result<bool, StoreError> {
        self.pool.close_idle();
        if !self.tables_now()?.close()? {
            return Ok(false);
        }
        self.close_tables();
        let mut log = lock(&self.log);
        log.remove().map_err(|error| StoreError::Failed(format!("cannot remove the commit log: {error}")))?;
        Ok(true)
    }
}

/// How often space is looked for.
const SPACE_TRIES: u32 = 32;

/// Locks a part. A panic while it is held leaves a store that has failed, which every user of it checks.
fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
