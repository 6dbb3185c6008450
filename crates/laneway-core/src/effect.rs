//! What follows from a command: changes to make durable, events to keep, notices to give after the commit.

use crate::command::LogLine;
use crate::worker::ConnectionId;
use crate::{
    Bytes, CallRow, ClosedAttempt, DeliveryRow, DeliveryTry, Event, Fence, FiringLogEntry, JobEnd, JobId,
    JobRow, JobStatus, Name, NextAnswer, OpenAttempt, RunRow, RunState, Schedule, ScheduleId, ScheduleState,
    Seq, SessionRow, Span, TokenRecord, Wall,
};

/// What follows from one turn of the engine. Nothing of it may leave the house before all of it is durable.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// In order. The store makes them durable in one transaction.
    pub changes: Vec<Change>,
    /// In order of their numbers; durable in the same transaction.
    pub events: Vec<Event>,
    /// Given after the commit, in order.
    pub notices: Vec<Notice>,
}

impl Effects {
    /// True when there is nothing to make durable and nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.events.is_empty() && self.notices.is_empty()
    }

    /// Empties all three lists and keeps their room.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.events.clear();
        self.notices.clear();
    }
}

/// One durable change. The store puts, gets and fences; it decides nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Insert a live job with its payload, and its idempotency key if it has one.
    JobCreated {
        /// The whole row.
        row: Box<JobRow>,
        /// What the handler gets.
        payload: Bytes,
    },
    /// A live job without an open attempt changed.
    JobMoved {
        /// The job.
        seq: Seq,
        /// Its status from now on.
        status: JobStatus,
    },
    /// Insert an open attempt. There must be none for the job.
    AttemptOpened(OpenAttempt),
    /// The open attempt runs now. The fence must match.
    AttemptStarted(OpenAttempt),
    /// The runner of the open attempt was told a longer lease. The fence must match.
    LeaseExtended(OpenAttempt),
    /// Another worker, or another process of it, holds the open attempt. The fence must match.
    HolderChanged(OpenAttempt),
    /// The open attempt belongs to another connection of its worker: its lease epoch is one more than the stored row's, and
    /// the rest of the fence must match.
    AttemptRebound(OpenAttempt),
    /// Remove the open attempt. The fence must match exactly one row.
    AttemptClosed(Box<ClosedAttempt>),
    /// The job ended: it leaves the live jobs. An attempt that outlives it keeps its open row until it is closed.
    JobEnded(Box<JobEnd>),
    /// Keep lines that an attempt wrote.
    LogAppended {
        /// The job.
        seq: Seq,
        /// The attempt.
        attempt: u32,
        /// The lines.
        lines: Vec<LogLine>,
    },
    /// Forget ended jobs of a lane (with payload, attempts, logs and idempotency key), oldest first, `max` at most.
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
    /// Forget events from before this time.
    EventsPruned {
        /// Only events from before this time.
        before: Wall,
    },
    /// Keep the runtime's own settings bytes.
    OverridesPut(Bytes),
    /// Keep a token, new or changed.
    TokenPut(Box<TokenRecord>),
    /// Forget a token that has ended.
    TokenForgotten(Name),
    /// Remember the time up to which retention has counted.
    ClockSeen(Wall),
    /// Keep what must be known of a session, new or changed.
    SessionPut(Box<SessionRow>),
    /// Nothing needs to be known of a session any more.
    SessionForgotten {
        /// Whose it was.
        tenant: Name,
        /// Its name.
        key: Name,
    },
    /// Keep a schedule, new or changed by somebody.
    SchedulePut(Box<Schedule>),
    /// A slot came or a run ended: the part of a schedule that changes by itself. It must be stored.
    ScheduleMoved {
        /// The schedule.
        id: ScheduleId,
        /// On or off.
        enabled: bool,
        /// Its state from now on.
        state: Box<ScheduleState>,
    },
    /// Forget a schedule. Its log and its slots stay.
    ScheduleRemoved(ScheduleId),
    /// A slot came. There must be no other row for it: a slot comes once.
    SlotFired {
        /// The schedule.
        schedule: ScheduleId,
        /// The slot.
        slot: Wall,
        /// The job that it made; `None`: it passed without one.
        job: Option<JobId>,
    },
    /// Keep an entry of the run log.
    FiringLogged(Box<FiringLogEntry>),
    /// Forget old entries of the run log, `max` at most, and slots that can never come again.
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
    /// Keep a delivery, new or changed, unless its job is gone. A job whose delivery waits is not purged; another goes
    /// with its delivery.
    DeliveryPut(Box<DeliveryRow>),
    /// Keep a try at a delivery, unless its job is gone.
    DeliveryTried(Box<DeliveryTry>),
    /// Insert a run, with its idempotency key if it has one. Its jobs are created in the same turn.
    RunCreated(Box<RunRow>),
    /// Keep what the client calls the whole of a run, with its first job, which must be stored. It goes with the run.
    RunDefined {
        /// Its first job.
        first: Seq,
        /// The client's own words.
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
    /// Keep the latest call of a node, new or answered. It goes with its run.
    CallPut(Box<CallRow>),
    /// Forget ended runs of a lane with all their jobs, those that ended first first, until `max` jobs are gone or more.
    /// Jobs of runs are forgotten in no other way. A run with a job that has an open attempt or is owed a delivery stays.
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
    /// This run must stop; say `Finish` when it has.
    Stop {
        /// The job.
        seq: Seq,
        /// The attempt.
        fence: Fence,
        /// Where it runs.
        executor: Name,
        /// For a worker's: the connection to tell. `None`: it has none just now.
        connection: Option<ConnectionId>,
        /// Which dispatch it was (see [`Offer::dispatch_seq`]).
        dispatch_seq: u64,
    },
    /// Another connection has taken the place of this one; whatever it says changes nothing from now on.
    Superseded(ConnectionId),
    /// Somebody else wants to register under this connection's worker: see whether it still answers, and end it if not.
    ProbeConnection(ConnectionId),
    /// The worker of this connection is to take nothing new, to end what it runs, and to go.
    DrainConnection(ConnectionId),
    /// Tell this attempt what its call was answered.
    Next {
        /// The job that called.
        seq: Seq,
        /// The attempt that called.
        fence: Fence,
        /// Where it runs.
        executor: Name,
        /// For a worker's: the connection to tell. `None`: it has none just now.
        connection: Option<ConnectionId>,
        /// Which dispatch it was (see [`Offer::dispatch_seq`]).
        dispatch_seq: u64,
        /// The caller's own name for the call.
        request: Name,
        /// The answer.
        answer: NextAnswer,
    },
    /// Tell this news now; say `DeliveryTried` when that has ended.
    Deliver {
        /// The job whose end is told.
        seq: Seq,
        /// Its id.
        job: JobId,
        /// The try: 1, 2, 3, … within the delivery.
        number: u32,
    },
    /// A schedule made a job of a kind that no handler, target or worker offers. Given once for a tenant and a kind, until a
    /// run of that kind starts.
    Unserved {
        /// Whose schedule it is.
        tenant: Name,
        /// Its name.
        schedule: Name,
        /// The kind.
        kind: Name,
    },
}

/// An attempt to run. The payload is read from the store after the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The job.
    pub seq: Seq,
    /// The fence that every word about the attempt must carry.
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
    /// For a worker's: who is told. `None` for all other places.
    pub to: Option<OfferTo>,
}

/// The worker that an offer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferTo {
    /// Its connection.
    pub connection: ConnectionId,
    /// Whose worker it is.
    pub tenant: Name,
    /// Its name.
    pub worker: Name,
    /// How long the attempt lives without a sign of life.
    pub lease: Span,
    /// True: it was offered before, over another connection. Who runs it already only says so again.
    pub again: bool,
}
