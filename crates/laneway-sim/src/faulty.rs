//! A store that fails on demand, around the one in memory or the one in SQLite.
//!
//! Every handle shares one disk: a process that crashed leaves it as its last commit left it, and the next process
//! opens it again. What was really written is noted down for the checker, whatever the caller got.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Change, Effects, TokenRecord};
use laneway_store::{
    Epoch, Keys, Loaded, MemoryStore, Priors, Reader, SqliteOptions, SqliteStore, Store, StoreError,
};

use crate::rng::Rng;
use crate::shape::POISON_KIND;

/// The disk, seen from outside the server.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<State>>);

/// A handle for one process of the server.
pub struct FaultyStore {
    disk: Disk,
    /// The epoch of the process that has this handle.
    epoch: Epoch,
}

/// What the disk is made of.
#[derive(Clone, Copy, Debug, Default)]
pub enum StoreKind {
    /// Maps in memory: fast, for many seeds.
    #[default]
    Memory,
    /// A real SQLite file in a directory of its own, opened anew by each process.
    Sqlite,
    /// Any other store, made by this function: one that breaks a promise on purpose, for a test of the checker.
    Other(fn() -> Box<dyn Store>),
}

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing was written.
    Lost,
    /// It fails, and everything was written.
    Unknown,
}

/// What the disk saw, in order.
#[derive(Clone, Debug)]
pub enum Noted {
    /// Everything was read to build an engine.
    Loaded,
    /// This was written.
    Written(Box<Effects>),
    /// A commit was rejected, and nothing was written.
    Rejected,
    /// A commit failed as planned.
    Failed(Fault),
}

/// Everything that a process reads when it starts.
pub struct Stored {
    /// Where the numbers stand.
    pub head: StoreCounters,
    /// Jobs and open attempts.
    pub loaded: Vec<Loaded>,
    /// The runtime's own settings bytes.
    pub overrides: Option<Bytes>,
    /// For everything else.
    pub reader: Arc<dyn Reader>,
}

struct State {
    medium: Medium,
    planned: Option<Planned>,
    noted: Vec<Noted>,
}

enum Medium {
    Memory(MemoryStore),
    Sqlite(Box<SqliteFile>),
    Other(Box<dyn Store>),
}

/// A SQLite store and its directory, which goes when the world ends.
struct SqliteFile {
    dir: PathBuf,
    store: Option<SqliteStore>,
    /// Chooses when the tables are written, and where a crash comes. Not that of the world, which is the same on every store.
    rng: Rng,
    /// Commits that the log must have: those that were made, whatever the caller got.
    commits: u64,
}

#[derive(Clone, Copy)]
struct Planned {
    fault: Fault,
    /// How many commits go well before it.
    after: u32,
}

impl Disk {
    /// An empty disk.
    pub fn new(kind: StoreKind, seed: u64) -> Result<Disk, StoreError> {
        let medium = match kind {
            StoreKind::Memory => Medium::Memory(MemoryStore::new()),
            StoreKind::Sqlite => Medium::Sqlite(Box::new(SqliteFile::new(seed)?)),
            StoreKind::Other(make) => Medium::Other(make()),
        };
        Ok(Disk::of(medium))
    }

    fn of(medium: Medium) -> Disk {
        Disk(Arc::new(Mutex::new(State { medium, planned: None, noted: Vec::new() })))
    }

    /// A handle for a new process. A file is closed and opened again. The handles of earlier processes are fenced from now on.
    pub fn handle(&self) -> Result<Box<FaultyStore>, StoreError> {
        let mut state = self.state();
        match &mut state.medium {
            Medium::Sqlite(file) => file.reopen()?,
            Medium::Memory(store) => *store = store.reopen(),
            Medium::Other(_) => {}
        }
        let epoch = state.store().epoch();
        drop(state);
        Ok(Box::new(FaultyStore { disk: self.clone(), epoch }))
    }

    /// The epoch of the latest process.
    pub fn epoch(&self) -> Epoch {
        self.state().store().epoch()
    }

    /// The process has ended. What only the commit log of a store has is written to its tables when it is opened. Gives what is
    /// wrong with the result (T1).
    pub fn crash(&self) -> Result<(), String> {
        match &mut self.state().medium {
            Medium::Sqlite(file) => file.crash(),
            Medium::Memory(_) | Medium::Other(_) => Ok(()),
        }
    }

    /// The commit after `after` good ones fails so.
    pub fn plan(&self, fault: Fault, after: u32) {
        self.state().planned = Some(Planned { fault, after });
    }

    /// No commit is planned to fail any more.
    pub fn heal(&self) {
        self.state().planned = None;
    }

    /// What the disk saw since it was asked last.
    pub fn noted(&self) -> Vec<Noted> {
        std::mem::take(&mut self.state().noted)
    }

    /// What would be read by a process that starts now.
    pub fn read(&self) -> Result<Stored, StoreError> {
        let mut state = self.state();
        let store = state.store();
        let mut loaded = Vec::new();
        let head = store.load(&mut |item| loaded.push(item))?;
        Ok(Stored { head, loaded, overrides: store.overrides()?, reader: store.reader() })
    }

