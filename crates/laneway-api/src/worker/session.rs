//! The server's side of the worker protocol as a state machine without sockets and clocks: frames, answers of the
//! scheduler and time go in, [`Action`]s come out.
//!
//! `socket.rs` executes the actions. The state machine knows the worker, the attempts that are bound to the
//! connection, the frames that it has seen, and the frames that wait for an acknowledgement. It makes no decisions
//! about jobs: the engine decides, and the worker learns only durable decisions. The handshake is in `handshake.rs`,
//! tasks are in `dispatch.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use axum::extract::ws::{Utf8Bytes, close_code};
use laneway_core::{Name, Span, Task};
use laneway_runtime::{Part, PartTrouble};
use laneway_wire::frame::{
    ErrorCode, Frame, FrameError, Heartbeat, Message, MessageType, Role, Text, Timestamp,
};
use serde_json::json;

use super::artifact_chunks::ChunkRequests;
use super::dedup::Dedup;
use super::dispatch::Open;
use super::handshake::Authenticate;
use super::messages::{Answer, Member, Question, Ticket};
use super::outbox::Outbox;
use super::send::{log_frame, report};

/// How long handshake and registration may take together.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How many heartbeats a worker may miss before its connection is closed.
pub const HEARTBEATS_MISSED_MAX: u32 = 3;
/// How many bad frames in a row end a connection.
pub const BAD_FRAMES_MAX: u32 = 32;
/// How many bad frames within [`BAD_FRAMES_WINDOW`] end a connection, whatever comes between.
pub const BAD_FRAMES_RATE_MAX: u32 = 128;
/// The window in which bad frames are counted.
pub const BAD_FRAMES_WINDOW: Duration = Duration::from_secs(60);
/// How many frames an unauthenticated client may send.
pub const UNAUTHENTICATED_FRAMES_MAX: u32 = 8;
/// The limit of requests of one connection that wait for an answer. At this limit, no more frames are read.
pub const QUESTIONS_MAX: usize = 256;
/// The number of ended attempts that a connection remembers, to recognise late reports.
pub const SETTLED_MAX: usize = 1_024;

/// The time of both clocks: one for waits, one for timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic: the time since the connection was opened.
    pub mono: Duration,
    /// The wall clock.
    pub wall: Timestamp,
}

/// The state of a session, on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionState {
    /// The client has not authenticated yet.
    New,
    /// The handshake is acknowledged; the registration is awaited.
    Handshaking,
    /// The registration has arrived; the first heartbeat is awaited.
    Registered,
    /// The worker accepts tasks and sends heartbeats.
    Heartbeating,
    /// The worker accepts no more tasks and finishes the running ones.
    Draining,
    /// The session has ended.
    Closed,
}

impl SessionState {
    /// The name of the state in documentation and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionState::New => "NEW",
            SessionState::Handshaking => "HANDSHAKING",
            SessionState::Registered => "REGISTERED",
            SessionState::Heartbeating => "HEARTBEATING",
            SessionState::Draining => "DRAINING",
            SessionState::Closed => "CLOSED",
        }
    }

    /// The transition table: the states that may follow this one.
    pub fn next(self) -> &'static [SessionState] {
        use SessionState::{Closed, Draining, Handshaking, Heartbeating, New, Registered};
        match self {
            New => &[Handshaking, Closed],
            Handshaking => &[Registered, Closed],
            Registered => &[Heartbeating, Draining, Closed],
            Heartbeating => &[Draining, Closed],
            Draining => &[Closed],
            Closed => &[],
        }
    }
}

/// An action for the driver to execute.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Send this text.
    Send(Utf8Bytes),
    /// Send a request to the scheduler, and return the answer with the ticket.
    Ask(Ticket, Question),
    /// The outcome of the request for a part with this number.
    Chunk(u64, Result<Part, PartTrouble>),
    /// So many heartbeats in a row were late.
    Missed(u32),
    /// Close the connection.
    Close(Closing),
}

/// How the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The code of the close frame.
    pub code: u16,
    /// The reason, for people.
    pub reason: &'static str,
}

/// A frame that waits for an answer of the scheduler.
pub(super) struct Owed {
    /// The frame that gets the reply. `None`: no reply is sent.
    pub(super) header: Option<FrameHeader>,
    pub(super) what: OwedFor,
}

