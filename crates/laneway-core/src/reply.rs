//! The answers of the engine to commands. A rejection is an answer, not an error.

use std::fmt;

use crate::lease::{Denial, Grant};
use crate::schedule::NotFired;
use crate::worker::Registered;
use crate::{Full, JobId, JobState, Key, Name, Record, RunState, RunSubmitted, Schedule, Seq, Span, Wall};

/// The engine's answer to one command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The job is admitted (or was before: `existing`).
    Submitted(Submitted),
    /// One answer for each item, in order. For a rejected atomic batch, every item has its rejection or
    /// `batch_rejected`.
    Batch(Vec<Result<Submitted, Rejection>>),
    /// Not done, and nothing changed.
    Rejected(Rejection),
    /// Done.
    Done,
    /// The job is canceled; it was in `was` before.
    Canceled {
        /// Its number.
        seq: Seq,
        /// The state it was in.
        was: JobState,
    },
    /// The waiting job is changed, or was as it should be before.
    Updated {
        /// Its number.
        seq: Seq,
        /// The state it is in now.
        state: JobState,
    },
    /// The ended job is deleted.
    Deleted {
        /// Its number.
        seq: Seq,
    },
    /// Which jobs of a session ended.
    SessionStopped(SessionStopped),
    /// No live job (or token, or open run) of that name is there for this tenant. The store may know an ended one.
    NotFound,
    /// The report about an attempt came too late, or its fence is wrong: the runner must stop. The report changes
    /// nothing, except that the end of a stopped attempt frees its slots.
    Stale,
    /// The attempt continues. Its runner must report again within `lease`.
    Alive {
        /// From now.
        lease: Span,
        /// True: the attempt must stop. One that has not begun must not begin, because its time may be over.
        stop: bool,
    },
    /// The keys that the job kept, which are free now. Empty: it kept none.
    KeysReleased(Vec<Key>),
    /// The record as it is stored now; for a deleted one, as it was.
    Record(Box<Record>),
    /// The record has another version than expected. Nothing changed.
    Conflict {
        /// Its version; 0: there is no such record.
        version: u64,
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
    /// The outcome of a manual fire.
    ScheduleFiredByHand {
        /// True: there is a job.
        fired: bool,
        /// Why there is none.
        reason: Option<NotFired>,
        /// The job.
        job: Option<JobId>,
    },
    /// The lease is granted.
    Granted(Box<Grant>),
    /// No lease is granted, and nothing changed.
    Denied(Denial),
    /// The attempt is another worker's. Nothing changed.
    NotYours,
    /// The worker is registered.
    Registered(Box<Registered>),
    /// This very result was taken before. Nothing changed.
    Duplicate,
    /// The job was never dispatched under this number. Nothing changed.
    Gap,
}

/// Which jobs of a session ended. All counts are zero when there was none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SessionStopped {
    /// Jobs that ran and are being stopped, those that ran longest first; at most [`SessionStopped::LISTED_MAX`].
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
    /// Its number inside the server; 0 for an `existing` one.
    pub seq: Seq,
    /// Its id.
    pub job: JobId,
    /// True when an equal submit created it earlier.
    pub existing: bool,
    /// Its state when it was admitted.
    pub state: JobState,
    /// The lane in which it actually runs.
    pub lane: Name,
    /// When it was admitted.
    pub created_at: Wall,
    /// How many jobs waited in its lane right then, itself included; 0 for an `existing` one.
    pub waiting: u32,
    /// False: no executor or worker runs its kind now, so it waits until one does.
    pub served: bool,
}

/// Why something was not done. Nothing changed, except that a rejected job may have been recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// A stable code for programs.
    pub code: RejectionCode,
    /// A sentence for people that names the field or limit and the remedy.
    pub message: Box<str>,
    /// When another call may succeed.
    pub retry_after: Option<Span>,
    /// For a full queue: its scope, and how full it is.
    pub full: Option<Full>,
    /// The job that records the rejection, where the submission requested a record and the lane had space for it.
    pub recorded: Option<JobId>,
}

impl Rejection {
    /// A rejection that does not depend on time.
    pub fn new(code: RejectionCode, message: impl Into<Box<str>>) -> Rejection {
        Rejection { code, message: message.into(), retry_after: None, full: None, recorded: None }
    }
}

/// Why something was not done, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionCode {
    /// A queue cap is reached.
    QueueFull,
    /// The idempotency key stands for another request.
    IdempotencyMismatch,
    /// The deadline has passed, or comes before `not_before`.
    DeadlinePast,
    /// No executor or worker offers the kind, and `strict_kinds` is on.
    UnknownKind,
    /// There is no such lane, and the submission is strict about lanes.
    UnknownLane,
    /// The server is stopping.
    Draining,
    /// Storage runs low.
    StorageLow,
    /// Another item of the atomic batch was rejected.
    BatchRejected,
    /// A part of the command is invalid: too many keys, a kind that another executor offers, ….
    Invalid,
    /// Too many tokens or schedules.
    TooMany,
    /// As many jobs of the session wait as the job allows.
    SessionFull,
    /// The job was sent before its session was stopped.
    Stale,
    /// A schedule would never fire: its time has passed, or its expression names no future date.
    NoFutureRun,
    /// The tenant has a schedule of that name already, or a worker of that name that answers.
    NameTaken,
    /// It costs more than the machine can ever give.
    NeverFits,
    /// The job does not wait: an attempt is open.
    NotWaiting,
    /// The job has not ended, or its last attempt has not.
    NotEnded,
    /// Something that has not ended needs the stored job: its run, its keys, its webhook, or the job that it was merged into.
    InUse,
}

impl RejectionCode {
    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            RejectionCode::QueueFull => "queue_full",
            RejectionCode::IdempotencyMismatch => "idempotency_mismatch",
            RejectionCode::DeadlinePast => "deadline_past",
            RejectionCode::UnknownKind => "unknown_kind",
            RejectionCode::UnknownLane => "unknown_lane",
            RejectionCode::Draining => "draining",
            RejectionCode::StorageLow => "storage_low",
            RejectionCode::BatchRejected => "batch_rejected",
            RejectionCode::Invalid => "invalid",
            RejectionCode::TooMany => "too_many",
            RejectionCode::SessionFull => "session_full",
            RejectionCode::Stale => "stale",
            RejectionCode::NoFutureRun => "no_future_run",
            RejectionCode::NameTaken => "name_taken",
            RejectionCode::NeverFits => "never_fits",
            RejectionCode::NotWaiting => "not_waiting",
            RejectionCode::NotEnded => "not_ended",
            RejectionCode::InUse => "in_use",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}
