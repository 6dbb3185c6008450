//! The worker's side of the protocol as a machine without sockets and clocks: frames, ends of runs and time go in,
//! [`Action`]s come out.
//!
//! `run.rs` carries them out. Because nothing here waits, every dialogue can be tested step by step.

mod inbound;
mod outcome;
mod time;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use laneway_wire::frame::{
    Ack, AckNote, Auth, ErrorContext, ErrorReport, Frame, Handshake, Install, JsonObject, List, Message,
    NextResponse, Register, ResourceData, ResourceRead, Role, Sender, Text, Timestamp, Uninstall, Vitals,
    WorkerIdentity,
};

use super::desk::{Capacity, Desk, Order, Refusal, StopReason};
use super::outbox::{Keep, Outbox, TaskKey};
use super::state::WorkerState;

/// The version of the protocol that we speak.
pub const PROTOCOL_VERSION: u32 = 1;
/// How long handshake and registration may take together.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
/// How many heartbeats without an answer make a lease, unless the scheduler says otherwise.
pub const HEARTBEATS_PER_LEASE: u32 = 3;
/// Most feedback frames that wait for a connection; then the oldest are dropped.
pub const FEEDBACK_WAITING_MAX: usize = 1_024;
/// How many frames that cannot be read, one after the other, end a connection.
pub const BAD_FRAMES_MAX: u32 = 32;

/// The time, twice: one clock for waiting, one for telling.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since the worker began; never goes back.
    pub mono: Duration,
    /// Of the wall.
    pub wall: Timestamp,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are frames, and none lives long")]
pub enum Action {
    /// Send this frame.
    Send(Frame),
    /// Run this task.
    Start(Order),
    /// Ask this run to stop.
    Stop(TaskKey, StopReason),
    /// Drop this run at once, whatever it does.
    Abandon(TaskKey),
    /// Install a package; the id is that of the frame that asked.
    Install(Text, Install),
    /// Remove a package; the id is that of the frame that asked.
    Uninstall(Text, Uninstall),
    /// Read a part of a resource; the id is that of the frame that asked.
    Read(Text, ResourceRead),
    /// A middleware's `next` was answered.
    Next(NextResponse),
    /// Close the connection.
    Close(CloseReason),
}

/// Why a connection is closed from our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// It is not worth trusting: try again after a while.
    Retry,
    /// Everything is done.
    Done,
    /// Another worker has our name.
    Superseded,
}

/// What the machine must ask the house about.
pub trait House {
    /// Whether there is a handler and everything else that the task needs.
    fn fits(&self, order: &Order, now: Now) -> Result<(), Refusal>;
    /// How the machine is, without `inflight` and `latency_ms`.
    fn vitals(&self) -> Vitals;
}

/// The waits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long between two heartbeats, at least.
    pub heartbeat: Duration,
    /// How much is added by lot, at most.
    pub heartbeat_jitter: Duration,
    /// How long a run has to stop after it was asked to.
    pub stop_grace: Duration,
    /// How long what runs may take when the worker is told to stop.
    pub drain_limit: Duration,
}

/// From which figures on a worker asks for no more work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Memory in use, in percent.
    pub mem_pct: f64,
    /// Disk in use, in percent.
    pub disk_pct: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { mem_pct: 90.0, disk_pct: 95.0 }
    }
}

/// Who we are, and how we behave.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Whose jobs we run.
    pub tenant: Text,
    /// Who we are.
    pub identity: WorkerIdentity,
    /// The waits.
    pub timing: Timing,
    /// How much may run at once.
    pub capacity: Capacity,
    /// From when on we want no more work.
    pub thresholds: Thresholds,
    /// Tells the frames of this process from those of an earlier one of the same name.
    pub instance: u64,
}

/// A heartbeat that was sent and is not acknowledged yet.
struct Beat {
    id: Text,
    sent: Duration,
}

/// Figures of the protocol, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Heartbeats sent with `healthy: false`.
    pub degraded: u64,
    /// Frames sent again.
    pub resent: u64,
    /// Dispatches that came before.
    pub duplicates: u64,
    /// Dispatches that were refused.
    pub refused: u64,
    /// Outcomes that the scheduler refused.
    pub stale: u64,
    /// Feedback frames that were dropped.
    pub feedback_dropped: u64,
    /// Refusals and reports that were sent once and not kept, because the outbox was full.
    pub unkept: u64,
}