/// The subject of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwedFor {
    Registration,
    Heartbeat,
    /// A dispatch was accepted. The worker gets a message only if it must stop.
    Taken(Task),
    /// The outcome of an attempt.
    Outcome(Task),
    /// Anything else that is acknowledged when it is done.
    Plain,
}

/// The fields of a frame that a reply needs.
#[derive(Clone, Debug)]
pub(super) struct FrameHeader {
    pub(super) id: Text,
    pub(super) corr: Option<Text>,
    pub(super) seq: Option<u64>,
    pub(super) ack_requested: bool,
}

impl FrameHeader {
    pub(super) fn of(frame: &Frame) -> FrameHeader {
        FrameHeader {
            id: frame.id.clone(),
            corr: frame.corr.clone(),
            seq: frame.seq,
            ack_requested: frame.wants_ack(),
        }
    }
}

/// The worker that is bound to the connection, as frames name it.
pub(super) struct Bound {
    pub(super) member: Member,
    pub(super) tenant: Text,
    pub(super) worker: Text,
}

/// Frames that could not be read or were rejected.
#[derive(Default)]
pub(super) struct BadFrames {
    pub(super) in_a_row: u32,
    since: Duration,
    in_window: u32,
}

/// The state machine.
pub struct Session {
    heartbeat: Duration,
    /// Distinguishes the ids of the server's frames on this connection from those on others.
    pub(super) prefix: Box<str>,
    pub(super) rng: fastrand::Rng,
    pub(super) state: SessionState,
    pub(super) bound: Option<Bound>,
    /// The length of the lease, as the engine last set it.
    pub(super) lease: Span,
    pub(super) numbers: u64,
    pub(super) tickets: u64,
    pub(super) outbox: Outbox,
    pub(super) dedup: Dedup,
    pub(super) owed: BTreeMap<Ticket, Owed>,
    pub(super) tasks: BTreeMap<Task, Open>,
    /// Attempts whose outcome was accepted here, oldest first.
    pub(super) settled: VecDeque<Task>,
    pub(super) parts: ChunkRequests,
    pub(super) bad: BadFrames,
    unauthenticated_frames: u32,
    handshake_limit: Option<Duration>,
    heard: Duration,
    /// When the last heartbeat came, and how many are missing since.
    beat: Duration,
    missed: u32,
}

impl Session {
    /// A new connection. `number` identifies it; `heartbeat` is the interval of the worker's heartbeats.
    pub fn new(now: Now, number: u64, heartbeat: Duration, rng: fastrand::Rng) -> Session {
        Session {
            heartbeat,
            prefix: format!("s{number:x}-").into(),
            rng,
            state: SessionState::New,
            bound: None,
            lease: Span(0),
            numbers: 0,
            tickets: 0,
            outbox: Outbox::default(),
            dedup: Dedup::default(),
            owed: BTreeMap::new(),
            tasks: BTreeMap::new(),
            settled: VecDeque::new(),
            parts: ChunkRequests::default(),
            bad: BadFrames::default(),
            unauthenticated_frames: 0,
            handshake_limit: Some(now.mono + HANDSHAKE_LIMIT),
            heard: now.mono,
            beat: now.mono,
            missed: 0,
        }
    }

    /// The state of the session.
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// The worker, once it has authenticated.
    pub fn member(&self) -> Option<&Member> {
        self.bound.as_ref().map(|bound| &bound.member)
    }

    /// True while one more frame may be processed. Otherwise too many requests wait for the scheduler.
    pub fn has_capacity(&self) -> bool {
        self.owed.len() < QUESTIONS_MAX
    }

    /// Handles a text message.
    pub fn handle_text(
        &mut self,
        now: Now,
        text: &[u8],
        authenticator: &dyn Authenticate,
        out: &mut Vec<Action>,
    ) {
        if self.state == SessionState::Closed {
            return;
        }
        match Frame::parse(text) {
            Ok(frame) => {
                log_frame("received", &frame);
                self.handle_frame(now, frame, authenticator, out);
            }
            Err(error) => self.handle_bad_frame(now, &error, out),
        }
    }

