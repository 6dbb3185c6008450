//! Leases of base jobs, and admission without a queue.

use laneway_core::{QuietState, Span};
use serde_json::{Value, json};

use super::intents::{IDLE, get, post};
use crate::world::World;

async fn base_job(world: &World, body: Value) -> String {
    let (status, reply) = post(world, "/jobs", body).await;
    assert_eq!((status, &reply["state"]), (200, &json!("queued")), "{reply}");
    reply["job_id"].as_str().unwrap().to_owned()
}

async fn ask(world: &World, worker: &str) -> Value {
    let (status, reply) = post(world, "/leases/request", json!({"worker_id": worker})).await;
    assert_eq!(status, 200, "a denial is an answer: {reply}");
    reply
}

async fn shown(world: &World, id: &str) -> Value {
    let (_, list) = get(world, "/jobs").await;
    let jobs = list["jobs"].as_array().unwrap();
    jobs.iter().map(|entry| &entry["job"]).find(|job| job["job_id"] == id).unwrap().clone()
}

#[tokio::test]
async fn b1_b2_b3_denials_are_answers_and_jobs_stay_queued() {
    let world = World::new(IDLE).await;
    let denied = ask(&world, "w1").await;
    let expected = json!({"denied": true, "reason": "No eligible job found", "retry_after_ms": 1500, "retry_after_sec": 2});
    assert_eq!(denied, expected);
    base_job(&world, json!({"requested_units": 60})).await;
    let second = base_job(&world, json!({"requested_units": 60})).await;
    assert_eq!(ask(&world, "w1").await["denied"], false);
    let denied = ask(&world, "w2").await;
    assert_eq!(denied["reason"], "Next job needs 60u but only 30u available");
    assert_eq!((&denied["retry_after_ms"], &denied["retry_after_sec"]), (&json!(2000), &json!(2)));
    assert_eq!(shown(&world, &second).await["state"], "queued");
    // `max_units` filters the offered jobs; the charge is the job's own cost.
    let small = base_job(&world, json!({"requested_units": 10})).await;
    let (_, given) = post(&world, "/leases/request", json!({"worker_id": "w3", "max_units": 20})).await;
    assert_eq!((&given["lease"]["job_id"], &given["lease"]["capacity_units"]), (&json!(small), &json!(10)));
}

#[tokio::test]
async fn w10_a_negative_limit_is_rejected_and_nothing_is_charged_less() {
    let world = World::new(IDLE).await;
    base_job(&world, json!({"requested_units": 50})).await;
    let (status, _) = post(&world, "/leases/request", json!({"worker_id": "w1", "max_units": -5})).await;
    assert_eq!(status, 422);
    let (_, reply) = post(&world, "/leases/request", json!({"worker_id": "w1", "max_units": 0})).await;
    assert_eq!(reply["denied"], true);
    assert_eq!(get(&world, "/status").await.1["available_capacity_units"], 90);
    let (_, given) = post(&world, "/leases/request", json!({"worker_id": "w1", "max_units": 50})).await;
    assert_eq!(given["lease"]["capacity_units"], 50);
}

#[tokio::test]
async fn b4_b5_b6_b7_a_lease_lives_sixty_seconds_after_each_heartbeat() {
    let world = World::new(IDLE).await;
    let id = base_job(&world, json!({})).await;
    let given = ask(&world, "w1").await;
    assert_eq!(given["lease"]["expires_at"], "2023-11-14T22:14:20.000000Z");
    assert_eq!(given["job"]["state"], "leased");
    let lease = given["lease"]["lease_id"].as_str().unwrap();
    world.advance(Span::secs(59)).await;
    let (status, reply) =
        post(&world, &format!("/leases/{lease}/heartbeat"), json!({"worker_id": "w1"})).await;
    assert_eq!((status, &reply["expires_at"]), (200, &json!("2023-11-14T22:15:19.000000Z")));
    assert_eq!(shown(&world, &id).await["state"], "running");
    for verb in ["heartbeat", "report"] {
        let body = json!({"worker_id": "w2"});
        let (status, reply) = post(&world, &format!("/leases/{lease}/{verb}"), body.clone()).await;
        assert_eq!((status, &reply["detail"]), (403, &json!("worker_mismatch")));
        let unknown = "00000000-0000-4000-8000-000000000000";
        let (status, reply) = post(&world, &format!("/leases/{unknown}/{verb}"), body).await;
        assert_eq!((status, &reply["detail"]), (404, &json!("lease_not_found")));
    }
    let complete = json!({"worker_id": "w2", "status": "completed"});
    let (status, _) =
        post(&world, "/leases/00000000-0000-4000-8000-000000000000/complete", complete.clone()).await;
    assert_eq!(status, 200, "an unknown lease needs no action");
    let (status, _) = post(&world, &format!("/leases/{lease}/complete"), complete).await;
    assert_eq!(status, 403);
    assert_eq!(shown(&world, &id).await["state"], "running");
}

