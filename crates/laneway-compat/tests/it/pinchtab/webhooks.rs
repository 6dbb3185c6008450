//! Callbacks at the end of tasks.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use laneway_compat::pinchtab::{FORMAT, TaskCallback};
use laneway_runtime::webhooks::{Formats, Webhooks};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::instance::Instance;
use crate::world::{PATIENCE, World, click};

type Delivery = (HeaderMap, Value);

/// A receiver of callbacks.
async fn receiver() -> (String, mpsc::Receiver<Delivery>) {
    let (sender, receiver) = mpsc::channel(100);
    let app = Router::new().route("/hook", post(receive)).with_state(sender);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, receiver)
}

async fn receive(State(sender): State<mpsc::Sender<Delivery>>, headers: HeaderMap, body: Bytes) {
    sender.send((headers, serde_json::from_slice(&body).unwrap())).await.unwrap();
}

#[tokio::test]
async fn x2_pt_w_10_one_end_is_delivered_once_in_the_format_of_the_dialect() {
    let (url, mut receiver) = receiver().await;
    let host = url.strip_prefix("http://").unwrap().strip_suffix("/hook").unwrap().to_owned();
    let world =
        World::in_real_time(&format!("lanes.pinchtab.running_max = 1\nwebhooks.allow_hosts = [\"{host}\"]"))
            .await;
    let formats = Formats::new().with(FORMAT, Arc::new(TaskCallback));
    let _webhooks = Webhooks::start(world.scheduler.clone(), &world.live, formats).unwrap();
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    let with_hook = |agent: &str| {
        let mut task = click(agent);
        task["callbackUrl"] = json!(url);
        task
    };
    let runs = world.submit(with_hook("a1")).await;
    held.call().await;
    let waits = world.submit(with_hook("a2")).await;
    world.submit(click("silent")).await;
    for id in [&waits, &runs] {
        world.ask("POST", &format!("/tasks/{id}/cancel"), &Value::Null).await;
        let (headers, task) =
            tokio::time::timeout(PATIENCE, receiver.recv()).await.expect("no callback comes").unwrap();
        assert_eq!(headers["x-pinchtab-event"], "task.completed");
        assert_eq!(headers["x-pinchtab-task-id"], id.as_str());
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(task, world.task(id).await, "it is the task as GET shows it");
        assert_eq!(task["callbackUrl"], json!(url));
    }
    held.release.add_permits(10);
    held.call().await;
    let done = world.submit(with_hook("a3")).await;
    let (_, task) =
        tokio::time::timeout(PATIENCE, receiver.recv()).await.expect("no callback comes").unwrap();
    assert_eq!((&task["taskId"], &task["state"]), (&json!(done), &json!("done")));
    assert!(
        receiver.try_recv().is_err(),
        "no callback comes twice, and none for tasks without a callback URL"
    );
}
