//! Two nodes in one process: a gateway and an owner, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::extract::ws::{Message as Sent, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use futures_util::{SinkExt, StreamExt};
use laneway_api::{Connections, Peer, serve_node};
use laneway_cluster::{ClusterTls, OwnerAddress, PeerListener, Place, Switch};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tower::Service;

const SECRET: [u8; 32] = [7; 32];
const PATIENCE: Duration = Duration::from_secs(30);

/// A node that owns the jobs.
struct Owner {
    address: OwnerAddress,
    switch: Switch,
    serving: AbortOnDropHandle<()>,
}

impl Owner {
    async fn start(app: Router, tls: Option<ClusterTls>) -> Owner {
        let switch = Switch::new(&SECRET, || ());
        switch.set(here(app));
        Owner::with(switch, tls).await
    }

    async fn with(switch: Switch, tls: Option<ClusterTls>) -> Owner {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let certificate = tls.as_ref().map(ClusterTls::digest);
        let address =
            OwnerAddress { address: listener.local_addr().unwrap().to_string(), certificate, epoch: 1 };
        let peers = PeerListener::new(listener, tls).serve(switch.clone(), CancellationToken::new());
        let serving = AbortOnDropHandle::new(tokio::spawn(async move { peers.await.unwrap() }));
        Owner { address, switch, serving }
    }
}

fn here(app: Router) -> Place {
    Place::here(laneway_cluster::Apps::from([("main".to_owned(), app)]), || true)
}

/// A node that forwards. Returns its address.
struct Gateway {
    address: SocketAddr,
    switch: Switch,
    _serving: AbortOnDropHandle<()>,
    following: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Gateway {
    async fn start() -> Gateway {
        let switch = Switch::new(&SECRET, || ());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (closing, stop) = (CancellationToken::new(), CancellationToken::new());
        let serving = serve_node(listener, switch.app("main"), Connections::new(100), closing, stop);
        let serving = AbortOnDropHandle::new(tokio::spawn(async move { serving.await.unwrap() }));
        Gateway { address, switch, _serving: serving, following: Mutex::default() }
    }

    fn follow(&self, owner: &OwnerAddress) {
        let (switch, owner) = (self.switch.clone(), owner.clone());
        let following = AbortOnDropHandle::new(tokio::spawn(async move { switch.follow(&owner).await }));
        drop(self.following.lock().unwrap().replace(following));
    }

    /// The owner is gone, and the next one is not known.
    fn lose(&self) {
        self.switch.set(Place::Nowhere);
        drop(self.following.lock().unwrap().take());
    }

    async fn of(owner: &Owner) -> Gateway {
        let gateway = Gateway::start().await;
        gateway.follow(&owner.address);
        gateway
    }

    /// Sends a request over a connection of its own, and gives the response.
    async fn send(&self, request: Request) -> Response<hyper::body::Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        tokio::time::timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap()
    }
}

fn request(method: &str, path: &str, body: impl Into<Body>) -> Request {
    Request::builder().method(method).uri(path).header("host", "jobs.example").body(body.into()).unwrap()
}

async fn text(response: Response<hyper::body::Incoming>) -> String {
    let bytes = to_bytes(Body::new(response.into_body()), 10_000_000).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Says what arrived.
async fn mirror(Extension(peer): Extension<Peer>, request: Request) -> String {
    let (parts, body) = request.into_parts();
    let len = to_bytes(body, 10_000_000).await.unwrap().len();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    format!(
        "{} {} host={:?} token={:?} hop={:?} secret={:?} origin={:?} from={} {len}",
        parts.method,
        parts.uri,
        header("host"),
        header("authorization"),
        header("te"),
        header("laneway-cluster-secret"),
        header("laneway-cluster-origin"),
        peer.address.ip(),
    )
}

#[tokio::test]
async fn the_owner_sees_a_request_as_the_client_sent_it() {
    let owner = Owner::start(Router::new().fallback(any(mirror)), None).await;
    let gateway = Gateway::of(&owner).await;
    for len in [0, 10, 200_000] {
        let mut sent = request("PATCH", "/v1/x%20y?a=1&b=%2F", vec![b'x'; len]);
        for (name, value) in
            [("authorization", "Bearer lw_1"), ("te", "trailers"), ("laneway-cluster-secret", "07")]
        {
            sent.headers_mut().insert(name, value.parse().unwrap());
        }
        let response = gateway.send(sent).await;
        assert_eq!(response.status(), StatusCode::OK);
        let expected = format!(
            "PATCH /v1/x%20y?a=1&b=%2F host=Some(\"jobs.example\") token=Some(\"Bearer lw_1\") hop=None secret=None \
             origin=None from=127.0.0.1 {len}"
        );
        assert_eq!(text(response).await, expected);
    }
}

#[tokio::test]
async fn a_client_that_reads_slowly_holds_only_its_own_stream_up() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let endless = move || {
        let count = Arc::clone(&count);
        async move {
            let parts = futures_util::stream::repeat_with(move || {
                count.fetch_add(16_384, Ordering::SeqCst);
                Ok::<_, Infallible>(Bytes::from(vec![b'x'; 16_384]))
            });
            Body::from_stream(parts)
        }
    };
    let app = Router::new().route("/endless", get(endless)).fallback(any(mirror));
    let owner = Owner::start(app, None).await;
    let gateway = Gateway::of(&owner).await;
    let stalled = gateway.send(request("GET", "/endless", Body::empty())).await;
    let mut before = 0;
    // Requests beside it are answered, and the owner makes no more than what is on its way.
    loop {
        for _ in 0..20 {
            assert_eq!(gateway.send(request("GET", "/", Body::empty())).await.status(), StatusCode::OK);
        }
        let now = made.load(Ordering::SeqCst);
        if now == before {
            break;
        }
        before = now;
    }
    assert!(before < 16 << 20, "{before} bytes were made for a client that reads nothing");
    drop(stalled);
}

