//! The listener for other nodes: HTTP/2, for requests with the secret of the cluster only.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, Version};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::envelope::{NOT_OWNER, Origin, open};
use crate::headers::{strip_hop_by_hop, upgrade_to_websocket};
use crate::link::{CONNECTION_WINDOW, STREAM_WINDOW, STREAMS_MAX};
use crate::switch::Switch;
use crate::tls::ClusterTls;

/// Connections at once. A cluster of a thousand nodes has room.
const CONNECTIONS_MAX: usize = 2_048;
/// A connection must show the secret within this time.
const SECRET_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head of a request, in bytes: as large as that of a client, and what a node adds to it.
const HEAD_BYTES_MAX: u32 = 80 * 1024;
/// How often a node must show that it is there, and how long that may take.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(6);
/// How long requests may take to finish after a stop.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Listens for other nodes.
pub struct PeerListener {
    listener: TcpListener,
    tls: Arc<RwLock<Option<ClusterTls>>>,
}

impl PeerListener {
    /// Uses TLS if there is a certificate.
    pub fn new(listener: TcpListener, tls: Option<ClusterTls>) -> PeerListener {
        PeerListener { listener, tls: Arc::new(RwLock::new(tls)) }
    }

    /// The certificate of new connections, to replace it.
    pub fn certificate(&self) -> Arc<RwLock<Option<ClusterTls>>> {
        Arc::clone(&self.tls)
    }

    /// Serves other nodes until `shutdown`, then lets open requests finish.
    pub async fn serve(self, switch: Switch, shutdown: CancellationToken) -> io::Result<()> {
        let (serving, room) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        while let Some(accepted) = shutdown.run_until_cancelled(self.listener.accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection of a node was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                tracing::warn!("too many connections of nodes are open");
                continue;
            };
            let tls = self.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
            let (switch, shutdown) = (switch.clone(), shutdown.clone());
            serving.spawn(async move {
                accept(stream, tls, switch, shutdown).await;
                drop(permit);
            });
        }
        serving.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, serving.wait()).await.is_err() {
            tracing::warn!(open = serving.len(), "connections of nodes did not end in time and are closed");
        }
        Ok(())
    }
}

async fn accept(stream: TcpStream, tls: Option<ClusterTls>, switch: Switch, shutdown: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    match tls {
        None => serve_connection(stream, switch, shutdown).await,
        Some(tls) => match tokio::time::timeout(SECRET_TIMEOUT, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => serve_connection(stream, switch, shutdown).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake of a node failed"),
            Err(_) => tracing::debug!("a TLS handshake of a node took too long"),
        },
    }
}

async fn serve_connection<Io>(stream: Io, switch: Switch, shutdown: CancellationToken)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let known = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let known = Arc::clone(&known);
        move |request: hyper::Request<Incoming>| {
            let (switch, known) = (switch.clone(), Arc::clone(&known));
            async move { Ok::<_, Infallible>(answer(&switch, &known, request).await) }
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let late = tokio::time::sleep(SECRET_TIMEOUT);
    tokio::pin!(late);
    let mut checked = false;
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = late.as_mut(), if !checked => {
                checked = true;
                if !known.load(Ordering::Relaxed) {
                    return tracing::debug!("a connection did not show the secret of the cluster in time");
                }
            }
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                break connection.await;
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of a node failed");
    }
}

async fn answer(switch: &Switch, known: &AtomicBool, request: hyper::Request<Incoming>) -> Response {
    let mut request: Request = request.map(Body::new);
    let Some(origin) = open(request.headers_mut(), switch.secret()) else {
        return plain(StatusCode::FORBIDDEN, "only nodes of this cluster may connect here\n");
    };
    known.store(true, Ordering::Relaxed);
    if origin.is_greeting() {
        return plain(StatusCode::NO_CONTENT, "");
    }
    let socket = request.method() == Method::CONNECT;
    let Some(request) = restored(request, &origin, socket) else {
        return plain(StatusCode::BAD_REQUEST, "the target of the request is not valid\n");
    };
    let Some(mut response) = switch.answer_peer(&origin, request).await else {
        let mut response = plain(StatusCode::MISDIRECTED_REQUEST, "this node does not own the domain\n");
        response.headers_mut().insert(NOT_OWNER, HeaderValue::from_static("1"));
        return response;
    };
    strip_hop_by_hop(response.headers_mut());
    if socket && response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // HTTP/2 has no 101.
        *response.status_mut() = StatusCode::OK;
        *response.body_mut() = Body::empty();
    }
    *response.version_mut() = Version::HTTP_2;
    response
}

/// The request as the client sent it.
fn restored(mut request: Request, origin: &Origin, socket: bool) -> Option<Request> {
    let target = match socket {
        true => origin.target()?,
        false => request.uri().path_and_query()?.as_str().parse().ok()?,
    };
    *request.uri_mut() = target;
    *request.version_mut() = Version::HTTP_11;
    if socket {
        *request.method_mut() = Method::GET;
        upgrade_to_websocket(request.headers_mut());
    }
    request.extensions_mut().insert(origin.peer());
    Some(request)
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
