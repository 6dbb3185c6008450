//! Workers as their operators meet them: shown, told, and what is wrong with a command.

use serde_json::{Value, json};

use super::hand::Hand;
use super::page::{Page, node, statuses, workflow};
use crate::world::World;

#[tokio::test]
async fn a_worker_is_told_to_install_a_package_and_pages_hear_of_it() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut hand = Hand::registered(world.address, "w1", "test", "1.0", 4).await;
    let command = json!({"type": "pkg.install", "name": "img", "version": "2.0",
        "url": "https://packages.example/img.cwx", "sha256": "ab".repeat(32)});
    let (status, told) = world.ask("POST", "/api/v1/workers/w1/commands", &command).await;
    assert_eq!((status, &told["workerId"]), (202, &json!("w1")), "{told}");
    let frame = hand.hear("pkg.install").await;
    assert_eq!((&frame["payload"]["name"], &frame["payload"]["version"]), (&json!("img"), &json!("2.0")));
    assert_eq!(page.hear("command.ack").await["data"]["commandId"], told["commandId"]);
    hand.ask("pkg.event", json!({"name": "img", "version": "2.0", "status": "installed"}), None).await;
    let heard = page.hear("worker.package").await;
    assert_eq!((&heard["data"]["package"], &heard["data"]["status"]), (&json!("img"), &json!("installed")));
    let (_, worker) = world.ask("GET", "/api/v1/workers/w1", &Value::Null).await;
    let packages = worker["packages"].as_array().unwrap();
    assert!(packages.contains(&json!({"name": "img", "version": "2.0", "status": "installed"})), "{worker}");
}

#[tokio::test]
async fn a_worker_that_is_told_to_drain_hears_it_and_gets_nothing_new() {
    let world = World::in_real_time("").await;
    let mut hand = Hand::registered(world.address, "w1", "test", "1.0", 4).await;
    let (status, _) = world.ask("POST", "/api/v1/workers/w1/commands", &json!({"type": "drain"})).await;
    assert_eq!(status, 202);
    hand.hear("cmd.drain").await;
    let (_, worker) = world.ask("GET", "/api/v1/workers/w1", &Value::Null).await;
    assert_eq!((&worker["meta"]["status"], &worker["meta"]["draining"]), (&json!("draining"), &json!(true)));
}

#[tokio::test]
async fn a_worker_is_rebound_to_a_queue_and_pages_hear_of_it() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut hand = Hand::registered(world.address, "w1", "test", "1.0", 4).await;
    let rebind = |queue: &str| json!({"type": "rebind", "queue": queue});
    let (status, told) = world.ask("POST", "/api/v1/workers/w1/commands", &rebind("main")).await;
    assert_eq!((status, &told["workerId"]), (202, &json!("w1")), "{told}");
    assert_eq!(page.hear("command.ack").await["data"]["commandId"], told["commandId"]);
    let (_, worker) = world.ask("GET", "/api/v1/workers/w1", &Value::Null).await;
    assert_eq!(worker["queues"], json!(["main"]), "{worker}");

    let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let (status, _) = world.ask("POST", "/api/v1/workers/w1/commands", &rebind("blue")).await;
    assert_eq!(status, 400);
    assert_eq!(statuses(&world.run(&id).await), [("a", "queued")], "it waits in another lane");
    let (status, _) = world.ask("POST", "/api/v1/workers/w1/commands", &rebind("astraflow")).await;
    assert_eq!(status, 202);
    let heard = loop {
        let heard = page.hear("worker.heartbeat").await;
        if heard["data"]["queues"] == json!(["astraflow"]) {
            break heard;
        }
    };
    assert_eq!(heard["data"]["capacity"]["status"], "rebound", "{heard}");
    assert_eq!(hand.finish_next(json!({"out": 1})).await.node(), "a");
}