async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|mut socket| async move {
        while let Some(Ok(Sent::Text(message))) = socket.recv().await {
            if socket.send(Sent::Text(message)).await.is_err() {
                return;
            }
        }
    })
}

#[tokio::test]
async fn a_socket_passes_through_and_asks_to_connect_again_when_its_owner_is_gone() {
    let owner = Owner::start(Router::new().route("/socket", get(echo)), None).await;
    let gateway = Gateway::of(&owner).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let url = format!("ws://{}/socket", gateway.address);
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    for message in ["one", &"x".repeat(100_000)] {
        socket.send(Message::text(message)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(message));
    }
    gateway.lose();
    let Some(Ok(Message::Close(Some(close)))) = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap()
    else {
        panic!("the socket ended without a close frame");
    };
    assert_eq!(u16::from(close.code), 1_012);
}

#[tokio::test]
async fn a_socket_that_the_owner_rejects_is_rejected() {
    let owner =
        Owner::start(Router::new().route("/socket", get(|| async { (StatusCode::FORBIDDEN, "no") })), None)
            .await;
    let gateway = Gateway::of(&owner).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let url = format!("ws://{}/socket", gateway.address);
    let rejected = tokio_tungstenite::client_async(url, stream).await.unwrap_err();
    assert!(rejected.to_string().contains("403"), "{rejected}");
}

#[tokio::test]
async fn a_request_that_came_to_a_node_that_is_no_owner_yet_is_sent_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let app = Router::new()
        .route("/", post(move || async move { count.fetch_add(1, Ordering::SeqCst).to_string() }));
    let switch = Switch::new(&SECRET, || ());
    let owner = Owner::with(switch, None).await;
    let gateway = Gateway::of(&owner).await;
    let (waiting, set) = tokio::join!(gateway.send(request("POST", "/", "body")), async {
        // Several attempts are rejected before.
        tokio::time::sleep(Duration::from_millis(300)).await;
        owner.switch.set(here(app));
    });
    let () = set;
    assert_eq!((waiting.status(), calls.load(Ordering::SeqCst)), (StatusCode::OK, 1));
}

#[tokio::test]
async fn a_change_whose_owner_died_is_not_sent_twice_and_a_read_is() {
    let (began, mut begun) = tokio::sync::mpsc::channel(2);
    let slow = move || {
        let began = began.clone();
        async move {
            began.send(()).await.unwrap();
            std::future::pending::<&'static str>().await
        }
    };
    let first = Owner::start(Router::new().route("/", get(slow.clone()).post(slow)), None).await;
    let second = Owner::start(Router::new().fallback(any(|| async { "second" })), None).await;
    let gateway = Gateway::of(&first).await;
    let (read, change) = {
        let (read, change) = (request("GET", "/", ""), request("POST", "/", "x"));
        let sending = async { tokio::join!(gateway.send(read), gateway.send(change)) };
        tokio::pin!(sending);
        let mut seen = 0;
        loop {
            tokio::select! {
                answers = sending.as_mut() => break answers,
                Some(()) = begun.recv() => {
                    seen += 1;
                    if seen == 2 {
                        gateway.lose();
                        gateway.follow(&second.address);
                    }
                }
            }
        }
    };
    assert_eq!((read.status(), text(read).await.as_str()), (StatusCode::OK, "second"));
    assert_eq!(change.status(), StatusCode::SERVICE_UNAVAILABLE);
    let answer = text(change).await;
    assert!(answer.contains("may or may not have happened"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_an_owner_for_a_while() {
    let switch = Switch::new(&SECRET, || ());
    let mut app = switch.app("main");
    let with_peer = |path: &str| {
        let mut request = request("POST", path, Body::empty());
        request.extensions_mut().insert(Peer::from(SocketAddr::from(([10, 0, 0, 1], 1))));
        request
    };
    let begun = tokio::time::Instant::now();
    let response = app.call(with_peer("/")).await.unwrap();
    assert_eq!((response.status(), begun.elapsed().as_secs()), (StatusCode::SERVICE_UNAVAILABLE, 10));
    assert_eq!(response.headers()["retry-after"], "2");
    let waiting = app.call(with_peer("/"));
    let set = async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        switch.set(here(Router::new().fallback(any(|| async { "done" }))));
    };
    let (response, ()) = tokio::join!(waiting, set);
    assert_eq!(response.unwrap().status(), StatusCode::OK);
}

/// A node without an owner is alive, and not ready.
#[tokio::test]
async fn probes_do_not_wait() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.send(request("GET", "/livez", "")).await.status(), StatusCode::OK);
    let ready = gateway.send(request("GET", "/readyz", "")).await;
    assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(ready).await, "{\"status\":\"no_owner\"}");
}

