//! A node of a cluster: it listens at once, owns the scheduler or forwards to the node that does, and changes between the two
//! without a restart.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::serve::ListenerExt;
use laneway::{ClusterSettings, DashboardSettings, Laneway, StartError};
use laneway_api::{Api, Connections, TlsKeys, TlsListener, check_listen, serve_node};
use laneway_cluster::{ClusterTls, OwnerAddress, PeerListener, Place, Switch};
use laneway_compat::outbound::Deliveries;
use laneway_runtime::config::{Config, DialectConfig, Layers, Overrides, ServerConfig, TlsConfig};
use laneway_store::postgres::{ClusterNode, NodeSettings, Owner, Tenure, View};
use laneway_store::{PostgresStore, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::apps::Apps;
use super::{Listening, asks_for_certificates, embedded, not_started, store_error, url_of};
use crate::exit::{CliError, Exit};
use crate::inbox::Draining;
use crate::settings::wrong_config;

/// The listener of the API and of all dialects without a port of their own.
const MAIN: &str = "main";
/// How long a start waits until it is known who owns the scheduler.
const SETTLE_MAX: Duration = Duration::from_secs(20);
/// The pause after a take-over that failed: another node may do better.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// A running node.
pub struct Node {
    shared: Arc<Shared>,
    open: bool,
    certificates: Certificates,
}

struct Shared {
    node: ClusterNode,
    switch: Switch,
    layers: Layers,
    /// The scheduler, while this node owns it.
    laneway: Mutex<Option<Laneway>>,
    /// Set when the node was asked to stop: how long that may take.
    stop: watch::Sender<Option<Duration>>,
    phase: watch::Sender<Phase>,
}

/// How far the node is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// It is not known yet who owns the scheduler.
    Starting,
    /// It is.
    Settled,
    /// The node has ended. The text: it could not go on.
    Ended(Result<(), (Exit, String)>),
}

/// The certificates in use, to read them again.
struct Certificates {
    files: Option<TlsConfig>,
    keys: Vec<TlsKeys>,
    peers: Arc<RwLock<Option<ClusterTls>>>,
}

impl Node {
    /// Binds every port, joins the cluster, and serves requests as soon as it is known where they go.
    pub async fn start(
        layers: Layers,
        config: &Config,
        url: &str,
        stop: &CancellationToken,
    ) -> anyhow::Result<(Node, Listening)> {
        let server = &config.server;
        let Some(settings) = ClusterSettings::of(config).cloned() else {
            return Err(CliError::new(Exit::Config, "the configuration has no section cluster").into());
        };
        let bound = Bound::all(config, &settings).await?;
        let tls = server.tls.as_ref().map(|files| ClusterTls::read(&files.cert, &files.key)).transpose();
        let tls = tls.map_err(|error| CliError::new(Exit::Config, error.to_string()))?;
        let about = NodeSettings {
            name: format!("{} (process {})", host_name(), std::process::id()),
            url: url_of(server, bound.address),
            address: bound.advertised(&settings)?,
            certificate: tls.as_ref().map(ClusterTls::digest),
            version: env!("CARGO_PKG_VERSION"),
            ttl: settings.ttl,
        };
        let url = url.to_owned();
        let joined = tokio::task::spawn_blocking(move || {
            let node = ClusterNode::join(&url, about)?;
            let open = !node.has_tokens()?;
            Ok::<_, StoreError>((node, open))
        });
        let (node, open) = joined.await?.map_err(|error| store_error(&error))?;
        bound.check_all(server, !open)?;
        let shared = Arc::new_cyclic(|shared: &std::sync::Weak<Shared>| {
            let hurry = shared.clone();
            let switch = Switch::new(node.secret(), move || {
                if let Some(shared) = hurry.upgrade() {
                    shared.node.hurry();
                }
            });
            Shared {
                node,
                switch,
                layers,
                laneway: Mutex::new(None),
                stop: watch::Sender::new(None),
                phase: watch::Sender::new(Phase::Starting),
            }
        });
        let (listening, certificates) = bound.serve(config, tls, &shared.switch, stop)?;
        tokio::spawn(Arc::clone(&shared).run());
        let node = Node { shared, open, certificates };
        node.settled().await?;
        Ok((node, listening))
    }

