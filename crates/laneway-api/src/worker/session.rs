//! The server's side of the worker protocol as a machine without sockets and clocks: frames, answers of the house and time
//! go in, [`Action`]s come out.
//!
//! `socket.rs` carries them out. The machine knows who speaks, which attempts are bound to the connection, which frames
//! came before and which wait for an acknowledgement. It decides nothing about jobs: what a word is worth is asked of the
//! engine, and a worker is told only what is durable. The greeting is in `handshake.rs`, tasks are in `dispatch.rs`.

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
/// How many frames that cannot be read or taken, one after the other, end a connection.
pub const BAD_FRAMES_MAX: u32 = 32;
/// How many of them within [`BAD_FRAMES_WINDOW`] end it, whatever comes between.
pub const BAD_FRAMES_RATE_MAX: u32 = 128;
/// How long bad frames are counted together.
pub const BAD_FRAMES_WINDOW: Duration = Duration::from_secs(60);
/// How many frames a stranger may say before it must have shown who it is.
pub const UNAUTHENTICATED_FRAMES_MAX: u32 = 8;
/// Most questions of one connection that wait for an answer; while there are so many, nothing more is read.
pub const QUESTIONS_MAX: usize = 256;
/// Most ended attempts that a connection remembers, to know a late word about one of them.
pub const SETTLED_MAX: usize = 1_024;

/// The time, twice: one clock for waiting, one for telling.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since the connection began; never goes back.
    pub mono: Duration,
    /// Of the wall.
    pub wall: Timestamp,
}

/// Where a session stands, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionState {
    /// Nobody has said who they are.
    New,
    /// The handshake is acknowledged; the registration is awaited.
    Handshaking,
    /// The registration has come; the first sign of life is awaited.
    Registered,
    /// The worker takes tasks and gives signs of life.
    Heartbeating,
    /// It takes no more tasks and finishes those that run.
    Draining,
    /// It is over.
    Closed,
}

impl SessionState {
    /// The state as the docs and the logs write it.
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

    /// THE table: the states that may follow this one.
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

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Send this text.
    Send(Utf8Bytes),
    /// Ask the house, and give the answer back with the ticket.
    Ask(Ticket, Question),
    /// What became of the part that was asked for under this number.
    Chunk(u64, Result<Part, PartTrouble>),
    /// So many heartbeats did not come in time, one after the other.
    Missed(u32),
    /// Close the connection.
    Close(Closing),
}

/// How a connection is closed from our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The code of the close frame.
    pub code: u16,
    /// Why, for people.
    pub reason: &'static str,
}

/// A frame that waits for an answer of the house.
pub(super) struct Owed {
    /// The frame that is answered; `None`: nobody waits for an answer.
    pub(super) header: Option<FrameHeader>,
    pub(super) what: OwedFor,
}

/// What the house is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwedFor {
    Registration,
    Heartbeat,
    /// A dispatch was taken; the worker hears of it only if it was not to be.
    Taken(Task),
    /// The outcome of an attempt.
    Outcome(Task),
    /// Anything that is acknowledged once it is done.
    Plain,
}

/// What an answer must know of the frame that it answers.
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

/// Who is bound to the connection, as frames spell it.
pub(super) struct Bound {
    pub(super) member: Member,
    pub(super) tenant: Text,
    pub(super) worker: Text,
}

/// Frames that could not be read or taken.
#[derive(Default)]
pub(super) struct BadFrames {
    pub(super) in_a_row: u32,
    since: Duration,
    in_window: u32,
}

