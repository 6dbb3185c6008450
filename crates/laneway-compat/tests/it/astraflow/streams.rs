//! The stream of events: what a page receives, in which order, and what it never receives.

use laneway_core::{Name, Origin, Role};
use laneway_runtime::Clock;
use laneway_store::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};

use super::fake_worker::FakeWorker;
use super::page::{Page, edge, node, workflow};
use crate::world::World;

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// T16: the state of a run is sent when it has changed, and only then.
#[tokio::test]
async fn t16_the_status_of_a_run_is_sent_once_for_each_change() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let id = world.start_run("desk", &workflow(&[node("a"), node("b"), node("c")], &[edge("a", "c")])).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 1).await;
    for _ in 0..3 {
        fake.finish_next(json!({"out": 1})).await;
    }
    let mut received = page.until("succeeded").await;
    received.push(page.next().await);
    let of_runs: Vec<&Value> = received.iter().filter(|event| event["type"] == "run.status").collect();
    let states: Vec<&Value> = of_runs.iter().map(|event| &event["data"]["status"]).collect();
    assert_eq!(states, ["queued", "running", "succeeded"]);
    for event in &of_runs {
        assert_eq!(event["scope"], json!({"tenant": "default", "runId": id, "clientSessionId": "desk"}));
    }
    let after: Vec<usize> = (0..received.len()).filter(|at| received[*at]["type"] == "run.status").collect();
    assert!(after.iter().all(|at| received[at + 1]["type"] == "run.snapshot"), "{:?}", kinds(&received));
    assert_eq!(
        kinds(&received).iter().filter(|kind| **kind == "run.snapshot").count(),
        3,
        "no other snapshot"
    );
    let results = received.iter().filter(|event| event["type"] == "node.result.snapshot");
    assert!(results.clone().all(|event| event["data"]["content"] == json!({"out": 1})));
    assert_eq!(results.count(), 3);
}

/// T17 and T18: output and intermediate results of a task are sent piece by piece, numbered per node.
#[tokio::test]
async fn t17_t18_feedback_is_sent_as_numbered_deltas() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut other = Page::open(&world, "other").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 1).await;
    world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let task = fake.take().await;
    fake.send_feedback(
        &task,
        json!({"stage": "streaming", "progress": 0.25, "message": "half a half",
        "chunks": [{"channel": "stdout", "text": "one\ntwo", "mime_type": "text/plain"},
            {"channel": "llm", "data_base64": "AAE=", "metadata": {"terminal": true}}],
        "metadata": {"results": {"rows": {"a/b": 7}, "gone": null}}}),
    )
    .await;
    let state = loop {
        let event = page.receive("node.state").await;
        if event["data"]["state"]["stage"] == "streaming" {
            break event;
        }
    };
    assert_eq!(state["data"]["state"]["progress"], 0.25);
    assert_eq!(state["data"]["state"]["message"], "half a half");
    let mut deltas = Vec::new();
    for _ in 0..4 {
        deltas.push(page.receive("node.result.delta").await["data"].clone());
    }
    let numbers: Vec<_> = deltas.iter().map(|delta| (&delta["revision"], &delta["sequence"])).collect();
    assert_eq!(
        numbers,
        (1..=4)
            .map(|n| json!(n))
            .collect::<Vec<_>>()
            .iter()
            .map(|n| (&deltas[0]["revision"], n))
            .collect::<Vec<_>>()
    );
    assert_eq!(deltas[0]["revision"], 1);
    assert_eq!((&deltas[0]["path"], &deltas[0]["operation"]), (&json!("/channels/stdout"), &json!("append")));
    assert_eq!(deltas[0]["payload"], json!({"text": "one\ntwo", "mimeType": "text/plain"}));
    assert_eq!((&deltas[1]["path"], &deltas[1]["terminal"]), (&json!("/channels/llm"), &json!(true)));
    let removed = deltas.iter().find(|delta| delta["operation"] == "remove").unwrap();
    assert_eq!(removed["path"], "/gone");
    let replaced = deltas.iter().find(|delta| delta["operation"] == "replace").unwrap();
    assert_eq!((&replaced["path"], &replaced["payload"]), (&json!("/rows/a~1b"), &json!({"value": 7})));
    // The numbers continue: they belong to the node.
    fake.send_feedback(&task, json!({"chunks": [{"channel": "stdout", "text": "three"}]})).await;
    assert_eq!(page.receive("node.result.delta").await["data"]["sequence"], 5);
    let artifact = json!({"resource_id": "r1", "worker_id": "w1", "type": "file", "size_bytes": 9});
    fake.bring(&task, json!({"status": "SUCCEEDED", "result": {"out": 1}, "artifacts": [artifact]})).await;
    let last = page.receive("node.result.snapshot").await;
    assert_eq!((&last["data"]["revision"], &last["data"]["complete"]), (&json!(1), &json!(true)));
    assert_eq!(last["data"]["artifacts"][0]["resourceId"], "r1");
    let ready = page.receive("artifact.ready").await;
    assert_eq!((&ready["data"]["artifactId"], &ready["data"]["sizeBytes"]), (&json!("r1"), &json!(9)));
    let href = ready["data"]["href"].as_str().unwrap();
    assert!(href.starts_with("/v1/artifacts/") && href.contains('.'), "{href}");
    // X14: none of it was for the other session; its first event is its own.
    world.start_run("other", &workflow(&[node("z")], &[])).await;
    let first = loop {
        let event = other.next().await;
        if !event["type"].as_str().unwrap().starts_with("worker.") {
            break event;
        }
    };
    assert_eq!((&first["type"], &first["scope"]["clientSessionId"]), (&json!("run.status"), &json!("other")));
}

