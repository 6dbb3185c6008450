//! The socket of a worker: drives a session, from the upgrade to the close.
//!
//! One task a socket, small buffers, and nothing that grows: what the worker says waits while the scheduler has enough to
//! do, what it is told is bounded by what it holds, and one that takes nothing for [`WRITE_TIMEOUT`] is cut off.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt};
use laneway_core::Span;
use laneway_runtime::metrics::{ConnectionMetrics, Retry};
use laneway_runtime::{Caller, Part, PartOrder, PartTrouble, ToWorker, WorkerTask};
use laneway_wire::frame::{
    Drain, ErrorCode, FRAME_LEN_MAX, Install, ResourceRead, Text, Timestamp, Uninstall,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::authenticate::WorkerAuthenticator;
use super::connection_limits::{ConnectionSlot, LimitReached};
use super::messages::{Answer, Ticket};
use super::scheduler_port::{Pending, SchedulerPort};
use super::session::{Action, Closing, Now, Session};
use super::task::dispatch_of;
use crate::api::Api;
use crate::gate;
use crate::serve::Peer;

/// How often a worker on `/v1/workers/connect` must be heard.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a worker on `/ws/worker` must be heard: workers of old say a word every 30 s and up to 5 s by lot.
const HEARTBEAT_V1: Duration = Duration::from_secs(35);
/// Frames must have been taken after this long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// A worker whose name another process wants must answer within this time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Room for a frame that is too long, so that it can be answered. What is longer still ends the connection.
const MESSAGE_LEN_MAX: usize = FRAME_LEN_MAX + (64 << 10);
/// Buffers of a socket, in bytes: small, because there are many, and large enough for a dozen frames.
const READ_BUFFER: usize = 4 << 10;
const WRITE_BUFFER: usize = 4 << 10;
/// How many messages are taken up before what follows from them is sent.
const TAKEN_AT_ONCE: usize = 64;
/// Further away than any socket lives, and near enough for every clock.
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

/// Opens the socket of a worker that speaks up every half minute, at the path where such workers look for it.
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
    /// Until somebody has come in.
    authenticator: Option<Box<WorkerAuthenticator>>,
    slot: ConnectionSlot,
    member: Option<Box<Authenticated>>,
    /// When the right to be here ends by itself.
    ends_at: Instant,
    /// Somebody else wants the worker's name: until when it must have been heard, and whether it was asked.
    probe: Option<(Instant, bool)>,
    questions: FuturesUnordered<Asked>,
    /// Who waits for a part of what a task made here, by the number it was asked for under.
    readers: BTreeMap<u64, oneshot::Sender<Result<Part, PartTrouble>>>,
    /// Room for actions on their way; empty between uses.
    out: Vec<Action>,
}

/// What a connection holds once it is known whose it is.
struct Authenticated {
    port: SchedulerPort,
    caller: Caller,
    metrics: ConnectionMetrics,
}

type Asked = std::pin::Pin<Box<dyn Future<Output = (Ticket, Answer)> + Send>>;

