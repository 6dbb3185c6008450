//! The effects of a command: changes to store, events to keep, notices to send after the commit.

use std::sync::Arc;

use crate::command::LogLine;
use crate::worker::ConnectionId;
use crate::{
    Bytes, CallRow, ClosedAttempt, DeliveryRow, DeliveryTry, Event, Fence, FiringLogEntry, JobEnd, JobId,
    JobRow, JobStatus, KeptKeys, Name, NextAnswer, OpenAttempt, Record, RecordName, RunRow, RunState,
    Schedule, ScheduleId, ScheduleState, Seq, SessionRow, Span, TokenRecord, Wall,
};

/// The effects of one batch of commands. None of them may be published before all of them are durable.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// In order. The store makes them durable in one commit.
    pub changes: Vec<Change>,
    /// In order of their numbers; durable in the same transaction.
    pub events: Vec<Event>,
    /// Sent after the commit, in order.
    pub notices: Vec<Notice>,
}

impl Effects {
    /// True when there is nothing to store and nothing to send.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.events.is_empty() && self.notices.is_empty()
    }

    /// Empties all three lists and keeps their capacity.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.events.clear();
        self.notices.clear();
    }
}

/// One durable change. The store puts, gets and fences; it makes no decisions.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Insert a live job with its payload, and its idempotency key if it has one.
    JobCreated {
        /// The whole row.
        row: Arc<JobRow>,
        /// The payload for the handler.
        payload: Bytes,
    },
    /// A live job without an open attempt changed.
    JobMoved {
        /// The job.
        seq: Seq,
        /// Its status from now on.
        status: JobStatus,
    },
    /// The priority or the start time of a live job without an open attempt was changed by a call. Its status follows in a
    /// change of its own.
    JobRevised {
        /// The job.
        seq: Seq,
        /// Its priority from now on.
        priority: i32,
        /// Its [`JobRow::rank_time`] from now on.
        rank_time: u64,
        /// Its [`JobSpec::not_before`](crate::JobSpec::not_before) from now on; `None`: it stays as it is.
        not_before: Option<Wall>,
    },
    /// Insert an open attempt. There must be none for the job.
    AttemptOpened(OpenAttempt),
    /// The open attempt runs now. The fence must match.
    AttemptStarted(OpenAttempt),
    /// The runner of the open attempt was granted a longer lease. The fence must match.
    LeaseExtended(OpenAttempt),
    /// Another worker, or another process of the worker, has the open attempt. The fence must match.
    HolderChanged(OpenAttempt),
    /// The open attempt belongs to another connection of its worker: its lease epoch is one more than the stored row's, and
    /// the rest of the fence must match.
    AttemptRebound(OpenAttempt),
    /// Remove the open attempt. The fence must match exactly one row.
    AttemptClosed(Box<ClosedAttempt>),
    /// The job ended: it leaves the live jobs. An attempt that outlives it keeps its open row until it is closed.
    JobEnded(Box<JobEnd>),
    /// Store log lines of an attempt.
    LogAppended {
        /// The job.
        seq: Seq,
        /// The attempt.
        attempt: u32,
        /// The lines.
        lines: Vec<LogLine>,
    },
    /// Delete ended jobs of a lane (with payload, attempts, logs and idempotency key), oldest first, `max` at most.
    JobsPruned {
        /// The lane.
        lane: Name,
        /// Only jobs that ended before this time.
        finished_before: Wall,
        /// Jobs with an idempotency key must have ended before this time.
        keyed_finished_before: Wall,
        /// How many at most.
        max: u32,
    },
    /// Delete one ended job with payload, attempts, logs, delivery and idempotency key. It must not be live and must have no
    /// open attempt. A job that is not stored any more is left out: retention may have deleted it.
    JobDeleted(Seq),
    /// Delete events from before this time.
    EventsPruned {
        /// Only events from before this time.
        before: Wall,
    },
    /// Store the runtime's own settings bytes.
    OverridesPut(Bytes),
    /// Store a token, new or changed.
    TokenPut(Box<TokenRecord>),
    /// Delete a token that has ended.
    TokenForgotten(Name),
    /// Store the time up to which retention has counted.
    ClockSeen(Wall),
    /// Store a session's state, new or changed.
    SessionPut(Box<SessionRow>),
    /// Delete a session's state: nothing of it needs to be remembered.
    SessionForgotten {
        /// The tenant of the session.
        tenant: Name,
        /// Its name.
        key: Name,
    },
    /// Store a schedule, new or changed by a call.
    SchedulePut(Box<Schedule>),
    /// A slot came or a firing ended: the part of a schedule that changes by itself. The schedule must be stored.
    ScheduleMoved {
        /// The schedule.
        id: ScheduleId,
        /// Enabled or disabled.
        enabled: bool,
        /// Its state from now on.
        state: Box<ScheduleState>,
    },
    /// Delete a schedule. Its log and its slots stay.
    ScheduleRemoved(ScheduleId),
    /// A slot came. There must be no other row for it, because each slot fires at most once.
    SlotFired {
        /// The schedule.
        schedule: ScheduleId,
        /// The slot.
        slot: Wall,
        /// The job that it created; `None`: the slot was skipped.
        job: Option<JobId>,
    },
    /// Store an entry of the firing log.
    FiringLogged(Box<FiringLogEntry>),
    /// Delete old entries of the firing log, `max` at most, and slots that can never fire again.
    FiringLogPruned {
        /// Entries that ended before this time.
        ended_before: Wall,
        /// Entries of one schedule beyond this many, oldest first.
        keep: u32,
        /// Slots from before this time.
        slots_before: Wall,
        /// How many of each at most.
        max: u32,
    },
    /// Store a delivery, new or changed, unless its job is deleted. A job whose delivery waits is not pruned; other
    /// jobs are pruned together with their delivery.
    DeliveryPut(Box<DeliveryRow>),
    /// Store a try at a delivery, unless its job is deleted.
    DeliveryTried(Box<DeliveryTry>),
    /// Insert a run, with its idempotency key if it has one. Its jobs are created in the same batch.
    RunCreated(Box<RunRow>),
    /// Store the definition of a run. Its first job must be stored. The definition is deleted together with the run.
    RunDefined {
        /// Its first job.
        first: Seq,
        /// The definition, in the client's own format.
        definition: Bytes,
    },
    /// A run's state changed. It must be stored.
    RunMoved {
        /// Its first job.
        first: Seq,
        /// Its state from now on.
        state: RunState,
        /// When its last member ended.
        finished_at: Option<Wall>,
    },
    /// Store the latest call of a node, new or answered. It is deleted together with its run.
    CallPut(Box<CallRow>),
    /// Delete ended runs of a lane with all their jobs, those that ended first first, until at least `max` jobs are
    /// deleted. Jobs of runs are deleted in no other way. A run stays while one of its jobs has an open attempt or a
    /// waiting delivery.
    RunsPruned {
        /// The lane.
        lane: Name,
        /// Only runs that ended before this time.
        finished_before: Wall,
        /// Runs with an idempotency key must have ended before this time.
        keyed_finished_before: Wall,
        /// How many jobs.
        max: u32,
    },
    /// Store the keys that an ended job keeps. There must be no row of that job yet. Deleting the job does not delete it.
    KeysKept(Box<KeptKeys>),
    /// Delete the row of the keys that a job keeps. There must be one.
    KeysReleased(JobId),
    /// Store a record, new or changed.
    RecordPut {
        /// The whole record.
        record: Box<Record>,
        /// The version that is stored, which must match. `None`: there must be no such record.
        replaces: Option<u64>,
    },
    /// Delete a record.
    RecordDeleted {
        /// Which one.
        name: Box<RecordName>,
        /// The version that is stored, which must match.
        version: u64,
    },
}

