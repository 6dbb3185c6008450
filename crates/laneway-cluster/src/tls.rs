//! TLS between nodes. A node publishes the digest of its certificate in the database, and the others accept this certificate only:
//! no authority and no host name is needed.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as RustlsError, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The only protocol between nodes.
const HTTP2: &[u8] = b"h2";

/// Why TLS between nodes cannot be used.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ClusterTlsError(String);

/// The certificate of a node, for other nodes.
#[derive(Clone)]
pub struct ClusterTls {
    config: Arc<ServerConfig>,
    digest: [u8; 32],
}

impl ClusterTls {
    /// Reads the certificate and the key of the server, both PEM.
    pub fn read(certificate: &Path, key: &Path) -> Result<ClusterTls, ClusterTlsError> {
        let unread = |path: &Path, cause: &dyn std::fmt::Display| {
            ClusterTlsError(format!("{} holds no usable PEM: {cause}", path.display()))
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unread(certificate, &error))?;
        let first = chain.first().ok_or_else(|| unread(certificate, &"the file contains no certificate"))?;
        let digest = Sha256::digest(first).into();
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, &error))?;
        let unfit =
            |error: RustlsError| ClusterTlsError(format!("certificate and key do not fit together: {error}"));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_no_client_auth()
            .with_single_cert(chain, key_der)
            .map_err(unfit)?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(ClusterTls { config: Arc::new(config), digest })
    }

    /// SHA-256 of the certificate.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

/// Connects to the node that has the certificate with this digest.
pub fn connector(digest: [u8; 32]) -> Result<TlsConnector, ClusterTlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Pinned { digest, provider: Arc::clone(&provider) });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClusterTlsError(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Accepts one certificate.
#[derive(Debug)]
struct Pinned {
    digest: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        let shown: [u8; 32] = Sha256::digest(certificate).into();
        if shown == self.digest {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(RustlsError::General("the certificate is not the one that the node has published".into()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