    /// Handles a binary message: the protocol has none.
    pub fn handle_binary(&mut self, now: Now, len: usize, out: &mut Vec<Action>) {
        let report = report(
            ErrorCode::CmdUnknown,
            "frame.json",
            format!("the frame has {len} bytes of binary data; send JSON as a text message"),
        );
        self.send_error(now, None, None, report, out);
        self.count_bad(now, out);
    }

    fn handle_frame(
        &mut self,
        now: Now,
        frame: Frame,
        authenticator: &dyn Authenticate,
        out: &mut Vec<Action>,
    ) {
        self.heard = now.mono;
        if self.bound.is_none() {
            return self.handle_handshake(now, frame, authenticator, out);
        }
        if let Some(message) = self.foreign(&frame) {
            let report = report(ErrorCode::SessionDenied, "scheduler.session", message);
            self.send_error(now, Some(frame.id), None, report, out);
            return self.count_bad(now, out);
        }
        let header = FrameHeader::of(&frame);
        if !matches!(frame.message, Message::Ack(_) | Message::Heartbeat(_) | Message::ResourceData(_))
            && let Some(prior) = self.dedup.prior_answer(&frame)
        {
            return self.repeat_answer(now, &header, prior, out);
        }
        let is_up = self.state >= SessionState::Registered && !self.is_registering();
        match frame.message {
            Message::Ack(ref ack) => {
                self.bad.in_a_row = 0;
                let acknowledged = frame.acknowledges().unwrap_or(&ack.r#for).clone();
                self.acknowledged(now, &acknowledged, ack, out);
            }
            Message::Register(register) => self.register(now, header, register, out),
            Message::Heartbeat(heartbeat) => self.beat(now, header, heartbeat, out),
            _ if !is_up => {
                let message = format!("`{}` came before the registration", frame.message.kind().as_str());
                let report = report(ErrorCode::SessionDenied, "scheduler.session", message);
                self.reject(now, &header, None, None, report, out);
                self.count_bad(now, out);
            }
            Message::Result(result) => self.result(now, header, *result, out),
            Message::Error(error) => self.error_reported(now, header, error, out),
            Message::Feedback(feedback) => self.feedback(now, header, feedback, out),
            Message::PackageEvent(event) => {
                self.ask(Some(header), OwedFor::Plain, Question::Package(Box::new(event)), out);
            }
            Message::NextRequest(request) => self.next_requested(now, header, request, out),
            Message::ResourceData(data) => self.part(now, &header, &data, out),
            Message::Handshake(_) => {
                let message = "the handshake of this connection is done already".to_owned();
                let report = report(ErrorCode::SessionDenied, "scheduler.session", message);
                self.reject(now, &header, None, None, report, out);
            }
            Message::Dispatch(_)
            | Message::Cancel(_)
            | Message::Drain(_)
            | Message::Install(_)
            | Message::Uninstall(_)
            | Message::NextResponse(_)
            | Message::ResourceRead(_) => {
                let message =
                    format!("a scheduler does not accept frames of type `{}`", frame.message.kind().as_str());
                let report = report(ErrorCode::CmdUnknown, "scheduler.session", message);
                self.reject(now, &header, None, None, report, out);
                self.count_bad(now, out);
            }
        }
    }

    /// Why the frame does not belong to the worker of this connection.
    fn foreign(&self, frame: &Frame) -> Option<&'static str> {
        let bound = self.bound.as_ref()?;
        if frame.tenant != bound.tenant {
            return Some(
                "`tenant` differs from the handshake; every frame carries the tenant of its connection",
            );
        }
        if frame.sender.role != Role::Worker {
            return Some("`sender.role` must be `worker`");
        }
        if frame.sender.id != bound.worker {
            return Some("`sender.id` is not the worker of the handshake");
        }
        None
    }

    /// A frame could not be read. It gets an error; only many such frames end the connection.
    fn handle_bad_frame(&mut self, now: Now, error: &FrameError, out: &mut Vec<Action>) {
        tracing::debug!(
            tenant = self.member().map(|member| member.tenant.as_str()),
            "sender.id" = self.worker().map(Name::as_str),
            "type" = error.kind.as_deref(),
            id = error.id.as_deref(),
            code = error.code.as_str(),
            part = error.part.as_str(),
            "a frame cannot be read"
        );
        // An error about a broken error would cause an endless exchange.
        let kind = error.kind.as_ref().and_then(|kind| MessageType::parse(kind));
        if !matches!(kind, Some(MessageType::Ack | MessageType::Error)) {
            self.send_error(now, error.id.clone(), None, error.report(), out);
        }
        self.count_bad(now, out);
    }

