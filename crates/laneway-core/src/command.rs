//! What can be asked of the engine, and what it answers.
//!
//! Every write of the house is one of these commands. A refusal is an answer, not an error.

use std::fmt;

use crate::capacity::LoadReading;
use crate::lease::{Claim, Denial, Grant, LeaseRequest, LeaseWord};
use crate::schedule::{NotRan, RunMode};
use crate::worker::{Register, Registered, WorkerWord};
use crate::{
    Bytes, DeliveryRow, Fence, Full, JobId, JobSpec, JobState, Name, Outcome, RunId, RunState, RunSubmission,
    RunSubmitted, Schedule, ScheduleId, SchedulePatch, ScheduleSpec, Seq, Settings, Span, TokenRecord,
    TryOutcome, Wall,
};

/// Most bytes of a published message: every listener gets it, and the trail keeps it.
pub const PUBLISHED_BYTES_MAX: usize = 64 * 1024;

/// What can be asked of the engine.
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
    /// Admit a run: all its jobs or none. Answered with [`Reply::RunSubmitted`].
    SubmitRun(Box<RunSubmission>),
    /// End a run: all its jobs that have not ended. Answered with [`Reply::RunCanceled`].
    CancelRun {
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
    Offer(PlaceOffer),
    /// A place is gone. Its open attempts are not: their leases, or their runners, end them.
    Withdraw(Name),
    /// Keep a token, new or changed.
    PutToken(Box<TokenRecord>, Origin),
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
        /// [`crate::EventKind::CallRefused`], `CallDenied` or `CallDone`.
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
    /// End jobs of a session.
    StopSession {
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
    SessionUsage {
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
    ResetSessions {
        /// Who asks.
        origin: Origin,
    },
    /// Make a schedule. Answered with [`Reply::Schedule`].
    PutSchedule(Box<ScheduleSpec>, Origin),
    /// Change a schedule. Answered with [`Reply::Schedule`].
    UpdateSchedule {
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
    DeleteSchedule {
        /// Whose schedule it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// Who asks.
        origin: Origin,
    },
    /// Switch a schedule on or off. Answered with [`Reply::Schedule`].
    ToggleSchedule {
        /// Whose schedule it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// True: on.
        enabled: bool,
        /// Who asks.
        origin: Origin,
    },
    /// Run a schedule by hand. Its slots stay where they are. Answered with [`Reply::ScheduleRan`].
    RunSchedule {
        /// Whose schedule it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The schedule.
        id: ScheduleId,
        /// Whatever the timing says, or only if it is due.
        mode: RunMode,
        /// Who asks.
        origin: Origin,
    },
    /// The sender of the news says how a try ended.
    DeliveryTried {
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
    /// A worker asks for the next job that suits it.
    Claim(Box<Claim>),
    /// A worker asks to run one job now, or not at all.
    RequestLease(Box<LeaseRequest>),
    /// Something is said about an attempt, by the attempt's id alone.
    Lease(Box<LeaseWord>),
    /// A worker registers over a connection. Answered with [`Reply::Registered`].
    Register(Box<Register>),
    /// Something is said over a worker's connection.
    Worker(Box<WorkerWord>),
    /// A worker is to take nothing new (or something again); what it runs goes on.
    DrainWorker {
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
    /// refused.
    RebindWorker {
        /// Whose worker it is.
        tenant: Name,
        /// Its name.
        worker: Name,
        /// The lanes; none: every one.
        lanes: Vec<Name>,
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
    /// Look at the clock.
    Tick,
}

/// Which jobs of a session end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopWhat {
    /// The one that has run longest, or the oldest that waits when none runs.
    One,
    /// All of them; and what was sent before now is refused from now on.
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
    /// True: if there is no room for the job, keep it as rejected (see [`Refusal::recorded`]).
    pub record_refusal: bool,
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
pub struct PlaceOffer {
    /// The place's name.
    pub place: Name,
    /// How attempts there live and die.
    pub mode: PlaceMode,
    /// The kinds it runs. A kind belongs to one place.
    pub kinds: Vec<Name>,
    /// How many attempts it takes at once.
    pub slots: u32,
}

/// How attempts at a place live and die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PlaceMode {
    /// In this process or driven by it: runs at once, needs no heartbeat, dies with the process.
    Attached = 0,
    /// Elsewhere: must say that it runs, lives by heartbeats, outlives the process.
    Leased = 1,
}

impl PlaceMode {
    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The mode of a stored code.
    pub fn from_code(code: u8) -> Option<PlaceMode> {
        [PlaceMode::Attached, PlaceMode::Leased].get(usize::from(code)).copied()
    }
}

/// The engine's answer to one command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The job is admitted (or was before: `existing`).
    Submitted(Submitted),
    /// One answer for each item, in order. For an atomic batch that was refused, every item says why or `batch_refused`.
    Batch(Vec<Result<Submitted, Refusal>>),
    /// Not done, and nothing changed.
    Refused(Refusal),
    /// Done.
    Done,
    /// The job is canceled; it was in `was` before.
    Canceled {
        /// Its number.
        seq: Seq,
        /// The state it was in.
        was: JobState,
    },
    /// Which jobs of a session ended.
    SessionStopped(SessionStopped),
    /// No live job (or token, or open run) of that name is there for this tenant. The store may know an ended one.
    NotFound,
    /// The word about an attempt came too late or is not its runner's: stop. Nothing of what it says is taken; the end of
    /// a run that was told to stop frees its gates all the same.
    Stale,
    /// The attempt goes on; it must be heard of again within `lease`.
    Alive {
        /// From now.
        lease: Span,
        /// True: the run is asked to stop. One that has not begun must not begin: its time may be over.
        stop: bool,
    },
    /// The run is admitted (or was before).
    RunSubmitted(RunSubmitted),
    /// The run has ended.
    RunCanceled {
        /// How many of its jobs were canceled by this.
        canceled: u32,
        /// Where it stands now.
        state: RunState,
    },
    /// The next element of a chain is called; the answer comes as a notice.
    NextCalled,
    /// The next element of a chain is not called, or the call was answered before.
    NextAnswered(crate::NextAnswer),
    /// The schedule as it is stored now; for a deleted one, as it was.
    Schedule(Box<Schedule>),
    /// What became of a run by hand.
    ScheduleRan {
        /// True: there is a job.
        ran: bool,
        /// Why there is none.
        reason: Option<NotRan>,
        /// The job.
        job: Option<JobId>,
    },
    /// The lease is given.
    Granted(Box<Grant>),
    /// No lease is given, and nothing changed.
    Denied(Denial),
    /// The attempt is another worker's. Nothing changed.
    NotYours,
    /// The worker is registered.
    Registered(Box<Registered>),
    /// This very result was taken before. Nothing changed.
    Duplicate,
    /// The job was never dispatched under this number: what was dispatched before is missing. Nothing changed.
    Gap,
}

/// Which jobs of a session ended. All counts are zero when there was none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SessionStopped {
    /// Jobs that ran and are told to stop, those that ran longest first; at most [`SessionStopped::LISTED_MAX`].
    pub running: Vec<JobId>,
    /// Jobs that waited, in their order; at most [`SessionStopped::LISTED_MAX`].
    pub waiting: Vec<JobId>,
    /// How many ran.
    pub running_count: u32,
    /// How many waited.
    pub waiting_count: u32,
    /// How often the session was reset so far.
    pub generation: u64,
}

impl SessionStopped {
    /// Most jobs listed of each sort.
    pub const LISTED_MAX: usize = 100;
}

/// An admitted job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its number inside the house; 0 for an `existing` one.
    pub seq: Seq,
    /// Its id.
    pub job: JobId,
    /// True when an equal submit made it earlier.
    pub existing: bool,
    /// Its state when it was admitted.
    pub state: JobState,
    /// The lane it really runs in.
    pub lane: Name,
    /// When it was admitted.
    pub created_at: Wall,
    /// How many jobs waited in its lane right then, itself included; 0 for an `existing` one.
    pub waiting: u32,
}

/// Why something was not done. Nothing changed, except that a refused job may have been recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A stable word for programs.
    pub code: RefusalCode,
    /// A sentence for people that names the field or limit and the remedy.
    pub message: Box<str>,
    /// When asking again may help.
    pub retry_after: Option<Span>,
    /// For a full queue: whose, and how full.
    pub full: Option<Full>,
    /// The job that keeps the refusal, where the submission asked for one and its lane had room for it.
    pub recorded: Option<JobId>,
}

impl Refusal {
    /// A refusal that asking again does not mend.
    pub fn new(code: RefusalCode, message: impl Into<Box<str>>) -> Refusal {
        Refusal { code, message: message.into(), retry_after: None, full: None, recorded: None }
    }
}

/// Why something was not done, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    /// A queue cap is reached.
    QueueFull,
    /// The idempotency key stands for another request.
    IdempotencyMismatch,
    /// The deadline has passed, or comes before `not_before`.
    DeadlinePast,
    /// Nobody offers the kind, and `strict_kinds` is on.
    UnknownKind,
    /// The server is stopping.
    Draining,
    /// Storage runs low.
    StorageLow,
    /// Another item of the atomic batch was refused.
    BatchRefused,
    /// A part of the command cannot be: too many keys, a kind that another place offers, ….
    Invalid,
    /// Too many tokens or schedules.
    TooMany,
    /// As many jobs of the session wait as the job allows.
    SessionFull,
    /// The job was sent before its session was stopped.
    Stale,
    /// A schedule would never run: its time has passed, or its expression names no date that comes.
    NoFutureRun,
    /// The tenant has a schedule of that name already.
    NameTaken,
    /// It costs more than the machine can ever give.
    NeverFits,
}

impl RefusalCode {
    /// The word users see.
    pub fn word(self) -> &'static str {
        match self {
            RefusalCode::QueueFull => "queue_full",
            RefusalCode::IdempotencyMismatch => "idempotency_mismatch",
            RefusalCode::DeadlinePast => "deadline_past",
            RefusalCode::UnknownKind => "unknown_kind",
            RefusalCode::Draining => "draining",
            RefusalCode::StorageLow => "storage_low",
            RefusalCode::BatchRefused => "batch_refused",
            RefusalCode::Invalid => "invalid",
            RefusalCode::TooMany => "too_many",
            RefusalCode::SessionFull => "session_full",
            RefusalCode::Stale => "stale",
            RefusalCode::NoFutureRun => "no_future_run",
            RefusalCode::NameTaken => "name_taken",
            RefusalCode::NeverFits => "never_fits",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.word(), self.message)
    }
}

impl Origin {
    /// A part of the house acts by itself.
    pub fn house(part: &'static str) -> Origin {
        Origin { actor: Name::fixed(part), request: None }
    }
}
