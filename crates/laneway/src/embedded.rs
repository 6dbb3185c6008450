//! Assembles a scheduler inside a program: configuration, store, loop, handlers.
//!
//! The server of the program `laneway` is started the same way, and adds the HTTP API.

mod handle;
mod job;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laneway_api::JobFormat;
use laneway_browser::{Browsers, BrowsersError, TAB_ACTION, Tabs};
use laneway_compat::pinchtab::action_text;
use laneway_core::{Bytes, Name, Origin, Rejection, Reply, Sampling};
use laneway_runtime::config::{
    Config, ConfigErrors, Layers, Overrides, Schema, SecretKey, ServerConfig, StorageConfig,
};
use laneway_runtime::executors::http::{Forwarding, HttpError};
use laneway_runtime::live_config::{LiveConfig, WatchError};
use laneway_runtime::otel::{Exporter, OtelSettings, SpanQueue};
use laneway_runtime::storage_probe::StorageProbe;
use laneway_runtime::webhooks::{CallbackFormat, Formats, NATIVE_FORMAT};
use laneway_runtime::{
    ArtifactFiles, Clock, Handlers, IntoOutcome, JobContext, LoadProbe, Options, Running, Scheduler, Stopped,
    TokenEstimate, Webhooks,
};
use laneway_store::{MemoryStore, SqliteOptions, Store, StoreAddress, StoreError};
use thiserror::Error;
use toml::{Table, Value};

use crate::checked_store::CheckedStore;
use crate::schema::config_schema;

pub use handle::{ChangeError, Ended, JobHandle, Laneway, ResultError, ShutdownError, SubmitError};
pub use job::{InvalidJob, Job};

/// The executor of the handlers of this process.
const LOCAL_EXECUTOR: &str = "local";
/// The executor of tab actions.
const TABS_EXECUTOR: &str = "tabs";

/// The folder of artifacts of handlers of this process, below the data directory.
const ARTIFACTS_DIR: &str = "artifacts";

/// Starts to build a scheduler. Jobs are kept in memory unless [`Embedded::data_dir`] sets a directory, or [`Embedded::store`] a
/// store.
pub fn embedded() -> Embedded {
    Embedded {
        kept: Kept::InMemory,
        data_dir: None,
        store: None,
        opened: None,
        source: Source::default(),
        handlers: Handlers::new(),
        formats: Formats::new()
            .with(NATIVE_FORMAT, Arc::new(JobFormat))
            .with(laneway_compat::pinchtab::FORMAT, Arc::new(laneway_compat::pinchtab::TaskCallback))
            .with(
                laneway_compat::browser_manager::FORMAT,
                Arc::new(laneway_compat::browser_manager::JobCallback),
            ),
        tab_actions: false,
        browsers: false,
        watch: false,
        clock: None,
        token_estimate: None,
    }
}

/// A scheduler that is not started yet.
#[must_use = "nothing runs until `start` is called"]
pub struct Embedded {
    kept: Kept,
    data_dir: Option<PathBuf>,
    store: Option<String>,
    opened: Option<Box<dyn Store>>,
    source: Source,
    handlers: Handlers,
    tab_actions: bool,
    browsers: bool,
    formats: Formats,
    watch: bool,
    clock: Option<Clock>,
    token_estimate: Option<TokenEstimate>,
}

/// Where jobs are stored.
enum Kept {
    InMemory,
    /// In the store of the configuration, which [`Embedded::data_dir`] and [`Embedded::store`] set.
    Configured,
}

/// The sources of the configuration.
#[derive(Default)]
struct Source {
    layers: Option<Layers>,
    file: Option<PathBuf>,
    settings: Vec<(String, Value)>,
}