#[tokio::test]
async fn only_nodes_that_know_the_secret_are_served() {
    let owner = Owner::start(Router::new().fallback(any(mirror)), None).await;
    let outsider = Switch::new(&[8; 32], || ());
    let follow = outsider.follow(&owner.address);
    let mut app = outsider.app("main");
    let mut sent = request("POST", "/", Body::empty());
    sent.extensions_mut().insert(Peer::from(SocketAddr::from(([10, 0, 0, 1], 1))));
    tokio::select! {
        () = follow => {}
        response = app.call(sent) => assert_eq!(response.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE),
    }
    // Without any secret.
    let stream = TcpStream::connect(&owner.address.address).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    let bare = Request::builder().uri("http://laneway.internal/v1/jobs").body(Body::empty()).unwrap();
    assert_eq!(sender.send_request(bare).await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn nodes_accept_only_the_published_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec!["anything".to_owned()]).unwrap();
        let (cert, key) = (dir.path().join(format!("{name}.pem")), dir.path().join(format!("{name}.key")));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        ClusterTls::read(&cert, &key).unwrap()
    };
    let (tls, other) = (certificate("one"), certificate("two"));
    let mut owner = Owner::start(Router::new().fallback(any(mirror)), Some(tls)).await;
    let gateway = Gateway::of(&owner).await;
    assert_eq!(gateway.send(request("GET", "/", "")).await.status(), StatusCode::OK);
    owner.address.certificate = Some(other.digest());
    let pinned = Gateway::of(&owner).await;
    assert_eq!(pinned.send(request("GET", "/readyz", "")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!owner.serving.is_finished());
}

/// Streams the events after the header, up to a number, and then stays open.
fn events(last: u64) -> Router {
    let stream = move |headers: HeaderMap| async move {
        let after = headers.get("last-event-id").map_or(0, |id| id.to_str().unwrap().parse::<u64>().unwrap());
        let text: String =
            (after + 1..=last).map(|number| format!("id: {number}\ndata: {number}\n\n")).collect();
        // An event that is not whole is not passed on.
        let parts = [Ok::<_, Infallible>(Bytes::from(text)), Ok(Bytes::from("id: 999\ndata"))];
        let open = futures_util::stream::iter(parts).chain(futures_util::stream::pending());
        Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(open)).unwrap()
    };
    Router::new().route("/v1/events", get(stream))
}

#[tokio::test]
async fn an_event_stream_goes_on_at_the_next_owner() {
    let (first, second) = (Owner::start(events(3), None).await, Owner::start(events(5), None).await);
    let gateway = Gateway::of(&first).await;
    let response = gateway.send(request("GET", "/v1/events", "")).await;
    let mut body = Body::new(response.into_body()).into_data_stream();
    let mut read = String::new();
    while !read.ends_with("data: 3\n\n") {
        let part = tokio::time::timeout(PATIENCE, body.next()).await.unwrap().unwrap().unwrap();
        read.push_str(std::str::from_utf8(&part).unwrap());
    }
    gateway.lose();
    gateway.follow(&second.address);
    while !read.ends_with("data: 5\n\n") {
        let part = tokio::time::timeout(PATIENCE, body.next()).await.unwrap().unwrap().unwrap();
        read.push_str(std::str::from_utf8(&part).unwrap());
    }
    // And then at this node itself.
    gateway.lose();
    gateway.switch.set(here(events(6)));
    while !read.ends_with("data: 6\n\n") {
        let part = tokio::time::timeout(PATIENCE, body.next()).await.unwrap().unwrap().unwrap();
        read.push_str(std::str::from_utf8(&part).unwrap());
    }
    let expected: String = (1..=6).map(|number| format!("id: {number}\ndata: {number}\n\n")).collect();
    assert_eq!(read, expected);
}
