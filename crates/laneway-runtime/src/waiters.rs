//! Calls that wait for a job to end.
//!
//! A call registers first and looks into the store second; the loop commits first and wakes second. So whichever comes
//! first, no end is missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::{Event, EventKind, JobId, Name};
use tokio::sync::oneshot;

use crate::scheduler::{Stopped, WaitError};

/// Most calls that may wait at once.
const WAITERS_MAX: usize = 65_536;
/// Most of these for jobs of one tenant, so that no tenant takes them all.
const WAITERS_PER_TENANT_MAX: usize = 8_192;

/// Every call that waits.
#[derive(Default)]
pub(crate) struct Waiters {
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    by_job: HashMap<JobId, Vec<(u64, oneshot::Sender<()>)>>,
    /// Calls that wait, by the tenant that they count for.
    by_tenant: HashMap<Name, usize>,
    count: usize,
    last_ticket: u64,
    closed: bool,
}

/// One call that waits; leaves the table when dropped.
pub(crate) struct Waiting {
    job: JobId,
    tenant: Option<Name>,
    ticket: u64,
    ended: Option<oneshot::Receiver<()>>,
    table: Arc<Mutex<Table>>,
}

impl Waiters {
    /// Begins to wait. With a tenant, the call counts against that tenant's share until it is dropped.
    pub(crate) fn register(&self, job: JobId, tenant: Option<&Name>) -> Result<Waiting, WaitError> {
        let mut table = lock(&self.table);
        if table.closed {
            return Err(Stopped.into());
        }
        if table.count >= WAITERS_MAX {
            return Err(WaitError::TooMany);
        }
        if let Some(tenant) = tenant {
            let count = table.by_tenant.entry(tenant.clone()).or_default();
            if *count >= WAITERS_PER_TENANT_MAX {
                return Err(WaitError::TooMany);
            }
            *count += 1;
        }
        let (sender, ended) = oneshot::channel();
        table.last_ticket += 1;
        table.count += 1;
        let ticket = table.last_ticket;
        table.by_job.entry(job).or_default().push((ticket, sender));
        let tenant = tenant.cloned();
        Ok(Waiting { job, tenant, ticket, ended: Some(ended), table: Arc::clone(&self.table) })
    }

    /// The jobs that ended in these committed events and that a call waits for.
    pub(crate) fn ended_in(&self, events: &[Event]) -> Vec<JobId> {
        let table = lock(&self.table);
        if table.count == 0 {
            return Vec::new();
        }
        let ended = events.iter().filter(|event| ends_job(event.kind)).filter_map(|event| event.job.as_ref());
        ended.map(|line| line.id).filter(|id| table.by_job.contains_key(id)).collect()
    }

    /// Wakes every call that waits for one of these jobs. A call that registers later finds the end in the store.
    pub(crate) fn wake(&self, ended: &[JobId]) {
        if ended.is_empty() {
            return;
        }
        let mut table = lock(&self.table);
        for id in ended {
            for (_, sender) in table.by_job.remove(id).unwrap_or_default() {
                table.count -= 1;
                // The call may have gone away just now.
                let _ = sender.send(());
            }
        }
    }

    /// The loop has ended: wakes every waiter, and accepts no new one.
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
        if let Some(tenant) = &self.tenant
            && let Some(count) = table.by_tenant.get_mut(tenant)
        {
            *count -= 1;
            if *count == 0 {
                table.by_tenant.remove(tenant);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_19_one_tenant_cannot_take_every_waiter() {
        let waiters = Waiters::default();
        let (acme, other) = (Name::fixed("acme"), Name::fixed("other"));
        let mut held = Vec::new();
        for number in 0..WAITERS_PER_TENANT_MAX {
            held.push(waiters.register(JobId(number as u128), Some(&acme)).unwrap());
        }
        assert!(matches!(waiters.register(JobId(1), Some(&acme)), Err(WaitError::TooMany)));
        assert!(waiters.register(JobId(1), Some(&other)).is_ok());
        held.pop();
        assert!(waiters.register(JobId(1), Some(&acme)).is_ok(), "a call that is gone gives its share back");
        held.clear();
        let table = lock(&waiters.table);
        assert!(table.by_tenant.is_empty() && table.by_job.is_empty() && table.count == 0);
    }
}
