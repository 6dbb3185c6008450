//! A server in this process: the scheduler with the sample kinds, the HTTP API and the dialects.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::Extensions;
use laneway::{DashboardSettings, Laneway, StartError};
use laneway_api::{
    Api, Peer, TlsListener, check_listen, router, router_of, router_with, serve_app, serve_app_tls,
};
use laneway_compat::agent_turn::is_allowed;
use laneway_compat::outbound::Deliveries;
use laneway_dashboard::{Dashboard, Settings as DashboardMount};
use laneway_runtime::config::{Config, Layers, Overrides, ServerConfig};
use laneway_store::StoreError;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::dialects;
use crate::exit::{CliError, Exit};
use crate::mcp;
use crate::samples;
use crate::settings::wrong_config;

/// A running server.
pub struct Server {
    laneway: Laneway,
    config: ServerConfig,
    address: SocketAddr,
    dialects: Vec<(&'static str, String)>,
    dashboard: Option<String>,
    /// Publishes the answers of cron turns while the server runs.
    _deliveries: Deliveries,
    stop: CancellationToken,
    serving: Mutex<Vec<JoinHandle<io::Result<()>>>>,
}

impl Server {
    /// Opens the data directory, recovers, and listens.
    pub async fn start(layers: Layers) -> anyhow::Result<Server> {
        let config = layers.resolve(&Overrides::none()).map_err(wrong_config)?;
        let kinds = samples::handlers(|kind| config.targets.keys().any(|target| target.as_str() == kind));
        let embedded = laneway::embedded().layers(layers).handlers(kinds).tab_actions().browsers();
        let laneway = embedded.start().await.map_err(not_started)?;
        // The data directory is opened before the port, so that a second server reports the first one.
        match listen(&laneway, &config).await {
            Ok(Listening { address, dialects, dashboard, stop, serving }) => {
                let serving = Mutex::new(serving);
                let _deliveries = Deliveries::start(laneway.scheduler().clone());
                let config = config.server;
                Ok(Server { laneway, config, address, dialects, dashboard, _deliveries, stop, serving })
            }
            Err(error) => {
                laneway.shutdown_within(Duration::ZERO).await?;
                Err(error)
            }
        }
    }

    /// Its scheduler.
    pub fn laneway(&self) -> &Laneway {
        &self.laneway
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

    /// True while calls need neither a token nor a certificate.
    pub fn is_open(&self) -> bool {
        self.laneway.scheduler().tokens().is_empty() && !asks_for_certificates(&self.config)
    }

    /// Waits until the scheduler has ended by itself, which happens only when its store fails.
    pub async fn broken(&self) {
        // `stop` reports how it ended.
        let _ = self.laneway.ended().await;
    }

    /// Drains within `limit`, then stops listening: calls are answered until the last attempt has ended. May
    /// be called again with a shorter limit.
    pub async fn stop(&self, limit: Duration) -> anyhow::Result<()> {
        let drained = self.laneway.shutdown_within(limit).await;
        self.stop.cancel();
        let serving = std::mem::take(&mut *self.serving.lock().unwrap_or_else(PoisonError::into_inner));
        if drained.is_ok() {
            for serving in serving {
                serving.await??;
            }
        }
        match drained {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(CliError::new(Exit::Store, format!("{error}\nthe next start recovers the jobs")).into())
            }
        }
    }
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
    let api = Api::new(laneway.scheduler().clone(), laneway.live_config().clone(), is_allowed)?;
    if let Some(browsers) = laneway.browsers() {
        api.serve_browsers(browsers.clone());
    }
    api.resume_operations();
    let (apart, beside): (Vec<_>, Vec<_>) = dialects::switched_on(laneway, &config.dialects)
        .into_iter()
        .partition(|(_, mount)| mount.listen.is_some());
    let main = bind(laneway, server, server.listen, "--listen").await?;
    let address = main.local_addr()?;
    let at = |name, listener: &TcpListener, prefix: &str| {
        Ok::<_, io::Error>((name, format!("{}{prefix}", url_of(server, listener.local_addr()?))))
    };
    let mut urls = Vec::new();
    for (dialect, mount) in &beside {
        urls.push(at(dialect.name, &main, &mount.prefix)?);
    }
    check_prefix(config, beside.iter().map(|(dialect, mount)| (dialect.name, mount.prefix.as_str())))?;
    let stop = CancellationToken::new();
    let mut mounted: Vec<_> = beside.into_iter().map(|(dialect, _)| dialect).collect();
    mounted.push(mcp::endpoint(&api, stop.clone()));
    let app =
        router_with(api.clone(), mounted).map_err(|clash| CliError::new(Exit::Config, clash.to_string()))?;
    let (app, dashboard) = with_dashboard(app, &api, config, &stop)?;
    let dashboard = dashboard.map(|prefix| format!("{}{prefix}/", url_of(server, address)));
    let mut apps = vec![(main, app)];
    for (dialect, mount) in apart {
        let key = format!("dialects.{}.listen", dialect.name);
        let listener = bind(laneway, server, mount.listen.unwrap_or(server.listen), &key).await?;
        urls.push(at(dialect.name, &listener, &mount.prefix)?);
        apps.push((listener, router_of(&api, dialect)));
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

/// Adds the dashboard to the main port, if it is switched on. The result has its path.
fn with_dashboard(
    app: Router,
    api: &Api,
    config: &Config,
    stop: &CancellationToken,
) -> anyhow::Result<(Router, Option<String>)> {
    let Some(DashboardSettings { prefix, .. }) =
        DashboardSettings::of(config).filter(|settings| settings.enabled)
    else {
        return Ok((app, None));
    };
    let defaults = Config::builtin(laneway::config_schema()).to_json();
    let mount = DashboardMount {
        prefix: prefix.clone(),
        tls: config.server.tls.is_some(),
        defaults: Arc::new(defaults),
        closing: stop.clone(),
        carry,
    };
    let dashboard = Dashboard::new(router(api.clone()), mount)?;
    api.serve_dashboard(prefix);
    Ok((app.merge(dashboard.routes()), Some(prefix.clone())))
}

/// The dashboard and a dialect cannot have the same path.
fn check_prefix<'a>(
    config: &Config,
    dialects: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), CliError> {
    let Some(DashboardSettings { enabled: true, prefix }) = DashboardSettings::of(config) else {
        return Ok(());
    };
    let below = |path: &str| path == prefix || path.starts_with(&format!("{prefix}/"));
    match dialects.into_iter().find(|(_, path)| below(path)) {
        None => Ok(()),
        Some((dialect, path)) => Err(CliError::new(
            Exit::Config,
            format!(
                "dialects.{dialect}.prefix is {path:?}, the path of the dashboard; change dashboard.prefix"
            ),
        )),
    }
}

/// What the gate of the API needs to know of a connection.
fn carry(from: &Extensions) -> Extensions {
    let mut carried = Extensions::new();
    if let Some(peer) = from.get::<Peer>() {
        carried.insert(peer.clone());
    }
    carried
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
