//! Processes of workers over real sockets: which one keeps a name, and its tasks.

use std::time::Duration;

use serde_json::json;

use super::peer::Peer;
use crate::world::World;

/// How long a frame of the server may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn defect_01_a_second_process_of_a_worker_is_denied_with_a_reason() {
    let world = World::new().await;
    let mut first = Peer::registered(&world, "w1", &["k"], 1).await;
    for boot in [Some("another"), None] {
        let mut second = Peer::open(&world, "w1").await.process(boot);
        second.shake_hands(None).await;
        let message = second.denied(&["k"]).await;
        for part in ["\"w1\" is connected already", "since 20", "another id"] {
            assert!(message.contains(part), "{message}");
        }
        // The server probes the first one, which responds.
        first.beat(json!({"inflight": 0})).await;
        assert!(second.is_closed().await);
    }
    // It works on.
    world.submit(r#"{"kind": "k"}"#).await;
    let (frame, job, seq) = first.receive_dispatch().await;
    first.take(&frame).await;
    let brought = first.bring(&job, seq, json!({})).await;
    assert_eq!(first.receive_ack(&brought).await, None);
}

#[tokio::test]
async fn defect_01_a_connection_that_does_not_respond_frees_its_name_soon() {
    let world = World::new().await;
    let mut first = Peer::registered(&world, "w1", &["k"], 1).await;
    world.submit(r#"{"kind": "k", "retry": {"losses_max": 1}}"#).await;
    let (frame, job, seq) = first.receive_dispatch().await;
    first.take(&frame).await;
    first.beat(json!({"inflight": 1})).await;
    // The test does not read its end any more: it is half open.
    let begun = std::time::Instant::now();
    let mut second = loop {
        let mut second = Peer::open(&world, "w1").await.process(Some("next"));
        second.shake_hands(None).await;
        if second.may_register(&["k"]).await {
            break second;
        }
        assert!(begun.elapsed() < PATIENCE, "the name never becomes free");
    };
    // Its process is another one, so the task is lost and sent under the next number.
    let (_, again, next) = second.receive_dispatch().await;
    assert_eq!((again, next), (job, seq + 1));
}

#[tokio::test]
async fn defect_01_an_older_worker_keeps_the_tasks_that_it_lists() {
    let world = World::new().await;
    let mut old = Peer::open(&world, "w1").await.process(None);
    old.greet(&["k"], 1).await;
    world.submit(r#"{"kind": "k"}"#).await;
    let (frame, job, seq) = old.receive_dispatch().await;
    old.take(&frame).await;
    old.beat(json!({"inflight": 1})).await;
    drop(old);
    world.worker_is("w1", "away").await;
    let mut listing = Peer::open(&world, "w1").await.process(None).having(&job, seq);
    listing.greet(&["k"], 1).await;
    let (frame, again, same) = listing.receive_dispatch().await;
    assert_eq!((&again, same), (&job, seq));
    listing.take(&frame).await;
    listing.beat(json!({"inflight": 1})).await;
    drop(listing);
    world.worker_is("w1", "away").await;
    // One that lists no tasks has none.
    let mut new = Peer::open(&world, "w1").await.process(None);
    new.greet(&["k"], 1).await;
    let (_, again, next) = new.receive_dispatch().await;
    assert_eq!((&again, next), (&job, seq + 1));
}
