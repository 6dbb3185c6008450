//! Calls that wait for a job to end.
//!
//! A call registers first and looks into the store second; the loop commits first and wakes second. So whichever comes
//! first, no end is missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::{Event, EventKind, JobId};
use tokio::sync::oneshot;

use crate::scheduler::{Stopped, WaitError};

/// Most calls that may wait at once.
const WAITERS_MAX: usize = 65_536;

/// Every call that waits.
#[derive(Default)]
pub(crate) struct Waiters {
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    by_job: HashMap<JobId, Vec<(u64, oneshot::Sender<()>)>>,
    count: usize,
    last_ticket: u64,
    closed: bool,
}

/// One call that waits; leaves the table when dropped.
pub(crate) struct Waiting {
    job: JobId,
    ticket: u64,
    ended: Option<oneshot::Receiver<()>>,
    table: Arc<Mutex<Table>>,
}

impl Waiters {
    pub(crate) fn register(&self, job: JobId) -> Result<Waiting, WaitError> {
        let mut table = lock(&self.table);
        if table.closed {
            return Err(Stopped.into());
        }
        if table.count >= WAITERS_MAX {
            return Err(WaitError::TooMany);
        }
        let (tell, ended) = oneshot::channel();
        table.last_ticket += 1;
        table.count += 1;
        let ticket = table.last_ticket;
        table.by_job.entry(job).or_default().push((ticket, tell));
        Ok(Waiting { job, ticket, ended: Some(ended), table: Arc::clone(&self.table) })
    }

    /// Wakes every call that waits for a job that ended in these committed events.
    pub(crate) fn wake(&self, events: &[Event]) {
        let mut table = lock(&self.table);
        if table.count == 0 {
            return;
        }
        for event in events.iter().filter(|event| ends_job(event.kind)) {
            let Some(line) = &event.job else { continue };
            for (_, tell) in table.by_job.remove(&line.id).unwrap_or_default() {
                table.count -= 1;
                // The call may have gone away just now.
                let _ = tell.send(());
            }
        }
    }

    /// The loop has ended: nobody waits any longer, and nobody begins to.
    pub(crate) fn close(&self) {
        let mut table = lock(&self.table);
        table.closed = true;
        table.count = 0;
        table.by_job.clear();
    }
}

impl Waiting {
    /// Waits until the job has ended.
    pub(crate) async fn ended(mut self) -> Result<(), Stopped> {
        let Some(ended) = self.ended.as_mut() else { return Err(Stopped) };
        ended.await.map_err(|_| Stopped)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut guard = lock(&self.table);
        let table = &mut *guard;
        let Some(waiting) = table.by_job.get_mut(&self.job) else { return };
        let before = waiting.len();
        waiting.retain(|(ticket, _)| *ticket != self.ticket);
        table.count -= before - waiting.len();
        if waiting.is_empty() {
            table.by_job.remove(&self.job);
        }
    }
}

fn ends_job(kind: EventKind) -> bool {
    use EventKind::{JobCanceled, JobFailed, JobRejected, JobSucceeded};
    matches!(kind, JobSucceeded | JobFailed | JobCanceled | JobRejected)
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
