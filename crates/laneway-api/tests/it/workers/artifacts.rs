//! Artifacts, downloaded through their worker.

use std::path::PathBuf;

use futures_util::StreamExt;
use laneway_client::worker::{Outcome, ResourceBody, Task, Worker};
use laneway_core::{Role, Span};
use laneway_wire::frame::{Frame, JsonObject, Message, MessageType, ResourceRead};
use reqwest::Response;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::peer::Peer;
use crate::world::{World, answer};

/// Bytes without repetition.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.extend_from_slice(&(state >> 24).to_le_bytes()[..4]);
    }
    bytes.truncate(len);
    bytes
}

/// A worker of the SDK whose handler creates an artifact of this body.
fn maker(world: &World, body: ResourceBody, metadata: Value) -> JoinHandle<()> {
    let url = format!("ws://{}/v1/workers/connect", world.address);
    let handler = move |task: Task| {
        let (body, metadata) = (body.clone(), metadata.clone());
        async move {
            let mut artifact = task.keep("file", body, None)?;
            artifact.metadata = JsonObject::of(&metadata).ok();
            Ok(Outcome::default().artifact(artifact))
        }
    };
    let worker = Worker::builder(&url, "w1").handler("make", handler).build().unwrap();
    tokio::spawn(async move { worker.run().await.unwrap() })
}

/// The artifact of a job of the kind `make`, as the server lists it.
async fn make(world: &World) -> Value {
    let id = world.submit(r#"{"kind": "make"}"#).await;
    world.wait(&id).await;
    let list = world.ask("GET", &format!("/v1/jobs/{id}/artifacts"), "").await;
    list["artifacts"][0].clone()
}

/// A worker with handwritten frames, and the path of its artifact.
async fn made_by_hand(world: &World, artifact: Value) -> (Peer, String) {
    let mut peer = Peer::registered(world, "w1", &["make"], 4).await;
    world.submit(r#"{"kind": "make"}"#).await;
    let (frame, job, seq) = peer.receive_dispatch().await;
    peer.take(&frame).await;
    let mut described = json!({"resource_id": "res-1", "worker_id": "w1", "type": "file"});
    described.as_object_mut().unwrap().extend(artifact.as_object().unwrap().clone());
    let result =
        json!({"run_id": job, "task_id": job, "status": "SUCCEEDED", "result": {}, "artifacts": [described]});
    let brought = peer.send("result", result, Some((&job, seq))).await;
    peer.receive_ack(&brought).await;
    let list = world.ask("GET", &format!("/v1/jobs/{job}/artifacts"), "").await;
    (peer, list["artifacts"][0]["href"].as_str().unwrap().to_owned())
}

/// Sends a request while the test goes on.
fn begin(world: &World, path: &str) -> JoinHandle<Response> {
    let request = world.request("GET", path);
    tokio::spawn(async move { request.send().await.unwrap() })
}

async fn receive_read(peer: &mut Peer) -> (Frame, ResourceRead) {
    let frame = peer.receive(MessageType::ResourceRead).await;
    let Message::ResourceRead(read) = frame.message.clone() else { unreachable!() };
    (frame, read)
}

async fn send_answer(peer: &mut Peer, kind: &str, to: &Frame, payload: Value) {
    let mut frame = peer.frame(kind, payload, None);
    frame["corr"] = json!(to.id.as_str());
    peer.send_raw(&frame.to_string()).await;
}

#[tokio::test]
async fn an_artifact_is_downloaded_through_its_worker() {
    let world = World::new().await;
    let metadata = json!({"name": "../für alle.txt", "mime_type": "text/plain"});
    let running = maker(&world, ResourceBody::Bytes(b"0123456789".as_slice().into()), metadata);
    let artifact = make(&world).await;
    let (id, href) = (artifact["id"].as_str().unwrap(), artifact["href"].as_str().unwrap());
    assert_eq!(href, format!("/v1/artifacts/{id}"));
    let response = world.request("GET", href).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        (header("content-type"), header("content-length")),
        ("text/plain".to_owned(), "10".to_owned())
    );
    assert_eq!(
        header("content-disposition"),
        "attachment; filename=\"f_r alle.txt\"; filename*=UTF-8''f%C3%BCr%20alle.txt"
    );
    assert_eq!(
        (header("x-content-type-options"), header("cache-control")),
        ("nosniff".to_owned(), "no-store".to_owned())
    );
    assert!(header("content-security-policy").contains("sandbox"));
    assert_eq!(response.bytes().await.unwrap(), "0123456789");
    running.abort();
}

#[tokio::test]
async fn a_range_can_be_downloaded() {
    let world = World::new().await;
    let running = maker(&world, ResourceBody::Bytes(b"0123456789".as_slice().into()), json!({}));
    let artifact = make(&world).await;
    let href = artifact["href"].as_str().unwrap();
    let ask = async |range: &str| {
        let response = world.request("GET", href).header("range", range).send().await.unwrap();
        let described =
            response.headers().get("content-range").map(|described| described.to_str().unwrap().to_owned());
        (response.status().as_u16(), described, response.text().await.unwrap())
    };
    let partial = |described: &str, text: &str| (206, Some(described.to_owned()), text.to_owned());
    assert_eq!(ask("bytes=2-4").await, partial("bytes 2-4/10", "234"));
    assert_eq!(ask("bytes=7-").await, partial("bytes 7-9/10", "789"));
    assert_eq!(ask("bytes=8-99").await, partial("bytes 8-9/10", "89"));
    assert_eq!(ask("bytes=-3").await, partial("bytes 7-9/10", "789"));
    assert_eq!(ask("bytes=-99").await, partial("bytes 0-9/10", "0123456789"));
    assert_eq!(
        ask("bytes=0-1,4-5").await,
        (200, None, "0123456789".to_owned()),
        "several ranges are not split"
    );
    let farthest = format!("bytes={}-", u64::MAX);
    for beyond in ["bytes=10-", "bytes=-0", "bytes=99-100", &farthest] {
        let (status, _, body) = ask(beyond).await;
        assert_eq!(status, 416, "{beyond}");
        assert!(body.contains("range_not_satisfiable") && body.contains("10 bytes"), "{body}");
    }
    running.abort();
}

#[tokio::test]
async fn an_empty_artifact_can_be_downloaded() {
    let world = World::new().await;
    let running = maker(&world, ResourceBody::Bytes([].into()), json!({}));
    let artifact = make(&world).await;
    let href = artifact["href"].as_str().unwrap();
    let response = world.request("GET", href).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.content_length()), (200, Some(0)));
    assert_eq!(response.bytes().await.unwrap(), "");
    let response = world.request("HEAD", href).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-length"]),
        (200, &"0".parse().unwrap())
    );
    running.abort();
}

