//! Audit entries.

use laneway_core::Role;
use serde_json::{Value, json};

use crate::world::{World, answer};

async fn entries(world: &World) -> Vec<Value> {
    let list = world.ask("GET", "/v1/audit?limit=500", "").await;
    list["entries"].as_array().unwrap().clone()
}

#[tokio::test]
async fn every_change_leaves_an_entry() {
    let world = World::closed().await;
    let id = world.submit(r#"{"kind":"k"}"#).await;
    world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "").await;
    world.ask("POST", &format!("/v1/jobs/{id}/retry"), "").await;
    world.ask("POST", "/v1/jobs/batch", r#"{"jobs":[{"kind":"a"},{"kind":"b"}]}"#).await;
    world.ask("PUT", "/v1/lanes/bulk", "{}").await;
    world.ask("POST", "/v1/lanes/bulk/pause", "").await;
    world.ask("PATCH", "/v1/config", r#"{"limits":{"running_max":5}}"#).await;
    world.ask("POST", "/v1/config/reload", "").await;
    let made = world.ask("POST", "/v1/tokens", r#"{"role":"viewer","tenant":"t"}"#).await;
    let token = made["token"]["id"].as_str().unwrap();
    world.ask("POST", &format!("/v1/tokens/{token}/rotate"), "").await;
    let me = world.ask("GET", "/v1/caller", "").await["actor"].clone();
    let mine: Vec<Value> = entries(&world).await.into_iter().filter(|entry| entry["actor"] == me).collect();
    let actions: Vec<&str> = mine.iter().rev().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions,
        [
            "job.submitted",
            "job.canceled",
            "job.submitted",
            "job.submitted",
            "job.submitted",
            "config.changed",
            "config.changed",
            "config.changed",
            "call.done",
            "token.created",
            "token.created",
            "token.revoked",
        ]
    );
    for entry in &mine {
        assert_eq!(entry["outcome"], "done");
        assert!(entry["request_id"].is_string() && entry["at"].is_string(), "{entry}");
    }
}

#[tokio::test]
async fn rejected_and_denied_requests_leave_an_entry() {
    let world = World::closed().await;
    let viewer = world.token(Some("t"), Role::Viewer).await;
    let calls = [
        (world.request("POST", "/v1/jobs").body("{"), "rejected", "submit_job: malformed_json"),
        (
            world.request("POST", "/v1/jobs").body(r#"{"kind":"k","deadline":"2020-01-01T00:00:00Z"}"#),
            "rejected",
            "submit_job: deadline_past",
        ),
        (
            world.request("POST", "/v1/jobs/batch").body(r#"{"jobs":[{"kind":""}]}"#),
            "rejected",
            "submit_batch: 1 of 1",
        ),
        (world.request("DELETE", "/v1/tokens/missing"), "rejected", "revoke_token: not_found"),
        (
            world.request_as(&viewer, "POST", "/v1/jobs").body(r#"{"kind":"k"}"#),
            "denied",
            "submit_job: forbidden",
        ),
        (world.request_as(&viewer, "GET", "/v1/config"), "denied", "get_config: forbidden"),
        (world.request_as("lw_0_0", "POST", "/v1/jobs"), "denied", "submit_job: unauthorized"),
    ];
    for (request, outcome, detail) in calls {
        let response = request.send().await.unwrap();
        let id = json!(response.headers()["request-id"].to_str().unwrap());
        let all = entries(&world).await;
        let entry = all
            .iter()
            .find(|entry| entry["request_id"] == id)
            .unwrap_or_else(|| panic!("no entry for {detail}"));
        assert_eq!(entry["outcome"], outcome);
        assert!(entry["detail"].as_str().unwrap().starts_with(detail), "{entry}");
    }
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0);
}

#[tokio::test]
async fn a_flood_of_rejections_is_counted_and_not_written() {
    let world = World::closed().await;
    for _ in 0..200 {
        let (status, _) = answer(world.request("POST", "/v1/jobs").body("{")).await;
        assert_eq!(status, 400);
    }
    let noted = entries(&world).await.iter().filter(|entry| entry["outcome"] == "rejected").count();
    assert!(noted >= 20, "some are recorded, not {noted}");
    assert!(noted < 200, "not all are recorded");
}

#[tokio::test]
async fn reads_leave_no_entry() {
    let world = World::closed().await;
    let before = entries(&world).await.len();
    for path in ["/v1/jobs", "/v1/stats", "/v1/lanes", "/v1/config", "/v1/tokens", "/v1/jobs/nonsense"] {
        answer(world.request("GET", path)).await;
    }
    assert_eq!(entries(&world).await.len(), before);
}
