//! Leases of pull workers, and the capacity of the machine.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::job_request::JobRequest;
use crate::object;

/// A request for work: for the next job of a lane, for one job (`job`), or for a job that does not exist yet (`new`).
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest<'a> {
    /// The worker. Every later request about the lease must name the same worker.
    #[serde(borrow)]
    pub worker: Cow<'a, str>,
    /// Its process id, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The lane whose next job is requested. Its `dispatch` must be `claim` or `reserve`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Cow<'a, str>>,
    /// Only jobs of this agent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Cow<'a, str>>,
    /// Only jobs of these kinds, at most 64.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<Cow<'a, str>>>,
    /// Only jobs that cost at most this many units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u32>,
    /// The id of the one job that is requested.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Cow<'a, str>>,
    /// A job that the server creates if it can start now. Otherwise the server keeps nothing.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub new: Option<JobRequest<'a>>,
}

/// The response to a request for work.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseAnswer {
    /// True: the worker got a lease.
    pub granted: bool,
    /// The lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The payload of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// The `traceparent` for calls that the attempt makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The `tracestate` that belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// How long the attempt may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// The deadline of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Why there is no lease: `no_capacity`, `not_quiet`, `nothing_eligible`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason in a sentence, with numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When a new request may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    /// The same in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// How long the lease lives without a heartbeat, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// A lease: the time-limited right of a worker to run an attempt.
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
    /// The worker that has it. Absent: the job is reserved, and no worker has claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The process id of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The job's state.
    pub state: String,
    /// The units of the machine that it holds.
    pub cost: u32,
    /// When it was opened.
    pub opened_at: String,
    /// When it expires without a heartbeat.
    pub expires_at: String,
}

/// Leases, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseList {
    /// The leases.
    pub leases: Vec<Lease>,
}

/// A heartbeat for a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseBeat {
    /// The worker.
    pub worker: String,
    /// Its process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// The response to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseAlive {
    /// When the lease expires without another heartbeat.
    pub expires_at: String,
    /// The milliseconds until then.
    pub ttl_ms: u64,
    /// True: the worker must stop the attempt and release the lease.
    pub stop: bool,
}

/// A progress report. It does not extend the lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseReport {
    /// The worker.
    pub worker: String,
    /// From 0 to 1.
    pub progress: f64,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The end of an attempt.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRelease<'a> {
    /// The worker.
    #[serde(borrow)]
    pub worker: Cow<'a, str>,
    /// `succeeded`, `failed`, `canceled` (stopped on request) or `handed_back` (the job is queued again and the
    /// attempt does not count).
    #[serde(borrow)]
    pub outcome: Cow<'a, str>,
    /// The result: any JSON.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<&'a RawValue>,
    /// The error, for `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub error: Option<LeaseError>,
}

/// A failure of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseError {
    /// A stable code for programs. Defaults to `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A sentence for people.
    pub message: String,
    /// True when a retry may help. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// A request to revoke a lease. Its job fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRevoke {
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The capacity of the machine, and the agents that hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// The busy rating, 0 to 10.
    pub busy: u8,
    /// `quiet`, `normal`, `busy` or `panic`.
    pub quiet: String,
    /// False while there is no recent reading of the load. The machine counts as busy then.
    pub fresh: bool,
    /// The units of the whole machine.
    pub total: u32,
    /// The units that jobs may hold now.
    pub usable: u32,
    /// The units that jobs hold.
    pub used: u32,
    /// The part of `used` that reserved jobs hold.
    pub reserved: u32,
    /// The units that no job holds.
    pub free: u32,
    /// The number of open leases.
    pub leases: u32,
    /// The job that starts next among those with a cost, because it was bypassed too often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_in_line: Option<String>,
    /// The units by agent, for the caller's tenant.
    pub agents: Vec<AgentUnits>,
}

/// Units that an agent holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentUnits {
    /// The tenant.
    pub tenant: String,
    /// The agent.
    pub agent: String,
    /// The units.
    pub units: u32,
}
