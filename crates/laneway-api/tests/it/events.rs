//! The event stream: live, from a number on, with its gaps, and its end.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use laneway_core::{Failure, Role};
use laneway_runtime::Handlers;
use reqwest::RequestBuilder;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{World, answer, write_down};

/// Reads a stream frame by frame.
struct Reading {
    stream: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<axum::body::Bytes>> + Send>>,
    buffer: String,
}

/// One frame of a stream.
#[derive(Debug, Default, PartialEq)]
struct Frame {
    id: Option<u64>,
    kind: String,
    data: Value,
}

impl Reading {
    /// Opens a stream; returns when it is established.
    async fn new(request: RequestBuilder) -> Reading {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert!(response.headers().contains_key("request-id"));
        let mut reading = Reading { stream: Box::pin(response.bytes_stream()), buffer: String::new() };
        assert_eq!(reading.text().await.as_deref(), Some("retry: 1000"));
        reading
    }

    /// The next block of text. `None`: the stream has ended.
    async fn text(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.buffer = rest;
                return Some(block);
            }
            match self.stream.next().await {
                Some(Ok(bytes)) => self.buffer.push_str(std::str::from_utf8(&bytes).unwrap()),
                _ => return None,
            }
        }
    }

    async fn frame(&mut self) -> Option<Frame> {
        let text = self.text().await?;
        let mut frame = Frame::default();
        for line in text.lines() {
            match line.split_once(": ").unwrap() {
                ("id", id) => frame.id = Some(id.parse().unwrap()),
                ("event", kind) => frame.kind = kind.to_owned(),
                ("data", data) => frame.data = serde_json::from_str(data).unwrap(),
                _ => {}
            }
        }
        Some(frame)
    }
}

