//! An event: one numbered line of the durable trail.
//!
//! Events feed the live stream, the audit list and a job's history. Each event of a job names the job's event before
//! it, so that a history can be walked back without an index.

use std::fmt;

use crate::{Failure, JobId, Name, Reason, Seq, Wall};

/// One numbered line of the trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// 1, 2, 3, … without gaps.
    pub number: u64,
    /// When it happened.
    pub at: Wall,
    /// What happened.
    pub kind: EventKind,
    /// Whose it is. `None`: the server's own.
    pub tenant: Option<Name>,
    /// The job it is about, if it is about one.
    pub job: Option<JobLine>,
    /// Who caused it by a call: a token's id, or a part of the house. `None`: time or a runner did.
    pub actor: Option<Name>,
    /// The call that caused it.
    pub request: Option<Name>,
    /// A short text for people: what was changed, what was rejected.
    pub detail: Option<Box<str>>,
}

/// The part of an event that is about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLine {
    /// The job's number inside the house.
    pub seq: Seq,
    /// The job's id.
    pub id: JobId,
    /// Its kind.
    pub kind: Name,
    /// Its lane.
    pub lane: Name,
    /// Its agent.
    pub agent: Name,
    /// The attempt it is about; 0 before the first.
    pub attempt: u32,
    /// Why.
    pub reason: Option<Reason>,
    /// Number of the job's event before this one; 0 for its first.
    pub previous: u64,
    /// What went wrong, for a job that failed, is tried again after a failure, or was rejected.
    pub error: Option<Box<ErrorLine>>,
}

/// What went wrong, as an event carries it. The job and its attempts have the whole failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLine {
    /// A stable code for programs.
    pub code: Name,
    /// A sentence for people; at most [`ErrorLine::MESSAGE_BYTES_MAX`].
    pub message: Box<str>,
}

impl ErrorLine {
    /// Most bytes of a message. Events stay in memory for those who follow, so a longer message is cut.
    pub const MESSAGE_BYTES_MAX: usize = 512;