/// Why a scheduler did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration is invalid; every problem is listed.
    #[error("the configuration is wrong\n{0}")]
    Config(#[from] ConfigErrors),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The loop's thread could not be started.
    #[error(transparent)]
    Loop(laneway_runtime::StartError),
    /// Browsers could not be set up.
    #[error(transparent)]
    Browsers(#[from] BrowsersError),
    /// The HTTP client for targets could not be created.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The configuration file cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A handler was rejected: its kind has a target in the configuration.
    #[error("the handlers were rejected: {0}")]
    Handlers(Rejection),
    /// The loop ended while it was being started.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<laneway_runtime::StartError> for StartError {
    fn from(error: laneway_runtime::StartError) -> StartError {
        match error {
            laneway_runtime::StartError::Store(error) => StartError::Store(error),
            other => StartError::Loop(other),
        }
    }
}

impl Embedded {
    /// Stores jobs in this directory: they survive a crash. One process at a time may use it.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Embedded {
        self.data_dir = Some(dir.into());
        self.kept = Kept::Configured;
        self
    }

    /// Stores jobs in this store: `sqlite:DIR` is the same as [`Embedded::data_dir`], and
    /// `postgres://user:password@host/database` is a PostgreSQL database. With PostgreSQL, [`Embedded::data_dir`] sets where
    /// artifacts of handlers and browser profiles are stored; without it there are none.
    pub fn store(mut self, address: impl Into<String>) -> Embedded {
        self.store = Some(address.into());
        self.kept = Kept::Configured;
        self
    }

    /// Uses this store instead of opening the one that the configuration names.
    pub fn opened(mut self, store: Box<dyn Store>) -> Embedded {
        self.opened = Some(store);
        self
    }

    /// Keeps jobs in memory only, for tests and for work that may be lost.
    pub fn in_memory(mut self) -> Embedded {
        self.kept = Kept::InMemory;
        (self.data_dir, self.store) = (None, None);
        self
    }

    /// Reads limits, lanes, kinds and targets from this file, and again whenever it changes.
    pub fn config_file(mut self, file: impl Into<PathBuf>) -> Embedded {
        self.source.file = Some(file.into());
        self.watch = true;
        self
    }

    /// Sets one key of the configuration, such as `("lanes.main.running_max", 4)`. It overrides the file, and
    /// the environment variables `LANEWAY_LANE_MAIN`, `GOCLAW_LANE_MAIN`, …, which set limits of lanes as
    /// they do for the server. No other variable is read.
    pub fn setting(mut self, key: impl Into<String>, value: impl Into<Value>) -> Embedded {
        self.source.settings.push((key.into(), value.into()));
        self
    }

    /// Uses a whole configuration, including its data directory. [`Embedded::setting`] is ignored then.
    pub fn layers(mut self, layers: Layers) -> Embedded {
        self.watch = layers.file().is_some();
        self.source.layers = Some(layers);
        self.kept = Kept::Configured;
        self
    }

    /// Runs jobs of this kind here. The handler gets the attempt and returns a result or a
    /// [`crate::Failure`].
    ///
    /// Panics when `kind` is not a valid name.
    pub fn handler<F, Fut>(mut self, kind: &str, handler: F) -> Embedded
    where
        F: Fn(JobContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handlers = self.handlers.on(kind, handler);
        self
    }

    /// Runs jobs of all these kinds here, and replaces the handlers given so far.
    pub fn handlers(mut self, handlers: Handlers) -> Embedded {
        self.handlers = handlers;
        self
    }

    /// Runs jobs of the kind `tab_action` here: each is forwarded to the instance that has its browser tab.
    /// The configuration lists the instances. A target of that kind in the configuration has precedence.
    pub fn tab_actions(mut self) -> Embedded {
        self.tab_actions = true;
        self
    }

    /// Runs jobs of the built-in browser kinds (`browser_start`, `script_run`, …) here, with Chromium of this machine. Profiles
    /// are stored below the data directory, or in `browsers.data_dir`. Browsers that an earlier process left are ended.
    pub fn browsers(mut self) -> Embedded {
        self.browsers = true;
        self
    }

    /// Uses this clock instead of the machine's. `Clock::manual` advances only on request, for tests.
    pub fn clock(mut self, clock: Clock) -> Embedded {
        self.clock = Some(clock);
        self
    }

    /// Returns how full the context of a session is, by tenant and name: tokens used, and tokens that fit.
    /// From 60 % on, the session's jobs run one by one. It is called before a job is submitted and after one
    /// has run, never on the loop.
    pub fn token_estimate(
        mut self,
        estimate: impl Fn(&Name, &Name) -> Option<(u64, u64)> + Send + Sync + 'static,
    ) -> Embedded {
        self.token_estimate = Some(Arc::new(estimate));
        self
    }

    /// Adds a callback format under `name`. The format `laneway` exists already: the job as the HTTP API
    /// returns it; so do those of the dialects, under their names.
    pub fn callback_format(mut self, name: &'static str, format: Arc<dyn CallbackFormat>) -> Embedded {
        self.formats = self.formats.with(name, format);
        self
    }

    /// Recovers the store and starts. Must be called on a tokio runtime; handlers run on it.
    pub async fn start(self) -> Result<Laneway, StartError> {
        let Embedded {
            kept,
            data_dir,
            store,
            opened,
            source,
            handlers,
            tab_actions,
            browsers,
            formats,
            watch,
            clock,
            token_estimate,
        } = self;
        let has_dir = data_dir.is_some() || source.layers.is_some();
        let layers = source.layers(data_dir, store)?;
        let kept = match kept {
            Kept::InMemory => Opening { store: None, data_dir: None },
            Kept::Configured => Opening::of(layers.resolve(&Overrides::none())?.server, has_dir),
        };
        let (data_dir, in_dir) = (kept.data_dir.clone(), kept.directory().is_some());
        let opened = tokio::task::spawn_blocking({
            let layers = layers.clone();
            move || open(&layers, &kept, opened, clock, token_estimate)
        });
        let Opened { scheduler, running, config, overrides, sealed, spans } =
            opened.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let local_slots = config.local_slots;
        let exporter = match (spans, OtelSettings::of(&config)) {
            (Some(spans), Some(otel)) => Exporter::start(scheduler.clone(), spans, otel)?,
            _ => None,
        };
        if let Some(sealed) = sealed {
            let (settings, detail) = (config.settings().clone(), "instances: stored tokens were encrypted");
            scheduler.configure(settings, Some(sealed), detail, Origin::server("config")).await?;
        }
        let schema = layers.schema().clone();
        let live = LiveConfig::new(layers, overrides, config, scheduler.clone());
        let key = data_dir.as_ref().map(|dir| SecretKey::of_dir(dir, &schema));
        if let (Some(dir), Some(key)) = (&data_dir, &key) {
            live.seal_with(key.clone());
            store_artifacts(&scheduler, &live.current(), dir).await;
        }
        // Before any job can start: on a full disk only earlier attempts go on.
        let probe = match in_dir {
            true => Some(StorageProbe::start(scheduler.clone(), &live).await),
            false => None,
        };
        let forwarding = Forwarding::start(scheduler.clone(), &live).await?;
        if !handlers.is_empty() {
            let reply = scheduler.run_here(Name::fixed(LOCAL_EXECUTOR), handlers, local_slots).await?;
            if let Reply::Rejected(rejection) = reply {
                return Err(StartError::Handlers(rejection));
            }
        }
        let browsers = match browsers {
            true => Some(Browsers::start(&scheduler, &live, data_dir.as_deref(), key).await?),
            false => None,
        };
        let tabs =
            if tab_actions { Some(start_tabs(&scheduler, &live, browsers.as_ref()).await?) } else { None };
        let webhooks = Webhooks::start(scheduler.clone(), &live, formats);
        let load = LoadProbe::start(scheduler.clone(), &live);
        let watch = if watch { live.watch().await? } else { None };
        let guards = handle::Guards { forwarding, webhooks, probe, load, watch, exporter };
        Ok(Laneway::new(scheduler, live, (tabs, browsers), running, guards))
    }
}

