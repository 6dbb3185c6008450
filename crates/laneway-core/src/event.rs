//! An event: one numbered entry of the event log.
//!
//! Events feed the live stream, the audit list and a job's history. Each event of a job names the job's event before
//! it, so that a history can be walked back without an index.

use std::fmt;

use crate::{Failure, JobId, Name, Reason, Seq, Wall};

/// One numbered entry of the event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// 1, 2, 3, … without gaps.
    pub number: u64,
    /// When it happened.
    pub at: Wall,
    /// What happened.
    pub kind: EventKind,
    /// The tenant. `None`: the event is about the server.
    pub tenant: Option<Name>,
    /// The job it is about, if it is about one.
    pub job: Option<JobLine>,
    /// The caller that caused it: a token's id, or a part of the server. `None`: time or a runner caused it.
    pub actor: Option<Name>,
    /// The request that caused it.
    pub request: Option<Name>,
    /// A short text for people, such as what was changed or rejected.
    pub detail: Option<Box<str>>,
}

/// The part of an event that is about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLine {
    /// The job's number inside the server.
    pub seq: Seq,
    /// The job's id.
    pub id: JobId,
    /// Its kind.
    pub kind: Name,
    /// Its lane.
    pub lane: Name,
    /// Its agent.
    pub agent: Name,
    /// The attempt that it is about; 0 before the first.
    pub attempt: u32,
    /// The reason.
    pub reason: Option<Reason>,
    /// Number of the job's event before this one; 0 for its first.
    pub previous: u64,
    /// The failure of a job that failed, is retried or was rejected.
    pub error: Option<Box<ErrorLine>>,
}

/// The short form of a failure, for events. The job and its attempts have the complete failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLine {
    /// A stable code for programs.
    pub code: Name,
    /// A sentence for people; at most [`ErrorLine::MESSAGE_BYTES_MAX`].
    pub message: Box<str>,
}

impl ErrorLine {
    /// Most bytes of a message. Recent events stay in memory for subscribers, so a longer message is cut.
    pub const MESSAGE_BYTES_MAX: usize = 512;

    /// The short form of a failure.
    pub fn of(failure: &Failure) -> Box<ErrorLine> {
        let message = match failure.message.len() <= ErrorLine::MESSAGE_BYTES_MAX {
            true => failure.message.clone(),
            false => {
                // The ellipsis has three bytes.
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
    /// A job may start: its time came, or its attempt was handed back or lost.
    JobQueued = 1,
    /// An attempt was opened and offered to a worker.
    JobAssigned = 2,
    /// An attempt started to run.
    JobStarted = 3,
    /// An attempt failed; the job is retried after a backoff.
    JobRetrying = 4,
    /// The job succeeded.
    JobSucceeded = 5,
    /// The job failed.
    JobFailed = 6,
    /// The job was canceled.
    JobCanceled = 7,
    /// The job was rejected, and the rejection was recorded.
    JobRejected = 8,
    /// An attempt that was stopped, or whose job had ended before, has ended; its slots are free.
    AttemptReleased = 9,
    /// Settings changed.
    ConfigChanged = 10,
    /// A token was created.
    TokenCreated = 11,
    /// A token was revoked.
    TokenRevoked = 12,
    /// The server stops: nothing new is admitted or started.
    DrainBegan = 13,
    /// A call that would change something was rejected.
    CallRejected = 14,
    /// A call was denied.
    CallDenied = 15,
    /// A call changed something other than a job or a setting.
    CallDone = 16,
    /// A schedule was created.
    ScheduleCreated = 17,
    /// A schedule was changed.
    ScheduleUpdated = 18,
    /// A schedule was deleted.
    ScheduleDeleted = 19,
    /// A schedule was enabled or disabled.
    ScheduleToggled = 20,
    /// A schedule created a job: for a slot, or for a manual fire.
    ScheduleFired = 21,
    /// A firing has ended, or a slot was skipped.
    ScheduleFiringEnded = 22,
    /// An outbound message, or an empty one that clears typing indicators. The detail says which.
    Outbound = 23,
    /// A waiting job waits for a time again: no worker claimed it, or its hours are over.
    JobDeferred = 24,
    /// A waiting job's deadline is near: it was boosted.
    JobBoosted = 25,
    /// The machine has no capacity for a waiting job, or is not quiet enough.
    JobDenied = 26,
    /// A run was admitted.
    RunSubmitted = 27,
    /// The first attempt of a run started, or one of its jobs ended before that.
    RunStarted = 28,
    /// All jobs of a run have ended, and it succeeded.
    RunSucceeded = 29,
    /// All jobs of a run have ended, and one failed.
    RunFailed = 30,
    /// All jobs of a run were canceled.
    RunCanceled = 31,
    /// A called node of a run has answered, and can be called again.
    JobReturned = 32,
    /// A worker has registered. The detail names it, as in all events about workers.
    WorkerConnected = 33,
    /// A worker has registered again while its older connection was open; the older one is closed.
    WorkerSuperseded = 34,
    /// A worker has missed two heartbeats.
    WorkerDegraded = 35,
    /// A worker has missed three heartbeats: it gets no new tasks.
    WorkerLost = 36,
    /// A worker takes no new tasks: an operator or the worker drained it, or its memory or disk is too full.
    WorkerDrained = 37,
    /// A worker has had no free slot for a long time.
    WorkerSaturated = 38,
    /// A worker's connection is gone.
    WorkerDisconnected = 39,
    /// An operator changed the lanes that a worker serves.
    WorkerRebound = 40,
    /// The wall clock jumped ahead of the time that passed. The detail says how far.
    ClockJumped = 41,
    /// A job succeeded and keeps keys. The detail names the job and the keys.
    KeysKept = 42,
    /// The keys that an ended job kept are free. The detail names the job and the keys.
    KeysReleased = 43,
    /// A record was created or changed. The detail names it and its version.
    RecordPut = 44,
    /// A record was deleted. The detail names it and its last version.
    RecordDeleted = 45,
    /// A browser ended by itself. The detail names its profile and the job that started it.
    BrowserCrashed = 46,
    /// A row of the store is damaged. The detail names the table, the row and the remedy.
    StoreDamaged = 47,
    /// A call changed when a waiting job starts. The detail says when.
    JobRescheduled = 48,
    /// A call changed the priority of a waiting job. The detail has both priorities.
    JobPriorityChanged = 49,
    /// A call deleted an ended job.
    JobDeleted = 50,
}

impl EventKind {
    /// Every kind, in the order of their codes.
    pub const ALL: [EventKind; 51] = [
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
        EventKind::KeysKept,
        EventKind::KeysReleased,
        EventKind::RecordPut,
        EventKind::RecordDeleted,
        EventKind::BrowserCrashed,
        EventKind::StoreDamaged,
        EventKind::JobRescheduled,
        EventKind::JobPriorityChanged,
        EventKind::JobDeleted,
    ];

    /// The name that users see.
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
            EventKind::KeysKept => "keys.kept",
            EventKind::KeysReleased => "keys.released",
            EventKind::RecordPut => "record.put",
            EventKind::RecordDeleted => "record.deleted",
            EventKind::BrowserCrashed => "browser.crashed",
            EventKind::StoreDamaged => "store.damaged",
            EventKind::JobRescheduled => "job.rescheduled",
            EventKind::JobPriorityChanged => "job.priority_changed",
            EventKind::JobDeleted => "job.deleted",
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
