//! Connections to proxies and through them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use laneway_runtime::config::Secret;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{Proxy, ProxyError, Scheme};

/// The longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A connection, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Which certificates are accepted.
#[derive(Clone)]
pub struct Trust {
    roots: RootCertStore,
}

impl Trust {
    /// Those of public authorities.
    pub fn public() -> Trust {
        Trust { roots: RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()) }
    }

    /// Those of these authorities, in PEM, as well.
    pub fn and(mut self, pem: &[u8]) -> Result<Trust, String> {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            self.roots.add(certificate).map_err(|error| error.to_string())?;
        }
        Ok(self)
    }

    /// Speaks TLS over a connection.
    pub(super) async fn connect(
        &self,
        host: &str,
        stream: Box<dyn Stream>,
    ) -> Result<Box<dyn Stream>, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| error.to_string())?;
        let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        Ok(Box::new(connected.map_err(|error| error.to_string())?))
    }
}

/// A connection to the proxy itself.
pub(super) async fn connect(proxy: &Proxy, trust: &Trust) -> Result<Box<dyn Stream>, ProxyError> {
    let connected = TcpStream::connect((proxy.host.as_str(), proxy.port)).await;
    let stream = connected.map_err(|error| match error.kind() {
        std::io::ErrorKind::TimedOut => ProxyError::TimedOut("the connection to the proxy"),
        _ => ProxyError::Connect { proxy: proxy.to_string(), reason: error.to_string() },
    })?;
    match proxy.scheme {
        Scheme::Http | Scheme::Socks5 => Ok(Box::new(stream)),
        Scheme::Https => {
            let secured = trust.connect(&proxy.host, Box::new(stream)).await;
            secured.map_err(|reason| ProxyError::Protocol { proxy: proxy.to_string(), reason })
        }
    }
}

/// Has an HTTP proxy connect to the target.
pub(super) async fn open_tunnel(
    stream: &mut Box<dyn Stream>,
    proxy: &Proxy,
    host: &str,
    port: u16,
) -> Result<(), ProxyError> {
    let broken = |reason| ProxyError::Protocol { proxy: proxy.to_string(), reason };
    let authorization = match &proxy.credentials {
        Some(credentials) => format!("Proxy-Authorization: {}\r\n", basic_authorization(credentials)),
        None => String::new(),
    };
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| broken(error.to_string()))?;
    let head = read_head(stream).await.map_err(broken)?;
    match head.status {
        200..=299 => Ok(()),
        407 => Err(ProxyError::Credentials { proxy: proxy.to_string() }),
        status => Err(ProxyError::Target {
            proxy: proxy.to_string(),
            target: format!("{host}:{port}"),
            reason: format!("it answers {status}"),
        }),
    }
}

/// The value of the header that logs in to an HTTP proxy.
pub(super) fn basic_authorization((user, password): &(String, Secret)) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.reveal())))
}

/// The head of an HTTP answer.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) content_type: String,
    /// What came after the head already.
    pub(super) rest: Vec<u8>,
}

/// Reads the head of an HTTP answer.
pub(super) async fn read_head(stream: &mut Box<dyn Stream>) -> Result<Head, String> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(format!("the head of the answer has more than {HEAD_BYTES_MAX} bytes"));
        }
        let mut part = [0; 1024];
        match stream.read(&mut part).await {
            Ok(0) => return Err("the connection was closed before an answer".to_owned()),
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(error) => return Err(error.to_string()),
        }
    };
    let rest = bytes.split_off(end + 4);
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| {
        let (version, rest) = line.split_once(' ')?;
        let status = rest.split(' ').next()?.parse().ok()?;
        version.starts_with("HTTP/1.").then_some(status)
    });
    let content_type = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        .map(|(_, value)| value.trim().to_ascii_lowercase())
        .unwrap_or_default();
    match status {
        Some(status) => Ok(Head { status, content_type, rest }),
        None => Err("the answer is not HTTP".to_owned()),
    }
}