/// Runs tab actions, unless the configuration forwards them elsewhere.
async fn start_tabs(
    scheduler: &Scheduler,
    live: &LiveConfig,
    browsers: Option<&Browsers>,
) -> Result<Tabs, StartError> {
    let (mut tabs, config) = (Tabs::new(live)?, live.current());
    if let Some(browsers) = browsers {
        tabs = tabs.with_browsers(browsers);
    }
    if config.targets.contains_key(&Name::fixed(TAB_ACTION)) {
        return Ok(tabs);
    }
    let reply = scheduler
        .run_here(Name::fixed(TABS_EXECUTOR), tabs.handlers(action_text), config.local_slots)
        .await?;
    match reply {
        Reply::Rejected(rejection) => Err(StartError::Handlers(rejection)),
        _ => Ok(tabs),
    }
}

/// Stores artifacts of handlers of this process below the data directory, and removes those that have expired.
async fn store_artifacts(scheduler: &Scheduler, config: &Config, dir: &Path) {
    let StorageConfig { artifact_retention, artifacts_per_tenant_max, .. } = config.storage;
    let files = ArtifactFiles::new(dir.join(ARTIFACTS_DIR), artifact_retention, artifacts_per_tenant_max);
    let (swept, now) = (files.clone(), scheduler.wall());
    scheduler.store_artifacts_in(files);
    match tokio::task::spawn_blocking(move || swept.sweep(now)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "expired artifacts cannot be removed"),
        Err(error) => tracing::warn!(%error, "expired artifacts were not removed"),
    }
}

