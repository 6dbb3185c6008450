//! The real SDK against the real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use laneway_client::worker::{Failure, Outcome, Task, Worker, WorkerBuilder, WorkerError};
use laneway_wire::frame::Channel;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::world::World;

fn sdk(world: &World, id: &str) -> WorkerBuilder {
    Worker::builder(&format!("ws://{}/v1/workers/connect", world.address), id)
}

fn start(worker: WorkerBuilder) -> JoinHandle<Result<(), WorkerError>> {
    tokio::spawn(worker.build().unwrap().run())
}

async fn echo(task: Task) -> Result<Outcome, Failure> {
    Outcome::of(&task.read::<Value>()?)
}

#[tokio::test]
async fn d2_a_job_runs_on_a_worker_and_its_result_arrives() {
    let world = World::new().await;
    let running = start(sdk(&world, "w1").handler("resize", |task: Task| async move {
        task.progress(0.5, "half way");
        task.chunk(Channel::Stderr, "reading…\nwriting…\n").await;
        echo(task).await
    }));
    let id = world.submit(r#"{"kind": "resize", "payload": {"width": 640}}"#).await;
    world.wait(&id).await;
    let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!({"width": 640})), "{job}");
    let logs = world.ask("GET", &format!("/v1/jobs/{id}/logs"), "").await;
    let lines: Vec<_> = logs["lines"].as_array().unwrap().iter().map(|line| &line["text"]).collect();
    assert_eq!(lines, ["reading…", "writing…"], "{logs}");
    // A payload that is not an object, and a failure.
    let list = world.submit(r#"{"kind": "resize", "payload": [1]}"#).await;
    world.wait(&list).await;
    let job = world.ask("GET", &format!("/v1/jobs/{list}"), "").await;
    assert_eq!(job["result"], json!({"value": [1]}));
    let workers = world.ask("GET", "/v1/workers", "").await;
    let worker = &workers["workers"][0];
    assert_eq!((&worker["id"], &worker["state"]), (&json!("w1"), &json!("ready")), "{workers}");
    assert_eq!(worker["kinds"], json!(["resize"]));
    running.abort();
}

