//! Commits that are durable in the log and not yet written to the tables.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use laneway_core::{Change, JobId, Name, Seq, Wall};

use crate::codec::{Input, put_bytes, put_i64, put_u64, read_changes, write_changes};
use crate::columns::events::EventBytes;
use crate::log::Logged;
use crate::rows::Interner;
use crate::{Lag, StoreError};

/// How long a commit waits for others, so that one transaction writes them together.
const WAIT: Duration = Duration::from_millis(20);
/// Changes for which the writer of the tables does not wait any longer.
const CHANGES_DUE: usize = 2_048;
/// Bytes of payloads, results and events for which it does not wait any longer.
const BYTES_DUE: usize = 4 << 20;
/// Changes that wait at most. A commit waits while there are more: memory is bounded, and clients slow down. A start after a
/// crash writes as many to the tables before the server is ready.
const CHANGES_MAX: usize = 24 * 1_024;
/// Bytes that wait at most.
const BYTES_MAX: usize = 128 << 20;
/// Changes and bytes of one transaction at most.
const TRANSACTION_CHANGES: usize = 16 * 1_024;
const TRANSACTION_BYTES: usize = 16 << 20;

/// One commit.
#[derive(Debug)]
pub(super) struct Commit {
    /// Its number in the log.
    pub number: u64,
    /// Its changes, in order.
    pub changes: Vec<Change>,
    /// Its events.
    pub events: Option<EventBytes>,
    bytes: usize,
    prunes: bool,
    /// When it was made.
    at: Instant,
    index: OnceLock<Index>,
}

/// Where a commit mentions jobs and keys. Made when a reader first asks.
#[derive(Debug, Default)]
struct Index {
    changes: HashMap<Seq, Vec<u32>>,
    ids: HashMap<JobId, Seq>,
    keys: HashMap<(Name, Name), u32>,
}

impl Commit {
    /// A commit with this number.
    pub fn new(number: u64, changes: Vec<Change>, events: Option<EventBytes>) -> Commit {
        let opaque = changes.iter().map(Change::opaque_len).sum::<usize>();
        let bytes = opaque + events.as_ref().map_or(0, |events| events.bytes.len());
        let prunes = changes.iter().any(|change| {
            matches!(change, Change::JobsPruned { .. } | Change::RunsPruned { .. } | Change::JobDeleted(_))
        });
        Commit { number, changes, events, bytes, prunes, at: Instant::now(), index: OnceLock::new() }
    }

    /// Appends the body of its record to `out`.
    pub fn encode(out: &mut Vec<u8>, changes: &[Change], events: Option<&EventBytes>) {
        write_changes(out, changes);
        match events {
            None => put_u64(out, 0),
            Some(EventBytes { first, count, at, bytes }) => {
                put_u64(out, *count);
                put_u64(out, *first);
                put_i64(out, at.0);
                put_bytes(out, bytes);
            }
        }
    }

    /// Reads a commit from its record.
    pub fn decode(logged: &Logged<'_>, names: &mut Interner) -> Result<Commit, StoreError> {
        let mut input = Input::new("a record of the commit log", logged.body);
        let changes = read_changes(&mut input, &mut |text| names.name(text))?;
        let events = match input.u64()? {
            0 => None,
            count => Some(EventBytes {
                count,
                first: input.u64()?,
                at: Wall(input.i64()?),
                bytes: input.bytes()?.into(),
            }),
        };
        input.end()?;
        Ok(Commit::new(logged.number, changes, events))
    }

    /// Does it delete jobs?
    pub fn prunes(&self) -> bool {
        self.prunes
    }

    /// The changes of a job, in order.
    pub fn changes_of(&self, seq: Seq) -> impl Iterator<Item = &Change> {
        let places = self.index().changes.get(&seq).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|at| self.changes.get(*at as usize))
    }

    /// The job that was created here with this id.
    pub fn created(&self, id: JobId) -> Option<Seq> {
        self.index().ids.get(&id).copied()
    }

    /// The job that was created here with this idempotency key.
    pub fn keyed(&self, tenant: &Name, key: &Name) -> Option<&Change> {
        let keys = &self.index().keys;
        if keys.is_empty() {
            return None;
        }
        self.changes.get(*keys.get(&(tenant.clone(), key.clone()))? as usize)
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let mut index = Index::default();
            for (at, change) in (0u32..).zip(&self.changes) {
                if let Some(seq) = crate::batch::job_of(change) {
                    index.changes.entry(seq).or_default().push(at);
                }
                if let Change::JobEnded(end) = change
                    && let Some(into) = end.merged_into
                {
                    index.changes.entry(into.seq).or_default().push(at);
                }
                if let Change::JobCreated { row, .. } = change {
                    index.ids.insert(row.id, row.seq);
                    if let Some(idempotency) = &row.spec.idempotency {
                        index.keys.insert((row.spec.tenant.clone(), idempotency.key.clone()), at);
                    }
                }
            }
            index
        })
    }
}

