//! `X-Idempotency-Key` and `idempotencyKey`.

use laneway_core::Span;
use serde_json::{Value, json};

use super::world::{Rule, World};

#[tokio::test]
async fn a_repeated_key_is_answered_with_the_existing_job_also_with_another_body() {
    let world = World::new("").await;
    let (one, other) = (world.profile("one").await, world.profile("other").await);
    let call = async |path: &str, body: Value, key: Option<&str>| {
        let mut request = world.request("POST", path).body(body.to_string());
        if let Some(key) = key {
            request = request.header("x-idempotency-key", key);
        }
        world.answer(request).await
    };
    let (status, first) = call("/api/env/start", json!({"id": one}), Some("k1")).await;
    assert_eq!((status, &first["data"]["status"]), (200, &json!("queued")), "{first}");
    assert_eq!(first["data"]["idempotent"], Value::Null);
    let id = first["data"]["jobId"].as_str().unwrap().to_owned();
    world.ended(&id).await;
    let existing = json!({
        "jobId": id, "status": "succeeded", "result": world.job(&id).await["result"], "idempotent": true,
    });
    for (path, body, key) in [
        ("/api/env/start", json!({"id": one}), Some("k1")),
        ("/api/env/start", json!({"id": other}), Some("k1")),
        ("/api/env/close", json!({"id": other}), Some("k1")),
        ("/api/env/start", json!({"id": one, "idempotencyKey": "k1"}), None),
        ("/api/env/start", json!({"id": one, "idempotencyKey": "ignored"}), Some("k1")),
        // The state of the profile does not matter for a request that was answered already.
        ("/api/env/start", json!({"id": "no-such-profile"}), Some("k1")),
    ] {
        let (status, answer) = call(path, body.clone(), key).await;
        assert_eq!((status, &answer["data"]), (200, &existing), "{path} {body}");
        assert_eq!((&answer["code"], &answer["msg"]), (&json!(0), &json!("success")));
    }
    let (_, answer) = world.get("/api/jobs").await;
    assert_eq!(answer["data"]["list"].as_array().unwrap().len(), 1, "one job was enqueued: {answer}");
}

#[tokio::test]
async fn a_key_is_forgotten_24_hours_after_its_job_has_ended() {
    let world = World::new("").await;
    world.rules.add("browser_stop_all", Rule::Hold);
    let call = async || {
        let (status, answer) = world.post("/api/env/closeAll", json!({"idempotencyKey": "k"})).await;
        assert_eq!(status, 200, "{answer}");
        answer["data"].clone()
    };
    let first = call().await;
    let id = first["jobId"].as_str().unwrap().to_owned();
    world.running(&id).await;
    assert_eq!(call().await, json!({"jobId": id, "status": "running", "result": null, "idempotent": true}));
    world.release();
    world.ended(&id).await;
    world.advance(Span::hours(23)).await;
    assert_eq!(call().await["idempotent"], true);
    world.advance(Span::hours(2)).await;
    let second = call().await;
    assert!(second["idempotent"].is_null() && second["jobId"] != json!(id), "{second}");
}

#[tokio::test]
async fn keys_of_tenants_and_of_the_native_api_are_apart() {
    let world = World::on_the_main_port("").await;
    let (acme, globex) = world.two_tenants().await;
    let mut ids = Vec::new();
    for token in [&acme, &globex] {
        let request = world.request("POST", "/api/env/closeAll").bearer_auth(token);
        let (status, answer) = world.answer(request.header("x-idempotency-key", "same")).await;
        assert_eq!((status, &answer["data"]["idempotent"]), (200, &Value::Null), "{answer}");
        ids.push(answer["data"]["jobId"].clone());
    }
    assert_ne!(ids[0], ids[1]);
    let native = world.request("POST", "/v1/jobs").bearer_auth(&acme).header("idempotency-key", "same");
    let (status, answer) = world.answer(native.json(&json!({"kind": "echo"}))).await;
    assert!(status < 300, "the native key is another one: {status} {answer}");
}

#[tokio::test]
async fn bad_keys_are_rejected_and_nothing_is_enqueued() {
    let world = World::new("").await;
    let long = "k".repeat(256);
    let request = || world.request("POST", "/api/env/closeAll");
    for (request, code) in [
        (request().header("x-idempotency-key", &long), -1606),
        (request().header("x-idempotency-key", "käse"), -1602),
        (request().body(json!({"idempotencyKey": long}).to_string()), -1606),
        (request().body(json!({"idempotencyKey": 7}).to_string()), -1602),
    ] {
        let (status, answer) = world.answer(request).await;
        assert_eq!((status, &answer["code"]), (400, &json!(code)), "{answer}");
    }
    let (_, answer) = world.get("/api/jobs").await;
    assert_eq!(answer["data"]["list"], json!([]));
    let (status, answer) = world.answer(request().header("x-idempotency-key", "  ")).await;
    assert_eq!((status, &answer["data"]["status"]), (200, &json!("queued")), "a blank key is none");
}
