//! The effects of a denial: counts, times, events; and what `/status` counts as leased.

use laneway_core::{QuietState, Span};
use serde_json::{Value, json};

use super::intents::{IDLE, get, intent, post, state, submit};
use crate::world::World;

async fn seen(world: &World, id: &str) -> Value {
    get(world, &format!("/queue/jobs/{id}")).await.1
}

/// Each denial counts as an attempt and names the next check of the dispatcher: 5 s later, then 10 s, ….
#[tokio::test]
async fn defect_16_a_denial_counts_and_says_when_the_intent_is_looked_at_again() {
    let world = World::new("").await;
    world.load(8, QuietState::Busy).await;
    let id = submit(&world, intent("a", 50)).await;
    let intent = seen(&world, &id).await;
    assert_eq!((&intent["state"], &intent["attempts"]), (&json!("QUEUED"), &json!(1)), "{intent}");
    assert_eq!(intent["next_earliest_start_at"], "2023-11-14T22:13:25.000000Z");
    world.advance(Span::secs(5)).await;
    world.load(8, QuietState::Busy).await;
    let intent = seen(&world, &id).await;
    assert_eq!((&intent["state"], &intent["attempts"]), (&json!("QUEUED"), &json!(2)), "{intent}");
    assert_eq!(intent["next_earliest_start_at"], "2023-11-14T22:13:35.000000Z");
    // Quiet again: it starts at once, and the dispatch is one more attempt.
    world.load(0, QuietState::Quiet).await;
    let intent = seen(&world, &id).await;
    assert_eq!((&intent["state"], &intent["attempts"]), (&json!("DISPATCHING"), &json!(3)), "{intent}");
    assert_eq!(intent["next_earliest_start_at"], Value::Null);
    post(&world, &format!("/queue/jobs/{id}/ack"), json!({})).await;
    post(&world, &format!("/queue/jobs/{id}/complete"), json!({"status": "DONE"})).await;
    let intent = seen(&world, &id).await;
    assert_eq!((&intent["state"], &intent["attempts"]), (&json!("DONE"), &json!(3)), "{intent}");
}

#[tokio::test]
async fn defect_16_reservations_are_not_leased() {
    let world = World::new(IDLE).await;
    let id = submit(&world, intent("a", 60)).await;
    assert_eq!(state(&world, &id).await, "DISPATCHING");
    let (_, status) = get(&world, "/status").await;
    let shown = ["leased_capacity_units", "reserved_units", "available_capacity_units", "active_leases"];
    assert_eq!(shown.map(|key| status[key].clone()), [json!(0), json!(60), json!(30), json!(0)], "{status}");
    post(&world, &format!("/queue/jobs/{id}/ack"), json!({"worker_id": "w1"})).await;
    let (_, status) = get(&world, "/status").await;
    assert_eq!(shown.map(|key| status[key].clone()), [json!(60), json!(0), json!(30), json!(1)], "{status}");
}

#[tokio::test]
async fn defect_16_a_dispatch_timeout_is_one_event() {
    let world = World::new(IDLE).await;
    let id = submit(&world, intent("a", 20)).await;
    world.advance(Span::secs(30)).await;
    let (_, reply) = get(&world, &format!("/queue/jobs/{id}/events")).await;
    let reasons: Vec<&str> =
        reply["events"].as_array().unwrap().iter().map(|event| event["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["submitted", "admitted", "admitted", "dispatch_timeout"], "{reply}");
}