#[tokio::test]
async fn twenty_megabytes_come_part_by_part_and_byte_for_byte() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (path, made): (PathBuf, Vec<u8>) = (folder.path().join("made"), noise(20_000_003));
    std::fs::write(&path, &made).unwrap();
    let running = maker(&world, ResourceBody::File(path), json!({"mime_type": "text/html; x"}));
    let artifact = make(&world).await;
    assert_eq!(artifact["size_bytes"], made.len());
    let href = artifact["href"].as_str().unwrap();
    let response = world.request("GET", href).send().await.unwrap();
    assert_eq!(
        response.headers()["content-type"],
        "application/octet-stream",
        "an invalid media type is not sent"
    );
    let (mut stream, mut at) = (response.bytes_stream(), 0);
    while let Some(bytes) = stream.next().await {
        let bytes = bytes.unwrap();
        assert!(made[at..].starts_with(&bytes), "other bytes at {at}");
        at += bytes.len();
    }
    assert_eq!(at, made.len());
    // Many downloads at once all get all of it.
    let ask = || async {
        let response =
            world.request("GET", href).header("range", "bytes=1000000-3000000").send().await.unwrap();
        response.bytes().await.unwrap()
    };
    for bytes in futures_util::future::join_all((0..8).map(|_| ask())).await {
        assert_eq!(bytes, &made[1_000_000..=3_000_000]);
    }
    running.abort();
}

#[tokio::test]
async fn an_expired_artifact_is_gone() {
    let world = World::new().await;
    let (mut peer, href) = made_by_hand(&world, json!({"expires_at": "2023-11-14T22:13:30Z"})).await;
    let reading = begin(&world, &href);
    let (asked, read) = receive_read(&mut peer).await;
    assert_eq!((read.resource_id.as_str(), read.offset), ("res-1", 0));
    let data = json!({"resource_id": "res-1", "offset": 0, "size_bytes": 2, "data_base64": "aGk="});
    send_answer(&mut peer, "resource.data", &asked, data).await;
    assert_eq!(reading.await.unwrap().text().await.unwrap(), "hi");
    world.clock.advance(Span::secs(10));
    let (status, problem) = answer(world.request("GET", &href)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (410, &json!("gone")), "{problem}");
}

