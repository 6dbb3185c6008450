//! A store that ends as a kill would end it, whenever it is dropped: what is not in the tables stays in the log.

use std::sync::Arc;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, TokenRecord};
use laneway_store::suite::Fixture;
use laneway_store::{Epoch, Keys, Loaded, Priors, Reader, SqliteOptions, SqliteStore, Store, StoreError};

use super::SqliteFixture;

/// Opens stores that are killed when they are dropped.
pub struct Killed<'a>(pub &'a SqliteFixture);

/// The same, with a directory of its own.
pub struct KilledFixture(pub SqliteFixture);

impl Fixture for Killed<'_> {
    fn open(&self) -> Box<dyn Store> {
        Box::new(KilledStore(Some(SqliteStore::open(&self.0.path(), SqliteOptions::default()).unwrap())))
    }
}

impl Fixture for KilledFixture {
    fn open(&self) -> Box<dyn Store> {
        Killed(&self.0).open()
    }
}

struct KilledStore(Option<SqliteStore>);

impl KilledStore {
    fn store(&mut self) -> &mut SqliteStore {
        self.0.as_mut().expect("it is taken when it is dropped")
    }
}

impl Drop for KilledStore {
    fn drop(&mut self) {
        if let Some(store) = self.0.take() {
            store.abandon();
        }
    }
}

impl Store for KilledStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.store().load(visit)
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.store().counters()
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.store().tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.store().overrides()
    }

    fn epoch(&self) -> Epoch {
        self.0.as_ref().expect("it is taken when it is dropped").epoch()
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        self.store().commit(epoch, effects)
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.store().priors(keys)
    }

    fn close(&mut self) -> Result<bool, StoreError> {
        self.store().close()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.0.as_ref().expect("it is taken when it is dropped").reader()
    }
}
