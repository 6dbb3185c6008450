//! Long polls and streams.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::intents::{BASE, IDLE, get, intent, post, submit};
use crate::world::{PATIENCE, World};

#[tokio::test]
async fn w14_a_long_poll_ends_when_something_is_there() {
    let world = World::new(IDLE).await;
    let polled = post(&world, "/queue/dispatchable?addon_id=a&wait=30&worker_id=w1", json!({}));
    let submitted = async {
        // An intent of another add-on does not end the poll.
        submit(&world, intent("b", 5)).await;
        submit(&world, intent("a", 5)).await
    };
    let both = async { tokio::join!(polled, submitted) };
    let ((status, reply), id) = tokio::time::timeout(PATIENCE, both).await.expect("the poll returns");
    assert_eq!((status, &reply["jobs"][0]["job_id"]), (200, &json!(id)));
    assert_eq!(reply["jobs"][0]["worker_id"], "w1");
    let (status, reply) = get(&world, "/queue/dispatchable?addon_id=a&wait=0.05").await;
    assert_eq!((status, reply), (200, json!({"jobs": []})), "and ends without");
    for wait in ["-1", "61", "long"] {
        assert_eq!(get(&world, &format!("/queue/dispatchable?wait={wait}")).await.0, 422, "{wait}");
    }
}

#[tokio::test]
async fn an_addon_gets_events_of_its_intents() {
    let world = World::new(IDLE).await;
    let stream = |after: Option<u64>| {
        let mut request = world.request("GET", &format!("{BASE}/queue/events?addon_id=a"));
        if let Some(after) = after {
            request = request.header("last-event-id", after.to_string());
        }
        request.send()
    };
    let response = stream(None).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut chunks = response.bytes_stream();
    let mut received = String::new();
    let receive = async |received: &mut String,
                         chunks: &mut (dyn futures_util::Stream<Item = _> + Unpin),
                         word: &str| {
        while !received.contains(word) {
            let chunk: Result<_, reqwest::Error> =
                tokio::time::timeout(PATIENCE, chunks.next()).await.expect("no event comes").unwrap();
            let chunk: axum::body::Bytes = chunk.unwrap();
            received.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    receive(&mut received, &mut chunks, "retry: 1000").await;
    submit(&world, intent("b", 5)).await;
    let id = submit(&world, intent("a", 5)).await;
    receive(&mut received, &mut chunks, "event: DISPATCHING").await;
    post(&world, &format!("/queue/jobs/{id}/ack"), json!({})).await;
    post(&world, &format!("/queue/jobs/{id}/complete"), json!({"status": "DONE"})).await;
    receive(&mut received, &mut chunks, "event: DONE").await;
    let events: Vec<&str> = received.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(events, ["SUBMITTED", "DISPATCHING", "RUNNING", "DONE"]);
    assert!(!received.contains("\"addon_id\":\"b\""), "{received}");
    let data: Vec<Value> = received
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!((&data[1]["job_id"], &data[1]["to_state"]), (&json!(id), &json!("DISPATCHING")));
    // A client that reconnects resumes at its position.
    let after = data[1]["event_id"].as_u64().unwrap();
    let mut chunks = stream(Some(after)).await.unwrap().bytes_stream();
    let mut again = String::new();
    receive(&mut again, &mut chunks, "event: DONE").await;
    let events: Vec<&str> = again.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(events, ["RUNNING", "DONE"]);
    drop(chunks);
    world.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn defect_10_a_slow_addon_is_cut_with_a_gap_that_it_can_resume_from() {
    let world = World::with_ring(IDLE, 64).await;
    let response = world.request("GET", &format!("{BASE}/queue/events?addon_id=a")).send().await.unwrap();
    let before = world.scheduler.events().latest();
    // More events at once than the memory keeps.
    let jobs = vec![json!({"kind": "k", "lane": "synthia", "agent": "a"}); 1_000];
    assert_eq!(world.ask("POST", "/v1/jobs/batch", &json!({"jobs": jobs})).await.0, 200);
    let received = tokio::time::timeout(PATIENCE, response.text()).await.expect("the stream ends").unwrap();
    let gap = received.rsplit_once("event: gap\ndata: ").expect("it ends with a gap").1;
    let gap: Value = serde_json::from_str(gap.trim()).unwrap();
    let received_count = received.matches("\nevent: SUBMITTED").count() as u64;
    assert_eq!((&gap["from"], &gap["reason"]), (&json!(before + received_count + 1), &json!("slow_reader")));
    let after = (before + received_count).to_string();
    let request = world.request("GET", &format!("{BASE}/queue/events?addon_id=a"));
    let mut again = request.header("last-event-id", after).send().await.unwrap();
    let mut received = String::new();
    while received.matches("event: SUBMITTED").count() < 1_000 - received_count as usize {
        let chunk = tokio::time::timeout(PATIENCE, again.chunk()).await.expect("no event comes").unwrap();
        received.push_str(&String::from_utf8_lossy(&chunk.expect("the stream goes on")));
    }
}
