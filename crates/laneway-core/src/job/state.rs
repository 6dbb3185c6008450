//! The states of a job and THE transition table.
//!
//! No other code decides which state may follow which. A picture is in `docs/job-lifecycle.md`.

use std::fmt;

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum JobState {
    /// Waits for a time (not-before, or the backoff before a retry), or for other nodes of its run.
    Scheduled = 0,
    /// May start as soon as every gate is open.
    Queued = 1,
    /// An attempt is open and offered to a worker that has not acknowledged it yet.
    Assigned = 2,
    /// An attempt is open and runs.
    Running = 3,
    /// Succeeded.
    Succeeded = 4,
    /// Failed; the reason says how.
    Failed = 5,
    /// Canceled by a call.
    Canceled = 6,
    /// Never admitted; recorded because the submission requested it.
    Rejected = 7,
}

impl JobState {
    /// Every state, in the order of their codes.
    pub const ALL: [JobState; 8] = [
        JobState::Scheduled,
        JobState::Queued,
        JobState::Assigned,
        JobState::Running,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Canceled,
        JobState::Rejected,
    ];

    /// THE transition table: may `next` follow `self`?
    pub fn allows(self, next: JobState) -> bool {
        use JobState::*;
        match self {
            // A called node of a run ends well with the chain that it is part of.
            Scheduled => matches!(next, Queued | Canceled | Failed | Succeeded),
            Queued => matches!(next, Assigned | Running | Scheduled | Canceled | Failed),
            Assigned => matches!(next, Running | Queued | Canceled | Failed),
            Running => matches!(next, Succeeded | Failed | Canceled | Scheduled | Queued),
            Succeeded | Failed | Canceled | Rejected => false,
        }
    }

    /// True for the states that nothing leaves.
    pub fn is_terminal(self) -> bool {
        matches!(self, JobState::Succeeded | JobState::Failed | JobState::Canceled | JobState::Rejected)
    }

    /// True while an attempt is open.
    pub fn is_open(self) -> bool {
        matches!(self, JobState::Assigned | JobState::Running)
    }

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Scheduled => "scheduled",
            JobState::Queued => "queued",
            JobState::Assigned => "assigned",
            JobState::Running => "running",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Canceled => "canceled",
            JobState::Rejected => "rejected",
        }
    }

    /// The state with this name.
    pub fn parse(name: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The state of a stored code.
    pub fn from_code(code: u8) -> Option<JobState> {
        JobState::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a job moved to the state it is in. Terminal states always carry one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The handler reported success.
    Done = 0,
    /// The handler reported a failure that trying again cannot mend.
    Permanent = 1,
    /// The handler failed and no retry is left.
    Exhausted = 2,
    /// An attempt ran longer than its timeout, and no retry is left.
    TimedOut = 3,
    /// The deadline passed.
    Expired = 4,
    /// It waited longer than its queue timeout.
    QueueTimeout = 5,
    /// Its attempts were lost too often.
    Lost = 6,
    /// A call canceled it.
    Requested = 7,
    /// The lane cancels waiting jobs when the server stops.
    Shutdown = 8,
    /// Its not-before time came, or its backoff passed.
    Due = 9,
    /// A failed attempt is tried again after a backoff.
    Retry = 10,
    /// The attempt was handed back unharmed (a drain, or a worker that did not accept it).
    HandedBack = 11,
    /// The queue was full.
    QueueFull = 12,
    /// Its session had as many waiting jobs as it may, and it was the oldest of them.
    Dropped = 13,
    /// It came within the debounce window of an earlier job of its session, which runs for both.
    Merged = 14,
    /// A later job of its session ended it.
    Interrupted = 15,
    /// Its session was stopped.
    Stopped = 16,
    /// Its session was reset.
    Cleared = 17,
    /// It was sent before its session was stopped.
    Stale = 18,
    /// The next firing of its schedule replaces it.
    Replaced = 19,
    /// An operator revoked the lease of its attempt.
    Revoked = 20,
    /// Its hours are over, or have not begun.
    Hours = 21,
    /// Its deadline is near.
    NearDeadline = 22,
    /// The machine has no capacity for it, or is not quiet enough.
    Capacity = 23,
    /// The handler reported that there was nothing to do.
    Skipped = 24,
    /// The nodes of its run that it waited for have ended well.
    Released = 25,
    /// A node of its run that it waits for did not end well.
    UpstreamFailed = 26,
    /// Another node of its run failed, and its run stops then.
    RunFailed = 27,
    /// A node of its run called it.
    Called = 28,
    /// It has answered its caller, and may be called again.
    Returned = 29,
    /// No worker accepted it, too often; or the worker that has its resources is gone.
    Unavailable = 30,
}

impl Reason {
    /// Every reason, in the order of their codes.
    pub const ALL: [Reason; 31] = [
        Reason::Done,
        Reason::Permanent,
        Reason::Exhausted,
        Reason::TimedOut,
        Reason::Expired,
        Reason::QueueTimeout,
        Reason::Lost,
        Reason::Requested,
        Reason::Shutdown,
        Reason::Due,
        Reason::Retry,
        Reason::HandedBack,
        Reason::QueueFull,
        Reason::Dropped,
        Reason::Merged,
        Reason::Interrupted,
        Reason::Stopped,
        Reason::Cleared,
        Reason::Stale,
        Reason::Replaced,
        Reason::Revoked,
        Reason::Hours,
        Reason::NearDeadline,
        Reason::Capacity,
        Reason::Skipped,
        Reason::Released,
        Reason::UpstreamFailed,
        Reason::RunFailed,
        Reason::Called,
        Reason::Returned,
        Reason::Unavailable,
    ];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Done => "done",
            Reason::Permanent => "permanent",
            Reason::Exhausted => "exhausted",
            Reason::TimedOut => "timed_out",
            Reason::Expired => "expired",
            Reason::QueueTimeout => "queue_timeout",
            Reason::Lost => "lost",
            Reason::Requested => "requested",
            Reason::Shutdown => "shutdown",
            Reason::Due => "due",
            Reason::Retry => "retry",
            Reason::HandedBack => "handed_back",
            Reason::QueueFull => "queue_full",
            Reason::Dropped => "dropped",
            Reason::Merged => "merged",
            Reason::Interrupted => "interrupted",
            Reason::Stopped => "stopped",
            Reason::Cleared => "cleared",
            Reason::Stale => "stale",
            Reason::Replaced => "replaced",
            Reason::Revoked => "revoked",
            Reason::Hours => "hours",
            Reason::NearDeadline => "near_deadline",
            Reason::Capacity => "capacity",
            Reason::Skipped => "skipped",
            Reason::Released => "released",
            Reason::UpstreamFailed => "upstream_failed",
            Reason::RunFailed => "run_failed",
            Reason::Called => "called",
            Reason::Returned => "returned",
            Reason::Unavailable => "unavailable",
        }
    }

    /// The reason with this name.
    pub fn parse(name: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The reason of a stored code.
    pub fn from_code(code: u8) -> Option<Reason> {
        Reason::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
