//! An attempt: one try at a job, its fence and its end.

use crate::lease::Holder;
use crate::{AttemptId, Bytes, ExecutorMode, JobId, JobState, Name, Seq, Span, Wall};

/// What every word about an attempt must carry. A word whose fence is not the open attempt's changes nothing.
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
    /// How it lives and dies there; tells a restart whether the run can still be alive.
    pub mode: ExecutorMode,
    /// [`JobState::Assigned`] or [`JobState::Running`].
    pub state: JobState,
    /// When it was opened.
    pub opened_at: Wall,
    /// When it was said to run.
    pub started_at: Option<Wall>,
    /// The longest lease that its runner was told; a restart gives it no less, whatever the settings say by then.
    pub lease: Span,
    /// Number of the job's latest event.
    pub last_event: u64,
    /// Who holds it, where workers run it.
    pub holder: Option<Holder>,
    /// Which attempt of its run it is: 1, 2, 3, … over all members. Outside of runs: the attempt's number.
    pub dispatch_seq: u64,
}

/// An attempt that is no longer open.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedAttempt {
    /// What it was while open. `open.fence` must match the stored row, or the commit fails.
    pub open: OpenAttempt,
    /// How it ended.
    pub end: AttemptEnd,
    /// What went wrong, if something did.
    pub error: Option<Failure>,
    /// When it closed.
    pub closed_at: Wall,
    /// True when the job ended with it in the same commit: then the job's end tells its story and no row is kept.
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
    /// It was given back unharmed.
    HandedBack = 6,
    /// The worker never said that it took it.
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

    /// The word users see.
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

/// What a runner says when its attempt has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It worked; here is what came out.
    Succeeded(Option<Bytes>),
    /// There was nothing to do, which is as good; here is what there is to say.
    Skipped(Option<Bytes>),
    /// It did not work.
    Failed(Failure),
    /// It stopped because it was told to.
    Canceled,
    /// It never began or can be begun again without harm; costs nothing.
    HandedBack,
    /// It had begun and was cut short because its runner stops. It may have had an effect: the job runs again at no cost
    /// if its policy allows for a loss, and has failed as lost if it does not.
    Interrupted,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable word for programs, such as `http_status` or `panicked`.
    pub code: Name,
    /// A sentence for people, bounded by the runner.
    pub message: Box<str>,
    /// False when trying again cannot help.
    pub retryable: bool,
    /// Anything else the runner wants kept.
    pub detail: Option<Bytes>,
    /// The runner asks that no further attempt starts before this much time has passed, such as a target that answers
    /// with `Retry-After`. The engine turns it into the time of the next attempt and does not keep it.
    pub retry_after: Option<Span>,
}

impl Failure {
    /// A failure that trying again may mend.
    pub fn retryable(code: &'static str, message: impl Into<Box<str>>) -> Failure {
        Failure {
            code: Name::fixed(code),
            message: message.into(),
            retryable: true,
            detail: None,
            retry_after: None,
        }
    }

    /// A failure that trying again cannot mend.
    pub fn permanent(code: &'static str, message: impl Into<Box<str>>) -> Failure {
        Failure { retryable: false, ..Failure::retryable(code, message) }
    }
}