impl Change {
    /// How many bytes the change carries that the engine does not look into: payloads, results, log lines, definitions.
    pub fn opaque_len(&self) -> usize {
        match self {
            Change::JobCreated { payload, .. } => payload.len(),
            Change::JobEnded(end) => end.result.as_ref().map_or(0, |result| result.len()),
            Change::CallPut(call) => {
                [&call.result, &call.payload].into_iter().flatten().map(|bytes| bytes.len()).sum()
            }
            Change::LogAppended { lines, .. } => lines.iter().map(|line| line.text.len()).sum(),
            Change::RunDefined { definition, .. } => definition.len(),
            Change::RecordPut { record, .. } => record.body.len(),
            Change::SchedulePut(schedule) => schedule.spec.payload.len() + schedule.spec.note.len(),
            _ => 0,
        }
    }
}

/// Something to send after the commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Run this attempt.
    Offer(Offer),
    /// This attempt must stop. Its runner answers with `Finish` when it has.
    Stop {
        /// The job.
        seq: Seq,
        /// The attempt.
        fence: Fence,
        /// Where it runs.
        executor: Name,
        /// For a worker's attempt: its connection. `None`: the worker is not connected.
        connection: Option<ConnectionId>,
        /// Which dispatch it was (see [`Offer::dispatch_seq`]).
        dispatch_seq: u64,
    },
    /// Another connection replaces this one. Messages of this one change nothing from now on.
    Superseded(ConnectionId),
    /// Another process wants to register under this connection's worker name. Check whether the worker still answers,
    /// and close the connection if not.
    ProbeConnection(ConnectionId),
    /// The worker of this connection is to take no new tasks, to finish its running ones, and to disconnect.
    DrainConnection(ConnectionId),
    /// Send this attempt the answer to its call.
    Next {
        /// The job that called.
        seq: Seq,
        /// The attempt that called.
        fence: Fence,
        /// Where it runs.
        executor: Name,
        /// For a worker's attempt: its connection. `None`: the worker is not connected.
        connection: Option<ConnectionId>,
        /// Which dispatch it was (see [`Offer::dispatch_seq`]).
        dispatch_seq: u64,
        /// The caller's name for the call.
        request: Name,
        /// The answer.
        answer: NextAnswer,
    },
    /// Try to deliver this webhook now. The sender answers with `DeliveryTried`.
    Deliver {
        /// The job of the delivery.
        seq: Seq,
        /// Its id.
        job: JobId,
        /// The try: 1, 2, 3, … within the delivery.
        number: u32,
    },
    /// The first attempt of a job was opened. For statistics; it has no receiver.
    Waited {
        /// The job. Its event about the attempt is in the same batch.
        seq: Seq,
        /// How long the job could have started before.
        wait: Span,
    },
    /// A schedule created a job of a kind that no handler, target or worker offers. Sent once for a tenant and a
    /// kind, until an attempt of that kind starts.
    Unserved {
        /// The tenant of the schedule.
        tenant: Name,
        /// Its name.
        schedule: Name,
        /// The kind.
        kind: Name,
    },
}

/// An attempt to run. The runtime reads the payload from the store after the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The job.
    pub seq: Seq,
    /// The fence that every report about the attempt must carry.
    pub fence: Fence,
    /// Where to run it.
    pub executor: Name,
    /// Its kind.
    pub kind: Name,
    /// How long it may run.
    pub timeout: Option<Span>,
    /// When its job's deadline passes.
    pub deadline: Option<Wall>,
    /// Which attempt of its run it is (see [`OpenAttempt::dispatch_seq`]).
    pub dispatch_seq: u64,
    /// For a worker's attempt: the worker. `None` for all other executors.
    pub to: Option<OfferTo>,
}

/// The worker that an offer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferTo {
    /// Its connection.
    pub connection: ConnectionId,
    /// The tenant of the worker.
    pub tenant: Name,
    /// Its name.
    pub worker: Name,
    /// How long the attempt lives without a heartbeat.
    pub lease: Span,
    /// True: it was offered before, over another connection. A worker that already runs it only acknowledges it
    /// again.
    pub again: bool,
}
