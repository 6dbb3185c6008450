//! The commands of the engine. Every write is one of these commands; the answers are in `reply.rs`.

use std::sync::Arc;

use crate::capacity::LoadReading;
use crate::lease::{Claim, LeaseMessage, LeaseRequest};
use crate::schedule::FireMode;
use crate::worker::{Register, WorkerMessage};
use crate::{
    Bytes, DeliveryRow, Fence, JobId, JobPatch, JobSpec, Name, Outcome, RunId, RunSubmission, ScheduleId,
    SchedulePatch, ScheduleSpec, Seq, Settings, Span, StoredJob, TokenRecord, TryOutcome, Wall,
};

pub use crate::reply::{Rejection, RejectionCode, Reply, SessionStopped, Submitted};

/// Most bytes of a published message: every listener gets it, and the event log keeps it.
pub const PUBLISHED_BYTES_MAX: usize = 64 * 1024;

/// A command. Commands about jobs are listed here; each other subject has an enum of its own.
#[derive(Clone, Debug)]
pub enum Command {
    /// Admit one job. Shared, because the loop keeps a copy of every command until it is durable.
    Submit(Arc<Submission>),
    /// Admit many jobs: each for itself, or all or none.
    SubmitBatch {
        /// The jobs, in order. Shared like a single job.
        items: Arc<Vec<Submission>>,
        /// True: all or none.
        atomic: bool,
    },
    /// A runner reports that it has started the attempt that it was offered.
    Start(Fence),
    /// A runner reports that its attempt still runs. Its lease starts anew.
    Heartbeat(Fence),
    /// A runner reports that its attempt has ended.
    Finish(Fence, Outcome),
    /// Store log lines of a running attempt.
    Log(Fence, Vec<LogLine>),
    /// End a job.
    Cancel {
        /// The tenant that the job must belong to. `None`: any.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
        /// The caller.
        origin: Origin,
    },
    /// Change a waiting job: all parts of the patch or none. Answered with [`Reply::Updated`].
    Update {
        /// The tenant that the job must belong to. `None`: any.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
        /// The changes.
        patch: JobPatch,
        /// The caller.
        origin: Origin,
    },
    /// Delete an ended job with everything that is stored of it. Its events stay. Answered with [`Reply::Deleted`].
    Delete {
        /// The tenant that the job must belong to. `None`: any.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
        /// The stored job; the loop looks it up before it applies the command.
        stored: Option<Box<StoredJob>>,
        /// The caller.
        origin: Origin,
    },
    /// Free the keys that an ended job keeps. Answered with [`Reply::KeysReleased`], also when it keeps none.
    ReleaseKeys {
        /// The tenant that the job must belong to. `None`: any.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
        /// The caller.
        origin: Origin,
    },
    /// About records.
    Record(Box<RecordCommand>),
    /// About workflow runs.
    Workflow(WorkflowCommand),
    /// About sessions.
    Session(SessionCommand),
    /// About schedules.
    Schedule(ScheduleCommand),
    /// About webhook deliveries.
    Delivery(DeliveryCommand),
    /// About leases of pull workers.
    Lease(LeaseCommand),
    /// About push workers.
    Worker(WorkerCommand),
    /// About the server: settings, executors, tokens, readings, admission and the event log.
    Admin(AdminCommand),
    /// Process everything whose time has come.
    Tick,
}

/// Commands about records. A record that has another version than expected is answered with [`Reply::Conflict`].
#[derive(Clone, Debug)]
pub enum RecordCommand {
    /// Store a record, new or changed. Answered with [`Reply::Record`]: the record as stored.
    Put {
        /// The tenant of the record.
        tenant: Name,
        /// Its collection.
        collection: Name,
        /// Its id within the collection.
        id: Name,
        /// The version that it must have; 0: there must be none. `None`: any, or none.
        expected_version: Option<u64>,
        /// Its content; at most [`crate::record::BODY_BYTES_MAX`].
        body: Bytes,
        /// The caller.
        origin: Origin,
    },
    /// Delete a record. Answered with [`Reply::Record`]: the record as it was.
    Delete {
        /// The tenant of the record.
        tenant: Name,
        /// Its collection.
        collection: Name,
        /// Its id within the collection.
        id: Name,
        /// The version that it must have. `None`: any.
        expected_version: Option<u64>,
        /// The caller.
        origin: Origin,
    },
}

/// Commands about workflow runs.
#[derive(Clone, Debug)]
pub enum WorkflowCommand {
    /// Admit a run: all its jobs or none. Answered with [`Reply::RunSubmitted`].
    Submit(Box<RunSubmission>),
    /// End a run: all its jobs that have not ended. Answered with [`Reply::RunCanceled`].
    Cancel {
        /// The tenant that the run must belong to. `None`: any.
        tenant: Option<Name>,
        /// The run.
        run: RunId,
        /// The caller.
        origin: Origin,
    },
    /// A running middleware calls the next element of its chain. Answered with [`Reply::NextCalled`], and later with
    /// [`crate::Notice::Next`]; or at once with [`Reply::NextAnswered`].
    CallNext(Box<crate::NextCall>),
}

