//! The pull worker of `laneway-client` against a real server, with both APIs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use laneway_client::pull::{Dialect, Poll, PullOptions, PullOutcome, PullWorker, PulledJob};
use laneway_core::Span;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::intents::{IDLE, get, post};
use crate::world::{PATIENCE, World, answer};

/// A lane for pull workers, with a short lease.
const CLAIMS: &str = "capacity.measured = false\nlanes.bulk.dispatch = \"claim\"\nlanes.bulk.lease = \"1s\"";

fn worker(world: &World, dialect: Dialect) -> PullWorker {
    PullWorker::new(PullOptions::new(format!("http://{}", world.address), "w1", dialect)).unwrap()
}

fn native() -> Dialect {
    Dialect::Native { lane: "bulk".to_owned(), kinds: Vec::new() }
}

async fn submit_native(world: &World, body: Value) -> String {
    let (status, job) = answer(world.request("POST", "/v1/jobs").body(body.to_string())).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().unwrap().to_owned()
}

async fn native_job(world: &World, id: &str) -> Value {
    answer(world.request("GET", &format!("/v1/jobs/{id}"))).await.1
}

#[tokio::test]
async fn a15_a_worker_runs_jobs_in_the_terms_of_the_dialect() {
    let world = World::new(IDLE).await;
    let worker = worker(&world, Dialect::Synthia { capabilities: vec!["any".to_owned()] });
    let handler = |job: PulledJob| async move {
        job.report(0.5, "half way").await.unwrap();
        match job.payload["fails"] == true {
            true => PullOutcome::Failed("as requested".to_owned()),
            false => PullOutcome::Succeeded(Some(json!({"kind": job.kind, "degraded": true}))),
        }
    };
    let Poll::Denied { reason, retry_after } = worker.poll_once(&handler).await.unwrap() else {
        panic!("no work")
    };
    assert_eq!((reason.as_str(), retry_after), ("No eligible job found", Duration::from_millis(1_500)));
    for fails in [false, true] {
        post(&world, "/jobs", json!({"type": "thumbs", "payload": {"fails": fails}})).await;
        let poll_once = worker.poll_once(&handler).await.unwrap();
        assert!(matches!(poll_once, Poll::Done { .. }), "{poll_once:?}");
    }
    let (_, done) = get(&world, "/jobs?state=completed").await;
    assert_eq!(done["jobs"][0]["job"]["result"], json!({"kind": "thumbs", "degraded": true}));
    let (_, failed) = get(&world, "/jobs?state=failed").await;
    assert_eq!(failed["jobs"][0]["job"]["error"], "as requested");
}

#[tokio::test]
async fn a15_heartbeats_keep_the_lease_of_a_worker() {
    let world = World::new(CLAIMS).await;
    let id = submit_native(&world, json!({"kind": "slow", "lane": "bulk", "payload": {"n": 1}})).await;
    let worker = worker(&world, native());
    let renewed = Notify::new();
    let handler = |job: PulledJob| async {
        let payload = job.payload;
        renewed.notified().await;
        PullOutcome::Succeeded(Some(payload))
    };
    // The clock of the server stops just before the lease expires, until a heartbeat has renewed it: in total three
    // times as long as the lease.
    let renewals = async {
        let mut expires = first_lease(&world).await;
        for _ in 0..4 {
            world.advance(Span(900)).await;
            expires = lease_after(&world, &expires).await;
        }
        renewed.notify_one();
    };
    let (poll_once, ()) =
        tokio::time::timeout(PATIENCE, async { tokio::join!(worker.poll_once(&handler), renewals) })
            .await
            .unwrap();
    let outcome = PullOutcome::Succeeded(Some(json!({"n": 1})));
    assert_eq!(poll_once.unwrap(), Poll::Done { job: id.clone(), outcome });
    let job = native_job(&world, &id).await;
    assert_eq!((&job["state"], &job["attempt"]), (&json!("succeeded"), &json!(1)));
}

/// When the lease of the worker expires, once it has one.
async fn first_lease(world: &World) -> Value {
    lease_after(world, &Value::Null).await
}

/// When the lease of the worker expires, once that is not `before` any more.
async fn lease_after(world: &World, before: &Value) -> Value {
    loop {
        let (_, list) = answer(world.request("GET", "/v1/leases")).await;
        let expires = &list["leases"][0]["expires_at"];
        if expires != before {
            return expires.clone();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a15_a_lost_lease_stops_the_attempt() {
    let world = World::in_real_time(CLAIMS).await;
    let id = submit_native(&world, json!({"kind": "slow", "lane": "bulk"})).await;
    let worker = worker(&world, native());
    let handler = |job: PulledJob| async move {
        job.stop.cancelled().await;
        PullOutcome::Succeeded(None)
    };
    let poll_once = worker.poll_once(&handler);
    let canceled = async {
        while native_job(&world, &id).await["state"] != "running" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        answer(world.request("POST", &format!("/v1/jobs/{id}/cancel"))).await
    };
    let (poll_once, _) =
        tokio::time::timeout(PATIENCE, async { tokio::join!(poll_once, canceled) }).await.unwrap();
    assert_eq!(poll_once.unwrap(), Poll::Lost { job: id.clone() });
    assert_eq!(native_job(&world, &id).await["state"], "canceled");
    let (_, leases) = answer(world.request("GET", "/v1/leases")).await;
    assert_eq!(leases, json!({"leases": []}), "it reported that it stopped");
}

#[tokio::test]
async fn a_worker_polls_until_it_is_stopped() {
    let world = World::in_real_time(CLAIMS).await;
    for _ in 0..5 {
        submit_native(&world, json!({"kind": "quick", "lane": "bulk", "cost": 60})).await;
    }
    let (ran, stop) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
    let handler = |_: PulledJob| {
        let (ran, stop) = (Arc::clone(&ran), stop.clone());
        async move {
            if ran.fetch_add(1, Ordering::Relaxed) + 1 == 5 {
                stop.cancel();
            }
            PullOutcome::Succeeded(None)
        }
    };
    tokio::time::timeout(PATIENCE, worker(&world, native()).run(handler, stop.clone())).await.unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 5);
    let (_, list) = answer(world.request("GET", "/v1/jobs?state=succeeded")).await;
    assert_eq!(list["jobs"].as_array().unwrap().len(), 5);
}
