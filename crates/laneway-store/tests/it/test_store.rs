//! The store of a test: in memory, or in PostgreSQL where `LANEWAY_TEST_STORE=postgres`. Tests of other crates use this file.

use std::sync::Arc;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, TokenRecord};
use laneway_store::{Epoch, Keys, Loaded, MemoryStore, PostgresStore, Priors, Reader, Store, StoreError};

use super::postgres_server::TestDatabase;

/// An empty store.
pub fn test_store() -> Box<dyn Store> {
    match std::env::var("LANEWAY_TEST_STORE").as_deref() {
        Err(_) | Ok("memory") => Box::new(MemoryStore::new()),
        Ok("postgres") => Box::new(InDatabase::new().expect("LANEWAY_TEST_STORE=postgres needs PostgreSQL")),
        Ok(other) => panic!("LANEWAY_TEST_STORE is {other:?}; it is memory or postgres"),
    }
}

/// A store with a database of its own.
struct InDatabase {
    store: PostgresStore,
    /// Readers may outlive the store. A later test drops the databases of processes that have ended.
    database: &'static TestDatabase,
}

impl InDatabase {
    fn new() -> Option<InDatabase> {
        let database: &TestDatabase = Box::leak(Box::new(TestDatabase::new()?));
        Some(InDatabase { store: PostgresStore::open(&database.url()).unwrap(), database })
    }
}

impl Store for InDatabase {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.store.load(visit)
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.store.counters()
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.store.tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.store.overrides()
    }

    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        self.store.commit(epoch, effects)
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.store.priors(keys)
    }

    fn close(&mut self) -> Result<bool, StoreError> {
        self.store.close()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.store.reader()
    }
}

/// A run on PostgreSQL is one, and not a run in memory.
#[test]
fn the_variable_chooses_the_store() {
    let Some(mut store) = InDatabase::new() else { return };
    assert_eq!(store.counters().unwrap().last_event, 0);
    let database = store.database;
    assert_eq!(database.psql("SELECT current_database()"), database.name());
    assert_eq!(database.psql("SELECT epoch FROM laneway.domain"), store.epoch().0.to_string());
    let mut chosen = test_store();
    assert_eq!(chosen.epoch(), chosen.epoch());
    assert!(chosen.close().unwrap());
}