/// The parts that exist once the store is open and the loop runs.
struct Opened {
    scheduler: Scheduler,
    running: Running,
    config: Config,
    overrides: Overrides,
    /// Earlier changes by API calls, to be stored again because an earlier version stored secrets in plain
    /// text.
    sealed: Option<Bytes>,
    /// Where spans wait, if they are exported.
    spans: Option<SpanQueue>,
}

/// What is opened.
struct Opening {
    /// The store. `None`: in memory.
    store: Option<StoreAddress>,
    /// The directory of other files of this process. `None`: there are none.
    data_dir: Option<PathBuf>,
}

impl Opening {
    fn of(server: ServerConfig, has_dir: bool) -> Opening {
        let ServerConfig { store, data_dir, .. } = server;
        let data_dir = (has_dir || store.directory().is_some()).then_some(data_dir);
        Opening { store: Some(store), data_dir }
    }

    /// The data directory, if the store is in it.
    fn directory(&self) -> Option<&Path> {
        self.store.as_ref().and_then(StoreAddress::directory)
    }

    fn open(&self, layers: &Layers, opened: Option<Box<dyn Store>>) -> Result<Box<dyn Store>, StartError> {
        let Some(store) = &self.store else { return Ok(Box::new(MemoryStore::new())) };
        if let (None, Some(dir)) = (store.directory(), &self.data_dir) {
            make_data_dir(dir)?;
        }
        if let Some(opened) = opened {
            return Ok(opened);
        }
        // The log's section is not changed by API calls.
        let log_keep = Some(layers.resolve_stored(None)?.0.log.keep);
        Ok(store.open(SqliteOptions { log_keep, ..SqliteOptions::default() })?)
    }
}

/// Makes the directory of the files of a server whose store is elsewhere, for its owner only.
fn make_data_dir(dir: &Path) -> Result<(), StoreError> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir).map_err(|error| {
        StoreError::Unusable(format!(
            "cannot make data directory {}: {error}; choose another with server.data_dir",
            dir.display()
        ))
    })
}

