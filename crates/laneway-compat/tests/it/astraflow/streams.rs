//! The stream of events: what a page hears, in which order, and what it never hears.

use laneway_core::{Name, Origin, Role};
use laneway_runtime::Clock;
use laneway_store::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};

use super::hand::Hand;
use super::page::{Page, edge, node, workflow};
use crate::world::World;

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// T16: the state of a run is told when it has changed, and only then.
#[tokio::test]
async fn t16_the_status_of_a_run_is_told_once_for_each_change() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let id = world.start_run("desk", &workflow(&[node("a"), node("b"), node("c")], &[edge("a", "c")])).await;
    let mut hand = Hand::registered(world.address, "w1", "test", "1.0", 1).await;
    for _ in 0..3 {
        hand.finish_next(json!({"out": 1})).await;
    }
    let mut heard = page.until("succeeded").await;
    heard.push(page.next().await);
    let of_runs: Vec<&Value> = heard.iter().filter(|event| event["type"] == "run.status").collect();
    let words: Vec<&Value> = of_runs.iter().map(|event| &event["data"]["status"]).collect();
    assert_eq!(words, ["queued", "running", "succeeded"]);
    for event in &of_runs {
        assert_eq!(event["scope"], json!({"tenant": "default", "runId": id, "clientSessionId": "desk"}));
    }
    let after: Vec<usize> = (0..heard.len()).filter(|at| heard[*at]["type"] == "run.status").collect();
    assert!(after.iter().all(|at| heard[at + 1]["type"] == "run.snapshot"), "{:?}", kinds(&heard));
    assert_eq!(
        kinds(&heard).iter().filter(|kind| **kind == "run.snapshot").count(),
        3,
        "no snapshot besides"
    );
    let results = heard.iter().filter(|event| event["type"] == "node.result.snapshot");
    assert!(results.clone().all(|event| event["data"]["content"] == json!({"out": 1})));
    assert_eq!(results.count(), 3);
}

/// T17 and T18: what a task writes and has so far is told piece by piece, in one row of numbers for each node.
#[tokio::test]
async fn t17_t18_feedback_is_told_as_numbered_deltas() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut other = Page::open(&world, "other").await;
    let mut hand = Hand::registered(world.address, "w1", "test", "1.0", 1).await;
    world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let task = hand.take().await;
    hand.tell(
        &task,
        json!({"stage": "streaming", "progress": 0.25, "message": "half a half",
        "chunks": [{"channel": "stdout", "text": "one\ntwo", "mime_type": "text/plain"},
            {"channel": "llm", "data_base64": "AAE=", "metadata": {"terminal": true}}],
        "metadata": {"results": {"rows": {"a/b": 7}, "gone": null}}}),
    )
    .await;
    let state = loop {
        let event = page.hear("node.state").await;
        if event["data"]["state"]["stage"] == "streaming" {
            break event;
        }
    };
    assert_eq!(state["data"]["state"]["progress"], 0.25);
    assert_eq!(state["data"]["state"]["message"], "half a half");
    let mut deltas = Vec::new();
    for _ in 0..4 {
        deltas.push(page.hear("node.result.delta").await["data"].clone());
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
    // The numbers go on: they are the node's, whatever is told.
    hand.tell(&task, json!({"chunks": [{"channel": "stdout", "text": "three"}]})).await;
    assert_eq!(page.hear("node.result.delta").await["data"]["sequence"], 5);
    let artifact = json!({"resource_id": "r1", "worker_id": "w1", "type": "file", "size_bytes": 9});
    hand.bring(&task, json!({"status": "SUCCEEDED", "result": {"out": 1}, "artifacts": [artifact]})).await;
    let last = page.hear("node.result.snapshot").await;
    assert_eq!((&last["data"]["revision"], &last["data"]["complete"]), (&json!(1), &json!(true)));
    assert_eq!(last["data"]["artifacts"][0]["resourceId"], "r1");
    let ready = page.hear("artifact.ready").await;
    assert_eq!((&ready["data"]["artifactId"], &ready["data"]["sizeBytes"]), (&json!("r1"), &json!(9)));
    let href = ready["data"]["href"].as_str().unwrap();
    assert!(href.starts_with("/v1/artifacts/") && href.contains('.'), "{href}");
    // X14: nothing of it was for the other session; what it hears first is its own.
    world.start_run("other", &workflow(&[node("z")], &[])).await;
    let first = loop {
        let event = other.next().await;
        if !event["type"].as_str().unwrap().starts_with("worker.") {
            break event;
        }
    };
    assert_eq!((&first["type"], &first["scope"]["clientSessionId"]), (&json!("run.status"), &json!("other")));
}