/// Why a conversation ends.
enum Disconnect {
    /// The worker is gone; nobody needs to be told.
    Gone,
    /// We close.
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
            let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
            // Whoever does not take it is gone, and the socket with them.
            let _ = tokio::time::timeout(WRITE_TIMEOUT, self.socket.send(close)).await;
        }
        let reason = if let Disconnect::Closed(closing) = disconnect { closing.reason } else { "gone" };
        if let Some(authenticated) = self.member.take() {
            let Authenticated { port, caller, metrics } = *authenticated;
            tracing::info!(
                tenant = caller.tenant.as_str(),
                "sender.id" = self.session.worker().map(|worker| worker.as_str()),
                reason,
                "a worker's connection has ended"
            );
            // What was asked is still answered to the engine's satisfaction, not to the worker's.
            drop((self.questions, self.readers, metrics));
            port.close().await;
        }
    }

    /// Until the worker closes (`Ok`), or something else ends it.
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
                () = self.slot.displaced() => {
                    let reason = "the handshake came too late: there are newer sockets";
                    return Err(Disconnect::Closed(Closing { code: close_code::POLICY, reason }));
                }
                changed = tokens.changed() => {
                    changed.map_err(|_| Disconnect::Gone)?;
                    self.check_right();
                }
                told = told(&mut self.member) => self.handle_command(told)?,
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
        }
    }

    fn now(&self) -> Now {
        Now { mono: self.began.elapsed(), wall: Timestamp::now() }
    }

    fn wake(&self) -> Instant {
        let session = self.session.next_wakeup().map(|at| self.began + at);
        let probe = self.probe.map(|(until, _)| until);
        [session, probe, Some(self.ends_at)].into_iter().flatten().min().unwrap_or(self.ends_at)
    }

    /// Takes up what is there already, so that many answers leave together.
    fn take_more(&mut self) -> Result<(), Disconnect> {
        for _ in 0..TAKEN_AT_ONCE {
            let mut nothing = true;
            if let Some(word) =
                self.member.as_mut().and_then(|authenticated| authenticated.port.link().receive_now())
            {
                nothing = false;
                self.handle_command(Some(word))?;
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
            // A question may have been asked just now: it must be on its way before anything else is waited for.
            self.ask_all();
            if nothing {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_message(&mut self, message: Message) -> Result<(), Disconnect> {
        let now = self.now();
        // Whatever it says: it is there.
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

    /// A word of somebody who has not come in yet. Once they have, the door is not needed any more.
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
                    format!("the tenant has {max} connections of workers already"),
                    "too many connections of the tenant",
                ),
                LimitReached::Share => (
                    "the tenant has its share of the connections of workers (workers.sockets_max)".to_owned(),
                    "too many connections of the tenant",
                ),
                LimitReached::Sockets => {
                    ("too many sockets of workers are open".to_owned(), "too many sockets")
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

    /// What the engine has for the worker.
    fn handle_command(&mut self, word: Option<ToWorker>) -> Result<(), Disconnect> {
        let now = self.now();
        let Some(word) = word else {
            return Err(Disconnect::Closed(Closing { code: close_code::POLICY, reason: "too slow" }));
        };
        match word {
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
                // They were texts when the call was read.
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

    /// Somebody wants a part of what a task made here.
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
            // Who does not wait any more need not know.
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
            let message = "the token has expired; come back with a new one";
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
            // What it said waits to be read while there is too much to answer.
            if self.session.has_capacity() {
                return self.session.close(close_code::AWAY, "it does not answer", &mut self.out);
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

    /// Tokens have changed: is the one that opened this connection still good?
    fn check_right(&mut self) {
        let Some(authenticated) = &self.member else { return };
        let scheduler = &self.api.scheduler;
        if authenticated.caller.is_still_allowed(&scheduler.tokens(), scheduler.wall()) {
            return;
        }
        let now = self.now();
        let message = "the token was revoked; come back with another one";
        let reason = "the token was revoked";
        self.session.close_with_error(now, ErrorCode::AuthInvalidToken, message, reason, &mut self.out);
    }

    /// Sends questions on their way, in their order.
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

    /// Does what the session wants done; everything to send leaves together.
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
                        // Who does not wait any more need not know.
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
            "a heartbeat did not come in time"
        );
    }
}

/// Everybody who comes in has come in: nobody is let in a second time.
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

/// What the engine has for the worker; never, before it is known who that is.
async fn told(member: &mut Option<Box<Authenticated>>) -> Option<ToWorker> {
    match member {
        Some(authenticated) => authenticated.port.link().receive().await,
        None => std::future::pending().await,
    }
}

/// A worker that takes nothing for so long is gone.
async fn within<E>(sending: impl Future<Output = Result<(), E>>) -> Result<(), Disconnect> {
    match tokio::time::timeout(WRITE_TIMEOUT, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Disconnect::Gone),
    }
}
