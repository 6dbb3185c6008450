//! Waiting instead of asking again and again: long polls and streams.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::intents::{BASE, IDLE, get, intent, post, submit};
use crate::world::{PATIENCE, World};

#[tokio::test]
async fn w14_a_long_poll_ends_when_something_is_there() {
    let world = World::new(IDLE).await;
    let polled = get(&world, "/queue/dispatchable?addon_id=a&wait=30&claim=1&worker_id=w1");
    let submitted = async {
        // Something for somebody else wakes nobody.
        submit(&world, intent("b", 5)).await;
        submit(&world, intent("a", 5)).await
    };
    let both = async { tokio::join!(polled, submitted) };
    let ((status, said), id) =
        tokio::time::timeout(PATIENCE, both).await.expect("it does not wait for nothing");
    assert_eq!((status, &said["jobs"][0]["job_id"]), (200, &json!(id)));
    assert_eq!(said["jobs"][0]["worker_id"], "w1");
    let (status, said) = get(&world, "/queue/dispatchable?addon_id=a&wait=0.05").await;
    assert_eq!((status, said), (200, json!({"jobs": []})), "and ends without");
    for wait in ["-1", "61", "long"] {
        assert_eq!(get(&world, &format!("/queue/dispatchable?wait={wait}")).await.0, 422, "{wait}");
    }
}

#[tokio::test]
async fn an_addon_is_told_what_happens_to_its_intents() {
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
    let mut heard = String::new();
    let hear =
        async |heard: &mut String, chunks: &mut (dyn futures_util::Stream<Item = _> + Unpin), word: &str| {
            while !heard.contains(word) {
                let chunk: Result<_, reqwest::Error> =
                    tokio::time::timeout(PATIENCE, chunks.next()).await.expect("it is told").unwrap();
                let chunk: axum::body::Bytes = chunk.unwrap();
                heard.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
    hear(&mut heard, &mut chunks, "retry: 1000").await;
    submit(&world, intent("b", 5)).await;
    let id = submit(&world, intent("a", 5)).await;
    hear(&mut heard, &mut chunks, "event: DISPATCHING").await;
    post(&world, &format!("/queue/jobs/{id}/ack"), json!({})).await;
    post(&world, &format!("/queue/jobs/{id}/complete"), json!({"status": "DONE"})).await;
    hear(&mut heard, &mut chunks, "event: DONE").await;
    let events: Vec<&str> = heard.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(events, ["SUBMITTED", "DISPATCHING", "RUNNING", "DONE"]);
    assert!(!heard.contains("\"addon_id\":\"b\""), "{heard}");
    let data: Vec<Value> = heard
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!((&data[1]["job_id"], &data[1]["to_state"]), (&json!(id), &json!("DISPATCHING")));
    // Whoever comes back goes on where it was.
    let after = data[1]["event_id"].as_u64().unwrap();
    let mut chunks = stream(Some(after)).await.unwrap().bytes_stream();
    let mut again = String::new();
    hear(&mut again, &mut chunks, "event: DONE").await;
    let events: Vec<&str> = again.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(events, ["RUNNING", "DONE"]);
    drop(chunks);
    world.stop(Duration::from_secs(5)).await;
}
