//! Builds a worker.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_wire::frame::{
    Capabilities, Concurrency, LenError, Limit, List, Manifest, Package, PackageStatus, Register, Table,
    Text, TextError, WorkerIdentity,
};
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use super::connect::{ConnectError, Dialer, TlsFiles};
use super::handlers::{Handler, Handlers, Ran};
use super::metrics::Metrics;
use super::packages::{InstalledPackage, Loader, PackageError, Packages};
use super::protocol::{Profile, Protocol, Thresholds, Timing};
use super::resources::Resources;
use super::run::{Command, Driver, EVENTS_MAX, Event, WorkerError};
use super::state::WorkerState;
use super::task::Task;
use super::tasks::Capacity;
use super::vitals::Probe;

/// Returns the token of the next connection. It is called at every connect, so that tokens can be rotated.
pub type TokenSource = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<String>> + Send>> + Send + Sync>;

/// The path of the endpoint that expects the slower heartbeats of older workers.
const COMPAT_PATH: &str = "/ws/worker";

/// What a worker offers when it registers.
#[derive(Clone, Debug)]
pub struct Offer {
    concurrency: Concurrency,
    runtimes: List<Text, 1, 256>,
    features: Vec<Text>,
    channels: List<Text, 0, 256>,
}

impl Offer {
    pub(super) fn register(
        &self,
        kinds: &[Text],
        packages: impl Iterator<Item = InstalledPackage>,
    ) -> Register {
        let of_kinds = kinds.iter().filter_map(|kind| Text::new(format!("kind:{kind}")).ok());
        let features = self.features.iter().cloned().chain(of_kinds).take(256).collect();
        let (mut listed, mut manifests) = (Vec::new(), Vec::new());
        for InstalledPackage { name, version, manifest, .. } in packages.take(1_024) {
            let status = PackageStatus::Installed;
            listed.push(Package { name: name.clone(), version: version.clone(), status });
            manifests.push(Manifest { name, version, manifest });
        }
        Register {
            capabilities: Capabilities {
                concurrency: self.concurrency.clone(),
                runtimes: self.runtimes.clone(),
                features: List::new(features).unwrap_or_default(),
            },
            packages: List::new(listed).unwrap_or_default(),
            channels: Some(self.channels.clone()),
            queues: None,
            manifests: Some(List::new(manifests).unwrap_or_default()),
            boot_id: None,
            tasks: None,
        }
    }
}

/// Why a worker cannot be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// A text is invalid.
    #[error("{field} {error}")]
    Text {
        /// The field that holds the text.
        field: &'static str,
        /// What is wrong with it.
        error: TextError,
    },
    /// A list is too long or too short.
    #[error("{field} {error}")]
    Len {
        /// The field that holds the list.
        field: &'static str,
        /// Its length and the limit.
        error: LenError,
    },
    /// A limit is 0.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// There is no handler.
    #[error("there is no handler and no folder for packages; add at least one")]
    NothingToRun,
    /// The URL or the TLS files cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The package folder cannot be used.
    #[error("the package folder cannot be used: {0}")]
    Packages(String),
}

/// Options of a worker that is not built yet.
#[must_use = "nothing runs until `build` and `run` are called"]
pub struct WorkerBuilder {
    url: String,
    id: String,
    tenant: String,
    version: String,
    hostname: String,
    token: TokenSource,
    tls: TlsFiles,
    max_parallel: u32,
    limits: BTreeMap<String, u32>,
    runtimes: Vec<String>,
    features: Vec<String>,
    channels: Vec<String>,
    heartbeat: Option<(Duration, Duration)>,
    stop_grace: Duration,
    drain_limit: Duration,
    thresholds: Thresholds,
    handlers: Vec<(String, Handler)>,
    packages: Option<(PathBuf, Loader)>,
    seed: Option<u64>,
}

