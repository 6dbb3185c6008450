//! Counters since the start.

use laneway_core::Span;
use serde_json::{Value, json};

use crate::instance::Instance;
use crate::world::{World, click};

#[tokio::test]
async fn pt_b9_stats_have_three_sections() {
    let world = World::new("lanes.pinchtab.paused = true").await;
    world.submit(click("a1")).await;
    let stats = world.stats().await;
    let mut sections: Vec<&str> = stats.as_object().unwrap().keys().map(String::as_str).collect();
    sections.sort();
    assert_eq!(sections, ["config", "metrics", "queue"]);
    assert_eq!(stats["metrics"]["tasksSubmitted"], 1);
}

#[tokio::test]
async fn pt_m1_to_pt_m6_every_end_counts_once_globally_and_by_agent() {
    let world = World::new("lanes.pinchtab.running_max = 1\nlanes.pinchtab.queued_per_agent_max = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    let done = world.submit(click("done")).await;
    held.release.add_permits(1);
    world.ended(&done).await;
    held.call().await;
    let failed = world.submit(json!({"agentId": "failed", "action": "click"})).await;
    world.ended(&failed).await;
    let running = world.submit(click("cancelled")).await;
    held.call().await;
    let late = world.submit(click("late")).await;
    world.ask("POST", "/tasks", &click("late")).await;
    world.configure(json!({"lanes": {"pinchtab": {"paused": true}}})).await;
    world.ask("POST", &format!("/tasks/{running}/cancel"), &Value::Null).await;
    world.clock.advance(Span::secs(61));
    world.ended(&late).await;
    let metrics = world.stats().await["metrics"].clone();
    for (key, count) in [
        ("tasksSubmitted", 4),
        ("tasksCompleted", 1),
        ("tasksFailed", 2),
        ("tasksCancelled", 1),
        ("tasksRejected", 1),
        ("tasksExpired", 1),
    ] {
        assert_eq!(metrics[key], count, "{key}: {metrics}");
    }
    let counts = |submitted, completed, failed, cancelled, rejected| json!({"submitted": submitted, "completed": completed, "failed": failed, "cancelled": cancelled, "rejected": rejected});
    let expected = json!({
        "done": counts(1, 1, 0, 0, 0),
        "failed": counts(1, 0, 1, 0, 0),
        "cancelled": counts(1, 0, 0, 1, 0),
        "late": counts(1, 0, 1, 0, 1),
    });
    assert_eq!(metrics["agents"], expected);
}

#[tokio::test]
async fn pt_m7_pt_m8_pt_m11_queue_wait_and_execution_are_separate() {
    let world = World::new("lanes.pinchtab.running_max = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    let before = world.stats().await["metrics"].clone();
    assert_eq!((&before["dispatchCount"], &before["avgDispatchLatencyMs"]), (&json!(0), &json!(0.0)));
    let first = world.submit(click("a1")).await;
    held.call().await;
    assert!(world.stats().await["metrics"]["avgDispatchLatencyMs"].as_f64().unwrap() > 0.0);
    let second = world.submit(click("a1")).await;
    world.clock.advance(Span(300));
    held.release.add_permits(1);
    world.ended(&first).await;
    held.call().await;
    world.clock.advance(Span(100));
    held.release.add_permits(1);
    world.ended(&second).await;
    let metrics = world.stats().await["metrics"].clone();
    // The first task did not wait and ran 300 ms; the second waited for it, and ran 100 ms.
    assert_eq!((&metrics["dispatchCount"], &metrics["avgDispatchLatencyMs"]), (&json!(2), &json!(150.0)));
    assert_eq!(metrics["avgExecutionMs"], 200.0);
}

#[tokio::test]
async fn pt_m9_pt_m10_ten_submits_at_once_are_ten() {
    let world = World::new("lanes.pinchtab.paused = true").await;
    let before = world.stats().await;
    let submits = (0..10).map(|number| world.submit(click(if number % 2 == 0 { "a" } else { "b" })));
    futures_util::future::join_all(submits).await;
    let metrics = world.stats().await["metrics"].clone();
    assert_eq!(metrics["tasksSubmitted"], 10);
    assert_eq!(
        (&metrics["agents"]["a"]["submitted"], &metrics["agents"]["b"]["submitted"]),
        (&json!(5), &json!(5))
    );
    assert_eq!(before["metrics"]["tasksSubmitted"], 0, "the earlier answer does not change");
}

#[tokio::test]
async fn agents_of_other_lanes_do_not_hide_those_of_this_one() {
    let world = World::new("lanes.pinchtab.paused = true").await;
    let jobs: Vec<Value> =
        (0..1_100).map(|n| json!({"kind": "unserved", "agent": format!("other-{n}")})).collect();
    let (status, _) = world.ask("POST", "/v1/jobs/batch", &json!({ "jobs": jobs })).await;
    assert_eq!(status, 200);
    world.submit(click("a1")).await;
    assert_eq!(world.stats().await["queue"]["agents"], json!({"a1": {"queued": 1, "inflight": 0}}));
}