#[tokio::test]
async fn failures_are_reported_as_the_handler_returned_them() {
    let world = World::new().await;
    let running = start(sdk(&world, "w1").handler("bad", |_| async {
        Err::<Outcome, _>(Failure::permanent("no_paper", "the printer has no paper"))
    }));
    let id = world.submit(r#"{"kind": "bad"}"#).await;
    world.wait(&id).await;
    let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!((&job["state"], &job["reason"]), (&json!("failed"), &json!("permanent")), "{job}");
    assert_eq!(job["error"]["code"], "no_paper");
    running.abort();
}

#[tokio::test]
async fn d12_max_parallel_and_d11_concurrency_keys_are_honoured() {
    let world = World::new().await;
    let (gate, now, most) =
        (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (gate, now, most) = (gate.clone(), now.clone(), most.clone());
        move |task: Task| {
            let (gate, now, most) = (gate.clone(), now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                now.fetch_sub(1, Ordering::SeqCst);
                echo(task).await
            }
        }
    };
    let running = start(sdk(&world, "w1").max_parallel(2).handler("k", handler));
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(world.submit(r#"{"kind": "k"}"#).await);
    }
    gate.add_permits(6);
    for id in &ids {
        world.wait(id).await;
    }
    assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} ran at once");
    most.store(0, Ordering::SeqCst);
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.submit(r#"{"kind": "k", "keys": {"concurrency_key": "one"}}"#).await);
    }
    gate.add_permits(4);
    for id in &ids {
        world.wait(id).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 1, "one attempt for each key");
    running.abort();
}

#[tokio::test]
async fn d13_a_drained_worker_finishes_its_tasks_and_ends() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let (began, mut begun) = tokio::sync::mpsc::channel(8);
    let running = start(sdk(&world, "w1").max_parallel(4).handler("k", move |task: Task| {
        let (held, began) = (held.clone(), began.clone());
        async move {
            began.send(()).await.unwrap();
            held.acquire().await.unwrap().forget();
            echo(task).await
        }
    }));
    let first = world.submit(r#"{"kind": "k"}"#).await;
    begun.recv().await.unwrap();
    let worker = world.ask("POST", "/v1/workers/w1/drain", "").await;
    assert_eq!((&worker["state"], &worker["drained"]), (&json!("draining"), &json!(true)), "{worker}");
    let second = world.submit(r#"{"kind": "k"}"#).await;
    gate.add_permits(2);
    world.wait(&first).await;
    running.await.unwrap().unwrap();
    let job = world.ask("GET", &format!("/v1/jobs/{second}"), "").await;
    assert_eq!(job["state"], "queued", "it got no new task");
}

#[tokio::test]
async fn a_worker_gets_jobs_of_its_lanes_until_it_is_rebound_to_others() {
    let world = World::new().await;
    world.ask("PUT", "/v1/lanes/gpu", "{}").await;
    let running = start(sdk(&world, "w1").channels(["gpu"]).handler("k", echo));
    let theirs = world.submit(r#"{"kind": "k", "lane": "gpu"}"#).await;
    world.wait(&theirs).await;
    let other = world.submit(r#"{"kind": "k"}"#).await;
    let why = world.ask("GET", &format!("/v1/jobs/{other}/explain"), "").await;
    let message = json!("No worker serves its lane, main. Workers of other lanes are connected.");
    assert_eq!(
        (&why["blocked_by"][0]["code"], &why["blocked_by"][0]["message"]),
        (&json!("no_worker"), &message)
    );
    let before = world.ask("GET", "/v1/workers/w1", "").await;
    assert_eq!((&before["lanes"], &before["rebound"]), (&json!(["gpu"]), &json!(false)), "{before}");

    let after = world.ask("POST", "/v1/workers/w1/rebind", r#"{"lanes": ["main"]}"#).await;
    assert_eq!((&after["lanes"], &after["rebound"]), (&json!(["main"]), &json!(true)), "{after}");
    world.wait(&other).await;
    let audit = world.ask("GET", "/v1/audit", "").await;
    let entries = audit["entries"].as_array().unwrap();
    let rebound = entries.iter().find(|entry| entry["action"] == "worker.rebound");
    assert_eq!(rebound.unwrap()["detail"], "w1: serves main from now on", "{audit}");

    let waits = world.submit(r#"{"kind": "k", "lane": "gpu"}"#).await;
    let every = world.ask("POST", "/v1/workers/w1/rebind", r#"{"lanes": []}"#).await;
    assert_eq!(every["lanes"], json!([]));
    world.wait(&waits).await;
    running.abort();
}

#[tokio::test]
async fn a_cancel_reaches_the_handler() {
    let world = World::new().await;
    let (began, mut begun) = tokio::sync::mpsc::channel(8);
    let (stopped, mut stops) = tokio::sync::mpsc::channel(8);
    let running = start(sdk(&world, "w1").handler("k", move |task: Task| {
        let (began, stopped) = (began.clone(), stopped.clone());
        async move {
            began.send(()).await.unwrap();
            task.cancellation().cancelled().await;
            stopped.send(()).await.unwrap();
            echo(task).await
        }
    }));
    let id = world.submit(r#"{"kind": "k"}"#).await;
    begun.recv().await.unwrap();
    world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "").await;
    stops.recv().await.unwrap();
    let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!(job["state"], "canceled");
    running.abort();
}

#[tokio::test]
async fn d19_the_metrics_have_the_names_of_the_protocol() {
    let world = World::new().await;
    let running = start(sdk(&world, "w1").handler("k", echo));
    let id = world.submit(r#"{"kind": "k"}"#).await;
    world.wait(&id).await;
    let page = world.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    for metric in [
        r#"ws_conn_active{tenant="default"} 1"#,
        r#"cmd_dispatch_total{tenant="default",node_type="k"} 1"#,
        r#"result_latency_ms_bucket{"#,
        r#"ws_frame_bytes_total{tenant="default",dir="in"}"#,
        r#"ws_frame_bytes_total{tenant="default",dir="out"}"#,
        r#"cmd_retry_total{reason="unacknowledged"}"#,
    ] {
        assert!(page.contains(metric), "{metric} is missing in\n{page}");
    }
    running.abort();
}