    pub(super) fn count_bad(&mut self, now: Now, out: &mut Vec<Action>) {
        let bad = &mut self.bad;
        if now.mono.saturating_sub(bad.since) >= BAD_FRAMES_WINDOW {
            (bad.since, bad.in_window) = (now.mono, 0);
        }
        bad.in_a_row += 1;
        bad.in_window += 1;
        if self.bound.is_none() {
            return self.count_unauthenticated(out);
        }
        if self.bad.in_a_row >= BAD_FRAMES_MAX || self.bad.in_window >= BAD_FRAMES_RATE_MAX {
            self.close(close_code::POLICY, "too many bad frames", out);
        }
    }

    pub(super) fn count_unauthenticated(&mut self, out: &mut Vec<Action>) {
        self.unauthenticated_frames += 1;
        if self.unauthenticated_frames >= UNAUTHENTICATED_FRAMES_MAX {
            self.close(close_code::POLICY, "handshake required", out);
        }
    }

    fn beat(&mut self, now: Now, header: FrameHeader, heartbeat: Heartbeat, out: &mut Vec<Action>) {
        match self.state {
            SessionState::New | SessionState::Handshaking => {
                let message = "`heartbeat` came before the registration";
                let report = report(ErrorCode::SessionDenied, "scheduler.session", message);
                self.send_error(now, Some(header.id), None, report, out);
                return self.count_bad(now, out);
            }
            // Older workers do not wait for the acknowledgement. Their registration counts as a heartbeat.
            SessionState::Registered if self.is_registering() => return self.ack_alive(now, &header, out),
            SessionState::Registered => self.go(SessionState::Heartbeating),
            SessionState::Heartbeating | SessionState::Draining | SessionState::Closed => {}
        }
        (self.beat, self.missed) = (now.mono, 0);
        let drains = heartbeat.metrics.more.get("draining").is_some_and(|value| *value == json!(true));
        if drains && self.state == SessionState::Heartbeating {
            self.go(SessionState::Draining);
        }
        self.ask(Some(header), OwedFor::Heartbeat, Question::Heartbeat(Box::new(heartbeat)), out);
    }

    /// The scheduler has answered a request.
    pub fn answered(&mut self, now: Now, ticket: Ticket, answer: Answer, out: &mut Vec<Action>) {
        let Some(Owed { header, what }) = self.owed.remove(&ticket) else { return };
        if self.state == SessionState::Closed {
            return;
        }
        if answer == Answer::Superseded {
            return self.superseded(now, out);
        }
        if let OwedFor::Taken(task) = what {
            if answer == Answer::Stale {
                self.unbind(now, task, out);
            }
            return;
        }
        let Some(header) = header else { return };
        match what {
            OwedFor::Taken(_) => {}
            OwedFor::Registration => self.registered(now, &header, answer, out),
            OwedFor::Heartbeat => match answer {
                Answer::Alive { lease } => {
                    self.lease = lease;
                    self.ack_alive(now, &header, out);
                }
                Answer::Stale => self.superseded(now, out),
                _ => {}
            },
            OwedFor::Outcome(task) => self.settle(now, task, &header, answer, out),
            OwedFor::Plain => match answer {
                Answer::Rejected(why) => {
                    let report = report(ErrorCode::Internal, "scheduler", why);
                    self.reject(now, &header, header.corr.clone(), None, report, out);
                }
                Answer::Stale => {
                    let report = report(
                        ErrorCode::SessionStaleBinding,
                        "scheduler.tasks",
                        "the attempt no longer belongs to this worker",
                    );
                    self.reject(now, &header, header.corr.clone(), header.seq, report, out);
                }
                _ => self.ack(now, &header, None, out),
            },
        }
    }

