//! Known defects of the original system do not occur here: each test would fail on it.
//!
//! `docs/compat/astraflow.md` lists all of them with their tests; some are in other files.

use std::time::{Duration, Instant};

use laneway_core::{Role, Span};
use serde_json::{Value, json};

use super::fake_worker::FakeWorker;
use super::page::{Page, edge, node, statuses, workflow};
use crate::world::{World, answer};

/// A node with a package that no worker has.
fn orphan(id: &str) -> Value {
    let mut node = node(id);
    node["package"] = json!({"name": "nowhere", "version": "9.9"});
    node
}

/// The original dispatcher sleeps during the backoff of one run while all others wait, up to 31 s.
#[tokio::test]
async fn af_x4_a_run_without_a_worker_blocks_no_other_run() {
    let world = World::in_real_time("").await;
    let mut stuck = Vec::new();
    for n in 0..5 {
        stuck.push(world.start_run(&format!("other-{n}"), &workflow(&[orphan("a")], &[])).await);
    }
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    for _ in 0..3 {
        let asked = Instant::now();
        let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
        let task = fake.take().await;
        let took = asked.elapsed();
        assert_eq!(task.payload["run_id"], json!(id));
        assert!(took < Duration::from_secs(2), "it waited {took:?} for other runs");
        fake.end(&task, "SUCCEEDED", json!({})).await;
    }
    for id in stuck {
        assert_eq!(world.run(&id).await["status"], "queued", "it waits for a worker, and is not lost");
    }
}

/// The original crashes on `timeoutMs` and leaves the target "not ready" forever.
#[tokio::test]
async fn af_x5_a_call_of_next_times_out_cleanly_and_the_target_stays_callable() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut host = node("host");
    let mut middleware = node("m1");
    middleware["role"] = json!("middleware");
    host["middlewares"] = json!([middleware]);
    let id = world.start_run("desk", &workflow(&[host], &[])).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let outer = fake.take().await;
    assert_eq!(outer.node(), "m1");
    fake.next(&outer, "call-1", &json!({"timeoutMs": 50})).await;
    let slow = fake.take().await;
    assert_eq!(slow.node(), "host");
    let late = fake.receive("middleware.next_response").await;
    assert_eq!(late["payload"]["requestId"], "call-1");
    assert_eq!(late["payload"]["error"]["code"], "next_timeout", "{late}");
    assert_eq!(late["payload"]["error"]["message"], "next request timed out", "{late}");
    // The called node is asked to stop, and then the next call is served.
    let stop = fake.receive("cmd.cancel").await;
    assert_eq!(stop["payload"]["task_id"], slow.payload["task_id"]);
    fake.end(&slow, "CANCELLED", json!({})).await;
    fake.next(&outer, "call-2", &json!({"timeoutMs": 30_000})).await;
    let again = fake.take().await;
    assert_eq!(again.node(), "host");
    fake.end(&again, "SUCCEEDED", json!({"out": "in time"})).await;
    let answer = fake.receive("middleware.next_response").await;
    assert_eq!(answer["payload"]["requestId"], "call-2");
    assert_eq!(answer["payload"]["result"], json!({"out": "in time"}), "{answer}");
    fake.end(&outer, "SUCCEEDED", json!({})).await;
    page.until("succeeded").await;
    assert_eq!(statuses(&world.run(&id).await), [("host", "succeeded"), ("m1", "succeeded")]);
}

/// The original never notices that a worker is gone: its nodes stay running forever.
#[tokio::test]
async fn af_x9_the_nodes_of_a_lost_worker_run_elsewhere() {
    let world = World::new("").await;
    let id = world.start_run("desk", &workflow(&[node("a"), node("b")], &[edge("a", "b")])).await;
    let mut gone = FakeWorker::registered(world.address, "w1", "test", "1.0", 1).await;
    let first = gone.take().await;
    gone.beat().await;
    drop(gone);
    let mut other = FakeWorker::registered(world.address, "w2", "test", "1.0", 1).await;
    // The lease is three heartbeats of 35 s; the other worker sends heartbeats meanwhile.
    let mut seconds = 0;
    while world.run(&id).await["nodes"][0]["workerId"] != "w2" {
        assert!(seconds < 300, "its lease never ends");
        world.advance(Span::secs(5)).await;
        seconds += 5;
        other.beat().await;
    }
    assert!(seconds >= 100, "its lease was cut short: {seconds} s");
    let again = other.take().await;
    assert_eq!((again.node(), &again.payload["task_id"]), ("a", &first.payload["task_id"]));
    assert!(again.frame["seq"].as_u64() > first.frame["seq"].as_u64(), "with its own number");
    other.end(&again, "SUCCEEDED", json!({"out": 1})).await;
    other.finish_next(json!({"out": 2})).await;
    let run = world.run(&id).await;
    assert_eq!(statuses(&run), [("a", "succeeded"), ("b", "succeeded")]);
}

