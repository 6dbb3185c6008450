//! Intents: reserved, claimed, running, ended; and errors.

use laneway_core::Span;
use serde_json::{Value, json};

use crate::world::{World, answer};

/// The base of the dialect's paths.
pub const BASE: &str = "/api/system/scheduler";
/// No probe measures the machine, so it counts as idle.
pub const IDLE: &str = "capacity.measured = false";

/// The status and the JSON of a POST.
pub async fn post(world: &World, path: &str, body: Value) -> (u16, Value) {
    world.ask("POST", &format!("{BASE}{path}"), &body).await
}

/// The status and the JSON of a GET.
pub async fn get(world: &World, path: &str) -> (u16, Value) {
    let (status, reply) = answer(world.request("GET", &format!("{BASE}{path}"))).await;
    (status.as_u16(), reply)
}

/// An intent with this cost.
pub fn intent(addon: &str, cost: u32) -> Value {
    json!({"addon_id": addon, "job_type": "j", "cost_units": cost})
}

/// Submits an intent that must be accepted, and returns its id.
pub async fn submit(world: &World, intent: Value) -> String {
    let (status, reply) = post(world, "/queue/jobs/submit", intent).await;
    assert_eq!((status, &reply["state"]), (200, &json!("QUEUED")), "{reply}");
    reply["job_id"].as_str().unwrap().to_owned()
}

/// An intent's state.
pub async fn state(world: &World, id: &str) -> String {
    get(world, &format!("/queue/jobs/{id}")).await.1["state"].as_str().unwrap().to_owned()
}

