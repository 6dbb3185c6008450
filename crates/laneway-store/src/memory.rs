//! The store in memory: the readable reference that every other store must agree with, and the simulator's disk.
//!
//! It keeps no file. Changes are applied in order, one by one; a commit that fails is undone, so that it leaves nothing
//! behind. Nothing here is tuned beyond that: where a database folds, caches and prepares, this walks a map.

mod apply;
mod read;
mod runs;
mod schedules;
mod state;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use laneway_core::engine::StoreCounters;
use laneway_core::schedule::RECENT_FIRINGS_MAX;
use laneway_core::{Bytes, CallRow, Change, Effects, FiringLogEntry, Name, RunRow, Schedule, TokenRecord};

use crate::{Epoch, Keys, Loaded, Priors, Reader, Store, StoreError};
use read::MemoryReader;
use state::State;

/// A store that lives as long as its process. A clone has a life of its own from then on.
pub struct MemoryStore {
    shared: Shared,
    /// The epoch that this handle took.
    epoch: Epoch,
    rejected_kinds: BTreeSet<Name>,
}

/// The state of a [`MemoryStore`] at one moment. Taking it costs no more than a reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot(Arc<State>);

/// The state as writer and readers share it. The inner reference makes snapshots cheap: the next commit after one copies
/// the maps, not the jobs in them.
#[derive(Clone, Default)]
struct Shared {
    state: Arc<RwLock<Arc<State>>>,
    /// The epoch of the latest handle. Not part of the state: it does not go back with a snapshot.
    epoch: Arc<AtomicU64>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::open(Shared::default())
    }

    fn open(shared: Shared) -> MemoryStore {
        let epoch = Epoch(shared.epoch.fetch_add(1, Ordering::SeqCst)).next();
        MemoryStore { shared, epoch, rejected_kinds: BTreeSet::new() }
    }

    /// What the store holds now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(Arc::clone(&self.shared.read()))
    }

    /// Goes back to the state of that moment. Readers given out before see it, too.
    pub fn restore(&mut self, snapshot: &Snapshot) {
        *self.shared.write() = Arc::clone(&snapshot.0);
    }

    /// Another handle to the same state: what a new process finds where the old one wrote. Commits of earlier handles are
    /// fenced from now on.
    pub fn reopen(&self) -> MemoryStore {
        MemoryStore::open(self.shared.clone())
    }

    /// From now on a commit that creates a job of this kind is rejected, as a database rejects a row it cannot hold.
    pub fn reject_kind(&mut self, kind: Name) {
        self.rejected_kinds.insert(kind);
    }

    /// Rejects no kind any more.
    pub fn reject_nothing(&mut self) {
        self.rejected_kinds.clear();
    }

    fn check_kinds(&self, effects: &Effects) -> Result<(), StoreError> {
        if self.rejected_kinds.is_empty() {
            return Ok(());
        }
        for change in &effects.changes {
            if let Change::JobCreated { row, .. } = change
                && self.rejected_kinds.contains(&row.spec.kind)
            {
                return Err(StoreError::Rejected(format!(
                    "job {}: kind {} is rejected",
                    row.id, row.spec.kind
                )));
            }
        }
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl Clone for MemoryStore {
    fn clone(&self) -> MemoryStore {
        let clone = MemoryStore::open(Shared::of(Arc::clone(&self.shared.read())));
        MemoryStore { rejected_kinds: self.rejected_kinds.clone(), ..clone }
    }
}

impl From<Snapshot> for MemoryStore {
    fn from(snapshot: Snapshot) -> MemoryStore {
        MemoryStore::open(Shared::of(snapshot.0))
    }
}

impl Shared {
    fn of(state: Arc<State>) -> Shared {
        Shared { state: Arc::new(RwLock::new(state)), epoch: Arc::default() }
    }

    // A panic while the lock is held can only come from a failed allocation; the state is still the best there is.
    fn read(&self) -> RwLockReadGuard<'_, Arc<State>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Arc<State>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        let state = self.shared.read();
        let lanes = state.jobs.values().map(|job| &job.row.spec.lane);
        let lanes: BTreeSet<&Name> = lanes.chain(state.run_rows.values().map(|row| &row.spec.lane)).collect();
        lanes.into_iter().for_each(|lane| visit(Loaded::Lane(lane.clone())));
        for schedule in state.schedules.values() {
            visit(Loaded::Schedule(Box::new(Schedule::clone(schedule))));
        }
        let newest = state.runs.values().rev().take(RECENT_FIRINGS_MAX);
        for run in newest.collect::<Vec<_>>().into_iter().rev() {
            visit(Loaded::FiringLogEntry(Box::new(FiringLogEntry::clone(run))));
        }
        for row in state.run_rows.values().filter(|row| !row.state.is_terminal()) {
            let ended = runs::ended_members(&state, row);
            visit(Loaded::OpenRun(Box::new(RunRow::clone(row)), ended));
        }
        for job in state.jobs.values().filter(|job| job.end.is_none()) {
            visit(Loaded::Job(job.row.clone()));
        }
        for job in state.jobs.values() {
            match (&job.open, &job.end) {
                (Some(open), None) => visit(Loaded::Open(open.clone())),
                (Some(open), Some((end, _))) => {
                    let mut row = job.row.clone();
                    row.status.last_event = end.last_event;
                    visit(Loaded::StillRunning(row, open.clone()));
                }
                (None, _) => {}
            }
        }
        for row in state.run_rows.values().filter(|row| !row.state.is_terminal()) {
            runs::calls(&state, row).for_each(|call| visit(Loaded::Call(Box::new(CallRow::clone(call)))));
        }
        for session in state.sessions.values() {
            visit(Loaded::Session(session.clone()));
        }
        state.kept_keys.values().for_each(|row| visit(Loaded::KeptKeys(row.clone())));
        state.records.values().for_each(|record| visit(Loaded::Record(record.clone())));
        let owed = state.jobs.values().filter(|job| job.is_owed());
        owed.filter_map(|job| job.delivery.clone()).for_each(|row| visit(Loaded::Delivery(row)));
        Ok(state.counters())
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        Ok(self.shared.read().counters())
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        Ok(self.shared.read().tokens.values().cloned().collect())
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        Ok(self.shared.read().overrides.clone())
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        self.check_kinds(effects)?;
        let mut state = self.shared.write();
        epoch.check(Epoch(self.shared.epoch.load(Ordering::SeqCst)))?;
        apply::commit(Arc::make_mut(&mut state), effects)
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        let state = self.shared.read();
        Ok(Priors {
            jobs: keys.jobs.iter().map(|(tenant, key)| state.prior(tenant, key)).collect(),
            runs: keys.runs.iter().map(|(tenant, key)| state.prior_run(tenant, key)).collect(),
        })
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(MemoryReader(self.shared.clone()))
    }
}
