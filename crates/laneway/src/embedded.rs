//! Puts the parts together inside a program: configuration, store, loop, handlers.
//!
//! The server of the program `laneway` is started the same way and only adds the HTTP API.

mod handle;
mod job;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laneway_api::JobFormat;
use laneway_core::{Name, Refusal, Reply};
use laneway_runtime::LoadProbe;
use laneway_runtime::config::{Config, ConfigErrors, Layers, Overrides};
use laneway_runtime::executors::http::{Forwarding, HttpError};
use laneway_runtime::live_config::{LiveConfig, WatchError};
use laneway_runtime::storage_probe::StorageProbe;
use laneway_runtime::tabs::TAB_ACTION;
use laneway_runtime::webhooks::{CallbackFormat, Formats, NATIVE_FORMAT};
use laneway_runtime::{
    Clock, Handlers, IntoOutcome, JobContext, Options, Running, Scheduler, Stopped, Tabs, TokenEstimate,
    Webhooks,
};
use laneway_store::sqlite::{SqliteOptions, SqliteStore};
use laneway_store::{MemoryStore, Store, StoreError};
use thiserror::Error;
use toml::{Table, Value};

pub use handle::{Ended, JobHandle, Laneway, ResultError, ShutdownError, SubmitError};
pub use job::{InvalidJob, Job};

/// The place that runs the handlers of this process.
const LOCAL_PLACE: &str = "local";
/// The place that runs tab actions.
const TABS_PLACE: &str = "tabs";

/// Begins to put a scheduler together. Jobs are kept in memory unless [`Embedded::data_dir`] says where.
pub fn embedded() -> Embedded {
    Embedded {
        kept: Kept::InMemory,
        source: Source::default(),
        handlers: Handlers::new(),
        formats: Formats::new()
            .with(NATIVE_FORMAT, Arc::new(JobFormat))
            .with(laneway_compat::pinchtab::FORMAT, Arc::new(laneway_compat::pinchtab::TaskNews)),
        tab_actions: false,
        watch: false,
        clock: None,
        token_estimate: None,
    }
}

/// A scheduler that has not been started yet.
#[must_use = "nothing runs until `start` is called"]
pub struct Embedded {
    kept: Kept,
    source: Source,
    handlers: Handlers,
    tab_actions: bool,
    formats: Formats,
    watch: bool,
    clock: Option<Clock>,
    token_estimate: Option<TokenEstimate>,
}

/// Where jobs are kept.
enum Kept {
    InMemory,
    In(PathBuf),
    /// Where the configuration says.
    Configured,
}

/// Where the configuration comes from.
#[derive(Default)]
struct Source {
    layers: Option<Layers>,
    file: Option<PathBuf>,
    settings: Vec<(String, Value)>,
}

