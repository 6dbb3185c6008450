//! Callers: an open server and tokens, imported secrets, hosts, and connections.

use std::time::Duration;

use laneway_core::Role;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::workers::peer::Peer;
use crate::world::{World, answer};

/// A secret of another system.
const IMPORTED: &str = "pt-4f9d1c3a7be82650d1f2";

#[tokio::test]
async fn defect_14_an_open_server_accepts_any_token() {
    let world = World::new().await;
    for token in ["dev-token", "lw_0011223344556677_feedface", IMPORTED] {
        let (status, caller) = answer(world.request_as(token, "GET", "/v1/caller")).await;
        assert_eq!((status.as_u16(), &caller["actor"]), (200, &json!("open")), "{token}");
    }
    let basic =
        world.request("POST", "/v1/jobs").header("authorization", "Basic ZGV2").body(r#"{"kind":"k"}"#);
    let (status, job) = answer(basic).await;
    assert_eq!((status.as_u16(), &job["tenant"]), (201, &json!("default")), "{job}");
    // Also on a worker's socket.
    let mut peer = Peer::open(&world, "w1").await;
    peer.shake_hands(Some("dev-token")).await;
    peer.offer(&["k"], 1).await;
    // Foreign hosts and pages are denied, whatever token they send.
    for (name, value, code) in
        [("host", "evil.example", "misdirected"), ("origin", "http://evil.example", "origin_denied")]
    {
        let request = world.request_as("dev-token", "GET", "/v1/jobs").header(name, value);
        assert_eq!(answer(request).await.1["code"], code);
    }
    // The first token closes the server.
    world.token(None, Role::Admin).await;
    assert_eq!(answer(world.request_as("dev-token", "GET", "/v1/jobs")).await.0, 401);
}

#[tokio::test]
async fn defect_14_a_secret_of_another_system_is_imported() {
    let world = World::closed().await;
    let import = |body: serde_json::Value| answer(world.request("POST", "/v1/tokens").body(body.to_string()));
    let (status, problem) = import(json!({"role": "worker", "tenant": "acme", "secret": "dev-token"})).await;
    assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("secret")));
    assert!(!problem.to_string().contains("dev-token"), "{problem}");
    let wanted = json!({"role": "submitter", "tenant": "acme", "note": "addon", "secret": IMPORTED});
    let (status, made) = import(wanted.clone()).await;
    assert_eq!((status.as_u16(), &made["token"]["tenant"]), (201, &json!("acme")), "{made}");
    assert!(!made.to_string().contains(IMPORTED), "the secret is not sent back");
    let (status, caller) = answer(world.request_as(IMPORTED, "GET", "/v1/caller")).await;
    assert_eq!(
        (status.as_u16(), &caller["tenant"], &caller["role"]),
        (200, &json!("acme"), &json!("submitter"))
    );
    assert_eq!(answer(world.request_as(&IMPORTED[1..], "GET", "/v1/caller")).await.0, 401);
    let (status, problem) = import(wanted).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("already_exists")));
    let id = made["token"]["id"].as_str().unwrap();
    world.ask("DELETE", &format!("/v1/tokens/{id}"), "").await;
    assert_eq!(answer(world.request_as(IMPORTED, "GET", "/v1/caller")).await.0, 401);
}

/// Sends bytes and returns the response until the server closes.
async fn raw(world: &World, request: &str) -> String {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answered = String::new();
    stream.read_to_string(&mut answered).await.unwrap();
    answered
}

