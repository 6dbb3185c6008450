//! The worker's side of the protocol as a state machine without sockets and clocks: frames, ends of attempts and
//! time go in, [`Action`]s come out.
//!
//! `run.rs` executes the actions. Nothing here blocks, so every dialogue can be tested step by step.

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
use laneway_wire::resend::Backoff;

use super::outbox::{Keep, Outbox, TaskKey};
use super::state::WorkerState;
use super::tasks::{Capacity, Order, Rejection, StopReason, Tasks};

/// The protocol version of this worker.
pub const PROTOCOL_VERSION: u32 = 1;
/// How long handshake and registration may take together.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
/// How many heartbeats without an answer make a lease, unless the scheduler names a lease time.
pub const HEARTBEATS_PER_LEASE: u32 = 3;
/// Most feedback frames that wait for a connection. Beyond it, the oldest are dropped.
pub const FEEDBACK_WAITING_MAX: usize = 1_024;
/// The wait before the next connection. Half of it is random: a thousand workers that lost the same server come back
/// spread out.
const CONNECTION_BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(500), max: Duration::from_secs(30), jitter_pct: 50 };
/// How many invalid frames in a row end a connection.
pub const BAD_FRAMES_MAX: u32 = 32;

/// The time of both clocks: one for waits, one for timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic: the time since the worker started.
    pub mono: Duration,
    /// The wall clock.
    pub wall: Timestamp,
}

/// An action for the driver to execute.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are frames, and none lives long")]
pub enum Action {
    /// Send this frame.
    Send(Frame),
    /// Run this task.
    Start(Order),
    /// Ask this attempt to stop.
    Stop(TaskKey, StopReason),
    /// Drop this attempt at once.
    Abandon(TaskKey),
    /// Install a package. The id is that of the requesting frame.
    Install(Text, Install),
    /// Remove a package. The id is that of the requesting frame.
    Uninstall(Text, Uninstall),
    /// Read a part of a resource. The id is that of the requesting frame.
    Read(Text, ResourceRead),
    /// The answer to a middleware's `next`.
    Next(NextResponse),
    /// Close the connection.
    Close(CloseReason),
}

/// Why the worker closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The connection is unreliable: reconnect after a wait.
    Retry,
    /// The worker has drained.
    Done,
    /// Another worker connected with the same id.
    Superseded,
}

/// What the state machine asks the worker.
pub trait Environment {
    /// Whether there is a handler and everything else that the task requires.
    fn fits(&self, order: &Order, now: Now) -> Result<(), Rejection>;
    /// The load of the machine, without `inflight` and `latency_ms`.
    fn vitals(&self) -> Vitals;
}

/// The time limits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Least time between two heartbeats.
    pub heartbeat: Duration,
    /// Most jitter that is added.
    pub heartbeat_jitter: Duration,
    /// How long an attempt has to end after it was asked to stop.
    pub stop_grace: Duration,
    /// How long running tasks may take when the worker drains.
    pub drain_limit: Duration,
}

/// The load above which a worker requests no more tasks.
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

/// The identity and configuration of the worker.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The tenant whose jobs the worker runs.
    pub tenant: Text,
    /// The identity of the worker.
    pub identity: WorkerIdentity,
    /// The time limits.
    pub timing: Timing,
    /// How much may run at once.
    pub capacity: Capacity,
    /// The load above which the worker requests no more tasks.
    pub thresholds: Thresholds,
    /// Distinguishes the frames of this process from those of an earlier one with the same name.
    pub instance: u64,
    /// Identifies this process to the scheduler. It is unique.
    pub boot_id: Text,
}

/// A heartbeat without an acknowledgement.
struct Beat {
    id: Text,
    sent: Duration,
}

/// Counters of the protocol, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Heartbeats sent with `healthy: false`.
    pub degraded: u64,
    /// Frames sent again.
    pub resent: u64,
    /// Duplicate dispatches.
    pub duplicates: u64,
    /// Dispatches that were rejected.
    pub rejected: u64,
    /// Outcomes that the scheduler rejected.
    pub stale: u64,
    /// Feedback frames that were dropped.
    pub feedback_dropped: u64,
    /// Rejections and reports that were sent once and not kept, because the outbox was full.
    pub unkept: u64,
}

