//! Tenants see neither the jobs nor the profiles of one another.

use laneway_core::Role;
use serde_json::{Value, json};

use super::world::World;

#[tokio::test]
async fn a_tenant_sees_its_own_jobs_and_profiles_only() {
    let world = World::new("lanes.browsers.paused = true").await;
    let acme = world.token(Some("acme"), Role::Operator).await;
    let globex = world.token(Some("globex"), Role::Operator).await;
    let call = async |token: &str, method: &str, path: &str, body: Value| {
        world.answer(world.request(method, path).bearer_auth(token).body(body.to_string())).await
    };
    let (_, answer) = call(&acme, "POST", "/api/env/create/quick", json!({"id": "shop"})).await;
    assert_eq!(answer["code"], 0, "{answer}");
    let (_, answer) = call(&acme, "POST", "/api/env/start", json!({"id": "shop"})).await;
    let id = answer["data"]["jobId"].as_str().unwrap().to_owned();
    for (method, path, body) in [
        ("GET", format!("/api/jobs/{id}"), json!({})),
        ("POST", format!("/api/jobs/{id}/cancel"), json!({})),
        ("GET", format!("/api/jobs/{id}/logs"), json!({})),
        ("GET", format!("/api/jobs/{id}/artifacts"), json!({})),
        ("GET", format!("/api/logs/stream?job_id={id}"), json!({})),
    ] {
        let (status, answer) = call(&globex, method, &path, body).await;
        assert_eq!((status, &answer["code"]), (404, &json!(-1401)), "{path}: {answer}");
    }
    for (path, body) in [
        ("/api/env/start", json!({"id": "shop"})),
        ("/api/env/close", json!({"id": "shop"})),
        ("/api/env/clone", json!({"id": "shop"})),
        ("/api/script/run", json!({"id": "shop", "program": {"path": "/bin/true"}})),
        ("/api/profiles/shop/restore", json!({})),
    ] {
        let (status, answer) = call(&globex, "POST", path, body).await;
        assert_eq!((status, &answer["code"]), (404, &json!(-1001)), "{path}: {answer}");
    }
    assert_eq!(call(&globex, "GET", "/api/jobs", json!({})).await.1["data"]["list"], json!([]));
    assert_eq!(call(&globex, "GET", "/api/env/list", json!({})).await.1["data"]["total"], 0);
    let (_, job) = call(&acme, "GET", &format!("/api/jobs/{id}"), json!({})).await;
    assert_eq!(job["data"]["status"], "queued", "it was not canceled: {job}");
    // The same id is another profile.
    let (_, answer) = call(&globex, "POST", "/api/env/create/quick", json!({"id": "shop"})).await;
    assert_eq!(answer["code"], 0, "{answer}");
}
