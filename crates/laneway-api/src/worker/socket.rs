//! The socket of a worker: drives a session, from the upgrade to the close.
//!
//! Each socket has one task, small buffers, and bounded state: frames of the worker wait while the scheduler is busy,
//! commands to it are bounded by its tasks, and a worker that reads nothing for [`WRITE_TIMEOUT`] is disconnected.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt};
use laneway_core::Span;
use laneway_runtime::metrics::{ConnectionMetrics, Retry};
use laneway_runtime::{Caller, Part, PartOrder, PartTrouble, ToWorker, WorkerTask, websocket};
use laneway_wire::frame::{
    Drain, ErrorCode, FRAME_LEN_MAX, Install, ResourceRead, Text, Timestamp, Uninstall,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::authenticate::WorkerAuthenticator;
use super::connection_limits::{ConnectionSlot, Evicted, LimitReached};
use super::messages::{Answer, Ticket};
use super::scheduler_port::{Pending, SchedulerPort};
use super::session::{Action, Closing, Now, Session};
use super::task::dispatch_of;
use crate::api::Api;
use crate::gate;
use crate::serve::Peer;

/// The interval of heartbeats on `/v1/workers/connect`.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The interval of heartbeats on `/ws/worker`: older workers send one every 30 s, with up to 5 s of jitter.
const HEARTBEAT_V1: Duration = Duration::from_secs(35);
/// The longest time of a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// A worker must send a frame within this time when another process connects under its name.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest message. It is above the limit of frames, so that a frame that is too long gets an error; a longer
/// message ends the connection.
const MESSAGE_LEN_MAX: usize = FRAME_LEN_MAX + (64 << 10);
/// The buffers of a socket, in bytes: small, because there are many sockets, and large enough for a dozen frames.
const READ_BUFFER: usize = 4 << 10;
const WRITE_BUFFER: usize = 4 << 10;
/// How many messages are processed before the replies are sent.
const TAKEN_AT_ONCE: usize = 64;
/// Longer than any socket lives, and within the range of every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Opens the socket of a worker.
#[utoipa::path(get, path = "/v1/workers/connect", operation_id = "connect_worker", tag = "workers", responses((status = 101, description = "A WebSocket of the worker protocol; the worker says who it is in its first frame"), (status = 503, description = "Too many sockets are open")))]
pub async fn connect_worker(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    open(api, peer, headers, upgrade, HEARTBEAT)
}

/// Opens the socket of a worker with slow heartbeats, at the path that older workers use.
#[utoipa::path(get, path = "/ws/worker", operation_id = "connect_v1_worker", tag = "workers", responses((status = 101, description = "A WebSocket of the worker protocol, as above, with a heartbeat every 35 s"), (status = 503, description = "Too many sockets are open")))]
pub async fn connect_v1_worker(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    open(api, peer, headers, upgrade, HEARTBEAT_V1)
}

fn open(
    api: Api,
    peer: Peer,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
    heartbeat: Duration,
) -> Response {
    let arrival = match gate::arrival(&api, &headers, &peer) {
        Ok(arrival) => arrival,
        Err(error) => return error.into_response(),
    };
    let slot =
        match api.worker_connections.enter(&arrival, api.config.current().workers.sockets_per_tenant_max) {
            Ok(slot) => slot,
            Err(LimitReached::Sockets) => {
                return (StatusCode::SERVICE_UNAVAILABLE, "too many sockets are open\n").into_response();
            }
            Err(LimitReached::Tenant | LimitReached::Share) => {
                let why = "too many sockets of the tenant are open\n";
                return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
            }
        };
    let request = api.next_request();
    let upgrade = upgrade
        .max_message_size(MESSAGE_LEN_MAX)
        .max_frame_size(MESSAGE_LEN_MAX)
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER);
    upgrade.on_upgrade(move |socket| async move {
        let authenticator = WorkerAuthenticator::new(api.clone(), headers, peer, request);
        Connection::new(socket, api, authenticator, slot, heartbeat).run().await;
    })
}

