//! `GET /health`.

use std::sync::mpsc;
use std::time::Duration;

use laneway_core::{Role, Span};
use serde_json::{Value, json};

use super::world::{Rule, World};

fn names(health: &Value) -> Vec<String> {
    health.as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn a_healthy_agent_answers_as_the_document_says() {
    let world = World::new("lanes.browsers.running_max = 2").await;
    for _ in 0..2 {
        world.rules.add("recycle_bin_cleanup", Rule::Hold);
        world.rules.add("browser_stop_all", Rule::Hold);
    }
    let first = world.enqueue("/api/env/closeAll", json!({})).await;
    let second = world.enqueue("/api/recycleBin/cleanup", json!({})).await;
    world.running(&first).await;
    world.running(&second).await;
    world.enqueue("/api/env/closeAll", json!({})).await;
    world.advance(Span::secs(7)).await;
    let response = world.request("GET", "/health").send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    let text = response.text().await.unwrap();
    let expected = format!(
        "{{\"status\":\"ok\",\"agent_version\":\"{}\",\"uptime_seconds\":7,\"queue\":{{\"queued\":1,\"running\":2,\
         \"max_concurrent\":2}},\"browsers\":{{\"active\":0,\"max\":20}},\"db\":\"ok\",\"timestamp\":\"2023-11-14T22:13:27Z\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text, expected, "no envelope, snake case, in the document's order");
}

#[tokio::test]
async fn it_needs_no_token() {
    let world = World::new("").await;
    world.token(None, Role::Admin).await;
    let (status, health) = world.get("/health").await;
    assert_eq!((status, &health["status"]), (200, &json!("ok")));
    let request = world.request("GET", "/health").bearer_auth("nonsense");
    assert_eq!(world.answer(request).await.0, 200);
    assert_eq!(world.get("/api/jobs").await.0, 401);
}

#[tokio::test]
async fn a_store_that_takes_longer_than_a_second_is_degraded_and_still_200() {
    let world = World::new("").await;
    // Reads take all readers, as they do on a slow disk.
    let (release, released) = mpsc::sync_channel::<()>(1);
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    let mut reads = Vec::new();
    let (began, mut begin) = tokio::sync::mpsc::channel(64);
    for _ in 0..64 {
        let (scheduler, released, began) = (world.scheduler.clone(), released.clone(), began.clone());
        reads.push(tokio::spawn(async move {
            let wait = move |_: &dyn laneway_runtime::store::Reader| {
                let _ = began.blocking_send(());
                let _ = released.lock().unwrap().recv();
                Ok(())
            };
            drop(scheduler.read(wait).await);
        }));
    }
    begin.recv().await.unwrap();
    // By now every task has taken a reader or waits for one, before the health check does.
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
    let (status, health) = world.get("/health").await;
    assert_eq!(status, 200);
    assert_eq!((&health["status"], &health["reason"]), (&json!("degraded"), &json!("DB connection slow")));
    assert_eq!(health["db"], "slow");
    assert_eq!(names(&health).len(), 8, "everything else is there: {health}");
    drop(release);
    for read in reads {
        read.await.unwrap();
    }
    assert_eq!(world.get("/health").await.1["status"], "ok");
}

#[tokio::test]
async fn an_agent_that_stops_is_degraded() {
    let world = World::new("").await;
    world.drain(Duration::ZERO).await;
    let (status, health) = world.get("/health").await;
    assert_eq!((status, &health["reason"]), (200, &json!("Agent is stopping")), "{health}");
}

#[tokio::test]
async fn on_the_main_port_the_native_health_check_answers() {
    let world = World::on_the_main_port("").await;
    let (status, health) = world.get("/health").await;
    assert_eq!((status, health["agent_version"].is_null(), &health["db"]), (200, true, &json!("ok")));
    assert_eq!(world.get("/api/jobs").await.0, 200);
    assert_eq!(world.get("/v1/jobs").await.0, 200);
}