    /// The scheduler, while this node owns it.
    pub fn laneway(&self) -> Option<Laneway> {
        self.shared.laneway().clone()
    }

    /// True: there were no tokens when the node started.
    pub fn is_open(&self) -> bool {
        match self.laneway() {
            Some(laneway) => laneway.scheduler().tokens().is_empty(),
            None => self.open,
        }
    }

    /// Reads the certificates again.
    pub fn reload_certificates(&self) {
        let Certificates { files, keys, peers } = &self.certificates;
        let Some(files) = files else { return };
        for keys in keys {
            if let Err(error) = keys.reload() {
                tracing::error!(%error, "cannot reload the certificates; the old ones stay in use");
            }
        }
        match ClusterTls::read(&files.cert, &files.key) {
            Ok(tls) => {
                self.shared.node.set_certificate(Some(tls.digest()));
                *peers.write().unwrap_or_else(PoisonError::into_inner) = Some(tls);
            }
            Err(error) => {
                tracing::error!(%error, "cannot reload the certificate for other nodes; the old one stays in use")
            }
        }
    }

    /// Waits until it is known who owns the scheduler. An error: this node should, and cannot.
    async fn settled(&self) -> anyhow::Result<()> {
        let mut phase = self.shared.phase.subscribe();
        let settled = phase.wait_for(|phase| *phase != Phase::Starting);
        match tokio::time::timeout(SETTLE_MAX, settled).await {
            Ok(Ok(phase)) => ended(&phase),
            // Requests wait until there is an owner.
            _ => Ok(()),
        }
    }

    /// Waits until the node has ended although it was not asked to.
    pub async fn broken(&self) {
        let mut phase = self.shared.phase.subscribe();
        // The other end lives as long as this.
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Ended(_))).await;
    }

    /// Hands the scheduler over to another node within `limit`, if this one owns it.
    pub async fn stop(&self, limit: Duration) -> anyhow::Result<()> {
        self.shared.node.set_willing(false);
        self.shared.stop.send_replace(Some(limit));
        self.broken().await;
        let phase = self.shared.phase.borrow().clone();
        ended(&phase)
    }
}

fn ended(phase: &Phase) -> anyhow::Result<()> {
    match phase {
        Phase::Ended(Err((exit, why))) => Err(CliError::new(*exit, why.clone()).into()),
        _ => Ok(()),
    }
}

/// How a time as the owner ended.
enum Owned {
    /// Another node may own the scheduler now.
    Lost,
    /// The node was asked to stop, and has handed it over.
    Stopped,
}

/// What runs while this node owns the scheduler.
struct Reigning {
    laneway: Laneway,
    api: Api,
    /// Publishes the answers of cron turns.
    deliveries: Deliveries,
    /// Takes jobs out of the inbox of the database.
    draining: Option<Draining>,
}

impl Shared {
    /// Follows the ownership until the node is asked to stop.
    async fn run(self: Arc<Self>) {
        self.node.set_willing(true);
        let ended = self.follow().await;
        self.node.set_willing(false);
        self.switch.set(Place::Nowhere);
        let ended = ended.map_err(|error| {
            let exit = error.downcast_ref::<CliError>().map_or(Exit::Store, |error| error.exit);
            (exit, error.to_string())
        });
        self.phase.send_replace(Phase::Ended(ended));
        // Requests that are still open go to the next owner, until the process ends.
        let mut view = self.node.watch();
        loop {
            let seen = view.borrow_and_update().clone();
            match seen.owner.filter(|owner| owner.id != self.node.id() && !owner.address.is_empty()) {
                Some(owner) => self.forward_to(&owner, &mut view, std::future::pending()).await,
                None => drop(view.changed().await),
            }
        }
    }

