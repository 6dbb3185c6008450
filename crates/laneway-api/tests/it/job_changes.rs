//! Jobs that calls change and delete, one by one and in bulk.

use laneway_core::{Failure, Role};
use laneway_runtime::Handlers;
use serde_json::{Value, json};

use crate::world::{World, answer};

async fn patch(world: &World, id: &str, body: Value) -> (u16, Value) {
    let request = world.request("PATCH", &format!("/v1/jobs/{id}"));
    let (status, job) =
        answer(request.header("content-type", "application/json").body(body.to_string())).await;
    (status.as_u16(), job)
}

async fn delete(world: &World, id: &str) -> (u16, Value) {
    let (status, problem) = answer(world.request("DELETE", &format!("/v1/jobs/{id}"))).await;
    (status.as_u16(), problem)
}

async fn bulk(world: &World, body: Value) -> Value {
    let request = world.request("POST", "/v1/jobs/bulk").header("content-type", "application/json");
    let (status, mut operation) = answer(request.body(body.to_string())).await;
    assert_eq!(status, 202, "{operation}");
    let path = format!("/v1/operations/{}", operation["id"].as_str().unwrap());
    while operation["state"] == "running" {
        operation = world.ask("GET", &path, "").await;
        tokio::task::yield_now().await;
    }
    operation
}

async fn states(world: &World) -> Value {
    world.ask("GET", "/v1/jobs/counts", "").await["states"].clone()
}

async fn change_one(world: &World) {
    let id = world.submit(r#"{"kind":"k"}"#).await;
    let (status, job) = patch(world, &id, json!({"priority": "high", "delay": "10m"})).await;
    assert_eq!(
        (status, &job["state"], &job["priority"], &job["not_before"]),
        (200, &json!("scheduled"), &json!(-10), &json!("2023-11-14T22:23:20.000Z")),
        "{job}"
    );
    let (_, job) = patch(world, &id, json!({"run_at": "2023-11-15T00:00:00Z"})).await;
    assert_eq!((&job["not_before"], &job["priority"]), (&json!("2023-11-15T00:00:00.000Z"), &json!(-10)));
    let (status, job) = patch(world, &id, json!({"delay": "0s", "priority": 3})).await;
    assert_eq!((status, &job["state"], &job["priority"]), (200, &json!("queued"), &json!(3)), "{job}");
    let events = world.ask("GET", &format!("/v1/jobs/{id}/events"), "").await;
    let kinds: Vec<&str> =
        events["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "job.submitted",
            "job.priority_changed",
            "job.rescheduled",
            "job.rescheduled",
            "job.priority_changed",
            "job.rescheduled",
            "job.queued"
        ]
    );
    assert_eq!(states(world).await, json!({"queued": 1}));
}

#[tokio::test]
async fn a_waiting_job_gets_another_priority_and_another_time() {
    change_one(&World::new().await).await;
}

#[tokio::test]
async fn a_waiting_job_gets_another_priority_and_another_time_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_dir(dir.path()).await;
    change_one(&world).await;
    let before = world.ask("GET", "/v1/jobs", "").await;
    world.stop().await;
    let world = World::in_dir(dir.path()).await;
    assert_eq!(world.ask("GET", "/v1/jobs", "").await, before, "a restart changes nothing");
}

