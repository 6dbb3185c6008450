//! The store in memory: the readable reference that every other store must agree with, and the simulator's disk.
//!
//! It keeps no file. Changes are applied in order, one by one; a commit that fails is undone, so that it leaves nothing
//! behind. Nothing here is tuned beyond that: where a database folds, caches and prepares, this walks a map.

mod apply;
mod calendar;
mod read;
mod runs;
mod state;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use laneway_core::engine::Head;
use laneway_core::schedule::RECENT_RUNS_MAX;
use laneway_core::{
    Bytes, CallRow, Change, Effects, Name, Prior, PriorRun, RunLog, RunRow, Schedule, TokenRecord,
};

use crate::{Loaded, Reader, Store, StoreError};
use read::MemoryReader;
use state::State;

/// A store that lives as long as its process. A clone has a life of its own from then on.
#[derive(Default)]
pub struct MemoryStore {
    shared: Shared,
    refused_kinds: BTreeSet<Name>,
}

/// Everything that a [`MemoryStore`] held at one moment; as cheap to take as a reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot(Arc<State>);

/// The state as writer and readers share it. The inner reference makes snapshots cheap: the next commit after one copies
/// the maps, not the jobs in them.
#[derive(Clone, Default)]
struct Shared(Arc<RwLock<Arc<State>>>);

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// What the store holds now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(Arc::clone(&self.shared.read()))
    }

    /// Goes back to what the store held then. Readers given out before see it, too.
    pub fn restore(&mut self, snapshot: &Snapshot) {
        *self.shared.write() = Arc::clone(&snapshot.0);
    }

    /// Another handle to the same state: what a new process finds where the old one wrote.
    pub fn reopen(&self) -> MemoryStore {
        MemoryStore { shared: self.shared.clone(), refused_kinds: BTreeSet::new() }
    }

    /// From now on a commit that creates a job of this kind is refused, as a database refuses a row it cannot hold.
    pub fn refuse_kind(&mut self, kind: Name) {
        self.refused_kinds.insert(kind);
    }

    /// Refuses no kind any more.
    pub fn refuse_nothing(&mut self) {
        self.refused_kinds.clear();
    }

    fn check_kinds(&self, effects: &Effects) -> Result<(), StoreError> {
        if self.refused_kinds.is_empty() {
            return Ok(());
        }
        for change in &effects.changes {
            if let Change::JobCreated { row, .. } = change
                && self.refused_kinds.contains(&row.spec.kind)
            {
                return Err(StoreError::Refused(format!(
                    "job {}: kind {} is refused",
                    row.id, row.spec.kind
                )));
            }
        }
        Ok(())
    }
}

impl Clone for MemoryStore {
    fn clone(&self) -> MemoryStore {
        let shared = Shared(Arc::new(RwLock::new(Arc::clone(&self.shared.read()))));
        MemoryStore { shared, refused_kinds: self.refused_kinds.clone() }
    }
}

impl From<Snapshot> for MemoryStore {
    fn from(snapshot: Snapshot) -> MemoryStore {
        MemoryStore { shared: Shared(Arc::new(RwLock::new(snapshot.0))), refused_kinds: BTreeSet::new() }
    }
}

impl Shared {
    // A panic while the lock is held can only come from a failed allocation; the state is still the best there is.
    fn read(&self) -> RwLockReadGuard<'_, Arc<State>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Arc<State>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<Head, StoreError> {
        let state = self.shared.read();
        for schedule in state.schedules.values() {
            visit(Loaded::Schedule(Box::new(Schedule::clone(schedule))));
        }
        let newest = state.runs.values().rev().take(RECENT_RUNS_MAX);
        for run in newest.collect::<Vec<_>>().into_iter().rev() {
            visit(Loaded::Run(Box::new(RunLog::clone(run))));
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
                    visit(Loaded::Lingering(row, open.clone()));
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
        let owed = state.jobs.values().filter(|job| job.is_owed());
        owed.filter_map(|job| job.delivery.clone()).for_each(|row| visit(Loaded::Delivery(row)));
        Ok(state.head())
    }

    fn head(&mut self) -> Result<Head, StoreError> {
        Ok(self.shared.read().head())
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        Ok(self.shared.read().tokens.values().cloned().collect())
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        Ok(self.shared.read().overrides.clone())
    }

    fn commit(&mut self, effects: &Effects) -> Result<(), StoreError> {
        self.check_kinds(effects)?;
        let mut state = self.shared.write();
        apply::commit(Arc::make_mut(&mut state), effects)
    }

    fn prior(&mut self, tenant: &Name, key: &Name) -> Result<Option<Prior>, StoreError> {
        Ok(self.shared.read().prior(tenant, key))
    }

    fn prior_run(&mut self, tenant: &Name, key: &Name) -> Result<Option<PriorRun>, StoreError> {
        Ok(self.shared.read().prior_run(tenant, key))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(MemoryReader(self.shared.clone()))
    }
}