/// The machine.
pub struct Session {
    heartbeat: Duration,
    /// Tells the ids of our frames on this connection from those on others.
    pub(super) prefix: Box<str>,
    pub(super) rng: fastrand::Rng,
    pub(super) state: SessionState,
    pub(super) bound: Option<Bound>,
    /// How long the worker may go unheard, as the engine said last.
    pub(super) lease: Span,
    pub(super) numbers: u64,
    pub(super) tickets: u64,
    pub(super) outbox: Outbox,
    pub(super) dedup: Dedup,
    pub(super) owed: BTreeMap<Ticket, Owed>,
    pub(super) tasks: BTreeMap<Task, Open>,
    /// Attempts whose outcome was taken here, oldest first.
    pub(super) settled: VecDeque<Task>,
    pub(super) parts: ChunkRequests,
    pub(super) bad: BadFrames,
    unauthenticated_frames: u32,
    handshake_limit: Option<Duration>,
    heard: Duration,
    /// When the last heartbeat came, and how many should have come since.
    beat: Duration,
    missed: u32,
}

impl Session {
    /// A connection on which nothing was said yet. `number` names it; `heartbeat` is how often the worker must be heard.
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

    /// Where the session stands.
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// Who is at the other end, once that is known.
    pub fn member(&self) -> Option<&Member> {
        self.bound.as_ref().map(|bound| &bound.member)
    }

    /// True while one more frame may be taken: else the house has too many questions to answer already.
    pub fn has_capacity(&self) -> bool {
        self.owed.len() < QUESTIONS_MAX
    }

    /// Takes a text message up.
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

    /// Takes a binary message up: there are none in this protocol.
    pub fn handle_binary(&mut self, now: Now, len: usize, out: &mut Vec<Action>) {
        let report = report(
            ErrorCode::CmdUnknown,
            "frame.json",
            format!("the frame has {len} bytes of no text; send JSON as a text message"),
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
                    format!("a scheduler does not take frames of type `{}`", frame.message.kind().as_str());
                let report = report(ErrorCode::CmdUnknown, "scheduler.session", message);
                self.reject(now, &header, None, None, report, out);
                self.count_bad(now, out);
            }
        }
    }

    /// Why the frame is not one of the worker that is bound here.
    fn foreign(&self, frame: &Frame) -> Option<&'static str> {
        let bound = self.bound.as_ref()?;
        if frame.tenant != bound.tenant {
            return Some(
                "`tenant` is another one than the handshake's; every frame carries the tenant of its connection",
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

    /// A frame could not be read: it is answered, and only a stream of such frames ends the connection.
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
        // An answer to a broken answer would be answered in turn.
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
            // Workers of old do not wait for the acknowledgement. What they registered counts as a sign of life.
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

    /// The house has answered.
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
                        "the attempt is not this worker's any more",
                    );
                    self.reject(now, &header, header.corr.clone(), header.seq, report, out);
                }
                _ => self.ack(now, &header, None, out),
            },
        }
    }

    /// Another connection is the worker's from now on.
    pub fn superseded(&mut self, now: Now, out: &mut Vec<Action>) {
        self.close_with_error(
            now,
            ErrorCode::SessionStaleBinding,
            "another connection has taken this worker's place",
            "superseded session",
            out,
        );
    }

    /// Tells the worker why it is not welcome any more, and closes.
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

    /// Does what is due.
    pub fn handle_tick(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.state == SessionState::Closed {
            return;
        }
        if self.handshake_limit.is_some_and(|limit| now.mono >= limit) {
            let reason =
                if self.bound.is_some() { "registration came too late" } else { "handshake came too late" };
            return self.close(close_code::POLICY, reason, out);
        }
        if self.bound.is_some() && now.mono >= self.silent_at() {
            return self.close(close_code::AWAY, "nothing was heard for three heartbeats", out);
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
            // Nothing is lost: what is open is sent again on the worker's next connection.
            self.close(close_code::AWAY, "frames are not acknowledged", out);
        }
    }

    /// True while heartbeats are expected.
    fn expects_heartbeats(&self) -> bool {
        self.bound.is_some() && self.handshake_limit.is_none()
    }

    /// When the next heartbeat counts as missed: half an interval after it should have come.
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

    /// The engine has something for the worker: then it is registered, even if the answer that says so comes later. A worker
    /// may be faster than that answer.
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

    /// The name of whoever is at the other end, for logs.
    pub fn worker(&self) -> Option<&Name> {
        self.member().map(|member| &member.worker)
    }
}