/// The commits that wait, for the one that appends, the one that writes the tables, and readers.
#[derive(Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    /// Something is due, or the store is closed.
    due: Condvar,
    /// Commits were written, or cannot be.
    written: Condvar,
}

#[derive(Default)]
struct State {
    commits: VecDeque<Arc<Commit>>,
    changes: usize,
    bytes: usize,
    /// When the oldest one was appended.
    since: Option<Instant>,
    /// The last commit that the tables have.
    stored: u64,
    /// A reader waits for this one.
    wanted: u64,
    stopped: bool,
    failed: Option<String>,
}

impl Pending {
    /// The tables have everything up to this commit.
    pub fn new(stored: u64) -> Pending {
        let state = Mutex::new(State { stored, wanted: stored, ..State::default() });
        Pending { state, ..Pending::default() }
    }

    /// Waits until a commit may be added.
    pub fn wait_for_space(&self) -> Result<(), StoreError> {
        let mut state = self.lock();
        while state.failed.is_none() && state.is_full() {
            state = wait(&self.written, state);
        }
        state.check()
    }

    /// Must a commit wait?
    pub fn is_full(&self) -> bool {
        self.lock().is_full()
    }

    /// Adds a commit that is durable in the log.
    pub fn push(&self, commit: Commit) {
        let mut state = self.lock();
        state.changes += commit.changes.len();
        state.bytes += commit.bytes;
        state.since.get_or_insert_with(Instant::now);
        let was_empty = state.commits.is_empty();
        state.commits.push_back(Arc::new(commit));
        // The writer wakes up by itself for what waits too long. It must only learn that something waits.
        if was_empty || state.is_due() {
            self.due.notify_one();
        }
    }

    /// The oldest commits, as many as one transaction writes.
    pub fn oldest(&self) -> Vec<Arc<Commit>> {
        let (mut changes, mut bytes) = (0, 0);
        let state = self.lock();
        let taken = state.commits.iter().take_while(|commit| {
            let fits = changes < TRANSACTION_CHANGES && bytes < TRANSACTION_BYTES;
            changes += commit.changes.len();
            bytes += commit.bytes;
            fits
        });
        taken.cloned().collect()
    }

    /// All commits that wait.
    pub fn snapshot(&self) -> Vec<Arc<Commit>> {
        self.lock().commits.iter().cloned().collect()
    }

    /// The tables have everything up to this commit.
    pub fn stored(&self, number: u64) {
        let mut state = self.lock();
        while state.commits.front().is_some_and(|commit| commit.number <= number) {
            let Some(commit) = state.commits.pop_front() else { break };
            state.changes -= commit.changes.len();
            state.bytes -= commit.bytes;
        }
        state.stored = state.stored.max(number);
        state.since = (!state.commits.is_empty()).then(Instant::now);
        drop(state);
        self.written.notify_all();
    }

    /// The last commit that the tables have.
    pub fn stored_until(&self) -> u64 {
        self.lock().stored
    }

    /// How much waits.
    pub fn lag(&self) -> Lag {
        let state = self.lock();
        Lag {
            commits: state.commits.len() as u64,
            changes: state.changes as u64,
            bytes: state.bytes as u64,
            age: state.commits.front().map_or(Duration::ZERO, |commit| commit.at.elapsed()),
        }
    }

    /// Waits until the tables have everything that is durable now.
    pub fn catch_up(&self) -> Result<(), StoreError> {
        let mut state = self.lock();
        let Some(last) = state.commits.back().map(|commit| commit.number) else { return state.check() };
        state.wanted = state.wanted.max(last);
        self.due.notify_one();
        while state.failed.is_none() && !state.stopped && state.stored < last {
            state = wait(&self.written, state);
        }
        state.check()
    }

    /// Waits until commits are due. False: the store is closed.
    pub fn wait_until_due(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.stopped || state.failed.is_some() {
                return false;
            }
            let waited = state.since.map(|since| since.elapsed());
            match waited {
                None => state = wait(&self.due, state),
                Some(waited) if state.is_due() || waited >= WAIT => return true,
                Some(waited) => {
                    let woken = self.due.wait_timeout(state, WAIT.saturating_sub(waited));
                    state = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// The tables cannot be written any more.
    pub fn fail(&self, why: String) {
        self.lock().failed.get_or_insert(why);
        self.written.notify_all();
    }

    /// Why the tables cannot be written.
    pub fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// Ends the thread that writes the tables.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.due.notify_all();
        self.written.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.changes > CHANGES_MAX || self.bytes > BYTES_MAX
    }

    fn is_due(&self) -> bool {
        self.wanted > self.stored || self.changes >= CHANGES_DUE || self.bytes >= BYTES_DUE
    }

    fn check(&self) -> Result<(), StoreError> {
        match &self.failed {
            None => Ok(()),
            Some(why) => Err(StoreError::Failed(why.clone())),
        }
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}
