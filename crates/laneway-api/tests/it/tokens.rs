//! Tokens: created, used, rotated, revoked.

use laneway_core::{Role, Span};
use serde_json::json;

use crate::world::{World, answer};

#[tokio::test]
async fn the_first_token_closes_an_open_server() {
    let world = World::new().await;
    assert_eq!(
        world.ask("GET", "/v1/caller", "").await,
        json!({"actor": "open", "role": "admin", "tenant": "*"})
    );
    for body in
        [r#"{"role":"viewer"}"#, r#"{"role":"admin"}"#, r#"{"role":"admin","tenant":"*","expires_in":"1h"}"#]
    {
        let (status, problem) = answer(world.request("POST", "/v1/tokens").body(body)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("conflict")), "{body}");
    }
    let made = world.ask("POST", "/v1/tokens", r#"{"role":"admin","tenant":"*","note":"mine"}"#).await;
    let secret = made["secret"].as_str().unwrap();
    let (status, _) = answer(world.request("GET", "/v1/jobs")).await;
    assert_eq!(status, 401);
    let (status, _) = answer(world.request_as(secret, "GET", "/v1/jobs")).await;
    assert_eq!(status, 200);
    let id = made["token"]["id"].as_str().unwrap();
    let (status, problem) = answer(world.request_as(secret, "DELETE", &format!("/v1/tokens/{id}"))).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (409, &json!("conflict")),
        "the last admin cannot be revoked"
    );
}