/// The original looks errors up by task although they name the frame, and may fail another node.
#[tokio::test]
async fn af_x11_an_error_ends_the_node_that_it_is_about_and_no_other() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let mut tasks = Vec::new();
    for session in ["desk", "other", "third"] {
        let id = world.start_run(session, &workflow(&[node("a")], &[])).await;
        tasks.push((id, fake.take().await));
    }
    // By the frame's id, as its workers do, about the second of three running tasks.
    let failure = json!({"code": "E.RUNNER.FAILURE", "message": "it broke"});
    let mut by_frame = tasks[1].1.clone();
    by_frame.payload["task_id"] = by_frame.frame["id"].clone();
    let answered = fake.ask("command.error", failure.clone(), Some(&by_frame)).await;
    assert_eq!(answered["type"], "ack", "{answered}");
    // An error about an unknown frame fails no node.
    let mut about_nothing = tasks[2].1.clone();
    about_nothing.payload["task_id"] = json!("nothing-7");
    fake.ask("command.error", failure, Some(&about_nothing)).await;
    fake.end(&tasks[0].1, "SUCCEEDED", json!({})).await;
    page.until("succeeded").await;
    let mut states = Vec::new();
    for (id, _) in &tasks {
        states.push(world.run(id).await["status"].clone());
    }
    // The task may be retried; no other run is affected.
    assert!(["failed", "queued", "running"].contains(&states[1].as_str().unwrap()), "{states:?}");
    assert_eq!((&states[0], &states[2]), (&json!("succeeded"), &json!("running")));
    let second = world.run(&tasks[1].0).await;
    assert_ne!(second["nodes"][0]["seq"], tasks[1].1.frame["seq"], "that attempt has ended: {second}");
}

/// The original replays the whole tenant: every page gets the events of all runs.
#[tokio::test]
async fn af_x14_a_replay_leaks_nothing_to_other_sessions_and_tenants() {
    let world = World::in_real_time("").await;
    let admin = world.token(None, Role::Admin).await;
    let mut tokens = Vec::new();
    for tenant in ["acme", "rival"] {
        let submitter = world.token(Some(tenant), Role::Submitter).await;
        let worker = world.token(Some(tenant), Role::Worker).await;
        let package = json!({"name": "test", "version": "1.0", "status": "installed"});
        let mut fake = FakeWorker::of_tenant(world.address, "w1", tenant, Some(&worker), &package, 4).await;
        for session in ["desk", "other"] {
            let body = json!({"workflow": workflow(&[node("a")], &[]), "clientId": session}).to_string();
            let start = world.request("POST", "/api/v1/runs").bearer_auth(&submitter).body(body);
            assert_eq!(answer(start).await.0.as_u16(), 202);
            let secret = format!("secret of {tenant}/{session}");
            let task = fake.take().await;
            fake.send_feedback(&task, json!({"chunks": [{"channel": "stdout", "text": secret}]})).await;
            fake.end(&task, "SUCCEEDED", json!({"out": secret})).await;
        }
        tokens.push((tenant, submitter));
    }
    for (tenant, token) in &tokens {
        let mut received = Vec::new();
        for last in [None, Some("0"), Some("999999999")] {
            let mut page = Page::open_as(&world, Some(token), "desk", last).await;
            received.extend(page.until("succeeded").await);
        }
        assert!(received.iter().any(|event| event.to_string().contains(&format!("secret of {tenant}/desk"))));
        for event in received {
            let text = event.to_string();
            assert_eq!(event["scope"]["tenant"], json!(tenant), "{text}");
            assert!(!text.contains("/other") && !text.contains("\"other\""), "another session's: {text}");
        }
    }
    // A server-wide caller without a tenant gets the events of its own session only.
    let mut page = Page::open_as(&world, Some(&admin), "desk", Some("0")).await;
    let body = json!({"workflow": workflow(&[node("z")], &[]), "clientId": "desk"}).to_string();
    answer(world.request("POST", "/api/v1/runs").bearer_auth(&admin).body(body)).await;
    let first = page.receive("run.status").await;
    assert_eq!(first["scope"]["tenant"], "default", "{first}");
}

/// The original reads the buffer and subscribes afterwards: events between the two are lost.
#[tokio::test]
async fn af_x14_nothing_falls_between_replay_and_live() {
    let world = World::in_real_time("").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    // A page connects while runs come and go: it gets every event in order, exactly once.
    let mut runs = Vec::new();
    for round in 0..10 {
        let started = async {
            runs.push(world.start_run("desk", &workflow(&[node("a")], &[])).await);
            fake.finish_next(json!({})).await;
        };
        let ((), mut page) = tokio::join!(started, Page::open(&world, "desk"));
        let mut ended = Vec::new();
        while ended.len() < runs.len() {
            let event = page.next().await;
            if event["type"] == "run.status" && event["data"]["status"] == "succeeded" {
                ended.push(event["scope"]["runId"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(ended, runs, "round {round}");
    }
}
