//! Profiles: created, listed, changed, trashed, restored and deleted, within their tenant.

use expect_test::expect;
use laneway_core::Role;
use serde_json::{Value, json};

use crate::world::{World, answer};

async fn create(world: &World, body: Value) -> Value {
    world.ask("POST", "/v1/profiles", &body.to_string()).await
}

/// The ids of a list, and its cursor.
async fn ids(world: &World, query: &str) -> (Vec<String>, Option<String>) {
    let list = world.ask("GET", &format!("/v1/profiles{query}"), "").await;
    let profiles = list["profiles"].as_array().unwrap();
    let ids = profiles.iter().map(|profile| profile["id"].as_str().unwrap().to_owned()).collect();
    (ids, list["next"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn creates_shows_changes_and_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    let body = json!({
        "id": "shop", "name": "The shop", "window": {"width": 1280, "height": 800}, "locale": "de-DE",
        "time_zone": "Europe/Berlin", "user_agent": "Mozilla/5.0",
        "proxy": {"scheme": "socks5", "host": "proxy.example", "port": 1080, "username": "ann", "password": "s3cret"},
    });
    expect![[r#"
        201 Created
        content-type: application/json
        location: /v1/profiles/shop
        {
          "created_at": "2023-11-14T22:13:20.000Z",
          "id": "shop",
          "locale": "de-DE",
          "name": "The shop",
          "open": false,
          "proxy": {
            "has_password": true,
            "host": "proxy.example",
            "port": 1080,
            "scheme": "socks5",
            "username": "ann"
          },
          "status": "active",
          "time_zone": "Europe/Berlin",
          "updated_at": "2023-11-14T22:13:20.000Z",
          "user_agent": "Mozilla/5.0",
          "window": {
            "height": 800,
            "width": 1280
          }
        }
    "#]]
    .assert_eq(&world.talk("POST", "/v1/profiles", &body.to_string()).await);
    let shown = world.ask("GET", "/v1/profiles/shop", "").await;
    assert_eq!(shown["name"], "The shop");
    let patch = r#"{"name":"Shop","locale":null,"proxy":{"scheme":"socks5","host":"proxy.example","port":1080,"username":"ann"}}"#;
    let changed = world.ask("PATCH", "/v1/profiles/shop", patch).await;
    assert_eq!((&changed["name"], &changed["locale"]), (&json!("Shop"), &Value::Null));
    assert_eq!(changed["proxy"]["has_password"], true, "the same proxy keeps its password");
    assert_eq!(changed["time_zone"], "Europe/Berlin", "an absent field keeps its value");
    let changed = world.ask("PATCH", "/v1/profiles/shop", r#"{"proxy":null}"#).await;
    assert_eq!(changed["proxy"], Value::Null);
    for path in ["/v1/audit", "/v1/profiles", "/v1/profiles/shop"] {
        assert!(!world.ask("GET", path, "").await.to_string().contains("s3cret"), "{path}");
    }
    let (status, problem) = answer(world.request("DELETE", "/v1/profiles/shop")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("conflict")), "only from the recycle bin");
    let trashed = world.ask("POST", "/v1/profiles/shop/trash", "").await;
    assert_eq!((&trashed["status"], trashed["trashed_at"].is_string()), (&json!("trashed"), true));
    assert_eq!(answer(world.request("POST", "/v1/profiles/shop/trash")).await.0, 409);
    let (status, _) = answer(world.request("PATCH", "/v1/profiles/shop").body(r#"{"name":"x"}"#)).await;
    assert_eq!(status, 409, "a profile of the recycle bin is not changed");
    assert_eq!(world.ask("POST", "/v1/profiles/shop/restore", "").await["status"], "active");
    assert_eq!(answer(world.request("POST", "/v1/profiles/shop/restore")).await.0, 409);
    world.ask("POST", "/v1/profiles/shop/trash", "").await;
    assert_eq!(answer(world.request("DELETE", "/v1/profiles/shop")).await.0, 204);
    assert_eq!(answer(world.request("GET", "/v1/profiles/shop")).await.0, 404);
    create(&world, json!({"id": "shop"})).await;
    assert_eq!(answer(world.request("DELETE", "/v1/profiles/shop?force=true")).await.0, 204);
    assert_eq!(answer(world.request("DELETE", "/v1/profiles/shop?force=true")).await.0, 404);
    world.stop().await;
}

#[tokio::test]
async fn a_profile_without_fields_gets_an_id_and_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    let made = world.ask("POST", "/v1/profiles", "").await;
    assert!(made["id"].as_str().unwrap().starts_with("p-"), "{made}");
    assert_eq!(made["name"], "unnamed");
    assert_eq!(create(&world, json!({"id": "shop"})).await["name"], "shop", "the id is the name");
    let (status, problem) = answer(world.request("POST", "/v1/profiles").body(r#"{"id":"shop"}"#)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("already_exists")));
    let keyed = world.request("POST", "/v1/profiles").header("idempotency-key", "k").body("{}");
    assert_eq!(answer(keyed).await.0, 400, "the key would have no effect");
    world.stop().await;
}

#[tokio::test]
async fn lists_pages_of_what_is_searched() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    for (id, name) in [("a1", "Alpha"), ("a2", "Beta"), ("b1", "ALPHABET"), ("b2", "Gamma")] {
        create(&world, json!({"id": id, "name": name})).await;
    }
    world.ask("POST", "/v1/profiles/b2/trash", "").await;
    assert_eq!(ids(&world, "").await.0.len(), 4);
    assert_eq!(ids(&world, "?search=alpha").await.0, ["a1", "b1"]);
    assert_eq!(ids(&world, "?search=a2&status=active").await.0, ["a2"]);
    assert_eq!(ids(&world, "?status=trashed").await.0, ["b2"]);
    let (first, next) = ids(&world, "?limit=3").await;
    let next = next.unwrap();
    let (second, end) = ids(&world, &format!("?limit=3&cursor={next}")).await;
    assert_eq!((first.len(), second.len(), end), (3, 1, None));
    assert!(!first.contains(&second[0]));
    for (query, field) in [
        ("?limit=0", "limit"),
        ("?limit=501", "limit"),
        ("?status=gone", "status"),
        ("?colour=red", "colour"),
        (&format!("?limit=3&status=active&cursor={next}"), "cursor"),
        (&format!("?search={}", "x".repeat(257)), "search"),
    ] {
        let (status, problem) = answer(world.request("GET", &format!("/v1/profiles{query}"))).await;
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!(field)), "{query}: {problem}");
    }
    world.stop().await;
}

#[tokio::test]
async fn errors_name_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    let proxy = |fields: Value| {
        let mut proxy = json!({"host": "h", "port": 1});
        proxy.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "proxy": proxy })
    };
    for (body, field) in [
        (json!({"id": "../etc"}), "id"),
        (json!({"id": "A"}), "id"),
        (json!({"id": "x".repeat(65)}), "id"),
        (json!({"name": ""}), "name"),
        (json!({"name": "x".repeat(257)}), "name"),
        (json!({"window": {"width": 99, "height": 800}}), "window"),
        (json!({"user_agent": "\u{e4}"}), "user_agent"),
        (json!({"locale": "german"}), "locale"),
        (json!({"time_zone": "Mars/Base"}), "time_zone"),
        (proxy(json!({"scheme": "ftp"})), "proxy.scheme"),
        (proxy(json!({"host": "a b"})), "proxy.host"),
        (proxy(json!({"port": 0})), "proxy.port"),
        (proxy(json!({"password": "x"})), "proxy.username"),
    ] {
        let (status, problem) = answer(world.request("POST", "/v1/profiles").body(body.to_string())).await;
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!(field)), "{body}: {problem}");
        assert_eq!(problem["code"], "invalid_field", "{body}");
    }
    for body in [r#"{"window":[1280,800]}"#, r#"{"proxy":["http","h",1]}"#, r#"{"color":1}"#] {
        assert_eq!(answer(world.request("POST", "/v1/profiles").body(body)).await.0, 400, "{body}");
        create(&world, json!({})).await;
        assert_eq!(answer(world.request("PATCH", "/v1/profiles/x").body(body)).await.0, 400, "{body}");
    }
    for path in ["/v1/profiles/..%2F..%2Fetc", "/v1/profiles/A", "/v1/profiles/%2E%2E%2F"] {
        let (status, problem) = answer(world.request("GET", path)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("invalid_id")), "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_profile_belongs_to_its_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    let (ann, bob) =
        (world.token(Some("ann"), Role::Submitter).await, world.token(Some("bob"), Role::Admin).await);
    let viewer = world.token(Some("ann"), Role::Viewer).await;
    let made = world.request_as(&ann, "POST", "/v1/profiles").body(r#"{"id":"shop","name":"Ann's"}"#);
    assert_eq!(answer(made).await.0, 201);
    let list = answer(world.request_as(&bob, "GET", "/v1/profiles")).await.1;
    assert_eq!((&list["profiles"], &list["total"]), (&json!([]), &json!(0)));
    for (method, path, body) in [
        ("GET", "/v1/profiles/shop", ""),
        ("PATCH", "/v1/profiles/shop", "{}"),
        ("POST", "/v1/profiles/shop/trash", ""),
        ("POST", "/v1/profiles/shop/restore", ""),
        ("DELETE", "/v1/profiles/shop", ""),
        ("DELETE", "/v1/profiles/shop?force=true", ""),
        ("GET", "/v1/browsers/shop/tabs", ""),
        ("POST", "/v1/browsers/shop/start", ""),
        ("POST", "/v1/browsers/shop/stop", ""),
    ] {
        let (status, problem) = answer(world.request_as(&bob, method, path).body(body)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("not_found")), "{method} {path}");
    }
    let same = world.request_as(&bob, "POST", "/v1/profiles").body(r#"{"id":"shop"}"#);
    assert_eq!(answer(same).await.0, 201, "two tenants may use the same id");
    let shown = answer(world.request_as(&viewer, "GET", "/v1/profiles/shop")).await;
    assert_eq!((shown.0.as_u16(), &shown.1["name"]), (200, &json!("Ann's")));
    for (method, path) in [
        ("POST", "/v1/profiles"),
        ("PATCH", "/v1/profiles/shop"),
        ("DELETE", "/v1/profiles/shop"),
        ("POST", "/v1/profiles/shop/trash"),
        ("POST", "/v1/browsers/shop/start"),
        ("POST", "/v1/browsers/shop/stop"),
    ] {
        assert_eq!(
            answer(world.request_as(&viewer, method, path).body("{}")).await.0,
            403,
            "{method} {path}"
        );
    }
    world.stop().await;
}
