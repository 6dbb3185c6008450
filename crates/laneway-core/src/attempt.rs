//! An attempt: one try at a job, its fence and its end.

use crate::lease::Holder;
use crate::{AttemptId, Bytes, ExecutorMode, JobId, JobState, Name, Seq, Span, Wall};

/// Identifies an attempt. Every report about an attempt carries its fence. A report with another fence changes
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The job.
    pub job: JobId,
    /// The attempt's number.
    pub attempt: u32,
    /// The attempt's random id.
    pub attempt_id: AttemptId,
    /// Grows each time the attempt is bound to another connection.
    pub lease_epoch: u32,
}

/// An open attempt as stored: at most one per job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAttempt {
    /// The job.
    pub seq: Seq,
    /// The fence that closes it.
    pub fence: Fence,
    /// Where it runs.
    pub executor: Name,
    /// How it lives and dies there. A restart reads from it whether the attempt can still be alive.
    pub mode: ExecutorMode,
    /// [`JobState::Assigned`] or [`JobState::Running`].
    pub state: JobState,
    /// When it was opened.
    pub opened_at: Wall,
    /// When its runner reported that it runs.
    pub started_at: Option<Wall>,
    /// The longest lease that its runner was granted. A restart grants no less, even if the settings have changed.
    pub lease: Span,
    /// Number of the job's latest event.
    pub last_event: u64,
    /// The worker that has it, where workers run it.
    pub holder: Option<Holder>,
    /// Which attempt of its run it is: 1, 2, 3, … over all members. Outside of runs: the attempt's number.
    pub dispatch_seq: u64,
}

/// An attempt that is no longer open.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedAttempt {
    /// The attempt as it was while open. `open.fence` must match the stored row, or the commit fails.
    pub open: OpenAttempt,
    /// How it ended.
    pub end: AttemptEnd,
    /// The failure, if there was one.
    pub error: Option<Failure>,
    /// When it closed.
    pub closed_at: Wall,
    /// True when the job ended with it in the same commit. Then no row is kept, because the job's end has everything.
    pub last: bool,
}

/// How an attempt ended; exactly one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AttemptEnd {
    /// The handler reported success.
    Succeeded = 0,
    /// The handler reported a failure.
    Failed = 1,
    /// It ran too long.
    TimedOut = 2,
    /// The job's deadline passed while it ran.
    Expired = 3,
    /// The job was canceled.
    Canceled = 4,
    /// Its lease ended, or its process died.
    Lost = 5,
    /// It was handed back unharmed.
    HandedBack = 6,
    /// The worker never acknowledged it.
    Unanswered = 7,
}

impl AttemptEnd {
    /// Every end, in the order of their codes.
    pub const ALL: [AttemptEnd; 8] = [
        AttemptEnd::Succeeded,
        AttemptEnd::Failed,
        AttemptEnd::TimedOut,
        AttemptEnd::Expired,
        AttemptEnd::Canceled,
        AttemptEnd::Lost,
        AttemptEnd::HandedBack,
        AttemptEnd::Unanswered,
    ];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptEnd::Succeeded => "succeeded",
            AttemptEnd::Failed => "failed",
            AttemptEnd::TimedOut => "timed_out",
            AttemptEnd::Expired => "expired",
            AttemptEnd::Canceled => "canceled",
            AttemptEnd::Lost => "lost",
            AttemptEnd::HandedBack => "handed_back",
            AttemptEnd::Unanswered => "unanswered",
        }
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The end of a stored code.
    pub fn from_code(code: u8) -> Option<AttemptEnd> {
        AttemptEnd::ALL.get(usize::from(code)).copied()
    }
}

/// What a runner reports when its attempt has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It succeeded, with this result.
    Succeeded(Option<Bytes>),
    /// It succeeded, with this result, and these keys of the job stay taken after its end, until
    /// [`crate::Command::ReleaseKeys`] frees them. The attempt fails if the job has no key of one of these names.
    SucceededKeeping {
        /// The result.
        result: Option<Bytes>,
        /// Names of the job's keys.
        keys: Vec<Name>,
    },
    /// There was nothing to do, which counts as success, with this result.
    Skipped(Option<Bytes>),
    /// It failed.
    Failed(Failure),
    /// It stopped on request.
    Canceled,
    /// It never began, or can begin again without harm. The job is queued again at no cost.
    HandedBack,
    /// It had begun, and was interrupted because its runner stops. It may have had an effect. The job runs again at
    /// no cost if its policy allows for a loss, and fails as lost otherwise.
    Interrupted,
}

impl Outcome {
    /// True when the attempt did what it was for.
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Succeeded(_) | Outcome::SucceededKeeping { .. } | Outcome::Skipped(_))
    }
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable code for programs, such as `http_status` or `panicked`.
    pub code: Name,
    /// A sentence for people, bounded by the runner.
    pub message: Box<str>,
    /// False when another attempt cannot succeed.
    pub retryable: bool,
    /// Further bytes that the runner wants to keep.
    pub detail: Option<Bytes>,
    /// The runner requests that no further attempt starts before this much time has passed, such as a target that
    /// answers with `Retry-After`. The engine converts it into the time of the next attempt and does not keep it.
    pub retry_after: Option<Span>,
}

impl Failure {
    /// A failure after which another attempt may succeed.
    pub fn retryable(code: &'static str, message: impl Into<Box<str>>) -> Failure {
        Failure {
            code: Name::fixed(code),
            message: message.into(),
            retryable: true,
            detail: None,
            retry_after: None,
        }
    }

    /// A failure after which no other attempt can succeed.
    pub fn permanent(code: &'static str, message: impl Into<Box<str>>) -> Failure {
        Failure { retryable: false, ..Failure::retryable(code, message) }
    }
}
