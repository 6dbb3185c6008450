//! Leases: what workers ask for, what they get, and what they say of it; and how much the machine can take.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::job_request::JobRequest;
use crate::object;

/// A worker asks for work: for the next job of a lane, for one job (`job`), or for a job that does not exist yet (`new`).
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest<'a> {
    /// Who asks; every word about the lease must name the same.
    #[serde(borrow)]
    pub worker: Cow<'a, str>,
    /// Its process, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The lane whose next job is asked for, one whose workers ask (`dispatch` is `claim` or `reserve`).
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Cow<'a, str>>,
    /// Only jobs of this agent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Cow<'a, str>>,
    /// Only jobs of these kinds, at most 64.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<Cow<'a, str>>>,
    /// Only jobs that cost no more units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u32>,
    /// The one job that is asked for, by its id.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Cow<'a, str>>,
    /// A job that is made if it can start now; else nothing is kept.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub new: Option<JobRequest<'a>>,
}

/// The answer to a worker that asked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseAnswer {
    /// True: the lease is the worker's.
    pub granted: bool,
    /// The lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// What the job was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// How long the run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// When the job's deadline passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Why there is no lease: `no_capacity`, `not_quiet`, `nothing_eligible`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence, with figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When asking again may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    /// The same in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// How long the lease lives without a heartbeat, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// A lease: the time-bound right of a worker to run an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// Its id.
    pub id: String,
    /// The job.
    pub job: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// The job's kind.
    pub kind: String,
    /// The job's agent.
    pub agent: String,
    /// The job's lane.
    pub lane: String,
    /// The job's tenant.
    pub tenant: String,
    /// Who holds it. Absent: the job is set aside, and nobody has taken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The process that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The job's state.
    pub state: String,
    /// Units of the machine that it holds.
    pub cost: u32,
    /// When it was opened.
    pub opened_at: String,
    /// When it ends unless it is heard of before.
    pub expires_at: String,
}

/// Leases, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseList {
    /// The leases.
    pub leases: Vec<Lease>,
}

/// A worker says that it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseBeat {
    /// Who says so.
    pub worker: String,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// What a worker that lives is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseAlive {
    /// When it must have been heard of again.
    pub expires_at: String,
    /// How long that is from now, in milliseconds.
    pub ttl_ms: u64,
    /// True: the run must stop, and say so with a release.
    pub stop: bool,
}

/// A worker says how far it is. The lease does not start anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseReport {
    /// Who says so.
    pub worker: String,
    /// From 0 to 1.
    pub progress: f64,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A worker's run has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRelease<'a> {
    /// Who says so.
    #[serde(borrow)]
    pub worker: Cow<'a, str>,
    /// `succeeded`, `failed`, `canceled` (it stopped because it was told to) or `handed_back` (it can be begun again without harm).
    #[serde(borrow)]
    pub outcome: Cow<'a, str>,
    /// What came out of it: any JSON.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<&'a RawValue>,
    /// What went wrong, for `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub error: Option<LeaseError>,
}

/// What went wrong in a worker's run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseError {
    /// A stable word for programs. Defaults to `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A sentence for people.
    pub message: String,
    /// True when trying again may help. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// Somebody takes a lease away: its job has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRevoke {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How much the machine can take, and who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// How busy it counts, 0 to 10.
    pub busy: u8,
    /// `quiet`, `normal`, `busy` or `panic`.
    pub quiet: String,
    /// False while there is no fresh reading of its load: then it counts as busy.
    pub fresh: bool,
    /// Units of the whole machine.
    pub total: u32,
    /// Units that jobs may hold now.
    pub usable: u32,
    /// Units that jobs hold.
    pub used: u32,
    /// Of these, units of jobs that are set aside and not yet taken.
    pub reserved: u32,
    /// Units that nobody holds.
    pub free: u32,
    /// Open leases.
    pub leases: u32,
    /// The job that goes next among those with a cost, because it was overtaken too often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_in_line: Option<String>,
    /// Who holds how much; of the caller's tenant.
    pub agents: Vec<AgentUnits>,
}

/// Units that an agent holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentUnits {
    /// The tenant.
    pub tenant: String,
    /// The agent.
    pub agent: String,
    /// Units.
    pub units: u32,
}
