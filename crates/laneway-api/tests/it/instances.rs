//! Instances: set, shown without their tokens, moved, removed, and kept across a restart.

use expect_test::expect;
use serde_json::{Value, json};

use crate::world::{World, answer, schema};

async fn put(world: &World, id: &str, body: Value) -> (u16, Value) {
    let (status, response) =
        answer(world.request("PUT", &format!("/v1/instances/{id}")).body(body.to_string())).await;
    (status.as_u16(), response)
}

#[tokio::test]
async fn sets_shows_and_removes() {
    let world = World::new().await;
    expect![[r#"
        201 Created
        content-type: application/json
        {
          "has_token": true,
          "id": "desk",
          "tabs": [
            "t1"
          ],
          "url": "http://127.0.0.1:9868/"
        }
    "#]]
    .assert_eq(
        &world.talk("PUT", "/v1/instances/desk", r#"{"port":9868,"token":"s3cret","tabs":["t1"]}"#).await,
    );
    let shown = world.ask("GET", "/v1/instances/desk", "").await;
    assert_eq!(world.ask("GET", "/v1/instances", "").await, json!({"instances": [shown]}));
    let config = world.ask("GET", "/v1/config", "").await;
    assert_eq!(config["instances"]["desk"]["token"], "***");
    assert!(!world.ask("GET", "/v1/audit", "").await.to_string().contains("s3cret"));
    let (status, _) = answer(world.request("DELETE", "/v1/instances/desk")).await;
    assert_eq!(status, 204);
    let (status, problem) = answer(world.request("DELETE", "/v1/instances/desk")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("not_found")));
}

#[tokio::test]
async fn absent_fields_stay_but_a_token_does_not_move() {
    let world = World::new().await;
    put(&world, "desk", json!({"port": 9868, "token": "s3cret", "tabs": ["t1"]})).await;
    let (status, response) = put(&world, "desk", json!({"tabs": ["t2"]})).await;
    assert_eq!((status, &response["has_token"], &response["tabs"]), (200, &json!(true), &json!(["t2"])));
    let (_, response) = put(&world, "desk", json!({"url": "http://127.0.0.1:9868"})).await;
    assert_eq!(response["has_token"], true, "it is where it was");
    let (_, response) = put(&world, "desk", json!({"url": "http://evil.example/"})).await;
    let expected = json!({"id": "desk", "url": "http://evil.example/", "has_token": false, "tabs": ["t2"]});
    assert_eq!(response, expected, "another address does not get the old token");
    put(&world, "desk", json!({"token": "new"})).await;
    let (_, response) = put(&world, "desk", json!({"token": ""})).await;
    assert_eq!(response["has_token"], false);
}

#[tokio::test]
async fn a_change_of_an_instance_of_the_file_does_not_get_its_token() {
    let world =
        World::with_config("[instances.desk]\nurl = \"http://127.0.0.1:1\"\ntoken = \"s3cret\"\n").await;
    let (_, response) = put(&world, "desk", json!({"url": "http://evil.example/"})).await;
    assert_eq!(response["has_token"], false);
    let (status, response) = answer(world.request("DELETE", "/v1/instances/desk")).await;
    assert_eq!(
        (status.as_u16(), &response["has_token"]),
        (200, &json!(true)),
        "the instance of the file is in effect again"
    );
    let (status, problem) = answer(world.request("DELETE", "/v1/instances/desk")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("conflict")));
}

#[tokio::test]
async fn rejects_invalid_instances() {
    let world = World::new().await;
    for (body, code, field) in [
        (json!({}), "invalid_field", "instances.desk.url"),
        (json!({"url": "ftp://x/"}), "invalid_field", "instances.desk.url"),
        (json!({"url": "http://u:p@x/"}), "invalid_field", "instances.desk.url"),
        (json!({"url": "http://x/?q=1"}), "invalid_field", "instances.desk.url"),
        (json!({"url": "http://x/", "port": 1}), "invalid_field", "port"),
        (json!({"port": 70_000}), "invalid_field", "port"),
        (json!({"port": 1, "token": "a\nb"}), "invalid_field", "instances.desk.token"),
        (json!({"port": 1, "tabs": [""]}), "invalid_field", "instances.desk.tabs"),
        (json!({"prt": 1}), "unknown_field", "prt"),
    ] {
        let (status, problem) = put(&world, "desk", body.clone()).await;
        assert_eq!(
            (status, &problem["code"], &problem["field"]),
            (400, &json!(code), &json!(field)),
            "{body}: {problem}"
        );
    }
    let patch = world.request("PATCH", "/v1/config").body(r#"{"instances":{"desk":{"url":"http://x/"}}}"#);
    let (status, problem) = answer(patch).await;
    assert_eq!((status.as_u16(), &problem["field"]), (409, &json!("instances")));
    assert_eq!(world.ask("GET", "/v1/instances", "").await, json!({"instances": []}));
}

#[tokio::test]
async fn instances_of_the_api_are_kept_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_dir(dir.path()).await;
    put(&world, "desk", json!({"port": 9868, "token": "s3cret"})).await;
    world.stop().await;
    let store =
        laneway_store::SqliteStore::open(dir.path(), laneway_store::SqliteOptions::default()).unwrap();
    let mut store: Box<dyn laneway_store::Store> = Box::new(store);
    let stored = store.overrides().unwrap();
    let layers = laneway_runtime::config::Layers::builtin(&schema());
    let (config, _, left_out) = layers.resolve_stored(stored.as_ref()).unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    let desk = laneway_browser::instances::get(&config, &laneway_core::Name::fixed("desk")).unwrap();
    assert_eq!(desk.token.as_ref().unwrap().reveal(), "s3cret");
}