#[tokio::test]
async fn a_dropped_artifact_is_gone() {
    let world = World::new().await;
    let (mut peer, href) = made_by_hand(&world, json!({})).await;
    let reading = begin(&world, &href);
    let (asked, _) = receive_read(&mut peer).await;
    let error = json!({"code": "E.RESOURCE.MISSING", "message": "there is no resource \"res-1\""});
    send_answer(&mut peer, "error", &asked, error).await;
    assert_eq!(reading.await.unwrap().status(), 410);
}

#[tokio::test]
async fn inline_data_is_read_from_the_result() {
    let world = World::new().await;
    let (_peer, href) = made_by_hand(&world, json!({"inline": true})).await;
    let (status, problem) = answer(world.request("GET", &href)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("conflict")));
    assert!(problem["detail"].as_str().unwrap().contains("GET /v1/jobs/"), "{problem}");
}

#[tokio::test]
async fn a_worker_that_is_away_gives_a_503() {
    let world = World::new().await;
    let (peer, href) = made_by_hand(&world, json!({})).await;
    drop(peer);
    // The server notices the end of a connection when it reads.
    while world.ask("GET", "/v1/workers", "").await["workers"] != json!([]) {
        tokio::task::yield_now().await;
    }
    let response = world.request("GET", &href).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"5".parse().unwrap())
    );
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["code"], "worker_away");
}

#[tokio::test]
async fn a_lost_worker_ends_the_download_with_an_error() {
    let world = World::new().await;
    let (mut peer, href) = made_by_hand(&world, json!({"size_bytes": 1_000_000})).await;
    let reading = begin(&world, &href);
    let (asked, _) = receive_read(&mut peer).await;
    let data = json!({"resource_id": "res-1", "offset": 0, "size_bytes": 1_000_000, "data_base64": "aGk="});
    send_answer(&mut peer, "resource.data", &asked, data).await;
    let mut response = reading.await.unwrap();
    assert_eq!((response.status().as_u16(), response.content_length()), (200, Some(1_000_000)));
    assert_eq!(response.chunk().await.unwrap().unwrap(), "hi");
    let (_, next) = receive_read(&mut peer).await;
    assert_eq!(next.offset, 2, "the next part begins where the first ended");
    drop(peer);
    assert!(response.bytes().await.is_err(), "the client must notice that it is incomplete");
}

#[tokio::test]
async fn a_change_during_the_download_ends_it_with_an_error() {
    let world = World::new().await;
    let (mut peer, href) = made_by_hand(&world, json!({})).await;
    let reading = begin(&world, &href);
    for (offset, size) in [(0, 4), (2, 5)] {
        let (asked, read) = receive_read(&mut peer).await;
        assert_eq!(read.offset, offset);
        let data =
            json!({"resource_id": "res-1", "offset": offset, "size_bytes": size, "data_base64": "aGk="});
        send_answer(&mut peer, "resource.data", &asked, data).await;
    }
    assert!(reading.await.unwrap().bytes().await.is_err());
}

#[tokio::test]
async fn an_older_worker_gets_one_request_and_rejects_it() {
    let world = World::new().await;
    let (mut peer, href) = made_by_hand(&world, json!({})).await;
    let reading = begin(&world, &href);
    let (asked, _) = receive_read(&mut peer).await;
    let error = json!({"code": "E.CMD.UNKNOWN", "message": "the type \"resource.read\" is unknown"});
    send_answer(&mut peer, "error", &asked, error).await;
    assert_eq!(reading.await.unwrap().status(), 502);
    // It gets no second request, because that is a bad frame to it.
    let (status, problem) = answer(world.request("GET", &href)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (502, &json!("worker_failed")), "{problem}");
    peer.beat(json!({"inflight": 0})).await;
}

