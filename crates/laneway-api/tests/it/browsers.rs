//! Open browsers: listed, and started and stopped by jobs. Real browsers are in the tests of the program.

use laneway_core::JobId;
use serde_json::{Value, json};

use crate::world::{World, answer};

/// The end of a job.
async fn ended(world: &World, job: &Value) -> Value {
    let id = job["id"].as_str().unwrap();
    world.scheduler.wait(JobId::parse(id).unwrap()).await.unwrap();
    world.ask("GET", &format!("/v1/jobs/{id}"), "").await
}

#[tokio::test]
async fn a_start_without_chromium_fails_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    world.ask("POST", "/v1/profiles", r#"{"id":"shop"}"#).await;
    let (status, job) = answer(world.request("POST", "/v1/browsers/shop/start")).await;
    assert_eq!(
        (status.as_u16(), &job["kind"], &job["lane"]),
        (202, &json!("browser_start"), &json!("browsers"))
    );
    assert_eq!(job["keys"], json!({"browser": "open", "browser_profile": "shop"}));
    let job = ended(&world, &job).await;
    assert_eq!(
        (&job["state"], &job["error"]["code"]),
        (&json!("failed"), &json!("browser_missing")),
        "{job}"
    );
    let message = job["error"]["message"].as_str().unwrap();
    assert!(message.contains("/nowhere/chromium") && message.contains("browsers.chromium"), "{message}");
    let list = world.ask("GET", "/v1/browsers", "").await;
    assert_eq!(list, json!({"browsers": [], "limit": 20}));
    let (status, problem) = answer(world.request("GET", "/v1/browsers/shop/tabs")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("conflict")));
    let (status, job) = answer(world.request("POST", "/v1/browsers/shop/stop").body("{}")).await;
    assert_eq!((status.as_u16(), &job["kind"]), (202, &json!("browser_stop")));
    let job = ended(&world, &job).await;
    assert_eq!((&job["state"], &job["result"]["closed"]), (&json!("succeeded"), &json!(false)), "{job}");
    world.stop().await;
}

#[tokio::test]
async fn nothing_is_submitted_for_a_wrong_request() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    world.ask("POST", "/v1/profiles", r#"{"id":"shop"}"#).await;
    world.ask("POST", "/v1/profiles", r#"{"id":"old"}"#).await;
    world.ask("POST", "/v1/profiles/old/trash", "").await;
    for (path, body, status, code) in [
        ("/v1/browsers/none/start", "", 404, "not_found"),
        ("/v1/browsers/none/stop", "", 404, "not_found"),
        ("/v1/browsers/old/start", "", 409, "conflict"),
        ("/v1/browsers/UP/start", "", 400, "invalid_id"),
        ("/v1/browsers/shop/start", r#"{"url":"ftp://x/"}"#, 400, "invalid_field"),
        ("/v1/browsers/shop/start", r#"{"url":""}"#, 400, "invalid_field"),
        ("/v1/browsers/shop/start", r#"{"headless":"yes"}"#, 400, "invalid_field"),
        ("/v1/browsers/shop/start", r#"{"colour":1}"#, 400, "unknown_field"),
        ("/v1/browsers/shop/start?wait=1", "", 400, "unknown_field"),
        ("/v1/browsers/shop/stop", r#"{"now":true}"#, 400, "unknown_field"),
    ] {
        let (found, problem) = answer(world.request("POST", path).body(body)).await;
        assert_eq!((found.as_u16(), &problem["code"]), (status, &json!(code)), "{path} {body}: {problem}");
    }
    assert_eq!(world.ask("GET", "/v1/jobs", "").await["jobs"], json!([]));
    world.stop().await;
}

#[tokio::test]
async fn a_repeated_start_with_a_key_gets_the_first_job() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    world.ask("POST", "/v1/profiles", r#"{"id":"shop"}"#).await;
    let start = async || {
        let request = world.request("POST", "/v1/browsers/shop/start");
        answer(request.header("idempotency-key", "once").body(r#"{"headless":true}"#)).await
    };
    let (status, first) = start().await;
    assert_eq!(status, 202);
    let (status, second) = start().await;
    assert_eq!((status.as_u16(), &second["id"], &second["existing"]), (200, &first["id"], &json!(true)));
    let other = world.request("POST", "/v1/browsers/shop/start").header("idempotency-key", "once").body("{}");
    let (status, problem) = answer(other).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("idempotency_mismatch")));
    world.stop().await;
}

#[tokio::test]
async fn a_server_without_browsers_says_so() {
    let world = World::new().await;
    for path in ["/v1/profiles", "/v1/browsers"] {
        let (status, problem) = answer(world.request("GET", path)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("invalid")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("no browsers"), "{problem}");
    }
    world.stop().await;
}
