//! The order of intents: priority, age, deadlines, shares; and that no intent hides another.

use laneway_core::{QuietState, Span};
use serde_json::{Value, json};

use super::intents::{IDLE, audit, get, intent, post, state, submit};
use crate::world::World;

fn with(addon: &str, cost: u32, more: Value) -> Value {
    let mut intent = intent(addon, cost);
    for (key, value) in more.as_object().unwrap() {
        intent[key] = value.clone();
    }
    intent
}

async fn done(world: &World, id: &str) {
    let (status, reply) = post(world, &format!("/queue/jobs/{id}/complete"), json!({"status": "DONE"})).await;
    assert_eq!(status, 200, "{reply}");
}

/// The only reserved intent.
async fn next(world: &World) -> String {
    let (_, reply) = get(world, "/queue/dispatchable").await;
    let jobs = reply["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 1, "{reply}");
    jobs[0]["job_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn priority_goes_first_then_age_and_age_makes_up_for_priority() {
    let world = World::new(IDLE).await;
    let first = submit(&world, intent("a", 90)).await;
    let mut ids = Vec::new();
    for priority in ["low", "NORMAL", "normal", "High", "background"] {
        ids.push(submit(&world, with("a", 90, json!({"priority": priority}))).await);
    }
    done(&world, &first).await;
    for expected in [3, 1, 2, 0, 4] {
        let id = next(&world).await;
        assert_eq!(id, ids[expected]);
        done(&world, &id).await;
    }
    let holds = submit(&world, intent("a", 90)).await;
    let old = submit(&world, with("a", 90, json!({"priority": "low"}))).await;
    // An intent of a better priority that comes six minutes later goes after it: ten levels of thirty seconds
    // are five minutes.
    post(&world, &format!("/queue/jobs/{holds}/ack"), json!({"worker_id": "w"})).await;
    let (_, seen) = get(&world, &format!("/queue/jobs/{holds}")).await;
    let beat = format!("/leases/{}/heartbeat", seen["lease_id"].as_str().unwrap());
    for _ in 0..9 {
        world.advance(Span::secs(40)).await;
        assert_eq!(post(&world, &beat, json!({"worker_id": "w"})).await.0, 200);
    }
    submit(&world, intent("a", 90)).await;
    done(&world, &holds).await;
    assert_eq!(next(&world).await, old);
}

#[tokio::test]
async fn every_addon_has_its_share_where_the_lane_is_fair() {
    let world = World::new(&format!("{IDLE}\nlanes.synthia.order = \"fair\"")).await;
    for _ in 0..20 {
        submit(&world, with("greedy", 30, json!({"priority": "high"}))).await;
    }
    let modest = submit(&world, with("modest", 30, json!({"priority": "background"}))).await;
    let id = next_of(&world, "greedy").await;
    done(&world, &id).await;
    assert_eq!(
        state(&world, &modest).await,
        "DISPATCHING",
        "the add-on with the fewest running intents goes first"
    );
    world.configure(json!({"lanes": {"synthia": {"running_per_agent_max": 1}}})).await;
    let (_, stats) = get(&world, "/queue/stats").await;
    assert_eq!(stats["addons"]["modest"], json!({"queued": 0, "dispatching": 1, "running": 0}));
}

async fn next_of(world: &World, addon: &str) -> String {
    let (_, reply) = get(world, &format!("/queue/dispatchable?addon_id={addon}&limit=1")).await;
    reply["jobs"][0]["job_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn w1_a_deferred_high_intent_hides_no_other() {
    let world = World::new(IDLE).await;
    submit(&world, with("a", 10, json!({"priority": "high", "earliest_start_at": "2030-01-01T00:00:00Z"})))
        .await;
    let holds = submit(&world, intent("a", 60)).await;
    let big = submit(&world, with("a", 90, json!({"priority": "high"}))).await;
    let small = submit(&world, with("a", 10, json!({"priority": "background"}))).await;
    assert_eq!(
        (state(&world, &holds).await, state(&world, &big).await),
        ("DISPATCHING".into(), "QUEUED".into())
    );
    assert_eq!(state(&world, &small).await, "DISPATCHING", "neither a later start nor a size hides it");
}

#[tokio::test]
async fn w6_a_big_intent_is_not_bypassed_forever_and_keeps_its_position() {
    let world = World::new(&format!("{IDLE}\ncapacity.bypasses_max = 3")).await;
    let mut holds = submit(&world, intent("a", 40)).await;
    let big = submit(&world, intent("a", 80)).await;
    for _ in 0..3 {
        let small = submit(&world, intent("a", 40)).await;
        assert_eq!(state(&world, &small).await, "DISPATCHING");
        done(&world, &holds).await;
        holds = small;
    }
    let late = submit(&world, intent("a", 10)).await;
    assert_eq!(state(&world, &late).await, "QUEUED", "three went before it; now its units are reserved");
    done(&world, &holds).await;
    assert_eq!(state(&world, &big).await, "DISPATCHING");
}

#[tokio::test]
async fn w12_time_sensitive_and_near_deadlines_go_at_normal_and_ahead_but_never_above_capacity() {
    let world = World::new("").await;
    world.load(4, QuietState::Normal).await;
    let plain = submit(&world, intent("a", 20)).await;
    let sensitive = submit(&world, with("a", 20, json!({"time_sensitive": true}))).await;
    let deadline =
        json!({"deadline_at": "2023-11-14T22:18:20Z", "expected_duration_sec": 120, "priority": "low"});
    let near = submit(&world, with("a", 20, deadline)).await;
    assert_eq!(state(&world, &plain).await, "QUEUED", "it waits for quiet");
    assert_eq!(state(&world, &sensitive).await, "DISPATCHING");
    assert_eq!(state(&world, &near).await, "QUEUED", "five minutes are left, and it needs three");
    // Two minutes of work and one of margin: at 22:15:20 its deadline is near.
    for _ in 0..4 {
        world.advance(Span::secs(29)).await;
        world.load(4, QuietState::Normal).await;
    }
    assert_eq!(state(&world, &near).await, "QUEUED");
    world.advance(Span::secs(5)).await;
    assert_eq!(state(&world, &near).await, "DISPATCHING");
    assert!(audit(&world, &near).await.contains(&"BOOSTED".to_owned()));
    assert_eq!(state(&world, &plain).await, "QUEUED");
    let big = submit(&world, with("a", 30, json!({"time_sensitive": true}))).await;
    assert_eq!(state(&world, &big).await, "QUEUED", "no intent exceeds 56 units at busy 4");
    world.load(0, QuietState::Quiet).await;
    assert_eq!(state(&world, &big).await, "DISPATCHING", "a new reading starts it at once");
}

#[tokio::test]
async fn run_this_overnight_when_quiet() {
    let world = World::new("").await;
    world.load(0, QuietState::Quiet).await;
    // It is 23:13 in Berlin.
    let tonight = submit(&world, with("a", 20, json!({"quiet_hours": "22:00-06:00 Europe/Berlin"}))).await;
    let later = submit(&world, with("a", 20, json!({"quiet_hours": "00:30-06:00 Europe/Berlin"}))).await;
    assert_eq!(
        (state(&world, &tonight).await, state(&world, &later).await),
        ("DISPATCHING".into(), "QUEUED".into())
    );
    let (_, seen) = get(&world, &format!("/queue/jobs/{later}")).await;
    assert_eq!(seen["next_earliest_start_at"], "2023-11-14T23:30:00.000000Z");
    world.load(5, QuietState::Normal).await;
    world.advance(Span::mins(77)).await;
    assert_eq!(state(&world, &later).await, "QUEUED", "the hour has come, but the machine is not quiet");
    world.load(0, QuietState::Quiet).await;
    assert_eq!(state(&world, &later).await, "DISPATCHING");
    // The add-on's hours apply to intents without their own.
    world.configure(json!({"agents": {"night": {"hours": "01:00-02:00 Europe/Berlin"}}})).await;
    let of_agent = submit(&world, intent("night", 5)).await;
    assert_eq!(state(&world, &of_agent).await, "QUEUED");
}

#[tokio::test]
async fn denials_appear_in_the_event_log_now_and_then_with_their_reason() {
    let world = World::new("").await;
    world.load(9, QuietState::Panic).await;
    let id = submit(&world, intent("a", 20)).await;
    let denied = async || audit(&world, &id).await.iter().filter(|word| *word == "DENIED").count();
    assert_eq!(denied().await, 1);
    // After 5 s, then 10 s, then 20 s: not at every check.
    for (seconds, count) in [(4, 1), (1, 2), (9, 2), (1, 3), (19, 3), (1, 4)] {
        world.advance(Span::secs(seconds)).await;
        world.load(9, QuietState::Panic).await;
        assert_eq!(denied().await, count, "after {seconds} s more");
    }
    let (_, reply) = get(&world, &format!("/queue/jobs/{id}/events")).await;
    let reason = reply["events"][1]["reason"].as_str().unwrap();
    assert!(reason.starts_with("panic: "), "{reason}");
    let (_, stats) = get(&world, "/queue/stats").await;
    assert_eq!(stats["decisions"][0]["reason"], "Recent PANIC detected; cooling down");
    assert!(stats["oldest_queued_age_s"].as_f64().unwrap() >= 35.0);
}
