//! The store in SQLite: one file, one writer, durable before it answers.
//!
//! One connection both writes and checkpoints; readers are read-only and see committed state. A commit is one
//! transaction with one fsync. After a commit, fsync or checkpoint that failed, the store refuses everything: what is on
//! disk is not known, and only a fresh start finds out.

mod checkpoint;
mod columns;
mod commit;
mod deliveries;
mod events;
mod live;
mod load;
mod lock;
mod migrate;
mod open;
mod pool;
mod prune;
mod query;
mod runs;
mod schedules;
mod sessions;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use laneway_core::engine::Head;
use laneway_core::{Bytes, Effects, Name, Prior, PriorRun, TokenRecord};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, ErrorCode};

use crate::codec::EventWriter;
use crate::{Loaded, Reader, Store, StoreError};
use checkpoint::Checkpoints;
use live::Live;
use lock::DirLock;
pub use open::SqliteOptions;
use pool::Pool;
use query::SqliteReader;

/// The store in SQLite. Holds the lock on its data directory for as long as it lives.
pub struct SqliteStore {
    // Fields drop in order: the connection closes before the lock goes.
    conn: Connection,
    pool: Arc<Pool>,
    live: Live,
    head: Numbers,
    lanes: HashMap<Name, i64>,
    events: EventWriter,
    blob: Vec<u8>,
    checkpoints: Checkpoints,
    failed: Option<String>,
    _lock: DirLock,
}

/// Where the numbers of the store stand.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    /// Highest job number ever stored.
    last_seq: u64,
    /// How many jobs have ended, ever.
    last_ended: u64,
    /// Highest event number ever stored.
    last_event: u64,
    /// Hash of the last event batch.
    hash: [u8; 32],
}

impl SqliteStore {
    /// Opens the store in `dir`; makes both where they are missing.
    pub fn open(dir: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        open::open(dir, options)
    }

    /// Fails once a commit has failed.
    fn check_well(&self) -> Result<(), StoreError> {
        match &self.failed {
            None => Ok(()),
            Some(why) => Err(StoreError::Failed(format!("it failed before and must be opened anew: {why}"))),
        }
    }
}

impl Store for SqliteStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<Head, StoreError> {
        self.check_well()?;
        load::load(self, visit)
    }

    fn head(&mut self) -> Result<Head, StoreError> {
        self.check_well()?;
        load::head(self)
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.check_well()?;
        load::tokens(&self.conn)
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.check_well()?;
        load::overrides(&self.conn)
    }

    fn commit(&mut self, effects: &Effects) -> Result<(), StoreError> {
        self.check_well()?;
        let result = commit::commit(self, effects);
        if let Err(StoreError::Failed(why) | StoreError::Damaged(why)) = &result {
            self.failed = Some(why.clone());
        }
        result
    }

    fn prior(&mut self, tenant: &Name, key: &Name) -> Result<Option<Prior>, StoreError> {
        self.check_well()?;
        load::prior(&self.conn, tenant, key)
    }

    fn prior_run(&mut self, tenant: &Name, key: &Name) -> Result<Option<PriorRun>, StoreError> {
        self.check_well()?;
        runs::prior(&self.conn, tenant, key)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(SqliteReader(Arc::clone(&self.pool)))
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Damaged(error.to_string())
            }
            _ => StoreError::Failed(error.to_string()),
        }
    }
}

impl From<FromSqlError> for StoreError {
    fn from(error: FromSqlError) -> StoreError {
        StoreError::Damaged(format!("a column holds something else than it must: {error}"))
    }
}
