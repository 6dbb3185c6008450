//! Small proxies: HTTP, HTTP over TLS, and SOCKS version 5. They answer for every host themselves, so that no name is resolved.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_util::task::AbortOnDropHandle;

use crate::site::read_head;

/// The page that every host has behind these proxies.
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\nConnection: close\r\n\r\n203.0.113.7";

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Http,
    Https,
    Socks,
    /// Accepts connections, and never answers.
    Silent,
}

pub struct FakeProxy {
    pub port: u16,
    /// The certificate of the authority, in PEM.
    pub authority: String,
    requests: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

struct Rules {
    credentials: Option<(&'static str, &'static str)>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeProxy {
    pub async fn start(kind: Kind, credentials: Option<(&'static str, &'static str)>) -> FakeProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let rules = Arc::new(Rules { credentials, requests: requests.clone() });
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config =
            config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (rules, tls) = (rules.clone(), tls.clone());
                tokio::spawn(async move {
                    match kind {
                        Kind::Http => http(stream, &rules).await,
                        Kind::Https => http(tls.accept(stream).await.ok()?, &rules).await,
                        Kind::Socks => socks(stream, &rules).await,
                        Kind::Silent => std::future::pending().await,
                    }
                });
            }
        });
        FakeProxy { port, authority: made.cert.pem(), requests, _task: AbortOnDropHandle::new(task) }
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn http(mut stream: impl AsyncRead + AsyncWrite + Unpin, rules: &Rules) -> Option<()> {
    loop {
        let head = read_head(&mut stream).await?;
        rules.requests.lock().unwrap().push(head.clone());
        if let Some((user, password)) = rules.credentials {
            let wanted = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            if !head.contains(&format!("Basic {wanted}")) {
                let denied = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(denied.as_bytes()).await.ok()?;
                continue;
            }
        }
        if head.starts_with("CONNECT unreachable.test") {
            stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await.ok()?;
            continue;
        }
        stream.write_all(PAGE.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()?;
        return Some(());
    }
}

async fn socks(mut stream: impl AsyncRead + AsyncWrite + Unpin, rules: &Rules) -> Option<()> {
    let _version = stream.read_u8().await.ok()?;
    let count = stream.read_u8().await.ok()?;
    let mut methods = vec![0; usize::from(count)];
    stream.read_exact(&mut methods).await.ok()?;
    match rules.credentials {
        None => stream.write_all(&[5, 0]).await.ok()?,
        Some(_) if !methods.contains(&2) => return stream.write_all(&[5, 0xff]).await.ok(),
        Some((user, password)) => {
            stream.write_all(&[5, 2]).await.ok()?;
            stream.read_u8().await.ok()?;
            let mut parts = Vec::new();
            for _ in 0..2 {
                let len = stream.read_u8().await.ok()?;
                let mut part = vec![0; usize::from(len)];
                stream.read_exact(&mut part).await.ok()?;
                parts.push(String::from_utf8(part).ok()?);
            }
            let is_right = parts == [user, password];
            stream.write_all(&[1, u8::from(!is_right)]).await.ok()?;
            if !is_right {
                return None;
            }
        }
    }
    let mut request = [0; 4];
    stream.read_exact(&mut request).await.ok()?;
    let len = if request[3] == 3 { stream.read_u8().await.ok()? } else { 4 };
    let mut host = vec![0; usize::from(len) + 2];
    stream.read_exact(&mut host).await.ok()?;
    let host = String::from_utf8_lossy(&host[..usize::from(len)]).into_owned();
    rules.requests.lock().unwrap().push(format!("socks {host}"));
    let code = if host == "unreachable.test" { 4 } else { 0 };
    stream.write_all(&[5, code, 0, 1, 127, 0, 0, 1, 0, 80]).await.ok()?;
    let head = read_head(&mut stream).await?;
    rules.requests.lock().unwrap().push(head);
    stream.write_all(PAGE.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}
