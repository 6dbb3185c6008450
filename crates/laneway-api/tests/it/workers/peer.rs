//! The worker's end of a connection, driven by a test.
//!
//! Every frame of the server is checked against the published schemas before a test sees it.

use futures_util::{SinkExt, StreamExt};
use laneway_wire::frame::{Dispatch, Frame, Message as Received, MessageType, check_schema};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::world::World;

/// The worker's end of one connection.
pub struct Peer<S = TcpStream> {
    socket: WebSocketStream<S>,
    frames: u64,
    worker: String,
    tenant: String,
    /// The boot id and the tasks of its process.
    boot_id: Option<String>,
    tasks: Vec<Value>,
    /// Every frame of both sides, in the order of this side.
    pub written: Vec<Value>,
}

impl Peer {
    /// A connection without a frame yet.
    pub async fn open(world: &World, worker: &str) -> Peer {
        Peer::open_at(world, "/v1/workers/connect", worker).await.unwrap()
    }

    /// The same at another path. The error is the HTTP status.
    pub async fn open_at(world: &World, path: &str, worker: &str) -> Result<Peer, u16> {
        let url = format!("ws://{}{path}", world.address);
        let stream = TcpStream::connect(world.address).await.unwrap();
        match tokio_tungstenite::client_async(url, stream).await {
            Ok((socket, _)) => Ok(Peer::over(socket, worker)),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// The same with a token in the request. The error is the HTTP status.
    pub async fn open_with(world: &World, worker: &str, token: &str) -> Result<Peer, u16> {
        let mut request = format!("ws://{}/v1/workers/connect", world.address).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let stream = TcpStream::connect(world.address).await.unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Peer::over(socket, worker)),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A registered worker that runs `kinds`, `max_parallel` at once.
    pub async fn registered(world: &World, worker: &str, kinds: &[&str], max_parallel: u32) -> Peer {
        let mut peer = Peer::open(world, worker).await;
        peer.greet(kinds, max_parallel).await;
        peer
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// An open connection.
    pub fn over(socket: WebSocketStream<S>, worker: &str) -> Peer<S> {
        let (worker, tenant) = (worker.to_owned(), "default".to_owned());
        let boot_id = Some(format!("boot-{worker}"));
        Peer { socket, frames: 0, worker, tenant, boot_id, tasks: Vec::new(), written: Vec::new() }
    }

    /// Handshake and registration.
    pub async fn greet(&mut self, kinds: &[&str], max_parallel: u32) {
        self.shake_hands(None).await;
        self.offer(kinds, max_parallel).await;
    }

    /// Registers.
    pub async fn offer(&mut self, kinds: &[&str], max_parallel: u32) {
        let features: Vec<String> = kinds.iter().map(|kind| format!("kind:{kind}")).collect();
        let capabilities = json!({"concurrency": {"max_parallel": max_parallel}, "runtimes": ["test"],
            "features": features});
        self.register(json!({"capabilities": capabilities, "packages": []})).await;
    }

    /// The registration with the process.
    fn as_process(&self, mut offer: Value) -> Value {
        if let Some(boot_id) = &self.boot_id {
            offer["boot_id"] = json!(boot_id);
        }
        if !self.tasks.is_empty() {
            offer["tasks"] = json!(self.tasks);
        }
        offer
    }

    /// Another process under the same name. `None`: an older worker without a boot id.
    pub fn process(mut self, boot_id: Option<&str>) -> Peer<S> {
        self.boot_id = boot_id.map(str::to_owned);
        self
    }

    /// A process that still has this task.
    pub fn having(mut self, job: &str, seq: u64) -> Peer<S> {
        self.tasks.push(json!({"task_id": job, "seq": seq}));
        self
    }

    /// Registers, and returns why that was rejected.
    pub async fn denied(&mut self, kinds: &[&str]) -> String {
        self.send_offer(kinds).await;
        loop {
            match self.try_receive().await.expect("it gets a reason").message {
                Received::Error(error) => {
                    assert_eq!(error.code.as_str(), "E.SESSION.DENIED");
                    return error.message;
                }
                Received::Ack(ack) => {
                    assert!(!ack.ok || !ack.r#for.starts_with("register"), "it is registered")
                }
                _ => {}
            }
        }
    }

    /// Registers, and returns whether that was accepted.
    pub async fn may_register(&mut self, kinds: &[&str]) -> bool {
        let id = self.send_offer(kinds).await;
        loop {
            match self.try_receive().await.map(|frame| frame.message) {
                Some(Received::Ack(ack)) if ack.r#for == *id => return ack.ok,
                Some(Received::Error(_)) | None => return false,
                Some(_) => {}
            }
        }
    }

    async fn send_offer(&mut self, kinds: &[&str]) -> String {
        let features: Vec<String> = kinds.iter().map(|kind| format!("kind:{kind}")).collect();
        let capabilities =
            json!({"concurrency": {"max_parallel": 1}, "runtimes": ["test"], "features": features});
        let offer = self.as_process(json!({"capabilities": capabilities, "packages": []}));
        self.send("register", offer, None).await
    }

    /// Registers, and receives the lease.
    pub async fn register(&mut self, offer: Value) {
        let id = self.send("register", self.as_process(offer), None).await;
        let ack = self.receive_ack(&id).await;
        assert!(ack.is_some_and(|info| info.starts_with("lease_ms=")), "the acknowledgement has the lease");
    }

    /// The handshake, with a token or without.
    pub async fn shake_hands(&mut self, token: Option<&str>) {
        let id = self.send("handshake", self.handshake(token), None).await;
        self.receive_ack(&id).await;
    }

    /// The payload of a handshake.
    pub fn handshake(&self, token: Option<&str>) -> Value {
        json!({"protocol": 1, "auth": {"mode": "token", "token": token},
            "worker": {"id": self.worker, "version": "1", "hostname": "here"}})
    }

    /// Uses another tenant from now on.
    pub fn tenant(mut self, tenant: &str) -> Peer<S> {
        tenant.clone_into(&mut self.tenant);
        self
    }

    /// A frame of this worker.
    pub fn frame(&mut self, kind: &str, payload: Value, task: Option<(&str, u64)>) -> Value {
        self.frames += 1;
        json!({"type": kind, "id": format!("{kind}-{}", self.frames), "ts": "2030-01-01T00:00:00Z",
            "tenant": self.tenant, "sender": {"role": "worker", "id": self.worker},
            "corr": task.map(|(job, _)| job), "seq": task.map(|(_, seq)| seq), "ack": {"request": true},
            "payload": payload})
    }

    /// Sends a frame; `task` is a job and the number of its dispatch. Returns the id of the frame.
    pub async fn send(&mut self, kind: &str, payload: Value, task: Option<(&str, u64)>) -> String {
        let frame = self.frame(kind, payload, task);
        self.send_raw(&frame.to_string()).await;
        frame["id"].as_str().unwrap().to_owned()
    }

    pub async fn send_raw(&mut self, text: &str) {
        self.written.extend(serde_json::from_str::<Value>(text));
        self.socket.send(Message::text(text)).await.unwrap();
    }

    pub async fn send_binary(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).await.unwrap();
    }

    /// Sends a heartbeat and receives its acknowledgement.
    pub async fn beat(&mut self, metrics: Value) {
        let id = self.send("heartbeat", json!({"healthy": true, "metrics": metrics}), None).await;
        self.receive_ack(&id).await;
    }

    /// Acknowledges a dispatch.
    pub async fn take(&mut self, dispatch: &Frame) {
        let id = dispatch.id.as_str();
        let mut frame = self.frame("ack", json!({"ok": true, "for": id}), None);
        frame["ack"] = json!({"for": id});
        (frame["corr"], frame["seq"]) = (json!(dispatch.corr), json!(dispatch.seq));
        self.send_raw(&frame.to_string()).await;
    }

    /// Sends a result. Returns the id of the frame.
    pub async fn bring(&mut self, job: &str, seq: u64, value: Value) -> String {
        let result = json!({"run_id": job, "task_id": job, "status": "SUCCEEDED", "result": value});
        self.send("result", result, Some((job, seq))).await
    }

    /// The next frame; `None` when the connection is closed.
    pub async fn try_receive(&mut self) -> Option<Frame> {
        loop {
            match self.socket.next().await? {
                Ok(Message::Text(text)) => {
                    if let Err(error) = check_schema(&text) {
                        panic!("the server sent a frame that violates its schema: {error}\n{text}");
                    }
                    self.written.push(serde_json::from_str(&text).unwrap());
                    return Some(Frame::parse(text.as_bytes()).unwrap());
                }
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next frame of this type. Other frames are skipped.
    pub async fn receive(&mut self, kind: MessageType) -> Frame {
        loop {
            let frame =
                self.try_receive().await.unwrap_or_else(|| panic!("the connection ended before a {kind:?}"));
            if frame.message.kind() == kind {
                return frame;
            }
        }
    }

    /// The next dispatch: its frame, its job and its number.
    pub async fn receive_dispatch(&mut self) -> (Frame, String, u64) {
        let frame = self.receive(MessageType::Dispatch).await;
        let (job, seq) = (frame.corr.as_ref().unwrap().to_string(), frame.seq.unwrap());
        (frame, job, seq)
    }

    /// The `info` of the acknowledgement of this frame. Panics on an error about it.
    pub async fn receive_ack(&mut self, id: &str) -> Option<String> {
        let mut passed = Vec::new();
        loop {
            let Some(frame) = self.try_receive().await else {
                panic!("the connection ended before an acknowledgement of {id}; earlier frames: {passed:?}")
            };
            match &frame.message {
                Received::Ack(ack) if ack.r#for == *id => return ack.info.clone(),
                Received::Error(error) => panic!("{id}: {error:?} about {:?}", frame.corr),
                _ => passed.push(frame),
            }
        }
    }

    /// The code, `corr` and `seq` of the next error.
    pub async fn receive_error(&mut self) -> (String, Option<String>, Option<u64>) {
        let frame = self.receive(MessageType::Error).await;
        let Received::Error(error) = &frame.message else { unreachable!() };
        (error.code.to_string(), frame.corr.as_ref().map(ToString::to_string), frame.seq)
    }

    /// True when the server closes the connection.
    pub async fn is_closed(&mut self) -> bool {
        while self.try_receive().await.is_some() {}
        true
    }
}

/// The payload of a dispatch.
pub fn dispatch(frame: &Frame) -> &Dispatch {
    match &frame.message {
        Received::Dispatch(dispatch) => dispatch,
        other => panic!("{other:?} is not a dispatch"),
    }
}