#[tokio::test]
async fn b9_b10_b11_revoked_is_failed_and_silent_is_expired() {
    let world = World::new(IDLE).await;
    let silent = base_job(&world, json!({"requested_units": 60})).await;
    let lease = ask(&world, "w1").await["lease"]["lease_id"].as_str().unwrap().to_owned();
    world.advance(Span::secs(60)).await;
    let seen = shown(&world, &silent).await;
    assert_eq!((&seen["state"], &seen["lease_id"]), (&json!("expired"), &Value::Null));
    assert_eq!(get(&world, "/status").await.1["available_capacity_units"], 90);
    let complete = json!({"worker_id": "w1", "status": "completed"});
    assert_eq!(
        post(&world, &format!("/leases/{lease}/complete"), complete).await,
        (200, json!({"ok": true}))
    );
    assert_eq!(shown(&world, &silent).await["state"], "expired", "too late");

    let revoked = base_job(&world, json!({"requested_units": 60, "payload": {"a": 1}})).await;
    let lease = ask(&world, "w1").await["lease"]["lease_id"].as_str().unwrap().to_owned();
    let (status, _) = post(&world, &format!("/leases/{lease}/revoke"), json!({"reason": "why not"})).await;
    assert_eq!(status, 200);
    assert_eq!(post(&world, &format!("/leases/{lease}/revoke"), json!({})).await.0, 404);
    let seen = shown(&world, &revoked).await;
    assert_eq!(seen["state"], "failed");
    assert_eq!(seen["payload"], json!({"a": 1, "revoke_reason": "why not"}));
    assert_eq!(seen["lease_id"], json!(lease));
}

#[tokio::test]
async fn b13_b14_unique_jobs_and_caps() {
    let world = World::new(&format!("{IDLE}\nlanes.synthia_jobs.running_per_agent_max = 2")).await;
    for _ in 0..2 {
        base_job(&world, json!({"unique": true, "tags": ["addon:x"]})).await;
    }
    assert_eq!(ask(&world, "w1").await["denied"], false);
    let denied = ask(&world, "w1").await;
    assert_eq!(denied["reason"], "Next job is unique and the worker holds a lease");
    assert_eq!(ask(&world, "w2").await["denied"], false);
    base_job(&world, json!({"tags": ["addon:x"]})).await;
    assert_eq!(ask(&world, "w3").await["denied"], true, "the add-on has two leases");
    base_job(&world, json!({"tags": ["addon:y"]})).await;
    assert_eq!(ask(&world, "w3").await["job"]["tags"], json!(["addon:y"]), "and does not hide other jobs");
    world.configure(json!({"lanes": {"synthia_jobs": {"running_max": 3}}})).await;
    base_job(&world, json!({"tags": ["addon:z"]})).await;
    let denied = ask(&world, "w4").await;
    assert_eq!(
        (&denied["reason"], &denied["retry_after_ms"]),
        (&json!("Max active leases reached (3)"), &json!(2000))
    );
}

