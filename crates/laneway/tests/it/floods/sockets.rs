//! Silent sockets: plain ones, half a request head, WebSockets of workers and gateways, TLS handshakes.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use rcgen::{CertificateParams, KeyPair, SanType};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{Probe, Server, sockets};

/// How long the slowest probe may take.
const SLOWEST_MAX: Duration = Duration::from_millis(1_500);

/// Opens connections that send this text and nothing more.
async fn open(address: SocketAddr, beginning: &str, count: usize) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may have closed the connection already.
        drop(stream.write_all(beginning.as_bytes()).await);
        silent.push(stream);
    }
    silent
}

fn upgrade(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// Connects as a worker with a token, and waits for the answer to its handshake.
async fn works(server: &Server, token: &str) {
    let url = format!("ws://{}/v1/workers/connect", server.address);
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let shake = json!({"type": "handshake", "id": "1", "ts": "2026-01-01T00:00:00Z", "corr": "1", "seq": 1,
        "tenant": "acme", "sender": {"role": "worker", "id": "w1"}, "ack": {"request": true},
        "payload": {"protocol": 1, "auth": {"mode": "token", "token": token},
            "worker": {"id": "w1", "version": "1", "hostname": "here"}}});
    socket.send(Message::text(shake.to_string())).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Text(text) = message {
            assert!(text.contains("\"ack\""), "{text}");
            return;
        }
    }
    panic!("the socket ended");
}

/// Silent sockets do not keep the server from serving callers and workers with a token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_07_silent_sockets_block_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let few = (sockets() / 2).max(8).to_string();
    let server = Server::start(dir.path(), &[("LANEWAY_SERVER__CONNECTIONS_MAX", &few)]).await;
    let worker = server.token("acme", "worker").await;
    let probe = Probe::start(&server);
    let kinds = ["".to_owned(), "GET / HT".to_owned(), upgrade("/v1/workers/connect"), upgrade("/ws")];
    let mut silent = Vec::new();
    for beginning in &kinds {
        silent.extend(open(server.address, beginning, sockets()).await);
        let come_in = tokio::time::timeout(Duration::from_secs(5), works(&server, &worker)).await;
        assert!(come_in.is_ok(), "a worker waits behind {beginning:?}");
        probe.answers(20).await;
    }
    let slowest = probe.slowest();
    println!("{} silent sockets: the slowest probe took {slowest:?}", silent.len());
    assert!(slowest < SLOWEST_MAX, "a probe waited {slowest:?}");
}

/// Unfinished TLS handshakes do not keep other clients from connecting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_07_silent_handshakes_block_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let (cert, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, &certificate).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let settings = [
        ("LANEWAY_SERVER__TLS__CERT", cert.to_str().unwrap()),
        ("LANEWAY_SERVER__TLS__KEY", key_file.to_str().unwrap()),
    ];
    let trusted = reqwest::Certificate::from_pem(certificate.as_bytes()).unwrap();
    let client = || {
        let builder = reqwest::Client::builder().no_proxy().use_rustls_tls();
        builder.tls_built_in_root_certs(false).add_root_certificate(trusted.clone()).build().unwrap()
    };
    let server = Server::start_by(&dir.path().join("data"), &settings, "https", client()).await;
    let silent = open(server.address, "", sockets().max(600)).await;
    let begun = std::time::Instant::now();
    for _ in 0..10 {
        // A new client makes a new handshake.
        let call = client().get(format!("https://{}/livez", server.address)).send();
        let answered = tokio::time::timeout(Duration::from_secs(4), call).await;
        assert_eq!(answered.expect("a handshake waits for silent ones").unwrap().status(), 200);
    }
    println!("{} silent handshakes: ten others took {:?}", silent.len(), begun.elapsed());
}
