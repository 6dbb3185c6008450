//! The scheduler's end of a connection, driven by a test.
//!
//! Every frame of the worker is checked against the published schemas before a test sees it.

use futures_util::{SinkExt, StreamExt};
use laneway_client::worker::{Worker, WorkerBuilder};
use laneway_wire::frame::{Frame, MessageType, check_schema};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// A port where workers connect.
pub struct Port {
    listener: TcpListener,
}

impl Port {
    pub async fn open() -> Port {
        Port { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub fn url(&self) -> String {
        format!("ws://{}/v1/workers/connect", self.listener.local_addr().unwrap())
    }

    /// A worker for this port, with nothing to do yet.
    pub fn worker(&self) -> WorkerBuilder {
        Worker::builder(&self.url(), "w-1").tenant("acme").seed(7)
    }

    /// The next connection.
    pub async fn accept(&self) -> Peer<TcpStream> {
        let (stream, _) = self.listener.accept().await.unwrap();
        Peer::new(stream).await
    }

    /// The next connection, before any WebSocket.
    pub async fn accept_raw(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }
}

/// The scheduler's end of one connection.
pub struct Peer<S> {
    socket: WebSocketStream<S>,
    frames: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub async fn new(stream: S) -> Peer<S> {
        Peer { socket: tokio_tungstenite::accept_async(stream).await.unwrap(), frames: 0 }
    }

    /// The next frame; `None` when the connection is closed.
    pub async fn try_receive(&mut self) -> Option<Frame> {
        loop {
            match self.socket.next().await? {
                Ok(Message::Text(text)) => {
                    if let Err(error) = check_schema(&text) {
                        panic!("the worker sent a frame that violates its schema: {error}\n{text}");
                    }
                    return Some(Frame::parse(text.as_bytes()).unwrap());
                }
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next frame of this type. Heartbeats are acknowledged, other frames are skipped.
    pub async fn receive(&mut self, kind: MessageType) -> Frame {
        loop {
            let frame =
                self.try_receive().await.unwrap_or_else(|| panic!("the connection ended before a {kind:?}"));
            if frame.message.kind() == kind {
                return frame;
            }
            if frame.message.kind() == MessageType::Heartbeat {
                self.ack(&frame).await;
            }
        }
    }

    /// Sends a frame, with `corr` and `seq` if given.
    pub async fn send(&mut self, kind: &str, payload: Value, corr: Option<&str>, seq: Option<u64>) -> String {
        self.frames += 1;
        let id = format!("s-{}", self.frames);
        let frame = envelope(&id, kind, payload, corr, seq);
        self.send_raw(&frame.to_string()).await;
        id
    }

    pub async fn send_raw(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    pub async fn ack(&mut self, frame: &Frame) {
        let payload = json!({"ok": true, "for": frame.id.as_str(), "info": "lease_ms=60000"});
        // A worker that has left needs no answer.
        let answer = envelope(&format!("a-{}", frame.id), "ack", payload, None, None);
        let _ = self.socket.send(Message::text(answer.to_string())).await;
    }

    /// Handshake and registration. Returns the two frames.
    pub async fn greet(&mut self) -> (Frame, Frame) {
        let handshake = self.receive(MessageType::Handshake).await;
        self.ack(&handshake).await;
        let register = self.receive(MessageType::Register).await;
        self.ack(&register).await;
        (handshake, register)
    }

    pub async fn dispatch(&mut self, task: &str, seq: u64, kind: &str, constraints: Value) -> String {
        let payload = dispatch(task, kind, constraints);
        self.send("cmd.dispatch", payload, Some(task), Some(seq)).await
    }
}

/// A frame of the scheduler.
pub fn envelope(id: &str, kind: &str, payload: Value, corr: Option<&str>, seq: Option<u64>) -> Value {
    json!({"type": kind, "id": id, "ts": "2030-01-01T00:00:00Z", "tenant": "acme", "corr": corr, "seq": seq,
        "sender": {"role": "scheduler", "id": "scheduler-control"}, "ack": {"request": kind != "ack"},
        "payload": payload})
}

/// The payload of a dispatch.
pub fn dispatch(task: &str, kind: &str, constraints: Value) -> Value {
    json!({"run_id": "r1", "task_id": task, "node_id": "n1", "node_type": kind, "package_name": "p",
        "package_version": "1", "parameters": {"task": task}, "constraints": constraints})
}
