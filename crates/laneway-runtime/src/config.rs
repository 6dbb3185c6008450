//! The configuration: how settings are written, where they come from, and what they mean.
//!
//! Order, weakest first: the embedded `config.default.toml` (it is also the reference), the file, the environment
//! (`LANEWAY_SECTION__KEY`), the flags, and last the changes by API calls in the store. All of it is merged into
//! one tree, checked once as a whole, and becomes a typed [`Config`]; every problem is reported, not only the first.
//! The effects of the values are elsewhere: limits are `laneway_core::Settings`, and `live_config.rs` changes a
//! configuration while the server runs.
//!
//! Only [`Schema::lane_environment`] reads the environment; the binary passes it to everything else.

mod aliases;
mod build;
mod chat;
mod contributed;
mod dialects;
mod diff;
mod error;
mod lane_variables;
mod layers;
mod otel_variables;
mod overrides;
mod path;
mod render;
mod schema;
mod seal;
mod secret;
mod section;
mod server;
mod units;
mod webhooks;
mod workers;

use std::any::Any;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use laneway_core::{Name, Settings};
use laneway_store::StoreAddress;

use crate::job_log::DialectJobs;

pub use build::{QUEUED_MAX, RUNNING_MAX, SPAN_MAX, target_url};
pub use dialects::{DialectConfig, Dialects, Mount};
pub use diff::{ChangedKey, changed_keys};
pub use error::{ConfigError, ConfigErrorKind, ConfigErrors};
pub use layers::{Layers, preview};
pub use overrides::{Overrides, merge_patch};
pub use path::KeyPath;
pub use schema::{
    CountRule, DialectKey, DialectSection, EntrySection, EntryValue, FixedSection, JobsOf, Schema,
    SectionEntry,
};
pub use seal::{SecretKey, is_sealed};
pub use secret::{REDACTED, Secret, shown_url};
pub use section::Section;
pub use units::{format_size, format_span, parse_size, parse_span};

use contributed::{Entries, Sections};
use layers::Places;

/// The limits of the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Free bytes below which nothing is admitted and nothing starts.
    pub low: u64,
    /// Bytes that are kept for results.
    pub reserve: u64,
    /// How long a start looks for damage.
    pub start_check: Duration,
    /// How long artifacts of handlers of this process are kept.
    pub artifact_retention: Duration,
    /// Most bytes of these artifacts of one tenant.
    pub artifacts_per_tenant_max: u64,
}

/// A configuration that was checked as a whole.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where and how the server listens and stores.
    pub server: ServerConfig,
    /// The log.
    pub log: LogConfig,
    /// How many local handlers run at once.
    pub local_slots: u32,
    /// The limits of the data directory.
    pub storage: StorageConfig,
    /// Kinds whose jobs are forwarded by HTTP.
    pub targets: BTreeMap<Name, Target>,
    /// How webhooks are sent.
    pub webhooks: WebhookConfig,
    /// How workers come in.
    pub workers: WorkersConfig,
    /// How callers share streams.
    pub streams: StreamsConfig,
    /// The dialects, and how they are mounted.
    pub dialects: Dialects,
    /// The entries of sections that other crates contribute.
    entries: Entries,
    /// The sections with fixed keys that other crates contribute.
    sections: Sections,
    settings: Settings,
    places: Places,
    schema: Arc<Schema>,
}

/// Where and how the server listens and stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The address of the API.
    pub listen: SocketAddr,
    /// Where files of this server are kept, and jobs unless `store` is elsewhere.
    pub data_dir: PathBuf,
    /// Where jobs are stored.
    pub store: StoreAddress,
    /// How long a stop may take.
    pub drain_limit: Duration,
    /// Most HTTP connections at once.
    pub connections_max: u32,
    /// Most bytes of a request's body.
    pub body_max: usize,
    /// Most bytes of bodies in memory at once.
    pub bodies_max: usize,
    /// Most of these of one caller.
    pub bodies_per_caller_max: usize,
    /// Host names that requests may name besides the loopback names and the listen address.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call the API besides those of the allowed hosts.
    pub allowed_origins: Vec<String>,
    /// True: viewers see neither payloads nor results nor log lines.
    pub viewer_payloads_hidden: bool,
    /// TLS, when the server speaks it.
    pub tls: Option<TlsConfig>,
}

/// The files of TLS, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate chain.
    pub cert: PathBuf,
    /// The server's private key.
    pub key: PathBuf,
    /// Clients must show a certificate that one of these authorities signed.
    pub client_ca: Option<PathBuf>,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// How lines look.
    pub format: LogFormat,
    /// Which lines are written, in the syntax of `tracing`'s filters.
    pub filter: String,
    /// How long the commit log is kept; zero: not at all.
    pub keep: Duration,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How webhooks are sent. When they are sent is in `laneway_core::settings::WebhookSettings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Most deliveries under way at once.
    pub in_flight_max: usize,
    /// Most of these to one host.
    pub in_flight_per_host_max: usize,
    /// How long a receiver may take to answer.
    pub timeout: Duration,
    /// Hosts that may be called although their addresses are not public.
    pub allow_hosts: Vec<String>,
    /// The secrets for webhooks of tenants without secrets of their own.
    pub secrets: SigningSecrets,
    /// The secrets of tenants.
    pub tenant_secrets: BTreeMap<Name, SigningSecrets>,
}

/// How workers come in. When one is too full, and how many there may be, is a matter of
/// `laneway_core::worker::WorkerSettings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersConfig {
    /// Most sockets of workers.
    pub sockets_max: u32,
    /// Most of these of one tenant.
    pub sockets_per_tenant_max: u32,
    /// Most sockets whose worker has not shown who it is.
    pub unauthenticated_max: u32,
    /// Most of these of one client address.
    pub unauthenticated_per_address_max: u32,
    /// True: only client certificates let a worker in.
    pub require_certificate: bool,
}

