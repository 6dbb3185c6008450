//! Leases: the time-limited right of a worker to run an attempt, for lanes of pull workers.
//!
//! This file has the types. `engine/leases/claim.rs` and `engine/leases/by_id.rs` have the behaviour.

use crate::capacity::QuietState;
use crate::{AttemptId, Fence, JobId, JobState, Name, Outcome, Seq, Span, Submission, Wall};

/// Most kinds that one claim may name.
pub const CLAIM_KINDS_MAX: usize = 64;
/// Most decisions that are kept in memory.
pub const DECISIONS_MAX: usize = 1_000;

/// How jobs of a lane get to their runners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Dispatch {
    /// The server sends them to the executor of their kind.
    Push = 0,
    /// Pull workers claim them. A job that may start is reserved, with its limits and units taken, until a worker
    /// claims it.
    Reserve = 1,
    /// Pull workers claim them. A job waits until a worker claims it.
    Claim = 2,
}

impl Dispatch {
    /// Every variant, in the order of their codes.
    pub const ALL: [Dispatch; 3] = [Dispatch::Push, Dispatch::Reserve, Dispatch::Claim];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Dispatch::Push => "push",
            Dispatch::Reserve => "reserve",
            Dispatch::Claim => "claim",
        }
    }
}

/// What happens to a job whose worker stopped sending heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostPolicy {
    /// It is queued again, unless it was lost too often.
    Requeue,
    /// It fails.
    Fail,
}

/// The settings of a lane for pull workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSettings {
    /// How its jobs get to their runners.
    pub dispatch: Dispatch,
    /// How long an attempt of the lane lives without a heartbeat. `None`: the server's setting.
    pub lease: Option<Span>,
    /// How long a job stays reserved before it waits again.
    pub reservation_timeout: Span,
    /// What happens to a job whose worker stopped sending heartbeats.
    pub on_lease_lost: LostPolicy,
}

impl Default for PullSettings {
    fn default() -> PullSettings {
        PullSettings {
            dispatch: Dispatch::Push,
            lease: None,
            reservation_timeout: Span::secs(30),
            on_lease_lost: LostPolicy::Requeue,
        }
    }
}

impl PullSettings {
    /// True for a lane of pull workers.
    pub fn is_pull(&self) -> bool {
        self.dispatch != Dispatch::Push
    }
}

/// The worker that has an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The worker.
    pub worker: Name,
    /// The id of its process, if it reported one.
    pub pid: Option<u32>,
    /// For a worker with a connection: the boot id of its process, if it has one.
    pub boot: Option<Name>,
}

/// A worker claims the next job that fits it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The tenant of the jobs.
    pub tenant: Name,
    /// The lane, one of pull workers.
    pub lane: Name,
    /// Only jobs of this agent.
    pub agent: Option<Name>,
    /// Only jobs of these kinds; empty: of any. At most [`CLAIM_KINDS_MAX`].
    pub kinds: Vec<Name>,
    /// Only jobs that cost no more.
    pub max_cost: Option<u32>,
    /// The worker.
    pub holder: Holder,
    /// True: the attempt runs from now on. False: the worker's first heartbeat starts it.
    pub start: bool,
    /// The token of the call, if there is one. A token that has ended gets no job: it may have ended while the call
    /// waited.
    pub token: Option<Name>,
}

/// A worker requests to run one job now, or not at all.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The job.
    pub what: LeaseFor,
    /// The worker.
    pub holder: Holder,
}

/// The job of a lease request.
#[derive(Clone, Debug)]
pub enum LeaseFor {
    /// A new job. It is created if it can start now; otherwise nothing is stored.
    New(Box<Submission>),
    /// A job that waits or is reserved.
    Job {
        /// The tenant that the job must belong to. `None`: any.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
    },
}

/// A report of a worker about an attempt, or a revocation by an operator. The attempt is named by its id alone.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseMessage {
    /// The attempt.
    pub lease: AttemptId,
    /// The tenant that the job must belong to. `None`: any.
    pub tenant: Option<Name>,
    /// The worker, which must have the attempt. `None`: an operator, or the executor of the attempt.
    pub worker: Option<Name>,
    /// The id of its process, if it reports one.
    pub pid: Option<u32>,
    /// The report.
    pub update: LeaseUpdate,
}

/// A report about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseUpdate {
    /// It runs, or still runs. Its lease starts anew.
    Alive,
    /// It has progress or logs to report. Its lease does not start anew.
    Report,
    /// It has ended.
    Ended(Outcome),
    /// It must end, and its job fails for this reason.
    Revoke(Box<str>),
}

