//! Tasks and their states.

use std::collections::BTreeMap;
use std::time::Duration;

use laneway_core::{EventKind, JobState};
use laneway_runtime::store::EventFilter;
use serde_json::{Value, json};

use crate::instance::Instance;
use crate::world::{World, click};

/// No task starts.
const PAUSED: &str = "lanes.pinchtab.paused = true";

#[tokio::test]
async fn pt_t1_pt_r1_what_is_shown_is_a_copy() {
    let world = World::new(PAUSED).await;
    let id = world.submit(json!({"agentId": "a1", "action": "type", "params": {"text": "hi"}})).await;
    let mut shown = world.task(&id).await;
    shown["params"]["text"] = json!("changed");
    shown["params"]["more"] = json!(1);
    shown["agentId"] = json!("other");
    let again = world.task(&id).await;
    assert_eq!((&again["params"], &again["agentId"]), (&json!({"text": "hi"}), &json!("a1")));
}

#[tokio::test]
async fn pt_t2_a_rejected_task_is_stored_and_stamped() {
    let world = World::new("lanes.pinchtab.queued_max = 0").await;
    let (status, _) = world.ask("POST", "/tasks", &click("a1")).await;
    assert_eq!(status, 429);
    let (_, list) = world.ask("GET", "/tasks?state=rejected", &Value::Null).await;
    assert_eq!(list["count"], 1);
    assert_eq!(list["tasks"][0]["completedAt"], "2023-11-14T22:13:20Z");
}

/// A task in each state, with the name of the state.
async fn one_of_each(world: &World, held: &Instance) -> BTreeMap<&'static str, String> {
    let mut tasks = BTreeMap::new();
    let done = world.submit(click("done")).await;
    held.release.add_permits(1);
    assert_eq!(world.ended(&done).await["state"], "done");
    held.call().await;
    let failed = world.submit(json!({"agentId": "failed", "action": "click"})).await;
    world.ended(&failed).await;
    let running = world.submit(click("running")).await;
    held.call().await;
    let queued = world.submit(click("queued")).await;
    let cancelled = world.submit(click("cancelled")).await;
    world.ask("POST", &format!("/tasks/{cancelled}/cancel"), &Value::Null).await;
    let (_, rejected) = world.ask("POST", "/tasks", &click("queued")).await;
    assert_eq!(rejected["code"], "queue_full");
    let (_, list) = world.ask("GET", "/tasks?state=rejected", &Value::Null).await;
    let rejected = list["tasks"][0]["taskId"].as_str().unwrap().to_owned();
    for (state, id) in [
        ("done", done),
        ("failed", failed),
        ("running", running),
        ("queued", queued),
        ("cancelled", cancelled),
        ("rejected", rejected),
    ] {
        assert_eq!(world.task(&id).await["state"], state);
        tasks.insert(state, id);
    }
    tasks
}

#[tokio::test]
async fn pt_t3_pt_t6_terminal_states_stay_and_others_can_be_left() {
    let world = World::new("lanes.pinchtab.running_max = 1\nlanes.pinchtab.queued_per_agent_max = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    for (state, id) in one_of_each(&world, &held).await {
        let before = world.task(&id).await;
        let (status, _) = world.ask("POST", &format!("/tasks/{id}/cancel"), &Value::Null).await;
        let terminal = matches!(state, "done" | "failed" | "cancelled" | "rejected");
        assert_eq!(status, if terminal { 409 } else { 200 }, "{state}");
        let after = world.task(&id).await;
        assert_eq!(after["state"], if terminal { state } else { "cancelled" });
        if terminal {
            assert_eq!(before, after, "an ended task does not change");
        }
    }
}

#[tokio::test]
async fn pt_t4_pt_t5_states_follow_each_other_only_as_their_table_says() {
    let world = World::new("lanes.pinchtab.running_max = 1\nlanes.pinchtab.queued_per_agent_max = 1").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    let tasks = one_of_each(&world, &held).await;
    world.configure(json!({"lanes": {"pinchtab": {"paused": true}}})).await;
    world.ask("POST", &format!("/tasks/{}/cancel", tasks["running"]), &Value::Null).await;
    world.clock.advance(laneway_core::Span::mins(2));
    world.ended(&tasks["queued"]).await;
    let page =
        world.scheduler.read(|reader| reader.events_after(&EventFilter::default(), 0, 1_000)).await.unwrap();
    let mut last: BTreeMap<u64, &str> = BTreeMap::new();
    let mut seen = Vec::new();
    for event in page.items {
        let Some(job) = &event.job else { continue };
        let state = match event.kind {
            EventKind::JobSubmitted | EventKind::JobQueued => "queued",
            EventKind::JobStarted => "running",
            EventKind::JobSucceeded => "done",
            EventKind::JobFailed => "failed",
            EventKind::JobCanceled => "cancelled",
            EventKind::JobRejected => "rejected",
            _ => continue,
        };
        if let Some(before) = last.insert(job.seq.0, state) {
            seen.push((before, state));
        }
    }
    seen.sort();
    seen.dedup();
    // A task becomes assigned and running in one commit: clients see both at once.
    let table = [
        ("queued", "cancelled"),
        ("queued", "failed"),
        ("queued", "running"),
        ("running", "cancelled"),
        ("running", "done"),
        ("running", "failed"),
    ];
    assert_eq!(seen, table);
    assert!(!JobState::Queued.allows(JobState::Succeeded) && !JobState::Assigned.allows(JobState::Succeeded));
}