/// The machine.
pub struct Protocol {
    profile: Profile,
    state: WorkerState,
    desk: Desk,
    outbox: Outbox,
    feedback: VecDeque<Frame>,
    rng: fastrand::Rng,
    next_id: u64,
    /// The frames of the handshake, and until when it must be done.
    handshake: Option<(Text, Register)>,
    registration: Option<(Text, Duration)>,
    handshake_limit: Option<Duration>,
    beats: VecDeque<Beat>,
    next_beat: Option<Duration>,
    latency_ms: Option<u64>,
    /// How long a lease lasts, and until when the one we have does.
    lease: Duration,
    lease_until: Duration,
    draining: bool,
    drain_until: Option<Duration>,
    failures: u32,
    retry_at: Duration,
    bad_frames: u32,
    closed: bool,
    tally: Tally,
}

impl Protocol {
    /// A machine that is not connected.
    pub fn new(profile: Profile, rng: fastrand::Rng) -> Protocol {
        let lease = (profile.timing.heartbeat + profile.timing.heartbeat_jitter) * HEARTBEATS_PER_LEASE;
        Protocol {
            desk: Desk::new(profile.capacity.clone()),
            profile,
            state: WorkerState::New,
            outbox: Outbox::default(),
            feedback: VecDeque::new(),
            rng,
            next_id: 0,
            handshake: None,
            registration: None,
            handshake_limit: None,
            beats: VecDeque::new(),
            next_beat: None,
            latency_ms: None,
            lease,
            lease_until: Duration::MAX,
            draining: false,
            drain_until: None,
            failures: 0,
            retry_at: Duration::ZERO,
            bad_frames: 0,
            closed: false,
            tally: Tally::default(),
        }
    }

    /// Where the session stands.
    pub fn state(&self) -> WorkerState {
        self.state
    }

    /// Figures since the start.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// What runs and what waits.
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// How many outcomes wait to be acknowledged.
    pub fn outcomes_waiting(&self) -> usize {
        self.outbox.outcomes()
    }

    /// When the next connection may be tried.
    pub fn retry_at(&self) -> Duration {
        self.retry_at
    }

    /// Who we are.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// A connection is being made.
    pub fn dial(&mut self) {
        if self.state == WorkerState::Backoff {
            self.go(WorkerState::New);
        }
    }

    /// A connection stands: says who we are. `register` is sent once that is acknowledged.
    pub fn connected(&mut self, now: Now, auth: Auth, register: Register, out: &mut Vec<Action>) {
        self.go(WorkerState::Handshaking);
        self.bad_frames = 0;
        self.handshake_limit = Some(now.mono + HANDSHAKE_LIMIT);
        let worker = self.profile.identity.clone();
        let handshake = Handshake { protocol: PROTOCOL_VERSION, auth, worker };
        let frame = self.frame(now, Message::Handshake(handshake));
        let frame = Frame { ack: AckNote::requested(), ..frame };
        self.handshake = Some((frame.id.clone(), register));
        self.send_kept(now, frame, Keep::Greeting, out);
    }

    /// The connection is gone, or did not come about.
    pub fn disconnected(&mut self, now: Now) {
        if matches!(self.state, WorkerState::Closed | WorkerState::Backoff) {
            return;
        }
        self.outbox.forget_session();
        self.desk.forget_session();
        self.beats.clear();
        self.next_beat = None;
        self.handshake = None;
        self.registration = None;
        self.handshake_limit = None;
        if self.state == WorkerState::New {
            // A connection that never stood is a handshake that failed.
            self.go(WorkerState::Handshaking);
        }
        self.go(WorkerState::Backoff);
        let lot = self.rng.f64();
        self.retry_at = now.mono + super::backoff::Backoff::CONNECTIONS.wait(self.failures, lot);
        self.failures = self.failures.saturating_add(1);
    }

    /// Takes no more tasks; what runs may take `limit`, or as long as the profile says.
    pub fn drain(&mut self, now: Now, limit: Option<Duration>, out: &mut Vec<Action>) {
        let until = now.mono + limit.unwrap_or(self.profile.timing.drain_limit);
        self.drain_until = Some(self.drain_until.map_or(until, |earlier| earlier.min(until)));
        self.draining = true;
        if self.state == WorkerState::Heartbeating {
            self.go(WorkerState::Draining);
            self.next_beat = Some(now.mono);
        }
        self.close_if_drained(out);
    }

    /// Sends how a run goes, or keeps it for the next connection. `message` is made by the task itself.
    pub fn tell(&mut self, now: Now, key: &TaskKey, message: Message, out: &mut Vec<Action>) {
        let wants_ack = matches!(message, Message::NextRequest(_));
        let frame = self.frame(now, message);
        let frame = Frame { corr: Some(key.task_id.clone()), seq: Some(key.seq), ..frame };
        if wants_ack {
            let frame = Frame { ack: AckNote::requested(), ..frame };
            self.send_while_room(now, frame, out);
        } else if self.state.is_up() {
            out.push(Action::Send(frame));
        } else {
            if self.feedback.len() >= FEEDBACK_WAITING_MAX {
                self.feedback.pop_front();
                self.tally.feedback_dropped += 1;
            }
            self.feedback.push_back(frame);
        }
    }

