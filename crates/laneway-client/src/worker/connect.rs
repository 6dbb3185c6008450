//! Opens a connection: TCP, TLS for `wss://`, WebSocket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use laneway_wire::frame::FRAME_LEN_MAX;
use reqwest::Url;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self};

/// How long opening a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes that wait to be written to the socket.
const WRITE_BUFFER_MAX: usize = 8 << 20;

/// A WebSocket connection.
pub(super) type Socket = WebSocketStream<Box<dyn Stream>>;

/// A byte stream in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The TLS files to use beside the public certificate authorities.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// A PEM file with additional certificate authorities.
    pub ca: Option<PathBuf>,
    /// A PEM file with a client certificate and its key. It is read again at every connect.
    pub cert: Option<PathBuf>,
}

/// Why a connection could not be opened.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The URL cannot be used.
    #[error("the url {url:?} cannot be used: {reason}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A TLS file cannot be used.
    #[error("{path} holds no usable PEM: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The server does not answer, or TLS fails.
    #[error("no connection to {host}: {reason}")]
    Network {
        /// The host and port.
        host: String,
        /// The error.
        reason: String,
    },
    /// The server answers, but not as a worker endpoint.
    #[error("the server rejects the connection: {0}")]
    Rejected(String),
    /// The connection took too long.
    #[error("the connection took longer than {CONNECT_LIMIT:?}")]
    TimedOut,
}

/// Opens connections to one server.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    url: Url,
    tls: TlsFiles,
}

impl Dialer {
    /// A dialer for `ws://` or `wss://`.
    pub(super) fn new(url: &str, tls: TlsFiles) -> Result<Dialer, ConnectError> {
        let wrong = |reason: String| ConnectError::Url { url: url.to_owned(), reason };
        let parsed: Url = url.parse().map_err(|error| wrong(format!("{error}")))?;
        if !matches!(parsed.scheme(), "ws" | "wss") || !parsed.has_host() {
            return Err(wrong("write ws://host:port/path or wss://host:port/path".to_owned()));
        }
        let dialer = Dialer { url: parsed, tls };
        // Invalid files are reported before the first connect.
        if dialer.url.scheme() == "wss" {
            dialer.client_config()?;
        }
        Ok(dialer)
    }

    /// True when a client certificate is configured.
    pub(super) fn shows_certificate(&self) -> bool {
        self.url.scheme() == "wss" && self.tls.cert.is_some()
    }

    pub(super) async fn dial(&self, token: Option<&str>) -> Result<Socket, ConnectError> {
        tokio::time::timeout(CONNECT_LIMIT, self.open(token)).await.map_err(|_| ConnectError::TimedOut)?
    }

    async fn open(&self, token: Option<&str>) -> Result<Socket, ConnectError> {
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.url.port_or_known_default().unwrap_or(80);
        let network = |error: &dyn std::fmt::Display| ConnectError::Network {
            host: format!("{host}:{port}"),
            reason: error.to_string(),
        };
        let tcp = TcpStream::connect((host.as_str(), port)).await.map_err(|error| network(&error))?;
        // Frames are small, and the peer waits for them.
        let _ = tcp.set_nodelay(true);
        let stream: Box<dyn Stream> = if self.url.scheme() == "wss" {
            let name = ServerName::try_from(host.clone()).map_err(|error| network(&error))?;
            let connector = TlsConnector::from(Arc::new(self.client_config()?));
            Box::new(connector.connect(name, tcp).await.map_err(|error| network(&error))?)
        } else {
            Box::new(tcp)
        };
        let mut request = self.url.as_str().into_client_request().map_err(|error| network(&error))?;
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| ConnectError::Rejected("the token is not valid in an HTTP header".to_owned()))?;
            value.set_sensitive(true);
            request.headers_mut().insert("authorization", value);
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(FRAME_LEN_MAX))
            .max_frame_size(Some(FRAME_LEN_MAX))
            .max_write_buffer_size(WRITE_BUFFER_MAX);
        let (socket, _) = tokio_tungstenite::client_async_with_config(request, stream, Some(config))
            .await
            .map_err(rejected)?;
        Ok(socket)
    }

    fn client_config(&self) -> Result<ClientConfig, ConnectError> {
        let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some(path) = &self.tls.ca {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unusable(path, &error))?;
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ConnectError::Rejected(error.to_string()))?
            .with_root_certificates(roots);
        let Some(path) = &self.tls.cert else { return Ok(builder.with_no_client_auth()) };
        let key = PrivateKeyDer::from_pem_file(path).map_err(|error| unusable(path, &error))?;
        builder.with_client_auth_cert(certificates(path)?, key).map_err(|error| unusable(path, &error))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    found.map(|certificate| certificate.map_err(|error| unusable(path, &error))).collect()
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> ConnectError {
    ConnectError::File { path: path.to_owned(), reason: error.to_string() }
}

fn rejected(error: tungstenite::Error) -> ConnectError {
    match error {
        tungstenite::Error::Http(response) => {
            ConnectError::Rejected(format!("it answers {}", response.status()))
        }
        other => ConnectError::Rejected(other.to_string()),
    }
}
