//! Checks the permission table: every route, every role, every reach, and callers without permission.

use laneway_api::authority::{self, Who};
use laneway_api::{mint, routes};
use laneway_core::{Name, Origin, Role, Wall};

use crate::world::{START, World, answer};

/// The path of a route with names that do not exist.
fn concrete(path: &str) -> String {
    path.replace("{id}", "00000000-0000-7000-8000-000000000000")
        .replace("{name}", "nothing")
        .replace("{profile}", "nothing")
        .replace("{key}", "nothing")
}

/// Operations that never end, or change what later requests see, get a request that is rejected behind the gate.
fn harmless(operation: &str, path: &str) -> String {
    if operation == "stream_events" { format!("{path}?job=nonsense") } else { path.to_owned() }
}

#[tokio::test]
async fn every_route_requires_the_permission_of_the_table() {
    let world = World::closed().await;
    let mut wrong = Vec::new();
    for role in Role::ALL {
        for tenant in [None, Some("acme")] {
            let token = world.token(tenant, role).await;
            for route in routes() {
                let row = authority::of(route.operation).unwrap();
                let path = harmless(route.operation, &concrete(route.path));
                let request = world.request_as(&token, route.method.as_str(), &path).body("{\"nonsense\":1}");
                let status = answer(request).await.0;
                let let_in = status != 401 && status != 403;
                if let_in != row.allows(role, tenant.is_none()) {
                    wrong.push(format!("{role:?} {tenant:?} {}: {status}", route.operation));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn callers_without_a_valid_token_are_rejected() {
    let world = World::closed().await;
    let put = async |expires_at: Option<Wall>, revoked_at: Option<Wall>| {
        let (mut record, text) = mint(None, Role::Admin, "", START.wall, expires_at).unwrap();
        record.revoked_at = revoked_at;
        world.scheduler.put_token(record, Origin::server("test")).await.unwrap();
        text
    };
    let expired = put(Some(Wall(START.wall.0 - 1)), None).await;
    let revoked = put(None, Some(START.wall)).await;
    let (_, unknown) = mint(None, Role::Admin, "", START.wall, None).unwrap();
    let garbage = ["", "lw_", "lw_x", "lw__", "Bearer", "lw_\u{7f}_x"].map(str::to_owned);
    for route in routes() {
        let open = authority::of(route.operation).unwrap().who == Who::Anyone;
        let path = concrete(route.path);
        let bare = world.client.request(route.method.clone(), format!("http://{}{path}", world.address));
        assert_eq!(answer(bare).await.0 == 401, !open, "{} without a token", route.operation);
        if open {
            continue;
        }
        for token in [&expired, &revoked, &unknown].into_iter().chain(&garbage) {
            let mut request =
                world.client.request(route.method.clone(), format!("http://{}{path}", world.address));
            let Ok(value) = reqwest::header::HeaderValue::from_str(&format!("Bearer {token}")) else {
                continue;
            };
            request = request.header("authorization", value);
            let status = answer(request).await.0;
            assert!(status == 401 || status == 429, "{} with {token:?}: {status}", route.operation);
        }
    }
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0);
}

#[tokio::test]
async fn a_bound_token_cannot_name_another_tenant() {
    let world = World::closed().await;
    let token = world.token(Some("acme"), Role::Submitter).await;
    let as_tenant =
        |tenant: &str| world.request_as(&token, "GET", "/v1/jobs").header("laneway-tenant", tenant);
    assert_eq!(answer(as_tenant("acme")).await.0, 200);
    assert_eq!(answer(as_tenant("other")).await.0, 403);
    assert_eq!(answer(as_tenant("no good name")).await.0, 400);
    let submitted =
        world.request("POST", "/v1/jobs").header("laneway-tenant", "acme").body(r#"{"kind":"k"}"#);
    assert_eq!(answer(submitted).await.1["tenant"], "acme");
    assert_eq!(answer(as_tenant("acme")).await.1["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(world.scheduler.tokens().get(&Name::fixed("missing")), None);
}
