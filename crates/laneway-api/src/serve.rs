//! Takes connections and serves them: only so many, none for ever, and to the end when the server stops.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::serve::{Listener, ListenerExt};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::api::Api;
use crate::auth::Identity;
use crate::router::router;
use crate::tls::TlsListener;

/// Most connections at once; more wait in the system's backlog.
const CONNECTIONS_MAX: usize = 4_096;
/// A request's head must have arrived after this long; an idle connection is closed after it, too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// After a stop, connections have this long to finish what they are doing.
const LINGER_MAX: Duration = Duration::from_secs(10);

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whom its certificate stands for.
    pub identity: Option<Identity>,
    /// True when clients must show certificates here: then nothing is open.
    pub shows_certificates: bool,
    /// True when only this machine can reach the listener.
    pub listens_on_loopback: bool,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Peer {
        Peer { address, identity: None, shows_certificates: false, listens_on_loopback: false }
    }
}

/// Serves the native API over plain HTTP until `shutdown`, then lets open calls finish. Check the address with
/// [`crate::check_listen`] first.
pub async fn serve(listener: TcpListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    serve_app(listener, router(api.clone()), api, shutdown).await
}

/// Serves the native API over HTTPS in the same way.
pub async fn serve_tls(listener: TlsListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    serve_app_tls(listener, router(api.clone()), api, shutdown).await
}

/// Serves `app`, which stands behind the gates of `api`, over plain HTTP.
pub async fn serve_app(
    listener: TcpListener,
    app: Router,
    api: Api,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let listener = listener.tap_io(|stream| {
        // An answer is written at once or not at all; waiting for more only costs time.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
    });
    run(listener, app, api, shutdown).await
}

/// Serves `app` over HTTPS in the same way. Certificates are read again whenever the configuration is.
pub async fn serve_app_tls(
    listener: TlsListener,
    app: Router,
    api: Api,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let mut changes = api.config().subscribe();
    let keys = listener.keys();
    let follow = async move {
        while changes.changed().await.is_ok() {
            match keys.reload() {
                Ok(()) => tracing::info!("certificates read again"),
                Err(error) => tracing::error!(%error, "certificates not read again; the old ones hold"),
            }
        }
    };
    let follow = tokio::spawn(shutdown.clone().run_until_cancelled_owned(follow));
    let served = run(listener, app, api, shutdown).await;
    follow.abort();
    served
}

async fn run<L>(mut listener: L, app: Router, api: Api, shutdown: CancellationToken) -> io::Result<()>
where
    L: Listener,
    L::Addr: Into<Peer>,
{
    let local: Peer = listener.local_addr()?.into();
    let listens_on_loopback = local.address.ip().to_canonical().is_loopback();
    let (connections, room) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let next = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let Some(((stream, peer), permit)) = shutdown.run_until_cancelled(next).await else { break };
        let peer = Peer { listens_on_loopback, ..peer.into() };
        let (app, shutdown) = (app.clone(), shutdown.clone());
        connections.spawn(async move {
            serve_connection(stream, peer, app, shutdown).await;
            drop(permit);
        });
    }
    drop(listener);
    api.closing.cancel();
    connections.close();
    if tokio::time::timeout(LINGER_MAX, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "connections did not end in time and are cut");
    }
    Ok(())
}

async fn serve_connection<Io>(stream: Io, peer: Peer, app: Router, shutdown: CancellationToken)
where
    Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        app.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
