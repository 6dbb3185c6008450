//! HTTP details beside the tasks themselves: invalid bodies, tenants, the immediate path.

use laneway_core::Role;
use serde_json::{Value, json};

use crate::instance::Instance;
use crate::world::{World, answer, click};

#[tokio::test]
async fn pt_h4_pt_h5_pt_x3_bad_bodies_and_large_ones() {
    let world = World::new("").await;
    for path in ["/tasks", "/tasks/batch"] {
        let (status, _) = answer(world.request("POST", path).body("{")).await;
        assert_eq!(status, 400, "{path}");
        let body = format!("{{\"agentId\":\"{}\"}}", "x".repeat(1 << 20));
        let (status, reply) = answer(world.request("POST", path).body(body)).await;
        assert_eq!(status, 413, "{path}: {reply}");
    }
    let just_right = format!("{{\"agentId\":\"{}\"}}", "x".repeat((1 << 20) - 14));
    let (status, reply) = answer(world.request("POST", "/tasks").body(just_right)).await;
    assert_eq!(status, 400, "the size is allowed, the task is not: {reply}");
}

#[tokio::test]
async fn pt_x1_a_generic_error_is_code_and_error_only() {
    let world = World::new("").await;
    let response = world.request("POST", "/tasks").body("{}").send().await.unwrap();
    let text = response.text().await.unwrap();
    assert_eq!(text, "{\"code\":\"error\",\"error\":\"invalid task: missing required field 'agentId'\"}\n");
}

#[tokio::test]
async fn tenants_see_nothing_of_each_other() {
    let world = World::new("lanes.pinchtab.paused = true").await;
    let (mine, yours) =
        (world.token(Some("a"), Role::Submitter).await, world.token(Some("b"), Role::Submitter).await);
    let submit = world.request("POST", "/tasks").bearer_auth(&mine).body(click("x").to_string());
    let (_, accepted) = answer(submit).await;
    let id = accepted["taskId"].as_str().unwrap();
    for (token, status) in [(&mine, 200), (&yours, 404)] {
        let (found, _) = answer(world.request("GET", &format!("/tasks/{id}")).bearer_auth(token)).await;
        assert_eq!(found, status);
    }
    let (status, _) = answer(world.request("POST", &format!("/tasks/{id}/cancel")).bearer_auth(&yours)).await;
    assert_eq!(status, 404);
    let (_, list) = answer(world.request("GET", "/tasks").bearer_auth(&yours)).await;
    assert_eq!(list["count"], 0);
    let (_, stats) = answer(world.request("GET", "/scheduler/stats").bearer_auth(&yours)).await;
    assert_eq!((&stats["queue"]["totalQueued"], &stats["metrics"]["tasksSubmitted"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn the_immediate_path_passes_everything_on() {
    let world = World::new("").await;
    let instance = Instance::answering(|call| {
        let status = if call.body["kind"] == "fail" { 422 } else { 201 };
        let body = format!("did {}", call.body["kind"]);
        axum::response::Response::builder()
            .status(status)
            .header("content-type", "text/odd")
            .body(body.into())
            .unwrap()
    })
    .await;
    world.put_instance("desk", instance.address, &[]).await;
    for (kind, expected) in [("click", 201), ("fail", 422)] {
        let call = world.request("POST", "/tabs/t1/action").header("x-agent-id", "a1");
        let response = call.body(json!({"kind": kind}).to_string()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), expected);
        assert_eq!(response.headers()["content-type"], "text/odd");
        assert_eq!(response.text().await.unwrap(), format!("did \"{kind}\""));
        let seen = instance.call().await;
        assert_eq!((seen.header("x-agent-id"), seen.header("x-pinchtab-tab-id")), (Some("a1"), Some("t1")));
        assert_eq!(seen.header("x-pinchtab-source"), None, "no scheduler asked for this");
    }
    let (status, reply) = world.ask("POST", "/tabs/nowhere/action", &json!({"kind": "click"})).await;
    assert_eq!((status, &reply["code"]), (404, &json!("not_found")));
    assert_eq!(world.stats().await["metrics"]["tasksSubmitted"], 0, "nothing of it is a task");
}

#[tokio::test]
async fn calls_that_change_something_and_are_rejected_are_in_the_audit_list() {
    let world = World::new("lanes.pinchtab.queued_max = 0").await;
    world.ask("POST", "/tasks", &click("a1")).await;
    let (_, audit) = world.ask("GET", "/v1/audit", &Value::Null).await;
    let details: Vec<&str> =
        audit["entries"].as_array().unwrap().iter().filter_map(|entry| entry["detail"].as_str()).collect();
    assert!(details.iter().any(|detail| detail.starts_with("submit_task: 429")), "{audit}");
}