    async fn follow(&self) -> anyhow::Result<()> {
        let (mut view, mut stop) = (self.node.watch(), self.stop.subscribe());
        loop {
            if stop.borrow().is_some() {
                return Ok(());
            }
            let seen = view.borrow_and_update().clone();
            match seen {
                View { tenure: Some(tenure), .. } if !tenure.left().is_zero() => {
                    if let Owned::Stopped = self.own(tenure, &mut stop).await? {
                        return Ok(());
                    }
                }
                View { owner: Some(owner), .. }
                    if owner.id != self.node.id() && !owner.address.is_empty() =>
                {
                    self.phase.send_if_modified(settle);
                    let asked = async { drop(stop.wait_for(Option::is_some).await) };
                    self.forward_to(&owner, &mut view, asked).await;
                }
                _ => {
                    self.switch.set(Place::Nowhere);
                    tokio::select! {
                        _ = view.changed() => {}
                        _ = stop.changed() => {}
                    }
                }
            }
        }
    }

    /// Forwards requests to the owner until another node owns the scheduler.
    async fn forward_to(
        &self,
        owner: &Owner,
        view: &mut watch::Receiver<View>,
        stop: impl Future<Output = ()>,
    ) {
        let address = OwnerAddress {
            address: owner.address.clone(),
            certificate: owner.certificate,
            epoch: owner.epoch.0,
        };
        // An owner that is late is still asked: it knows itself whether it may answer.
        let other = view
            .wait_for(|view| view.tenure.is_some() || view.owner.as_ref().is_some_and(|now| now != owner));
        tokio::select! {
            () = self.switch.follow(&address) => {}
            _ = other => {}
            () = stop => {}
        }
        self.switch.set(Place::Nowhere);
    }

    /// Owns the scheduler as long as the tenure lasts.
    async fn own(
        &self,
        tenure: Arc<Tenure>,
        stop: &mut watch::Receiver<Option<Duration>>,
    ) -> anyhow::Result<Owned> {
        self.switch.set(Place::Starting);
        let streams = CancellationToken::new();
        let started = self.take_over(&tenure, &streams).await;
        let Reigning { laneway, api, deliveries, draining } = match started {
            Ok(started) => started,
            Err(error) if tenure.left().is_zero() || is_store_trouble(&error) => {
                tracing::error!(%error, "this node could not take the jobs over");
                self.give_up(&tenure).await;
                tokio::time::sleep(FAILED_PAUSE).await;
                return Ok(Owned::Lost);
            }
            Err(error) => {
                self.give_up(&tenure).await;
                return Err(error);
            }
        };
        *self.laneway() = Some(laneway.clone());
        self.phase.send_if_modified(settle);
        let outcome = tokio::select! {
            () = lapsed(&tenure) => Outcome::Lapsed,
            ended = laneway.ended() => Outcome::Ended(ended.err().map(|error| error.to_string())),
            _ = stop.wait_for(Option::is_some) => Outcome::Asked,
        };
        let owned = match outcome {
            Outcome::Asked => {
                drop(draining);
                self.switch.leave();
                self.hand_over(&laneway, stop).await;
                Owned::Stopped
            }
            other => {
                drop(draining);
                // In this order: nothing is answered any more, then streams and sockets end, then what runs here.
                self.switch.set(Place::Nowhere);
                tenure.end();
                tracing::warn!(why = %other, epoch = tenure.epoch().0, "this node no longer owns the jobs");
                Owned::Lost
            }
        };
        *self.laneway() = None;
        drop(deliveries);
        api.close();
        streams.cancel();
        laneway.abandon().await;
        self.give_up(&tenure).await;
        Ok(owned)
    }

