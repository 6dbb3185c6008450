//! A server in this process: the scheduler with the sample kinds, the HTTP API and the dialects. With a store in PostgreSQL it is a
//! node of a cluster, which may or may not own the scheduler.

mod apps;
mod node;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use laneway::{Laneway, StartError};
use laneway_api::{TlsListener, check_listen, serve_app, serve_app_tls};
use laneway_compat::outbound::Deliveries;
use laneway_runtime::config::{Config, Layers, Overrides, ServerConfig};
use laneway_store::{StoreAddress, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::exit::{CliError, Exit};
use crate::samples;
use crate::settings::wrong_config;
use apps::Apps;
use node::Node;

/// A running server.
pub struct Server {
    config: ServerConfig,
    address: SocketAddr,
    dialects: Vec<(&'static str, String)>,
    dashboard: Option<String>,
    runs: Runs,
    stop: CancellationToken,
    serving: Mutex<Vec<JoinHandle<io::Result<()>>>>,
}

/// What runs behind the listeners.
enum Runs {
    /// The scheduler of this process.
    Alone {
        laneway: Laneway,
        /// Publishes the answers of cron turns while the server runs.
        _deliveries: Deliveries,
    },
    /// A node of a cluster.
    Node(Node),
}

impl Server {
    /// Opens the data directory, recovers, and listens; or joins the cluster of a database.
    pub async fn start(layers: Layers) -> anyhow::Result<Server> {
        let config = layers.resolve(&Overrides::none()).map_err(wrong_config)?;
        if let StoreAddress::Postgres(url) = &config.server.store {
            let url = url.to_string();
            return Server::join(layers, config, &url).await;
        }
        let laneway = embedded(layers, &config).start().await.map_err(not_started)?;
        // The data directory is opened before the port, so that a second server reports the first one.
        match listen(&laneway, &config).await {
            Ok(Listening { address, dialects, dashboard, stop, serving }) => {
                let serving = Mutex::new(serving);
                let _deliveries = Deliveries::start(laneway.scheduler().clone());
                let (config, runs) = (config.server, Runs::Alone { laneway, _deliveries });
                Ok(Server { config, address, dialects, dashboard, runs, stop, serving })
            }
            Err(error) => {
                laneway.shutdown_within(Duration::ZERO).await?;
                Err(error)
            }
        }
    }

    async fn join(layers: Layers, config: Config, url: &str) -> anyhow::Result<Server> {
        let stop = CancellationToken::new();
        let (node, listening) = Node::start(layers, &config, url, &stop).await?;
        let Listening { address, dialects, dashboard, stop, serving } = listening;
        let (config, runs, serving) = (config.server, Runs::Node(node), Mutex::new(serving));
        Ok(Server { config, address, dialects, dashboard, runs, stop, serving })
    }

    /// The scheduler. `None`: another node has it.
    pub fn laneway(&self) -> Option<Laneway> {
        match &self.runs {
            Runs::Alone { laneway, .. } => Some(laneway.clone()),
            Runs::Node(node) => node.laneway(),
        }
    }

    /// How long a stop may take.
    pub fn drain_limit(&self) -> Duration {
        self.laneway()
            .map_or(self.config.drain_limit, |laneway| laneway.live_config().current().server.drain_limit)
    }

    /// Reads the configuration and the certificates again. A node that does not own the scheduler reads the configuration when it
    /// takes it over.
    pub async fn reload(&self) {
        if let Runs::Node(node) = &self.runs {
            node.reload_certificates();
        }
        if let Some(laneway) = self.laneway() {
            // The reload logs its own outcome.
            drop(laneway.reload().await);
        }
    }

    /// Its URL on this machine.
    pub fn url(&self) -> String {
        url_of(&self.config, self.address)
    }

    /// The URLs of the dialects on this machine, by name.
    pub fn dialects(&self) -> &[(&'static str, String)] {
        &self.dialects
    }

    /// The URL of the dashboard on this machine.
    pub fn dashboard(&self) -> Option<&str> {
        self.dashboard.as_deref()
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        let dir: &Path = &self.config.data_dir;
        dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
    }

    /// Its store, if that is not in the data directory.
    pub fn store(&self) -> Option<String> {
        self.config.store.directory().is_none().then(|| self.config.store.to_string())
    }

    /// True while calls need neither a token nor a certificate.
    pub fn is_open(&self) -> bool {
        let without_tokens = match &self.runs {
            Runs::Alone { laneway, .. } => laneway.scheduler().tokens().is_empty(),
            Runs::Node(node) => node.is_open(),
        };
        without_tokens && !asks_for_certificates(&self.config)
    }

    /// Waits until the scheduler has ended by itself, which happens only when its store fails. A node of a cluster goes on then,
    /// unless it cannot.
    pub async fn broken(&self) {
        match &self.runs {
            // `stop` reports how it ended.
            Runs::Alone { laneway, .. } => drop(laneway.ended().await),
            Runs::Node(node) => node.broken().await,
        }
    }

    /// Drains within `limit`, then stops listening: calls are answered until the last attempt has ended. May
    /// be called again with a shorter limit.
    pub async fn stop(&self, limit: Duration) -> anyhow::Result<()> {
        let drained = match &self.runs {
            Runs::Alone { laneway, .. } => {
                laneway.shutdown_within(limit).await.map(drop).map_err(anyhow::Error::from)
            }
            Runs::Node(node) => node.stop(limit).await,
        };
        self.stop.cancel();
        let serving = std::mem::take(&mut *self.serving.lock().unwrap_or_else(PoisonError::into_inner));
        if drained.is_ok() {
            for serving in serving {
                serving.await??;
            }
        }
        drained.map_err(|error| {
            CliError::new(Exit::Store, format!("{error}\nthe next start recovers the jobs")).into()
        })
    }
}

/// The scheduler of a server, before it is started.
fn embedded(layers: Layers, config: &Config) -> laneway::Embedded {
    let kinds = samples::handlers(|kind| config.targets.keys().any(|target| target.as_str() == kind));
    laneway::embedded().layers(layers).handlers(kinds).tab_actions().browsers()
}

/// The listeners of the server.
struct Listening {
    address: SocketAddr,
    dialects: Vec<(&'static str, String)>,
    dashboard: Option<String>,
    stop: CancellationToken,
    serving: Vec<JoinHandle<io::Result<()>>>,
}

/// Listens on the main port, and on a separate port for every dialect that has one. All ports are bound before
/// the first one answers.
async fn listen(laneway: &Laneway, config: &Config) -> anyhow::Result<Listening> {
    let server = &config.server;
    let stop = CancellationToken::new();
    let main_listener = bind(laneway, server, server.listen, "--listen").await?;
    let address = main_listener.local_addr()?;
    let Apps { api, main, beside, apart, dashboard } = Apps::of(laneway, config, &stop)?;
    let dashboard = dashboard.map(|prefix| format!("{}{prefix}/", url_of(server, address)));
    let mut urls: Vec<_> = beside
        .into_iter()
        .map(|(name, prefix)| (name, format!("{}{prefix}", url_of(server, address))))
        .collect();
    let mut apps = vec![(main_listener, main)];
    for (name, mount, app) in apart {
        let key = format!("dialects.{name}.listen");
        let listener = bind(laneway, server, mount.listen.unwrap_or(server.listen), &key).await?;
        urls.push((name, format!("{}{}", url_of(server, listener.local_addr()?), mount.prefix)));
        apps.push((listener, app));
    }
    let mut serving = Vec::new();
    for (listener, app) in apps {
        serving.push(match server.tls.clone() {
            None => tokio::spawn(serve_app(listener, app, api.clone(), stop.clone())),
            Some(files) => {
                let listener = TlsListener::new(listener, files)
                    .map_err(|error| CliError::new(Exit::Config, error.to_string()))?;
                tokio::spawn(serve_app_tls(listener, app, api.clone(), stop.clone()))
            }
        });
    }
    Ok(Listening { address, dialects: urls, dashboard, stop, serving })
}

/// Binds an address; `key` is the setting that selects another one.
async fn bind(
    laneway: &Laneway,
    config: &ServerConfig,
    listen: SocketAddr,
    key: &str,
) -> anyhow::Result<TcpListener> {
    let tokens_exist = !laneway.scheduler().tokens().is_empty();
    check_listen(listen, tokens_exist, asks_for_certificates(config))
        .map_err(|rejected| CliError::new(Exit::Config, rejected.to_string()))?;
    let bound = TcpListener::bind(listen).await;
    Ok(bound.map_err(|error| {
        let message = format!("cannot listen on {listen}: {error}; choose another with {key}");
        CliError::new(Exit::Rejected, message)
    })?)
}

/// The URL of an address on this machine.
fn url_of(config: &ServerConfig, mut address: SocketAddr) -> String {
    // A server that listens on all addresses is reached at the loopback address; the wildcard is not a valid
    // target.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("{}://{address}", if config.tls.is_some() { "https" } else { "http" })
}

fn asks_for_certificates(config: &ServerConfig) -> bool {
    config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
}

/// The exit code for an error at the start.
fn not_started(error: StartError) -> anyhow::Error {
    match error {
        StartError::Config(errors) => wrong_config(errors),
        StartError::Store(error) => store_error(&error).into(),
        other => other.into(),
    }
}

/// The exit code for an error of the store.
pub fn store_error(error: &StoreError) -> CliError {
    let exit = if matches!(error, StoreError::Locked(_)) { Exit::Taken } else { Exit::Store };
    CliError::new(exit, error.to_string())
}
