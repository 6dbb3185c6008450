//! A store that is checked for damage once it is loaded. A start waits a moment for the check: a small store is checked before
//! anything is decided from it. The check of a larger one goes on beside the server, and reports what it finds.
//!
//! Rows that are damaged are not served in the meantime, because every read checks them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, TokenRecord};
use laneway_runtime::Scheduler;
use laneway_store::check::{CheckBounds, CheckReport, check_dir};
use laneway_store::{Epoch, Keys, Loaded, Priors, Reader, Store, StoreError};

/// How long a start waits for the check.
const WAIT: Duration = Duration::from_millis(250);

/// A store, and a check of its directory that begins when it is loaded.
pub struct CheckedStore {
    store: Box<dyn Store>,
    dir: PathBuf,
    time_max: Duration,
    /// Where a check that goes on reports.
    late: Arc<std::sync::Mutex<Option<Receiver<Checked>>>>,
}

/// What a check found.
type Checked = Result<CheckReport, StoreError>;

/// A check that may go on beside the server.
pub struct LateCheck(Arc<std::sync::Mutex<Option<Receiver<Checked>>>>);

impl CheckedStore {
    /// Checks the store when it is loaded, for at most `time_max`.
    pub fn new(store: Box<dyn Store>, dir: PathBuf, time_max: Duration) -> (CheckedStore, LateCheck) {
        let late = Arc::default();
        let check = LateCheck(Arc::clone(&late));
        (CheckedStore { store, dir, time_max, late }, check)
    }

    /// Checks for a moment. Damage that is found by then is an error.
    fn check(&mut self) -> Result<(), StoreError> {
        let (sender, receiver) = sync_channel(1);
        let (dir, time_max) = (self.dir.clone(), self.time_max);
        let thread = std::thread::Builder::new().name("laneway-check".into());
        let spawned = thread.spawn(move || {
            let bounds = CheckBounds { rows_max: None, time_max: Some(time_max) };
            // An error: the server has stopped.
            let _ = sender.send(check_dir(&dir, bounds, &mut |_| ()));
        });
        let cannot =
            |error| StoreError::Failed(format!("cannot start the thread that checks the store: {error}"));
        spawned.map_err(cannot)?;
        match receiver.recv_timeout(WAIT) {
            Ok(checked) => {
                let report = checked?;
                log(&report);
                report.into_result()
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Ok(mut late) = self.late.lock() {
                    *late = Some(receiver);
                }
                Ok(())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(StoreError::Failed("the check of the store panicked".into()))
            }
        }
    }
}

impl LateCheck {
    /// Waits for the check on a thread of its own, and reports what it finds.
    pub fn report_to(self, scheduler: Scheduler) {
        let Some(receiver) = self.0.lock().ok().and_then(|mut late| late.take()) else { return };
        let wait = move || match receiver.recv() {
            Ok(Ok(report)) => {
                log(&report);
                report.damage.iter().for_each(|damage| scheduler.report_damage(&damage.to_string()));
            }
            Ok(Err(StoreError::Damaged(what))) => scheduler.report_damage(&what),
            Ok(Err(error)) => tracing::warn!(%error, "the store could not be checked"),
            Err(_) => tracing::warn!("the check of the store has ended without a result"),
        };
        let spawned = std::thread::Builder::new().name("laneway-checked".into()).spawn(wait);
        if let Err(error) = spawned {
            tracing::warn!(%error, "what the check of the store finds is not reported");
        }
    }
}

fn log(report: &CheckReport) {
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
}

impl Store for CheckedStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        let loaded = self.store.load(visit);
        // Not beside the load: that would take longer. What the check finds says more than a load that failed.
        self.check()?;
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

    fn check_owned(&self) -> Result<(), StoreError> {
        self.store.check_owned()
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
