//! The WebSocket: commands out, answers and events in.
//!
//! One task owns the socket. Events go to the [`Hub`] inside that task, so that none can be lost in a queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::DevToolsError;
use super::hub::Hub;

/// Commands that wait to be sent.
const QUEUE_MAX: usize = 256;
/// The largest message of the browser, in bytes: a large screenshot in base64. A larger one ends the connection.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Where the answer to a command goes.
type Answer = oneshot::Sender<Result<Value, DevToolsError>>;

/// A handle to the connection. The connection ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Connection {
    commands: mpsc::Sender<Outgoing>,
}

/// A command on its way to the browser.
pub(crate) struct Outgoing {
    /// The session of a tab, or the browser itself.
    pub(crate) session: Option<Arc<str>>,
    /// The command.
    pub(crate) method: &'static str,
    /// Its parameters.
    pub(crate) params: Value,
    answer: Option<Answer>,
}

impl Outgoing {
    /// A command whose answer is of no interest.
    pub(crate) fn new(session: Option<&Arc<str>>, method: &'static str, params: Value) -> Outgoing {
        Outgoing { session: session.cloned(), method, params, answer: None }
    }
}

impl Connection {
    /// Connects to the endpoint `ws://127.0.0.1:port/path`.
    pub(crate) async fn open(port: u16, url: &str, hub: Arc<Hub>) -> Result<Connection, DevToolsError> {
        let failed = |reason: String| DevToolsError::Connect { url: url.to_owned(), reason };
        let stream =
            TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| failed(error.to_string()))?;
        // Commands are small and wait for one another.
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let (socket, _) = tokio_tungstenite::client_async_with_config(url, stream, Some(config))
            .await
            .map_err(|error| failed(error.to_string()))?;
        let (commands, waiting) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(Exchange { socket, waiting, hub, last: 0, open: HashMap::new() }.run());
        Ok(Connection { commands })
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn call(
        &self,
        session: Option<&Arc<str>>,
        method: &'static str,
        params: Value,
    ) -> Result<Value, DevToolsError> {
        let (answer, answered) = oneshot::channel();
        let command = Outgoing { session: session.cloned(), method, params, answer: Some(answer) };
        self.commands.send(command).await.map_err(|_| DevToolsError::Closed)?;
        answered.await.unwrap_or(Err(DevToolsError::Closed))
    }

    /// As [`Connection::call`], with a time limit.
    pub(crate) async fn call_within(
        &self,
        limit: Duration,
        session: Option<&Arc<str>>,
        method: &'static str,
        params: Value,
    ) -> Result<Value, DevToolsError> {
        let silent =
            |_| DevToolsError::Silent { method: method.to_owned(), limit_ms: limit.as_millis() as u64 };
        tokio::time::timeout(limit, self.call(session, method, params)).await.map_err(silent)?
    }

    /// Sends a command if the queue has space for it. Its answer is of no interest.
    pub(crate) fn post(&self, command: Outgoing) {
        if self.commands.try_send(command).is_err() {
            tracing::debug!("a DevTools command was dropped: the connection is closed or its queue is full");
        }
    }
}

/// The task that owns the socket.
struct Exchange {
    socket: WebSocketStream<TcpStream>,
    waiting: mpsc::Receiver<Outgoing>,
    hub: Arc<Hub>,
    last: u64,
    /// Commands without an answer yet. A caller that gave up leaves its entry until the browser answers.
    open: HashMap<u64, (&'static str, Answer)>,
}

impl Exchange {
    async fn run(mut self) {
        let reason = self.exchange().await;
        tracing::debug!(reason, "the DevTools connection has ended");
        self.hub.closed();
        // Dropping `open` answers every command with `Closed`.
    }

    async fn exchange(&mut self) -> String {
        loop {
            tokio::select! {
                command = self.waiting.recv() => {
                    let Some(command) = command else { return "every handle was dropped".to_owned() };
                    if let Err(error) = self.send(command).await {
                        return error.to_string();
                    }
                }
                message = self.socket.next() => match message {
                    Some(Ok(Message::Text(text))) => {
                        for command in self.receive(&text) {
                            if let Err(error) = self.send(command).await {
                                return error.to_string();
                            }
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return error.to_string(),
                    None => return "the browser closed it".to_owned(),
                },
            }
        }
    }

    async fn send(&mut self, command: Outgoing) -> Result<(), tokio_tungstenite::tungstenite::Error> {
        let Outgoing { session, method, params, answer } = command;
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = Value::from(&*session);
        }
        if let Some(answer) = answer {
            self.open.retain(|_, (_, waiting)| !waiting.is_closed());
            self.open.insert(self.last, (method, answer));
        }
        self.socket.send(Message::text(message.to_string())).await
    }

    /// Takes a message apart. Returns the commands with which the hub reacts to an event.
    fn receive(&mut self, text: &str) -> Vec<Outgoing> {
        let Ok(mut message) = serde_json::from_str::<Value>(text) else {
            tracing::debug!("a DevTools message is not JSON");
            return Vec::new();
        };
        if let Some(id) = message["id"].as_u64() {
            if let Some((method, answer)) = self.open.remove(&id) {
                let _ = answer.send(result_of(method, &mut message));
            } else if let Some(error) = message.get("error") {
                tracing::debug!(%error, "a DevTools command without a waiting caller failed");
            }
            return Vec::new();
        }
        let session = message["sessionId"].as_str().map(Arc::from);
        let params = message["params"].take();
        match message["method"].as_str() {
            Some(method) => self.hub.event(session.as_ref(), method, params),
            None => Vec::new(),
        }
    }
}

fn result_of(method: &str, message: &mut Value) -> Result<Value, DevToolsError> {
    match message.get("error") {
        Some(error) => Err(DevToolsError::Rejected {
            method: method.to_owned(),
            message: error["message"].as_str().unwrap_or("no reason given").to_owned(),
        }),
        None => Ok(message["result"].take()),
    }
}
