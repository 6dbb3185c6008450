//! Every enqueueing call: its job, its kind, its payload and the defaults of the document's tables.

use laneway_core::JobId;
use serde_json::{Value, json};

use super::world::World;

/// A row of §3 and §5.2 of the document: kind, timeout, retries, queue timeout in seconds.
type Row = (&'static str, u64, u64, u64);

async fn enqueues(world: &World, path: &str, body: Value, row: Row, payload: Value) {
    let (kind, timeout, retries, queue_timeout) = row;
    let (status, answer) = world.post(path, body).await;
    assert_eq!(status, 200, "{path}: {answer}");
    assert_eq!((&answer["code"], &answer["msg"]), (&json!(0), &json!("success")));
    assert_eq!(answer["data"]["status"], "queued", "{path}: {answer}");
    let id = answer["data"]["jobId"].as_str().unwrap();
    let job = world.ended(id).await;
    assert_eq!(
        (&job["jobType"], &job["status"], &job["timeoutSeconds"], &job["maxRetries"]),
        (&json!(kind), &json!("succeeded"), &json!(timeout), &json!(retries)),
        "{path}"
    );
    let id = JobId::parse(id).unwrap();
    let (spec, stored) = world
        .scheduler
        .read(move |reader| {
            let view = reader.job(id)?.unwrap();
            Ok((view.row.spec, reader.payload(view.row.seq)?.unwrap()))
        })
        .await
        .unwrap();
    assert_eq!(spec.lane.as_str(), "browsers", "{path}");
    assert_eq!(spec.queue_timeout.map(|span| span.0 / 1_000), Some(queue_timeout), "{path}");
    assert_eq!(serde_json::from_slice::<Value>(&stored).unwrap(), payload, "{path}");
}

#[tokio::test]
async fn row_browser_start() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    let row = ("browser_start", 30, 2, 300);
    enqueues(&world, "/api/env/start", json!({"id": id}), row, json!({"profileId": id})).await;
}

#[tokio::test]
async fn row_browser_stop() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    let row = ("browser_stop", 15, 3, 60);
    enqueues(&world, "/api/env/close", json!({"id": id}), row, json!({"profileId": id})).await;
    let trashed = world.trashed_profile("old").await;
    enqueues(&world, "/api/env/close", json!({"id": trashed}), row, json!({"profileId": trashed})).await;
}

#[tokio::test]
async fn row_browser_stop_all() {
    let world = World::new("").await;
    let row = ("browser_stop_all", 30, 1, 300);
    enqueues(&world, "/api/env/closeAll", json!({}), row, json!({})).await;
    enqueues(&world, "/api/env/closeAll", Value::Null, row, json!({})).await;
}

#[tokio::test]
async fn row_script_run() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    let row = ("script_run", 300, 1, 600);
    let body = json!({"id": id, "program": {"path": "/bin/true", "args": ["-x"]}});
    let payload = json!({"profileId": id, "program": {"path": "/bin/true", "args": ["-x"], "input": null}});
    enqueues(&world, "/api/script/run", body, row, payload).await;
}

#[tokio::test]
async fn row_cache_clear_local() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    let row = ("cache_clear_local", 60, 3, 300);
    enqueues(&world, "/api/env/removeLocalCache", json!({"id": id}), row, json!({"profileId": id})).await;
}

#[tokio::test]
async fn row_proxy_test() {
    let world = World::new("").await;
    let row = ("proxy_test", 15, 2, 60);
    let proxy = json!({"scheme": "socks5", "host": "127.0.0.1", "port": 9, "username": "u", "password": "p"});
    let payload = json!({"proxy": proxy, "url": "http://example.com/"});
    let body = json!({"proxy": proxy, "url": "http://example.com/"});
    enqueues(&world, "/api/proxy/test", body, row, payload).await;
    let id = world.profile("shop").await;
    enqueues(&world, "/api/proxy/test", json!({"id": id}), row, json!({"profileId": id})).await;
}

#[tokio::test]
async fn row_profile_clone() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    let row = ("profile_clone", 120, 1, 300);
    let body = json!({"id": id, "name": "copy", "newId": "shop-2"});
    let payload = json!({"profileId": id, "name": "copy", "newProfileId": "shop-2"});
    enqueues(&world, "/api/env/clone", body, row, payload).await;
}

#[tokio::test]
async fn row_db_migration() {
    let world = World::new("").await;
    enqueues(&world, "/api/db/migrate", json!({}), ("db_migration", 60, 0, 300), json!({})).await;
}

#[tokio::test]
async fn row_recycle_bin_cleanup() {
    let world = World::new("").await;
    let row = ("recycle_bin_cleanup", 300, 1, 300);
    enqueues(&world, "/api/recycleBin/cleanup", json!({}), row, json!({})).await;
    let body = json!({"retentionDays": 7});
    enqueues(&world, "/api/recycleBin/cleanup", body.clone(), row, body).await;
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    world.enqueue("/api/env/start", json!({"id": id, "uniqueId": 7, "cdpEvasion": true})).await;
}
