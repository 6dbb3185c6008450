//! The state of the server.

use expect_test::expect;
use laneway_core::Role;

use crate::world::{World, answer};

#[tokio::test]
async fn shows_its_paths_and_its_health() {
    let world = World::new().await;
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "links": {
            "api": "/v1",
            "events": "/v1/events",
            "health": "/health",
            "live": "/livez",
            "metrics": "/metrics",
            "openapi": "/openapi.json",
            "ready": "/readyz"
          },
          "name": "laneway",
          "version": "0.1.0"
        }
    "#]]
    .assert_eq(&world.talk("GET", "/", "").await);
    expect![[r#"
        200 OK
        content-type: text/plain; charset=utf-8
        ok
    "#]]
    .assert_eq(&world.talk("GET", "/livez", "").await);
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "status": "ready"
        }
    "#]]
    .assert_eq(&world.talk("GET", "/readyz", "").await);
    world.submit(r#"{"kind":"k"}"#).await;
    let health = world.ask("GET", "/health", "").await;
    assert_eq!((&health["status"], &health["db"]), (&"ok".into(), &"ok".into()));
    assert_eq!((&health["queue"]["running"], &health["queue"]["max_concurrent"]), (&0.into(), &1024.into()));
}

#[tokio::test]
async fn is_not_ready_while_it_stops() {
    let world = World::new().await;
    let draining = world.scheduler.drain(std::time::Duration::ZERO);
    let _ = draining.await;
    let (status, body) = answer(world.request("GET", "/readyz")).await;
    assert_eq!((status.as_u16(), &body["status"]), (503, &"draining".into()));
    assert_eq!(answer(world.request("GET", "/livez")).await.0, 200);
}

#[tokio::test]
async fn shows_metrics() {
    let world = World::new().await;
    world.submit(r#"{"kind":"k"}"#).await;
    let response = world.request("GET", "/metrics").send().await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let page = response.text().await.unwrap();
    assert!(page.contains("laneway_") && page.ends_with("# EOF\n"), "{page}");
}

#[tokio::test]
async fn every_response_has_its_own_id() {
    let world = World::new().await;
    let mut ids = std::collections::BTreeSet::new();
    for path in ["/", "/livez", "/v1/jobs", "/nowhere", "/v1/jobs/x", "/openapi.json"] {
        let response = world.request("GET", path).send().await.unwrap();
        ids.insert(response.headers()["request-id"].to_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 6);
}

#[tokio::test]
async fn finishes_open_requests_when_it_stops() {
    let world = World::new().await;
    let call = world.request("POST", "/v1/jobs").body(r#"{"kind":"k"}"#).send();
    let (response, ()) = tokio::join!(call, async { tokio::task::yield_now().await });
    assert_eq!(response.unwrap().status(), 201);
    let (address, client) = (world.address, world.client.clone());
    world.stop().await;
    assert!(
        client.get(format!("http://{address}/livez")).send().await.is_err(),
        "the server does not listen any more"
    );
}

#[tokio::test]
async fn shows_its_load_to_server_wide_callers_only() {
    let world = World::closed().await;
    let shows_load = async |request: reqwest::RequestBuilder| {
        let (status, health) = answer(request).await;
        assert_eq!((status.as_u16(), &health["status"]), (200, &"ok".into()));
        health.get("queue").is_some()
    };
    assert!(shows_load(world.request("GET", "/health")).await);
    let bare = world.client.get(format!("http://{}/health", world.address));
    assert!(!shows_load(bare).await, "without a token");
    assert!(!shows_load(world.request_as("lw_0_0", "GET", "/health")).await, "with a bad token");
    for (tenant, role, sees) in [
        (Some("acme"), Role::Admin, false),
        (Some("acme"), Role::Viewer, false),
        (None, Role::Viewer, true),
        (None, Role::Worker, false),
    ] {
        let token = world.token(tenant, role).await;
        assert_eq!(shows_load(world.request_as(&token, "GET", "/health")).await, sees, "{tenant:?} {role:?}");
    }
}

#[tokio::test]
async fn defect_17_a_drained_server_rejects_new_jobs_and_finishes_the_others() {
    let world = World::closed().await;
    let waits = world.submit(r#"{"kind":"echo"}"#).await;
    let drained = world.ask("POST", "/v1/drain", "").await;
    assert_eq!(drained, serde_json::json!({"draining": true, "waiting": 1, "running": 0}));
    let (status, rejected) = answer(world.request("POST", "/v1/jobs").body(r#"{"kind":"echo"}"#)).await;
    assert_eq!((status.as_u16(), &rejected["code"]), (503, &"draining".into()));
    assert!(rejected["detail"].as_str().unwrap().contains("DELETE /v1/drain"), "{rejected}");
    let (status, ready) = answer(world.request("GET", "/readyz")).await;
    assert_eq!((status.as_u16(), &ready["status"]), (503, &"draining".into()));
    let echo = async |_| Ok::<_, laneway_core::Failure>(());
    world.run(laneway_runtime::Handlers::new().on("echo", echo)).await;
    let id = laneway_core::JobId::parse(&waits).unwrap();
    let done = tokio::time::timeout(std::time::Duration::from_secs(60), world.scheduler.wait(id)).await;
    assert_eq!(done.unwrap().unwrap().state(), laneway_core::JobState::Succeeded, "waiting jobs go on");
    assert_eq!(world.ask("GET", "/v1/drain", "").await["waiting"], 0);
    let tenant = world.token(Some("acme"), Role::Admin).await;
    assert_eq!(answer(world.request_as(&tenant, "DELETE", "/v1/drain")).await.0, 403, "the server is shared");
    assert_eq!(world.ask("DELETE", "/v1/drain", "").await["draining"], false);
    assert_eq!(answer(world.request("GET", "/readyz")).await.0, 200);
    world.submit(r#"{"kind":"echo"}"#).await;
    world.stop().await;
}
