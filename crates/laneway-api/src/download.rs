//! Streams an artifact from a worker, or from a file of this server, to a client.
//!
//! A download requests one part after another. It requests the next part when the client has taken the one before, so
//! it keeps only a few parts in memory. A download that fails ends with an error, never as if it were complete. The
//! number of downloads is limited: in total, for each tenant, and for each worker.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use laneway_core::share::Pool;
use laneway_core::{ConnectionId, JobId, Name};
use laneway_runtime::{Part, PartTrouble};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::Api;
use crate::auth::Caller;
use crate::range::Wanted;

/// The bytes of a part: large enough to keep the number of requests low, and small enough not to delay heartbeats.
pub const PART_LEN: u32 = 256 << 10;
/// How long a client may take to read a part.
const TAKE_LIMIT: Duration = Duration::from_secs(60);
/// The limit of downloads at once.
pub const DOWNLOADS_MAX: u32 = 64;
/// The limit of downloads at once from one worker.
pub const DOWNLOADS_PER_WORKER_MAX: u32 = 8;
/// How long a tenant that was denied goes before tenants with more downloads: it asks again after a second.
const CONTENDED_FOR: Duration = Duration::from_secs(2);

/// The download limits. Tenants share the downloads as [`laneway_core::share`] describes. Clones share the limits.
#[derive(Clone, Default)]
pub struct Downloads {
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    count: u32,
    tenants: BTreeMap<Name, u32>,
    workers: BTreeMap<ConnectionId, u32>,
    /// The tenant that was last denied for lack of free downloads, and when.
    denied: Option<(Name, Instant)>,
}

/// A download in progress.
pub struct DownloadSlot {
    tenant: Name,
    worker: Option<ConnectionId>,
    downloads: Downloads,
}

impl Downloads {
    /// Takes a slot for a download. `None` when a limit is reached.
    pub fn admit(&self, tenant: &Name, holder: &Holder) -> Option<DownloadSlot> {
        let worker = match holder {
            Holder::Worker(worker) => Some(*worker),
            _ => None,
        };
        let mut open = self.open();
        let of_worker = worker.and_then(|worker| open.workers.get(&worker)).copied().unwrap_or(0);
        if of_worker >= DOWNLOADS_PER_WORKER_MAX {
            return None;
        }
        let (own, contended) = (open.of(tenant), open.is_contended(tenant));
        if Pool::new(DOWNLOADS_MAX, open.count).left_to(own, contended) == 0 {
            // A tenant that was denied earlier keeps its precedence over one that has more.
            if !contended {
                open.denied = Some((tenant.clone(), Instant::now()));
            }
            return None;
        }
        open.count += 1;
        *open.tenants.entry(tenant.clone()).or_default() += 1;
        if let Some(worker) = worker {
            *open.workers.entry(worker).or_default() += 1;
        }
        drop(open);
        Some(DownloadSlot { tenant: tenant.clone(), worker, downloads: self.clone() })
    }

    #[cfg(test)]
    fn is_unused(&self) -> bool {
        let open = self.open();
        open.count == 0 && open.tenants.is_empty() && open.workers.is_empty()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn of(&self, tenant: &Name) -> u32 {
        self.tenants.get(tenant).copied().unwrap_or(0)
    }

    /// Was a tenant that has fewer downloads than this one denied just now?
    fn is_contended(&self, tenant: &Name) -> bool {
        self.denied.as_ref().is_some_and(|(denied, at)| {
            at.elapsed() < CONTENDED_FOR && denied != tenant && self.of(denied) < self.of(tenant)
        })
    }
}

impl Drop for DownloadSlot {
    fn drop(&mut self) {
        let mut open = self.downloads.open();
        open.count -= 1;
        release(&mut open.tenants, &self.tenant);
        if let Some(worker) = &self.worker {
            release(&mut open.workers, worker);
        }
    }
}

/// Counts one less, and forgets a count of nothing.
fn release<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Who has an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The worker behind this connection.
    Worker(ConnectionId),
    /// This server, in a file.
    Server {
        /// The tenant of the job.
        tenant: Name,
        /// The job.
        job: JobId,
    },
}

/// The source of a download, and its caller.
pub struct Source {
    /// The API.
    pub api: Api,
    /// The caller. The download ends when its permission ends.
    pub caller: Caller,
    /// Who has it.
    pub holder: Holder,
    /// The name of the resource there.
    pub resource: String,
}