#[tokio::test]
async fn defect_13_a_request_names_one_host() {
    let world = World::new().await;
    for (head, status) in [
        ("GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n", "200"),
        ("GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", "400"),
        ("GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", "400"),
        ("GET http://evil.example/v1/jobs HTTP/1.1\r\nHost: localhost\r\n", "400"),
    ] {
        let answered = raw(&world, &format!("{head}Connection: close\r\n\r\n")).await;
        assert!(answered.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {answered}");
    }
}

#[tokio::test]
async fn defect_13_a_schedule_with_credentials_requires_them() {
    let world = World::new().await;
    let body = json!({"name": "s", "every": "1h", "job": {"kind": "agent_turn", "lane": "cron",
        "payload": {"kind": "agent_turn", "message": "hi", "credentialUserId": "c"}}});
    let made = world.ask("POST", "/v1/schedules", &body.to_string()).await;
    let path = format!("/v1/schedules/{}", made["id"].as_str().unwrap());
    world.ask("POST", &format!("{path}/pause"), "").await;
    let calls = [
        ("PATCH", path.clone(), r#"{"name":"t"}"#),
        ("POST", format!("{path}/fire"), ""),
        ("POST", format!("{path}/resume"), ""),
    ];
    for (method, path, body) in &calls {
        let (status, problem) = answer(world.request(method, path).body(*body)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (403, &json!("forbidden")), "{method} {path}");
        let other = world.request(method, path).header("laneway-credential-user", "d").body(*body);
        assert_eq!(answer(other).await.0, 403);
    }
    for (method, path, body) in &calls {
        let own = world.request(method, path).header("laneway-credential-user", "c").body(*body);
        let (status, response) = answer(own).await;
        assert_eq!(status, 200, "{method} {path}: {response}");
    }
    world.ask("DELETE", &path, "").await;
}

#[tokio::test]
async fn defect_13_a_retry_of_a_turn_with_credentials_requires_them() {
    let world = World::new().await;
    for (payload, holder) in [
        (json!({"kind": "agent_turn", "message": "hi", "credentialUserId": "c"}), 201),
        // A payload that cannot be read is bound to no user.
        (json!({"kind": "agent_turn", "message": 7, "credentialUserId": "c"}), 403),
        (json!({"kind": "agent_turn", "message": "hi"}), 201),
    ] {
        let job = world.submit(&json!({"kind": "agent_turn", "payload": payload}).to_string()).await;
        world.ask("POST", &format!("/v1/jobs/{job}/cancel"), "").await;
        let path = format!("/v1/jobs/{job}/retry");
        let bound = payload.get("credentialUserId").is_some();
        for user in [None, Some("d")] {
            let request = world.request("POST", &path);
            let request = user
                .into_iter()
                .fold(request, |request, user| request.header("laneway-credential-user", user));
            let (status, response) = answer(request).await;
            assert_eq!(status, if bound { 403 } else { 201 }, "{payload} by {user:?}: {response}");
        }
        let own = world.request("POST", &path).header("laneway-credential-user", "c");
        assert_eq!(answer(own).await.0, holder, "{payload}");
    }
}

#[tokio::test]
async fn defect_11_withheld_bodies_delay_no_other_client() {
    let world = World::closed().await;
    let (greedy, other) =
        (world.token(Some("greedy"), Role::Submitter).await, world.token(Some("b"), Role::Submitter).await);
    let mut withheld = Vec::new();
    for sent in [0, 70_000].into_iter().cycle().take(60) {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let head = format!(
            "POST /v1/jobs/batch HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {greedy}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            world.address,
            28 << 20
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; sent]).await.unwrap();
        withheld.push(stream);
    }
    let body = json!({"kind": "k", "payload": "x".repeat(200_000)}).to_string();
    for _ in 0..20 {
        let call = answer(world.request_as(&other, "POST", "/v1/jobs").body(body.clone()));
        let (status, response) =
            tokio::time::timeout(Duration::from_secs(4), call).await.expect("another tenant waits");
        assert_eq!(status, 201, "{response}");
    }
}

/// The head of a request with a token.
fn head(world: &World, token: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n", world.address)
}

/// Sends a request of another tenant on its own connection.
async fn responds_in_time(world: &World, token: &str) {
    let call = async {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(head(world, token, "/v1/stats").as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.map(|_| String::from_utf8_lossy(&status).into_owned())
    };
    let answered = tokio::time::timeout(Duration::from_secs(4), call).await.expect("another tenant waits");
    assert_eq!(answered.expect("the connection is kept"), "HTTP/1.1 200");
}

#[tokio::test]
async fn defect_11_silent_connections_lock_no_client_out() {
    let mut world = World::with_config("[server]\nconnections_max = 16").await;
    world.close().await;
    let other = world.token(Some("b"), Role::Viewer).await;
    let mut silent = Vec::new();
    for n in 0..40 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        // Half of them begin a head that never ends.
        stream.write_all(if n % 2 == 0 { b"" } else { b"GET / HT" }).await.unwrap();
        silent.push(stream);
    }
    responds_in_time(&world, &other).await;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(5), silent[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the oldest silent connection is still open");
}

#[tokio::test]
async fn defect_11_waiting_requests_of_one_tenant_leave_some_for_others() {
    let mut world = World::with_config("[server]\nconnections_max = 16\n[streams]\nmax = 8").await;
    world.close().await;
    let (greedy, other) =
        (world.token(Some("greedy"), Role::Submitter).await, world.token(Some("b"), Role::Submitter).await);
    let submit = |token: String| {
        let request = world.request_as(&token, "POST", "/v1/jobs").body(r#"{"kind":"k"}"#);
        async move { answer(request).await.1["id"].as_str().unwrap().to_owned() }
    };
    let (job, theirs) = (submit(greedy.clone()).await, submit(other.clone()).await);
    let wait = async || {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let head = head(&world, &greedy, &format!("/v1/jobs/{job}?wait=60s"));
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let probe = async || {
        let path = format!("/v1/jobs/{job}?wait=1ms");
        world.request_as(&greedy, "GET", &path).send().await.unwrap()
    };
    // Opens requests until eight wait, and returns the rejection of the ninth. On a slow machine the ninth may come before
    // one of the eight, which is rejected instead and sent again.
    let fill = async |waiting: &mut Vec<TcpStream>| {
        while waiting.len() < 8 {
            waiting.push(wait().await);
        }
        loop {
            if let Some(at) = waiting.iter().position(|stream| stream.try_read(&mut [0]).is_ok()) {
                waiting.remove(at);
                waiting.push(wait().await);
            }
            let response = probe().await;
            if response.status() != 200 {
                break response;
            }
        }
    };
    let mut waiting = Vec::new();
    fill(&mut waiting).await;
    // The server may have read the eight in any order. One of them makes room for a request that certainly is the newest.
    waiting.pop();
    while probe().await.status() != 200 {}
    let ninth = fill(&mut waiting).await;
    assert_eq!((ninth.status().as_u16(), ninth.headers()["retry-after"].to_str().unwrap()), (429, "5"));
    let response: serde_json::Value = ninth.json().await.unwrap();
    assert!(response["detail"].as_str().unwrap().contains("streams.max"), "{response}");
    responds_in_time(&world, &other).await;
    // Another tenant replaces the newest one, which gets its response early.
    let path = format!("/v1/jobs/{theirs}?wait=1ms");
    assert_eq!(answer(world.request_as(&other, "GET", &path)).await.0, 200);
    let early = async {
        let mut status = [0; 12];
        waiting[7].read_exact(&mut status).await.unwrap();
        String::from_utf8_lossy(&status).into_owned()
    };
    let early = tokio::time::timeout(Duration::from_secs(10), early).await.expect("it responds early");
    assert_eq!(early, "HTTP/1.1 200");
}