/// X14: neither live nor replayed does a session hear of another's runs, or of another tenant's.
#[tokio::test]
async fn x14_a_replay_tells_a_session_of_its_own_runs_only() {
    let world = World::in_real_time("").await;
    let mut hand = Hand::registered(world.address, "w1", "test", "1.0", 4).await;
    let mine = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    hand.finish_next(json!({"secret": "of desk"})).await;
    world.start_run("other", &workflow(&[node("b")], &[])).await;
    hand.finish_next(json!({"secret": "of other"})).await;
    let mut page = Page::open(&world, "desk").await;
    let heard = page.until("succeeded").await;
    assert!(heard.iter().all(|event| event["replayed"] == true), "{heard:?}");
    for event in heard.iter().filter(|event| !event["type"].as_str().unwrap().starts_with("worker.")) {
        assert_eq!(event["scope"]["runId"], json!(mine), "{event}");
        assert!(!event.to_string().contains("of other"));
    }
    // A run of the same session's name in another tenant is another's.
    let token = world.token(Some("acme"), Role::Submitter).await;
    let body = json!({"workflow": workflow(&[node("c")], &[]), "clientId": "desk"}).to_string();
    let theirs = world.request("POST", "/api/v1/runs").bearer_auth(&token).body(body).send().await.unwrap();
    assert_eq!(theirs.status().as_u16(), 202);
    let events = world.request("GET", "/api/v1/events?clientSessionId=desk").send().await.unwrap();
    assert_eq!(events.status().as_u16(), 401, "from the first token on, everybody needs one");
}

/// A stream that was cut off goes on where it was, in the middle of what is told of one event as well.
#[tokio::test]
async fn a_page_that_comes_back_hears_what_it_missed_and_nothing_twice() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let mut hand = Hand::registered(world.address, "w1", "test", "1.0", 4).await;
    hand.finish_next(json!({"out": 1})).await;
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

/// Numbers are durable: a page that was cut off by a restart of the server goes on where it was.
#[tokio::test]
async fn d21_a_stream_goes_on_after_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Box::new(SqliteStore::open(dir.path(), SqliteOptions::default()).unwrap());
    let world = World::over(open(), "", Clock::system()).await;
    let mut page = Page::open(&world, "desk").await;
    let id = world.start_run("desk", &workflow(&[node("a"), node("b")], &[edge("a", "b")])).await;
    let last = page.hear("run.snapshot").await["id"].as_str().unwrap().to_owned();
    drop(page);
    world.die().await;

    let world = World::over(open(), "", Clock::system()).await;
    let mut hand = Hand::registered(world.address, "w1", "test", "1.0", 1).await;
    for _ in 0..2 {
        hand.finish_next(json!({"out": 1})).await;
    }
    let mut page = Page::open_after(&world, "desk", Some(&last)).await;
    let heard = page.until("succeeded").await;
    let of_runs = heard.iter().filter(|event| event["type"] == "run.status");
    let words: Vec<&Value> = of_runs.map(|event| &event["data"]["status"]).collect();
    assert_eq!(words, ["running", "succeeded"], "what was heard before is not told again");
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
    assert!(page.is_over().await, "an open server is open until the first token is made");
}

#[tokio::test]
async fn a_page_hears_of_the_workers_of_its_tenant() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let _hand = Hand::registered(world.address, "w1", "test", "1.0", 4).await;
    let heard = page.hear("worker.heartbeat").await;
    assert_eq!(heard["scope"], json!({"tenant": "default", "workerId": "w1"}));
    assert_eq!(heard["data"]["capacity"]["status"], "connected");
    let drain =
        world.scheduler.drain_worker(Name::fixed("default"), Name::fixed("w1"), true, Origin::house("test"));
    drain.await.unwrap();
    assert_eq!(page.hear("worker.heartbeat").await["data"]["capacity"]["status"], "drained");
}
