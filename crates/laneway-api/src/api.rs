//! The state that every handler shares: the scheduler, the configuration, and the limits of the API.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::Instant;

use laneway_browser::Browsers;
use laneway_core::Name;
use laneway_runtime::audit_rate::AuditRate;
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::webhooks::Guard;
use laneway_runtime::{Scheduler, Shares, TenantPermits};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::auth::{BadTokens, Principal, random};
use crate::body_budget::BodyBudget;
use crate::bulk::{self, Operations};
use crate::connections::Connections;
use crate::convert::DefaultNames;
use crate::cursor::Cursors;
use crate::download::Downloads;
use crate::paced_body::Bodies;
use crate::v1::server::ServerLoad;
use crate::warnings::ServedKinds;
use crate::worker::ConnectionLimits;

/// The number of large bodies that are parsed at once. More would take the cores of the runtime.
const PARSERS_MAX: usize = 2;

/// The state that every handler shares. Clones share it.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

/// True when a caller that names this user may start or change a job of this kind and payload. A payload may name the user
/// with whose credentials the job runs; which payloads do is known to the crate that defines the kind.
pub type CredentialCheck = fn(kind: &Name, payload: &[u8], user: Option<&str>) -> bool;

/// The parts of the state.
pub struct Inner {
    pub(crate) scheduler: Scheduler,
    pub(crate) config: LiveConfig,
    pub(crate) names: DefaultNames,
    /// Checks callback URLs.
    pub(crate) guard: Guard,
    /// The principal of callers of an open server. It is created once.
    pub(crate) open: Principal,
    /// Checks the credentials that a payload names.
    pub(crate) credentials: CredentialCheck,
    /// Permits for large bodies that are being received.
    pub(crate) bodies: Arc<Bodies>,
    /// Limits the bytes of large bodies in memory.
    pub(crate) body_budget: BodyBudget,
    /// Permits to parse large bodies.
    pub(crate) parsers: TenantPermits,
    pub(crate) cursors: Cursors,
    pub(crate) bad_tokens: BadTokens,
    /// Completed when a client has sent a token to an open server.
    pub(crate) unchecked_tokens: Once,
    pub(crate) notes: AuditRate,
    /// Limits the sockets of workers.
    pub(crate) worker_connections: ConnectionLimits,
    /// Limits the downloads of artifacts.
    pub(crate) downloads: Downloads,
    pub(crate) started: Instant,
    /// The share of each caller in the event streams.
    pub(crate) streams: Shares,
    /// The share of each caller in the requests that wait for a job to end.
    pub(crate) waits: Shares,
    /// The connections of every listener.
    pub(crate) connections: Connections,
    /// The latest result of `/health` and `/readyz`.
    pub(crate) load: Mutex<Option<ServerLoad>>,
    /// The kinds of the latest suggestions.
    pub(crate) served_kinds: ServedKinds,
    /// Locked while a patch is merged into a schedule.
    pub(crate) schedule_patches: Mutex<()>,
    /// The bulk operations that run.
    pub(crate) operations: Operations,
    /// The browsers of this machine, if the server has any.
    pub(crate) browsers: OnceLock<Browsers>,
    /// The path of the dashboard.
    pub(crate) dashboard: OnceLock<String>,
    /// Canceled when the server stops listening. Event streams end then.
    pub(crate) closing: CancellationToken,
    /// Differs between starts of the server, so that request ids are unique.
    boot: u32,
    requests: AtomicU64,
    sockets: AtomicU64,
}

impl Api {
    /// The API of a running scheduler. Fails when the system has no random numbers.
    pub fn new(
        scheduler: Scheduler,
        config: LiveConfig,
        credentials: CredentialCheck,
    ) -> Result<Api, getrandom::Error> {
        let current = config.current();
        let worker_connections = ConnectionLimits::new(&current.workers);
        let streams = Shares::new(current.streams.max, "streams.max", &current.streams);
        let waits = Shares::new(current.streams.max, "streams.max", &current.streams);
        let body_budget = BodyBudget::new(current.server.bodies_max, current.server.bodies_per_caller_max);
        let inner = Inner {
            guard: Guard::live(config.subscribe()),
            scheduler,
            config,
            names: DefaultNames::new(),
            open: Principal::open(),
            credentials,
            bodies: Arc::default(),
            body_budget,
            parsers: TenantPermits::new(PARSERS_MAX),
            cursors: Cursors::fresh()?,
            bad_tokens: BadTokens::default(),
            unchecked_tokens: Once::new(),
            notes: AuditRate::default(),
            worker_connections,
            downloads: Downloads::default(),
            started: Instant::now(),
            load: Mutex::new(None),
            served_kinds: ServedKinds::default(),
            schedule_patches: Mutex::new(()),
            operations: Operations::default(),
            streams,
            waits,
            browsers: OnceLock::new(),
            dashboard: OnceLock::new(),
            connections: Connections::new(current.server.connections_max),
            closing: CancellationToken::new(),
            boot: u32::from_be_bytes(random()?),
            requests: AtomicU64::new(0),
            sockets: AtomicU64::new(0),
        };
        Ok(Api { inner: Arc::new(inner) })
    }

    /// Serves these browsers under `/v1/profiles` and `/v1/browsers`. Without them these paths are rejected. A second call has
    /// no effect.
    pub fn serve_browsers(&self, browsers: Browsers) {
        // Browsers that were set before stay.
        let _ = self.inner.browsers.set(browsers);
    }

    /// Leads browsers that open `/` to the dashboard at this path. A second call has no effect.
    pub fn serve_dashboard(&self, path: &str) {
        let _ = self.inner.dashboard.set(path.to_owned());
    }

    /// Goes on with the bulk operations that an earlier process began, in the background.
    pub fn resume_operations(&self) {
        let api = self.clone();
        tokio::spawn(async move {
            if let Err(error) = bulk::resume(&api).await {
                tracing::warn!(?error, "bulk operations of an earlier process cannot be read");
            }
        });
    }

    /// Ends event streams and the sockets of workers: this server stops, or another one serves the jobs from now on.
    pub fn close(&self) {
        self.inner.closing.cancel();
    }

    /// The scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        &self.inner.scheduler
    }

    /// The configuration.
    pub fn config(&self) -> &LiveConfig {
        &self.inner.config
    }

    /// The id of a new request.
    pub(crate) fn next_request(&self) -> Name {
        let number = self.inner.requests.fetch_add(1, Ordering::Relaxed);
        let text = format!("{:08x}-{number:08x}", self.inner.boot);
        Name::new(&text).expect("hex digits and a hyphen are a name")
    }
}

impl Api {
    /// The number of a new socket. It is unique across starts of the server.
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