/// How callers share streams, sockets and calls that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsConfig {
    /// Most native streams of events.
    pub max: u32,
    /// Most streams of one tenant, of each sort.
    pub per_tenant_max: u32,
    /// Most streams of one token, of each sort.
    pub per_token_max: u32,
}

/// The secrets that sign webhooks; all of them sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SigningSecrets {
    /// The secret in force.
    pub current: Option<Secret>,
    /// The one that is about to go.
    pub previous: Option<Secret>,
}

impl SigningSecrets {
    /// Every secret, the one in force first.
    pub fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.current.iter().chain(&self.previous)
    }
}

impl WebhookConfig {
    /// The secrets of `tenant`.
    pub fn secrets_of(&self, tenant: &Name) -> &SigningSecrets {
        self.tenant_secrets.get(tenant).unwrap_or(&self.secrets)
    }
}

/// Where the jobs of a kind are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Gets a POST for every attempt.
    pub url: reqwest::Url,
    /// Sent along with every request.
    pub headers: Vec<(String, Secret)>,
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<Secret>,
    /// Most bytes of a response's body.
    pub response_max: usize,
}

impl Config {
    /// The embedded defaults alone.
    pub fn builtin(schema: &Arc<Schema>) -> Config {
        Layers::builtin(schema)
            .resolve(&Overrides::none())
            .expect("the embedded defaults are a configuration")
    }

    /// The section of the dialect of this name. Panics when the dialect contributed none.
    pub fn dialect(&self, name: &str) -> &DialectConfig {
        self.dialects.get(name).expect("a program contributes the section of every dialect that it mounts")
    }

    /// The entries of a contributed section, by name.
    pub fn entries<T: SectionEntry>(&self, section: &str) -> impl Iterator<Item = (&Name, &T)> {
        let entries = self.entries.get(section).into_iter().flatten();
        entries.filter_map(|(name, entry)| Some((name, as_entry(entry.as_ref())?)))
    }

    /// One entry of a contributed section.
    pub fn entry<T: SectionEntry>(&self, section: &str, id: &Name) -> Option<&T> {
        self.any_entry(section, id).and_then(as_entry)
    }

    /// A contributed section with fixed keys. `None`: the program contributed none of this name.
    pub fn section<T: SectionEntry>(&self, name: &str) -> Option<&T> {
        self.sections.get(name).and_then(|section| as_entry(section.as_ref()))
    }

    /// One entry of a contributed section, as any type.
    pub(crate) fn any_entry(&self, section: &str, id: &Name) -> Option<&dyn SectionEntry> {
        self.entries.get(section)?.get(id).map(Arc::as_ref)
    }

    /// The jobs that belong to dialects.
    pub fn dialect_jobs(&self) -> DialectJobs {
        self.schema.dialect_jobs()
    }

    /// The settings of the engine.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The whole effective configuration as TOML that can be read again. Values that are not the default are followed
    /// by where they come from; secrets are `***`.
    pub fn dump(&self) -> String {
        render::to_toml(self)
    }

    /// Takes the values that only a restart can change from the configuration in force.
    pub(crate) fn keep_until_restart(&mut self, current: &Config) {
        self.server = current.server.clone();
        self.log = current.log.clone();
        self.local_slots = current.local_slots;
        self.workers.sockets_max = current.workers.sockets_max;
        self.workers.unauthenticated_max = current.workers.unauthenticated_max;
        self.workers.unauthenticated_per_address_max = current.workers.unauthenticated_per_address_max;
        self.streams = current.streams.clone();
        self.sections = current.sections.clone();
        self.storage.artifact_retention = current.storage.artifact_retention;
        self.storage.artifacts_per_tenant_max = current.storage.artifacts_per_tenant_max;
        let schema = &self.schema;
        self.dialects.keep_until_restart(&current.dialects, schema);
        self.places.retain(|key, _| !diff::needs_restart(schema, key));
        let kept = current.places.iter().filter(|(key, _)| diff::needs_restart(schema, key));
        self.places.extend(kept.map(|(key, place)| (key.clone(), place.clone())));
    }

    /// True when the key's value was set by an API call, so that other layers cannot change it.
    pub(crate) fn is_set_by_call(&self, key: &KeyPath) -> bool {
        matches!(self.places.get(key), Some(layers::Place::Stored))
    }

    /// The whole effective configuration as one JSON tree, as API calls show and patch it; secrets are `***`.
    pub fn to_json(&self) -> serde_json::Value {
        render::to_json(self)
    }
}

impl Schema {
    /// The variables of this process's environment that set limits of lanes (`LANEWAY_LANE_MAIN`, …), for [`Layers::read`].
    /// For programs that use the library; the binary passes its whole environment.
    pub fn lane_environment(&self) -> Vec<(String, String)> {
        let names = lane_variables::all(self).into_iter().map(|(_, name)| name);
        names.filter_map(|name| Some((name.clone(), std::env::var_os(&name)?.into_string().ok()?))).collect()
    }
}

/// The directories in which the system looks for programs.
pub fn program_directories() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// The entry as a `T`, if it is one.
pub fn as_entry<T: SectionEntry>(entry: &dyn SectionEntry) -> Option<&T> {
    (entry as &dyn Any).downcast_ref()
}