/// A granted lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The job's number.
    pub seq: Seq,
    /// The fence that every report about the attempt must carry. The attempt's id is the id of the lease.
    pub fence: Fence,
    /// The job's kind.
    pub kind: Name,
    /// The job's agent.
    pub agent: Name,
    /// Units it holds.
    pub cost: u32,
    /// Assigned, or running already.
    pub state: JobState,
    /// The time within which the worker must send a heartbeat.
    pub lease: Span,
    /// How long it may run.
    pub timeout: Span,
    /// When the job's deadline passes.
    pub deadline: Option<Wall>,
    /// True when this worker had it already.
    pub again: bool,
}

/// Why no lease was granted. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The reason.
    pub reason: DenyReason,
    /// When another request may succeed.
    pub retry_after: Span,
}

/// Why no lease was granted, with numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DenyReason {
    /// The server is stopping.
    Draining,
    /// Storage is low: only running attempts continue.
    StorageLow,
    /// The lane is paused.
    Paused,
    /// The lane or the server has as many open attempts as it may.
    MaxLeases {
        /// Most at once.
        limit: u32,
    },
    /// The agent has as many open attempts as it may.
    AgentCap {
        /// Most at once.
        limit: u32,
    },
    /// The tenant or the kind has as many open attempts as it may, or a key is in use.
    Full,
    /// The machine is overloaded.
    Panic,
    /// The machine is not quiet enough.
    NotQuiet {
        /// How quiet it is.
        state: QuietState,
    },
    /// No unit is free.
    NoCapacity {
        /// The busy rating.
        busy: u8,
        /// Units that may be in use at this rating.
        usable: u32,
        /// Units in use.
        used: u32,
    },
    /// It costs more units than are free.
    NeedsMore {
        /// Units that it costs.
        needed: u32,
        /// Units that are free.
        free: u32,
    },
    /// The free units are reserved for a job that was bypassed too often.
    Reserved,
    /// It costs more than the worker accepts.
    TooBig {
        /// What it costs.
        cost: u32,
    },
    /// Only a worker that runs nothing else may run it.
    Unique,
    /// Its time has not come yet.
    NotYet,
    /// Another worker has it.
    Taken,
    /// No job that fits waits.
    NothingEligible,
}

impl DenyReason {
    /// Every name that [`DenyReason::as_str`] returns.
    pub const NAMES: [&'static str; 16] = [
        "draining",
        "storage_low",
        "paused",
        "max_leases",
        "agent_cap",
        "full",
        "panic",
        "not_quiet",
        "no_capacity",
        "needs_more",
        "reserved",
        "too_big",
        "unique",
        "not_yet",
        "taken",
        "nothing_eligible",
    ];

    /// The name that users see.
    pub fn as_str(&self) -> &'static str {
        match self {
            DenyReason::Draining => "draining",
            DenyReason::StorageLow => "storage_low",
            DenyReason::Paused => "paused",
            DenyReason::MaxLeases { .. } => "max_leases",
            DenyReason::AgentCap { .. } => "agent_cap",
            DenyReason::Full => "full",
            DenyReason::Panic => "panic",
            DenyReason::NotQuiet { .. } => "not_quiet",
            DenyReason::NoCapacity { .. } => "no_capacity",
            DenyReason::NeedsMore { .. } => "needs_more",
            DenyReason::Reserved => "reserved",
            DenyReason::TooBig { .. } => "too_big",
            DenyReason::Unique => "unique",
            DenyReason::NotYet => "not_yet",
            DenyReason::Taken => "taken",
            DenyReason::NothingEligible => "nothing_eligible",
        }
    }

    /// When another request may succeed: soon where units are freed often, later where the load must fall first.
    pub fn retry_after(&self) -> Span {
        match self {
            DenyReason::NoCapacity { .. } | DenyReason::NothingEligible => Span(1_500),
            DenyReason::MaxLeases { .. }
            | DenyReason::AgentCap { .. }
            | DenyReason::NeedsMore { .. }
            | DenyReason::Reserved
            | DenyReason::Full
            | DenyReason::Unique
            | DenyReason::TooBig { .. } => Span(2_000),
            DenyReason::Draining | DenyReason::Paused | DenyReason::NotYet | DenyReason::Taken => {
                Span::secs(5)
            }
            DenyReason::NotQuiet { .. } => Span::secs(10),
            DenyReason::Panic | DenyReason::StorageLow => Span::secs(30),
        }
    }
}

impl From<DenyReason> for Denial {
    fn from(reason: DenyReason) -> Denial {
        Denial { retry_after: reason.retry_after(), reason }
    }
}

/// One answer to a pull worker, or one start of a job with a capacity request. For people; not kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: Wall,
    /// The tenant.
    pub tenant: Name,
    /// The agent of the job, if it is known.
    pub agent: Option<Name>,
    /// The lane.
    pub lane: Name,
    /// The job, if there is one.
    pub job: Option<JobId>,
    /// The worker that requested the lease, if one did.
    pub worker: Option<Name>,
    /// Units.
    pub cost: u32,
    /// `None`: admitted. Otherwise why not.
    pub denied: Option<DenyReason>,
}