/// A download whose first part has arrived.
pub struct Download {
    source: Source,
    first: Bytes,
    /// The size of the whole resource.
    pub size: u64,
    /// The first byte of the download.
    pub start: u64,
    /// The byte after the last one of the download.
    pub end: u64,
}

/// Why a download could not begin.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum NotBegun {
    /// The worker did not send the part.
    #[error(transparent)]
    Trouble(#[from] PartTrouble),
    /// The range is not satisfiable. The value is the size of the resource.
    #[error("there are only {0} bytes")]
    OutOfRange(u64),
}

/// Why a download ended early.
#[derive(Debug, Error)]
enum Broken {
    #[error(transparent)]
    Trouble(#[from] PartTrouble),
    #[error("the resource changed while it was read")]
    Changed,
    #[error("the caller's permission has ended")]
    NotAllowed,
    #[error("the client stopped reading")]
    NotTaken,
}

impl Source {
    /// Requests the first part of the range.
    pub async fn begin(self, wanted: Wanted) -> Result<Download, NotBegun> {
        let (start, last) = match wanted {
            Wanted::All => (0, u64::MAX),
            Wanted::From(first, last) => (first, last),
            Wanted::Last(count) => {
                let size = self.part(0, 1).await?.size;
                if count == 0 {
                    return Err(NotBegun::OutOfRange(size));
                }
                (size.saturating_sub(count), u64::MAX)
            }
        };
        let Part { size, bytes } = self.part(start, last.saturating_add(1) - start).await?;
        if wanted != Wanted::All && start >= size {
            return Err(NotBegun::OutOfRange(size));
        }
        let end = size.min(last.saturating_add(1));
        Ok(Download { source: self, first: bytes.into(), size, start, end })
    }

    async fn part(&self, offset: u64, len: u64) -> Result<Part, PartTrouble> {
        // A request for zero bytes is not valid, and far past the end there is nothing to request.
        let limit = u32::try_from(len).unwrap_or(PART_LEN).clamp(1, PART_LEN);
        let (scheduler, resource) = (&self.api.scheduler, &self.resource);
        match &self.holder {
            Holder::Worker(connection) => scheduler.read_part(*connection, resource, offset, limit).await,
            Holder::Server { tenant, job } => {
                scheduler.read_local_part(tenant, *job, resource, offset, limit).await
            }
        }
    }

    fn is_still_allowed(&self) -> bool {
        let scheduler = &self.api.scheduler;
        self.caller.is_still_allowed(&scheduler.tokens(), scheduler.wall())
    }
}

impl Download {
    /// The bytes, as the body of a response. It keeps `slot` until they are sent.
    pub fn body(self, slot: DownloadSlot) -> Body {
        let (sender, receiver) = mpsc::channel(1);
        let left = self.end - self.start;
        tokio::spawn(async move {
            let resource = self.source.resource.clone();
            if let Err(error) = self.pump(&sender).await {
                tracing::debug!(resource, %error, "a download failed");
            }
            drop(slot);
        });
        Body::from_stream(stream::unfold((receiver, left), |(mut receiver, left)| async move {
            let item = match receiver.recv().await {
                Some(bytes) => Ok::<Bytes, io::Error>(bytes),
                None if left == 0 => return None,
                // The resource is not complete, so the connection to the client is cut.
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            };
            let left = item.as_ref().map_or(0, |bytes| left.saturating_sub(bytes.len() as u64));
            Some((item, (receiver, left)))
        }))
    }

