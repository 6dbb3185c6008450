//! The socket of a worker: drives a session, from the upgrade to the close.
//!
//! One task a socket, small buffers, and nothing that grows: what the worker says waits while the scheduler has enough to
//! do, what it is told is bounded by what it holds, and one that takes nothing for [`WRITE_TIMEOUT`] is cut off.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt};
use laneway_core::Span;
use laneway_runtime::metrics::{ConnectionFigures, Retry};
use laneway_runtime::{Caller, Part, PartOrder, PartTrouble, ToWorker, WorkerTask};
use laneway_wire::frame::{
    Drain, ErrorCode, FRAME_LEN_MAX, Install, ResourceRead, Text, Timestamp, Uninstall,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::door::WorkerDoor;
use super::house::{House, Pending};
use super::room::Seat;
use super::session::{Action, Closing, Now, Session};
use super::task::dispatch_of;
use super::words::{Answer, Ticket};
use crate::api::Api;
use crate::serve::Peer;

/// How often a worker on `/v1/workers/connect` must be heard.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a worker on `/ws/worker` must be heard: workers of old say a word every 30 s and up to 5 s by lot.
const HEARTBEAT_V1: Duration = Duration::from_secs(35);
/// Frames must have been taken after this long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
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
    let Some(seat) = api.worker_room.enter() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many sockets are open\n").into_response();
    };
    let request = api.next_request();
    let upgrade = upgrade
        .max_message_size(MESSAGE_LEN_MAX)
        .max_frame_size(MESSAGE_LEN_MAX)
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER);
    upgrade.on_upgrade(move |socket| async move {
        let door = WorkerDoor::new(api.clone(), headers, peer, request);
        Conversation::new(socket, api, door, seat, heartbeat).run().await;
    })
}

struct Conversation {
    socket: WebSocket,
    api: Api,
    session: Session,
    heartbeat: Duration,
    began: Instant,
    /// Until somebody has come in.
    door: Option<Box<WorkerDoor>>,
    seat: Seat,
    member: Option<Box<Inside>>,
    /// When the right to be here ends by itself.
    ends_at: Instant,
    questions: FuturesUnordered<Asked>,
    /// Who waits for a part of what a task made here, by the number it was asked for under.
    readers: BTreeMap<u64, oneshot::Sender<Result<Part, PartTrouble>>>,
    /// Room for actions on their way; empty between uses.
    out: Vec<Action>,
}

/// What a connection holds once it is known whose it is.
struct Inside {
    house: House,
    caller: Caller,
    figures: ConnectionFigures,
}

type Asked = std::pin::Pin<Box<dyn Future<Output = (Ticket, Answer)> + Send>>;

/// Why a conversation ends.
enum Over {
    /// The worker is gone; nobody needs to be told.
    Gone,
    /// We close.
    Closed(Closing),
}

