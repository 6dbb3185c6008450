//! What every handler holds: the scheduler, the configuration, and the API's own small memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use laneway_core::Name;
use laneway_runtime::Scheduler;
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::note_limits::NoteLimits;
use laneway_runtime::webhooks::Guard;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::auth::{BadTokens, Principal, random};
use crate::convert::DefaultNames;
use crate::cursor::Cursors;
use crate::download::Downloads;
use crate::v1::server::Figures;
use crate::worker::Room;

/// Most event streams at once: each holds a connection and a task.
const STREAMS_MAX: usize = 1_024;

/// Large bodies that are in memory at once, in KiB: 256 MiB, or eight of the largest batches.
pub(crate) const BODY_ROOM_KIB: usize = 256 * 1024;

/// What every handler holds. Clones are the same API.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

/// The parts, as handlers see them.
pub struct Inner {
    pub(crate) scheduler: Scheduler,
    pub(crate) config: LiveConfig,
    pub(crate) names: DefaultNames,
    /// Whom callbacks may call.
    pub(crate) guard: Guard,
    /// Anybody, while the server is open; made once, so that a call does not make it again.
    pub(crate) open: Principal,
    /// Room for large bodies, in KiB.
    pub(crate) body_room: Arc<Semaphore>,
    pub(crate) cursors: Cursors,
    pub(crate) bad_tokens: BadTokens,
    pub(crate) notes: NoteLimits,
    /// Room for sockets of workers.
    pub(crate) worker_room: Room,
    /// Room for downloads of artifacts.
    pub(crate) downloads: Downloads,
    pub(crate) started: Instant,
    pub(crate) streams: Arc<Semaphore>,
    /// What `/health` and `/readyz` said last.
    pub(crate) figures: Mutex<Option<Figures>>,
    /// Held while a patch is merged into a schedule.
    pub(crate) schedule_patches: Mutex<()>,
    /// Canceled when the server stops listening: streams end.
    pub(crate) closing: CancellationToken,
    /// Differs from boot to boot, so that request ids of two boots do not meet.
    boot: u32,
    requests: AtomicU64,
    sockets: AtomicU64,
}

impl Api {
    /// The API over a running scheduler. Fails when the system has no random numbers.
    pub fn new(scheduler: Scheduler, config: LiveConfig) -> Result<Api, getrandom::Error> {
        let worker_room = Room::new(&config.current().workers);
        let inner = Inner {
            guard: Guard::live(config.subscribe()),
            scheduler,
            config,
            names: DefaultNames::new(),
            open: Principal::open(),
            body_room: Arc::new(Semaphore::new(BODY_ROOM_KIB)),
            cursors: Cursors::new(random()?),
            bad_tokens: BadTokens::default(),
            notes: NoteLimits::default(),
            worker_room,
            downloads: Downloads::default(),
            started: Instant::now(),
            figures: Mutex::new(None),
            schedule_patches: Mutex::new(()),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            closing: CancellationToken::new(),
            boot: u32::from_be_bytes(random()?),
            requests: AtomicU64::new(0),
            sockets: AtomicU64::new(0),
        };
        Ok(Api { inner: Arc::new(inner) })
    }

    /// The scheduler behind the API.
    pub fn scheduler(&self) -> &Scheduler {
        &self.inner.scheduler
    }

    /// The configuration behind the API.
    pub fn config(&self) -> &LiveConfig {
        &self.inner.config
    }

    /// A new request's id.
    pub(crate) fn next_request(&self) -> Name {
        let number = self.inner.requests.fetch_add(1, Ordering::Relaxed);
        let text = format!("{:08x}-{number:08x}", self.inner.boot);
        Name::new(&text).expect("hex digits and a hyphen are a name")
    }
}

impl Api {
    /// A new socket's number; two boots never give the same.
    pub(crate) fn next_socket(&self) -> u64 {
        (u64::from(self.inner.boot) << 32) | self.inner.sockets.fetch_add(1, Ordering::Relaxed)
    }
}

impl std::ops::Deref for Api {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}
