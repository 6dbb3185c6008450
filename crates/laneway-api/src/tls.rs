//! TLS, with client certificates if the configuration requires them.
//!
//! Handshakes run beside the accept loop and have five seconds each, so that a slow client delays no other. At the
//! limit, a new handshake evicts the oldest one of its address, or of the address with the most. `auth/identity.rs`
//! reads the identity in a certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::serve::Listener;
use laneway_runtime::config::TlsConfig;
use laneway_runtime::unauthenticated::UnauthenticatedSockets;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use crate::auth::Identity;
use crate::serve::{Peer, prepare};

/// A handshake must finish within this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit of handshakes at once.
const HANDSHAKES_MAX: u32 = 1_024;
/// The limit of handshakes at once for one address. Many workers behind one address may reconnect at once.
const HANDSHAKES_PER_ADDRESS_MAX: u32 = 512;
/// The limit of connections that are ready and wait to be served.
const READY_MAX: usize = 64;

/// Why TLS cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file is missing or invalid.
    #[error("{path} holds no usable PEM: {cause}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The certificate and the key do not match, or the authorities cannot be used.
    #[error("certificate, key and authorities do not fit together: {0}")]
    Unfit(String),
    /// The listener failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Listens for TLS connections.
pub struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, Peer)>,
    local: Peer,
    keys: TlsKeys,
    _accepting: AbortOnDropHandle<()>,
}

/// The certificate in use. Clones share it.
#[derive(Clone)]
pub struct TlsKeys {
    files: Arc<TlsConfig>,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl TlsKeys {
    /// Reads the files.
    pub fn read(files: TlsConfig) -> Result<TlsKeys, TlsError> {
        let current = Arc::new(RwLock::new(Arc::new(read_files(&files)?)));
        Ok(TlsKeys { files: Arc::new(files), current })
    }

    /// Reads the files again, for new connections. After an error the old certificate stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let next = Arc::new(read_files(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// True when clients must present certificates.
    pub fn asks_for_certificates(&self) -> bool {
        self.files.client_ca.is_some()
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl TlsListener {
    /// Uses TLS on `listener` with these files.
    pub fn new(listener: TcpListener, files: TlsConfig) -> Result<TlsListener, TlsError> {
        let keys = TlsKeys::read(files)?;
        let shows_certificates = keys.asks_for_certificates();
        let local = Peer { shows_certificates, ..listener.local_addr()?.into() };
        let (sender, ready) = mpsc::channel(READY_MAX);
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, keys.clone(), sender)));
        Ok(TlsListener { ready, local, keys, _accepting: accepting })
    }

    /// The certificate in use, to reload it when its files change.
    pub fn keys(&self) -> TlsKeys {
        self.keys.clone()
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Peer) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task ends only with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(self.local.clone())
    }
}

async fn accept(mut listener: TcpListener, keys: TlsKeys, ready: mpsc::Sender<(TlsStream<TcpStream>, Peer)>) {
    let handshakes = UnauthenticatedSockets::new(HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX);
    loop {
        let (stream, address) = Listener::accept(&mut listener).await;
        let handshake = handshakes.enter(address.ip());
        let (acceptor, ready) = (keys.acceptor(), ready.clone());
        let shows_certificates = keys.asks_for_certificates();
        tokio::spawn(async move {
            prepare(&stream);
            let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
            let shaken = tokio::select! {
                biased;
                shaken = shaken => shaken,
                () = handshake.displaced() => {
                    return tracing::debug!(%address, "a TLS handshake was evicted for a newer one");
                }
            };
            match shaken {
                Ok(Ok(stream)) => {
                    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                    let identity = shown.and_then(Identity::of);
                    let peer = Peer { identity, shows_certificates, ..address.into() };
                    // Fails when the server has stopped.
                    drop(ready.send((stream, peer)).await);
                }
                Ok(Err(error)) => tracing::debug!(%address, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
            }
        });
    }
}

fn read_files(files: &TlsConfig) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unfit(error.to_string()))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut authorities = RootCertStore::empty();
            for certificate in certificates(path)? {
                authorities.add(certificate).map_err(|error| file_error(path, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider)
                .build()
                .map_err(|error| TlsError::Unfit(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| file_error(&files.key, error))?;
    let mut config = builder
        .with_single_cert(certificates(&files.cert)?, key)
        .map_err(|error: rustls::Error| TlsError::Unfit(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| file_error(path, error))?;
    let list = read.collect::<Result<Vec<_>, _>>().map_err(|error| file_error(path, error))?;
    if list.is_empty() {
        return Err(file_error(path, "the file contains no certificate"));
    }
    Ok(list)
}

fn file_error(path: &Path, cause: impl std::fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), cause: cause.to_string() }
}