/// The state machine.
pub struct Protocol {
    profile: Profile,
    state: WorkerState,
    tasks: Tasks,
    outbox: Outbox,
    feedback: VecDeque<Frame>,
    rng: fastrand::Rng,
    next_id: u64,
    /// The frames of the handshake, and its deadline.
    handshake: Option<(Text, Register)>,
    registration: Option<(Text, Duration)>,
    handshake_limit: Option<Duration>,
    beats: VecDeque<Beat>,
    next_beat: Option<Duration>,
    latency_ms: Option<u64>,
    /// The length of a lease, and when the current one ends.
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
    /// A state machine without a connection.
    pub fn new(profile: Profile, rng: fastrand::Rng) -> Protocol {
        let lease = (profile.timing.heartbeat + profile.timing.heartbeat_jitter) * HEARTBEATS_PER_LEASE;
        Protocol {
            tasks: Tasks::new(profile.capacity.clone()),
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

    /// The state of the session.
    pub fn state(&self) -> WorkerState {
        self.state
    }

    /// Counters since the start.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The running and waiting tasks.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// How many outcomes wait for an acknowledgement.
    pub fn outcomes_waiting(&self) -> usize {
        self.outbox.outcomes()
    }

    /// When the next connection may be tried.
    pub fn retry_at(&self) -> Duration {
        self.retry_at
    }

    /// The identity and configuration.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// A connection is being opened.
    pub fn dial(&mut self) {
        if self.state == WorkerState::Backoff {
            self.go(WorkerState::New);
        }
    }

    /// A connection is open: sends the handshake. `register` is sent when the handshake is acknowledged.
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

    /// The connection was closed, or could not be opened.
    pub fn disconnected(&mut self, now: Now) {
        if matches!(self.state, WorkerState::Closed | WorkerState::Backoff) {
            return;
        }
        self.outbox.forget_session();
        self.tasks.forget_session();
        self.beats.clear();
        self.next_beat = None;
        self.handshake = None;
        self.registration = None;
        self.handshake_limit = None;
        if self.state == WorkerState::New {
            // A connection that never opened counts as a failed handshake.
            self.go(WorkerState::Handshaking);
        }
        self.go(WorkerState::Backoff);
        let random = self.rng.f64();
        self.retry_at = now.mono + CONNECTION_BACKOFF.wait(self.failures, random);
        self.failures = self.failures.saturating_add(1);
    }

    /// Drains the worker: it takes no more tasks, and running tasks get `limit` or the profile's limit.
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

    /// Sends a message of a running task, or keeps it for the next connection.
    pub fn send_for_task(&mut self, now: Now, key: &TaskKey, message: Message, out: &mut Vec<Action>) {
        let wants_ack = matches!(message, Message::NextRequest(_));
        if let Message::NextRequest(request) = &message {
            self.tasks.call(key, &request.request_id);
        }
        let frame = self.frame(now, message);
        let frame = Frame { corr: Some(key.task_id.clone()), seq: Some(key.seq), ..frame };
        if wants_ack {
            let frame = Frame { ack: AckNote::requested(), ..frame };
            self.send_report(now, frame, out);
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
        self.send_report(now, frame, out);
    }

    /// A part of a resource was read, or could not be. It is not kept: the reader repeats the request if it
    /// still needs it.
    pub fn part_read(
        &mut self,
        now: Now,
        asked: Text,
        answer: Result<ResourceData, Rejection>,
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
            Err(rejection) => {
                self.send_error(now, Some(asked), report(rejection, &serde_json::json!({})), out)
            }
        }
    }

    fn close_if_drained(&mut self, out: &mut Vec<Action>) {
        if self.draining && !self.closed && self.tasks.len() == 0 && self.outbox.outcomes() == 0 {
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
        tracing::debug!(from = self.state.as_str(), to = to.as_str(), "session");
        self.state = to;
    }

    /// Sends a frame if there is a connection, and keeps it until it is acknowledged.
    fn send_kept(&mut self, now: Now, frame: Frame, keep: Keep, out: &mut Vec<Action>) {
        let is_greeting = keep == Keep::Greeting;
        let random = self.rng.f64();
        self.outbox.put(now.mono, frame.clone(), keep, random);
        if self.state.is_up() || is_greeting {
            out.push(Action::Send(frame));
        }
    }

    /// Sends a report, and keeps it unless the outbox is full. Frames without an acknowledgement must not
    /// grow without limit; the space for outcomes is reserved when tasks are accepted.
    fn send_report(&mut self, now: Now, frame: Frame, out: &mut Vec<Action>) {
        if !self.outbox.is_full(self.tasks.len()) {
            return self.send_kept(now, frame, Keep::Report, out);
        }
        self.tally.unkept += 1;
        if self.state.is_up() {
            out.push(Action::Send(frame));
        }
    }

    /// A frame of this worker.
    fn frame(&mut self, now: Now, message: Message) -> Frame {
        let id = format!("{}-{:08x}-{}", message.kind().as_str(), self.profile.instance, self.next_id);
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

    /// Sends an error about a frame. It is not kept: the sender repeats frames that matter to it.
    fn send_error(&mut self, now: Now, corr: Option<Text>, report: ErrorReport, out: &mut Vec<Action>) {
        let frame = self.frame(now, Message::Error(report));
        out.push(Action::Send(Frame { corr, ..frame }));
    }
}

/// An `error` payload.
fn report(rejection: Rejection, details: &serde_json::Value) -> ErrorReport {
    let Rejection { code, part, message } = rejection;
    let context = ErrorContext { r#where: Some(part.to_owned()), details: JsonObject::of(details).ok() };
    ErrorReport { code: code.into(), message, remediation: None, context: Some(context) }
}