/// X14: a session gets no events of another session's or tenant's runs, neither live nor replayed.
#[tokio::test]
async fn x14_a_replay_sends_a_session_its_own_runs_only() {
    let world = World::in_real_time("").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let mine = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    fake.finish_next(json!({"secret": "of desk"})).await;
    world.start_run("other", &workflow(&[node("b")], &[])).await;
    fake.finish_next(json!({"secret": "of other"})).await;
    let mut page = Page::open(&world, "desk").await;
    let received = page.until("succeeded").await;
    assert!(received.iter().all(|event| event["replayed"] == true), "{received:?}");
    for event in received.iter().filter(|event| !event["type"].as_str().unwrap().starts_with("worker.")) {
        assert_eq!(event["scope"]["runId"], json!(mine), "{event}");
        assert!(!event.to_string().contains("of other"));
    }
    // A run of a session with the same name in another tenant belongs to that tenant.
    let token = world.token(Some("acme"), Role::Submitter).await;
    let body = json!({"workflow": workflow(&[node("c")], &[]), "clientId": "desk"}).to_string();
    let theirs = world.request("POST", "/api/v1/runs").bearer_auth(&token).body(body).send().await.unwrap();
    assert_eq!(theirs.status().as_u16(), 202);
    let events = world.request("GET", "/api/v1/events?clientSessionId=desk").send().await.unwrap();
    assert_eq!(events.status().as_u16(), 401, "from the first token on, every caller needs one");
}

/// An interrupted stream resumes at its position, even in the middle of one event.
#[tokio::test]
async fn a_page_that_reconnects_gets_missed_events_exactly_once() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    fake.finish_next(json!({"out": 1})).await;
    let mut whole = page.until("succeeded").await;
    whole.push(page.next().await);
    let ids: Vec<String> = whole.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    for at in (0..ids.len() - 1).filter(|at| !ids[*at].contains('~')) {
        let mut again = Page::open_after(&world, "desk", Some(&ids[at])).await;
        for (expected, id) in whole[at + 1..].iter().zip(&ids[at + 1..]).filter(|(_, id)| !id.contains('~')) {
            let event = again.next().await;
            assert_eq!(event["id"].as_str(), Some(id.as_str()), "after {}", ids[at]);
            assert_eq!(event["type"], expected["type"]);
            assert_eq!(event["replayed"], true);
        }
    }
}

/// Event numbers are durable: a stream resumes after a restart of the server.
#[tokio::test]
async fn d21_a_stream_goes_on_after_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Box::new(SqliteStore::open(dir.path(), SqliteOptions::default()).unwrap());
    let world = World::over(open(), "", Clock::system()).await;
    let mut page = Page::open(&world, "desk").await;
    let id = world.start_run("desk", &workflow(&[node("a"), node("b")], &[edge("a", "b")])).await;
    let last = page.receive("run.snapshot").await["id"].as_str().unwrap().to_owned();
    drop(page);
    world.die().await;

    let world = World::over(open(), "", Clock::system()).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 1).await;
    for _ in 0..2 {
        fake.finish_next(json!({"out": 1})).await;
    }
    let mut page = Page::open_after(&world, "desk", Some(&last)).await;
    let received = page.until("succeeded").await;
    let of_runs = received.iter().filter(|event| event["type"] == "run.status");
    let states: Vec<&Value> = of_runs.map(|event| &event["data"]["status"]).collect();
    assert_eq!(states, ["running", "succeeded"], "earlier events are not repeated");
    let (status, definition) = world.ask("GET", &format!("/api/v1/runs/{id}/definition"), &Value::Null).await;
    assert_eq!((status, &definition["nodes"][1]["id"]), (200, &json!("b")));
}

#[tokio::test]
async fn a_stream_ends_with_the_right_to_it_and_streams_are_bounded() {
    let world = World::in_real_time("dialects.astraflow.streams_max = 1").await;
    let mut page = Page::open(&world, "desk").await;
    let more = world.request("GET", "/api/v1/events?clientSessionId=desk").send().await.unwrap();
    assert_eq!(more.status().as_u16(), 503);
    assert!(more.headers().contains_key("retry-after"));
    let nameless = world.request("GET", "/api/v1/events").send().await.unwrap();
    assert_eq!(nameless.status().as_u16(), 400);
    world.token(None, Role::Admin).await;
    assert!(page.is_over().await, "an open server is open until the first token is created");
}

#[tokio::test]
async fn a_page_gets_events_of_the_workers_of_its_tenant() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let _fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let received = page.receive("worker.heartbeat").await;
    assert_eq!(received["scope"], json!({"tenant": "default", "workerId": "w1"}));
    assert_eq!(received["data"]["capacity"]["status"], "connected");
    let drain =
        world.scheduler.drain_worker(Name::fixed("default"), Name::fixed("w1"), true, Origin::server("test"));
    drain.await.unwrap();
    assert_eq!(page.receive("worker.heartbeat").await["data"]["capacity"]["status"], "drained");
}

#[tokio::test]
async fn defect_10_a_page_that_falls_behind_is_cut_and_can_come_back() {
    let world = World::with_ring("", 64).await;
    let mut page = Page::open(&world, "desk").await;
    let fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let last = page.receive("worker.heartbeat").await["id"].as_str().unwrap().to_owned();
    // More events at once than the memory keeps.
    let jobs = vec![json!({"kind": "k", "agent": "desk"}); 1_000];
    assert_eq!(world.ask("POST", "/v1/jobs/batch", &json!({"jobs": jobs})).await.0, 200);
    assert!(page.is_over().await);
    let mut again = Page::open_after(&world, "desk", Some(&last)).await;
    drop(fake);
    again.receive("worker.heartbeat").await;
}