#[tokio::test]
async fn pt_t7_pt_t8_times_are_stamped_when_they_come() {
    let world = World::new("").await;
    let held = Instance::holding(&["t1"]).await;
    world.put_instance("desk", held.address, &["t1"]).await;
    let id = world.submit(click("a1")).await;
    held.call().await;
    let running = world.task(&id).await;
    assert_eq!(
        (&running["state"], &running["taskId"], &running["agentId"]),
        (&json!("running"), &json!(id), &json!("a1"))
    );
    assert_eq!(running["startedAt"], "2023-11-14T22:13:20Z");
    assert_eq!(running.get("completedAt"), None, "a time that has not come is left out");
    world.clock.advance(laneway_core::Span(1_500));
    held.release.add_permits(1);
    let done = world.ended(&id).await;
    assert_eq!(done["completedAt"], "2023-11-14T22:13:21.5Z");
    assert_eq!(done["latencyMs"], 1_500);
}

#[tokio::test]
async fn pt_t9_pt_s2_pt_h2_pt_h3_what_a_task_needs() {
    let world = World::new(PAUSED).await;
    world.submit(json!({"agentId": "a1", "action": "click"})).await;
    for (task, error) in [
        (json!({"action": "click"}), "invalid task: missing required field 'agentId'"),
        (json!({"agentId": "a1"}), "invalid task: missing required field 'action'"),
        (
            json!({"agentId": "a1", "action": "click", "callbackUrl": "http://127.0.0.1/hook"}),
            "invalid task: invalid callbackUrl: callback URL host is not allowed",
        ),
        (
            json!({"agentId": "a1", "action": "click", "callbackUrl": "ftp://example.org/"}),
            "invalid task: invalid callbackUrl: callback URL must use http or https",
        ),
        (
            json!({"agentId": "a1", "action": "click", "callbackUrl": "http://u:p@93.184.216.34/"}),
            "invalid task: invalid callbackUrl: callback URL credentials are not allowed",
        ),
    ] {
        let (status, answer) = world.ask("POST", "/tasks", &task).await;
        assert_eq!((status, &answer), (400, &json!({"code": "error", "error": error})));
    }
    let (_, list) = world.ask("GET", "/tasks", &Value::Null).await;
    assert_eq!(list["count"], 1, "invalid tasks are not stored");
}

#[tokio::test]
async fn pt_t10_ids_are_long_and_differ() {
    let world = World::new(PAUSED).await;
    let (one, other) = (world.submit(click("a1")).await, world.submit(click("a1")).await);
    assert!(one.starts_with("tsk_") && one.len() >= 12, "{one}");
    assert_ne!(one, other);
}

#[tokio::test]
async fn pt_s1_pt_h1_pt_h6_pt_h7_a_task_is_queued_and_found() {
    let world = World::new(PAUSED).await;
    let (status, accepted) = world.ask("POST", "/tasks", &click("a1")).await;
    assert_eq!((status, &accepted["state"], &accepted["position"]), (202, &json!("queued"), &json!(1)));
    let id = accepted["taskId"].as_str().unwrap();
    assert_eq!(world.task(id).await["taskId"], id);
    let (status, unknown) = world.ask("GET", "/tasks/tsk_nothing", &Value::Null).await;
    assert_eq!((status, &unknown), (404, &json!({"code": "not_found", "error": "task not found"})));
}

#[tokio::test]
async fn pt_s3_pt_s4_deadlines_must_be_ahead_and_well_written() {
    let world = World::new(PAUSED).await;
    for (deadline, begins) in [
        ("2020-01-01T00:00:00Z", "deadline is in the past"),
        ("next week", "invalid deadline format: "),
        ("2030-01-01 00:00:00Z", "invalid deadline format: "),
        ("2030-13-01T00:00:00Z", "invalid deadline format: "),
        ("2030-01-01T00:00:00", "invalid deadline format: "),
    ] {
        let task = json!({"agentId": "a1", "action": "click", "deadline": deadline});
        let (status, answer) = world.ask("POST", "/tasks", &task).await;
        assert_eq!(status, 400, "{deadline}");
        assert!(answer["error"].as_str().unwrap().starts_with(begins), "{answer}");
    }
}

