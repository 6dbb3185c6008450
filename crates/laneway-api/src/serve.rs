//! Accepts connections and serves them, with a connection limit, timeouts, and a graceful stop.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{EXPECT, HOST};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::serve::{Listener, ListenerExt};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use laneway_runtime::unauthenticated::ReadBudget;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::Service;

use crate::api::Api;
use crate::auth::Identity;
use crate::connections::{Connection, Connections, Phase};
use crate::drained_body::returned;
use crate::router::router;
use crate::stall::StallGuard;
use crate::tls::TlsListener;

/// The head of a request must arrive within this time. An idle connection is closed after it as well.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The bytes that the kernel takes for a client before it has sent the earlier ones. Without this limit, it takes up to
/// 4 MiB for a client that does not read.
#[cfg(target_os = "linux")]
const UNSENT_MAX: u32 = 128 * 1024;
/// How long connections may take to finish after a stop.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The peer of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The identity in its certificate.
    pub identity: Option<Identity>,
    /// True when clients must present certificates on this listener. The server is not open then.
    pub shows_certificates: bool,
    /// True when only this machine can reach the listener.
    pub listens_on_loopback: bool,
    /// How many bytes it may still send.
    pub budget: ReadBudget,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Peer {
        let budget = ReadBudget::default();
        Peer { address, identity: None, shows_certificates: false, listens_on_loopback: false, budget }
    }
}

/// Serves the native API over plain HTTP until `shutdown`, then lets open requests finish. Check the address with
/// [`crate::check_listen`] first.
pub async fn serve(listener: TcpListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    serve_app(listener, router(api.clone()), api, shutdown).await
}

/// Serves the native API over HTTPS in the same way.
pub async fn serve_tls(listener: TlsListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    serve_app_tls(listener, router(api.clone()), api, shutdown).await
}

/// Serves `app`, which has the gates of `api`, over plain HTTP.
pub async fn serve_app(
    listener: TcpListener,
    app: Router,
    api: Api,
    shutdown: CancellationToken,
) -> io::Result<()> {
    run(listener.tap_io(|stream| prepare(stream)), app, &api.connections, &api.closing, shutdown).await
}

/// Serves `app` of a node that may own no scheduler. Its event streams and sockets end with `closing`, which is canceled when the
/// node accepts no more connections.
pub async fn serve_node<L>(
    listener: L,
    app: Router,
    connections: Connections,
    closing: CancellationToken,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    L: Listener,
    L::Addr: Into<Peer>,
{
    run(listener, app, &connections, &closing, shutdown).await
}

/// Sets the options of an accepted connection.
pub fn prepare(stream: &TcpStream) {
    // A response is written at once, so waiting for more data only costs time.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_MAX) {
        tracing::debug!(%error, "cannot set TCP_NOTSENT_LOWAT");
    }
}

/// Serves `app` over HTTPS in the same way. Certificates are read again with the configuration.
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
                Ok(()) => tracing::info!("the certificates were reloaded"),
                Err(error) => {
                    tracing::error!(%error, "cannot reload the certificates; the old ones stay in use")
                }
            }
        }
    };
    let follow = tokio::spawn(shutdown.clone().run_until_cancelled_owned(follow));
    let served = run(listener, app, &api.connections, &api.closing, shutdown).await;
    follow.abort();
    served
}