struct Connection {
    socket: WebSocket,
    api: Api,
    session: Session,
    heartbeat: Duration,
    began: Instant,
    /// Set until the worker has authenticated.
    authenticator: Option<Box<WorkerAuthenticator>>,
    slot: ConnectionSlot,
    member: Option<Box<Authenticated>>,
    /// When the permission of the worker ends.
    ends_at: Instant,
    /// Another process connects under the worker's name: until when a frame must come, and whether a probe was sent.
    probe: Option<(Instant, bool)>,
    questions: FuturesUnordered<Asked>,
    /// The readers of parts, by the number of the request.
    readers: BTreeMap<u64, oneshot::Sender<Result<Part, PartTrouble>>>,
    /// A buffer for actions; empty between uses.
    out: Vec<Action>,
}

/// The state of an authenticated connection.
struct Authenticated {
    port: SchedulerPort,
    caller: Caller,
    metrics: ConnectionMetrics,
}

type Asked = std::pin::Pin<Box<dyn Future<Output = (Ticket, Answer)> + Send>>;

/// Why a connection ends.
enum Disconnect {
    /// The worker is gone; no close frame is sent.
    Gone,
    /// The server closes the connection.
    Closed(Closing),
}

impl Connection {
    fn new(
        socket: WebSocket,
        api: Api,
        authenticator: WorkerAuthenticator,
        slot: ConnectionSlot,
        heartbeat: Duration,
    ) -> Connection {
        let began = Instant::now();
        let number = api.next_socket();
        let now = Now { mono: Duration::ZERO, wall: Timestamp::now() };
        Connection {
            socket,
            api,
            session: Session::new(now, number, heartbeat, fastrand::Rng::new()),
            heartbeat,
            began,
            authenticator: Some(Box::new(authenticator)),
            slot,
            member: None,
            ends_at: began + FAR,
            probe: None,
            questions: FuturesUnordered::new(),
            readers: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    async fn run(mut self) {
        let disconnect = match self.serve().await {
            Ok(()) => Disconnect::Gone,
            Err(disconnect) => disconnect,
        };
        if let Disconnect::Closed(Closing { code, reason }) = disconnect {
            websocket::close(&mut self.socket, code, reason).await;
        }
        let reason = if let Disconnect::Closed(closing) = disconnect { closing.reason } else { "gone" };
        self.leave(reason).await;
    }

    /// Reports to the engine that the connection has ended.
    async fn leave(&mut self, reason: &str) {
        let Some(authenticated) = self.member.take() else { return };
        let Authenticated { port, caller, metrics } = *authenticated;
        tracing::info!(
            tenant = caller.tenant.as_str(),
            "sender.id" = self.session.worker().map(|worker| worker.as_str()),
            reason,
            "a worker's connection has ended"
        );
        // The engine still processes open requests, but the worker gets no reply.
        drop((std::mem::take(&mut self.questions), std::mem::take(&mut self.readers), metrics));
        port.close().await;
    }

    /// Runs until the worker closes (`Ok`), or something else ends the connection.
    async fn serve(&mut self) -> Result<(), Disconnect> {
        let mut tokens = self.api.scheduler.token_changes();
        let closing = self.api.closing.clone();
        loop {
            let wake = self.wake();
            tokio::select! {
                biased;
                () = closing.cancelled() => {
                    return Err(Disconnect::Closed(Closing { code: close_code::AWAY, reason: "the server stops" }));
                }
                // A worker that has got a task since then keeps its socket until the task ends.
                evicted = self.slot.evicted(), if !self.session.has_tasks() => {
                    return Err(Disconnect::Closed(self.make_way(evicted).await));
                }
                changed = tokens.changed() => {
                    changed.map_err(|_| Disconnect::Gone)?;
                    self.check_right();
                }
                command = next_command(&mut self.member) => self.handle_command(command)?,
                Some((ticket, answer)) = self.questions.next(), if !self.questions.is_empty() => {
                    self.take_answer(ticket, answer);
                }
                received = self.socket.recv(), if self.session.has_capacity() => match received {
                    None | Some(Err(_)) => return Ok(()),
                    Some(Ok(message)) => self.take_message(message)?,
                },
                () = tokio::time::sleep_until(wake) => self.tick(),
            }
            self.take_more()?;
            self.carry_out().await?;
            self.slot.set_idle(!self.session.has_tasks() && self.readers.is_empty());
        }
    }

    async fn make_way(&mut self, evicted: Evicted) -> Closing {
        let (code, reason) = match evicted {
            Evicted::Unauthenticated => {
                (close_code::POLICY, "the handshake came too late: the socket was evicted for a newer one")
            }
            Evicted::Idle => (close_code::AGAIN, "another tenant needs the socket; connect again later"),
        };
        // Before the close frame, because its answer takes a while: the engine must send no more tasks here.
        self.leave(reason).await;
        Closing { code, reason }
    }

    fn now(&self) -> Now {
        Now { mono: self.began.elapsed(), wall: Timestamp::now() }
    }

    fn wake(&self) -> Instant {
        let session = self.session.next_wakeup().map(|at| self.began + at);
        let probe = self.probe.map(|(until, _)| until);
        [session, probe, Some(self.ends_at)].into_iter().flatten().min().unwrap_or(self.ends_at)
    }

    /// Processes everything that is ready, so that many replies are sent together.
    fn take_more(&mut self) -> Result<(), Disconnect> {
        for _ in 0..TAKEN_AT_ONCE {
            let mut nothing = true;
            if let Some(command) =
                self.member.as_mut().and_then(|authenticated| authenticated.port.link().receive_now())
            {
                nothing = false;
                self.handle_command(Some(command))?;
            }
            if !self.questions.is_empty()
                && let Some(Some((ticket, answer))) = self.questions.next().now_or_never()
            {
                nothing = false;
                self.take_answer(ticket, answer);
            }
            if self.session.has_capacity()
                && let Some(received) = self.socket.recv().now_or_never()
            {
                nothing = false;
                match received {
                    None | Some(Err(_)) => return Err(Disconnect::Gone),
                    Some(Ok(message)) => self.take_message(message)?,
                }
            }
            // A new request must be sent before the loop waits for anything else.
            self.ask_all();
            if nothing {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_message(&mut self, message: Message) -> Result<(), Disconnect> {
        let now = self.now();
        // Any message shows that the worker is alive.
        self.probe = None;
        match message {
            Message::Text(text) => {
                if let Some(authenticated) = &self.member {
                    authenticated.metrics.received.inc_by(text.len() as u64);
                }
                match self.authenticator.take() {
                    Some(authenticator) => self.greet(now, text.as_bytes(), authenticator),
                    None => self.session.handle_text(now, text.as_bytes(), &Closed, &mut self.out),
                }
            }
            Message::Binary(bytes) => self.session.handle_binary(now, bytes.len(), &mut self.out),
            Message::Close(_) => return Err(Disconnect::Gone),
            Message::Ping(_) | Message::Pong(_) => {}
        }
        Ok(())
    }

    /// A frame of an unauthenticated client. After the handshake, the authenticator is dropped.
    fn greet(&mut self, now: Now, text: &[u8], authenticator: Box<WorkerAuthenticator>) {
        self.session.handle_text(now, text, &*authenticator, &mut self.out);
        let (Some(member), Some(caller)) = (self.session.member().cloned(), authenticator.caller().cloned())
        else {
            self.authenticator = Some(authenticator);
            return;
        };
        let max = self.api.config.current().workers.sockets_per_tenant_max;
        if let Err(full) = self.slot.assign_to(&member.tenant, max) {
            self.out.clear();
            let (message, reason) = match full {
                LimitReached::Tenant => (
                    format!("the tenant has reached its limit of {max} worker connections"),
                    "too many connections of the tenant",
                ),
                LimitReached::Share => (
                    "the tenant has reached its share of the worker connections (workers.sockets_max)"
                        .to_owned(),
                    "too many connections of the tenant",
                ),
                LimitReached::Sockets => {
                    ("the limit of worker connections is reached".to_owned(), "too many sockets")
                }
            };
            return self.session.close_with_error(
                now,
                ErrorCode::SessionDenied,
                &message,
                reason,
                &mut self.out,
            );
        }
        let scheduler = &self.api.scheduler;
        if let Some(at) = caller.expires_at {
            let left = Duration::from_millis(at.since(scheduler.wall()).0);
            self.ends_at = Instant::now() + left.min(FAR);
        }
        let heartbeat = Span(u64::try_from(self.heartbeat.as_millis()).unwrap_or(u64::MAX));
        tracing::info!(
            tenant = member.tenant.as_str(),
            "sender.id" = member.worker.as_str(),
            actor = caller.actor.as_str(),
            "a worker has connected"
        );
        let metrics = scheduler.metrics().workers().connected(&member.tenant);
        let link = scheduler.connect_worker();
        let port = SchedulerPort::new(scheduler.clone(), link, member, caller.actor.clone(), heartbeat);
        self.member = Some(Box::new(Authenticated { port, caller, metrics }));
    }

    /// A command of the engine for the worker.
    fn handle_command(&mut self, command: Option<ToWorker>) -> Result<(), Disconnect> {
        let now = self.now();
        let Some(command) = command else {
            let closing = match self.api.scheduler.ready() {
                true => Closing { code: close_code::POLICY, reason: "too slow" },
                false => Closing { code: close_code::AWAY, reason: "the server stops" },
            };
            return Err(Disconnect::Closed(closing));
        };
        match command {
            ToWorker::Bound(bound) => {
                self.session.bind(bound.task, None);
                if let Some(authenticated) = &mut self.member {
                    authenticated.port.track_task(&bound);
                }
            }
            ToWorker::Run(task) => self.dispatch(now, &task),
            ToWorker::Unreadable(task) => self.session.give_back(task, &mut self.out),
            ToWorker::Unfit(task, clash) => self.session.fail_unsent(task, *clash, &mut self.out),
            ToWorker::Stop(task) => self.session.cancel(now, task, None, &mut self.out),
            ToWorker::Next { task, request, answer } => {
                let response = self
                    .member
                    .as_ref()
                    .and_then(|authenticated| authenticated.port.response(task, &request, &answer));
                if let Some(response) = response {
                    self.session.next_done(now, response, &mut self.out);
                }
            }
            ToWorker::Superseded => self.session.superseded(now, &mut self.out),
            ToWorker::Probe => {
                self.probe.get_or_insert((Instant::now() + PROBE_TIMEOUT, false));
            }
            ToWorker::Drain => self.session.drain(now, Drain::default(), &mut self.out),
            ToWorker::Install(order) => {
                // They were valid texts when the call was read.
                let text = |value: &str| Text::new(value).ok();
                if let (Some(name), Some(version)) = (text(&order.name), text(&order.version)) {
                    let (url, sha256) = (Some(order.url.into()), text(&order.sha256));
                    let install = Install { name, version, url, sha256 };
                    self.session.install(now, install, &mut self.out);
                }
            }
            ToWorker::Read(order) => self.request_chunk(now, order),
            ToWorker::Uninstall { name, version } => {
                if let Ok(name) = Text::new(name) {
                    let version = version.and_then(|version| Text::new(version).ok());
                    self.session.uninstall(now, Uninstall { name, version }, &mut self.out);
                }
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, now: Now, task: &WorkerTask) {
        if !self.session.is_bound(task.task) {
            self.session.bind(task.task, None);
        }
        match dispatch_of(task) {
            Some(dispatch) => {
                if let Some(authenticated) = &mut self.member {
                    authenticated.port.track_dispatch(task);
                }
                self.session.dispatch(now, task.task, dispatch, &mut self.out);
            }
            None => self.session.fail_unreadable(task.task, &mut self.out),
        }
    }

    /// A reader requests a part of an artifact.
    fn request_chunk(&mut self, now: Now, order: PartOrder) {
        let PartOrder { resource, offset, limit, answer } = order;
        let asked = match Text::new(resource) {
            Ok(resource_id) => {
                let read = ResourceRead { resource_id, offset, limit };
                self.session.request_chunk(now, read, &mut self.out)
            }
            Err(_) => Err(PartTrouble::Missing),
        };
        match asked {
            Ok(number) => drop(self.readers.insert(number, answer)),
            // The reader may be gone.
            Err(trouble) => drop(answer.send(Err(trouble))),
        }
    }

    fn take_answer(&mut self, ticket: Ticket, answer: Answer) {
        let now = self.now();
        self.session.answered(now, ticket, answer, &mut self.out);
    }

    fn tick(&mut self) {
        let now = self.now();
        if Instant::now() >= self.ends_at {
            let message = "the token has expired; connect again with a new one";
            return self.session.close_with_error(
                now,
                ErrorCode::AuthInvalidToken,
                message,
                "the token has expired",
                &mut self.out,
            );
        }
        if let Some((until, _)) = &mut self.probe
            && Instant::now() >= *until
        {
            // Its frames may wait to be read while too many requests are open.
            if self.session.has_capacity() {
                return self.session.close(close_code::AWAY, "the worker does not respond", &mut self.out);
            }
            *until = Instant::now() + PROBE_TIMEOUT;
        }
        if let Some(authenticated) = &mut self.member {
            authenticated.port.retain_tasks(|task| self.session.is_bound(task));
        }
        let before = self.out.len();
        self.session.handle_tick(now, &mut self.out);
        for action in &self.out[before..] {
            if matches!(action, Action::Send(_)) {
                self.api.scheduler.metrics().workers().retried(Retry::Unacknowledged);
            }
        }
    }

    /// Tokens have changed: checks whether the token of this connection is still valid.
    fn check_right(&mut self) {
        let Some(authenticated) = &self.member else { return };
        let scheduler = &self.api.scheduler;
        if authenticated.caller.is_still_allowed(&scheduler.tokens(), scheduler.wall()) {
            return;
        }
        let now = self.now();
        let message = "the token was revoked; connect again with another one";
        let reason = "the token was revoked";
        self.session.close_with_error(now, ErrorCode::AuthInvalidToken, message, reason, &mut self.out);
    }

    /// Sends open requests to the scheduler, in their order.
    fn ask_all(&mut self) {
        let Some(authenticated) = &mut self.member else { return };
        let questions = &self.questions;
        self.out.retain_mut(|action| match action {
            Action::Ask(ticket, question) => {
                let (ticket, pending): (Ticket, Pending) =
                    (*ticket, authenticated.port.ask(question.clone()));
                questions.push(Box::pin(async move { (ticket, pending.await) }));
                false
            }
            Action::Send(_) | Action::Chunk(..) | Action::Missed(_) | Action::Close(_) => true,
        });
    }

    /// Executes the actions of the session. All frames are sent together.
    async fn carry_out(&mut self) -> Result<(), Disconnect> {
        self.ask_all();
        let mut close = None;
        let mut sends = false;
        for action in std::mem::take(&mut self.out) {
            match action {
                Action::Send(text) => {
                    if let Some(authenticated) = &self.member {
                        authenticated.metrics.sent.inc_by(text.len() as u64);
                    }
                    sends = true;
                    within(self.socket.feed(Message::Text(text))).await?;
                }
                Action::Chunk(number, part) => {
                    if let Some(reader) = self.readers.remove(&number) {
                        // The reader may be gone.
                        let _ = reader.send(part);
                    }
                }
                Action::Missed(count) => self.note_missed(count),
                Action::Close(closing) => close = close.or(Some(closing)),
                Action::Ask(..) => {}
            }
        }
        if let Some((_, asked)) = self.probe.as_mut().filter(|(_, asked)| !*asked) {
            *asked = true;
            sends = true;
            within(self.socket.feed(Message::Ping(Bytes::new()))).await?;
        }
        if sends {
            within(self.socket.flush()).await?;
        }
        close.map_or(Ok(()), |closing| Err(Disconnect::Closed(closing)))
    }

    fn note_missed(&self, count: u32) {
        let Some(member) = self.session.member() else { return };
        self.api.scheduler.metrics().workers().missed(&member.tenant, &member.worker);
        tracing::warn!(
            tenant = member.tenant.as_str(),
            "sender.id" = member.worker.as_str(),
            "type" = "heartbeat",
            missed = count,
            "a heartbeat is late"
        );
    }
}

/// Rejects a second handshake on an authenticated connection.
struct Closed;

impl super::handshake::Authenticate for Closed {
    fn admit(
        &self,
        _: &str,
        _: &laneway_wire::frame::Handshake,
    ) -> Result<super::messages::Member, super::handshake::HandshakeRejection> {
        let message = "the handshake of this connection is done already";
        Err(super::handshake::HandshakeRejection::new(ErrorCode::SessionDenied, message))
    }
}

/// The next command of the engine for the worker. Pending until the worker has authenticated.
async fn next_command(member: &mut Option<Box<Authenticated>>) -> Option<ToWorker> {
    match member {
        Some(authenticated) => authenticated.port.link().receive().await,
        None => std::future::pending().await,
    }
}

/// Fails when the worker reads nothing for too long.
async fn within<E>(sending: impl Future<Output = Result<(), E>>) -> Result<(), Disconnect> {
    match tokio::time::timeout(WRITE_TIMEOUT, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Disconnect::Gone),
    }
}
