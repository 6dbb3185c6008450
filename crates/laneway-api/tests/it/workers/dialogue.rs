//! The example exchange of the protocol, frame by frame, as it goes over a real socket.

use expect_test::expect_file;
use laneway_wire::frame::MessageType;
use serde_json::{Value, json};

use super::peer::Peer;
use crate::world::World;

#[tokio::test]
async fn d2_the_example_exchange_frame_by_frame() {
    let world = World::new().await;
    // It was written before boot ids existed, and is unchanged.
    let mut peer = Peer::open(&world, "w-1").await.process(None);
    peer.shake_hands(None).await;
    let capabilities = json!({"concurrency": {"max_parallel": 4}, "runtimes": ["process"], "features": []});
    let packages = json!([{"name": "img", "version": "1.0.0", "status": "installed"}]);
    peer.register(json!({"capabilities": capabilities, "packages": packages})).await;
    let job = r#"{"kind": "resize", "payload": {"width": 640}, "timeout": "30s",
        "worker": {"package": {"name": "img", "version": "1.0.0"}}}"#;
    let id = world.submit(job).await;
    let (dispatched, task, seq) = peer.receive_dispatch().await;
    peer.take(&dispatched).await;
    let brought = peer.bring(&task, seq, json!({"width": 640})).await;
    peer.receive_ack(&brought).await;
    peer.beat(json!({"inflight": 0})).await;
    // A resent frame would be here as well.
    assert!(peer.written.iter().all(|frame| frame["type"] != MessageType::Error.as_str()));
    let dialogue: String = peer.written.iter().map(|frame| line(frame, &id, &peer.written)).collect();
    expect_file!["example-exchange.txt"].assert_eq(&dialogue);
}

/// A frame with placeholders for the parts that vary.
fn line(frame: &Value, task: &str, all: &[Value]) -> String {
    let mut frame = frame.clone();
    frame["ts"] = json!("<time>");
    let who = frame["sender"]["role"].as_str().unwrap().to_owned();
    // Ids of the server are replaced by their subject; a worker's ids are counters.
    let mut text = frame.to_string().replace(task, "<task>");
    for other in all.iter().filter(|other| other["sender"]["role"] == "scheduler") {
        let id = other["id"].as_str().unwrap();
        let about = other["ack"]["for"].as_str().map_or(String::new(), |of| format!(" of {of}"));
        let name = format!("\"<{}{about}>\"", other["type"].as_str().unwrap());
        text = text.replace(&format!("\"{id}\""), &name);
    }
    format!("{who:<9}  {text}\n")
}
