//! A page that receives the events of its session, and workflows for it to start.

use std::collections::VecDeque;
use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::world::{PATIENCE, World};

/// A stream of events that a test reads.
pub struct Page {
    bytes: Pin<Box<dyn Stream<Item = Vec<u8>> + Send>>,
    text: String,
    ready: VecDeque<Value>,
}

impl Page {
    /// Opens a stream, with a replay of recent events.
    pub async fn open(world: &World, session: &str) -> Page {
        Page::open_after(world, session, None).await
    }

    /// Resumes after an id.
    pub async fn open_after(world: &World, session: &str, last: Option<&str>) -> Page {
        Page::open_as(world, None, session, last).await
    }

    /// The same with a token.
    pub async fn open_as(world: &World, token: Option<&str>, session: &str, last: Option<&str>) -> Page {
        let mut request = world.request("GET", &format!("/api/v1/events?clientSessionId={session}"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let bytes = response.bytes_stream().map(|chunk| chunk.unwrap_or_default().to_vec());
        Page { bytes: Box::pin(bytes), text: String::new(), ready: VecDeque::new() }
    }

    /// The next event: its envelope.
    pub async fn next(&mut self) -> Value {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            let chunk = timeout(PATIENCE, self.bytes.next()).await.expect("no event comes");
            self.text.push_str(&String::from_utf8(chunk.expect("the stream ended")).unwrap());
            while let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.text = rest;
                self.ready.extend(read(&frame));
            }
        }
    }

    /// The next event of this type; others are skipped.
    pub async fn receive(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().await;
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// All events up to and including the one with this state of the run.
    pub async fn until(&mut self, status: &str) -> Vec<Value> {
        let mut received = Vec::new();
        loop {
            let event = self.next().await;
            let is_last = event["type"] == "run.status" && event["data"]["status"] == status;
            received.push(event);
            if is_last {
                return received;
            }
        }
    }

    /// True when the server ends the stream.
    pub async fn is_over(&mut self) -> bool {
        while timeout(PATIENCE, self.bytes.next()).await.expect("the stream goes on").is_some() {}
        true
    }
}

/// A parsed event, whose frame and envelope must have the same id and type. `None` for comments.
fn read(frame: &str) -> Option<Value> {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
    let envelope: Value = serde_json::from_str(field("data: ")?).unwrap();
    assert_eq!(field("id: "), envelope["id"].as_str());
    assert_eq!(field("event: "), envelope["type"].as_str());
    assert_eq!((&envelope["version"], &envelope["data"]["kind"]), (&json!("v1"), &envelope["type"]));
    Some(envelope)
}

/// A node with a port for everything: `in` is its parameter `in`, `out` is its result `out`.
pub fn node(id: &str) -> Value {
    let port = |key: &str, path: &str| json!([{"key": key, "label": key, "binding": {"path": path, "mode": "write"}}]);
    json!({"id": id, "type": "test.step", "package": {"name": "test", "version": "1.0"}, "label": id,
        "position": {"x": 0, "y": 0}, "status": "published", "category": "Tests", "parameters": {"own": id},
        "ui": {"inputPorts": port("in", "/parameters/in"), "outputPorts": port("out", "/results/out")}})
}

/// An edge from the port `out` to the port `in`.
pub fn edge(from: &str, to: &str) -> Value {
    edge_at(from, "out", to, "in")
}

/// An edge between two ports.
pub fn edge_at(from: &str, out: &str, to: &str, into: &str) -> Value {
    json!({"id": format!("{from}-{to}"), "source": {"node": from, "port": out}, "target": {"node": to, "port": into}})
}

/// A workflow.
pub fn workflow(nodes: &[Value], edges: &[Value]) -> Value {
    json!({"id": "wf", "schemaVersion": "2025-10", "metadata": {"name": "a test"}, "nodes": nodes, "edges": edges})
}

impl World {
    /// Starts a run that must be accepted, and returns its id.
    pub async fn start_run(&self, session: &str, workflow: &Value) -> String {
        let (status, answer) =
            self.ask("POST", "/api/v1/runs", &json!({"workflow": workflow, "clientId": session})).await;
        assert_eq!(status, 202, "{answer}");
        answer["runId"].as_str().unwrap().to_owned()
    }

    /// Shows a run.
    pub async fn run(&self, id: &str) -> Value {
        let (status, run) = self.ask("GET", &format!("/api/v1/runs/{id}"), &Value::Null).await;
        assert_eq!(status, 200, "{run}");
        run
    }
}

/// The nodes of a run, by id, with their states.
pub fn statuses(run: &Value) -> Vec<(&str, &str)> {
    let nodes = run["nodes"].as_array().unwrap();
    nodes.iter().map(|node| (node["nodeId"].as_str().unwrap(), node["status"].as_str().unwrap())).collect()
}
