//! Worker commands: list, show, send, and errors.

use serde_json::{Value, json};

use super::fake_worker::FakeWorker;
use super::page::{Page, node, statuses, workflow};
use crate::world::{World, answer};

#[tokio::test]
async fn a_worker_installs_a_package_on_command_and_pages_get_the_event() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let command = json!({"type": "pkg.install", "name": "img", "version": "2.0",
        "url": "https://packages.example/img.cwx", "sha256": "ab".repeat(32)});
    let (status, reply) = world.ask("POST", "/api/v1/workers/w1/commands", &command).await;
    assert_eq!((status, &reply["workerId"]), (202, &json!("w1")), "{reply}");
    let frame = fake.receive("pkg.install").await;
    assert_eq!((&frame["payload"]["name"], &frame["payload"]["version"]), (&json!("img"), &json!("2.0")));
    assert_eq!(page.receive("command.ack").await["data"]["commandId"], reply["commandId"]);
    fake.ask("pkg.event", json!({"name": "img", "version": "2.0", "status": "installed"}), None).await;
    let received = page.receive("worker.package").await;
    assert_eq!(
        (&received["data"]["package"], &received["data"]["status"]),
        (&json!("img"), &json!("installed"))
    );
    let (_, worker) = world.ask("GET", "/api/v1/workers/w1", &Value::Null).await;
    let packages = worker["packages"].as_array().unwrap();
    assert!(packages.contains(&json!({"name": "img", "version": "2.0", "status": "installed"})), "{worker}");
}

#[tokio::test]
async fn a_draining_worker_gets_the_command_and_no_new_tasks() {
    let world = World::in_real_time("").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let (status, _) = world.ask("POST", "/api/v1/workers/w1/commands", &json!({"type": "drain"})).await;
    assert_eq!(status, 202);
    fake.receive("cmd.drain").await;
    let (_, worker) = world.ask("GET", "/api/v1/workers/w1", &Value::Null).await;
    assert_eq!((&worker["meta"]["status"], &worker["meta"]["draining"]), (&json!("draining"), &json!(true)));
}

#[tokio::test]
async fn a_worker_is_rebound_to_a_queue_and_pages_get_the_event() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let rebind = |queue: &str| json!({"type": "rebind", "queue": queue});
    let (status, reply) = world.ask("POST", "/api/v1/workers/w1/commands", &rebind("main")).await;
    assert_eq!((status, &reply["workerId"]), (202, &json!("w1")), "{reply}");
    assert_eq!(page.receive("command.ack").await["data"]["commandId"], reply["commandId"]);
    let (_, worker) = world.ask("GET", "/api/v1/workers/w1", &Value::Null).await;
    assert_eq!(worker["queues"], json!(["main"]), "{worker}");

    let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let (status, _) = world.ask("POST", "/api/v1/workers/w1/commands", &rebind("blue")).await;
    assert_eq!(status, 400);
    assert_eq!(statuses(&world.run(&id).await), [("a", "queued")], "it waits in another lane");
    let (status, _) = world.ask("POST", "/api/v1/workers/w1/commands", &rebind("astraflow")).await;
    assert_eq!(status, 202);
    let received = loop {
        let received = page.receive("worker.heartbeat").await;
        if received["data"]["queues"] == json!(["astraflow"]) {
            break received;
        }
    };
    assert_eq!(received["data"]["capacity"]["status"], "rebound", "{received}");
    assert_eq!(fake.finish_next(json!({"out": 1})).await.node(), "a");
}

/// An open server takes clients that send a token: the worker and the page of the original, and a task of PinchTab.
#[tokio::test]
async fn defect_14_an_open_server_takes_clients_of_dialects_with_any_token() {
    let world = World::in_real_time("").await;
    let mut page = Page::open_as(&world, Some("dev-token"), "desk", None).await;
    let package = json!({"name": "test", "version": "1.0", "status": "installed"});
    let mut fake =
        FakeWorker::of_tenant(world.address, "w1", "default", Some("dev-token"), &package, 1).await;
    world.start_run("desk", &workflow(&[node("a")], &[])).await;
    fake.finish_next(json!({})).await;
    page.until("succeeded").await;
    let task = json!({"agentId": "a", "action": "click", "tabId": "t"});
    let request = world.request("POST", "/tasks").bearer_auth("pinchtab-secret").body(task.to_string());
    let (status, reply) = answer(request).await;
    assert_eq!(status, 202, "{reply}");
}
