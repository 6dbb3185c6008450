//! Takes jobs out of the inbox of a PostgreSQL store: applications submit them there in transactions of their own.
//!
//! A row is removed after its job is durable. A crash in between submits it again, with the same idempotency key, which gives the
//! same job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use laneway_api::{Api, InboxRequest, may_succeed_later};
use laneway_store::postgres::{Bell, Inbox, InboxRow, RejectedRow};
use laneway_store::{StoreAddress, StoreError};
use tokio::runtime::Handle;

/// Rows that are submitted together.
const ROWS: usize = 256;
/// How long the inbox is not looked at when no notification comes, as through a pooler.
const POLL: Duration = Duration::from_secs(2);
/// The time between two looks for rejected rows that are too old.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// The thread that takes jobs out of the inbox.
pub struct Draining {
    stop: Arc<AtomicBool>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Draining {
    /// Starts it, if the store has an inbox. Must be called on a tokio runtime.
    pub fn start(api: &Api, store: &StoreAddress) -> Result<Option<Draining>, StoreError> {
        let StoreAddress::Postgres(url) = store else { return Ok(None) };
        let inbox = Inbox::open(url)?;
        let (stop, bell) = (Arc::new(AtomicBool::new(false)), inbox.bell());
        let drainer =
            Drainer { api: api.clone(), runtime: Handle::current(), stop: Arc::clone(&stop), inbox };
        let thread = std::thread::Builder::new().name("laneway-inbox".into());
        let thread = thread.spawn(move || drainer.run());
        let cannot = |error| StoreError::Failed(format!("cannot start the thread for the inbox: {error}"));
        Ok(Some(Draining { stop, bell, thread: Some(thread.map_err(cannot)?) }))
    }
}

impl Drop for Draining {
    /// The thread ends soon: nothing waits for it, because it may wait for the loop.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.bell.ring();
        drop(self.thread.take());
    }
}

struct Drainer {
    api: Api,
    runtime: Handle,
    stop: Arc<AtomicBool>,
    inbox: Inbox,
}

impl Drainer {
    fn run(mut self) {
        let mut pruned_at = None;
        while !self.stop.load(Ordering::SeqCst) {
            let passed = self.pass();
            if pruned_at.is_none_or(|at: Instant| at.elapsed() >= PRUNE_EVERY) {
                pruned_at = Some(Instant::now());
                drop(self.inbox.prune());
            }
            match passed {
                // The scheduler has ended.
                Ok(false) => return,
                Ok(true) => {}
                Err(error) => tracing::warn!(%error, "the inbox cannot be read; it is tried again"),
            }
            if let Err(error) = self.inbox.wait(POLL) {
                tracing::debug!(%error, "no notifications of the inbox");
                std::thread::park_timeout(POLL);
            }
        }
    }

    /// Takes out everything that waits. False: the scheduler has ended.
    fn pass(&mut self) -> Result<bool, StoreError> {
        let mut after = 0;
        while !self.stop.load(Ordering::SeqCst) {
            let rows = self.inbox.waiting(after, ROWS)?;
            let Some(last) = rows.last() else { return Ok(true) };
            after = last.number;
            let requests: Vec<InboxRequest<'_>> = rows
                .iter()
                .map(|row| InboxRequest { tenant: &row.tenant, key: &row.key, body: &row.request })
                .collect();
            let Ok(verdicts) = self.runtime.block_on(self.api.submit_from_inbox(&requests)) else {
                return Ok(false);
            };
            let (mut stored, mut rejected) = (Vec::new(), Vec::new());
            for (InboxRow { number, .. }, verdict) in rows.iter().zip(verdicts) {
                match verdict {
                    Ok(_) => stored.push(*number),
                    Err(error) if may_succeed_later(&error) => {}
                    Err(error) => rejected.push(RejectedRow {
                        number: *number,
                        code: error.code.as_str().to_owned(),
                        reason: error.detail.into_owned(),
                    }),
                }
            }
            self.inbox.settle(&stored, &rejected)?;
        }
        Ok(true)
    }
}
