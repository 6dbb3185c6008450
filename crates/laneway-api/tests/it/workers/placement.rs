//! Placement over real sockets: resources, affinity, free slots, health, packages, load.

use laneway_core::Span;
use serde_json::{Value, json};

use super::peer::{Peer, dispatch};
use crate::world::World;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// A job with placement constraints.
fn constrained(constraints: Value) -> String {
    json!({"kind": "k", "worker": constraints}).to_string()
}

async fn state(world: &World, id: &str) -> Value {
    world.ask("GET", &format!("/v1/jobs/{id}"), "").await["state"].clone()
}

/// Takes the next dispatch, which must be this job, and ends it.
async fn finish(peer: &mut Peer, id: &str) {
    let (frame, job, seq) =
        tokio::time::timeout(PATIENCE, peer.receive_dispatch()).await.expect("it is sent here");
    assert_eq!(job, id);
    peer.take(&frame).await;
    let brought = peer.bring(&job, seq, json!({})).await;
    peer.receive_ack(&brought).await;
}

#[tokio::test]
async fn d17_resources_pin_the_worker_that_has_them() {
    let world = World::new().await;
    let mut one = Peer::registered(&world, "w1", &["k"], 1).await;
    let mut two = Peer::registered(&world, "w2", &["k"], 1).await;
    let on_two = json!({"resources": [{"id": "res-1", "worker": "w2", "type": "file", "scope": "run"}]});
    let first = world.submit(&constrained(on_two.clone())).await;
    let (frame, job, seq) = two.receive_dispatch().await;
    assert_eq!(job, first, "though w1 would have been the first in line");
    let refs = dispatch(&frame).resource_refs.as_ref().unwrap();
    assert_eq!((refs[0].resource_id.as_str(), refs[0].worker_id.as_str()), ("res-1", "w2"));
    // The worker is full: the next job waits for it, and does not go to another worker.
    let second = world.submit(&constrained(on_two)).await;
    assert_eq!(state(&world, &second).await, "queued");
    let free = world.submit(r#"{"kind": "k"}"#).await;
    finish(&mut one, &free).await;
    assert_eq!(state(&world, &second).await, "queued", "w1 has a free slot and does not get it");
    two.take(&frame).await;
    let brought = two.bring(&job, seq, json!({})).await;
    two.receive_ack(&brought).await;
    finish(&mut two, &second).await;
}

#[tokio::test]
async fn d17_a_resource_of_a_worker_that_is_not_there_fails_fast_with_a_code() {
    let world = World::new().await;
    let mut here = Peer::registered(&world, "w1", &["k"], 1).await;
    let mut theirs = Peer::open(&world, "w2").await.tenant("acme");
    theirs.greet(&["k"], 1).await;
    // After a start, the server first waits for workers that were connected before.
    for _ in 0..7 {
        world.clock.advance(Span::secs(5));
        here.beat(json!({"inflight": 0})).await;
        theirs.beat(json!({"inflight": 0})).await;
    }
    for (worker, why) in [("w9", "no worker has that name"), ("w2", "it is another tenant's")] {
        let constraints = json!({"resources": [{"id": "res-1", "worker": worker, "type": "file"}]});
        let id = world.submit(&constrained(constraints)).await;
        tokio::time::timeout(PATIENCE, world.wait(&id)).await.expect("it does not wait forever");
        let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
        assert_eq!(
            (&job["state"], &job["reason"]),
            (&json!("failed"), &json!("unavailable")),
            "{why}: {job}"
        );
        assert_eq!(job["error"]["code"], "E.RESOURCE.MISSING", "{why}: {job}");
        assert!(job["error"]["message"].as_str().unwrap().contains(worker), "{job}");
        assert_eq!(job["attempt"], 0, "no worker got it");
    }
    let two = json!({"resources": [{"id": "a", "worker": "w1", "type": "file"},
        {"id": "b", "worker": "w2", "type": "file"}]});
    let (status, problem) =
        crate::world::answer(world.request("POST", "/v1/jobs").body(constrained(two))).await;
    assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("worker.resources")), "{problem}");
}