    /// Starts the scheduler, and leads requests to it.
    async fn take_over(&self, tenure: &Arc<Tenure>, streams: &CancellationToken) -> anyhow::Result<Reigning> {
        let config = self.layers.resolve(&Overrides::none()).map_err(wrong_config)?;
        let store =
            PostgresStore::of_node(&self.node, tenure).map_err(StartError::from).map_err(not_started)?;
        let embedded = embedded(self.layers.clone(), &config).opened(Box::new(store));
        let laneway = embedded.start().await.map_err(not_started)?;
        let apps = match Apps::of(&laneway, &config, streams) {
            Ok(apps) => apps,
            Err(error) => {
                laneway.abandon().await;
                return Err(error);
            }
        };
        let Apps { api, main, apart, .. } = apps;
        let draining = match Draining::start(&api, &config.server.store) {
            Ok(draining) => draining,
            Err(error) => {
                laneway.abandon().await;
                return Err(store_error(&error).into());
            }
        };
        let mut routers = laneway_cluster::Apps::from([(MAIN.to_owned(), main)]);
        routers.extend(apart.into_iter().map(|(name, _, router)| (name.to_owned(), router)));
        let deliveries = Deliveries::start(laneway.scheduler().clone());
        let owned = Arc::clone(tenure);
        self.switch.set(Place::here(routers, move || !owned.left().is_zero()));
        Ok(Reigning { laneway, api, deliveries, draining })
    }

    /// Ends the scheduler in order, within the limit that was asked for last.
    async fn hand_over(&self, laneway: &Laneway, stop: &mut watch::Receiver<Option<Duration>>) {
        loop {
            let limit = stop.borrow_and_update().unwrap_or_default();
            let handed = tokio::select! {
                handed = laneway.hand_over(limit) => handed,
                Ok(()) = stop.changed() => continue,
            };
            if let Err(error) = handed {
                tracing::error!(%error, "the jobs were not handed over in order; the next owner recovers them");
            }
            return;
        }
    }

    async fn give_up(&self, tenure: &Arc<Tenure>) {
        tenure.end();
        if let Err(error) = self.node.give_up(tenure) {
            tracing::debug!(%error, "the jobs were not given back; they expire");
        }
    }

    fn laneway(&self) -> std::sync::MutexGuard<'_, Option<Laneway>> {
        self.laneway.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a time as the owner ends.
enum Outcome {
    Lapsed,
    Ended(Option<String>),
    Asked,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Lapsed => f.write_str("its ownership was not renewed in time, or another node has it"),
            Outcome::Ended(Some(why)) => f.write_str(why),
            Outcome::Ended(None) => f.write_str("its scheduler has ended"),
            Outcome::Asked => f.write_str("it was asked to stop"),
        }
    }
}

fn settle(phase: &mut Phase) -> bool {
    let starting = *phase == Phase::Starting;
    if starting {
        *phase = Phase::Settled;
    }
    starting
}

/// True when another node, or this one a little later, may do better.
fn is_store_trouble(error: &anyhow::Error) -> bool {
    error.downcast_ref::<CliError>().is_some_and(|error| error.exit == Exit::Store)
}

/// Waits until the tenure has ended.
async fn lapsed(tenure: &Tenure) {
    // It is looked at often enough: a tenure may also be ended early.
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    loop {
        match tenure.left() {
            Duration::ZERO => return,
            left => tokio::time::sleep(left.min(LOOK_EVERY)).await,
        }
    }
}

/// The ports of the node, before anything is served on them.
struct Bound {
    address: SocketAddr,
    main: TcpListener,
    apart: Vec<(&'static str, String, TcpListener)>,
    peers: TcpListener,
}

impl Bound {
    async fn all(config: &Config, settings: &ClusterSettings) -> anyhow::Result<Bound> {
        let server = &config.server;
        let main = bind(server.listen, "--listen").await?;
        let address = main.local_addr()?;
        let mut apart = Vec::new();
        for DialectConfig { name, mount, .. } in
            config.dialects.iter().filter(|dialect| dialect.mount.enabled)
        {
            if let Some(listen) = mount.listen {
                let listener = bind(listen, &format!("dialects.{name}.listen")).await?;
                apart.push((*name, mount.prefix.clone(), listener));
            }
        }
        let peers = settings.listen.unwrap_or(SocketAddr::new(address.ip(), 0));
        let peers = bind(peers, "cluster.listen").await?;
        Ok(Bound { address, main, apart, peers })
    }

