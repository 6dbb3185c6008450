//! The bytes of an artifact on their way from a worker to a client.
//!
//! One part after the other: the next one is asked for when the client has taken the one before, so that a download holds
//! a few parts in memory however large the whole is. A download that breaks off ends with an error, never as if it were
//! complete. How many there may be is bounded: in all, of one tenant, and of one worker.

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

/// Bytes of a part: enough that asking for it costs little, and little enough that heartbeats need not wait for it.
pub const PART_LEN: u32 = 256 << 10;
/// How long a client may take for a part.
const TAKE_LIMIT: Duration = Duration::from_secs(60);
/// Most downloads at once.
pub const DOWNLOADS_MAX: u32 = 64;
/// Most downloads at once of what one tenant has.
pub const DOWNLOADS_PER_TENANT_MAX: u32 = 32;
/// Most downloads at once from one worker.
pub const DOWNLOADS_PER_WORKER_MAX: u32 = 8;

/// Room for downloads. Clones are the same room.
#[derive(Clone, Default)]
pub struct Downloads {
    open: Arc<Mutex<BTreeMap<Share, u32>>>,
}

/// Whose share of the room a download takes.
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

/// A download that is under way.
pub struct DownloadSlot {
    shares: [Share; 3],
    downloads: Downloads,
}

impl Downloads {
    /// A seat for a download from a worker. `None`: there is no room.
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

/// What is downloaded, and for whom.
pub struct Source {
    /// The API.
    pub api: Api,
    /// Who downloads it: when their right ends, so does the download.
    pub caller: Caller,
    /// The connection of the worker that has it.
    pub connection: ConnectionId,
    /// Its name there.
    pub resource: String,
}

/// A download whose first part has come.
pub struct Download {
    source: Source,
    first: Bytes,
    /// How large the whole is.
    pub size: u64,
    /// The first byte that is given.
    pub start: u64,
    /// The byte behind the last one that is given.
    pub end: u64,
}

/// Why a download does not begin.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum NotBegun {
    /// The worker gives nothing.
    #[error(transparent)]
    Trouble(#[from] PartTrouble),
    /// There are no such bytes; how many there are.
    #[error("there are only {0} bytes")]
    OutOfRange(u64),
}

/// Why a download broke off.
#[derive(Debug, Error)]
enum Broken {
    #[error(transparent)]
    Trouble(#[from] PartTrouble),
    #[error("it changed while it was read")]
    Changed,
    #[error("the right to it has ended")]
    NotAllowed,
    #[error("the client takes nothing any more")]
    NotTaken,
}

impl Source {
    /// Asks for the first part of what is wanted.
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
        // To ask for nothing is a bad frame, and far behind the end there is nothing to ask for.
        let limit = u32::try_from(len).unwrap_or(PART_LEN).clamp(1, PART_LEN);
        self.api.scheduler.read_part(self.connection, &self.resource, offset, limit).await
    }

    fn is_still_allowed(&self) -> bool {
        let scheduler = &self.api.scheduler;
        self.caller.is_still_allowed(&scheduler.tokens(), scheduler.wall())
    }
}

impl Download {
    /// The bytes, as the body of an answer. `seat` is kept until they have left.
    pub fn body(self, slot: DownloadSlot) -> Body {
        let (sender, receiver) = mpsc::channel(1);
        let left = self.end - self.start;
        tokio::spawn(async move {
            let resource = self.source.resource.clone();
            if let Err(error) = self.pump(&sender).await {
                tracing::debug!(resource, %error, "a download broke off");
            }
            drop(slot);
        });
        Body::from_stream(stream::unfold((receiver, left), |(mut receiver, left)| async move {
            let item = match receiver.recv().await {
                Some(bytes) => Ok::<Bytes, io::Error>(bytes),
                None if left == 0 => return None,
                // The end of the parts is not the end of the whole: the connection to the client is cut.
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            };
            let left = item.as_ref().map_or(0, |bytes| left.saturating_sub(bytes.len() as u64));
            Some((item, (receiver, left)))
        }))
    }

    /// Hands one part after the other to whoever writes them to the client.
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
            // It waits for the client, too: nobody reads further ahead than this one part.
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

    /// Gives the next part that is asked for, full of zeroes; `None` when nothing is asked for.
    async fn give(worker: &mut WorkerLink, size: u64) -> Option<u64> {
        // Whoever asks asks within a few turns of the one thread that these tests have.
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
    async fn nobody_reads_further_ahead_than_the_client_takes() {
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
        // One part waits for the client, another one behind it; that is all, however long the client waits.
        assert_eq!(give(&mut worker, size).await, Some(part));
        for taken in 2..6 {
            assert_eq!(give(&mut worker, size).await, None);
            assert_eq!(body.next().await.unwrap().unwrap().len() as u64, part);
            assert_eq!(give(&mut worker, size).await, Some(taken * part));
        }
        // A client that goes takes its download along, and leaves its place to others.
        drop(body);
        assert_eq!(give(&mut worker, size).await, None);
        assert!(downloads.open().is_empty());
    }

    #[test]
    fn downloads_are_bounded_by_worker_tenant_and_in_all() {
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