impl WorkerBuilder {
    fn new(url: &str, id: &str) -> WorkerBuilder {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        WorkerBuilder {
            url: url.to_owned(),
            id: id.to_owned(),
            tenant: "default".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: if hostname.is_empty() { "localhost".to_owned() } else { hostname },
            token: Arc::new(|| Box::pin(async { None })),
            tls: TlsFiles::default(),
            max_parallel: 1,
            limits: BTreeMap::new(),
            runtimes: vec!["rust".to_owned()],
            features: Vec::new(),
            channels: Vec::new(),
            heartbeat: None,
            stop_grace: Duration::from_secs(10),
            drain_limit: Duration::from_secs(30),
            thresholds: Thresholds::default(),
            handlers: Vec::new(),
            packages: None,
            seed: None,
        }
    }

    /// The tenant whose jobs to run. Defaults to `default`.
    pub fn tenant(mut self, tenant: &str) -> WorkerBuilder {
        self.tenant = tenant.to_owned();
        self
    }

    /// The version to register. Defaults to the version of this library.
    pub fn version(mut self, version: &str) -> WorkerBuilder {
        self.version = version.to_owned();
        self
    }

    /// The source of the token. It is called at every connect, so a new token needs no restart. Defaults to
    /// none.
    pub fn token<F, Fut>(mut self, token: F) -> WorkerBuilder
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<String>> + Send + 'static,
    {
        self.token = Arc::new(move || Box::pin(token()));
        self
    }

    /// The TLS files. Defaults to none: the public certificate authorities, and no client certificate.
    pub fn tls(mut self, tls: TlsFiles) -> WorkerBuilder {
        self.tls = tls;
        self
    }

    /// Most tasks that run at once. Defaults to 1.
    pub fn max_parallel(mut self, max_parallel: u32) -> WorkerBuilder {
        self.max_parallel = max_parallel;
        self
    }

    /// Most tasks of one kind that run at once. Defaults to no limit.
    pub fn limit(mut self, kind: &str, limit: u32) -> WorkerBuilder {
        self.limits.insert(kind.to_owned(), limit);
        self
    }

