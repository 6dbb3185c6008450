//! The connection of a node to the owner: one, for all requests.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::tls::connector;

/// How long a connection attempt may take.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How often an owner must show that it is there, and how long that may take.
const PING_EVERY: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a request waits for its fate on a connection that has ended.
const LAST_WORD: Duration = Duration::from_millis(50);
/// The bytes of one request or response that may be on their way.
pub const STREAM_WINDOW: u32 = 128 * 1024;
/// The same of the connection: so many that a stream whose client does not read never holds up the others.
pub const CONNECTION_WINDOW: u32 = 1 << 30;
/// Streams at once on one connection: event streams and sockets of workers are streams as well.
pub const STREAMS_MAX: u32 = 100_000;

/// Where the owner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerAddress {
    /// Host and port.
    pub address: String,
    /// SHA-256 of its certificate; `None`: it uses no TLS.
    pub certificate: Option<[u8; 32]>,
    /// The number of its take-over.
    pub epoch: u64,
}

/// A connection to the owner. Dropping it ends its requests.
pub struct Link {
    sender: SendRequest<Body>,
    ended: CancellationToken,
    _driver: AbortOnDropHandle<()>,
}

impl Link {
    /// Connects.
    pub async fn connect(owner: &OwnerAddress) -> Result<Link, String> {
        let connected = tokio::time::timeout(CONNECT_MAX, async {
            let stream = TcpStream::connect(&owner.address).await.map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            match owner.certificate {
                None => Link::over(stream).await,
                Some(digest) => {
                    // The name is not checked, but the protocol wants one.
                    let name = ServerName::try_from("laneway").map_err(|error| error.to_string())?;
                    let connector = connector(digest).map_err(|error| error.to_string())?;
                    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
                    Link::over(stream).await
                }
            }
        });
        connected.await.unwrap_or_else(|_| Err(format!("no answer within {} s", CONNECT_MAX.as_secs())))
    }

    async fn over<Io>(io: Io) -> Result<Link, String>
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| error.to_string())?;
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        let driver = tokio::spawn(async move {
            let _guard = guard;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to the owner has ended");
            }
        });
        Ok(Link { sender, ended, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Sends a request. `None`: the connection has ended, or another node owns the domain, before a response came.
    pub async fn send(
        &self,
        request: Request<Body>,
    ) -> Option<Result<Response<Incoming>, TrySendError<Request<Body>>>> {
        let mut sender = self.sender.clone();
        let sending = sender.try_send_request(request);
        tokio::pin!(sending);
        tokio::select! {
            biased;
            sent = sending.as_mut() => Some(sent),
            () = self.ended() => {
                // A connection that has ended by itself says what became of the request.
                tokio::time::timeout(LAST_WORD, sending).await.ok()
            }
        }
    }

    /// Ends it: another node owns the domain.
    pub fn end(&self) {
        self.ended.cancel();
    }

    /// Waits until the connection has ended.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}
