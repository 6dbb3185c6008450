//! The configuration over the API.

use serde_json::json;

use crate::world::{World, answer};

#[tokio::test]
async fn shows_and_changes_the_configuration() {
    let world = World::new().await;
    assert_eq!(world.ask("GET", "/v1/config", "").await["limits"]["running_max"], 1024);
    let changed = world.ask("PATCH", "/v1/config", r#"{"limits":{"running_max":7}}"#).await;
    assert_eq!(changed["limits"]["running_max"], 7);
    assert_eq!(world.ask("GET", "/v1/stats", "").await["running_max"], 7, "the engine has it as well");
    let undone = world.ask("PATCH", "/v1/config", r#"{"limits":{"running_max":null}}"#).await;
    assert_eq!(undone["limits"]["running_max"], 1024);
}

#[tokio::test]
async fn rejects_invalid_changes() {
    let world = World::new().await;
    for (body, status, code, field) in [
        (r#"{"limits":{"running_mx":7}}"#, 400, "unknown_field", "limits.running_mx"),
        (r#"{"limits":{"running_max":"many"}}"#, 400, "invalid_field", "limits.running_max"),
        (r#"{"limits":{"running_max":1,"running_max":2}}"#, 400, "invalid_field", "limits.running_max"),
        (r#"{"server":{"listen":"0.0.0.0:1"}}"#, 409, "conflict", "server"),
    ] {
        let (response, problem) = answer(world.request("PATCH", "/v1/config").body(body)).await;
        let response =
            (response.as_u16(), problem["code"].as_str().unwrap(), problem["field"].as_str().unwrap());
        assert_eq!(response, (status, code, field), "{body}: {problem}");
    }
    let (status, _) = answer(world.request("PATCH", "/v1/config").body("[1]")).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn reloads() {
    let world = World::new().await;
    assert_eq!(world.ask("POST", "/v1/config/reload", "").await, json!({"changed": [], "needs_restart": []}));
    let audit = world.ask("GET", "/v1/audit", "").await;
    assert_eq!(audit["entries"][0]["action"], "call.done");
    assert!(audit["entries"][0]["detail"].as_str().unwrap().starts_with("reload_config"));
}