#[tokio::test]
async fn d17_sticky_jobs_stay_and_preferred_ones_go_elsewhere_when_their_worker_is_full() {
    let world = World::new().await;
    let mut one = Peer::registered(&world, "w1", &["k"], 1).await;
    let mut two = Peer::registered(&world, "w2", &["k"], 1).await;
    let sticky = constrained(json!({"affinity": {"key": "model-7", "mode": "sticky"}}));
    let first = world.submit(&sticky).await;
    let (frame, job, seq) = one.receive_dispatch().await;
    assert_eq!(job, first);
    one.take(&frame).await;
    let second = world.submit(&sticky).await;
    assert_eq!(state(&world, &second).await, "queued", "w2 has a free slot; the key belongs to w1");
    let brought = one.bring(&job, seq, json!({})).await;
    one.receive_ack(&brought).await;
    finish(&mut one, &second).await;

    let preferred = constrained(json!({"affinity": {"key": "model-8", "mode": "preferred"}}));
    let first = world.submit(&preferred).await;
    let (frame, job, seq, its, other) = tokio::select! {
        (frame, job, seq) = one.receive_dispatch() => (frame, job, seq, &mut one, &mut two),
        (frame, job, seq) = two.receive_dispatch() => (frame, job, seq, &mut two, &mut one),
    };
    assert_eq!(job, first);
    its.take(&frame).await;
    let second = world.submit(&preferred).await;
    finish(other, &second).await;
    let brought = its.bring(&job, seq, json!({})).await;
    its.receive_ack(&brought).await;
    let third = world.submit(&preferred).await;
    let fourth = world.submit(&preferred).await;
    let (_, again, _) =
        tokio::time::timeout(PATIENCE, its.receive_dispatch()).await.expect("it has a free slot again");
    assert!([third, fourth].contains(&again), "tried first");
}

/// The original system picks the first session that has the package, whatever its state.
#[tokio::test]
async fn af_x12_free_slots_health_packages_and_load_decide_the_worker() {
    let world = World::new().await;
    let mut peers = Vec::new();
    for (worker, slots, status) in [
        ("broken", 4, "failed"),
        ("missing", 4, "missing"),
        ("ill", 4, "installed"),
        ("good", 2, "installed"),
    ] {
        let mut peer = Peer::open(&world, worker).await;
        peer.shake_hands(None).await;
        let capabilities = json!({"concurrency": {"max_parallel": slots}, "runtimes": ["t"], "features": []});
        let packages = json!([{"name": "img", "version": "1.0", "status": status}]);
        peer.register(json!({"capabilities": capabilities, "packages": packages})).await;
        peers.push(peer);
    }
    let [broken, missing, ill, good] = &mut peers[..] else { unreachable!() };
    let unwell = json!({"healthy": false, "metrics": {"inflight": 0}});
    let id = ill.send("heartbeat", unwell, None).await;
    ill.receive_ack(&id).await;
    let constraints = constrained(json!({"package": {"name": "img", "version": "1.0"}}));
    let jobs = [world.submit(&constraints).await, world.submit(&constraints).await];
    for id in &jobs {
        let (frame, job, _) = good.receive_dispatch().await;
        assert_eq!(&job, id);
        good.take(&frame).await;
    }
    // max_parallel is reached, and no other worker fits: it waits.
    let third = world.submit(&constraints).await;
    assert_eq!(state(&world, &third).await, "queued");
    let why = world.ask("GET", &format!("/v1/jobs/{third}/explain"), "").await;
    assert_eq!(why["blocked_by"][0]["code"], "workers_full", "{why}");
    ill.beat(json!({"inflight": 0})).await;
    let (_, job, _) = ill.receive_dispatch().await;
    assert_eq!(job, third, "well again");
    for other in [broken, missing] {
        other.beat(json!({"inflight": 0})).await;
        let sent = other.written.iter().filter(|frame| frame["type"] == "cmd.dispatch").count();
        assert_eq!(sent, 0, "a package that is not installed runs nothing");
    }
}

/// The worker with the fewest tasks for its size is next.
#[tokio::test]
async fn af_x12_tasks_are_spread_over_workers_with_free_slots() {
    let world = World::new().await;
    let mut one = Peer::registered(&world, "w1", &["k"], 4).await;
    let mut two = Peer::registered(&world, "w2", &["k"], 4).await;
    for _ in 0..4 {
        world.submit(r#"{"kind": "k"}"#).await;
    }
    for peer in [&mut one, &mut two] {
        for _ in 0..2 {
            let (frame, _, _) = peer.receive_dispatch().await;
            peer.take(&frame).await;
        }
        peer.beat(json!({"inflight": 2})).await;
        let sent = peer.written.iter().filter(|frame| frame["type"] == "cmd.dispatch").count();
        assert_eq!(sent, 2, "each has half");
    }
}