/// Why a scheduler did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration is wrong; every problem is named.
    #[error("the configuration is wrong\n{0}")]
    Config(#[from] ConfigErrors),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The loop's thread could not be started.
    #[error(transparent)]
    Loop(laneway_runtime::StartError),
    /// The HTTP side of targets could not be set up.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The configuration file cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A handler was refused: its kind has a target in the configuration.
    #[error("the handlers were refused: {0}")]
    Handlers(Refusal),
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
    /// Keeps jobs in this directory: what was submitted is there after a crash. One process at a time may use it.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Embedded {
        self.kept = Kept::In(dir.into());
        self
    }

    /// Keeps jobs in memory only: for tests, and for work that may be forgotten.
    pub fn in_memory(mut self) -> Embedded {
        self.kept = Kept::InMemory;
        self
    }

    /// Reads limits, lanes, kinds and targets from this file, and again whenever it changes.
    pub fn config_file(mut self, file: impl Into<PathBuf>) -> Embedded {
        self.source.file = Some(file.into());
        self.watch = true;
        self
    }

    /// Sets one key of the configuration, such as `("lanes.main.running_max", 4)`.
    pub fn setting(mut self, key: impl Into<String>, value: impl Into<Value>) -> Embedded {
        self.source.settings.push((key.into(), value.into()));
        self
    }

    /// Takes a whole configuration, the data directory in it included. What [`Embedded::setting`] says is not looked at
    /// then.
    pub fn layers(mut self, layers: Layers) -> Embedded {
        self.watch = layers.file().is_some();
        self.source.layers = Some(layers);
        self.kept = Kept::Configured;
        self
    }

    /// Runs jobs of this kind here. The handler gets the attempt and gives back a result or a [`crate::Failure`].
    ///
    /// Panics when `kind` is not a name.
    pub fn handler<F, Fut>(mut self, kind: &str, handler: F) -> Embedded
    where
        F: Fn(JobContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handlers = self.handlers.on(kind, handler);
        self
    }

    /// Runs jobs of all these kinds here, instead of the handlers given so far.
    pub fn handlers(mut self, handlers: Handlers) -> Embedded {
        self.handlers = handlers;
        self
    }

    /// Runs jobs of the kind `tab_action` here: each is forwarded to the instance that has its browser tab. Instances are
    /// named in the configuration. A target of that kind in the configuration goes before.
    pub fn tab_actions(mut self) -> Embedded {
        self.tab_actions = true;
        self
    }

    /// Goes by this clock instead of the machine's: `Clock::manual` stands still until it is told to go on, for tests.
    pub fn clock(mut self, clock: Clock) -> Embedded {
        self.clock = Some(clock);
        self
    }

    /// Asks how full the context of a session is, by tenant and name: tokens used, and tokens it holds. From 60 % on, the
    /// session's jobs run one by one. Asked before a job is submitted and after one has run, never on the loop.
    pub fn token_estimate(
        mut self,
        estimate: impl Fn(&Name, &Name) -> Option<(u64, u64)> + Send + Sync + 'static,
    ) -> Embedded {
        self.token_estimate = Some(Arc::new(estimate));
        self
    }

    /// Tells callbacks that ask for the format `name` what this format says of a job. The format `laneway` is there
    /// already: the job as the HTTP API shows it; and so are those of the dialects, under their names.
    pub fn callback_format(mut self, name: &'static str, format: Arc<dyn CallbackFormat>) -> Embedded {
        self.formats = self.formats.with(name, format);
        self
    }

    /// Recovers what the store holds and starts. Must be called on a tokio runtime; handlers run on it.
    pub async fn start(self) -> Result<Laneway, StartError> {
        let Embedded { kept, source, handlers, tab_actions, formats, watch, clock, token_estimate } = self;
        let layers = source.layers(&kept)?;
        let data_dir = match kept {
            Kept::InMemory => None,
            Kept::In(dir) => Some(dir),
            Kept::Configured => Some(layers.resolve(&Overrides::none())?.server.data_dir),
        };
        let opened = tokio::task::spawn_blocking({
            let (layers, data_dir) = (layers.clone(), data_dir.clone());
            move || open(&layers, data_dir.as_deref(), clock, token_estimate)
        });
        let Opened { scheduler, running, config, overrides } =
            opened.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let local_slots = config.local_slots;
        let live = LiveConfig::new(layers, overrides, config, scheduler.clone());
        let forwarding = Forwarding::start(scheduler.clone(), &live).await?;
        if !handlers.is_empty() {
            let reply = scheduler.run_here(Name::fixed(LOCAL_PLACE), handlers, local_slots).await?;
            if let Reply::Refused(refusal) = reply {
                return Err(StartError::Handlers(refusal));
            }
        }
        let tabs = if tab_actions { Some(start_tabs(&scheduler, &live).await?) } else { None };
        let probe = match data_dir {
            Some(_) => Some(StorageProbe::start(scheduler.clone(), &live).await),
            None => None,
        };
        let webhooks = Webhooks::start(scheduler.clone(), &live, formats);
        let load = LoadProbe::start(scheduler.clone(), &live);
        let watch = if watch { live.watch().await? } else { None };
        let guards = handle::Guards { forwarding, webhooks, probe, load, watch };
        Ok(Laneway::new(scheduler, live, tabs, running, guards))
    }
}

/// Runs tab actions, unless the configuration has them forwarded elsewhere.
async fn start_tabs(scheduler: &Scheduler, live: &LiveConfig) -> Result<Tabs, StartError> {
    let (tabs, config) = (Tabs::new(live)?, live.current());
    if config.targets.contains_key(&Name::fixed(TAB_ACTION)) {
        return Ok(tabs);
    }
    let reply = scheduler.run_here(Name::fixed(TABS_PLACE), tabs.handlers(), config.local_slots).await?;
    match reply {
        Reply::Refused(refusal) => Err(StartError::Handlers(refusal)),
        _ => Ok(tabs),
    }
}

/// What is there once the store is open and the loop runs.
struct Opened {
    scheduler: Scheduler,
    running: Running,
    config: Config,
    overrides: Overrides,
}

/// Opens the store and starts the loop. Blocks while it recovers.
fn open(
    layers: &Layers,
    data_dir: Option<&Path>,
    clock: Option<Clock>,
    token_estimate: Option<TokenEstimate>,
) -> Result<Opened, StartError> {
    let mut store: Box<dyn Store> = match data_dir {
        None => Box::new(MemoryStore::new()),
        Some(dir) => Box::new(SqliteStore::open(dir, SqliteOptions::default())?),
    };
    let stored = store.overrides()?;
    let (config, overrides, left_out) = layers.resolve_stored(stored.as_ref())?;
    for problem in left_out {
        tracing::warn!(%problem, "a change that a call made earlier fits no longer and is left out");
    }
    let mut options = Options::new(config.settings().clone());
    options.clock = clock.unwrap_or(options.clock);
    options.token_estimate = token_estimate;
    let (scheduler, running) = Scheduler::start(store, options)?;
    Ok(Opened { scheduler, running, config, overrides })
}

impl Source {
    fn layers(self, kept: &Kept) -> Result<Layers, ConfigErrors> {
        if let Some(layers) = self.layers {
            return Ok(layers);
        }
        let data_dir = match kept {
            Kept::In(dir) => Some(("server.data_dir".to_owned(), Value::String(dir.display().to_string()))),
            Kept::InMemory | Kept::Configured => None,
        };
        let flags = settings_table(self.settings.into_iter().chain(data_dir));
        Layers::read(self.file.as_deref(), [], flags)
    }
}

/// A tree of settings from dotted keys, as [`Layers::read`] takes it. Where a value is in the way of a section, the later
/// one of the two holds.
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
            table = entry.as_table_mut().expect("what is no table was just replaced by one");
        }
        table.insert(last.to_owned(), value);
    }
    tree
}
