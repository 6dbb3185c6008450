//! Bulk operations: what they do, what they leave alone, their limits, and restarts.

use serde_json::{Value, json};

use super::world::{World, answer};

/// Waits until an operation has ended.
async fn ended(world: &World, id: &str) -> Value {
    loop {
        let operation = world.ask("GET", &format!("/v1/operations/{id}"), "").await;
        if operation["state"] != "running" {
            return operation;
        }
        tokio::task::yield_now().await;
    }
}

async fn start(world: &World, body: Value) -> (u16, Value) {
    let request = world.request("POST", "/v1/jobs/bulk").header("content-type", "application/json");
    let (status, operation) = answer(request.body(body.to_string())).await;
    (status.as_u16(), operation)
}

async fn states(world: &World, filter: &str) -> Value {
    world.ask("GET", &format!("/v1/jobs/counts{filter}"), "").await["states"].clone()
}

async fn cancel_and_retry(world: &World) {
    for n in 0..450 {
        world.submit(&format!(r#"{{"kind":"k{}","agent":"a{}"}}"#, n % 3, n % 2)).await;
    }
    let filter = json!({"kind": "k1", "state": "queued,running"});
    let (status, dry) = start(world, json!({"action": "cancel", "filter": filter, "dry_run": true})).await;
    assert_eq!((status, &dry["matched"], &dry["id"]), (200, &json!(150), &Value::Null));
    assert_eq!(states(world, "").await, json!({"queued": 450}), "a dry run changes nothing");
    let (status, operation) = start(world, json!({"action": "cancel", "filter": filter})).await;
    assert_eq!((status, &operation["matched"]), (202, &json!(150)), "{operation}");
    let id = operation["id"].as_str().unwrap().to_owned();
    let operation = ended(world, &id).await;
    assert_eq!(
        (&operation["state"], &operation["done"], &operation["failed"]),
        (&json!("done"), &json!(150), &json!(0))
    );
    assert_eq!(states(world, "").await, json!({"queued": 300, "canceled": 150}));
    assert_eq!(states(world, "?kind=k1").await, json!({"canceled": 150}));
    // The events say by what the jobs were canceled.
    let canceled = world.ask("GET", "/v1/jobs?state=canceled&limit=1", "").await;
    let job = canceled["jobs"][0]["id"].as_str().unwrap();
    let events = world.ask("GET", &format!("/v1/jobs/{job}/events"), "").await;
    assert!(events.to_string().contains(&id), "{events}");
    let (_, operation) =
        start(world, json!({"action": "retry", "filter": {"agent": "a0", "reason": "requested"}})).await;
    let operation = ended(world, operation["id"].as_str().unwrap()).await;
    assert_eq!((&operation["matched"], &operation["done"]), (&json!(75), &json!(75)), "{operation}");
    assert_eq!(states(world, "?kind=k1").await, json!({"queued": 75, "canceled": 150}));
    let (status, problem) = answer(world.request("POST", &format!("/v1/operations/{id}/cancel"))).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("already_ended")));
    let list = world.ask("GET", "/v1/operations", "").await;
    assert_eq!(list["operations"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn cancels_and_retries_every_job_of_a_filter() {
    cancel_and_retry(&World::new().await).await;
}

#[tokio::test]
async fn cancels_and_retries_every_job_of_a_filter_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    cancel_and_retry(&World::in_dir(dir.path()).await).await;
}

#[tokio::test]
async fn bad_requests_name_their_field_and_change_nothing() {
    let world = World::new().await;
    world.submit(r#"{"kind":"k"}"#).await;
    for (body, field) in [
        (json!({"action": "explode", "filter": {"kind": "k"}}), "action"),
        (json!({"action": "cancel", "filter": {}}), "filter"),
        (json!({"action": "cancel", "filter": {"state": "odd"}}), "state"),
        (json!({"action": "cancel", "filter": {"created_after": "soon"}}), "created_after"),
        (json!({"action": "cancel", "filter": {"search": "--"}}), "search"),
    ] {
        let (status, problem) = start(&world, body).await;
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
    }
    let (status, problem) = start(&world, json!({"action": "cancel", "filter": {"knd": "k"}})).await;
    assert_eq!((status, &problem["code"]), (400, &json!("unknown_field")), "{problem}");
    let (status, _) = answer(world.request("GET", "/v1/operations/op_unknown")).await;
    assert_eq!(status, 404);
    assert_eq!(states(&world, "").await, json!({"queued": 1}));
    // Nothing can be canceled that has ended.
    let (_, operation) = start(&world, json!({"action": "cancel", "filter": {"state": "failed"}})).await;
    assert_eq!(operation["matched"], 0);
    assert_eq!(ended(&world, operation["id"].as_str().unwrap()).await["done"], 0);
}
