//! Isolation between tenants: no tenant sees data of another one.

use futures_util::StreamExt;
use laneway_core::{Failure, Name, Role};
use laneway_runtime::Handlers;
use reqwest::RequestBuilder;

use crate::world::{World, without_ids};

/// Appears in every name, payload, result, log line and note of the tenant whose data must not leak.
const CANARY: &str = "canary-7f3a";

async fn text(request: RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    let (status, id) =
        (response.status().as_u16(), response.headers()["request-id"].to_str().unwrap().to_owned());
    let headers = format!("{:?}", response.headers());
    let body = response.text().await.unwrap();
    assert!(!headers.contains(CANARY));
    (status, body.replace(&id, "<request>"))
}

async fn fill(world: &World, secret: &str) -> String {
    world
        .run(Handlers::new().on("run", |job| async move {
            job.log(CANARY);
            Ok::<_, Failure>(CANARY.to_owned())
        }))
        .await;
    let body = format!(
        r#"{{"kind":"run","payload":"{CANARY}","agent":"{CANARY}","session":"{CANARY}","keys":{{"{CANARY}":"{CANARY}"}},
        "tags":["{CANARY}"],"idempotency_key":"{CANARY}"}}"#
    );
    let (status, ran) = text(world.request_as(secret, "POST", "/v1/jobs").body(body.clone())).await;
    assert_eq!(status, 201);
    let ran: serde_json::Value = serde_json::from_str(&ran).unwrap();
    world.wait(ran["id"].as_str().unwrap()).await;
    let waits = format!(r#"{{"kind":"{CANARY}","agent":"{CANARY}","tags":["{CANARY}"]}}"#);
    let (_, waiting) = text(world.request_as(secret, "POST", "/v1/jobs").body(waits)).await;
    let schedule = format!(
        r#"{{"name":"{CANARY}","every":"1h","job":{{"kind":"run","payload":"{CANARY}","session":"{CANARY}"}}}}"#
    );
    let (status, schedule) = text(world.request_as(secret, "POST", "/v1/schedules").body(schedule)).await;
    assert_eq!(status, 201, "{schedule}");
    let schedule: serde_json::Value = serde_json::from_str(&schedule).unwrap();
    let run = format!("/v1/schedules/{}/fire", schedule["id"].as_str().unwrap());
    let (_, run) = text(world.request_as(secret, "POST", &run)).await;
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    world.wait(run["job_id"].as_str().unwrap()).await;
    text(world.request_as(secret, "POST", &format!("/v1/sessions/{CANARY}/stopall"))).await;
    // A rejected request leaves an audit entry with the name that it used.
    text(world.request_as(secret, "POST", "/v1/jobs").body(format!(r#"{{"kind":"k","{CANARY}":1}}"#))).await;
    let waiting: serde_json::Value = serde_json::from_str(&waiting).unwrap();
    waiting["id"].as_str().unwrap().to_owned()
}

async fn is_isolated(world: World) {
    let secret = world.token(Some("canary-7f3a"), Role::Admin).await;
    let nosy = world.token(Some("nosy"), Role::Admin).await;
    let job = fill(&world, &secret).await;
    let (_, own) = text(world.request_as(&secret, "GET", "/v1/jobs")).await;
    assert!(own.contains(CANARY), "the owner sees it");

    let missing = "01890000-0000-7000-8000-000000000000";
    for part in ["", "/payload", "/explain", "/logs", "/events", "/attempts"] {
        let (status, theirs) = text(world.request_as(&nosy, "GET", &format!("/v1/jobs/{job}{part}"))).await;
        let (_, missing_answer) =
            text(world.request_as(&nosy, "GET", &format!("/v1/jobs/{missing}{part}"))).await;
        assert_eq!((status, &theirs), (404, &missing_answer), "{part}: jobs of other tenants do not exist");
    }
    for part in ["/cancel", "/retry"] {
        let (status, theirs) = text(world.request_as(&nosy, "POST", &format!("/v1/jobs/{job}{part}"))).await;
        let (_, missing_answer) =
            text(world.request_as(&nosy, "POST", &format!("/v1/jobs/{missing}{part}"))).await;
        assert_eq!((status, without_ids(&theirs)), (404, without_ids(&missing_answer)), "{part}");
    }
    for path in [
        "/v1/jobs",
        "/v1/jobs?state=succeeded",
        "/v1/jobs?tag=canary-7f3a",
        "/v1/stats",
        "/v1/lanes",
        "/v1/lanes/main",
        "/v1/sessions",
        "/v1/sessions/canary-7f3b",
        "/v1/schedules?include_disabled=true",
        "/v1/schedules/firings",
        "/v1/audit",
        "/v1/tokens",
        "/v1/config",
        "/metrics",
        "/health",
        "/readyz",
        "/",
        "/openapi.json",
        "/v1/caller",
    ] {
        let (_, seen) = text(world.request_as(&nosy, "GET", path)).await;
        assert!(!seen.contains(CANARY), "{path}: {seen}");
    }
    let (_, stats) = text(world.request_as(&nosy, "GET", "/v1/stats")).await;
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!((stats["queued"].as_u64(), stats["lanes"][0]["waiting"].as_u64()), (Some(0), Some(0)));

    let (status, same_key) = text(
        world
            .request_as(&nosy, "POST", "/v1/jobs")
            .body(format!(r#"{{"kind":"k","idempotency_key":"{CANARY}"}}"#)),
    )
    .await;
    assert_eq!(status, 201, "two tenants may use the same key: {same_key}");
    stream_is_isolated(&world, &nosy).await;
    let (status, still) = text(world.request_as(&secret, "GET", &format!("/v1/jobs/{job}"))).await;
    assert_eq!(status, 200);
    assert!(still.contains("\"queued\""), "no other tenant canceled it");
}

async fn stream_is_isolated(world: &World, nosy: &str) {
    let response = world.request_as(nosy, "GET", "/v1/events?after=0").send().await.unwrap();
    let mut stream = response.bytes_stream();
    let mut heard = String::new();
    // The other tenant's job was submitted last, so all earlier events have passed when it arrives.
    while !heard.contains("job.submitted") {
        heard.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    assert!(!heard.contains(CANARY), "{heard}");
    assert_eq!(
        world.scheduler.tokens().iter().filter(|token| token.tenant == Some(Name::fixed("nosy"))).count(),
        1
    );
}

#[tokio::test]
async fn no_tenant_sees_data_of_another() {
    is_isolated(World::closed().await).await;
}

#[tokio::test]
async fn nothing_of_a_tenant_is_seen_by_another_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_dir(dir.path()).await;
    world.token(None, Role::Admin).await;
    is_isolated(world).await;
}

#[tokio::test]
async fn the_server_wide_admin_sees_all_or_one() {
    let world = World::closed().await;
    for tenant in ["a", "b"] {
        let body = r#"{"kind":"k"}"#;
        world.request("POST", "/v1/jobs").header("laneway-tenant", tenant).body(body).send().await.unwrap();
    }
    assert_eq!(world.ask("GET", "/v1/jobs", "").await["jobs"].as_array().unwrap().len(), 2);
    let one = crate::world::answer(world.request("GET", "/v1/jobs").header("laneway-tenant", "a")).await.1;
    assert_eq!(one["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(one["jobs"][0]["tenant"], "a");
}