/// The types of an intent's events.
pub async fn audit(world: &World, id: &str) -> Vec<String> {
    let (_, reply) = get(world, &format!("/queue/jobs/{id}/events")).await;
    let events = reply["events"].as_array().unwrap();
    events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

async fn units(world: &World) -> (Value, Value) {
    let (_, status) = get(world, "/status").await;
    (status["leased_capacity_units"].clone(), status["available_capacity_units"].clone())
}

#[tokio::test]
async fn b17_b19_b24_w2_units_are_held_from_the_dispatch_to_the_end() {
    let world = World::new(IDLE).await;
    let (first, second) = (submit(&world, intent("a", 90)).await, submit(&world, intent("b", 90)).await);
    assert_eq!(
        (state(&world, &first).await, state(&world, &second).await),
        ("DISPATCHING".into(), "QUEUED".into())
    );
    let (status, _) = post(&world, &format!("/queue/jobs/{first}/ack"), json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(units(&world).await, (json!(90), json!(0)), "an ack gives nothing back");
    assert_eq!(state(&world, &second).await, "QUEUED", "and no other intent starts");
    let (status, reply) = post(&world, &format!("/queue/jobs/{first}/ack"), json!({})).await;
    assert_eq!((status, &reply["detail"]), (409, &json!("job_not_dispatching")));
    post(&world, &format!("/queue/jobs/{first}/complete"), json!({"status": "DONE"})).await;
    assert_eq!(state(&world, &second).await, "DISPATCHING", "the end of one is the start of the next");
    assert_eq!(units(&world).await, (json!(0), json!(0)), "reserved and not leased yet");
}

#[tokio::test]
async fn b18_a_time_in_the_future_is_waited_for() {
    let world = World::new(IDLE).await;
    let mut later = intent("a", 5);
    // A time without an offset is UTC: ten seconds after the start.
    later["earliest_start_at"] = json!("2023-11-14T22:13:30");
    let id = submit(&world, later).await;
    let other = submit(&world, intent("a", 5)).await;
    assert_eq!(
        (state(&world, &id).await, state(&world, &other).await),
        ("QUEUED".into(), "DISPATCHING".into())
    );
    let (_, seen) = get(&world, &format!("/queue/jobs/{id}")).await;
    assert_eq!(seen["next_earliest_start_at"], "2023-11-14T22:13:30.000000Z");
    world.advance(Span::secs(10)).await;
    assert_eq!(state(&world, &id).await, "DISPATCHING");
}

#[tokio::test]
async fn b20_w15_an_unclaimed_intent_waits_again_without_an_attempt_lost() {
    let world = World::new(IDLE).await;
    let id = submit(&world, intent("a", 50)).await;
    for (shown, wait) in [(1, 5), (2, 10), (3, 20)] {
        let (_, seen) = get(&world, &format!("/queue/jobs/{id}")).await;
        assert_eq!((&seen["state"], &seen["attempts"]), (&json!("DISPATCHING"), &json!(shown)));
        world.advance(Span::secs(30)).await;
        assert_eq!(state(&world, &id).await, "QUEUED");
        assert_eq!(units(&world).await, (json!(0), json!(90)), "the reservation is free");
        // The wait doubles each time, so the dispatcher does not spin.
        world.advance(Span::secs(wait - 1)).await;
        assert_eq!(state(&world, &id).await, "QUEUED");
        world.advance(Span::secs(1)).await;
    }
    let (_, native) = answer(world.request("GET", &format!("/v1/jobs/{id}"))).await;
    assert_eq!((&native["failures"], &native["losses"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn b21_a_cancel_frees_reserved_units_and_reaches_the_running_worker() {
    let world = World::new(IDLE).await;
    let (held, queued) = (submit(&world, intent("a", 60)).await, submit(&world, intent("a", 60)).await);
    for id in [&queued, &held] {
        assert_eq!(
            post(&world, &format!("/queue/jobs/{id}/cancel"), Value::Null).await,
            (200, json!({"ok": true}))
        );
        assert_eq!(state(&world, id).await, "CANCELED");
    }
    assert_eq!(units(&world).await, (json!(0), json!(90)));
    let running = submit(&world, intent("a", 60)).await;
    let (_, acked) = post(&world, &format!("/queue/jobs/{running}/ack"), json!({"worker_id": "w1"})).await;
    post(&world, &format!("/queue/jobs/{running}/cancel"), Value::Null).await;
    assert_eq!(state(&world, &running).await, "CANCELED");
    let path = format!("/leases/{}/heartbeat", acked["lease_id"].as_str().unwrap());
    let (status, reply) = post(&world, &path, json!({"worker_id": "w1"})).await;
    assert_eq!((status, &reply["detail"]), (404, &json!("lease_not_found")), "so it stops");
    world.advance(Span::secs(11)).await;
    assert_eq!(units(&world).await, (json!(0), json!(90)), "a silent worker is not waited for");
}

#[tokio::test]
async fn w3_what_has_ended_does_not_end_again() {
    let world = World::new(IDLE).await;
    let id = submit(&world, intent("a", 5)).await;
    let complete = async |status: &str| {
        let (code, reply) =
            post(&world, &format!("/queue/jobs/{id}/complete"), json!({"status": status})).await;
        (code, reply["detail"].clone())
    };
    post(&world, &format!("/queue/jobs/{id}/ack"), json!({})).await;
    assert_eq!(complete("DONE").await, (200, Value::Null));
    assert_eq!(complete("FAILED").await, (409, json!("job_already_finished")));
    assert_eq!(complete("DONE").await, (200, Value::Null), "a repeated call gets the same answer");
    assert_eq!(state(&world, &id).await, "DONE");
    let canceled = submit(&world, intent("a", 5)).await;
    post(&world, &format!("/queue/jobs/{canceled}/cancel"), Value::Null).await;
    for status in ["DONE", "FAILED"] {
        let (code, _) =
            post(&world, &format!("/queue/jobs/{canceled}/complete"), json!({"status": status})).await;
        assert_eq!(code, 409);
    }
    assert_eq!(state(&world, &canceled).await, "CANCELED");
    submit(&world, intent("a", 90)).await;
    let queued = submit(&world, intent("a", 90)).await;
    let (code, reply) =
        post(&world, &format!("/queue/jobs/{queued}/complete"), json!({"status": "DONE"})).await;
    assert_eq!((code, &reply["detail"]), (409, &json!("job_not_running")));
    assert_eq!(state(&world, &queued).await, "QUEUED");
}

#[tokio::test]
async fn w4_an_end_without_an_ack_leaks_nothing() {
    let world = World::new(IDLE).await;
    let id = submit(&world, intent("a", 70)).await;
    assert_eq!(state(&world, &id).await, "DISPATCHING");
    let (status, reply) =
        post(&world, &format!("/queue/jobs/{id}/complete"), json!({"status": "DONE"})).await;
    assert_eq!((status, &reply["ok"]), (200, &json!(true)));
    assert_eq!(state(&world, &id).await, "DONE");
    assert_eq!(units(&world).await, (json!(0), json!(90)));
}

#[tokio::test]
async fn w5_a_poisonous_intent_stops_no_other() {
    let world = World::new(IDLE).await;
    for when in
        [json!("2023-11-14T22:13:30"), json!("0001-01-01T00:00:00"), json!("9999-01-01T00:00:00"), json!(-5)]
    {
        let mut odd = intent("a", 1);
        odd["earliest_start_at"] = when;
        submit(&world, odd).await;
    }
    let good = submit(&world, intent("a", 5)).await;
    assert_eq!(state(&world, &good).await, "DISPATCHING");
    world.advance(Span::hours(1)).await;
    let (_, stats) = get(&world, "/queue/stats").await;
    assert_eq!(stats["by_state"]["QUEUED"], json!(1), "only the intent of the year 9999 waits: {stats}");
}

#[tokio::test]
async fn w6_an_intent_that_never_fits_is_rejected_at_submit() {
    let world = World::new(IDLE).await;
    for cost in [91, 100] {
        let (status, reply) = post(&world, "/queue/jobs/submit", intent("a", cost)).await;
        assert_eq!((status, &reply["detail"][0]["type"]), (422, &json!("never_fits")));
        assert_eq!(reply["detail"][0]["loc"], json!(["body", "cost_units"]));
        let (status, _) = post(&world, "/jobs", json!({"requested_units": cost})).await;
        assert_eq!(status, 422);
    }
    let (status, _) = post(&world, "/jobs", json!({"requested_units": 0})).await;
    assert_eq!(status, 422, "no intent fails silently");
    assert_eq!(state(&world, &submit(&world, intent("a", 90)).await).await, "DISPATCHING");
}

#[tokio::test]
async fn w11_a_dead_worker_leaves_nothing_running_for_ever() {
    let world = World::new(IDLE).await;
    let id = submit(&world, intent("a", 60)).await;
    post(&world, &format!("/queue/jobs/{id}/ack"), json!({"worker_id": "w1", "pid": 42})).await;
    let (_, seen) = get(&world, &format!("/queue/jobs/{id}")).await;
    assert_eq!((&seen["worker_id"], &seen["pid"]), (&json!("w1"), &json!(42)));
    for _ in 0..3 {
        world.advance(Span::secs(61)).await;
        assert_eq!(state(&world, &id).await, "DISPATCHING", "it waits and is reserved again");
        post(&world, &format!("/queue/jobs/{id}/ack"), json!({})).await;
    }
    world.advance(Span::secs(61)).await;
    let (_, seen) = get(&world, &format!("/queue/jobs/{id}")).await;
    assert_eq!(seen["state"], "FAILED", "but not forever: {seen}");
    assert_eq!(units(&world).await, (json!(0), json!(90)));
}

#[tokio::test]
async fn w11_the_lease_is_the_jobs_own_both_ways() {
    let world = World::new(IDLE).await;
    // 8.1: the worker requests a lease for the job.
    let one = submit(&world, intent("a", 20)).await;
    let (_, given) = post(&world, "/lease/request", json!({"job_id": one, "worker_id": "w1"})).await;
    assert_eq!(given["approved"], true, "{given}");
    assert_eq!(state(&world, &one).await, "RUNNING");
    // 8.2: the dispatch grants it; the first message with its id claims it.
    let two = submit(&world, intent("a", 20)).await;
    let (_, seen) = get(&world, &format!("/queue/jobs/{two}")).await;
    let lease = seen["lease_id"].as_str().unwrap().to_owned();
    let (status, _) = post(&world, &format!("/leases/{lease}/heartbeat"), json!({"worker_id": "w2"})).await;
    assert_eq!((status, state(&world, &two).await), (200, "RUNNING".into()));
    let complete = json!({"worker_id": "w2", "status": "completed", "result": {"n": 1}});
    post(&world, &format!("/leases/{lease}/complete"), complete).await;
    let (_, seen) = get(&world, &format!("/queue/jobs/{two}")).await;
    assert_eq!((&seen["state"], &seen["result"]), (&json!("DONE"), &json!({"n": 1})));
    // A lease of another job is not valid for it.
    let three = submit(&world, intent("a", 20)).await;
    let (status, reply) = post(&world, &format!("/queue/jobs/{three}/ack"), json!({"lease_id": lease})).await;
    assert_eq!((status, &reply["detail"]), (409, &json!("lease_not_of_job")));
}

#[tokio::test]
async fn w12_a_run_that_takes_too_long_has_failed_with_a_timeout() {
    let world = World::new(IDLE).await;
    let mut bounded = intent("a", 20);
    bounded["max_runtime_sec"] = json!(100);
    let id = submit(&world, bounded).await;
    let (_, acked) = post(&world, &format!("/queue/jobs/{id}/ack"), json!({"worker_id": "w1"})).await;
    let beat = format!("/leases/{}/heartbeat", acked["lease_id"].as_str().unwrap());
    for (seconds, status) in [(50, 200), (49, 200), (1, 404)] {
        world.advance(Span::secs(seconds)).await;
        assert_eq!(post(&world, &beat, json!({"worker_id": "w1"})).await.0, status, "after {seconds} s more");
    }
    world.advance(Span::secs(11)).await;
    let (_, seen) = get(&world, &format!("/queue/jobs/{id}")).await;
    assert_eq!(seen["state"], "FAILED", "{seen}");
    assert_eq!(audit(&world, &id).await.last().unwrap(), "TIMEOUT");
    assert_eq!(units(&world).await.0, 0);
    let mut late = intent("a", 20);
    late["deadline_at"] = json!("2023-11-14T22:30:00Z");
    let id = submit(&world, late).await;
    post(&world, &format!("/queue/jobs/{id}/ack"), json!({"worker_id": "w1"})).await;
    world.advance(Span::hours(1)).await;
    world.advance(Span::secs(11)).await;
    assert_eq!(state(&world, &id).await, "FAILED");
    assert_eq!(audit(&world, &id).await.last().unwrap(), "TIMEOUT");
}

#[tokio::test]
async fn w13_results_errors_and_events_are_kept() {
    let world = World::new(IDLE).await;
    let (good, bad) = (submit(&world, intent("a", 20)).await, submit(&world, intent("a", 20)).await);
    for id in [&good, &bad] {
        post(&world, &format!("/queue/jobs/{id}/ack"), json!({"worker_id": "w1"})).await;
    }
    let done = json!({"status": "DONE", "result": {"files": [1, 2]}, "actual_money_spend": 0.5});
    assert_eq!(post(&world, &format!("/queue/jobs/{good}/complete"), done).await.0, 200);
    let failed = json!({"status": "FAILED", "error": "no disk"});
    assert_eq!(post(&world, &format!("/queue/jobs/{bad}/complete"), failed).await.0, 200);
    let (_, seen) = get(&world, &format!("/queue/jobs/{good}")).await;
    assert_eq!((&seen["result"], &seen["error"]), (&json!({"files": [1, 2]}), &Value::Null));
    let (_, seen) = get(&world, &format!("/queue/jobs/{bad}")).await;
    assert_eq!((&seen["result"], &seen["error"]), (&Value::Null, &json!("no disk")));
    assert_eq!(audit(&world, &good).await, ["SUBMITTED", "ADMITTED", "DISPATCHING", "RUNNING", "DONE"]);
    let (_, reply) = get(&world, &format!("/queue/jobs/{bad}/events")).await;
    let running = &reply["events"][3];
    assert_eq!((&running["type"], running["lease_id"].is_string()), (&json!("RUNNING"), true), "{reply}");
}

#[tokio::test]
async fn w14_two_pollers_never_get_the_same_intent() {
    let world = World::new(IDLE).await;
    for _ in 0..6 {
        submit(&world, intent("a", 10)).await;
    }
    let claims = (0..10).map(|worker| {
        let claim = json!({"addon_id": "a", "worker_id": format!("w{worker}")});
        let world = &world;
        async move { post(world, "/queue/dispatchable", claim).await.1["jobs"].as_array().unwrap().clone() }
    });
    let taken = futures_util::future::join_all(claims).await;
    let mut ids: Vec<String> =
        taken.iter().flatten().map(|job| job["job_id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), taken.iter().flatten().count()), (6, 6));
    let (_, rest) = get(&world, "/queue/dispatchable?addon_id=a").await;
    assert_eq!(rest, json!({"jobs": []}), "a claimed intent is not listed");
}

#[tokio::test]
async fn w14_without_a_claim_the_second_ack_is_rejected_before_work_is_lost() {
    let world = World::new(IDLE).await;
    let id = submit(&world, intent("a", 10)).await;
    let acks = ["w1", "w2", "w3"].map(|worker| {
        let path = format!("/queue/jobs/{id}/ack");
        let world = &world;
        async move { post(world, &path, json!({"worker_id": worker})).await.0 }
    });
    let mut reply = futures_util::future::join_all(acks).await;
    reply.sort_unstable();
    assert_eq!(reply, [200, 409, 409]);
}