    /// A copy with a life of its own, where that is cheap.
    pub fn fork(&self) -> Option<Disk> {
        match &self.state().medium {
            Medium::Memory(store) => Some(Disk::of(Medium::Memory(store.clone()))),
            Medium::Sqlite(_) | Medium::Other(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn store(&mut self) -> &mut dyn Store {
        match &mut self.medium {
            Medium::Memory(store) => store,
            Medium::Sqlite(file) => file.store(),
            Medium::Other(store) => store.as_mut(),
        }
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        match &mut self.medium {
            Medium::Sqlite(file) => file.commit(epoch, effects, false),
            _ => self.store().commit(epoch, effects),
        }
    }

    /// The fault that is due now, if one is.
    fn fault(&mut self) -> Option<Fault> {
        let planned = self.planned.as_mut()?;
        if planned.after > 0 {
            planned.after -= 1;
            return None;
        }
        self.planned.take().map(|planned| planned.fault)
    }

    fn fail(&mut self, fault: Fault, why: &str) -> StoreError {
        self.noted.push(Noted::Failed(fault));
        StoreError::Failed(why.into())
    }
}

impl SqliteFile {
    fn new(seed: u64) -> Result<SqliteFile, StoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("laneway-sim-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).map_err(|error| StoreError::Unusable(error.to_string()))?;
        let mut file = SqliteFile { dir, store: None, rng: Rng::new(seed), commits: 0 };
        file.reopen()?;
        Ok(file)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        // As a kill leaves it: commits that are not in the tables yet stay in the log.
        if let Some(store) = self.store.take() {
            store.abandon();
        }
        let options = SqliteOptions { tables_by_hand: true, ..SqliteOptions::default() };
        self.store = Some(SqliteStore::open(&self.dir, options)?);
        Ok(())
    }

    /// Crashes once, or again as soon as the commits of the log are in the tables. Then the log and the tables must both end with
    /// the last commit that was made.
    fn crash(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.rng.below(3) {
            self.reopen().map_err(|error| format!("the store cannot be opened after a crash: {error}"))?;
            let (logged, stored) = self.store().last_commits();
            if (logged, stored) != (self.commits, self.commits) {
                let commits = self.commits;
                return Err(format!(
                    "{commits} commits were made, the log has {logged}, and the tables have {stored}"
                ));
            }
        }
        Ok(())
    }

    /// Commits, or breaks off while the commit is appended to the log.
    fn commit(&mut self, epoch: Epoch, effects: &Effects, breaks: bool) -> Result<(), StoreError> {
        if breaks {
            let torn = self.rng.chance(50);
            self.store().break_next_commit(torn);
        }
        let before = self.store().last_commits().0;
        let outcome = self.store().commit(epoch, effects);
        self.commits += self.store().last_commits().0 - before;
        if outcome.is_ok() && self.rng.chance(30) {
            self.store().write_tables()?;
        }
        outcome
    }

    fn store(&mut self) -> &mut SqliteStore {
        self.store.as_mut().expect("it is open between processes, too")
    }
}

impl Drop for SqliteFile {
    fn drop(&mut self) {
        self.store = None;
        // A directory that cannot be removed is left to the cleanup of temporary files.
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// A database rejects rows that it cannot hold; here, jobs of one kind.
fn reject_poison(effects: &Effects) -> Result<(), StoreError> {
    let poisoned = effects.changes.iter().any(|change| match change {
        Change::JobCreated { row, .. } => row.spec.kind.as_str() == POISON_KIND,
        _ => false,
    });
    if poisoned { Err(StoreError::Rejected("a job of this kind cannot be held".into())) } else { Ok(()) }
}

impl Store for FaultyStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        let mut state = self.disk.state();
        state.noted.push(Noted::Loaded);
        state.store().load(visit)
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.disk.state().store().counters()
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.disk.state().store().tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.disk.state().store().overrides()
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        let mut state = self.disk.state();
        let fault = state.fault();
        if fault == Some(Fault::Lost) {
            if let Medium::Sqlite(file) = &mut state.medium {
                // A commit without changes reaches no log: it cannot break off.
                let _ = file.commit(epoch, effects, true);
            }
            return Err(state.fail(Fault::Lost, "the disk is gone"));
        }
        match reject_poison(effects).and_then(|()| state.commit(epoch, effects)) {
            Ok(()) => state.noted.push(Noted::Written(Box::new(effects.clone()))),
            Err(StoreError::Rejected(why)) => {
                state.noted.push(Noted::Rejected);
                return Err(StoreError::Rejected(why));
            }
            Err(error) => return Err(error),
        }
        match fault {
            Some(fault) => Err(state.fail(fault, "the disk did not answer")),
            None => Ok(()),
        }
    }

    fn check_owned(&self) -> Result<(), StoreError> {
        let owner = self.disk.epoch();
        if owner == self.epoch { Ok(()) } else { Err(StoreError::Lapsed(self.epoch)) }
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.disk.state().store().priors(keys)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.disk.state().store().reader()
    }
}
