//! Every error in its golden form, and bodies that must never cause more than a 400.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use expect_test::expect;
use laneway_api::authority::{self, Who};
use laneway_api::{Code, routes};
use laneway_core::command::{AdminCommand, Command};
use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Effects, TokenRecord};
use laneway_store::{Epoch, Keys, Loaded, MemoryStore, Priors, Reader, Store, StoreError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{World, answer, problem};

#[tokio::test]
async fn a_problem_has_this_form() {
    let world = World::new().await;
    expect![[r#"
        400 Bad Request
        content-type: application/problem+json
        {
          "code": "invalid_field",
          "detail": "timeout must be a duration with units, such as 30s, 5m, 1h30m or 500ms",
          "field": "timeout",
          "request_id": "<request>",
          "status": 400,
          "title": "A field has an invalid value",
          "type": "urn:laneway:problem:invalid_field"
        }
    "#]]
    .assert_eq(&world.talk("POST", "/v1/jobs", r#"{"kind":"k","timeout":"30"}"#).await);
}

#[tokio::test]
async fn errors_in_the_body() {
    let world = World::new().await;
    let deep = format!(r#"{{"kind":"k","payload":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    let mut problems = String::new();
    for body in [
        r#"{"kind":"k""#,
        r#"{"kind":"k","knd":"l"}"#,
        &deep,
        r#"{"kind":"k","deadline":"2020-01-01T00:00:00Z"}"#,
    ] {
        problems += &world.problem("POST", "/v1/jobs", body).await;
    }
    let form = world.request("POST", "/v1/jobs").header("content-type", "text/plain").body(r#"{"kind":"k"}"#);
    problems += &problem(form).await;
    expect![[r#"
        400 malformed_json: The body is not JSON
          EOF while parsing an object at line 1 column 11
        400 unknown_field: The field is unknown
          field: knd
          knd: unknown field `knd`, expected one of `kind`, `payload`, `agent`, `lane`, `session`, `priority`, `keys`, `not_before`, `deadline`, `queue_timeout`, `timeout`, `retry`, `idempotency_key`, `tags`, `callback`, `cost`, `quiet`, `hours`, `expected_duration`, `unique`, `worker`, `traceparent`, `tracestate`
        400 too_deep: The body is nested too deeply
          the body is nested deeper than 64 levels; use a flatter body
        422 deadline_past: The deadline has passed
          field: deadline
          deadline: has passed; give a time in the future
        415 unsupported_media_type: The body must be JSON
          send the body as content-type: application/json
    "#]]
    .assert_eq(&problems);
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0, "nothing was stored");
}

#[tokio::test]
async fn errors_in_the_path() {
    let world = World::new().await;
    let mut problems = String::new();
    for (method, path) in [
        ("GET", "/v1/jobs/7"),
        ("GET", "/v1/jobs/00000000-0000-7000-8000-000000000000"),
        ("GET", "/v1/nothing"),
        ("DELETE", "/v1/jobs"),
        ("GET", "/v1/jobs?limit=0"),
        ("GET", "/v1/jobs?lne=x"),
    ] {
        problems += &world.problem(method, path, "").await;
    }
    expect![[r#"
        400 invalid_id: The id is invalid
          a job id looks like <id>; the response to the submit has it
        404 not_found: It does not exist
          the job does not exist; it may have been removed after its retention
        404 not_found: It does not exist
          the path does not exist; /openapi.json lists all paths
        405 method_not_allowed: The path does not support this method
          allow: POST,GET,HEAD
          the path does not support this method; the Allow header lists the methods that it supports
        400 invalid_field: A field has an invalid value
          field: limit
          limit must be from 1 to 500
        400 unknown_field: The field is unknown
          field: lne
          lne: unknown parameter; did you mean lane?
    "#]]
    .assert_eq(&problems);
    for path in ["/v1/jobs/%ff", "/v1/jobs/%00", "/v1/lanes/%ff", "/v1/tokens/%ff%fe"] {
        assert_eq!(answer(world.request("GET", path)).await.0, 400, "{path}");
    }
}

#[tokio::test]
async fn full_queues_and_stopping_servers() {
    let world = World::with_config("[lanes.main]\nqueued_max = 1").await;
    let job = r#"{"kind":"k"}"#;
    world.submit(job).await;
    let mut problems = world.problem("POST", "/v1/jobs", job).await;
    for commands in
        [vec![AdminCommand::StorageLow(true)], vec![AdminCommand::StorageLow(false), AdminCommand::Drain]]
    {
        for command in commands {
            world.scheduler.send(Command::Admin(command)).await.unwrap();
        }
        problems += &world.problem("POST", "/v1/jobs", job).await;
    }
    expect![[r#"
        429 queue_full: The queue is full
          retry-after: 1
          the queue is full (lane: queued_max): 1 of 1 jobs wait; submit again later
        507 storage_low: Storage is low
          retry-after: 30
          storage runs low; free disk space, then submit again
        503 draining: The server is stopping
          retry-after: 5
          the server is stopping; submit again after it has restarted
    "#]]
    .assert_eq(&problems);
}

/// A store whose disk can fail.
struct Fragile {
    store: MemoryStore,
    is_gone: Arc<AtomicBool>,
}

impl Store for Fragile {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.store.load(visit)
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.store.tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.store.overrides()
    }

    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(StoreError::Failed("the disk failed".to_owned()));
        }
        self.store.commit(epoch, effects)
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.store.priors(keys)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.store.reader()
    }
}

#[tokio::test]
async fn a_failed_commit_is_not_reported_as_a_stop() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let store = Fragile { store: MemoryStore::new(), is_gone: Arc::clone(&is_gone) };
    let world = World::over(Box::new(store), "").await;
    world.submit(r#"{"kind":"k"}"#).await;
    is_gone.store(true, Ordering::Relaxed);
    expect![[r#"
        503 unavailable: The server stopped before it responded
          retry-after: 5
          the server stopped before it could respond; the change may or may not have happened; send the request again after its restart, with the same idempotency key
    "#]]
    .assert_eq(&world.problem("POST", "/v1/jobs", r#"{"kind":"k"}"#).await);
    for (method, path, body) in [
        ("POST", "/v1/jobs", r#"{"kind":"k"}"#),
        ("PATCH", "/v1/config", r#"{"limits":{"running_max":7}}"#),
        ("GET", "/v1/stats", ""),
    ] {
        let (status, problem) = answer(world.request(method, path).body(body)).await;
        assert_eq!((status.as_u16(), problem["code"].as_str()), (503, Some("unavailable")), "{path}");
    }
}

#[tokio::test]
async fn unexpected_parameters_and_bodies_are_rejected() {
    let world = World::new().await;
    let id = world.submit(r#"{"kind":"unserved"}"#).await;
    let mut asked = 0;
    for route in routes() {
        if authority::of(route.operation).unwrap().who == Who::Anyone || route.operation == "get_metrics" {
            continue;
        }
        let path = route.path.replace("{id}", &id).replace("{name}", "main").replace("{profile}", "main");
        let mut requests = vec![world.request(route.method.as_str(), &format!("{path}?nonsense=1"))];
        if authority::of(route.operation).unwrap().mutates {
            requests.push(world.request(route.method.as_str(), &path).body(r#"{"nonsense":1}"#));
        }
        for request in requests {
            let (status, problem) = answer(request).await;
            let response = (status.as_u16(), problem["code"].as_str(), problem["field"].as_str());
            let expected = (400, Some("unknown_field"), Some("nonsense"));
            assert_eq!(response, expected, "{}: {problem}", route.operation);
        }
        asked += 1;
    }
    assert!(asked > 20, "{asked} routes were asked");
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{id}"), "").await["state"], "queued", "nothing was done");
    for body in ["[]", "x", "null"] {
        let cancel = world.request("POST", &format!("/v1/jobs/{id}/cancel")).body(body);
        assert_eq!(answer(cancel).await.0, 400, "{body}");
    }
    world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "{}").await;
}

#[tokio::test]
async fn names_the_one_of_two_fields_that_is_wrong() {
    let world = World::new().await;
    for (body, field) in [
        (r#"{"kind":"k","deadline":"2020-01-01T00:00:00Z"}"#, "deadline"),
        (
            r#"{"kind":"k","not_before":"2031-01-01T00:00:00Z","deadline":"2030-01-01T00:00:00Z"}"#,
            "not_before",
        ),
    ] {
        let (status, problem) = answer(world.request("POST", "/v1/jobs").body(body)).await;
        let response = (status.as_u16(), problem["code"].as_str(), problem["field"].as_str());
        assert_eq!(response, (422, Some("deadline_past"), Some(field)));
    }
    let last = world.ask("POST", "/v1/jobs", r#"{"kind":"k","not_before":"9999-12-31T23:59:59Z"}"#).await;
    assert_eq!(
        (&last["state"], &last["not_before"]),
        (&"scheduled".into(), &"9999-12-31T23:59:59.000Z".into())
    );
}

#[tokio::test]
async fn strict_servers_reject_unknown_kinds() {
    let world = World::with_config("[limits]\nstrict_kinds = true").await;
    let (status, problem) = answer(world.request("POST", "/v1/jobs").body(r#"{"kind":"unserved"}"#)).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (422, Some("unknown_kind")));
}

#[tokio::test]
async fn permissions_and_sites() {
    let open = World::new().await;
    let host = |host: &str| open.request("GET", "/v1/jobs").header("host", host);
    let origin =
        |origin: &str| open.request("POST", "/v1/jobs").header("origin", origin).body(r#"{"kind":"k"}"#);
    assert_eq!(answer(host("localhost")).await.0, 200);
    assert_eq!(answer(origin(&format!("http://{}", open.address))).await.0, 201);
    let closed = World::closed().await;
    let bare = closed.client.get(format!("http://{}/v1/jobs", closed.address));
    let viewer = closed.token(Some("t"), laneway_core::Role::Viewer).await;
    let mut problems = String::new();
    for request in [
        host("evil.example"),
        origin("http://evil.example"),
        bare,
        closed.request_as(&viewer, "POST", "/v1/jobs").body("{}"),
        closed.request_as(&viewer, "GET", "/metrics"),
    ] {
        problems += &problem(request).await;
    }
    expect![[r#"
        421 misdirected: The request is for another host
          the Host header names neither this machine's loopback address nor one of server.allowed_hosts; call 127.0.0.1 or localhost, or add the host
        403 origin_denied: Pages of this origin may not call the server
          a page of another origin may not call without a token; add its origin to server.allowed_origins
        401 unauthorized: A valid token is required
          www-authenticate: Bearer realm="laneway"
          send a token as Authorization: Bearer lw_…; an admin creates one with `laneway token create`
        403 forbidden: The caller has no permission for this
          the role viewer may not do this; use a token with another role
        403 forbidden: The caller has no permission for this
          this concerns the whole server; use a server-wide token (tenant *)
    "#]]
    .assert_eq(&problems);
    let any_host = closed.request("GET", "/v1/jobs").header("host", "any.example");
    assert_eq!(answer(any_host).await.0, 200, "a token is enough");
}

#[tokio::test]
async fn large_bodies_are_rejected_before_they_are_read() {
    let world = World::with_config("[server]\nbody_max = \"1KiB\"").await;
    let body = format!(r#"{{"kind":"k","payload":"{}"}}"#, "x".repeat(1_024));
    expect![[r#"
        413 body_too_large: The body is too large
          the body has more than 1024 bytes (server.body_max); send less, or store large data elsewhere and send its URL
    "#]]
    .assert_eq(&world.problem("POST", "/v1/jobs", &body).await);
    // Only the head is sent: the response must not wait for the body.
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream
        .write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(read_status(&mut stream).await, "HTTP/1.1 413 Payload Too Large");
    // A body without a length is counted as it arrives.
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream
        .write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    for _ in 0..2 {
        stream.write_all(format!("400\r\n{}\r\n", "x".repeat(0x400)).as_bytes()).await.unwrap();
    }
    assert_eq!(read_status(&mut stream).await, "HTTP/1.1 413 Payload Too Large");
    let in_batch = format!(r#"{{"jobs":[{{"kind":"k"}},{body}]}}"#);
    let (status, done) = answer(world.request("POST", "/v1/jobs/batch").body(in_batch)).await;
    assert_eq!((status.as_u16(), done["items"][1]["status"].as_u64()), (200, Some(413)));
}

async fn read_status(stream: &mut TcpStream) -> String {
    let mut buffer = vec![0; 4_096];
    let read =
        tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await.unwrap().unwrap();
    String::from_utf8_lossy(&buffer[..read]).lines().next().unwrap_or("").to_owned()
}

#[tokio::test]
async fn odd_bodies_never_cause_more_than_400() {
    let world = World::new().await;
    let texts: [&[u8]; 20] = [
        b"",
        b"null",
        b"[]",
        b"\"\"",
        b"\xef\xbb\xbf{\"kind\":\"k\"}",
        b"{\"kind\":\"\xff\"}",
        b"{\"kind\":\"k\0\"}",
        b"{\"kind\":\"\\u0000\"}",
        b"{\"kind\":\"\\ud800\"}",
        b"{\"kind\":\"k\",\"payload\":\"\\ud800\"}",
        b"{\"kind\":\"k\",\"payload\":\"\\u0000\"}",
        b"{\"kind\":NaN}",
        b"{\"kind\":\"k\",\"priority\":1e400}",
        b"{\"kind\":\"k\",\"priority\":18446744073709551616}",
        b"{\"kind\":\"k\",\"priority\":-9223372036854775809}",
        b"{\"kind\":\"k\",\"kind\":\"k\"}",
        b"{\"kind\":\"k\",\"keys\":{\"a\":\"1\",\"a\":\"1\"}}",
        b"{\"kind\":\"k\"}{}",
        b"{\"kind\":\"k\",}",
        b"{\"kind\":\"k\",\"retry\":[]}",
    ];
    for text in texts {
        for path in ["/v1/jobs", "/v1/jobs/batch"] {
            let (status, problem) = answer(world.request("POST", path).body(text)).await;
            assert_eq!(status, 400, "{path} {:?}: {problem}", String::from_utf8_lossy(text));
        }
    }
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0);
}

#[tokio::test]
async fn an_incomplete_head_ends_the_connection() {
    let world = World::new().await;
    for head in [
        "GET /livez HTTP/1.1\r\nhost: a\r\nhost : b\r\n\r\n",
        "GET /livez HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(read_status(&mut stream).await.starts_with("HTTP/1.1 400"), "{head:?}");
    }
}

#[test]
fn every_code_is_in_the_documentation() {
    let page = include_str!("../../../../docs/http-api.md");
    for code in Code::ALL {
        assert!(
            page.contains(&format!("| `{}` | {} |", code.as_str(), code.status().as_u16())),
            "{}",
            code.as_str()
        );
    }
}

/// The responses to a client that writes its whole request before it reads, as most do, and then reuses the connection.
async fn writes_first(world: &World, head: &str, len: usize) -> (String, String) {
    let patience = Duration::from_secs(60);
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!("POST {head} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len}\r\n\r\n");
    let talk = async {
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = vec![b' '; 64 << 10];
        let mut left = len;
        while left > 0 {
            let now = left.min(chunk.len());
            stream.write_all(&chunk[..now]).await.expect("the server still listens");
            left -= now;
        }
        let first = read_answer(&mut stream).await;
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        (first, read_answer(&mut stream).await)
    };
    tokio::time::timeout(patience, talk).await.expect("the server answers")
}

/// The status line of the next response. Its body is read as well.
async fn read_answer(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await.expect("the connection stays");
        read.push(byte);
    }
    let head = String::from_utf8(read).unwrap().to_ascii_lowercase();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().trim();
    let mut body = vec![0; len.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    head.lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn defect_18_clients_that_write_first_receive_a_413() {
    let world = World::new().await;
    for (path, len) in [("/v1/jobs", 8 << 20), ("/v1/jobs/batch", 40 << 20)] {
        let (first, second) = writes_first(&world, path, len).await;
        assert_eq!(first, "http/1.1 413 payload too large", "{path}");
        assert_eq!(second, "http/1.1 200 ok", "{path}: the connection can be used again");
    }
    world.stop().await;
}

#[tokio::test]
async fn defect_18_and_every_response_that_comes_before_the_body() {
    let world = World::closed().await;
    let (first, second) = writes_first(&world, "/v1/jobs", 700 << 10).await;
    assert_eq!((first.as_str(), second.as_str()), ("http/1.1 401 unauthorized", "http/1.1 200 ok"));
    let (first, second) = writes_first(&world, "/nowhere", 3 << 20).await;
    assert_eq!((first.as_str(), second.as_str()), ("http/1.1 404 not found", "http/1.1 200 ok"));
    world.stop().await;
}

#[tokio::test]
async fn defect_18_a_client_that_expects_100_continue_gets_a_413_for_a_large_body() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 8388608\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let reading = stream.read_to_end(&mut response);
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("it is closed").unwrap();
    let response = String::from_utf8_lossy(&response);
    assert!(response.starts_with("HTTP/1.1 413") && !response.contains("100 Continue"), "{response}");
    world.stop().await;
}
