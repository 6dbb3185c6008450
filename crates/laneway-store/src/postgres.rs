//! The store in PostgreSQL: for servers that share a database.
//!
//! A commit is one transaction: its statements, one for each table, are sent in one round trip, and the COMMIT follows. Every
//! transaction compares the epoch and the nonce of its writer with the row of the domain, so that a server that was replaced writes
//! nothing. Nothing depends on the session of a connection: a pooler in transaction mode may stand in between.
//!
//! After a connection was cut, the writer connects again. Where the COMMIT was sent, a number in the tables says whether the
//! transaction was done; nothing else happens before that is known.

mod attempts;
mod candidates;
mod cells;
mod cluster_node;
mod commit;
mod deliveries;
mod epoch;
mod events;
mod firing_log;
mod inbox;
mod jobs;
mod kept_keys;
mod load;
mod migrate;
mod open;
mod pages;
mod prune;
mod query;
mod raw;
mod records;
mod runs;
mod schedules;
mod script;
mod session;
mod sessions;
mod tenure;
mod tls;
pub(crate) mod transfer;
mod url;
mod writer;

use std::sync::Arc;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, TokenRecord};

use crate::{Epoch, Keys, Loaded, Priors, Reader, Store, StoreError};
pub use cluster_node::{ClusterNode, NodeId, NodeRow, NodeSettings, Owner, TTL, TTL_MIN, View};
pub use inbox::{Bell, Inbox, InboxRow, RejectedRow};
#[cfg(test)]
pub(crate) use migrate::MIGRATIONS;
use query::PostgresReader;
pub use raw::{RawConnection, RawParam};
pub use tenure::{Domain, Tenure};
pub use url::{check_url, is_postgres_url, without_password};
use writer::Writer;

/// The store in PostgreSQL.
pub struct PostgresStore {
    writer: Writer,
    failed: Option<String>,
    /// Renews the ownership as long as the store is open.
    _node: Option<ClusterNode>,
}

impl PostgresStore {
    /// Opens the store in the database of `url`; creates its tables where they are missing. From now on, commits of stores that were
    /// opened before are fenced.
    pub fn open(url: &str) -> Result<PostgresStore, StoreError> {
        let (server, session, ownership, numbers) = open::open(url)?;
        Ok(PostgresStore {
            writer: Writer::new(Arc::new(server), session, ownership, numbers),
            failed: None,
            _node: None,
        })
    }

    /// Opens the store for a node that owns the domain. It works as long as the node does.
    pub fn of_node(node: &ClusterNode, tenure: &Arc<Tenure>) -> Result<PostgresStore, StoreError> {
        let server = Arc::clone(node.server());
        let (session, ownership, numbers) = open::open_owned(&server, tenure)?;
        Ok(PostgresStore {
            writer: Writer::new(server, session, ownership, numbers),
            failed: None,
            _node: None,
        })
    }

    /// Opens the store for one process that owns the domain as long as the store is open. Fails while another server owns it.
    pub fn claim(url: &str, settings: NodeSettings) -> Result<PostgresStore, StoreError> {
        let node = ClusterNode::join(url, settings)?;
        let tenure = node.claim()?;
        let mut store = PostgresStore::of_node(&node, &tenure)?;
        store._node = Some(node);
        Ok(store)
    }

    /// Opens the store at once, unless a server uses the database: for commands that must not take it over.
    pub fn open_unused(url: &str) -> Result<PostgresStore, StoreError> {
        open::check_unused(url)?;
        PostgresStore::open(url)
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

    fn check_owned(&self) -> Result<(), StoreError> {
        self.writer.check_owned()
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
