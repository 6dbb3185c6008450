//! A store that fails on demand, around the one in memory.
//!
//! Every handle shares one disk: a process that crashed leaves it as its last commit left it, and the next process opens
//! it again. What was really written is noted down for the checker, whatever the caller was told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::engine::Head;
use laneway_core::{Bytes, Effects, Name, Prior, TokenRecord};
use laneway_store::{Loaded, MemoryStore, Reader, Store, StoreError};

use crate::shape::POISON_KIND;

/// The disk, seen from outside the house.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<State>>);

/// A handle for one process of the house.
pub struct FaultyStore(Disk);

struct State {
    store: MemoryStore,
    planned: Option<Planned>,
    noted: Vec<Noted>,
}

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing was written.
    Lost,
    /// It fails, and everything was written.
    Unknown,
}

#[derive(Clone, Copy)]
struct Planned {
    fault: Fault,
    /// How many commits go well before it.
    after: u32,
}

/// What the disk saw, in order.
#[derive(Clone, Debug)]
pub enum Noted {
    /// Somebody read everything to build an engine.
    Loaded,
    /// This was written.
    Written(Box<Effects>),
    /// A commit was refused, and nothing was written.
    Refused,
    /// A commit failed as planned.
    Failed(Fault),
}

impl Disk {
    /// An empty disk.
    pub fn new() -> Disk {
        let mut store = MemoryStore::new();
        store.refuse_kind(Name::fixed(POISON_KIND));
        Disk(Arc::new(Mutex::new(State { store, planned: None, noted: Vec::new() })))
    }

    /// A handle for a new process.
    pub fn handle(&self) -> Box<FaultyStore> {
        Box::new(FaultyStore(self.clone()))
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
        let mut loaded = Vec::new();
        let head = state.store.load(&mut |item| loaded.push(item))?;
        Ok(Stored { head, loaded, overrides: state.store.overrides()?, reader: state.store.reader() })
    }

    /// A copy with a life of its own.
    pub fn fork(&self) -> Disk {
        let store = self.state().store.clone();
        Disk(Arc::new(Mutex::new(State { store, planned: None, noted: Vec::new() })))
    }

    /// Are two disks equal, bit by bit?
    pub fn equals(&self, other: &Disk) -> bool {
        let mine = self.state().store.snapshot();
        let theirs = other.state().store.snapshot();
        mine == theirs
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Disk {
    fn default() -> Disk {
        Disk::new()
    }
}

/// Everything that a process reads when it starts.
pub struct Stored {
    /// Where the numbers stand.
    pub head: Head,
    /// Jobs and open attempts.
    pub loaded: Vec<Loaded>,
    /// The runtime's own settings bytes.
    pub overrides: Option<Bytes>,
    /// For everything else.
    pub reader: Arc<dyn Reader>,
}

impl Store for FaultyStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<Head, StoreError> {
        let mut state = self.0.state();
        state.noted.push(Noted::Loaded);
        state.store.load(visit)
    }

    fn head(&mut self) -> Result<Head, StoreError> {
        self.0.state().store.head()
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.0.state().store.tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.0.state().store.overrides()
    }

    fn commit(&mut self, effects: &Effects) -> Result<(), StoreError> {
        let mut state = self.0.state();
        let fault = match &mut state.planned {
            Some(planned) if planned.after == 0 => Some(planned.fault),
            Some(planned) => {
                planned.after -= 1;
                None
            }
            None => None,
        };
        if fault == Some(Fault::Lost) {
            state.planned = None;
            state.noted.push(Noted::Failed(Fault::Lost));
            return Err(StoreError::Failed("the disk is gone".into()));
        }
        match state.store.commit(effects) {
            Ok(()) => state.noted.push(Noted::Written(Box::new(effects.clone()))),
            Err(StoreError::Refused(why)) => {
                state.noted.push(Noted::Refused);
                return Err(StoreError::Refused(why));
            }
            Err(error) => return Err(error),
        }
        if fault == Some(Fault::Unknown) {
            state.planned = None;
            state.noted.push(Noted::Failed(Fault::Unknown));
            return Err(StoreError::Failed("the disk did not answer".into()));
        }
        Ok(())
    }

    fn prior(&mut self, tenant: &Name, key: &Name) -> Result<Option<Prior>, StoreError> {
        self.0.state().store.prior(tenant, key)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.0.state().store.reader()
    }
}
