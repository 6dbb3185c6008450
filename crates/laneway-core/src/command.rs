//! What can be asked of the engine. Every write is one of these commands; the answers are in `reply.rs`.

use crate::capacity::LoadReading;
use crate::lease::{Claim, LeaseMessage, LeaseRequest};
use crate::schedule::FireMode;
use crate::worker::{Register, WorkerMessage};
use crate::{
    Bytes, DeliveryRow, Fence, JobId, JobSpec, Name, Outcome, RunId, RunSubmission, ScheduleId,
    SchedulePatch, ScheduleSpec, Seq, Settings, Span, TokenRecord, TryOutcome, Wall,
};

pub use crate::reply::{Rejection, RejectionCode, Reply, SessionStopped, Submitted};

/// Most bytes of a published message: every listener gets it, and the trail keeps it.
pub const PUBLISHED_BYTES_MAX: usize = 64 * 1024;

/// What can be asked of the engine. What is asked of a job stands here; each other subject has commands of its own.
#[derive(Clone, Debug)]
pub enum Command {
    /// Admit one job.
    Submit(Box<Submission>),
    /// Admit many jobs: each for itself, or all or none.
    SubmitBatch {
        /// The jobs, in order.
        items: Vec<Submission>,
        /// True: all or none.
        atomic: bool,
    },
    /// A worker says that it runs what it was offered.
    Start(Fence),
    /// A worker says that it still runs; its lease starts anew.
    Heartbeat(Fence),
    /// A runner says that its attempt has ended.
    Finish(Fence, Outcome),
    /// Keep lines that a running attempt wrote.
    Log(Fence, Vec<LogLine>),
    /// End a job.
    Cancel {
        /// Whose job it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
        /// Who asks.
        origin: Origin,
    },
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
    /// Look at the clock.
    Tick,
}

/// What can be asked of workflow runs.
#[derive(Clone, Debug)]
pub enum WorkflowCommand {
    /// Admit a run: all its jobs or none. Answered with [`Reply::RunSubmitted`].
    Submit(Box<RunSubmission>),
    /// End a run: all its jobs that have not ended. Answered with [`Reply::RunCanceled`].
    Cancel {
        /// Whose run it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The run.
        run: RunId,
        /// Who asks.
        origin: Origin,
    },
    /// A running middleware calls the next element of its chain. Answered with [`Reply::NextCalled`], and later with
    /// [`crate::Notice::Next`]; or at once with [`Reply::NextAnswered`].
    CallNext(Box<crate::NextCall>),
}

/// What can be asked of sessions.
#[derive(Clone, Debug)]
pub enum SessionCommand {
    /// End jobs of a session.
    Stop {
        /// Whose session it is.
        tenant: Name,
        /// The session.
        key: Name,
        /// Which of its jobs.
        what: StopWhat,
        /// Who asks.
        origin: Origin,
    },
    /// How full the context of a session is. Stops nothing; decides how many of its jobs may start.
    Usage {
        /// Whose session it is.
        tenant: Name,
        /// The session.
        key: Name,
        /// Tokens used.
        tokens: u64,
        /// Tokens that its context holds; 0: not known.
        window: u64,
    },
    /// Begin every session anew in this process: its runs here stop and their jobs are queued again, at no cost.
    ResetAll {
        /// Who asks.
        origin: Origin,
    },
}

/// What can be asked of schedules.
#[derive(Clone, Debug)]
pub enum ScheduleCommand {
    /// Make a schedule. Answered with [`Reply::Schedule`].
    Put(Box<ScheduleSpec>, Origin),
    /// Change a schedule. Answered with [`Reply::Schedule`].
    Update {
        /// Whose schedule it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// What is to be changed.
        patch: Box<SchedulePatch>,
        /// Who asks.
        origin: Origin,
    },
    /// Delete a schedule; its runs go on and its log stays. Answered with the schedule as it was.
    Delete {
        /// Whose schedule it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// Who asks.
        origin: Origin,
    },
    /// Switch a schedule on or off. Answered with [`Reply::Schedule`].
    Toggle {
        /// Whose schedule it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// True: on.
        enabled: bool,
        /// Who asks.
        origin: Origin,
    },
    /// Run a schedule by hand. Its slots stay where they are. Answered with [`Reply::ScheduleFiredByHand`].
    Fire {
        /// Whose schedule it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// Whatever the timing says, or only if it is due.
        mode: FireMode,
        /// Who asks.
        origin: Origin,
    },
}

/// What can be asked of webhook deliveries.
#[derive(Clone, Debug)]
pub enum DeliveryCommand {
    /// The sender of the news says how a try ended.
    Tried {
        /// The job whose end is told.
        seq: Seq,
        /// The try, as its notice numbered it.
        number: u32,
        /// How long it took.
        took: Span,
        /// How it ended.
        outcome: TryOutcome,
    },
    /// Tell the news of a job's end again, whatever became of it before.
    Redeliver {
        /// Whose job it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
        /// What the store knows of the delivery; the loop looks it up before the engine is asked.
        stored: Option<Box<DeliveryRow>>,
        /// Who asks.
        origin: Origin,
    },
}

/// What can be asked of leases of pull workers.
#[derive(Clone, Debug)]
pub enum LeaseCommand {
    /// A worker asks for the next job that suits it.
    Claim(Box<Claim>),
    /// A worker asks to run one job now, or not at all.
    Request(Box<LeaseRequest>),
    /// Something is said about an attempt, by the attempt's id alone.
    Message(Box<LeaseMessage>),
}