#[tokio::test]
async fn pt_s5_pt_s6_pt_h8_pt_h9_canceling_what_waits() {
    let world = World::new(PAUSED).await;
    let id = world.submit(click("a1")).await;
    let (status, answer) = world.ask("POST", &format!("/tasks/{id}/cancel"), &Value::Null).await;
    assert_eq!((status, &answer), (200, &json!({"status": "cancelled", "taskId": id})));
    let task = world.task(&id).await;
    assert_eq!((&task["state"], task.get("error")), (&json!("cancelled"), None));
    let (status, answer) = world.ask("POST", "/tasks/tsk_nothing/cancel", &Value::Null).await;
    let expected = json!({"code": "not_found", "error": "task \"tsk_nothing\" not found"});
    assert_eq!((status, &answer), (404, &expected));
}

#[tokio::test]
async fn pt_s7_pt_h10_pt_h11_pt_r2_pt_r3_pt_r4_lists_filter() {
    let world = World::new(PAUSED).await;
    let mut ids = Vec::new();
    for agent in ["a1", "a2", "a1"] {
        ids.push(world.submit(click(agent)).await);
    }
    world.ask("POST", &format!("/tasks/{}/cancel", ids[2]), &Value::Null).await;
    for (query, expected) in [
        ("", vec![2, 1, 0]),
        ("?agentId=a1", vec![2, 0]),
        ("?agentId=a1&state=queued", vec![0]),
        ("?state=queued,cancelled", vec![2, 1, 0]),
        ("?agentId=unknown", vec![]),
    ] {
        let (_, list) = world.ask("GET", &format!("/tasks{query}"), &Value::Null).await;
        let found: Vec<&str> =
            list["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].as_str().unwrap()).collect();
        let expected: Vec<&str> = expected.into_iter().map(|at: usize| ids[at].as_str()).collect();
        assert_eq!((&found, list["count"].as_u64().unwrap()), (&expected, expected.len() as u64), "{query}");
    }
}

#[tokio::test]
async fn pt_s12_stopping_cancels_what_waits_where_the_lane_says_so() {
    for (policy, state) in [("cancel", "cancelled"), ("keep", "queued")] {
        let world = World::new(&format!("{PAUSED}\nlanes.pinchtab.on_shutdown = \"{policy}\"")).await;
        let id = world.submit(click("a1")).await;
        world.scheduler.drain(Duration::from_secs(1)).await.unwrap();
        let task = world.task(&id).await;
        assert_eq!(task["state"], state);
        if policy == "cancel" {
            assert_eq!(task["error"], "scheduler shutdown");
        }
    }
}

#[tokio::test]
async fn pt_r5_pt_r6_ended_tasks_leave_after_their_time_and_live_ones_stay() {
    let world = World::new("").await;
    let instance = Instance::echo(&["t1"]).await;
    world.put_instance("desk", instance.address, &["t1"]).await;
    let old = world.submit(click("a1")).await;
    world.ended(&old).await;
    world.configure(json!({"lanes": {"pinchtab": {"paused": true}}})).await;
    let task = json!({"agentId": "a1", "action": "click", "deadline": "2030-01-01T00:00:00Z"});
    let live = world.submit(task.clone()).await;
    world.clock.advance(laneway_core::Span::mins(4));
    let young = world.submit(task).await;
    world.ask("POST", &format!("/tasks/{young}/cancel"), &Value::Null).await;
    world.clock.advance(laneway_core::Span::secs(70));
    // The sweep is a command like any other: a call after it sees its effect.
    world.stats().await;
    let (status, _) = world.ask("GET", &format!("/tasks/{old}"), &Value::Null).await;
    assert_eq!(status, 404, "it ended more than five minutes ago");
    assert_eq!(world.task(&live).await["state"], "queued");
    assert_eq!(world.task(&young).await["state"], "cancelled");
}

#[tokio::test]
async fn pt_r7_another_ttl_disturbs_nothing() {
    let world = World::new(PAUSED).await;
    let id = world.submit(click("a1")).await;
    let (status, _) = world.ask("POST", "/scheduler/reload", &json!({"resultTTLSec": 3_600})).await;
    assert_eq!(status, 200);
    assert_eq!(world.task(&id).await["state"], "queued");
    assert_eq!(world.stats().await["config"]["resultTTL"], "1h0m0s");
}
