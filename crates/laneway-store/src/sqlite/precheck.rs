//! What a commit must fit, in memory: whether the tables would take its changes, before they are written there.
//!
//! A commit is acknowledged when it is in the log, so the tables must not reject it later. Changes that this check is sure of
//! are appended to the log. All others are written to the tables first, in a transaction that ends after the append; the
//! tables then decide, as their own constraints say. So this check need not be complete, but it must never be wrong.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use laneway_core::{Change, Fence, JobId, JobRow, Name, Prior, Seq};

/// The idempotency key of a job, with its tenant.
type Key = (Name, Name);

/// What the tables hold, as far as changes of jobs depend on it, with all commits that are not written yet.
#[derive(Default)]
pub(super) struct Precheck {
    live: LiveSet,
    open: HashMap<Seq, Fence>,
    /// Keys of jobs whose commits are not written yet.
    keys: HashMap<Key, Prior>,
    /// Keys that were looked up for the next commit, and that no job has.
    free_keys: HashSet<Key>,
    /// Ids of jobs whose commits are not written yet.
    ids: HashSet<JobId, BuildHasherDefault<IdHasher>>,
    /// The jobs of each commit that is not written yet.
    unwritten: VecDeque<Created>,
    /// Ids of jobs that are written begin with this time at most.
    ids_until: u64,
    last_seq: u64,
    undo: Vec<Undo>,
}

/// The jobs that a commit created.
struct Created {
    number: u64,
    ids: Vec<JobId>,
    keys: Vec<Key>,
}

enum Undo {
    Id(JobId),
    Key(Key),
    Added(Seq),
    Removed(Seq),
    Opened(Seq),
    Replaced(Seq, Fence),
}

impl Precheck {
    /// What the tables hold: the highest job number, the highest id of a job, live jobs, open attempts.
    pub fn new(
        last_seq: u64,
        last_id: JobId,
        live: impl Iterator<Item = Seq>,
        open: impl Iterator<Item = (Seq, Fence)>,
    ) -> Precheck {
        let mut precheck = Precheck { last_seq, ids_until: time_of(last_id), ..Precheck::default() };
        live.for_each(|seq| precheck.live.add(seq));
        precheck.open.extend(open);
        precheck
    }

    /// The tables have everything up to this commit.
    pub fn written(&mut self, number: u64) {
        while self.unwritten.front().is_some_and(|created| created.number <= number) {
            let Some(Created { ids, keys, .. }) = self.unwritten.pop_front() else { return };
            for id in ids {
                self.ids_until = self.ids_until.max(time_of(id));
                self.ids.remove(&id);
            }
            for key in keys {
                self.keys.remove(&key);
            }
        }
    }

