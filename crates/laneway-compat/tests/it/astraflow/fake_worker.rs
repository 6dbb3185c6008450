//! A worker's end of a connection, driven by a test.

use std::collections::VecDeque;
use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::world::PATIENCE;

/// The worker's end of a connection.
pub struct FakeWorker {
    socket: WebSocketStream<TcpStream>,
    worker: String,
    tenant: String,
    frames: u64,
    /// Frames that came while another one was awaited.
    passed: VecDeque<Value>,
}

/// A task that the worker received.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its frame.
    pub frame: Value,
    /// Its payload.
    pub payload: Value,
}

impl Task {
    /// The node of the task.
    pub fn node(&self) -> &str {
        self.payload["node_id"].as_str().unwrap()
    }
}

impl FakeWorker {
    /// A worker with one package, and `slots` tasks at once.
    pub async fn registered(
        address: SocketAddr,
        worker: &str,
        package: &str,
        version: &str,
        slots: u32,
    ) -> FakeWorker {
        let package = json!({"name": package, "version": version, "status": "installed"});
        FakeWorker::of_tenant(address, worker, "default", None, &package, slots).await
    }

    /// The same for a tenant, with one of its tokens.
    pub async fn of_tenant(
        address: SocketAddr,
        worker: &str,
        tenant: &str,
        token: Option<&str>,
        package: &Value,
        slots: u32,
    ) -> FakeWorker {
        let stream = TcpStream::connect(address).await.unwrap();
        let (socket, _) =
            tokio_tungstenite::client_async(format!("ws://{address}/ws/worker"), stream).await.unwrap();
        let (worker_id, tenant) = (worker.to_owned(), tenant.to_owned());
        let mut fake = FakeWorker { socket, worker: worker_id, tenant, frames: 0, passed: VecDeque::new() };
        let shake = json!({"protocol": 1, "auth": {"mode": "token", "token": token},
            "worker": {"id": worker, "version": "1", "hostname": "here"}});
        fake.ask("handshake", shake, None).await;
        let capabilities =
            json!({"concurrency": {"max_parallel": slots}, "runtimes": ["test"], "features": []});
        fake.ask("register", json!({"capabilities": capabilities, "packages": [package]}), None).await;
        fake
    }

    /// Receives and acknowledges the next task.
    pub async fn take(&mut self) -> Task {
        let frame = self.receive("cmd.dispatch").await;
        let task = Task { payload: frame["payload"].clone(), frame };
        let id = &task.frame["id"];
        let mut ack = self.frame("ack", json!({"ok": true, "for": id}), None);
        ack["ack"] = json!({"for": id});
        self.send(&ack).await;
        task
    }

    /// Receives the next task and reports success.
    pub async fn finish_next(&mut self, result: Value) -> Task {
        let task = self.take().await;
        self.end(&task, "SUCCEEDED", result).await;
        task
    }

    /// Reports the end of a task, which must be acknowledged.
    pub async fn end(&mut self, task: &Task, status: &str, result: Value) -> Value {
        self.bring(task, json!({"status": status, "result": result})).await
    }

    /// Sends a result with the fields of `more`.
    pub async fn bring(&mut self, task: &Task, more: Value) -> Value {
        let result = with_ids(task, more);
        self.ask("result", result, Some(task)).await
    }

    /// Sends feedback about a task.
    pub async fn send_feedback(&mut self, task: &Task, feedback: Value) -> Value {
        let feedback = with_ids(task, feedback);
        self.ask("feedback", feedback, Some(task)).await
    }

    /// Calls the next element of a chain; `brings` are further fields of the request.
    pub async fn next(&mut self, task: &Task, request: &str, brings: &Value) {
        let payload = &task.payload;
        let mut asked = json!({"requestId": request, "runId": payload["run_id"], "nodeId": payload["host_node_id"],
            "middlewareId": payload["node_id"], "chainIndex": payload["chain_index"]});
        asked.as_object_mut().unwrap().extend(brings.as_object().unwrap().clone());
        self.ask("middleware.next_request", asked, Some(task)).await;
    }

    /// Sends a heartbeat.
    pub async fn beat(&mut self) {
        let beat = json!({"healthy": true, "metrics": {"inflight": 0}});
        self.ask("heartbeat", beat, None).await;
    }

    /// Sends a frame, and returns the server's acknowledgement or error.
    pub async fn ask(&mut self, kind: &str, payload: Value, task: Option<&Task>) -> Value {
        let frame = self.frame(kind, payload, task);
        self.send(&frame).await;
        loop {
            let received = self.receive_any().await;
            let about = &received["payload"]["for"];
            if (received["type"] == "ack" && *about == frame["id"]) || received["type"] == "error" {
                return received;
            }
            self.passed.push_back(received);
        }
    }

    /// The next frame of this type.
    pub async fn receive(&mut self, kind: &str) -> Value {
        if let Some(at) = self.passed.iter().position(|frame| frame["type"] == kind) {
            return self.passed.remove(at).unwrap();
        }
        loop {
            let frame = self.receive_any().await;
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    async fn receive_any(&mut self) -> Value {
        loop {
            let received = timeout(PATIENCE, self.socket.next()).await.expect("no frame comes");
            if let Message::Text(text) = received.expect("the connection ended").unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    fn frame(&mut self, kind: &str, payload: Value, task: Option<&Task>) -> Value {
        self.frames += 1;
        json!({"type": kind, "id": format!("{kind}-{}", self.frames), "ts": "2030-01-01T00:00:00Z",
            "tenant": self.tenant, "sender": {"role": "worker", "id": self.worker}, "ack": {"request": true},
            "corr": task.map(|task| &task.payload["task_id"]), "seq": task.map(|task| &task.frame["seq"]),
            "payload": payload})
    }

    async fn send(&mut self, frame: &Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }
}

fn with_ids(task: &Task, mut payload: Value) -> Value {
    payload["run_id"] = task.payload["run_id"].clone();
    payload["task_id"] = task.payload["task_id"].clone();
    payload
}