    /// The runtimes of the handlers, as registered. Defaults to `rust`.
    pub fn runtimes<'a>(mut self, runtimes: impl IntoIterator<Item = &'a str>) -> WorkerBuilder {
        self.runtimes = runtimes.into_iter().map(str::to_owned).collect();
        self
    }

    /// Features of the worker beside its kinds, as registered. Defaults to none.
    pub fn features<'a>(mut self, features: impl IntoIterator<Item = &'a str>) -> WorkerBuilder {
        self.features = features.into_iter().map(str::to_owned).collect();
        self
    }

    /// The lanes whose jobs the worker gets. Names that are not lanes of the server are ignored. Without a
    /// valid lane, and by default, the worker gets jobs of every lane.
    pub fn channels<'a>(mut self, channels: impl IntoIterator<Item = &'a str>) -> WorkerBuilder {
        self.channels = channels.into_iter().map(str::to_owned).collect();
        self
    }

    /// The time between two heartbeats, and its jitter. Defaults to 5 s + 0.5 s, and on `/ws/worker` to 30 s
    /// + 5 s.
    pub fn heartbeat(mut self, every: Duration, jitter: Duration) -> WorkerBuilder {
        self.heartbeat = Some((every, jitter));
        self
    }

    /// How long a handler has to end after it was asked to stop. Defaults to 10 s.
    pub fn stop_grace(mut self, grace: Duration) -> WorkerBuilder {
        self.stop_grace = grace;
        self
    }

    /// How long running tasks may take when the worker drains. Defaults to 30 s.
    pub fn drain_limit(mut self, limit: Duration) -> WorkerBuilder {
        self.drain_limit = limit;
        self
    }

    /// The load of the machine above which the worker requests no more tasks. Defaults to memory 90 %, disk
    /// 95 %.
    pub fn thresholds(mut self, thresholds: Thresholds) -> WorkerBuilder {
        self.thresholds = thresholds;
        self
    }

    /// Runs tasks of this kind.
    pub fn handler<F, Fut>(self, kind: &str, handler: F) -> WorkerBuilder
    where
        F: Fn(Task) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Ran> + Send + 'static,
    {
        self.boxed_handler(kind, Handler::new(handler))
    }

    /// Runs tasks of this kind with an existing handler.
    pub fn boxed_handler(mut self, kind: &str, handler: Handler) -> WorkerBuilder {
        self.handlers.push((kind.to_owned(), handler));
        self
    }

    /// Keeps packages in this folder and loads handlers from them. Without it, the server cannot install
    /// packages.
    pub fn packages(mut self, folder: impl Into<PathBuf>, loader: Loader) -> WorkerBuilder {
        self.packages = Some((folder.into(), loader));
        self
    }

    /// Seeds all randomness, for tests.
    pub fn seed(mut self, seed: u64) -> WorkerBuilder {
        self.seed = Some(seed);
        self
    }

    /// Checks all options and returns a worker that is not connected yet.
    pub fn build(self) -> Result<Worker, BuildError> {
        let dialer = Dialer::new(&self.url, self.tls.clone())?;
        let profile = self.profile()?;
        let offer = self.offer()?;
        let WorkerBuilder { handlers: own, packages, token, stop_grace, seed, .. } = self;
        if own.is_empty() && packages.is_none() {
            return Err(BuildError::NothingToRun);
        }
        let handlers = Handlers::default();
        for (kind, handler) in own {
            handlers.add(text("the kind of a handler", kind)?, handler);
        }
        let probe =
            Probe::new(packages.as_ref().map_or_else(|| PathBuf::from("/"), |(folder, _)| folder.clone()));
        let packages = packages
            .map(|(folder, loader)| Packages::open(&folder, loader))
            .transpose()
            .map_err(|error: PackageError| BuildError::Packages(error.to_string()))?;
        for (package, found) in packages.iter().flat_map(Packages::load) {
            handlers.add_package(package.name, package.version, found);
        }
        let rng = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let resources = Resources::new(profile.identity.id.clone());
        let metrics = Arc::new(Metrics::new());
        let (events, events_taken) = mpsc::channel(EVENTS_MAX);
        let (commands, commands_taken) = mpsc::channel(8);
        let (state, shown) = watch::channel(WorkerState::New);
        let handle = WorkerHandle {
            commands,
            state: shown,
            metrics: Arc::clone(&metrics),
            resources: resources.clone(),
        };
        let driver = Driver {
            protocol: Protocol::new(profile, rng),
            offer,
            handlers,
            packages,
            resources,
            probe,
            metrics,
            dialer,
            token,
            events,
            state,
            began: Instant::now(),
            runs: BTreeMap::new(),
            starts: 0,
            nexts: BTreeMap::new(),
            collected: Duration::ZERO,
            package_changes: 0,
            reads: 0,
            stop_grace,
        };
        Ok(Worker { driver, events: events_taken, commands: commands_taken, handle })
    }

    fn profile(&self) -> Result<Profile, BuildError> {
        let is_compat = self.url.split(['?', '#']).next().is_some_and(|path| path.ends_with(COMPAT_PATH));
        let usual = if is_compat {
            (Duration::from_secs(30), Duration::from_secs(5))
        } else {
            (Duration::from_secs(5), Duration::from_millis(500))
        };
        let (heartbeat, heartbeat_jitter) = self.heartbeat.unwrap_or(usual);
        if heartbeat.is_zero() {
            return Err(BuildError::Zero("the time between heartbeats"));
        }
        let mut per_node = BTreeMap::new();
        for (kind, limit) in &self.limits {
            per_node.insert(text("the kind of a limit", kind.clone())?, *limit as usize);
        }
        Ok(Profile {
            tenant: text("the tenant", self.tenant.clone())?,
            identity: WorkerIdentity {
                id: text("the worker's id", self.id.clone())?,
                version: text("the version", self.version.clone())?,
                hostname: text("the hostname", self.hostname.clone())?,
            },
            timing: Timing {
                heartbeat,
                heartbeat_jitter,
                stop_grace: self.stop_grace,
                drain_limit: self.drain_limit,
            },
            capacity: Capacity { max_parallel: self.max_parallel as usize, per_node },
            thresholds: self.thresholds,
            instance: self.seed.unwrap_or_else(|| fastrand::u64(..)) & 0xffff_ffff,
            boot_id: Text::fixed(&format!("{:032x}", fastrand::u128(..))),
        })
    }

    fn offer(&self) -> Result<Offer, BuildError> {
        if self.max_parallel == 0 {
            return Err(BuildError::Zero("max_parallel"));
        }
        if self.limits.values().any(|limit| *limit == 0) {
            return Err(BuildError::Zero("the limit of a kind"));
        }
        let texts = |field: &'static str, from: &[String]| -> Result<Vec<Text>, BuildError> {
            from.iter().map(|name| text(field, name.clone())).collect()
        };
        let len = |field: &'static str| move |error: LenError| BuildError::Len { field, error };
        let limits = self
            .limits
            .iter()
            .map(|(kind, limit)| Ok((text("the kind of a limit", kind.clone())?, Limit(*limit))));
        let limits = limits.collect::<Result<BTreeMap<Text, Limit>, BuildError>>()?;
        let per_node_limits = Some(Table::new(limits).map_err(len("the list of limits"))?);
        Ok(Offer {
            concurrency: Concurrency { max_parallel: self.max_parallel, per_node_limits },
            runtimes: List::new(texts("a runtime", &self.runtimes)?).map_err(len("the list of runtimes"))?,
            features: texts("a feature", &self.features)?,
            channels: List::new(texts("a channel", &self.channels)?).map_err(len("the list of channels"))?,
        })
    }
}