/// Commands about sessions.
#[derive(Clone, Debug)]
pub enum SessionCommand {
    /// End jobs of a session.
    Stop {
        /// The tenant of the session.
        tenant: Name,
        /// The session.
        key: Name,
        /// Which of its jobs.
        what: StopWhat,
        /// The caller.
        origin: Origin,
    },
    /// Report how full the context window of a session is. Stops nothing; it limits how many of the session's jobs
    /// may start.
    Usage {
        /// The tenant of the session.
        tenant: Name,
        /// The session.
        key: Name,
        /// Tokens used.
        tokens: u64,
        /// Tokens that its context window holds; 0: not known.
        window: u64,
    },
    /// Restart every session in this process: its running attempts stop, and their jobs are queued again at no cost.
    ResetAll {
        /// The caller.
        origin: Origin,
    },
}

/// Commands about schedules.
#[derive(Clone, Debug)]
pub enum ScheduleCommand {
    /// Create a schedule. Answered with [`Reply::Schedule`].
    Put(Box<ScheduleSpec>, Origin),
    /// Change a schedule. Answered with [`Reply::Schedule`].
    Update {
        /// The tenant that the schedule must belong to. `None`: any.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// The changes.
        patch: Box<SchedulePatch>,
        /// The caller.
        origin: Origin,
    },
    /// Delete a schedule. Its active firings continue and its log stays. Answered with the schedule as it was.
    Delete {
        /// The tenant that the schedule must belong to. `None`: any.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// The caller.
        origin: Origin,
    },
    /// Enable or disable a schedule. Answered with [`Reply::Schedule`].
    Toggle {
        /// The tenant that the schedule must belong to. `None`: any.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// True: enabled.
        enabled: bool,
        /// The caller.
        origin: Origin,
    },
    /// Fire a schedule by hand. Its slots do not change. Answered with [`Reply::ScheduleFiredByHand`].
    Fire {
        /// The tenant that the schedule must belong to. `None`: any.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// Always, or only if a slot has come.
        mode: FireMode,
        /// The caller.
        origin: Origin,
    },
}

/// Commands about webhook deliveries.
#[derive(Clone, Debug)]
pub enum DeliveryCommand {
    /// The webhook sender reports how a try ended.
    Tried {
        /// The job of the delivery.
        seq: Seq,
        /// The number of the try, from its notice.
        number: u32,
        /// How long it took.
        took: Span,
        /// How it ended.
        outcome: TryOutcome,
    },
    /// Deliver the webhook of a job's end again, whatever the state of its delivery.
    Redeliver {
        /// The tenant that the job must belong to. `None`: any.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
        /// The stored delivery; the loop looks it up before it applies the command.
        stored: Option<Box<DeliveryRow>>,
        /// The caller.
        origin: Origin,
    },
}

/// Commands about leases of pull workers.
#[derive(Clone, Debug)]
pub enum LeaseCommand {
    /// A worker claims the next job that fits it.
    Claim(Box<Claim>),
    /// A worker requests to run one job now, or not at all.
    Request(Box<LeaseRequest>),
    /// A report about an attempt, which is named by its id alone.
    Message(Box<LeaseMessage>),
}

/// Commands about push workers.
#[derive(Clone, Debug)]
pub enum WorkerCommand {
    /// A worker registers over a connection. Answered with [`Reply::Registered`].
    Register(Box<Register>),
    /// A message of a worker over its connection.
    Message(Box<WorkerMessage>),
    /// A worker is to get no new tasks, or is to get tasks again. Its running tasks continue.
    Drain {
        /// The tenant of the worker.
        tenant: Name,
        /// Its name.
        worker: Name,
        /// False: it gets tasks again.
        drain: bool,
        /// The caller.
        origin: Origin,
    },
    /// A worker serves these lanes from now on, whatever it offers. Its running tasks continue. An unknown lane is
    /// rejected.
    Rebind {
        /// The tenant of the worker.
        tenant: Name,
        /// Its name.
        worker: Name,
        /// The lanes; none: every lane.
        lanes: Vec<Name>,
        /// The caller.
        origin: Origin,
    },
}

