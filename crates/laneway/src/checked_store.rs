//! A store that is checked for damage while it is loaded. The load fails if damage is found, so nothing is decided from a
//! damaged store.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, TokenRecord};
use laneway_store::check::{CheckBounds, check_dir};
use laneway_store::{Epoch, Keys, Loaded, Priors, Reader, Store, StoreError};

/// The check, on a thread of its own.
type Check = JoinHandle<Result<(), StoreError>>;

/// A store, and a check of its directory that its first load waits for.
pub struct CheckedStore {
    store: Box<dyn Store>,
    check: Option<Check>,
}

impl CheckedStore {
    /// Begins the check, which ends after `time_max`.
    pub fn begin(
        store: Box<dyn Store>,
        dir: PathBuf,
        time_max: Duration,
    ) -> Result<CheckedStore, StoreError> {
        let thread = std::thread::Builder::new().name("laneway-check".into());
        let check = thread.spawn(move || check(dir, time_max));
        let cannot =
            |error| StoreError::Failed(format!("cannot start the thread that checks the store: {error}"));
        Ok(CheckedStore { store, check: Some(check.map_err(cannot)?) })
    }

    fn end_check(&mut self) -> Result<(), StoreError> {
        let Some(check) = self.check.take() else { return Ok(()) };
        check.join().unwrap_or_else(|_| Err(StoreError::Failed("the check of the store panicked".into())))
    }
}

fn check(dir: PathBuf, time_max: Duration) -> Result<(), StoreError> {
    let bounds = CheckBounds { rows_max: None, time_max: Some(time_max) };
    let report = check_dir(&dir, bounds, &mut |_| ())?;
    let (rows, events) = (report.rows, report.events);
    if report.complete {
        tracing::debug!(rows, events, "store checked");
    } else {
        tracing::info!(
            rows,
            events,
            "store checked in part: limits.start_check is over; `laneway store check` checks all of it"
        );
    }
    report.into_result()
}

impl Store for CheckedStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        let loaded = self.store.load(visit);
        // What the check found says more than a load that failed.
        self.end_check()?;
        loaded
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