async fn run<L>(
    mut listener: L,
    app: Router,
    connections: &Connections,
    closing: &CancellationToken,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    L: Listener,
    L::Addr: Into<Peer>,
{
    let local: Peer = listener.local_addr()?.into();
    let listens_on_loopback = local.address.ip().to_canonical().is_loopback();
    let serving = TaskTracker::new();
    while let Some((stream, peer)) = shutdown.run_until_cancelled(listener.accept()).await {
        let peer = Peer { listens_on_loopback, ..peer.into() };
        let Some(connection) = connections.enter(peer.address.ip()) else {
            tracing::debug!(address = %peer.address, "the connection limit is reached, and this address has the most");
            continue;
        };
        let (app, shutdown) = (app.clone(), shutdown.clone());
        let open = serving.token();
        serving.spawn(serve_connection(stream, open, peer, connection, app, shutdown));
    }
    drop(listener);
    closing.cancel();
    serving.close();
    if tokio::time::timeout(CLOSE_TIMEOUT, serving.wait()).await.is_err() {
        tracing::warn!(open = serving.len(), "connections did not end in time and are closed");
    }
    Ok(())
}

async fn serve_connection<Io>(
    stream: Io,
    open: TaskTrackerToken,
    peer: Peer,
    held: Connection,
    app: Router,
    shutdown: CancellationToken,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = Budgeted { stream, budget: peer.budget.clone(), _open: open };
    let phase = held.phase();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        answer(request, peer.clone(), phase.clone(), app.clone())
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(StallGuard::new(stream, shutdown.clone())), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        at_once = held.ended() => {
            if at_once {
                tracing::debug!("a connection was evicted for a newer one");
                return;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection failed");
    }
}

/// A stream that fails when its peer has sent more than it may.
struct Budgeted<Io> {
    stream: Io,
    budget: ReadBudget,
    /// Held until the stream is closed: a stop waits for WebSockets, too, so that they send their close frames.
    _open: TaskTrackerToken,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Budgeted<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let came = (buffer.filled().len() - before) as u64;
        if self.budget.take(came) {
            return Poll::Ready(Ok(()));
        }
        buffer.set_filled(before);
        let why = "the peer sent too many bytes before it authenticated";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Budgeted<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Responds to one request, and leaves the connection ready for the next one.
async fn answer(
    request: hyper::Request<Incoming>,
    peer: Peer,
    phase: Phase,
    app: Router,
) -> Result<Response, Infallible> {
    if !names_one_host(&request) {
        let mut response = Response::new(Body::from("send exactly one Host header with one host\n"));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    }
    let mut rest = None;
    phase.begin(!request.body().is_end_stream());
    let mut request: Request = if request.body().is_end_stream() {
        request.map(|_| Body::empty())
    } else {
        // A client that expects 100-continue sends no body after an error.
        let asks_first = request.headers().contains_key(EXPECT);
        request.map(|body| {
            let (body, left) = returned(body, phase.clone());
            rest = Some(left).filter(|_| !asks_first);
            Body::new(body)
        })
    };
    request.extensions_mut().insert(peer);
    let mut app = app;
    let response = app.call(request).await.map(|response| phase.answer(response));
    if let Some(rest) = rest {
        rest.drop_all().await;
    }
    response
}

/// True when the request names exactly one host. With two, a proxy in front of the server could see another one than
/// the server.
fn names_one_host(request: &hyper::Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let first = hosts.next();
    let target = request.uri().authority();
    let differs =
        |host: &HeaderValue| target.is_some_and(|target| host.as_bytes() != target.as_str().as_bytes());
    hosts.next().is_none() && !first.is_some_and(differs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the kernel takes for a client that reads nothing.
    async fn taken_for_a_silent_client(prepare: fn(&TcpStream)) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream);
        let mut taken = 0;
        // The kernel has taken what it takes when the stream is not writable for a while.
        while tokio::time::timeout(Duration::from_millis(200), stream.writable()).await.is_ok() {
            match stream.try_write(&[0; 4_096]) {
                Ok(len) => taken += len,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        drop(client);
        taken
    }

    #[tokio::test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux has the option")]
    async fn defect_10_the_kernel_keeps_little_for_a_client_that_does_not_read() {
        let with = taken_for_a_silent_client(prepare).await;
        let without = taken_for_a_silent_client(|_| {}).await;
        assert!(with < without / 2, "{with} bytes with the limit, {without} without it");
    }
}