    /// Another connection has replaced this one.
    pub fn superseded(&mut self, now: Now, out: &mut Vec<Action>) {
        self.close_with_error(
            now,
            ErrorCode::SessionStaleBinding,
            "another connection has replaced this one",
            "superseded session",
            out,
        );
    }

    /// Sends an error and closes the connection.
    pub fn close_with_error(
        &mut self,
        now: Now,
        code: ErrorCode,
        message: &str,
        reason: &'static str,
        out: &mut Vec<Action>,
    ) {
        if self.state == SessionState::Closed {
            return;
        }
        self.send_error(now, None, None, report(code, "scheduler.session", message), out);
        self.close(close_code::POLICY, reason, out);
    }

    /// When [`Session::handle_tick`] has something to do next.
    pub fn next_wakeup(&self) -> Option<Duration> {
        if self.state == SessionState::Closed {
            return None;
        }
        let silence = self.bound.is_some().then(|| self.silent_at());
        let miss = self.expects_heartbeats().then(|| self.next_miss());
        let dues = [self.outbox.next_due(), self.parts.next_due(), self.handshake_limit, silence, miss];
        dues.into_iter().flatten().min()
    }

    /// Handles everything that is due.
    pub fn handle_tick(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.state == SessionState::Closed {
            return;
        }
        if self.handshake_limit.is_some_and(|limit| now.mono >= limit) {
            let reason = if self.bound.is_some() {
                "the registration came too late"
            } else {
                "the handshake came too late"
            };
            return self.close(close_code::POLICY, reason, out);
        }
        if self.bound.is_some() && now.mono >= self.silent_at() {
            return self.close(close_code::AWAY, "no frame came for three heartbeats", out);
        }
        if self.expects_heartbeats() && now.mono >= self.next_miss() {
            self.missed += 1;
            out.push(Action::Missed(self.missed));
        }
        self.expire_chunk_requests(now, out);
        let rng = &mut self.rng;
        let due = self.outbox.take_due(now.mono, || rng.f64());
        for (number, about, text) in due.frames {
            self.log_again(number, about);
            out.push(Action::Send(text));
        }
        if due.exhausted {
            // Nothing is lost: open dispatches are sent again on the worker's next connection.
            self.close(close_code::AWAY, "frames are not acknowledged", out);
        }
    }

    /// True while heartbeats are expected.
    fn expects_heartbeats(&self) -> bool {
        self.bound.is_some() && self.handshake_limit.is_none()
    }

    /// When the next heartbeat counts as missed: half an interval after it was expected.
    fn next_miss(&self) -> Duration {
        self.beat + self.heartbeat * (self.missed + 1) + self.heartbeat / 2
    }

    fn silent_at(&self) -> Duration {
        self.heard + self.heartbeat * HEARTBEATS_MISSED_MAX + self.heartbeat / 2
    }

    /// True while the registration waits for the engine.
    pub(super) fn is_registering(&self) -> bool {
        self.state == SessionState::Registered && self.handshake_limit.is_some()
    }

    pub(super) fn bind_worker(&mut self, member: Member, tenant: Text, worker: Text) {
        self.bound = Some(Bound { member, tenant, worker });
        self.go(SessionState::Handshaking);
    }

    /// The engine has a command for the worker, so the worker is registered, even if the answer to the registration
    /// comes later. A worker may be faster than that answer.
    pub(super) fn mark_registered(&mut self) {
        if self.state >= SessionState::Registered {
            self.handshake_limit = None;
        }
    }

    pub(super) fn complete_registration(&mut self, lease: Span) {
        self.lease = lease;
        self.handshake_limit = None;
        self.beat = self.heard;
    }

    pub(super) fn close(&mut self, code: u16, reason: &'static str, out: &mut Vec<Action>) {
        if self.state != SessionState::Closed {
            self.go(SessionState::Closed);
            out.push(Action::Close(Closing { code, reason }));
        }
    }

    pub(super) fn go(&mut self, to: SessionState) {
        assert!(
            self.state.next().contains(&to),
            "a session goes only where the table allows: {} -> {}",
            self.state.as_str(),
            to.as_str()
        );
        self.state = to;
    }

    /// The name of the worker, for logs.
    pub fn worker(&self) -> Option<&Name> {
        self.member().map(|member| &member.worker)
    }
}