    /// Sends a message about this worker and keeps it until it is acknowledged.
    pub fn report(&mut self, now: Now, corr: Option<Text>, message: Message, out: &mut Vec<Action>) {
        let frame = Frame { corr, ack: AckNote::requested(), ..self.frame(now, message) };
        self.send_while_room(now, frame, out);
    }

    /// A part of a resource was read, or was not. Not kept: who asked asks again, if they still want it.
    pub fn part_read(
        &mut self,
        now: Now,
        asked: Text,
        answer: Result<ResourceData, Refusal>,
        out: &mut Vec<Action>,
    ) {
        if !self.state.is_up() {
            return;
        }
        match answer {
            Ok(data) => {
                let frame = self.frame(now, Message::ResourceData(data));
                out.push(Action::Send(Frame { corr: Some(asked), ..frame }));
            }
            Err(refusal) => self.complain(now, Some(asked), report(refusal, &serde_json::json!({})), out),
        }
    }

    fn close_if_drained(&mut self, out: &mut Vec<Action>) {
        if self.draining && !self.closed && self.desk.len() == 0 && self.outbox.outcomes() == 0 {
            self.close(CloseReason::Done, out);
        }
    }

    fn close(&mut self, why: CloseReason, out: &mut Vec<Action>) {
        if why != CloseReason::Retry {
            self.closed = true;
            if self.state.allows(WorkerState::Closed) {
                self.go(WorkerState::Closed);
            }
        }
        out.push(Action::Close(why));
    }

    fn go(&mut self, to: WorkerState) {
        assert!(self.state.allows(to), "a session goes only where the table allows: {} -> {to}", self.state);
        tracing::debug!(from = self.state.word(), to = to.word(), "session");
        self.state = to;
    }

    /// Sends a frame if there is a connection, and keeps it until it is acknowledged.
    fn send_kept(&mut self, now: Now, frame: Frame, keep: Keep, out: &mut Vec<Action>) {
        let is_greeting = keep == Keep::Greeting;
        let lot = self.rng.f64();
        self.outbox.put(now.mono, frame.clone(), keep, lot);
        if self.state.is_up() || is_greeting {
            out.push(Action::Send(frame));
        }
    }

    /// Sends a report, and keeps it while there is room. What nobody acknowledges must not grow without end; runs have
    /// their room from when they were taken.
    fn send_while_room(&mut self, now: Now, frame: Frame, out: &mut Vec<Action>) {
        if !self.outbox.is_full(self.desk.len()) {
            return self.send_kept(now, frame, Keep::Report, out);
        }
        self.tally.unkept += 1;
        if self.state.is_up() {
            out.push(Action::Send(frame));
        }
    }

    /// A frame of ours.
    fn frame(&mut self, now: Now, message: Message) -> Frame {
        let id = format!("{}-{:08x}-{}", message.kind().word(), self.profile.instance, self.next_id);
        self.next_id += 1;
        Frame {
            id: Text::fixed(&id),
            ts: now.wall,
            tenant: self.profile.tenant.clone(),
            sender: Sender { role: Role::Worker, id: self.profile.identity.id.clone() },
            corr: None,
            seq: None,
            ack: AckNote::default(),
            flags: List::default(),
            message,
        }
    }

    /// Acknowledges a frame.
    fn ack(&mut self, now: Now, frame: &Frame, info: Option<&str>, out: &mut Vec<Action>) {
        let payload = Ack { ok: true, r#for: frame.id.clone(), info: info.map(str::to_owned) };
        let answer = self.frame(now, Message::Ack(payload));
        let ack = AckNote::of(frame.id.clone());
        out.push(Action::Send(Frame { corr: frame.corr.clone(), seq: frame.seq, ack, ..answer }));
    }

    /// Says that a frame could not be done. Not kept: the sender repeats what matters to it.
    fn complain(&mut self, now: Now, corr: Option<Text>, report: ErrorReport, out: &mut Vec<Action>) {
        let frame = self.frame(now, Message::Error(report));
        out.push(Action::Send(Frame { corr, ..frame }));
    }
}

/// An `error` payload.
fn report(refusal: Refusal, details: &serde_json::Value) -> ErrorReport {
    let Refusal { code, part, message } = refusal;
    let context = ErrorContext { r#where: Some(part.to_owned()), details: JsonObject::of(details).ok() };
    ErrorReport { code: code.into(), message, remediation: None, context: Some(context) }
}