#[tokio::test]
async fn streams_live_events() {
    let world = World::new().await;
    world.submit(r#"{"kind":"before"}"#).await;
    let mut reading = Reading::new(world.request("GET", "/v1/events")).await;
    let id = world.submit(r#"{"kind":"after","agent":"a"}"#).await;
    let frame = reading.frame().await.unwrap();
    assert_eq!((frame.kind.as_str(), frame.id), ("job.submitted", frame.data["number"].as_u64()));
    assert_eq!((&frame.data["job"]["id"], &frame.data["job"]["agent"]), (&id.into(), &"a".into()));
}

#[tokio::test]
async fn continues_after_the_last_seen_event() {
    let world = World::new().await;
    for n in 0..40 {
        world.submit(&format!(r#"{{"kind":"k{n}"}}"#)).await;
    }
    let mut all = Reading::new(world.request("GET", "/v1/events?after=0")).await;
    let mut numbers = Vec::new();
    for _ in 0..40 {
        numbers.push(all.frame().await.unwrap().id.unwrap());
    }
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order and once: {numbers:?}");
    for seen in [0, 7, 39] {
        let last = numbers[seen];
        let mut rest = Reading::new(world.request("GET", "/v1/events").header("last-event-id", last)).await;
        for number in &numbers[seen + 1..] {
            assert_eq!(rest.frame().await.unwrap().id, Some(*number));
        }
        world.submit(r#"{"kind":"live"}"#).await;
        assert!(rest.frame().await.unwrap().id > Some(last));
        numbers.push(world.scheduler.events().latest());
    }
    let (status, _) = answer(world.request("GET", "/v1/events").header("last-event-id", "x")).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn sends_one_gap_for_purged_events() {
    let world = World::with_config("[limits]\nevent_retention = \"1h\"").await;
    for _ in 0..3 {
        world.submit(r#"{"kind":"k"}"#).await;
    }
    let gone = world.scheduler.events().latest();
    world.clock.advance(laneway_core::Span::hours(3));
    // Enough that the earlier events leave the ring and are purged.
    for _ in 0..18 {
        let jobs = vec![r#"{"kind":"k"}"#; 1_000].join(",");
        world.ask("POST", "/v1/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).await;
    }
    let first = world.scheduler.read(|reader| reader.first_event()).await.unwrap();
    assert!(first > gone, "old events were purged (the oldest is {first})");
    let mut reading = Reading::new(world.request("GET", "/v1/events?after=1")).await;
    let gap = reading.frame().await.unwrap();
    assert_eq!((gap.kind.as_str(), &gap.data["after"]), ("gap", &1.into()));
    let next = reading.frame().await.unwrap();
    assert_eq!(next.id, gap.data["resumes_at"].as_u64());
    assert_eq!(gap.id.map(|id| id + 1), next.id, "a reconnect after the gap's number misses no event");
}

#[tokio::test]
async fn follows_one_job_and_its_progress() {
    let world = World::new().await;
    let mut reading = Reading::new(world.request("GET", "/v1/events")).await;
    world
        .run(Handlers::new().on("k", |job| async move {
            job.progress(0.25, "a quarter");
            Ok::<_, Failure>(())
        }))
        .await;
    let id = world.submit(r#"{"kind":"k"}"#).await;
    world.wait(&id).await;
    let mut only = Reading::new(world.request("GET", &format!("/v1/events?after=0&job={id}"))).await;
    for kind in ["job.submitted", "job.started", "job.succeeded"] {
        let frame = only.frame().await.unwrap();
        assert_eq!((frame.kind.as_str(), &frame.data["job"]["id"]), (kind, &id.as_str().into()));
    }
    loop {
        let frame = reading.frame().await.unwrap();
        if frame.kind == "job.progress" {
            assert_eq!((frame.id, &frame.data["progress"]["message"]), (None, &"a quarter".into()));
            break;
        }
    }
}

#[tokio::test]
async fn ends_when_the_token_is_revoked() {
    let world = World::closed().await;
    let token = world.token(Some("t"), Role::Viewer).await;
    let mut reading = Reading::new(world.request_as(&token, "GET", "/v1/events")).await;
    let id = token.split('_').nth(1).unwrap();
    world.ask("DELETE", &format!("/v1/tokens/{id}"), "").await;
    while reading.frame().await.is_some() {}
}

#[tokio::test]
async fn an_open_stream_ends_when_the_server_is_closed() {
    let world = World::new().await;
    let mut reading = Reading::new(world.request("GET", "/v1/events")).await;
    world.token(None, Role::Admin).await;
    while reading.frame().await.is_some() {}
}

#[tokio::test]
async fn ends_when_the_server_stops() {
    let world = World::new().await;
    let mut reading = Reading::new(world.request("GET", "/v1/events")).await;
    world.shutdown.cancel();
    assert_eq!(reading.frame().await, None);
}

#[tokio::test]
async fn sends_a_gap_for_a_number_that_never_existed() {
    let world = World::new().await;
    world.submit(r#"{"kind":"k"}"#).await;
    let latest = world.scheduler.events().latest();
    for after in [latest + 1, 4_711, u64::MAX] {
        let mut reading =
            Reading::new(world.request("GET", "/v1/events").header("last-event-id", after)).await;
        let gap = reading.frame().await.unwrap();
        let latest = world.scheduler.events().latest();
        assert_eq!((gap.kind.as_str(), gap.id), ("gap", Some(latest)));
        assert_eq!(
            (gap.data["after"].as_u64(), gap.data["resumes_at"].as_u64()),
            (Some(after), Some(latest + 1))
        );
        world.submit(r#"{"kind":"k"}"#).await;
        let next = reading.frame().await.unwrap();
        assert_eq!((next.kind.as_str(), next.id), ("job.submitted", Some(latest + 1)));
    }
    let latest = world.scheduler.events().latest();
    let mut reading = Reading::new(world.request("GET", "/v1/events").header("last-event-id", latest)).await;
    world.submit(r#"{"kind":"k"}"#).await;
    assert_eq!(reading.frame().await.unwrap().kind, "job.submitted", "the newest one is no gap");
}

#[tokio::test]
async fn streams_audit_events_only_to_callers_with_permission() {
    let world = World::closed().await;
    let first = world.scheduler.events().latest();
    let mut readings = Vec::new();
    for (role, tenant, audited) in [
        (Role::Operator, None, true),
        (Role::Operator, Some("acme"), true),
        (Role::Viewer, None, false),
        (Role::Submitter, None, false),
        (Role::Viewer, Some("acme"), false),
    ] {
        let token = world.token(tenant, role).await;
        readings.push((token, role, tenant, audited));
    }
    world.ask("PATCH", "/v1/config", r#"{"limits":{"running_max":7}}"#).await;
    let bad = world.request("POST", "/v1/jobs").header("laneway-tenant", "acme").body("{");
    assert_eq!(answer(bad).await.0, 400);
    let last = world.request("POST", "/v1/jobs").header("laneway-tenant", "acme").body(r#"{"kind":"last"}"#);
    assert_eq!(answer(last).await.0, 201);
    for (token, role, tenant, audited) in readings {
        let path = format!("/v1/events?after={first}");
        let mut reading = Reading::new(world.request_as(&token, "GET", &path)).await;
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|kind| kind != "job.submitted") {
            kinds.push(reading.frame().await.unwrap().kind);
        }
        kinds.pop();
        assert_eq!(!kinds.is_empty(), audited, "{role:?} {tenant:?}: {kinds:?}");
        assert_eq!(kinds.contains(&"call.rejected".to_owned()), audited, "{role:?} {tenant:?}: {kinds:?}");
        let sees_server = audited && tenant.is_none();
        assert_eq!(
            kinds.contains(&"config.changed".to_owned()),
            sees_server,
            "{role:?} {tenant:?}: {kinds:?}"
        );
    }
}

#[tokio::test]
async fn defect_10_a_slow_reader_is_cut_with_a_gap_that_it_can_resume_from() {
    let world = World::with_ring(64).await;
    let mut slow = Reading::new(world.request("GET", "/v1/events")).await;
    world.submit(r#"{"kind":"k"}"#).await;
    let seen = slow.frame().await.unwrap().id.unwrap();
    // More at once than is kept in memory.
    let jobs = vec![r#"{"kind":"k"}"#; 1_000].join(",");
    world.ask("POST", "/v1/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).await;
    let gap = slow.frame().await.unwrap();
    assert_eq!((gap.kind.as_str(), gap.id), ("gap", None), "the reader's own number stays: {gap:?}");
    assert_eq!((&gap.data["after"], &gap.data["reason"]), (&seen.into(), &"slow_reader".into()));
    assert_eq!(slow.frame().await, None, "the stream ends");
    let mut again = Reading::new(world.request("GET", "/v1/events").header("last-event-id", seen)).await;
    for number in seen + 1..=seen + 1_000 {
        assert_eq!(again.frame().await.unwrap().id, Some(number));
    }
}

#[tokio::test]
async fn defect_10_one_viewer_cannot_take_all_streams() {
    let mut world = World::with_config("[streams]\nmax = 4").await;
    world.close().await;
    let (greedy, other) =
        (world.token(Some("a"), Role::Viewer).await, world.token(Some("b"), Role::Viewer).await);
    let mut readings = Vec::new();
    for _ in 0..4 {
        readings.push(Reading::new(world.request_as(&greedy, "GET", "/v1/events")).await);
    }
    let fifth = write_down(world.request_as(&greedy, "GET", "/v1/events")).await;
    assert!(fifth.starts_with("429") && fifth.contains("retry-after: 5"), "{fifth}");
    assert!(fifth.contains("(streams.max)"), "the limit is named: {fifth}");
    let mut theirs = Vec::new();
    for _ in 0..2 {
        theirs.push(Reading::new(world.request_as(&other, "GET", "/v1/events")).await);
    }
    // The newest two were closed; their last comment says why.
    for reading in readings.drain(2..) {
        let mut reading = reading;
        assert!(reading.text().await.unwrap().contains("another caller has fewer"));
        assert_eq!(reading.text().await, None);
    }
    let third = answer(world.request_as(&other, "GET", "/v1/events")).await;
    assert_eq!((third.0.as_u16(), &third.1["code"]), (429, &"too_many".into()), "both have half now");
    drop((readings, theirs));
}

/// A stop ends the streams of clients that do not read, and does not wait for them.
#[tokio::test]
async fn defect_10_a_stop_does_not_wait_for_clients_that_do_not_read() {
    let world = World::new().await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let head = format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", world.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 200");
        unread.push(stream);
    }
    // More events than the kernel keeps for a client that does not read.
    let jobs = vec![r#"{"kind":"k"}"#; 5_000].join(",");
    for _ in 0..2 {
        world.ask("POST", "/v1/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).await;
    }
    // A client that reads sees the last event: those before it were written, or wait for their client.
    let mut reading = Reading::new(world.request("GET", "/v1/events?after=9999")).await;
    assert!(reading.frame().await.is_some());
    drop(reading);
    let began = Instant::now();
    world.stop().await;
    assert!(began.elapsed() < Duration::from_secs(6), "the stop took {:?}", began.elapsed());
}