impl Conversation {
    fn new(socket: WebSocket, api: Api, door: WorkerDoor, seat: Seat, heartbeat: Duration) -> Conversation {
        let began = Instant::now();
        let number = api.next_socket();
        let now = Now { mono: Duration::ZERO, wall: Timestamp::now() };
        Conversation {
            socket,
            api,
            session: Session::new(now, number, heartbeat, fastrand::Rng::new()),
            heartbeat,
            began,
            door: Some(Box::new(door)),
            seat,
            member: None,
            ends_at: began + FAR,
            questions: FuturesUnordered::new(),
            readers: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    async fn run(mut self) {
        let over = match self.converse().await {
            Ok(()) => Over::Gone,
            Err(over) => over,
        };
        if let Over::Closed(Closing { code, reason }) = over {
            let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
            // Whoever does not take it is gone, and the socket with them.
            let _ = tokio::time::timeout(WRITE_TIMEOUT, self.socket.send(close)).await;
        }
        let reason = if let Over::Closed(closing) = over { closing.reason } else { "gone" };
        if let Some(inside) = self.member.take() {
            let Inside { house, caller, figures } = *inside;
            tracing::info!(
                tenant = caller.tenant.as_str(),
                "sender.id" = self.session.worker().map(|worker| worker.as_str()),
                reason,
                "a worker's connection has ended"
            );
            // What was asked is still answered to the engine's satisfaction, not to the worker's.
            drop((self.questions, self.readers, figures));
            house.closes().await;
        }
    }

    /// Until the worker closes (`Ok`), or something else ends it.
    async fn converse(&mut self) -> Result<(), Over> {
        let mut tokens = self.api.scheduler.token_changes();
        let closing = self.api.closing.clone();
        loop {
            let wake = self.wake();
            tokio::select! {
                biased;
                () = closing.cancelled() => {
                    return Err(Over::Closed(Closing { code: close_code::AWAY, reason: "the server stops" }));
                }
                changed = tokens.changed() => {
                    changed.map_err(|_| Over::Gone)?;
                    self.check_right();
                }
                told = told(&mut self.member) => self.take_told(told)?,
                Some((ticket, answer)) = self.questions.next(), if !self.questions.is_empty() => {
                    self.take_answer(ticket, answer);
                }
                received = self.socket.recv(), if self.session.has_room() => match received {
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
        session.map_or(self.ends_at, |at| at.min(self.ends_at))
    }

    /// Takes up what is there already, so that many answers leave together.
    fn take_more(&mut self) -> Result<(), Over> {
        for _ in 0..TAKEN_AT_ONCE {
            let mut nothing = true;
            if let Some(word) = self.member.as_mut().and_then(|inside| inside.house.link().told_now()) {
                nothing = false;
                self.take_told(Some(word))?;
            }
            if !self.questions.is_empty()
                && let Some(Some((ticket, answer))) = self.questions.next().now_or_never()
            {
                nothing = false;
                self.take_answer(ticket, answer);
            }
            if self.session.has_room()
                && let Some(received) = self.socket.recv().now_or_never()
            {
                nothing = false;
                match received {
                    None | Some(Err(_)) => return Err(Over::Gone),
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

    fn take_message(&mut self, message: Message) -> Result<(), Over> {
        let now = self.now();
        match message {
            Message::Text(text) => {
                if let Some(inside) = &self.member {
                    inside.figures.received.inc_by(text.len() as u64);
                }
                match self.door.take() {
                    Some(door) => self.greet(now, text.as_bytes(), door),
                    None => self.session.handle_text(now, text.as_bytes(), &Closed, &mut self.out),
                }
            }
            Message::Binary(bytes) => self.session.handle_binary(now, bytes.len(), &mut self.out),
            Message::Close(_) => return Err(Over::Gone),
            Message::Ping(_) | Message::Pong(_) => {}
        }
        Ok(())
    }

    /// A word of somebody who has not come in yet. Once they have, the door is not needed any more.
    fn greet(&mut self, now: Now, text: &[u8], door: Box<WorkerDoor>) {
        self.session.handle_text(now, text, &*door, &mut self.out);
        let (Some(member), Some(caller)) = (self.session.member().cloned(), door.caller().cloned()) else {
            self.door = Some(door);
            return;
        };
        let max = self.api.config.current().workers.sockets_per_tenant_max;
        if !self.seat.belongs_to(&member.tenant, max) {
            self.out.clear();
            let message = format!("the tenant has {max} connections of workers already");
            let reason = "too many connections of the tenant";
            return self.session.kick(now, ErrorCode::SessionDenied, &message, reason, &mut self.out);
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
        let figures = scheduler.metrics().workers().connected(&member.tenant);
        let link = scheduler.connect_worker();
        let house = House::new(scheduler.clone(), link, member, caller.actor.clone(), heartbeat);
        self.member = Some(Box::new(Inside { house, caller, figures }));
    }

    /// What the engine has for the worker.
    fn take_told(&mut self, word: Option<ToWorker>) -> Result<(), Over> {
        let now = self.now();
        let Some(word) = word else {
            return Err(Over::Closed(Closing { code: close_code::POLICY, reason: "too slow" }));
        };
        match word {
            ToWorker::Bound(bound) => {
                self.session.bind(bound.task, None);
                if let Some(inside) = &mut self.member {
                    inside.house.holds(&bound);
                }
            }
            ToWorker::Run(task) => self.dispatch(now, &task),
            ToWorker::Unreadable(task) => self.session.give_back(task, &mut self.out),
            ToWorker::Unfit(task, clash) => self.session.fail_unsent(task, *clash, &mut self.out),
            ToWorker::Stop(task) => self.session.cancel(now, task, None, &mut self.out),
            ToWorker::Next { task, request, answer } => {
                let response =
                    self.member.as_ref().and_then(|inside| inside.house.response(task, &request, &answer));
                if let Some(response) = response {
                    self.session.next_done(now, response, &mut self.out);
                }
            }
            ToWorker::Superseded => self.session.superseded(now, &mut self.out),
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
            ToWorker::Read(order) => self.ask_part(now, order),
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
                if let Some(inside) = &mut self.member {
                    inside.house.begins(task);
                }
                self.session.dispatch(now, task.task, dispatch, &mut self.out);
            }
            None => self.session.fail_unreadable(task.task, &mut self.out),
        }
    }

    /// Somebody wants a part of what a task made here.
    fn ask_part(&mut self, now: Now, order: PartOrder) {
        let PartOrder { resource, offset, limit, answer } = order;
        let asked = match Text::new(resource) {
            Ok(resource_id) => {
                let read = ResourceRead { resource_id, offset, limit };
                self.session.ask_part(now, read, &mut self.out)
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
            return self.session.kick(
                now,
                ErrorCode::AuthInvalidToken,
                message,
                "the token has expired",
                &mut self.out,
            );
        }
        if let Some(inside) = &mut self.member {
            inside.house.keeps(|task| self.session.is_bound(task));
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
        let Some(inside) = &self.member else { return };
        let scheduler = &self.api.scheduler;
        if inside.caller.is_still_allowed(&scheduler.tokens(), scheduler.wall()) {
            return;
        }
        let now = self.now();
        let message = "the token was revoked; come back with another one";
        let reason = "the token was revoked";
        self.session.kick(now, ErrorCode::AuthInvalidToken, message, reason, &mut self.out);
    }

    /// Sends questions on their way, in their order.
    fn ask_all(&mut self) {
        let Some(inside) = &mut self.member else { return };
        let questions = &self.questions;
        self.out.retain_mut(|action| match action {
            Action::Ask(ticket, question) => {
                let (ticket, pending): (Ticket, Pending) = (*ticket, inside.house.ask(question.clone()));
                questions.push(Box::pin(async move { (ticket, pending.await) }));
                false
            }
            Action::Send(_) | Action::Part(..) | Action::Missed(_) | Action::Close(_) => true,
        });
    }

    /// Does what the session wants done; everything to send leaves together.
    async fn carry_out(&mut self) -> Result<(), Over> {
        self.ask_all();
        let mut close = None;
        let mut sends = false;
        for action in std::mem::take(&mut self.out) {
            match action {
                Action::Send(text) => {
                    if let Some(inside) = &self.member {
                        inside.figures.sent.inc_by(text.len() as u64);
                    }
                    sends = true;
                    within(self.socket.feed(Message::Text(text))).await?;
                }
                Action::Part(number, part) => {
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
        if sends {
            within(self.socket.flush()).await?;
        }
        close.map_or(Ok(()), |closing| Err(Over::Closed(closing)))
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

impl super::handshake::Door for Closed {
    fn admit(
        &self,
        _: &str,
        _: &laneway_wire::frame::Handshake,
    ) -> Result<super::words::Member, super::handshake::TurnedAway> {
        let message = "the handshake of this connection is done already";
        Err(super::handshake::TurnedAway::new(ErrorCode::SessionDenied, message))
    }
}

/// What the engine has for the worker; never, before it is known who that is.
async fn told(member: &mut Option<Box<Inside>>) -> Option<ToWorker> {
    match member {
        Some(inside) => inside.house.link().told().await,
        None => std::future::pending().await,
    }
}

/// A worker that takes nothing for so long is gone.
async fn within<E>(sending: impl Future<Output = Result<(), E>>) -> Result<(), Over> {
    match tokio::time::timeout(WRITE_TIMEOUT, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Over::Gone),
    }
}