    /// Sends one part after another to the response body.
    async fn pump(self, sender: &mpsc::Sender<Bytes>) -> Result<(), Broken> {
        let Download { source, first, size, start, end } = self;
        let (mut part, mut at) = (first, start);
        loop {
            at += part.len() as u64;
            match tokio::time::timeout(TAKE_LIMIT, sender.send(part)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(Broken::NotTaken),
            }
            if at >= end {
                return Ok(());
            }
            // This waits for the client as well, so at most one part is read ahead.
            let next = source.part(at, end - at).await?;
            if next.size != size || next.bytes.is_empty() {
                return Err(Broken::Changed);
            }
            if !source.is_still_allowed() {
                return Err(Broken::NotAllowed);
            }
            part = next.bytes.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use laneway_core::Role;
    use laneway_runtime::config::{Layers, Overrides, Schema};
    use laneway_runtime::live_config::LiveConfig;
    use laneway_runtime::{Options, PartOrder, Scheduler, ToWorker, WorkerLink};
    use laneway_store::MemoryStore;

    use super::*;

    /// Answers the next request for a part with zeroes. `None` when there is none.
    async fn give(worker: &mut WorkerLink, size: u64) -> Option<u64> {
        // The test has one thread, so a request arrives within a few yields.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let Some(ToWorker::Read(PartOrder { offset, limit, answer, .. })) = worker.receive_now() else {
            return None;
        };
        let bytes = vec![0; limit as usize];
        answer.send(Ok(Part { size, bytes })).unwrap();
        Some(offset)
    }

    #[tokio::test]
    async fn at_most_one_part_is_read_ahead_of_the_client() {
        let schema = Schema::native();
        let config = Layers::builtin(&schema).resolve(&Overrides::none()).unwrap();
        let options = Options::new(config.settings().clone());
        let (scheduler, _running) = Scheduler::start(Box::new(MemoryStore::new()), options).unwrap();
        let mut worker = scheduler.connect_worker();
        let live = LiveConfig::new(Layers::builtin(&schema), Overrides::none(), config, scheduler.clone());
        let api = Api::new(scheduler, live, |_, _, _| true).unwrap();
        let caller = Caller(laneway_runtime::Caller {
            actor: Name::fixed("open"),
            role: Role::Admin,
            bound: None,
            tenant: Name::fixed("default"),
            sees_one_tenant: false,
            request: Name::fixed("r"),
            expires_at: None,
            by_token: false,
        });
        let (holder, downloads) = (Holder::Worker(worker.connection()), api.downloads.clone());
        let slot = downloads.admit(&caller.tenant, &holder).unwrap();
        let source = Source { api, caller, holder, resource: "res-1".to_owned() };
        let begun = tokio::spawn(source.begin(Wanted::All));
        let (part, size) = (u64::from(PART_LEN), 1 << 30);
        assert_eq!(give(&mut worker, size).await, Some(0));
        let mut body = begun.await.unwrap().unwrap().body(slot).into_data_stream();
        // One part waits for the client, and one more behind it, however long the client waits.
        assert_eq!(give(&mut worker, size).await, Some(part));
        for taken in 2..6 {
            assert_eq!(give(&mut worker, size).await, None);
            assert_eq!(body.next().await.unwrap().unwrap().len() as u64, part);
            assert_eq!(give(&mut worker, size).await, Some(taken * part));
        }
        // A client that disconnects ends its download and frees its slot.
        drop(body);
        assert_eq!(give(&mut worker, size).await, None);
        assert!(downloads.is_unused());
    }

    #[tokio::test(start_paused = true)]
    async fn defect_11_downloads_of_one_tenant_leave_some_for_others() {
        let downloads = Downloads::default();
        let admit = |tenant: &'static str, worker| {
            downloads.admit(&Name::fixed(tenant), &Holder::Worker(ConnectionId(worker)))
        };
        let fill = |tenant: &'static str, workers: std::ops::Range<u64>| -> Vec<DownloadSlot> {
            workers.flat_map(|worker| std::iter::from_fn(move || admit(tenant, worker))).collect()
        };
        let of_one = fill("a", 0..1);
        assert_eq!(of_one.len(), DOWNLOADS_PER_WORKER_MAX as usize);
        let mut of_tenant = fill("a", 1..100);
        assert_eq!(of_one.len() + of_tenant.len(), 56, "a tenant alone has all but an eighth");
        let of_others = ["b", "c", "d"].map(|tenant| fill(tenant, 100..200));
        assert_eq!(of_others.each_ref().map(Vec::len), [4, 2, 1], "others find some at once");
        of_tenant.truncate(of_tenant.len() - 20);
        assert!(admit("a", 500).is_none(), "tenants with fewer were denied just now");
        assert_eq!(fill("b", 200..300).len(), 9, "they get what comes back");
        tokio::time::advance(CONTENDED_FOR * 2).await;
        drop(of_others);
        assert!(admit("a", 500).is_some(), "what is free is borrowed again");
        drop((of_one, of_tenant));
        assert!(downloads.is_unused());
    }
}
