//! Admission, order and fairness.

use laneway_core::{Role, Span};
use serde_json::{Value, json};

use crate::instance::Instance;
use crate::world::{World, answer, click};

/// One task runs, and the instance holds it.
async fn one_at_a_time(limits: &str) -> (World, Instance) {
    let world = World::new(&format!("lanes.pinchtab.running_max = 1\n{limits}")).await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    (world, held)
}

#[tokio::test]
async fn pt_q1_a_better_priority_of_one_agent_goes_first() {
    let (world, held) = one_at_a_time("").await;
    world.submit(click("other")).await;
    held.call().await;
    for priority in [5, 1, 5, -3] {
        let params = json!({"was": priority});
        world
            .submit(
                json!({"agentId": "a", "action": "x", "tabId": "t1", "priority": priority, "params": params}),
            )
            .await;
    }
    let mut order = Vec::new();
    for _ in 0..4 {
        held.release.add_permits(1);
        order.push(held.call().await.body["was"].as_i64().unwrap());
    }
    assert_eq!(order, [-3, 1, 5, 5]);
}

#[tokio::test]
async fn pt_q2_the_third_task_is_rejected_at_a_global_limit_of_two() {
    let world = World::new("lanes.pinchtab.paused = true\ndialects.pinchtab.max_queue_size = 2").await;
    world.submit(click("a1")).await;
    world.submit(click("a2")).await;
    let (status, answer) = world.ask("POST", "/tasks", &click("a3")).await;
    assert_eq!((status, &answer["error"]), (429, &json!("rejected: global queue full (2/2)")));
}

#[tokio::test]
async fn pt_q3_third_task_of_one_agent_is_rejected() {
    let world = World::new("lanes.pinchtab.paused = true\ndialects.pinchtab.max_per_agent = 2").await;
    world.submit(click("a1")).await;
    world.submit(click("a1")).await;
    let (status, answer) = world.ask("POST", "/tasks", &click("a1")).await;
    assert_eq!((status, &answer["error"]), (429, &json!("rejected: agent queue full for \"a1\" (2/2)")));
    world.submit(click("a2")).await;
}

#[tokio::test]
async fn pt_q4_the_first_two_come_from_different_agents() {
    let world = World::new("lanes.pinchtab.running_max = 2\nlanes.pinchtab.paused = true").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    for agent in ["a", "a", "a", "b"] {
        world.submit(click(agent)).await;
    }
    world.configure(json!({"lanes": {"pinchtab": {"paused": false}}})).await;
    let mut agents = Vec::new();
    for _ in 0..2 {
        agents.push(held.call().await.header("x-agent-id").unwrap().to_owned());
    }
    agents.sort();
    assert_eq!(agents, ["a", "b"]);
}

#[tokio::test]
async fn pt_q5_one_in_flight_of_an_agent_holds_its_next() {
    let world = World::new("dialects.pinchtab.max_per_agent_inflight = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    world.submit(click("a1")).await;
    world.submit(click("a1")).await;
    held.call().await;
    let queue = &world.stats().await["queue"];
    assert_eq!((&queue["totalQueued"], &queue["totalInflight"]), (&json!(1), &json!(1)));
    assert!(held.is_quiet().await);
    held.release.add_permits(1);
    held.call().await;
}

#[tokio::test]
async fn pt_q6_a_task_leaves_the_queue_once() {
    let world = World::new("lanes.pinchtab.paused = true").await;
    let (one, other) = (world.submit(click("a1")).await, world.submit(click("a1")).await);
    let cancel = async |id: &str| world.ask("POST", &format!("/tasks/{id}/cancel"), &Value::Null).await.0;
    assert_eq!((cancel(&one).await, cancel(&one).await), (200, 409));
    assert_eq!(world.task(&other).await["state"], "queued");
    assert_eq!(world.stats().await["queue"]["totalQueued"], 1);
}

#[tokio::test]
async fn pt_q7_only_what_is_late_expires() {
    let world = World::new("lanes.pinchtab.paused = true").await;
    let late = world.submit(click("a1")).await;
    let mut patient = click("a1");
    patient["deadline"] = json!("2030-01-01T00:00:00Z");
    let patient = world.submit(patient).await;
    world.clock.advance(Span::secs(61));
    assert_eq!(world.ended(&late).await["error"], "deadline exceeded while queued");
    assert_eq!(world.task(&patient).await["state"], "queued");
    assert_eq!(world.stats().await["queue"]["totalQueued"], 1);
}

#[tokio::test]
async fn pt_q8_pt_s11_statistics_of_the_queue() {
    let (world, held) = one_at_a_time("").await;
    world.submit(click("a1")).await;
    held.call().await;
    world.submit(click("a2")).await;
    let expected = json!({
        "totalQueued": 1,
        "totalInflight": 1,
        "agents": {"a1": {"queued": 0, "inflight": 1}, "a2": {"queued": 1, "inflight": 0}},
    });
    assert_eq!(world.stats().await["queue"], expected);
}

#[tokio::test]
async fn pt_q9_raised_limits_admit_more_at_once() {
    let world = World::new("lanes.pinchtab.paused = true\ndialects.pinchtab.max_per_agent = 5").await;
    for _ in 0..5 {
        world.submit(click("a1")).await;
    }
    assert_eq!(world.ask("POST", "/tasks", &click("a1")).await.0, 429);
    world.ask("POST", "/scheduler/reload", &json!({"maxPerAgent": 10})).await;
    for _ in 0..5 {
        world.submit(click("a1")).await;
    }
    let (status, answer) = world.ask("POST", "/tasks", &click("a1")).await;
    assert_eq!(status, 429);
    let details = json!({"agentId": "a1", "queued": 10, "maxQueue": 1_000, "maxPerAgent": 10});
    assert_eq!(answer["details"], details, "the limits are those in force");
}

/// A tenant that fills the queue of the lane leaves the minimum of the others.
#[tokio::test]
async fn defect_11_tasks_of_one_tenant_leave_slots_for_others() {
    let world = World::new("lanes.pinchtab.paused = true\ndialects.pinchtab.max_queue_size = 8").await;
    let (greedy, other) =
        (world.token(Some("a"), Role::Submitter).await, world.token(Some("b"), Role::Submitter).await);
    let fill = async |token: &str| {
        let mut taken = 0;
        loop {
            let body = click(&format!("agent-{taken}")).to_string();
            let (status, reply) = answer(world.request("POST", "/tasks").bearer_auth(token).body(body)).await;
            match status.as_u16() {
                202 => taken += 1,
                429 => return taken,
                _ => panic!("{status} {reply}"),
            }
        }
    };
    // One of eight is the minimum of a tenant that has no tasks.
    assert_eq!((fill(&greedy).await, fill(&other).await), (7, 1));
}
