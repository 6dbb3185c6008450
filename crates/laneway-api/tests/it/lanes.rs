//! Lanes: listed, created, changed, paused.

use expect_test::expect;
use serde_json::json;

use crate::world::{World, answer};

#[tokio::test]
async fn creates_changes_and_lists_lanes() {
    let world = World::new().await;
    expect![[r#"
        201 Created
        content-type: application/json
        {
          "aging_step": "1m",
          "counts": {
            "canceled": 0,
            "dispatched": 0,
            "expired": 0,
            "failed": 0,
            "queue_wait_ms": 0,
            "rejected": 0,
            "run_time_ms": 0,
            "runs": 0,
            "submitted": 0,
            "succeeded": 0
          },
          "dispatch": "push",
          "name": "bulk",
          "on_shutdown": "keep",
          "order": "priority",
          "paused": false,
          "queued_max": 1000000,
          "queued_per_agent_max": 1000000,
          "retention": "7d",
          "running": 0,
          "running_max": 3,
          "running_per_agent_max": 256,
          "waiting": 0
        }
    "#]]
    .assert_eq(&world.talk("PUT", "/v1/lanes/bulk", r#"{"running_max":3,"order":"priority"}"#).await);
    let (status, changed) =
        answer(world.request("PUT", "/v1/lanes/bulk").body(r#"{"queued_max":9,"aging_step":"none"}"#)).await;
    assert_eq!(
        (status.as_u16(), &changed["queued_max"], &changed["running_max"]),
        (200, &json!(9), &json!(3))
    );
    assert_eq!(changed.get("aging_step"), None);
    let lanes = world.ask("GET", "/v1/lanes", "").await;
    let names: Vec<&str> =
        lanes["lanes"].as_array().unwrap().iter().map(|lane| lane["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bulk", "cron", "main", "subagent", "team"]);
    let id = world.submit(r#"{"kind":"k","lane":"bulk"}"#).await;
    let lane = world.ask("GET", "/v1/lanes/bulk", "").await;
    assert_eq!((&lane["waiting"], &lane["oldest"]["id"]), (&json!(1), &json!(id)));
}

#[tokio::test]
async fn pauses_and_resumes() {
    let world = World::new().await;
    assert_eq!(world.ask("POST", "/v1/lanes/main/pause", "").await["paused"], true);
    assert_eq!(world.ask("GET", "/v1/lanes/main", "").await["paused"], true);
    assert_eq!(world.ask("POST", "/v1/lanes/main/resume", "").await["paused"], false);
    expect![[r#"
        404 not_found: It does not exist
          there is no lane "nowhere"; list all lanes with GET /v1/lanes
    "#]]
    .assert_eq(&world.problem("POST", "/v1/lanes/nowhere/pause", "").await);
}

#[tokio::test]
async fn rejects_invalid_lanes() {
    let world = World::new().await;
    for (path, body, code, field) in [
        ("/v1/lanes/bulk", r#"{"running_mx":3}"#, "unknown_field", "running_mx"),
        ("/v1/lanes/bulk", r#"{"running_max":-3}"#, "invalid_field", "running_max"),
        ("/v1/lanes/bulk", r#"{"order":"random"}"#, "invalid_field", "lanes.bulk.order"),
        ("/v1/lanes/bulk", r#"{"retention":"soon"}"#, "invalid_field", "lanes.bulk.retention"),
        ("/v1/lanes/b%20k", r#"{}"#, "invalid_field", "the name in the path"),
    ] {
        let (status, problem) = answer(world.request("PUT", path).body(body)).await;
        let response =
            (status.as_u16(), problem["code"].as_str().unwrap(), problem["field"].as_str().unwrap());
        assert_eq!(response, (400, code, field), "{body}: {problem}");
    }
    assert_eq!(
        world.ask("GET", "/v1/lanes", "").await["lanes"].as_array().unwrap().len(),
        4,
        "no lane was created"
    );
}

#[tokio::test]
async fn removed_lanes_cannot_be_changed() {
    let world = World::new().await;
    world.ask("PUT", "/v1/lanes/bulk", "{}").await;
    world.ask("PUT", "/v1/lanes/empty", "{}").await;
    let id = world.submit(r#"{"kind":"unserved","lane":"bulk"}"#).await;
    let names = async || {
        let lanes = world.ask("GET", "/v1/lanes", "").await;
        let names = lanes["lanes"].as_array().unwrap().iter().map(|lane| lane["name"].as_str().unwrap());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["bulk", "cron", "empty", "main", "subagent", "team"]);
    world.ask("PATCH", "/v1/config", r#"{"lanes":{"empty":null}}"#).await;
    assert_eq!(names().await, ["bulk", "cron", "main", "subagent", "team"]);
    let (status, _) = answer(world.request("PATCH", "/v1/config").body(r#"{"lanes":{"bulk":null}}"#)).await;
    assert_eq!(status, 409, "it still has a job");
    world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "").await;
    world.ask("PATCH", "/v1/config", r#"{"lanes":{"bulk":null}}"#).await;
    assert_eq!(names().await, ["cron", "main", "subagent", "team"]);
    for name in ["bulk", "empty"] {
        for (method, rest) in [("GET", ""), ("POST", "/pause"), ("POST", "/resume")] {
            let (status, problem) = answer(world.request(method, &format!("/v1/lanes/{name}{rest}"))).await;
            assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("not_found")), "{name}{rest}");
        }
    }
    let (status, _) = answer(world.request("PUT", "/v1/lanes/bulk").body("{}")).await;
    assert_eq!(status, 201, "it is new again");
}