/// Opens the store and starts the loop. Blocks while it recovers.
fn open(
    layers: &Layers,
    opening: &Opening,
    opened: Option<Box<dyn Store>>,
    clock: Option<Clock>,
    token_estimate: Option<TokenEstimate>,
) -> Result<Opened, StartError> {
    let data_dir = opening.data_dir.as_deref();
    let mut store = opening.open(layers, opened)?;
    let kept = store.overrides()?;
    let sealed = sealed_secrets(kept.as_ref(), data_dir, layers.schema());
    let stored = opened_secrets(kept, data_dir, layers.schema());
    let (config, overrides, left_out) = layers.resolve_stored(stored.as_ref())?;
    for problem in left_out {
        tracing::warn!(%problem, "an earlier change by an API call is no longer valid and is ignored");
    }
    let start_check = config.storage.start_check;
    let mut late_check = None;
    if let Some(dir) = opening.directory().filter(|_| !start_check.is_zero()) {
        let (checked, check) = CheckedStore::new(store, dir.to_owned(), start_check);
        (store, late_check) = (Box::new(checked), Some(check));
    }
    let mut options = Options::new(config.settings().clone());
    options.clock = clock.unwrap_or(options.clock);
    options.token_estimate = token_estimate;
    options.dialect_jobs = config.dialect_jobs();
    let exports = OtelSettings::of(&config).filter(|otel| otel.endpoint.is_some());
    let spans = exports.map(|otel| SpanQueue::new(otel.queue, Sampling::ratio(otel.sample)));
    options.spans = spans.clone();
    let (scheduler, running) = Scheduler::start(store, options)?;
    if let Some(check) = late_check {
        check.report_to(scheduler.clone());
    }
    Ok(Opened { scheduler, running, config, overrides, sealed, spans })
}

/// The same changes with the secrets encrypted that an earlier version stored in plain text. `None`: there are
/// none.
fn sealed_secrets(stored: Option<&Bytes>, data_dir: Option<&Path>, schema: &Schema) -> Option<Bytes> {
    match SecretKey::of_dir(data_dir?, schema).seal_plain(stored?) {
        Ok(sealed) => sealed,
        Err(error) => {
            tracing::warn!(%error, "stored tokens of instances cannot be encrypted and remain in plain text");
            None
        }
    }
}

/// Earlier changes by API calls, with decrypted secrets. A secret that cannot be decrypted is left out and must
/// be set again.
fn opened_secrets(stored: Option<Bytes>, data_dir: Option<&Path>, schema: &Schema) -> Option<Bytes> {
    let (stored, dir) = (stored?, data_dir);
    let Some(dir) = dir else { return Some(stored) };
    match SecretKey::of_dir(dir, schema).open(&stored) {
        Ok((opened, unread)) => {
            for id in unread {
                tracing::warn!(instance = %id, "the stored token cannot be decrypted: secret.key is missing or has changed; set the token again");
            }
            Some(opened)
        }
        // Any other problem is reported where it is read.
        Err(_) => Some(stored),
    }
}

impl Source {
    fn layers(self, data_dir: Option<PathBuf>, store: Option<String>) -> Result<Layers, ConfigErrors> {
        if let Some(layers) = self.layers {
            return Ok(layers);
        }
        let data_dir =
            data_dir.map(|dir| ("server.data_dir".to_owned(), Value::from(dir.display().to_string())));
        let store = store.map(|store| ("server.store".to_owned(), Value::from(store)));
        let flags = settings_table(self.settings.into_iter().chain(data_dir).chain(store));
        let layers =
            Layers::read(config_schema(), self.file.as_deref(), config_schema().lane_environment(), flags)?;
        for warning in layers.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(layers)
    }
}

/// A tree of settings from dotted keys, as [`Layers::read`] takes it. If a value and a section conflict, the
/// later one wins.
pub fn settings_table(settings: impl IntoIterator<Item = (String, Value)>) -> Table {
    let mut tree = Table::new();
    for (key, value) in settings {
        let (sections, last) = key.rsplit_once('.').unwrap_or(("", &key));
        let mut table = &mut tree;
        for section in sections.split('.').filter(|section| !section.is_empty()) {
            let entry = table.entry(section.to_owned()).or_insert_with(|| Value::Table(Table::new()));
            if !entry.is_table() {
                *entry = Value::Table(Table::new());
            }
            table = entry.as_table_mut().expect("any other value was just replaced by a table");
        }
        table.insert(last.to_owned(), value);
    }
    tree
}