    /// The job of a key, if its commit is not written yet.
    pub fn prior(&self, tenant: &Name, key: &Name) -> Option<Prior> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys.get(&(tenant.clone(), key.clone())).copied()
    }

    /// No job has this key.
    pub fn key_is_free(&mut self, tenant: &Name, key: &Name) {
        self.free_keys.insert((tenant.clone(), key.clone()));
    }

    /// True: the tables will take these changes; they are counted in. False: that is not certain, and nothing has changed.
    pub fn admit(&mut self, changes: &[Change]) -> bool {
        self.undo.clear();
        let last_seq = self.last_seq;
        if changes.iter().all(|change| self.is_certain(change)) {
            return true;
        }
        self.last_seq = last_seq;
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Id(id) => drop(self.ids.remove(&id)),
                Undo::Key(key) => drop(self.keys.remove(&key)),
                Undo::Added(seq) => self.live.remove(seq),
                Undo::Removed(seq) => self.live.add(seq),
                Undo::Opened(seq) => drop(self.open.remove(&seq)),
                Undo::Replaced(seq, fence) => drop(self.open.insert(seq, fence)),
            }
        }
        false
    }

    /// Counts in changes that the tables have taken.
    pub fn take_in(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::JobCreated { row, .. } => {
                    self.last_seq = self.last_seq.max(row.seq.0);
                    self.ids_until = self.ids_until.max(time_of(row.id));
                    self.live.add(row.seq);
                }
                Change::AttemptOpened(open)
                | Change::AttemptStarted(open)
                | Change::LeaseExtended(open)
                | Change::HolderChanged(open)
                | Change::AttemptRebound(open) => drop(self.open.insert(open.seq, open.fence)),
                Change::AttemptClosed(closed) => drop(self.open.remove(&closed.open.seq)),
                Change::JobEnded(end) => self.live.remove(end.seq),
                _ => {}
            }
        }
        self.free_keys.clear();
    }

    /// Remembers the jobs of a commit that was admitted, until it is written.
    pub fn appended(&mut self, number: u64, changes: &[Change]) {
        let mut created = Created { number, ids: Vec::new(), keys: Vec::new() };
        for change in changes {
            let Change::JobCreated { row, .. } = change else { continue };
            created.ids.push(row.id);
            created.keys.extend(keyed(row).map(|(key, _)| key));
        }
        if !created.ids.is_empty() {
            self.unwritten.push_back(created);
        }
        self.free_keys.clear();
    }

    fn is_certain(&mut self, change: &Change) -> bool {
        match change {
            Change::JobCreated { row, .. } => self.create(row),
            Change::JobMoved { seq, .. } | Change::JobRevised { seq, .. } => self.live.has(*seq),
            Change::AttemptOpened(open) => {
                let fits = self.live.has(open.seq) && !self.open.contains_key(&open.seq);
                if fits {
                    self.open.insert(open.seq, open.fence);
                    self.undo.push(Undo::Opened(open.seq));
                }
                fits
            }
            Change::AttemptStarted(open) | Change::LeaseExtended(open) | Change::HolderChanged(open) => {
                self.open.get(&open.seq) == Some(&open.fence)
            }
            Change::AttemptRebound(open) => self.rebind(open.seq, open.fence),
            Change::AttemptClosed(closed) => {
                let (seq, fence) = (closed.open.seq, closed.open.fence);
                let fits = self.open.get(&seq) == Some(&fence);
                if fits {
                    self.open.remove(&seq);
                    self.undo.push(Undo::Replaced(seq, fence));
                }
                fits
            }
            Change::JobEnded(end) => {
                let fits = self.live.has(end.seq);
                if fits {
                    self.live.remove(end.seq);
                    self.undo.push(Undo::Removed(end.seq));
                }
                fits
            }
            Change::LogAppended { seq, .. } => self.live.has(*seq) || self.open.contains_key(seq),
            // These replace or delete rows, whatever is there.
            Change::DeliveryPut(_)
            | Change::DeliveryTried(_)
            | Change::ClockSeen(_)
            | Change::OverridesPut(_)
            | Change::TokenPut(_)
            | Change::TokenForgotten(_)
            | Change::SessionPut(_)
            | Change::SessionForgotten { .. }
            | Change::JobsPruned { .. }
            | Change::EventsPruned { .. }
            | Change::FiringLogPruned { .. }
            | Change::RunsPruned { .. } => true,
            // Their constraints are not known here. A deleted job may be a member of a run.
            Change::JobDeleted(_)
            | Change::SchedulePut(_)
            | Change::ScheduleMoved { .. }
            | Change::ScheduleRemoved(_)
            | Change::SlotFired { .. }
            | Change::FiringLogged(_)
            | Change::RunCreated(_)
            | Change::RunDefined { .. }
            | Change::RunMoved { .. }
            | Change::CallPut(_)
            | Change::KeysKept(_)
            | Change::KeysReleased(_)
            | Change::RecordPut { .. }
            | Change::RecordDeleted { .. } => false,
        }
    }

    fn rebind(&mut self, seq: Seq, fence: Fence) -> bool {
        let before = fence.lease_epoch.checked_sub(1).map(|epoch| Fence { lease_epoch: epoch, ..fence });
        let fits = before.is_some() && self.open.get(&seq) == before.as_ref();
        if let Some(before) = before.filter(|_| fits) {
            self.open.insert(seq, fence);
            self.undo.push(Undo::Replaced(seq, before));
        }
        fits
    }

    /// Are the number, the id and the key of this job new? Ids begin with their time: one that is later than all written ones
    /// is new if no other commit has it.
    fn create(&mut self, row: &JobRow) -> bool {
        if row.seq.0 <= self.last_seq || time_of(row.id) <= self.ids_until || !self.ids.insert(row.id) {
            return false;
        }
        self.undo.push(Undo::Id(row.id));
        if let Some((key, prior)) = keyed(row) {
            if !self.free_keys.contains(&key) || self.keys.contains_key(&key) {
                return false;
            }
            self.keys.insert(key.clone(), prior);
            self.undo.push(Undo::Key(key));
        }
        self.last_seq = row.seq.0;
        self.live.add(row.seq);
        self.undo.push(Undo::Added(row.seq));
        true
    }
}

fn keyed(row: &JobRow) -> Option<(Key, Prior)> {
    let idempotency = row.spec.idempotency.as_ref()?;
    let prior = Prior { job: row.id, digest: idempotency.digest };
    Some(((row.spec.tenant.clone(), idempotency.key.clone()), prior))
}

/// The time that an id begins with, in milliseconds.
fn time_of(id: JobId) -> u64 {
    (id.0 >> 80) as u64
}

/// A set of job numbers: one bit each.
#[derive(Default)]
struct LiveSet(BTreeMap<u64, [u64; 16]>);

impl LiveSet {
    fn add(&mut self, seq: Seq) {
        let (chunk, at) = (seq.0 / 1_024, seq.0 % 1_024);
        self.0.entry(chunk).or_default()[(at / 64) as usize] |= 1 << (at % 64);
    }

    fn remove(&mut self, seq: Seq) {
        let (chunk, at) = (seq.0 / 1_024, seq.0 % 1_024);
        let Some(bits) = self.0.get_mut(&chunk) else { return };
        bits[(at / 64) as usize] &= !(1 << (at % 64));
        if *bits == [0; 16] {
            self.0.remove(&chunk);
        }
    }

    fn has(&self, seq: Seq) -> bool {
        let (chunk, at) = (seq.0 / 1_024, seq.0 % 1_024);
        self.0.get(&chunk).is_some_and(|bits| bits[(at / 64) as usize] >> (at % 64) & 1 == 1)
    }
}

/// The low bits of an id are random: they are a hash already.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut part = [0; 8];
            part[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_ne_bytes(part);
        }
    }

    fn write_u128(&mut self, id: u128) {
        self.0 = (id as u64) ^ ((id >> 64) as u64).rotate_left(32);
    }
}