#[tokio::test]
async fn other_tenants_and_workers_cannot_download() {
    let world = World::closed().await;
    let token = async |tenant: &'static str, role| world.token(Some(tenant), role).await;
    let (ours, theirs) = (token("acme", Role::Submitter).await, token("other", Role::Submitter).await);
    let (worker, viewer) = (token("acme", Role::Worker).await, token("acme", Role::Viewer).await);
    let mut peer = Peer::open(&world, "w1").await.tenant("acme");
    peer.shake_hands(Some(&worker)).await;
    peer.offer(&["make"], 4).await;
    let submitted = answer(world.request_as(&ours, "POST", "/v1/jobs").body(r#"{"kind": "make"}"#)).await.1;
    let id = submitted["id"].as_str().unwrap();
    let (frame, job, seq) = peer.receive_dispatch().await;
    peer.take(&frame).await;
    let artifact = json!({"resource_id": "res-1", "worker_id": "w1", "type": "file"});
    let result =
        json!({"run_id": job, "task_id": job, "status": "SUCCEEDED", "result": {}, "artifacts": [artifact]});
    let brought = peer.send("result", result, Some((&job, seq))).await;
    peer.receive_ack(&brought).await;
    let list = answer(world.request_as(&ours, "GET", &format!("/v1/jobs/{id}/artifacts"))).await.1;
    let href = list["artifacts"][0]["href"].as_str().unwrap().to_owned();
    let missing = "/v1/artifacts/00000000-0000-7000-8000-000000000000.1";
    let same = |mut problem: Value| {
        problem.as_object_mut().unwrap().remove("request_id");
        problem
    };
    let (status, hidden) = answer(world.request_as(&theirs, "GET", &href)).await;
    assert_eq!(status, 404);
    assert_eq!(same(hidden), same(answer(world.request_as(&theirs, "GET", missing)).await.1));
    assert_eq!(answer(world.request_as(&worker, "GET", &href)).await.0, 403);
    // A worker of the same name in another tenant gets no request.
    let mut foreign = Peer::open(&world, "w1").await.tenant("other");
    foreign.shake_hands(Some(&token("other", Role::Worker).await)).await;
    foreign.offer(&["make"], 4).await;
    let request = world.request_as(&viewer, "GET", &href);
    let reading = tokio::spawn(async move { request.send().await.unwrap() });
    let (asked, _) = receive_read(&mut peer).await;
    let data = json!({"resource_id": "res-1", "offset": 0, "size_bytes": 2, "data_base64": "aGk="});
    send_answer(&mut peer, "resource.data", &asked, data).await;
    assert_eq!(reading.await.unwrap().text().await.unwrap(), "hi");
    foreign.beat(json!({"inflight": 0})).await;
}

#[tokio::test]
async fn a_revoked_token_ends_its_downloads() {
    let world = World::closed().await;
    let token = world.token(Some("default"), Role::Viewer).await;
    let worker = world.token(Some("default"), Role::Worker).await;
    let mut peer = Peer::open(&world, "w1").await;
    peer.shake_hands(Some(&worker)).await;
    peer.offer(&["make"], 4).await;
    let id = world.submit(r#"{"kind": "make"}"#).await;
    let (frame, job, seq) = peer.receive_dispatch().await;
    peer.take(&frame).await;
    let artifact = json!({"resource_id": "res-1", "worker_id": "w1", "type": "file"});
    let result =
        json!({"run_id": job, "task_id": job, "status": "SUCCEEDED", "result": {}, "artifacts": [artifact]});
    let brought = peer.send("result", result, Some((&job, seq))).await;
    peer.receive_ack(&brought).await;
    let list = world.ask("GET", &format!("/v1/jobs/{id}/artifacts"), "").await;
    let request = world.request_as(&token, "GET", list["artifacts"][0]["href"].as_str().unwrap());
    let reading = tokio::spawn(async move { request.send().await.unwrap() });
    let part =
        |offset| json!({"resource_id": "res-1", "offset": offset, "size_bytes": 4, "data_base64": "aGk="});
    let (asked, _) = receive_read(&mut peer).await;
    send_answer(&mut peer, "resource.data", &asked, part(0)).await;
    let (asked, _) = receive_read(&mut peer).await;
    let tokens = world.ask("GET", "/v1/tokens", "").await;
    let mine = tokens["tokens"].as_array().unwrap().iter().find(|token| token["role"] == "viewer").unwrap();
    world.ask("DELETE", &format!("/v1/tokens/{}", mine["id"].as_str().unwrap()), "").await;
    send_answer(&mut peer, "resource.data", &asked, part(2)).await;
    assert!(reading.await.unwrap().bytes().await.is_err());
}

#[tokio::test]
async fn other_ids_are_not_found() {
    let world = World::new().await;
    let (_peer, href) = made_by_hand(&world, json!({})).await;
    let (job, line) = href.rsplit_once('.').unwrap();
    assert_eq!(line, "1");
    for missing in [format!("{job}.2"), "/v1/artifacts/00000000-0000-7000-8000-000000000000.1".to_owned()] {
        assert_eq!(answer(world.request("GET", &missing)).await.0, 404, "{missing}");
    }
    for wrong in [job.to_owned(), format!("{job}.0"), format!("{job}.x"), "/v1/artifacts/res-1".to_owned()] {
        let (status, problem) = answer(world.request("GET", &wrong)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("invalid_id")), "{wrong}");
    }
}