    /// The short form of a failure.
    pub fn of(failure: &Failure) -> Box<ErrorLine> {
        let message = match failure.message.len() <= ErrorLine::MESSAGE_BYTES_MAX {
            true => failure.message.clone(),
            false => {
                // Room for the ellipsis, which has three bytes.
                let whole = |&at: &usize| failure.message.is_char_boundary(at);
                let cut = (0..=ErrorLine::MESSAGE_BYTES_MAX - 3).rev().find(whole).unwrap_or(0);
                format!("{}…", &failure.message[..cut]).into()
            }
        };
        Box::new(ErrorLine { code: failure.code.clone(), message })
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventKind {
    /// A job was admitted.
    JobSubmitted = 0,
    /// A job may start: its time came, or it was given back or lost and waits again.
    JobQueued = 1,
    /// An attempt was opened and offered to a worker.
    JobAssigned = 2,
    /// An attempt runs.
    JobStarted = 3,
    /// An attempt failed; the job is tried again after a backoff.
    JobRetrying = 4,
    /// The job ended well.
    JobSucceeded = 5,
    /// The job ended badly.
    JobFailed = 6,
    /// The job was canceled.
    JobCanceled = 7,
    /// The job was rejected and the rejection kept.
    JobRejected = 8,
    /// A run that outlived its job's end, or was told to stop, has ended; its gates are free.
    AttemptReleased = 9,
    /// Settings changed.
    ConfigChanged = 10,
    /// A token was made.
    TokenCreated = 11,
    /// A token was revoked.
    TokenRevoked = 12,
    /// The server stops: nothing new is admitted or started.
    DrainBegan = 13,
    /// A call that would change something was rejected.
    CallRejected = 14,
    /// A call was not allowed.
    CallDenied = 15,
    /// A call that changed something else than a job or a setting.
    CallDone = 16,
    /// A schedule was made.
    ScheduleCreated = 17,
    /// A schedule was changed.
    ScheduleUpdated = 18,
    /// A schedule was deleted.
    ScheduleDeleted = 19,
    /// A schedule was switched on or off.
    ScheduleToggled = 20,
    /// A schedule made a job: for a slot, or because somebody asked for a run.
    ScheduleFired = 21,
    /// A run of a schedule has ended, or a slot passed without one.
    ScheduleFiringEnded = 22,
    /// A message is to go out by a channel, or an empty one is to clear its signs. The detail says which.
    Outbound = 23,
    /// A waiting job waits for a time again: nobody took it, or its hours are over.
    JobDeferred = 24,
    /// A waiting job's deadline is near: it goes ahead of others.
    JobBoosted = 25,
    /// The machine has no room for a waiting job, or is not quiet enough.
    JobDenied = 26,
    /// A run was admitted.
    RunSubmitted = 27,
    /// A run's first job started, or ended before it could.
    RunStarted = 28,
    /// All jobs of a run have ended, and it succeeded.
    RunSucceeded = 29,
    /// All jobs of a run have ended, and one failed.
    RunFailed = 30,
    /// All jobs of a run were canceled.
    RunCanceled = 31,
    /// A called node of a run has answered, and waits to be called again.
    JobReturned = 32,
    /// A worker has registered. The detail names it, as in all events about workers.
    WorkerConnected = 33,
    /// A worker has registered again while its older connection was still there; that one is out.
    WorkerSuperseded = 34,
    /// A worker has missed two heartbeats.
    WorkerDegraded = 35,
    /// A worker has missed three heartbeats: it gets nothing new.
    WorkerLost = 36,
    /// A worker takes nothing new: somebody said so, it said so itself, or it is too full.
    WorkerDrained = 37,
    /// A worker has had no free slot for long.
    WorkerSaturated = 38,
    /// A worker's connection is gone.
    WorkerDisconnected = 39,
    /// A worker serves other lanes from now on: somebody said so.
    WorkerRebound = 40,
    /// The wall clock ran ahead of the time that was seen to pass. The detail says how far.
    ClockJumped = 41,
}

impl EventKind {
    /// Every kind, in the order of their codes.
    pub const ALL: [EventKind; 42] = [
        EventKind::JobSubmitted,
        EventKind::JobQueued,
        EventKind::JobAssigned,
        EventKind::JobStarted,
        EventKind::JobRetrying,
        EventKind::JobSucceeded,
        EventKind::JobFailed,
        EventKind::JobCanceled,
        EventKind::JobRejected,
        EventKind::AttemptReleased,
        EventKind::ConfigChanged,
        EventKind::TokenCreated,
        EventKind::TokenRevoked,
        EventKind::DrainBegan,
        EventKind::CallRejected,
        EventKind::CallDenied,
        EventKind::CallDone,
        EventKind::ScheduleCreated,
        EventKind::ScheduleUpdated,
        EventKind::ScheduleDeleted,
        EventKind::ScheduleToggled,
        EventKind::ScheduleFired,
        EventKind::ScheduleFiringEnded,
        EventKind::Outbound,
        EventKind::JobDeferred,
        EventKind::JobBoosted,
        EventKind::JobDenied,
        EventKind::RunSubmitted,
        EventKind::RunStarted,
        EventKind::RunSucceeded,
        EventKind::RunFailed,
        EventKind::RunCanceled,
        EventKind::JobReturned,
        EventKind::WorkerConnected,
        EventKind::WorkerSuperseded,
        EventKind::WorkerDegraded,
        EventKind::WorkerLost,
        EventKind::WorkerDrained,
        EventKind::WorkerSaturated,
        EventKind::WorkerDisconnected,
        EventKind::WorkerRebound,
        EventKind::ClockJumped,
    ];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::JobSubmitted => "job.submitted",
            EventKind::JobQueued => "job.queued",
            EventKind::JobAssigned => "job.assigned",
            EventKind::JobStarted => "job.started",
            EventKind::JobRetrying => "job.retrying",
            EventKind::JobSucceeded => "job.succeeded",
            EventKind::JobFailed => "job.failed",
            EventKind::JobCanceled => "job.canceled",
            EventKind::JobRejected => "job.rejected",
            EventKind::AttemptReleased => "attempt.released",
            EventKind::ConfigChanged => "config.changed",
            EventKind::TokenCreated => "token.created",
            EventKind::TokenRevoked => "token.revoked",
            EventKind::DrainBegan => "server.draining",
            EventKind::CallRejected => "call.rejected",
            EventKind::CallDenied => "call.denied",
            EventKind::CallDone => "call.done",
            EventKind::ScheduleCreated => "schedule.created",
            EventKind::ScheduleUpdated => "schedule.updated",
            EventKind::ScheduleDeleted => "schedule.deleted",
            EventKind::ScheduleToggled => "schedule.toggled",
            EventKind::ScheduleFired => "schedule.fired",
            EventKind::ScheduleFiringEnded => "schedule.firing_ended",
            EventKind::Outbound => "outbound",
            EventKind::JobDeferred => "job.deferred",
            EventKind::JobBoosted => "job.boosted",
            EventKind::JobDenied => "job.denied",
            EventKind::RunSubmitted => "run.submitted",
            EventKind::RunStarted => "run.started",
            EventKind::RunSucceeded => "run.succeeded",
            EventKind::RunFailed => "run.failed",
            EventKind::RunCanceled => "run.canceled",
            EventKind::JobReturned => "job.returned",
            EventKind::WorkerConnected => "worker.connected",
            EventKind::WorkerSuperseded => "worker.superseded",
            EventKind::WorkerDegraded => "worker.degraded",
            EventKind::WorkerLost => "worker.lost",
            EventKind::WorkerDrained => "worker.drained",
            EventKind::WorkerSaturated => "worker.saturated",
            EventKind::WorkerDisconnected => "worker.disconnected",
            EventKind::WorkerRebound => "worker.rebound",
            EventKind::ClockJumped => "clock.jumped",
        }
    }

    /// The code in stored events.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The kind of a stored code.
    pub fn from_code(code: u8) -> Option<EventKind> {
        EventKind::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
