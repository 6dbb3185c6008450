//! The store in PostgreSQL: for servers that share a database.
//!
//! A commit is one transaction: its statements, one for each table, are sent in one round trip, and the COMMIT follows. Every
//! transaction compares the epoch and the nonce of its writer with the row of the domain, so that a server that was replaced writes
//! nothing. Nothing depends on the session of a connection: a pooler in transaction mode may stand in between.
//!
//! After a connection was cut, the writer connects again. Where the COMMIT was sent, a number in the tables says whether the
//! transaction was done; nothing else happens before that is known.

mod attempts;
mod cells;
mod commit;
mod deliveries;
mod epoch;
mod events;
mod firing_log;
mod jobs;
mod kept_keys;
mod load;
mod migrate;
mod open;
mod pages;
mod prune;
mod query;
mod records;
mod runs;
mod schedules;
mod script;
mod session;
mod sessions;
mod tls;
mod url;
mod writer;

use std::sync::Arc;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, TokenRecord};

use crate::{Epoch, Keys, Loaded, Priors, Reader, Store, StoreError};
#[cfg(test)]
pub(crate) use migrate::MIGRATIONS;
use query::PostgresReader;
pub use url::{is_postgres_url, without_password};
use writer::Writer;

/// The store in PostgreSQL.
pub struct PostgresStore {
    writer: Writer,
    failed: Option<String>,
}

impl PostgresStore {
    /// Opens the store in the database of `url`; creates its tables where they are missing. From now on, commits of stores that were
    /// opened before are fenced.
    pub fn open(url: &str) -> Result<PostgresStore, StoreError> {
        let (server, session, ownership, numbers) = open::open(url)?;
        Ok(PostgresStore { writer: Writer::new(Arc::new(server), session, ownership, numbers), failed: None })
    }

    /// Fails once a commit has failed.
    fn check_well(&self) -> Result<(), StoreError> {
        match &self.failed {
            None => Ok(()),
            Some(why) => Err(StoreError::Failed(format!("it failed before and must be opened anew: {why}"))),
        }
    }
}

impl Store for PostgresStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.check_well()?;
        self.writer.load(visit)
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.check_well()?;
        self.writer.counters()
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.check_well()?;
        self.writer.server().read(load::tokens)
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.check_well()?;
        self.writer.server().read(load::overrides)
    }

    fn epoch(&self) -> Epoch {
        self.writer.epoch()
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        self.check_well()?;
        epoch.check(self.writer.epoch())?;
        let result = self.writer.commit(effects);
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
        self.writer.server().read(|session| {
            Ok(Priors { jobs: load::priors(session, &keys.jobs)?, runs: runs::priors(session, &keys.runs)? })
        })
    }

    fn close(&mut self) -> Result<bool, StoreError> {
        self.check_well()?;
        self.failed = Some("it was closed".to_owned());
        self.writer.close()?;
        Ok(true)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(PostgresReader(Arc::clone(self.writer.server())))
    }
}
