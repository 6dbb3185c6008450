//! Duplicate frames: acknowledged every time, processed once.

use laneway_wire::frame::MessageType;
use serde_json::{Value, json};

use super::peer::Peer;
use crate::world::World;

/// Sends the same frame twice and returns the `info` of both acknowledgements.
async fn send_twice(peer: &mut Peer, frame: &Value) -> [Option<String>; 2] {
    let (text, id) = (frame.to_string(), frame["id"].as_str().unwrap());
    peer.send_raw(&text).await;
    let first = peer.receive_ack(id).await;
    peer.send_raw(&text).await;
    [first, peer.receive_ack(id).await]
}

#[tokio::test]
async fn d8_a_duplicate_frame_over_a_socket_is_acknowledged_again_and_processed_once() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    world.submit(r#"{"kind": "k"}"#).await;
    let (dispatched, job, seq) = peer.receive_dispatch().await;
    peer.take(&dispatched).await;

    let chunk = json!({"run_id": job, "task_id": job, "chunks": [{"channel": "stdout", "text": "one line"}]});
    let frame = peer.frame("feedback", chunk, Some((&job, seq)));
    assert_eq!(send_twice(&mut peer, &frame).await, [None, None]);
    // The same id with another `corr` is another frame: frames are identified by (id, corr).
    let mut other = frame.clone();
    other["corr"] = dispatched.id.as_str().into();
    peer.send_raw(&other.to_string()).await;
    peer.receive_ack(frame["id"].as_str().unwrap()).await;

    let event = json!({"name": "img", "version": "1", "status": "installed"});
    let frame = peer.frame("pkg.event", event, None);
    assert_eq!(send_twice(&mut peer, &frame).await, [None, None]);

    let result = json!({"run_id": job, "task_id": job, "status": "SUCCEEDED", "result": {"n": 1}});
    let frame = peer.frame("result", result, Some((&job, seq)));
    assert_eq!(send_twice(&mut peer, &frame).await, [None, None], "the same reply as the first time");

    let logs = world.ask("GET", &format!("/v1/jobs/{job}/logs"), "").await;
    assert_eq!(logs["lines"].as_array().unwrap().len(), 2, "two frames, two lines: {logs}");
    let page = world.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    let metric = r#"pkg_ops_total{tenant="default",op="install",status="installed"} 1"#;
    assert!(page.contains(metric), "{page}");
    let events = world.ask("GET", &format!("/v1/jobs/{job}/events"), "").await;
    let ends = events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "job.succeeded");
    assert_eq!(ends.count(), 1, "{events}");
}

#[tokio::test]
async fn d8_a_rejected_frame_is_rejected_again() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    let foreign = "00000000-0000-7000-8000-000000000001";
    let result = json!({"run_id": foreign, "task_id": foreign, "status": "SUCCEEDED", "result": {}});
    let text = peer.frame("result", result, Some((foreign, 1))).to_string();
    for _ in 0..2 {
        peer.send_raw(&text).await;
        let expected = ("E.SESSION.STALE_BINDING".to_owned(), Some(foreign.to_owned()), Some(1));
        assert_eq!(peer.receive_error().await, expected);
    }
}

#[tokio::test]
async fn d7_d8_a_dispatch_without_an_acknowledgement_is_sent_again_as_the_same_frame() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    let id = world.submit(r#"{"kind": "k"}"#).await;
    let (first, job, seq) = peer.receive_dispatch().await;
    let again = peer.receive(MessageType::Dispatch).await;
    assert_eq!((&again.id, &again.corr, again.seq), (&first.id, &first.corr, first.seq));
    peer.take(&again).await;
    let brought = peer.bring(&job, seq, json!({})).await;
    assert_eq!(peer.receive_ack(&brought).await, None);
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{id}"), "").await["attempt"], 1);
    let page = world.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    let counted = page.lines().find(|line| line.starts_with(r#"cmd_retry_total{reason="unacknowledged"}"#));
    assert!(counted.is_some_and(|line| !line.ends_with(" 0")), "{counted:?}");
}