/// Commands about the server.
#[derive(Clone, Debug)]
pub enum AdminCommand {
    /// Replace all settings at once.
    Configure {
        /// The settings from now on.
        settings: Box<Settings>,
        /// Bytes to store so that the settings apply after a restart; `None` keeps the stored ones.
        overrides: Option<Bytes>,
        /// What changed, for the audit list.
        detail: Box<str>,
        /// The caller.
        origin: Origin,
    },
    /// An executor appears, or changes what it offers.
    Offer(ExecutorOffer),
    /// An executor is gone. Its open attempts stay open until their leases or their runners end them.
    Withdraw(Name),
    /// Keep a token, new or changed.
    PutToken(Box<TokenRecord>, Origin),
    /// Replace a token by another one with the same owner.
    RotateToken {
        /// The public part of the old one.
        old: Name,
        /// When the old one ends.
        ends_at: Wall,
        /// The new one.
        token: Box<TokenRecord>,
        /// The caller.
        origin: Origin,
    },
    /// End a token.
    RevokeToken {
        /// Its public part.
        id: Name,
        /// The tenant that the token must belong to. `None`: any.
        tenant: Option<Name>,
        /// The caller.
        origin: Origin,
    },
    /// Write an audit entry about a call that needs no other command.
    Note {
        /// [`crate::EventKind::CallRejected`], `CallDenied` or `CallDone`.
        kind: crate::EventKind,
        /// The tenant of the call.
        tenant: Option<Name>,
        /// The call and its outcome.
        detail: Box<str>,
        /// The caller.
        origin: Origin,
    },
    /// Publish an outbound message to everyone who follows events.
    Publish {
        /// The tenant of the message.
        tenant: Name,
        /// The message, in the publisher's format; at most [`PUBLISHED_BYTES_MAX`].
        detail: Box<str>,
    },
    /// Reject new jobs from now on, or admit them again. Waiting and running jobs continue. Not stored: a restart
    /// admits jobs.
    SetAdmission {
        /// True: jobs are admitted.
        open: bool,
        /// The caller.
        origin: Origin,
    },
    /// A reading of the machine's load.
    Load(LoadReading),
    /// Delete jobs of a lane that ended before a time, whatever its retention; a bounded number of them.
    Forget {
        /// The lane.
        lane: Name,
        /// Only jobs that ended before this time.
        finished_before: Wall,
    },
    /// Close or open admission because of low storage.
    StorageLow(bool),
    /// Stop admitting and starting jobs. Cancel the waiting jobs of lanes whose settings say so.
    Drain,
}

/// Which jobs of a session end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopWhat {
    /// The one that has run longest, or the oldest waiting one when none runs.
    One,
    /// All of them. Jobs that were sent before now are stale.
    All,
    /// All of them, and the session starts a new generation.
    Reset,
}

/// One job to admit.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The job.
    pub spec: JobSpec,
    /// The payload for the handler.
    pub payload: Bytes,
    /// The caller.
    pub origin: Origin,
    /// What the spec's idempotency key stands for; the loop looks it up before it applies the command.
    pub prior: Option<Prior>,
    /// True: if no queue has space for the job, record it as rejected (see [`Rejection::recorded`]).
    pub record_rejection: bool,
    /// True: an unknown lane is rejected. False: the job runs in `main`, as the dialects promise.
    pub strict_lane: bool,
}

impl Submission {
    /// A submission whose rejection is not recorded and whose unknown lane means `main`.
    #[inline]
    pub fn new(spec: JobSpec, payload: Bytes, origin: Origin) -> Submission {
        Submission { spec, payload, origin, prior: None, record_rejection: false, strict_lane: false }
    }
}

/// The earlier job of an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// The job.
    pub job: JobId,
    /// Digest of the request that created it.
    pub digest: [u8; 32],
}

/// The caller of a command, and its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A token's id, or a part of the server.
    pub actor: Name,
    /// The id of the request.
    pub request: Option<Name>,
}

/// A log line of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written.
    pub at: Wall,
    /// `stdout`, `stderr`, `log`, ….
    pub stream: Name,
    /// The text; the runner limits its length.
    pub text: Box<str>,
}

/// An executor and what it offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorOffer {
    /// The name of the executor.
    pub executor: Name,
    /// How its attempts live and die.
    pub mode: ExecutorMode,
    /// The kinds that it runs. A kind belongs to one executor.
    pub kinds: Vec<Name>,
    /// How many attempts it runs at once.
    pub slots: u32,
}

/// How attempts at an executor live and die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExecutorMode {
    /// In this process or driven by it: an attempt runs at once, needs no heartbeat, and dies with the process.
    Attached = 0,
    /// Elsewhere: a runner acknowledges the attempt and sends heartbeats. The attempt outlives the process.
    Leased = 1,
}

impl ExecutorMode {
    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The mode of a stored code.
    pub fn from_code(code: u8) -> Option<ExecutorMode> {
        [ExecutorMode::Attached, ExecutorMode::Leased].get(usize::from(code)).copied()
    }
}

impl Origin {
    /// A part of the server acts by itself.
    pub fn server(part: &'static str) -> Origin {
        Origin { actor: Name::fixed(part), request: None }
    }
}