    /// Where other nodes reach this one.
    fn advertised(&self, settings: &ClusterSettings) -> anyhow::Result<String> {
        let address = self.peers.local_addr()?;
        match &settings.advertise {
            Some(advertise) => Ok(advertise.clone()),
            None if address.ip().is_unspecified() => Err(CliError::new(
                Exit::Config,
                format!(
                    "this node listens for other nodes on {address}, which is no address that they can connect to; set \
                     cluster.advertise to a host and port at which they reach it"
                ),
            )
            .into()),
            None => Ok(address.to_string()),
        }
    }

    /// Checks that nothing is served to others without a token.
    fn check_all(&self, server: &ServerConfig, tokens_exist: bool) -> anyhow::Result<()> {
        let mut addresses = vec![self.address];
        for (_, _, listener) in &self.apart {
            addresses.push(listener.local_addr()?);
        }
        for address in addresses {
            check_listen(address, tokens_exist, asks_for_certificates(server))
                .map_err(|rejected| CliError::new(Exit::Config, rejected.to_string()))?;
        }
        Ok(())
    }

    /// Serves every port. Requests wait until the switch leads somewhere.
    fn serve(
        self,
        config: &Config,
        tls: Option<ClusterTls>,
        switch: &Switch,
        stop: &CancellationToken,
    ) -> anyhow::Result<(Listening, Certificates)> {
        let Bound { address, main, apart, peers } = self;
        let server = &config.server;
        let at = |address: SocketAddr| url_of(server, address);
        let beside =
            config.dialects.iter().filter(|dialect| dialect.mount.enabled && dialect.mount.listen.is_none());
        let mut dialects: Vec<_> = beside
            .map(|dialect| (dialect.name, format!("{}{}", at(address), dialect.mount.prefix)))
            .collect();
        let dashboard = DashboardSettings::of(config).filter(|dashboard| dashboard.enabled);
        let dashboard = dashboard.map(|dashboard| format!("{}{}/", at(address), dashboard.prefix));
        let mut listeners = vec![(MAIN, main)];
        for (name, prefix, listener) in apart {
            dialects.push((name, format!("{}{prefix}", at(listener.local_addr()?))));
            listeners.push((name, listener));
        }
        let (connections, mut keys, mut serving) =
            (Connections::new(server.connections_max), Vec::new(), Vec::new());
        for (name, listener) in listeners {
            let (app, connections, stop) = (switch.app(name), connections.clone(), stop.clone());
            let closing = CancellationToken::new();
            serving.push(match server.tls.clone() {
                None => {
                    let listener = listener.tap_io(|stream| laneway_api::prepare(stream));
                    tokio::spawn(serve_node(listener, app, connections, closing, stop))
                }
                Some(files) => {
                    let listener = TlsListener::new(listener, files)
                        .map_err(|error| CliError::new(Exit::Config, error.to_string()))?;
                    keys.push(listener.keys());
                    tokio::spawn(serve_node(listener, app, connections, closing, stop))
                }
            });
        }
        let peers = PeerListener::new(peers, tls);
        let certificates = Certificates { files: server.tls.clone(), keys, peers: peers.certificate() };
        serving.push(tokio::spawn(peers.serve(switch.clone(), stop.clone())));
        Ok((Listening { address, dialects, dashboard, stop: stop.clone(), serving }, certificates))
    }
}

async fn bind(listen: SocketAddr, key: &str) -> Result<TcpListener, CliError> {
    let bound = TcpListener::bind(listen).await;
    bound.map_err(|error: io::Error| {
        let message = format!("cannot listen on {listen}: {error}; choose another with {key}");
        CliError::new(Exit::Rejected, message)
    })
}

/// The name of this machine, for people.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
