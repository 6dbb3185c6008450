//! Runs from start to end, on a worker.

use serde_json::{Value, json};

use super::fake_worker::FakeWorker;
use super::page::{Page, edge, node, statuses, workflow};
use crate::world::{World, with_pauses};

#[tokio::test]
async fn a_run_goes_through_its_nodes_and_data_goes_along_its_edges() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let id = world.start_run("desk", &workflow(&[node("a"), node("b")], &[edge("a", "b")])).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let first = fake.finish_next(json!({"out": {"deep": [1]}})).await;
    assert_eq!((&first.payload["run_id"], first.node()), (&json!(id), "a"));
    assert_eq!(first.payload["parameters"], json!({"own": "a"}));
    assert_eq!(first.payload["concurrency_key"], json!(format!("{id}:a")));
    let second = fake.finish_next(json!({"out": 2})).await;
    assert_eq!(second.payload["parameters"], json!({"own": "b", "in": {"deep": [1]}}));
    assert_eq!((&first.frame["seq"], &second.frame["seq"]), (&json!(1), &json!(2)), "numbers of the run");
    page.until("succeeded").await;
    let run = world.run(&id).await;
    assert_eq!(run["status"], "succeeded");
    assert_eq!(statuses(&run), [("a", "succeeded"), ("b", "succeeded")]);
    assert_eq!(run["nodes"][1]["result"], json!({"out": 2}));
    assert_eq!(run["nodes"][1]["taskId"], "b");
}

/// X1: a duplicate result does not release nodes that wait for another one.
#[tokio::test]
async fn x1_a_result_that_comes_twice_does_not_release_a_join() {
    let world = World::in_real_time("").await;
    let joined = workflow(&[node("a"), node("b"), node("c")], &[edge("a", "c"), edge("b", "c")]);
    let id = world.start_run("desk", &joined).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let (one, two) = (fake.take().await, fake.take().await);
    let acked = fake.end(&one, "SUCCEEDED", json!({"out": 1})).await;
    assert_eq!(acked["payload"]["ok"], true);
    let again = fake.end(&one, "SUCCEEDED", json!({"out": 99})).await;
    assert_eq!(again["payload"]["info"], "E.RESULT.DUPLICATE");
    let run = world.run(&id).await;
    let running = two.node().to_owned();
    for (node, status) in statuses(&run) {
        let expected = if node == "c" {
            "queued"
        } else if node == running {
            "running"
        } else {
            "succeeded"
        };
        assert_eq!(status, expected, "{node}");
    }
    fake.end(&two, "SUCCEEDED", json!({"out": 2})).await;
    assert_eq!(fake.take().await.node(), "c", "released once, by the last result");
}

/// X6: a worker that cancels, a graph with a cycle, a failure without a reason.
#[tokio::test]
async fn x6_a_worker_that_cancels_ends_the_run_and_failures_have_reasons() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;

    let id = world.start_run("desk", &workflow(&[node("a"), node("b")], &[edge("a", "b")])).await;
    let task = fake.take().await;
    fake.end(&task, "CANCELLED", json!({})).await;
    page.until("failed").await;
    let run = world.run(&id).await;
    assert_eq!(
        (&run["status"], &run["error"]["code"]),
        (&json!("failed"), &json!("canceled")),
        "no caller requested it"
    );
    assert_eq!(statuses(&run), [("a", "failed"), ("b", "cancelled")]);

    let cycle = json!({"workflow": workflow(&[node("a"), node("b")], &[edge("a", "b"), edge("b", "a")]),
        "clientId": "desk"});
    let (status, rejected) = world.ask("POST", "/api/v1/runs", &cycle).await;
    assert_eq!((status, &rejected["error"]), (400, &json!("invalid_workflow")), "{rejected}");

    let id = world.start_run("desk", &workflow(&[node("a"), node("b")], &[edge("a", "b")])).await;
    let task = fake.take().await;
    fake.end(&task, "FAILED", json!({})).await;
    let received = page.until("failed").await;
    let run = world.run(&id).await;
    assert_eq!(run["error"]["code"], "E.RUNNER.FAILURE");
    assert_eq!(run["error"]["details"]["nodeId"], "a");
    assert_eq!(run["nodes"][0]["error"]["code"], "E.RUNNER.FAILURE");
    assert_eq!(statuses(&run), [("a", "failed"), ("b", "cancelled")]);
    let reported: Vec<&Value> = received.iter().filter(|event| event["type"] == "node.error").collect();
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0]["data"]["error"]["code"], "E.RUNNER.FAILURE");
}

