//! `GET /api/logs/stream`.

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::world::{Rule, World};
use crate::world::PATIENCE;

/// Reads a stream until it has this text, or to its end.
async fn read_until(world: &World, path: &str, word: &str) -> String {
    let mut stream = Stream::open(world, path).await;
    stream.until(word).await;
    stream.received
}

struct Stream {
    received: String,
    chunks: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<axum::body::Bytes>> + Send>>,
}

impl Stream {
    async fn open(world: &World, path: &str) -> Stream {
        let response = world.request("GET", path).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { received: String::new(), chunks: Box::pin(response.bytes_stream()) }
    }

    async fn until(&mut self, word: &str) {
        while !self.received.contains(word) {
            let next = tokio::time::timeout(PATIENCE, self.chunks.next()).await;
            let Some(chunk) = next.unwrap_or_else(|_| panic!("{word} never comes: {}", self.received)) else {
                panic!("the stream ended without {word}: {}", self.received);
            };
            self.received.push_str(&String::from_utf8_lossy(&chunk.unwrap()));
        }
    }

    async fn ends(&mut self) {
        while let Some(chunk) = tokio::time::timeout(PATIENCE, self.chunks.next()).await.expect("it ends") {
            self.received.push_str(&String::from_utf8_lossy(&chunk.unwrap()));
        }
    }
}

/// The messages of the events `log`.
fn messages(received: &str) -> Vec<String> {
    let data = received.split("\n\n").filter_map(|frame| frame.strip_prefix("event: log\ndata: "));
    data.map(|data| serde_json::from_str::<Value>(data).unwrap()["message"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn the_log_of_a_job_is_streamed_until_its_end() {
    let world = World::in_real_time("lanes.browsers.paused = true").await;
    world.rules.add("browser_stop_all", Rule::log(&[("log", "one"), ("debug", "hidden"), ("stderr", "two")]));
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    let mut stream = Stream::open(&world, &format!("/api/logs/stream?job_id={id}")).await;
    stream.until("\"message\":\"queued\"").await;
    let unpaused = json!({"lanes": {"browsers": {"paused": false}}});
    world.live.patch(unpaused, laneway_core::Origin::server("test")).await.unwrap();
    stream.until("event: close").await;
    stream.ends().await;
    let mut seen = messages(&stream.received);
    assert_eq!(seen.first().map(String::as_str), Some("queued"));
    seen.sort();
    assert_eq!(seen, ["one", "queued", "running, attempt 1", "succeeded", "two"], "{}", stream.received);
    assert!(
        stream.received.ends_with("event: close\ndata: {\"reason\":\"succeeded\"}\n\n"),
        "{}",
        stream.received
    );
}

#[tokio::test]
async fn the_log_of_an_ended_job_is_its_tail_and_the_close() {
    let world = World::new("").await;
    let lines: Vec<(&str, String)> = (0..100).map(|number| ("log", format!("line {number}"))).collect();
    world.rules.add("browser_stop_all", Rule::Lines(lines));
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    world.ended(&id).await;
    let path = format!("/api/logs/stream?job_id={id}");
    assert_eq!(messages(&read_until(&world, &path, "event: close").await).len(), 50, "the default");
    let all = messages(&read_until(&world, &format!("{path}&tail=1000"), "event: close").await);
    assert_eq!(all.len(), 103);
    assert!(messages(&read_until(&world, &format!("{path}&tail=0"), "event: close").await).is_empty());
    let errors = read_until(&world, &format!("{path}&level=ERROR"), "event: close").await;
    assert!(messages(&errors).is_empty(), "{errors}");
}

#[tokio::test]
async fn without_a_job_the_transitions_of_every_job_of_the_tenant_are_streamed() {
    let world = World::new("").await;
    let (acme, globex) = world.two_tenants().await;
    let request = world.request("GET", "/api/logs/stream").bearer_auth(&acme);
    let response = request.send().await.unwrap();
    let mut stream = Stream { received: String::new(), chunks: Box::pin(response.bytes_stream()) };
    stream.until("retry").await;
    let enqueue = async |token: &str| {
        let (status, answer) =
            world.answer(world.request("POST", "/api/env/closeAll").bearer_auth(token)).await;
        assert_eq!(status, 200);
        answer["data"]["jobId"].as_str().unwrap().to_owned()
    };
    let foreign = enqueue(&globex).await;
    world.scheduler.wait(laneway_core::JobId::parse(&foreign).unwrap()).await.unwrap();
    let own = enqueue(&acme).await;
    stream.until("\"message\":\"succeeded\"").await;
    assert!(stream.received.contains(&own) && !stream.received.contains(&foreign), "{}", stream.received);
}

#[tokio::test]
async fn streams_end_when_the_agent_stops() {
    let world = World::new("lanes.browsers.paused = true").await;
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    let mut stream = Stream::open(&world, &format!("/api/logs/stream?job_id={id}")).await;
    stream.until("queued").await;
    world.drain(std::time::Duration::ZERO).await;
    stream.until("event: close\ndata: {\"reason\":\"agent_stopping\"}").await;
    stream.ends().await;
}

#[tokio::test]
async fn bad_parameters_have_their_codes() {
    let world = World::new("").await;
    for (query, status, code) in [
        ("level=loud", 400, -1604),
        ("tail=-1", 400, -1603),
        ("tail=100000", 400, -1603),
        ("tail=many", 400, -1602),
        ("job_id=nothing", 404, -1401),
    ] {
        let (found, answer) = world.get(&format!("/api/logs/stream?{query}")).await;
        assert_eq!((found, &answer["code"]), (status, &json!(code)), "{query}: {answer}");
    }
}