#[tokio::test]
async fn b15_b23_w7_w8_admission_follows_the_machine() {
    let world = World::new("").await;
    let request = async |cost: u32, priority: &str| {
        let body = json!({"addon_id": "a", "job_type": "j", "cost_units": cost, "priority": priority});
        let (status, reply) = post(&world, "/lease/request", body).await;
        assert_eq!(status, 200);
        (
            reply["approved"].as_bool().unwrap(),
            reply["reason"].as_str().unwrap().to_owned(),
            reply["retry_after_sec"].clone(),
        )
    };
    let (_, status) = get(&world, "/status").await;
    assert_eq!((&status["busy_rating"], &status["usable_capacity_units"]), (&json!(8), &json!(9)));
    let busy = (false, "System is BUSY; waiting for QUIET".to_owned(), json!(10));
    assert_eq!(request(5, "NORMAL").await, busy, "the load is unknown");
    assert!(request(5, "HIGH").await.0, "high jobs may start at busy, within the usable units");
    world.load(3, QuietState::Normal).await;
    assert_eq!(request(5, "LOW").await.1, "System is NORMAL; waiting for QUIET");
    world.load(9, QuietState::Panic).await;
    let panic = (false, "Recent PANIC detected; cooling down".to_owned(), json!(30));
    assert_eq!(request(1, "HIGH").await, panic, "a panic denies all");
    world.load(0, QuietState::Quiet).await;
    let full = (false, "Capacity exceeded: used=5, requested=90, capacity=90".to_owned(), json!(2));
    assert_eq!(request(90, "NORMAL").await, full);
    assert!(request(85, "BACKGROUND").await.0);
    world.advance(Span::secs(31)).await;
    assert_eq!(get(&world, "/status").await.1["busy_rating"], 8, "an old reading does not count");
}

#[tokio::test]
async fn w17_leases_and_base_jobs_survive_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let open = || -> Box<dyn laneway_store::Store> {
        let options = laneway_store::SqliteOptions::default();
        Box::new(laneway_store::SqliteStore::open(dir.path(), options).unwrap())
    };
    let clock = laneway_runtime::Clock::manual(crate::world::START);
    let world = World::over(open(), IDLE, clock.clone()).await;
    let job = base_job(&world, json!({"requested_units": 40})).await;
    let lease = ask(&world, "w1").await["lease"]["lease_id"].as_str().unwrap().to_owned();
    let waits = base_job(&world, json!({"requested_units": 40})).await;
    world.die().await;
    let world = World::over(open(), IDLE, clock).await;
    assert_eq!(get(&world, "/status").await.1["leased_capacity_units"], 40, "b22: the lease is renewed");
    assert_eq!(shown(&world, &waits).await["state"], "queued");
    let complete = json!({"worker_id": "w1", "status": "completed", "result": {"n": 1}});
    assert_eq!(post(&world, &format!("/leases/{lease}/complete"), complete).await.0, 200);
    let seen = shown(&world, &job).await;
    assert_eq!((&seen["state"], &seen["result"]), (&json!("completed"), &json!({"n": 1})));
}

/// Polls that are too many are answered 429. Heartbeats, reports and results of the same client are not counted with them.
#[tokio::test]
async fn defect_11_polls_that_are_too_many_cost_no_lease() {
    let world = World::new(&format!("{IDLE}\n[dialects.synthia]\nrequests_max = 10")).await;
    base_job(&world, json!({})).await;
    let lease = ask(&world, "w1").await["lease"]["lease_id"].as_str().unwrap().to_owned();
    let mut rejected = 0;
    for _ in 0..20 {
        rejected += usize::from(get(&world, "/queue/dispatchable").await.0 == 429);
        for verb in ["heartbeat", "report"] {
            let (status, reply) =
                post(&world, &format!("/leases/{lease}/{verb}"), json!({"worker_id": "w1"})).await;
            assert_eq!(status, 200, "{verb}: {reply}");
        }
    }
    assert_eq!(rejected, 12, "8 polls are left after the submit and the request for a lease");
    let complete = json!({"worker_id": "w1", "status": "completed"});
    assert_eq!(post(&world, &format!("/leases/{lease}/complete"), complete).await.0, 200);
}