fn text(field: &'static str, text: String) -> Result<Text, BuildError> {
    Text::new(text).map_err(|error| BuildError::Text { field, error })
}

/// A worker that is not connected yet.
#[must_use = "nothing runs until `run` is called"]
pub struct Worker {
    driver: Driver,
    events: mpsc::Receiver<Event>,
    commands: mpsc::Receiver<Command>,
    handle: WorkerHandle,
}

impl Worker {
    /// Starts to build a worker. `id` is its name: it is unique among workers and stays the same after a
    /// restart.
    pub fn builder(url: &str, id: &str) -> WorkerBuilder {
        WorkerBuilder::new(url, id)
    }

    /// A handle to observe the worker and to stop it.
    pub fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }

    /// Connects, runs tasks, and reconnects until the worker is drained. Must be called on a tokio runtime;
    /// handlers run on it.
    pub async fn run(self) -> Result<(), WorkerError> {
        let Worker { mut driver, events, commands, handle } = self;
        driver.began = Instant::now();
        // Every owner of a handle may drain the worker. Without handles, the worker keeps running.
        let result = driver.run(events, commands).await;
        drop(handle);
        result
    }
}

/// Observes a worker, and stops it. Clones share the worker.
#[derive(Clone)]
pub struct WorkerHandle {
    commands: mpsc::Sender<Command>,
    state: watch::Receiver<WorkerState>,
    metrics: Arc<Metrics>,
    resources: Resources,
}

impl WorkerHandle {
    /// Drains the worker: it takes no more tasks, running tasks get `limit` or the builder's limit to end,
    /// then the worker ends.
    pub async fn drain(&self, limit: Option<Duration>) {
        // A worker that has ended is drained.
        let _ = self.commands.send(Command::Drain(limit)).await;
    }

    /// Where the session stands.
    pub fn state(&self) -> WorkerState {
        *self.state.borrow()
    }

    /// Waits until the session stands where `wanted` says. False when the worker ends before.
    pub async fn reached(&self, wanted: WorkerState) -> bool {
        self.state.clone().wait_for(|state| *state == wanted).await.is_ok()
    }

    /// The metrics of the worker in Prometheus format.
    pub fn metrics(&self) -> String {
        self.metrics.text()
    }

    /// The resources that its tasks made.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }
}
