//! The weak points of the original system, each shown to be fixed.

use std::time::Duration;

use laneway_core::Span;
use serde_json::{Value, json};

use crate::instance::Instance;
use crate::world::{PATIENCE, World, click};

async fn cancel(world: &World, id: &str) -> u16 {
    world.ask("POST", &format!("/tasks/{id}/cancel"), &Value::Null).await.0
}

async fn inflight(world: &World) -> u64 {
    world.stats().await["queue"]["totalInflight"].as_u64().unwrap()
}

#[tokio::test]
async fn x1_canceling_what_waits_does_not_change_what_is_in_flight() {
    let world = World::new("dialects.pinchtab.max_per_agent_inflight = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    world.submit(click("a1")).await;
    held.call().await;
    let waits = world.submit(click("a1")).await;
    assert_eq!(cancel(&world, &waits).await, 200);
    assert_eq!(inflight(&world).await, 1);
    world.submit(click("a1")).await;
    assert_eq!(inflight(&world).await, 1, "the limit still holds");
    assert!(held.is_quiet().await);
}

#[tokio::test]
async fn x2_canceling_what_runs_counts_once() {
    let world = World::new("").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    let id = world.submit(click("a1")).await;
    held.call().await;
    assert_eq!(cancel(&world, &id).await, 200);
    assert_eq!(cancel(&world, &id).await, 409);
    let task = world.ended(&id).await;
    assert_eq!(
        (&task["state"], &task["error"]),
        (&json!("cancelled"), &json!("executor request failed: context canceled"))
    );
    let metrics = world.stats().await["metrics"].clone();
    let counts = (&metrics["tasksCancelled"], &metrics["tasksFailed"], &metrics["tasksCompleted"]);
    assert_eq!(counts, (&json!(1), &json!(0), &json!(0)));
}

#[tokio::test]
async fn x3_expiry_of_what_waits_leaves_what_is_in_flight_alone() {
    let world = World::new("lanes.pinchtab.running_max = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    let mut patient = click("a1");
    patient["deadline"] = json!("2030-01-01T00:00:00Z");
    world.submit(patient).await;
    held.call().await;
    let late = world.submit(click("a1")).await;
    world.clock.advance(Span::secs(61));
    world.ended(&late).await;
    assert_eq!(inflight(&world).await, 1);
    let metrics = world.stats().await["metrics"].clone();
    assert_eq!((&metrics["tasksExpired"], &metrics["tasksFailed"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn x4_as_many_run_at_once_as_may() {
    let world = World::new("").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    for number in 0..20 {
        world.submit(click(if number % 2 == 0 { "a" } else { "b" })).await;
    }
    for _ in 0..20 {
        held.call().await;
    }
    assert_eq!(inflight(&world).await, 20, "workerCount is no second cap");
}

#[tokio::test]
async fn x5_a_raised_limit_starts_what_waits() {
    let world = World::new("lanes.pinchtab.running_max = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    for _ in 0..3 {
        world.submit(click("a1")).await;
    }
    held.call().await;
    world.ask("POST", "/scheduler/reload", &json!({"maxInflight": 3})).await;
    held.call().await;
    held.call().await;
}

#[tokio::test]
async fn x6_a_stop_with_a_backlog_and_a_hanging_instance_ends_in_time() {
    let world =
        World::in_real_time("lanes.pinchtab.running_max = 1\nlanes.pinchtab.on_shutdown = \"cancel\"").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    let ids =
        [world.submit(click("a1")).await, world.submit(click("a1")).await, world.submit(click("a2")).await];
    held.call().await;
    let stopped = tokio::time::timeout(PATIENCE, world.scheduler.drain(Duration::from_millis(50))).await;
    assert_eq!(stopped.expect("the stop hangs").unwrap().interrupted, 1);
    for id in ids {
        let task = world.task(&id).await;
        assert_eq!((&task["state"], &task["error"]), (&json!("cancelled"), &json!("scheduler shutdown")));
    }
    let (status, answer) = world.ask("POST", "/tasks", &click("a1")).await;
    assert_eq!((status, &answer["retryable"]), (503, &json!(true)), "{answer}");
}

#[tokio::test]
async fn x8_a_deadline_that_passes_while_all_are_busy_fails_within_a_second() {
    let world = World::in_real_time("lanes.pinchtab.running_max = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    world.submit(click("a1")).await;
    held.call().await;
    let deadline = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(300);
    let mut late = click("a1");
    late["deadline"] = json!(deadline.to_string());
    let id = world.submit(late).await;
    let task = world.ended(&id).await;
    assert_eq!(task["error"], "deadline exceeded while queued");
    let ended: jiff::Timestamp = task["completedAt"].as_str().unwrap().parse().unwrap();
    let late_by = ended.duration_since(deadline);
    assert!(late_by < jiff::SignedDuration::from_secs(1), "{late_by:?} late");
    assert!(held.is_quiet().await, "it never started");
}

#[tokio::test]
async fn x9_two_agents_are_served_alternately() {
    let world = World::new("lanes.pinchtab.running_max = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    for agent in ["a", "b"] {
        for _ in 0..20 {
            world.submit(click(agent)).await;
        }
    }
    let (mut a, mut b) = (0_i32, 0_i32);
    for _ in 0..40 {
        match held.call().await.header("x-agent-id") {
            Some("a") => a += 1,
            _ => b += 1,
        }
        assert!((a - b).abs() <= 1, "{a} of a, {b} of b");
        held.release.add_permits(1);
    }
}

#[tokio::test]
async fn a_flood_of_rejected_tasks_is_bounded() {
    let world = World::new("lanes.pinchtab.queued_max = 0\ndialects.pinchtab.requests_max = 0").await;
    let flood = (0..200).map(|_| async {
        let batch = json!({"agentId": "a1", "tasks": vec![json!({"action": "click"}); 50]});
        world.ask("POST", "/tasks/batch", &batch).await.0
    });
    assert!(futures_util::future::join_all(flood).await.iter().all(|status| *status == 202));
    assert_eq!(world.stats().await["metrics"]["tasksRejected"], 10_000, "all are counted");
    let (_, list) = world.ask("GET", "/tasks", &Value::Null).await;
    assert_eq!(list["count"], 6_000, "the rejections of one minute are limited");
    world.clock.advance(Span::mins(6));
    for _ in 0..3 {
        world.clock.advance(Span::secs(10));
        world.stats().await;
    }
    let (_, list) = world.ask("GET", "/tasks", &Value::Null).await;
    assert_eq!(list["count"], 0, "and they leave like any other");
}

#[tokio::test]
async fn defect_18_a_list_that_is_cut_says_so() {
    let world = World::new("lanes.pinchtab.paused = true\nlanes.pinchtab.queued_per_agent_max = 1000").await;
    let big = "x".repeat(1_000_000);
    for _ in 0..20 {
        let task = json!({"agentId": "a1", "action": "type", "params": {"text": big}});
        world.submit(task).await;
    }
    let list = async || {
        let response = world.request("GET", "/tasks").send().await.unwrap();
        let header =
            response.headers().get("x-pinchtab-truncated").map(|value| value.to_str().unwrap().to_owned());
        (header, response.json::<Value>().await.unwrap())
    };
    let (header, whole) = list().await;
    assert_eq!((header, &whole["count"], whole.get("truncated")), (None, &json!(20), None), "nothing is cut");
    for _ in 0..20 {
        let task = json!({"agentId": "a1", "action": "type", "params": {"text": big}});
        world.submit(task).await;
    }
    let (header, cut) = list().await;
    assert_eq!((header.as_deref(), &cut["truncated"]), (Some("true"), &json!(true)));
    assert!(cut["count"].as_u64().unwrap() < 40 && cut["count"] == cut["tasks"].as_array().unwrap().len());
}

#[tokio::test]
async fn defect_18_a_client_that_writes_first_receives_the_413() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::new("").await;
    let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let len = 6 << 20;
    let head = format!(
        "POST /tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n"
    );
    let talk = async {
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; len]).await.expect("the server reads on");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.expect("the answer is not lost");
        reply
    };
    let reply = tokio::time::timeout(PATIENCE, talk).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("request body too large"), "{reply}");
}