/// What can be asked of push workers.
#[derive(Clone, Debug)]
pub enum WorkerCommand {
    /// A worker registers over a connection. Answered with [`Reply::Registered`].
    Register(Box<Register>),
    /// Something is said over a worker's connection.
    Message(Box<WorkerMessage>),
    /// A worker is to take nothing new (or something again); what it runs goes on.
    Drain {
        /// Whose worker it is.
        tenant: Name,
        /// Its name.
        worker: Name,
        /// False: it takes something again.
        drain: bool,
        /// Who asks.
        origin: Origin,
    },
    /// A worker serves these lanes from now on, whatever it offers; what it runs goes on. A lane that is not there is
    /// rejected.
    Rebind {
        /// Whose worker it is.
        tenant: Name,
        /// Its name.
        worker: Name,
        /// The lanes; none: every one.
        lanes: Vec<Name>,
        /// Who asks.
        origin: Origin,
    },
}

/// What can be asked of the server.
#[derive(Clone, Debug)]
pub enum AdminCommand {
    /// Replace all settings at once.
    Configure {
        /// The settings from now on.
        settings: Box<Settings>,
        /// What must be kept so that the settings hold after a restart; `None` keeps what is kept already.
        overrides: Option<Bytes>,
        /// What changed, for the audit list.
        detail: Box<str>,
        /// Who asks.
        origin: Origin,
    },
    /// A place to run jobs appears, or changes what it offers.
    Offer(ExecutorOffer),
    /// A place is gone. Its open attempts are not: their leases, or their runners, end them.
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
        /// Who asks.
        origin: Origin,
    },
    /// End a token.
    RevokeToken {
        /// Its public part.
        id: Name,
        /// Whose token it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// Who asks.
        origin: Origin,
    },
    /// Keep a line for the audit list about a call that reaches no other command.
    Note {
        /// [`crate::EventKind::CallRejected`], `CallDenied` or `CallDone`.
        kind: crate::EventKind,
        /// Whose call it was.
        tenant: Option<Name>,
        /// What was asked, and what became of it.
        detail: Box<str>,
        /// Who asked.
        origin: Origin,
    },
    /// Tell everybody who listens of a message that is to go out by a channel.
    Publish {
        /// Whose message it is.
        tenant: Name,
        /// The message, in the words of whoever publishes it; at most [`PUBLISHED_BYTES_MAX`].
        detail: Box<str>,
    },
    /// Reject new jobs from now on, or admit them again. What waits and runs goes on. Not kept: a restart admits jobs.
    SetAdmission {
        /// True: jobs are admitted.
        open: bool,
        /// Who asks.
        origin: Origin,
    },
    /// What a probe says of the machine.
    Load(LoadReading),
    /// Forget jobs of a lane that ended before a time, whatever its retention; a bounded number of them.
    Forget {
        /// The lane.
        lane: Name,
        /// Only jobs that ended before this time.
        finished_before: Wall,
    },
    /// Close or open admission because of low storage.
    StorageLow(bool),
    /// Stop admitting and starting; cancel what waits in lanes that say so.
    Drain,
}

/// Which jobs of a session end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopWhat {
    /// The one that has run longest, or the oldest that waits when none runs.
    One,
    /// All of them; and what was sent before now is rejected from now on.
    All,
    /// All of them, and the session begins a new generation.
    Reset,
}

/// One job to admit.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What is asked for.
    pub spec: JobSpec,
    /// What the handler gets.
    pub payload: Bytes,
    /// Who asks.
    pub origin: Origin,
    /// What the store knows of the spec's idempotency key; the loop looks it up before the engine is asked.
    pub prior: Option<Prior>,
    /// True: if there is no room for the job, keep it as rejected (see [`Rejection::recorded`]).
    pub record_rejection: bool,
    /// True: a lane that does not exist is rejected. False: the job runs in `main`, as the dialects promise.
    pub strict_lane: bool,
}

impl Submission {
    /// A submission whose rejection is not recorded and whose unknown lane means `main`.
    pub fn new(spec: JobSpec, payload: Bytes, origin: Origin) -> Submission {
        Submission { spec, payload, origin, prior: None, record_rejection: false, strict_lane: false }
    }
}

/// The job that an idempotency key stands for already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// The job.
    pub job: JobId,
    /// Digest of the request that made it.
    pub digest: [u8; 32],
}

/// Who asks, and in which call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A token's id, or a part of the house.
    pub actor: Name,
    /// The call's id.
    pub request: Option<Name>,
}

/// A line that a running attempt wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written.
    pub at: Wall,
    /// `stdout`, `stderr`, `log`, ….
    pub stream: Name,
    /// The text, bounded by the runner.
    pub text: Box<str>,
}

/// A place to run jobs and what it offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorOffer {
    /// The place's name.
    pub executor: Name,
    /// How attempts there live and die.
    pub mode: ExecutorMode,
    /// The kinds it runs. A kind belongs to one place.
    pub kinds: Vec<Name>,
    /// How many attempts it takes at once.
    pub slots: u32,
}

/// How attempts at a place live and die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExecutorMode {
    /// In this process or driven by it: runs at once, needs no heartbeat, dies with the process.
    Attached = 0,
    /// Elsewhere: must say that it runs, lives by heartbeats, outlives the process.
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
