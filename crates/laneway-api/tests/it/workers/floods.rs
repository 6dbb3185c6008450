//! Unauthenticated sockets: they cost little, and lock no worker out.

use std::time::{Duration, Instant};

use laneway_core::Role;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::peer::Peer;
use crate::world::World;

/// How long a frame of the server may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Silent sockets that are opened.
const SILENT: usize = 160;

/// The head of a request for a socket.
fn upgrade(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

async fn silent_socket(world: &World, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(upgrade(path).as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn defect_07_silent_sockets_do_not_lock_workers_out() {
    let world = World::closed().await;
    let token = world.token(Some("acme"), Role::Worker).await;
    let mut silent = Vec::new();
    for n in 0..SILENT {
        silent.push(silent_socket(&world, ["/v1/workers/connect", "/ws/worker"][n % 2]).await);
    }
    let begun = Instant::now();
    // A worker with its token in the request, and an older one with its token in the first frame.
    let mut with_header = Peer::open_with(&world, "w1", &token).await.unwrap().tenant("acme");
    with_header.shake_hands(Some(&token)).await;
    with_header.offer(&["k"], 1).await;
    let mut of_old = Peer::open(&world, "w2").await.tenant("acme");
    of_old.shake_hands(Some(&token)).await;
    of_old.offer(&["k"], 1).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "they waited {:?}", begun.elapsed());
    // The oldest silent ones were evicted.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, silent[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the oldest silent socket is still open");
}

#[tokio::test]
async fn defect_07_frames_of_unauthenticated_clients_cost_no_memory() {
    let world = World::closed().await;
    let before = resident();
    // Frames of nearly 4 MiB, of which the last byte never comes.
    let mut frame = vec![0x81, 0xff];
    frame.extend((4_u64 << 20).to_be_bytes());
    frame.extend([0; 4]);
    let body = vec![b' '; (4 << 20) - 1];
    let mut sockets = Vec::new();
    for _ in 0..32 {
        let mut stream = silent_socket(&world, "/v1/workers/connect").await;
        let sent = async {
            stream.write_all(&frame).await?;
            stream.write_all(&body).await?;
            // The test waits for the end, whatever the server sends.
            stream.read_to_end(&mut Vec::new()).await
        };
        let ended = tokio::time::timeout(PATIENCE, sent).await;
        assert!(ended.is_ok(), "a client that sends so much before it authenticates stays connected");
        sockets.push(stream);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 48 << 10, "32 half-sent frames cost {grown} KiB");
}

#[tokio::test]
async fn defect_07_a_bad_token_is_rejected_at_the_upgrade() {
    let world = World::closed().await;
    assert_eq!(Peer::open_with(&world, "w1", "lw_0000_0000").await.err(), Some(401));
    // A token that may not run jobs counts as none.
    let viewer = world.token(Some("acme"), Role::Viewer).await;
    let mut peer = Peer::open_with(&world, "w1", &viewer).await.unwrap().tenant("acme");
    peer.send("handshake", peer.handshake(None), None).await;
    assert_eq!(peer.receive_error().await.0, "E.SESSION.DENIED");
}

#[tokio::test]
async fn defect_07_tenants_have_their_share_of_sockets() {
    let world = World::with_config("[workers]\nunauthenticated_max = 1\nsockets_per_tenant_max = 2").await;
    let mut first = Peer::open(&world, "w1").await;
    first.greet(&["k"], 1).await;
    let mut second = Peer::open(&world, "w2").await;
    second.greet(&["k"], 1).await;
    let mut third = Peer::open(&world, "w3").await;
    third.send("handshake", third.handshake(None), None).await;
    assert_eq!(third.receive_error().await.0, "E.SESSION.DENIED", "the tenant has its share");
    assert!(third.is_closed().await);
    first.beat(json!({"inflight": 0})).await;
}

/// Opens connections of one tenant until the server rejects one.
async fn connect_all(world: &World, tenant: &str, token: &str) -> Vec<Peer> {
    let mut peers = Vec::new();
    while let Ok(peer) = Peer::open_with(world, &format!("{tenant}{}", peers.len()), token).await {
        let mut peer = peer.tenant(tenant);
        peer.shake_hands(Some(token)).await;
        peers.push(peer);
        assert!(peers.len() <= 10, "it ends");
    }
    peers
}

/// A tenant alone has all sockets but the reserve. Another one finds the reserve at once, and its silent sockets take none.
#[tokio::test]
async fn defect_11_a_tenant_cannot_take_all_sockets() {
    let mut world = World::with_config("[workers]\nsockets_max = 10").await;
    world.close().await;
    let (greedy, other) =
        (world.token(Some("a"), Role::Worker).await, world.token(Some("b"), Role::Worker).await);
    let held = connect_all(&world, "a", &greedy).await;
    assert_eq!(held.len(), 9, "all but the reserve");
    assert_eq!(Peer::open_with(&world, "more", &greedy).await.err(), Some(503));
    let mut silent = Vec::new();
    while let Ok(peer) = Peer::open_with(&world, "v1", &other).await {
        silent.push(peer);
        assert!(silent.len() <= 10, "it ends");
    }
    let mut late = Peer::open(&world, "v2").await.tenant("b");
    late.shake_hands(Some(&other)).await;
    late.offer(&["k"], 1).await;
}

/// Idle workers make way for another tenant, until both have equally many. A worker with a task keeps its socket.
#[tokio::test]
async fn defect_11_idle_workers_make_way_for_another_tenant() {
    let mut world = World::with_config("[workers]\nsockets_max = 10").await;
    world.close().await;
    let (greedy, other) =
        (world.token(Some("a"), Role::Worker).await, world.token(Some("b"), Role::Worker).await);
    let mut held = connect_all(&world, "a", &greedy).await;
    let mut busy = held.pop().unwrap();
    busy.offer(&["k"], 1).await;
    let submitter = world.token(Some("a"), Role::Submitter).await;
    let submitted = world.request_as(&submitter, "POST", "/v1/jobs").body(r#"{"kind":"k"}"#).send().await;
    assert_eq!(submitted.unwrap().status(), 201);
    let (_, job, seq) = busy.receive_dispatch().await;
    let theirs = connect_all(&world, "b", &other).await;
    assert_eq!(theirs.len(), 5, "each has half of all");
    for idle in &mut held[4..] {
        assert!(idle.is_closed().await, "the newest idle ones were closed");
    }
    let result = busy.bring(&job, seq, json!({"n": 1})).await;
    assert_eq!(busy.receive_ack(&result).await, None);
}
