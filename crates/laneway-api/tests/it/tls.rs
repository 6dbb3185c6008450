//! TLS and client certificates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use laneway_api::{TlsListener, serve_tls};
use laneway_core::Role;
use laneway_runtime::config::TlsConfig;
use laneway_runtime::{Running, Scheduler};
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use reqwest::{Certificate, Client, Identity};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::test_store::test_store;
use crate::world::{START, answer, start_api};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for the loopback address and these URIs, and its key.
    pub fn sign(&self, uris: &[&str]) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        for uri in uris {
            params.subject_alt_names.push(SanType::URI(Ia5String::try_from(*uri).unwrap()));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server with TLS.
pub struct TlsWorld {
    pub address: SocketAddr,
    pub scheduler: Scheduler,
    api: laneway_api::Api,
    _running: Running,
    _shutdown: CancellationToken,
}

/// Writes a file and returns its path.
pub fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn start(dir: &Path, server: &Authority, clients: Option<&Authority>) -> TlsWorld {
    start_with(dir, server, clients, "").await
}

/// A server with TLS that accepts certificates of `clients`.
pub async fn start_with(dir: &Path, server: &Authority, clients: Option<&Authority>, toml: &str) -> TlsWorld {
    let (cert, key) = server.sign(&[]);
    let files = TlsConfig {
        cert: write(dir, "cert.pem", &cert),
        key: write(dir, "key.pem", &key),
        client_ca: clients.map(|clients| write(dir, "clients.pem", &clients.pem())),
    };
    let (api, scheduler, _, running) = start_api(test_store(), toml);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let listener = TlsListener::new(listener, files).unwrap();
    tokio::spawn(serve_tls(listener, api.clone(), shutdown.clone()));
    TlsWorld { address, scheduler, api, _running: running, _shutdown: shutdown }
}

/// A client that trusts `server`, with a certificate or without.
pub fn client(server: &Authority, identity: Option<(String, String)>) -> Client {
    let mut builder = Client::builder()
        .no_proxy()
        .use_rustls_tls()
        .tls_built_in_root_certs(false)
        .add_root_certificate(Certificate::from_pem(server.pem().as_bytes()).unwrap());
    if let Some((cert, key)) = identity {
        builder = builder.identity(Identity::from_pem(format!("{cert}{key}").as_bytes()).unwrap());
    }
    builder.build().unwrap()
}

async fn caller(world: &TlsWorld, client: &Client) -> (u16, Value) {
    let (status, body) = answer(client.get(format!("https://{}/v1/caller", world.address))).await;
    (status.as_u16(), body)
}

#[tokio::test]
async fn serves_tls_and_reloads_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new(), Authority::new());
    let world = start(dir.path(), &first, None).await;
    assert_eq!(caller(&world, &client(&first, None)).await.1["actor"], "open");
    let (cert, key) = second.sign(&[]);
    write(dir.path(), "cert.pem", &cert);
    write(dir.path(), "key.pem", &key);
    let trusts_second = client(&second, None);
    assert!(trusts_second.get(format!("https://{}/livez", world.address)).send().await.is_err());
    world.api.config().reload().await.unwrap();
    // A task reloads the files; the first handshakes may still use the old certificate.
    while trusts_second.get(format!("https://{}/livez", world.address)).send().await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn client_certificates_identify_callers() {
    let dir = tempfile::tempdir().unwrap();
    let (server, clients) = (Authority::new(), Authority::new());
    let world = start(dir.path(), &server, Some(&clients)).await;
    let acme = client(&server, Some(clients.sign(&["laneway://tenant/acme/role/submitter"])));
    assert_eq!(
        caller(&world, &acme).await.1,
        serde_json::json!({"actor": "cert:submitter:acme", "role": "submitter", "tenant": "acme"})
    );
    let submitted = acme.post(format!("https://{}/v1/jobs", world.address)).body(r#"{"kind":"k"}"#);
    let (status, job) = answer(submitted).await;
    assert_eq!(
        (status.as_u16(), &job["tenant"], &job["submitted_by"]),
        (201, &"acme".into(), &"cert:submitter:acme".into())
    );
    let from_a_page =
        acme.post(format!("https://{}/v1/jobs", world.address)).header("origin", "https://evil.example");
    assert_eq!(answer(from_a_page.body(r#"{"kind":"k"}"#)).await.0, 403);
    let admin = client(&server, Some(clients.sign(&["laneway://tenant/*/role/admin"])));
    assert_eq!(answer(admin.get(format!("https://{}/v1/config", world.address))).await.0, 200);
    assert_eq!(answer(acme.get(format!("https://{}/v1/config", world.address))).await.0, 403);
}

#[tokio::test]
async fn other_certificates_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (server, clients, unknown) = (Authority::new(), Authority::new(), Authority::new());
    let world = start(dir.path(), &server, Some(&clients)).await;
    let url = format!("https://{}/v1/caller", world.address);
    assert!(client(&server, None).get(&url).send().await.is_err(), "a certificate is required");
    let foreign = client(&server, Some(unknown.sign(&["laneway://tenant/*/role/admin"])));
    assert!(foreign.get(&url).send().await.is_err(), "an unknown authority is rejected");
    for uris in [
        &[][..],
        &["laneway://tenant/a/role/root"],
        &["laneway://tenant/a/role/admin", "laneway://tenant/b/role/admin"],
    ] {
        let rejected = client(&server, Some(clients.sign(uris)));
        assert_eq!(caller(&world, &rejected).await.0, 401, "{uris:?}");
    }
    let (record, token) = laneway_api::mint(None, Role::Viewer, "", START.wall, None).unwrap();
    let id = record.id.to_string();
    world.scheduler.put_token(record, laneway_core::Origin::server("test")).await.unwrap();
    let with_token = client(&server, Some(clients.sign(&[]))).get(&url).bearer_auth(token);
    assert_eq!(answer(with_token).await.1["actor"], id);
}

#[tokio::test]
async fn plain_http_and_silence_delay_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let server = Authority::new();
    let world = start(dir.path(), &server, None).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    assert_eq!(caller(&world, &client(&server, None)).await.0, 200);
    let mut plain = TcpStream::connect(world.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard).await;
    assert!(!heard.starts_with(b"HTTP"), "plain HTTP gets no response");
}

#[test]
fn errors_name_the_wrong_file() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = Authority::new().sign(&[]);
    let (cert, key) = (write(dir.path(), "cert.pem", &cert), write(dir.path(), "key.pem", &key));
    let empty = write(dir.path(), "empty.pem", "");
    for (files, expected) in [
        (TlsConfig { cert: empty.clone(), key: key.clone(), client_ca: None }, "empty.pem"),
        (TlsConfig { cert: cert.clone(), key: empty.clone(), client_ca: None }, "empty.pem"),
        (TlsConfig { cert: cert.clone(), key: key.clone(), client_ca: Some(empty) }, "empty.pem"),
        (TlsConfig { cert: cert.clone(), key: dir.path().join("none.pem"), client_ca: None }, "none.pem"),
    ] {
        let error = laneway_api::TlsKeys::read(files).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let (_, other_key) = Authority::new().sign(&[]);
    let other_key = write(dir.path(), "other.pem", &other_key);
    assert!(laneway_api::TlsKeys::read(TlsConfig { cert, key: other_key, client_ca: None }).is_err());
}

/// More silent connections than the limit of handshakes do not block the next one.
#[tokio::test]
async fn defect_07_silent_handshakes_delay_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let world = start(dir.path(), &authority, None).await;
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    let client = client(&authority, None);
    let call = client.get(format!("https://{}/livez", world.address)).send();
    let answered = tokio::time::timeout(std::time::Duration::from_secs(4), call).await;
    assert_eq!(answered.expect("the next handshake waits for the silent ones").unwrap().status(), 200);
    let mut rest = Vec::new();
    let ended =
        tokio::time::timeout(std::time::Duration::from_secs(4), silent[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the oldest silent handshake is still open");
}