#[tokio::test]
async fn a_bad_patch_names_its_field_and_changes_nothing() {
    let world = World::new().await;
    let id = world.submit(r#"{"kind":"k","deadline":"2023-11-15T00:00:00Z"}"#).await;
    for (body, code, field) in [
        (json!({}), "invalid_field", "priority"),
        (json!({"prioritty": 1}), "unknown_field", "prioritty"),
        (json!({"priority": "soon"}), "invalid_field", "priority"),
        (json!({"priority": 3.5}), "invalid_field", "priority"),
        (json!({"priority": 1, "run_at": "tomorrow"}), "invalid_field", "run_at"),
        (json!({"priority": 1, "delay": "later"}), "invalid_field", "delay"),
        (json!({"delay": "400d"}), "invalid_field", "delay"),
        (json!({"delay": "1s", "run_at": "2030-01-01T00:00:00Z"}), "invalid_field", "delay"),
        (json!({"priority": 1, "run_at": "2023-11-15T00:00:00Z"}), "deadline_past", "run_at"),
    ] {
        let (status, problem) = patch(&world, &id, body.clone()).await;
        let wanted = if code == "deadline_past" { 422 } else { 400 };
        assert_eq!(
            (status, &problem["code"], &problem["field"]),
            (wanted, &json!(code), &json!(field)),
            "{body}: {problem}"
        );
    }
    let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!((&job["state"], &job["priority"]), (&json!("queued"), &json!(0)), "{job}");
    let (status, problem) =
        patch(&world, "00000000-0000-7000-8000-000000000000", json!({"priority": 1})).await;
    assert_eq!((status, &problem["code"]), (404, &json!("not_found")));
}

/// A handler that runs until its job is canceled, and one that ends at once.
async fn handlers(world: &World) {
    let handlers = Handlers::new()
        .on("endless", |job| async move {
            job.cancellation().cancelled().await;
            Err::<(), _>(Failure::permanent("stopped", "it was canceled"))
        })
        .on("quick", |_| async move { Ok::<_, Failure>(json!("done")) });
    world.run(handlers).await;
}

#[tokio::test]
async fn running_and_ended_jobs_are_not_changed_and_only_ended_ones_deleted() {
    let world = World::new().await;
    handlers(&world).await;
    let (running, ended) =
        (world.submit(r#"{"kind":"endless"}"#).await, world.submit(r#"{"kind":"quick"}"#).await);
    world.wait(&ended).await;
    while world.ask("GET", &format!("/v1/jobs/{running}"), "").await["state"] != "running" {}
    let (status, problem) = patch(&world, &running, json!({"priority": 1})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("not_waiting")), "{problem}");
    let (status, problem) = patch(&world, &ended, json!({"priority": 1})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("already_ended")), "{problem}");
    let (status, problem) = delete(&world, &running).await;
    assert_eq!((status, &problem["code"]), (409, &json!("not_ended")), "{problem}");
    assert_eq!(delete(&world, &ended).await.0, 204);
    assert_eq!(delete(&world, &ended).await.0, 404);
    for path in ["", "/payload", "/events", "/logs", "/attempts", "/explain"] {
        let (status, _) = answer(world.request("GET", &format!("/v1/jobs/{ended}{path}"))).await;
        assert_eq!(status, 404, "{path}");
    }
    assert_eq!(states(&world).await, json!({"running": 1}));
    let audit = world.ask("GET", "/v1/audit?action=job.deleted", "").await;
    assert_eq!(audit["entries"].as_array().map(Vec::len), Some(1), "{audit}");
}

#[tokio::test]
async fn the_idempotency_key_of_a_deleted_job_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_dir(dir.path()).await;
    handlers(&world).await;
    let submit = async |body: &str| {
        let request = world.request("POST", "/v1/jobs").header("content-type", "application/json");
        answer(request.header("idempotency-key", "order-1").body(body.to_owned())).await
    };
    let first = submit(r#"{"kind":"quick"}"#).await.1["id"].as_str().unwrap().to_owned();
    world.wait(&first).await;
    assert_eq!(submit(r#"{"kind":"quick"}"#).await.1["id"], json!(first));
    assert_eq!(submit(r#"{"kind":"quick","payload":1}"#).await.1["code"], "idempotency_mismatch");
    assert_eq!(delete(&world, &first).await.0, 204);
    let (status, second) = submit(r#"{"kind":"quick","payload":1}"#).await;
    assert!(status == 201 && second["id"] != json!(first), "{status}: {second}");
}

#[tokio::test]
async fn a_node_of_a_run_is_deleted_with_its_run() {
    let world = World::new().await;
    handlers(&world).await;
    let run = world.ask("POST", "/v1/runs", r#"{"nodes":[{"node":"a","job":{"kind":"quick"}}]}"#).await;
    let job = run["nodes"][0]["job"]["id"].as_str().unwrap().to_owned();
    world.wait(&job).await;
    let (status, problem) = delete(&world, &job).await;
    assert_eq!((status, &problem["code"]), (409, &json!("in_use")), "{problem}");
}

#[tokio::test]
async fn roles_and_tenants_decide_who_changes_and_deletes() {
    let world = World::closed().await;
    let submitter = world.token(Some("acme"), Role::Submitter).await;
    let operator = world.token(Some("acme"), Role::Operator).await;
    let other_tenant = world.token(Some("globex"), Role::Operator).await;
    let viewer = world.token(Some("acme"), Role::Viewer).await;
    let call = async |token: &str, method: &str, path: &str, body: &str| {
        let request = world.request_as(token, method, path).header("content-type", "application/json");
        let (status, answer) = answer(request.body(body.to_owned())).await;
        (status.as_u16(), answer)
    };
    let (_, job) = call(&submitter, "POST", "/v1/jobs", r#"{"kind":"k"}"#).await;
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let patch = r#"{"priority":1}"#;
    assert_eq!(call(&viewer, "PATCH", &path, patch).await.0, 403);
    assert_eq!(call(&other_tenant, "PATCH", &path, patch).await.0, 404);
    assert_eq!(call(&submitter, "PATCH", &path, patch).await.0, 200);
    assert_eq!(call(&submitter, "POST", &format!("{path}/cancel"), "").await.0, 200);
    let request = |token: &str| world.request_as(token, "DELETE", &path);
    assert_eq!(answer(request(&submitter)).await.0, 403, "a submitter deletes nothing");
    let all = r#"{"action":"delete","filter":{"kind":"k"}}"#;
    let (status, problem) = call(&submitter, "POST", "/v1/jobs/bulk", all).await;
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "nor in bulk: {problem}");
    assert_eq!(answer(request(&other_tenant)).await.0, 404);
    assert_eq!(answer(request(&operator)).await.0, 204);
}

async fn change_many(world: &World) {
    for n in 0..450 {
        world.submit(&format!(r#"{{"kind":"k{}","agent":"a{}"}}"#, n % 3, n % 2)).await;
    }
    let filter = json!({"kind": "k1"});
    let operation = bulk(world, json!({"action": "change_priority", "priority": -7, "filter": filter})).await;
    assert_eq!((&operation["done"], &operation["priority"]), (&json!(150), &json!(-7)), "{operation}");
    let operation = bulk(world, json!({"action": "reschedule", "delay": "1h", "filter": filter})).await;
    assert_eq!(
        (&operation["done"], &operation["run_at"]),
        (&json!(150), &json!("2023-11-14T23:13:20.000Z")),
        "{operation}"
    );
    assert_eq!(states(world).await, json!({"queued": 300, "scheduled": 150}));
    let list = world.ask("GET", "/v1/jobs?state=scheduled&limit=200", "").await;
    let jobs = list["jobs"].as_array().unwrap();
    let fits = |job: &Value| job["priority"] == -7 && job["not_before"] == "2023-11-14T23:13:20.000Z";
    assert!(jobs.len() == 150 && jobs.iter().all(fits));
    // Only ended jobs are deleted.
    let operation = bulk(world, json!({"action": "delete", "filter": filter})).await;
    assert_eq!((&operation["matched"], &operation["done"]), (&json!(0), &json!(0)), "{operation}");
    bulk(world, json!({"action": "cancel", "filter": filter})).await;
    let operation = bulk(world, json!({"action": "delete", "filter": {"state": "canceled"}})).await;
    assert_eq!((&operation["matched"], &operation["done"]), (&json!(150), &json!(150)), "{operation}");
    assert_eq!(states(world).await, json!({"queued": 300}));
    let list = world.ask("GET", "/v1/jobs?kind=k1", "").await;
    assert_eq!(list["jobs"], json!([]));
}

#[tokio::test]
async fn many_jobs_are_changed_and_deleted() {
    change_many(&World::new().await).await;
}

#[tokio::test]
async fn many_jobs_are_changed_and_deleted_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    change_many(&World::in_dir(dir.path()).await).await;
}

#[tokio::test]
async fn bulk_actions_name_what_they_lack_and_what_they_do_not_take() {
    let world = World::new().await;
    world.submit(r#"{"kind":"k"}"#).await;
    for (rest, field) in [
        (json!({"action": "reschedule"}), "run_at"),
        (json!({"action": "reschedule", "run_at": "soon"}), "run_at"),
        (json!({"action": "reschedule", "delay": "1h", "run_at": "2030-01-01T00:00:00Z"}), "delay"),
        (json!({"action": "reschedule", "delay": "1h", "priority": 1}), "priority"),
        (json!({"action": "change_priority"}), "priority"),
        (json!({"action": "change_priority", "priority": 1, "delay": "1h"}), "delay"),
        (json!({"action": "cancel", "priority": 1}), "priority"),
        (json!({"action": "delete", "run_at": "2030-01-01T00:00:00Z"}), "run_at"),
        (json!({"action": "destroy"}), "action"),
    ] {
        let mut body = rest.clone();
        body["filter"] = json!({"kind": "k"});
        let request = world.request("POST", "/v1/jobs/bulk").header("content-type", "application/json");
        let (status, problem) = answer(request.body(body.to_string())).await;
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!(field)), "{rest}: {problem}");
    }
    assert_eq!(states(&world).await, json!({"queued": 1}));
}

/// Starts an operation on all jobs of a kind, and gives the status and the answer.
async fn begin(world: &World, token: Option<&str>, priority: i32) -> (u16, Value) {
    let request = match token {
        Some(token) => world.request_as(token, "POST", "/v1/jobs/bulk"),
        None => world.request("POST", "/v1/jobs/bulk"),
    };
    let body = json!({"action": "change_priority", "priority": priority, "filter": {"kind": "k"}});
    let request = request.header("content-type", "application/json").body(body.to_string());
    let (status, operation) = answer(request).await;
    (status.as_u16(), operation)
}

async fn submit_many(world: &World, token: Option<&str>, count: usize) {
    let jobs: Vec<Value> = (0..500).map(|n| json!({"kind": "k", "payload": n})).collect();
    for _ in 0..count / 500 {
        let request = match token {
            Some(token) => world.request_as(token, "POST", "/v1/jobs/batch"),
            None => world.request("POST", "/v1/jobs/batch"),
        };
        let body = json!({"jobs": jobs}).to_string();
        let (status, _) = answer(request.header("content-type", "application/json").body(body)).await;
        assert!(status.is_success(), "{status}");
    }
}

#[tokio::test]
async fn a_tenant_has_four_open_operations_and_another_tenant_its_own() {
    let world = World::closed().await;
    let acme = world.token(Some("acme"), Role::Submitter).await;
    let globex = world.token(Some("globex"), Role::Submitter).await;
    submit_many(&world, Some(&acme), 10_000).await;
    submit_many(&world, Some(&globex), 500).await;
    let mut ids = Vec::new();
    for priority in 1..=4 {
        let (status, operation) = begin(&world, Some(&acme), priority).await;
        assert_eq!(status, 202, "{operation}");
        ids.push(operation["id"].as_str().unwrap().to_owned());
    }
    let (status, problem) = begin(&world, Some(&acme), 5).await;
    assert_eq!((status, &problem["code"]), (429, &json!("too_many")), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("at most 4 of a tenant"), "{detail}");
    let (status, operation) = begin(&world, Some(&globex), 5).await;
    assert_eq!(status, 202, "another tenant can still start one: {operation}");
    // One that has ended frees its slot.
    let path = format!("/v1/operations/{}", ids[0]);
    assert_eq!(answer(world.request_as(&acme, "POST", &format!("{path}/cancel"))).await.0, 202);
    while answer(world.request_as(&acme, "GET", &path)).await.1["state"] == "running" {}
    let (status, operation) = begin(&world, Some(&acme), 6).await;
    assert_eq!(status, 202, "{operation}");
    assert_eq!(begin(&world, Some(&acme), 7).await.0, 429);
}

#[tokio::test]
async fn open_operations_count_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_dir(dir.path()).await;
    submit_many(&world, None, 5_000).await;
    for priority in 1..=4 {
        assert_eq!(begin(&world, None, priority).await.0, 202);
    }
    world.stop().await;
    let world = World::in_dir(dir.path()).await;
    let list = world.ask("GET", "/v1/operations", "").await;
    let running = |list: &Value| {
        let operations = list["operations"].as_array().unwrap();
        operations.iter().filter(|operation| operation["state"] == "running").count()
    };
    assert_eq!(running(&list), 4, "they go on: {list}");
    let (status, problem) = begin(&world, None, 5).await;
    assert_eq!((status, &problem["code"]), (429, &json!("too_many")), "{problem}");
    // One that has ended frees its slot.
    let path = format!("/v1/operations/{}", list["operations"][0]["id"].as_str().unwrap());
    world.api.resume_operations();
    while world.ask("GET", &path, "").await["state"] == "running" {
        answer(world.request("POST", &format!("{path}/cancel"))).await;
    }
    assert_eq!(begin(&world, None, 6).await.0, 202);
    world.stop().await;
}