#[tokio::test]
async fn secrets_are_shown_once_and_never_again() {
    let world = World::closed().await;
    let made = world.ask("POST", "/v1/tokens", r#"{"role":"viewer","tenant":"t","note":"n"}"#).await;
    let secret = made["secret"].as_str().unwrap().rsplit('_').next().unwrap().to_owned();
    let id = made["token"]["id"].as_str().unwrap();
    for path in
        ["/v1/tokens".to_owned(), format!("/v1/tokens/{id}"), "/v1/audit".to_owned(), "/v1/config".to_owned()]
    {
        let text = world.ask("GET", &path, "").await.to_string();
        assert!(!text.contains(&secret), "{path}");
    }
    assert!(!format!("{:?}", world.scheduler.tokens()).contains(&secret));
}

#[tokio::test]
async fn expired_and_revoked_tokens_are_rejected_at_the_next_request() {
    let world = World::closed().await;
    let short = world.ask("POST", "/v1/tokens", r#"{"role":"viewer","tenant":"t","expires_in":"10m"}"#).await;
    let long = world.ask("POST", "/v1/tokens", r#"{"role":"viewer","tenant":"t"}"#).await;
    let (short_secret, long_secret) = (short["secret"].as_str().unwrap(), long["secret"].as_str().unwrap());
    assert_eq!(answer(world.request_as(short_secret, "GET", "/v1/jobs")).await.0, 200);
    world.clock.advance(Span::mins(10));
    assert_eq!(answer(world.request_as(short_secret, "GET", "/v1/jobs")).await.0, 401);
    assert_eq!(answer(world.request_as(long_secret, "GET", "/v1/jobs")).await.0, 200);
    let id = long["token"]["id"].as_str().unwrap();
    let revoked = world.ask("DELETE", &format!("/v1/tokens/{id}"), "").await;
    assert_eq!(revoked["state"], "revoked");
    assert_eq!(answer(world.request_as(long_secret, "GET", "/v1/jobs")).await.0, 401);
}

#[tokio::test]
async fn rotation_replaces_the_secret_at_once_or_after_a_grace() {
    let world = World::closed().await;
    for (body, works_after) in [("", 401), (r#"{"grace":"1h"}"#, 200)] {
        let old = world.ask("POST", "/v1/tokens", r#"{"role":"submitter","tenant":"t","note":"n"}"#).await;
        let id = old["token"]["id"].as_str().unwrap();
        let new = world.ask("POST", &format!("/v1/tokens/{id}/rotate"), body).await;
        assert_eq!(
            (&new["replaces"], &new["token"]["role"], &new["token"]["note"]),
            (&json!(id), &json!("submitter"), &json!("n"))
        );
        assert_eq!(answer(world.request_as(new["secret"].as_str().unwrap(), "GET", "/v1/jobs")).await.0, 200);
        let old = old["secret"].as_str().unwrap();
        assert_eq!(answer(world.request_as(old, "GET", "/v1/jobs")).await.0, works_after);
        world.clock.advance(Span::hours(1));
        assert_eq!(answer(world.request_as(old, "GET", "/v1/jobs")).await.0, 401);
    }
}

#[tokio::test]
async fn an_admin_of_a_tenant_manages_its_own_tokens_only() {
    let world = World::closed().await;
    let admin = world.token(Some("acme"), Role::Admin).await;
    let (status, made) =
        answer(world.request_as(&admin, "POST", "/v1/tokens").body(r#"{"role":"submitter"}"#)).await;
    assert_eq!((status.as_u16(), &made["token"]["tenant"]), (201, &json!("acme")));
    for body in [r#"{"role":"viewer","tenant":"other"}"#, r#"{"role":"viewer","tenant":"*"}"#] {
        assert_eq!(answer(world.request_as(&admin, "POST", "/v1/tokens").body(body)).await.0, 403, "{body}");
    }
    let others = world.ask("POST", "/v1/tokens", r#"{"role":"viewer","tenant":"other"}"#).await;
    let id = others["token"]["id"].as_str().unwrap();
    assert_eq!(answer(world.request_as(&admin, "DELETE", &format!("/v1/tokens/{id}"))).await.0, 404);
    assert_eq!(answer(world.request_as(&admin, "POST", &format!("/v1/tokens/{id}/rotate"))).await.0, 404);
    let (_, list) = answer(world.request_as(&admin, "GET", "/v1/tokens")).await;
    assert!(list["tokens"].as_array().unwrap().iter().all(|token| token["tenant"] == "acme"), "{list}");
}

#[tokio::test]
async fn bad_tokens_are_limited_and_good_ones_are_not() {
    let world = World::closed().await;
    let good = world.token(Some("t"), Role::Viewer).await;
    let wrong = format!("{}0", &good[..good.len() - 1].to_owned());
    let bad = if wrong == good { format!("{}1", &good[..good.len() - 1]) } else { wrong };
    for _ in 0..10 {
        assert_eq!(answer(world.request_as(&bad, "GET", "/v1/jobs")).await.0, 401);
    }
    let response = world.request_as(&bad, "GET", "/v1/jobs").send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(answer(world.request_as(&good, "GET", "/v1/jobs")).await.0, 200);
}

#[tokio::test]
async fn rejects_invalid_tokens() {
    let world = World::closed().await;
    for (body, code, field) in [
        (r#"{"role":"root"}"#, "invalid_field", "role"),
        (r#"{}"#, "invalid_field", "role"),
        (r#"{"role":"viewer","tenant":"a b"}"#, "invalid_field", "tenant"),
        (r#"{"role":"viewer","expires_in":"0s"}"#, "invalid_field", "expires_in"),
        (r#"{"role":"viewer","rle":1}"#, "unknown_field", "rle"),
    ] {
        let (status, problem) = answer(world.request("POST", "/v1/tokens").body(body)).await;
        let response =
            (status.as_u16(), problem["code"].as_str().unwrap(), problem["field"].as_str().unwrap());
        assert_eq!(response, (400, code, field), "{body}");
    }
}

#[tokio::test]
async fn the_last_permanent_admin_cannot_be_made_to_expire() {
    let world = World::closed().await;
    let me = world.ask("GET", "/v1/caller", "").await["actor"].as_str().unwrap().to_owned();
    let rotate = format!("/v1/tokens/{me}/rotate");
    let rejected = async || {
        for body in [r#"{"expires_in":"1h"}"#, r#"{"expires_in":"1h","grace":"30m"}"#] {
            let (status, problem) = answer(world.request("POST", &rotate).body(body)).await;
            assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("conflict")), "{body}");
        }
        let (status, _) = answer(world.request("DELETE", &format!("/v1/tokens/{me}"))).await;
        assert_eq!(status, 409);
    };
    rejected().await;
    // Neither an admin that expires nor one of a tenant can replace it.
    world.ask("POST", "/v1/tokens", r#"{"role":"admin","tenant":"*","expires_in":"1h"}"#).await;
    world.ask("POST", "/v1/tokens", r#"{"role":"admin","tenant":"acme"}"#).await;
    world.ask("POST", "/v1/tokens", r#"{"role":"operator","tenant":"*"}"#).await;
    rejected().await;
    assert_eq!(world.ask("GET", "/v1/caller", "").await["actor"], json!(me), "nothing was changed");
    world.ask("POST", "/v1/tokens", r#"{"role":"admin","tenant":"*"}"#).await;
    let made = world.ask("POST", &rotate, r#"{"expires_in":"1h"}"#).await;
    assert!(made["token"]["expires_at"].is_string());
}

#[tokio::test]
async fn the_last_permanent_admin_can_be_replaced_by_another() {
    let world = World::closed().await;
    let me = world.ask("GET", "/v1/caller", "").await["actor"].as_str().unwrap().to_owned();
    let made = world.ask("POST", &format!("/v1/tokens/{me}/rotate"), "").await;
    assert_eq!(made["token"].get("expires_at"), None);
    let (status, caller) =
        answer(world.request_as(made["secret"].as_str().unwrap(), "GET", "/v1/caller")).await;
    assert_eq!((status.as_u16(), &caller["role"]), (200, &json!("admin")));
}
