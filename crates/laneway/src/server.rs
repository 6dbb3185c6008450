//! A server in this process: the scheduler with the sample kinds, and the HTTP API in front of it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use laneway::{Laneway, StartError};
use laneway_api::{Api, TlsListener, check_listen, serve, serve_tls};
use laneway_runtime::config::{Layers, Overrides, ServerConfig};
use laneway_store::StoreError;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Trouble};
use crate::samples;
use crate::settings::wrong_config;

/// A running server.
pub struct Server {
    laneway: Laneway,
    config: ServerConfig,
    address: SocketAddr,
    stop: CancellationToken,
    serving: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Server {
    /// Opens the data directory, recovers, and listens.
    pub async fn start(layers: Layers) -> anyhow::Result<Server> {
        let config = layers.resolve(&Overrides::none()).map_err(wrong_config)?;
        let kinds = samples::handlers(|kind| config.targets.keys().any(|target| target.as_str() == kind));
        let laneway =
            laneway::embedded().layers(layers).handlers(kinds).start().await.map_err(not_started)?;
        // The data directory is opened before the port: of two servers, the second should hear about the first.
        match listen(&laneway, &config.server).await {
            Ok((address, stop, serving)) => {
                let serving = Mutex::new(Some(serving));
                Ok(Server { laneway, config: config.server, address, stop, serving })
            }
            Err(error) => {
                laneway.shutdown_within(Duration::ZERO).await?;
                Err(error)
            }
        }
    }

    /// The scheduler behind it.
    pub fn laneway(&self) -> &Laneway {
        &self.laneway
    }

    /// Where this machine reaches it.
    pub fn url(&self) -> String {
        let mut address = self.address;
        // A server that listens everywhere is reached at home, too, and "everywhere" is no address to call.
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        format!("{}://{address}", if self.config.tls.is_some() { "https" } else { "http" })
    }

    /// Where its jobs are.
    pub fn data_dir(&self) -> PathBuf {
        let dir: &Path = &self.config.data_dir;
        dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
    }

    /// True while calls need neither a token nor a certificate.
    pub fn is_open(&self) -> bool {
        self.laneway.scheduler().tokens().is_empty() && !asks_for_certificates(&self.config)
    }

    /// Waits until the scheduler has ended by itself, which it does only when its store fails.
    pub async fn broken(&self) {
        // How it ended is told by `stop`.
        let _ = self.laneway.ended().await;
    }

    /// Drains within `limit`, then stops to listen: calls are answered until the last run has ended. May be called
    /// again to hurry.
    pub async fn stop(&self, limit: Duration) -> anyhow::Result<()> {
        let drained = self.laneway.shutdown_within(limit).await;
        self.stop.cancel();
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(serving), Ok(_)) = (serving, &drained) {
            serving.await??;
        }
        match drained {
            Ok(_) => Ok(()),
            Err(error) => Err(Trouble::new(Exit::Store, format!("{error}\nthe next start recovers")).into()),
        }
    }
}

async fn listen(
    laneway: &Laneway,
    config: &ServerConfig,
) -> anyhow::Result<(SocketAddr, CancellationToken, JoinHandle<io::Result<()>>)> {
    let tokens_exist = !laneway.scheduler().tokens().is_empty();
    check_listen(config.listen, tokens_exist, asks_for_certificates(config))
        .map_err(|refused| Trouble::new(Exit::Config, refused.to_string()))?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        let listen = config.listen;
        Trouble::new(
            Exit::Refused,
            format!("cannot listen on {listen}: {error}; choose another with --listen"),
        )
    })?;
    let address = listener.local_addr()?;
    let api = Api::new(laneway.scheduler().clone(), laneway.live_config().clone())?;
    let stop = CancellationToken::new();
    let serving = match config.tls.clone() {
        None => tokio::spawn(serve(listener, api, stop.clone())),
        Some(files) => {
            let listener = TlsListener::new(listener, files)
                .map_err(|error| Trouble::new(Exit::Config, error.to_string()))?;
            tokio::spawn(serve_tls(listener, api, stop.clone()))
        }
    };
    Ok((address, stop, serving))
}

fn asks_for_certificates(config: &ServerConfig) -> bool {
    config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
}

/// What an error at the start means for the exit code.
fn not_started(error: StartError) -> anyhow::Error {
    match error {
        StartError::Config(errors) => wrong_config(errors),
        StartError::Store(error) => store_trouble(&error).into(),
        other => other.into(),
    }
}

/// What an error of the store means for the exit code.
pub fn store_trouble(error: &StoreError) -> Trouble {
    let exit = if matches!(error, StoreError::Locked(_)) { Exit::Taken } else { Exit::Store };
    Trouble::new(exit, error.to_string())
}
