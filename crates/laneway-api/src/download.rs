//! Streams an artifact from a worker to a client.
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
use laneway_core::{ConnectionId, Name};
use laneway_runtime::{Part, PartTrouble};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::api::Api;
use crate::auth::Caller;
use crate::range::Wanted;

/// The bytes of a part: large enough to keep the number of requests low, and small enough not to delay heartbeats.
pub const PART_LEN: u32 = 256 << 10;
/// How long a client may take to read a part.
const TAKE_LIMIT: Duration = Duration::from_secs(60);
/// The limit of downloads at once.
pub const DOWNLOADS_MAX: u32 = 64;
/// The limit of downloads at once for one tenant.
pub const DOWNLOADS_PER_TENANT_MAX: u32 = 32;
/// The limit of downloads at once from one worker.
pub const DOWNLOADS_PER_WORKER_MAX: u32 = 8;

/// The download limits. Clones share them.
#[derive(Clone, Default)]
pub struct Downloads {
    open: Arc<Mutex<BTreeMap<Share, u32>>>,
}

/// A limit that a download counts against.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    All,
    Tenant(Name),
    Worker(ConnectionId),
}

impl Share {
    fn max(&self) -> u32 {
        match self {
            Share::All => DOWNLOADS_MAX,
            Share::Tenant(_) => DOWNLOADS_PER_TENANT_MAX,
            Share::Worker(_) => DOWNLOADS_PER_WORKER_MAX,
        }
    }
}

/// A download in progress.
pub struct DownloadSlot {
    shares: [Share; 3],
    downloads: Downloads,
}

impl Downloads {
    /// Takes a slot for a download from a worker. `None` when a limit is reached.
    pub fn admit(&self, tenant: &Name, worker: ConnectionId) -> Option<DownloadSlot> {
        let shares = [Share::All, Share::Tenant(tenant.clone()), Share::Worker(worker)];
        let mut open = self.open();
        let has_capacity = |share: &Share| open.get(share).is_none_or(|count| *count < share.max());
        if !shares.iter().all(has_capacity) {
            return None;
        }
        for share in &shares {
            *open.entry(share.clone()).or_insert(0) += 1;
        }
        drop(open);
        Some(DownloadSlot { shares, downloads: self.clone() })
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Share, u32>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DownloadSlot {
    fn drop(&mut self) {
        let mut open = self.downloads.open();
        for share in &self.shares {
            if let Some(count) = open.get_mut(share) {
                *count -= 1;
                if *count == 0 {
                    open.remove(share);
                }
            }
        }
    }
}

/// The source of a download, and its caller.
pub struct Source {
    /// The API.
    pub api: Api,
    /// The caller. The download ends when its permission ends.
    pub caller: Caller,
    /// The connection of the worker that has it.
    pub connection: ConnectionId,
    /// The name of the resource on the worker.
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
        self.api.scheduler.read_part(self.connection, &self.resource, offset, limit).await
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
        let (connection, downloads) = (worker.connection(), api.downloads.clone());
        let slot = downloads.admit(&caller.tenant, connection).unwrap();
        let source = Source { api, caller, connection, resource: "res-1".to_owned() };
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
        assert!(downloads.open().is_empty());
    }

    #[test]
    fn downloads_are_limited_by_worker_by_tenant_and_in_total() {
        let downloads = Downloads::default();
        let admit =
            |tenant: &'static str, worker| downloads.admit(&Name::fixed(tenant), ConnectionId(worker));
        let fill = |tenant: &'static str, workers: std::ops::Range<u64>| -> Vec<DownloadSlot> {
            workers.flat_map(|worker| std::iter::from_fn(move || admit(tenant, worker))).collect()
        };
        let of_one = fill("a", 0..1);
        assert_eq!(of_one.len(), DOWNLOADS_PER_WORKER_MAX as usize);
        let of_tenant = fill("a", 1..100);
        assert_eq!(of_one.len() + of_tenant.len(), DOWNLOADS_PER_TENANT_MAX as usize);
        let of_others: Vec<DownloadSlot> =
            ["b", "c"].into_iter().flat_map(|tenant| fill(tenant, 100..200)).collect();
        let all = of_one.len() + of_tenant.len() + of_others.len();
        assert_eq!(all, DOWNLOADS_MAX as usize);
        drop(of_one);
        assert!(admit("a", 0).is_some());
        drop((of_tenant, of_others));
        assert!(downloads.open().is_empty());
    }
}