/// X7: messages about a task that was never sent create no node.
#[tokio::test]
async fn x7_messages_about_an_unknown_task_create_no_node() {
    let world = World::in_real_time("").await;
    let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let task = fake.take().await;
    let mut ghost = task.clone();
    ghost.payload["task_id"] = json!("00000000-0000-7000-8000-000000000001");
    for answer in [
        fake.send_feedback(&ghost, json!({"progress": 0.5, "message": "boo"})).await,
        fake.end(&ghost, "SUCCEEDED", json!({})).await,
    ] {
        assert_eq!(answer["type"], "error");
        assert_eq!(answer["payload"]["code"], "E.SESSION.STALE_BINDING");
    }
    let run = world.run(&id).await;
    assert_eq!(statuses(&run), [("a", "running")]);
    assert_eq!((&run["nodes"][0]["workerId"], &run["nodes"][0]["seq"]), (&json!("w1"), &json!(1)));
}

#[tokio::test]
async fn the_same_start_under_one_key_is_one_run_and_another_is_rejected() {
    let world = World::new("").await;
    let start = |workflow: Value, key: &'static str| {
        let body = json!({"workflow": workflow, "clientId": "desk"}).to_string();
        let request = world.request("POST", "/api/v1/runs").header("Idempotency-Key", key).body(body);
        crate::world::answer(request)
    };
    let (status, one) = start(workflow(&[node("a")], &[]), "k1").await;
    assert_eq!(status.as_u16(), 202);
    let (status, again) = start(workflow(&[node("a")], &[]), "k1").await;
    assert_eq!((status.as_u16(), &again["runId"]), (202, &one["runId"]));
    let (status, other) = start(workflow(&[node("b")], &[]), "k1").await;
    assert_eq!((status.as_u16(), &other["error"]), (409, &json!("idempotency_conflict")));
    let long = "x".repeat(65).leak();
    let (status, rejected) = start(workflow(&[node("a")], &[]), long).await;
    assert_eq!((status.as_u16(), &rejected["details"]["field"]), (400, &json!("Idempotency-Key")));
    let (status, _) = start(workflow(&[node("a")], &[]), "k2").await;
    assert_eq!(status.as_u16(), 202);
    let (_, rest) = world.ask("GET", "/api/v1/runs?limit=1&status=failed", &Value::Null).await;
    assert_eq!(rest["nextCursor"], Value::Null);
}

#[tokio::test]
async fn defect_13_next_cursor_shows_nothing_of_other_tenants() {
    let world = World::new("").await;
    let start = || async {
        let body = json!({"workflow": workflow(&[node("a")], &[]), "clientId": "desk"});
        world.ask("POST", "/api/v1/runs", &body).await.1
    };
    let one = start().await;
    start().await;
    let (_, list) = world.ask("GET", "/api/v1/runs?limit=1", &Value::Null).await;
    let cursor = list["nextCursor"].as_str().unwrap();
    assert!(cursor.parse::<u64>().is_err(), "a number would count the jobs of every tenant: {cursor}");
    for (path, why) in
        [("cursor=1", "made up"), (&format!("cursor={cursor}&status=failed"), "of another list")]
    {
        let (status, _) = world.ask("GET", &format!("/api/v1/runs?limit=1&{path}"), &Value::Null).await;
        assert_eq!(status, 400, "{why}");
    }
    let elsewhere = world.request("GET", &format!("/api/v1/runs?limit=1&cursor={cursor}"));
    let (status, _) = crate::world::answer(elsewhere.header("laneway-tenant", "other")).await;
    assert_eq!(status.as_u16(), 400, "of another tenant");
    let (_, rest) = world.ask("GET", &format!("/api/v1/runs?limit=1&cursor={cursor}"), &Value::Null).await;
    assert_eq!((&rest["items"][0]["runId"], &rest["nextCursor"]), (&one["runId"], &Value::Null));
}

/// A large workflow is parsed outside of the server's own threads: other tasks go on meanwhile.
#[tokio::test]
async fn defect_09_a_large_workflow_stalls_no_other_call() {
    let world = World::new("").await;
    let body =
        format!(r#"{{"clientId":"desk","workflow":{{"waste":[{}]}}}}"#, vec!["0"; 7_000_000].join(","));
    assert!(body.len() > 13 << 20);
    let call = crate::world::answer(world.request("POST", "/api/v1/runs").body(body));
    let ((status, problem), took, pause) = with_pauses(call).await;
    assert_eq!(status.as_u16(), 400, "{problem}");
    println!("a workflow of 13 MiB took {took:?}, the longest pause of other tasks was {pause:?}");
    assert!(pause < took / 3, "other tasks waited {pause:?} of {took:?}");
}
