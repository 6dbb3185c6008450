//! Leases: the time-bound right of a worker to run an attempt, for lanes whose workers ask for work.
//!
//! Only words live here; how they are answered is in `engine/leases/claim.rs` and `engine/leases/by_id.rs`.

use crate::capacity::QuietState;
use crate::{AttemptId, Fence, JobId, JobState, Name, Outcome, Seq, Span, Submission, Wall};

/// Most kinds that one claim may name.
pub const CLAIM_KINDS_MAX: usize = 64;
/// Decisions that are remembered for people.
pub const DECISIONS_MAX: usize = 1_000;

/// How the jobs of a lane get to who runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Dispatch {
    /// The place that offers a job's kind is told.
    Push = 0,
    /// Workers ask. A job that may start is set aside for them, with all that it needs, until somebody takes it.
    Reserve = 1,
    /// Workers ask. A job waits until somebody takes it.
    Claim = 2,
}

impl Dispatch {
    /// Every way, in the order of their codes.
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

/// What becomes of a job whose worker went silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostPolicy {
    /// It waits again, unless it was lost too often.
    Requeue,
    /// It has failed.
    Fail,
}

/// How a lane whose workers ask for work treats them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSettings {
    /// How its jobs get to who runs them.
    pub dispatch: Dispatch,
    /// How long a remote attempt of the lane lives without a heartbeat. `None`: as on the whole server.
    pub lease: Option<Span>,
    /// How long a job is set aside for workers before it waits again.
    pub reservation_timeout: Span,
    /// What becomes of a job whose worker went silent.
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
    /// Do workers ask for the jobs of the lane?
    pub fn is_pull(&self) -> bool {
        self.dispatch != Dispatch::Push
    }
}

/// Who holds an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The worker.
    pub worker: Name,
    /// Its process, if it said so.
    pub pid: Option<u32>,
    /// For a worker with a connection: the boot id of its process, if it has one.
    pub boot: Option<Name>,
}

/// A worker asks for the next job that suits it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Whose jobs.
    pub tenant: Name,
    /// The lane, one whose workers ask.
    pub lane: Name,
    /// Only jobs of this agent.
    pub agent: Option<Name>,
    /// Only jobs of these kinds; empty: of any. At most [`CLAIM_KINDS_MAX`].
    pub kinds: Vec<Name>,
    /// Only jobs that cost no more.
    pub max_cost: Option<u32>,
    /// Who asks.
    pub holder: Holder,
    /// True: it runs from now on. False: the worker says so later (its first heartbeat does).
    pub start: bool,
    /// The token by which it is asked for, if it is by one. A token that has ended gets nothing: a call that waited for
    /// long may have outlived it.
    pub token: Option<Name>,
}

/// A worker asks to run one job now, or not at all.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// What for.
    pub what: LeaseFor,
    /// Who asks.
    pub holder: Holder,
}

/// What a lease is asked for.
#[derive(Clone, Debug)]
pub enum LeaseFor {
    /// A job that does not exist yet. It is made if it can start now; else nothing is kept.
    New(Box<Submission>),
    /// A job that waits, or is set aside for workers.
    Job {
        /// Whose job it must be. `None`: any tenant's.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
    },
}

/// What a worker (or, for a revoke, an operator) says about an attempt, by the attempt's id alone.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseMessage {
    /// The attempt.
    pub lease: AttemptId,
    /// Whose job it must be. `None`: any tenant's.
    pub tenant: Option<Name>,
    /// Who says so; must be its holder. `None`: an operator, or somebody whose place the attempt is.
    pub worker: Option<Name>,
    /// Its process, if it says so.
    pub pid: Option<u32>,
    /// What is said.
    pub update: LeaseUpdate,
}

/// What is said about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseUpdate {
    /// It runs or still runs; its lease starts anew.
    Alive,
    /// It has something to tell; its lease does not start anew.
    Report,
    /// It has ended.
    Ended(Outcome),
    /// It must end: its job has failed, for this reason.
    Revoke(Box<str>),
}

/// A lease that was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The job's number.
    pub seq: Seq,
    /// The fence that every word about the attempt must carry. The attempt's id is the lease's.
    pub fence: Fence,
    /// The job's kind.
    pub kind: Name,
    /// The job's agent.
    pub agent: Name,
    /// Units it holds.
    pub cost: u32,
    /// Assigned, or running already.
    pub state: JobState,
    /// Within which it must be heard of.
    pub lease: Span,
    /// How long it may run.
    pub timeout: Span,
    /// When the job's deadline passes.
    pub deadline: Option<Wall>,
    /// True when this worker held it already.
    pub again: bool,
}

/// Why no lease was given. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Why.
    pub reason: DenyReason,
    /// When asking again may help.
    pub retry_after: Span,
}

/// Why no lease was given, with figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DenyReason {
    /// The server is stopping.
    Draining,
    /// Storage is low: only what runs goes on.
    StorageLow,
    /// The lane is paused.
    Paused,
    /// As many attempts are open as may be, in the lane or on the server.
    MaxLeases {
        /// Most at once.
        limit: u32,
    },
    /// The agent has as many open attempts as it may.
    AgentCap {
        /// Most at once.
        limit: u32,
    },
    /// The tenant or the kind has as many open attempts as it may, or a key is taken.
    Full,
    /// The machine is in a panic.
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
        /// Units that may be held at it.
        usable: u32,
        /// Units that are held.
        used: u32,
    },
    /// It needs more units than are free.
    NeedsMore {
        /// What it needs.
        needed: u32,
        /// What is free.
        free: u32,
    },
    /// Units are kept for a job that was overtaken too often.
    Reserved,
    /// It costs more than the worker wants to run.
    TooBig {
        /// What it costs.
        cost: u32,
    },
    /// It may be run only by a worker that holds nothing else.
    Unique,
    /// Its time has not come.
    NotYet,
    /// Another worker has it.
    Taken,
    /// Nothing that suits waits.
    NothingEligible,
}

impl DenyReason {
    /// Every word that [`DenyReason::word`] gives.
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

    /// The word users see.
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

    /// When asking again may help: soon where units come and go, later where the machine must calm down.
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

/// One answer to a worker that asked, or one start of a job with needs: for people, not kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: Wall,
    /// Whose.
    pub tenant: Name,
    /// Whose job, as far as that is known.
    pub agent: Option<Name>,
    /// The lane.
    pub lane: Name,
    /// The job, if there is one.
    pub job: Option<JobId>,
    /// Who asked, if somebody did.
    pub worker: Option<Name>,
    /// Units.
    pub cost: u32,
    /// `None`: admitted. Else why not.
    pub denied: Option<DenyReason>,
}
