//! Workers that show client certificates, over real TLS.

use std::path::Path;
use std::sync::Arc;

use laneway_client::worker::{Outcome, Task, TlsFiles, Worker, WorkerBuilder};
use laneway_core::Role;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::peer::Peer;
use crate::tls::{Authority, TlsWorld, client, start_with, write};
use crate::world::{START, answer};

/// A worker of the SDK with a certificate of these URIs.
fn sdk(dir: &Path, world: &TlsWorld, server: &Authority, clients: &Authority, uri: &str) -> WorkerBuilder {
    let (cert, key) = clients.sign(&[uri]);
    let tls = TlsFiles {
        ca: Some(write(dir, "ca.pem", &server.pem())),
        cert: Some(write(dir, "worker.pem", &format!("{cert}{key}"))),
    };
    Worker::builder(&format!("wss://{}/v1/workers/connect", world.address), "w1").tls(tls)
}

/// The other end of a connection over TLS, with a certificate of these URIs.
async fn open(
    world: &TlsWorld,
    server: &Authority,
    (cert, key): (String, String),
) -> Peer<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let stream = TcpStream::connect(world.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let url = format!("wss://{}/v1/workers/connect", world.address);
    let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    Peer::over(socket, "w1").tenant("acme")
}

fn with_mode(mut handshake: Value, mode: &str) -> Value {
    handshake["auth"]["mode"] = json!(mode);
    handshake
}

#[tokio::test]
async fn d4_a_worker_with_a_certificate_is_bound_to_its_tenant_and_runs_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let (server, clients) = (Authority::new(), Authority::new());
    let demanded = "[workers]\nrequire_certificate = true";
    let world = start_with(dir.path(), &server, Some(&clients), demanded).await;
    let worker = sdk(dir.path(), &world, &server, &clients, "laneway://tenant/acme/role/worker");
    let worker = worker.tenant("acme").handler("greet", |task: Task| async move {
        Outcome::of(&json!({"hello": task.read::<Value>()?["name"]}))
    });
    let running = tokio::spawn(worker.build().unwrap().run());
    let boss = client(&server, Some(clients.sign(&["laneway://tenant/acme/role/admin"])));
    let url = |path: &str| format!("https://{}{path}", world.address);
    let submit = boss.post(url("/v1/jobs")).body(r#"{"kind": "greet", "payload": {"name": "ann"}}"#);
    let (status, job) = answer(submit).await;
    assert_eq!(status.as_u16(), 201, "{job}");
    let id = job["id"].as_str().unwrap();
    world.scheduler.wait(laneway_core::JobId::parse(id).unwrap()).await.unwrap();
    let (_, job) = answer(boss.get(url(&format!("/v1/jobs/{id}")))).await;
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!({"hello": "ann"})), "{job}");
    let (_, workers) = answer(boss.get(url("/v1/workers"))).await;
    assert_eq!(
        (&workers["workers"][0]["id"], &workers["workers"][0]["tenant"]),
        (&json!("w1"), &json!("acme"))
    );
    running.abort();
}

#[tokio::test]
async fn d4_where_certificates_are_demanded_a_token_is_not_enough() {
    let dir = tempfile::tempdir().unwrap();
    let (server, clients) = (Authority::new(), Authority::new());
    let demanded = "[workers]\nrequire_certificate = true";
    let world = start_with(dir.path(), &server, Some(&clients), demanded).await;
    let (record, token) =
        laneway_api::mint(Some(laneway_core::Name::fixed("acme")), Role::Worker, "", START.wall, None)
            .unwrap();
    world.scheduler.put_token(record, laneway_core::Origin::server("test")).await.unwrap();
    let signed = clients.sign(&["laneway://tenant/acme/role/worker"]);
    let mut peer = open(&world, &server, signed.clone()).await;
    peer.send("handshake", peer.handshake(Some(&token)), None).await;
    assert_eq!(peer.receive_error().await.0, "E.AUTH.MTLS_REQUIRED");
    assert!(peer.is_closed().await);
    // The same certificate opens the door to its own tenant, and to no other.
    for (tenant, code) in [("acme", None), ("other", Some("E.SESSION.DENIED"))] {
        let mut peer = open(&world, &server, signed.clone()).await.tenant(tenant);
        let shaken = peer.send("handshake", with_mode(peer.handshake(None), "mtls"), None).await;
        match code {
            None => drop(peer.receive_ack(&shaken).await),
            Some(code) => assert_eq!(peer.receive_error().await.0, code),
        }
    }
    // A certificate that says nothing of a worker's role opens nothing.
    let mut viewer = open(&world, &server, clients.sign(&["laneway://tenant/acme/role/viewer"])).await;
    viewer.send("handshake", with_mode(viewer.handshake(None), "mtls"), None).await;
    assert_eq!(viewer.receive_error().await.0, "E.SESSION.DENIED");
}
