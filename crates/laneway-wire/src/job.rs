//! A job as the server shows it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A job. Fields without a value are omitted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Job<'a> {
    /// Its id: a time-ordered UUID.
    pub id: Cow<'a, str>,
    /// `scheduled`, `queued`, `assigned`, `running`, `succeeded`, `failed`, `canceled` or `rejected`.
    pub state: Cow<'a, str>,
    /// Why it ended in this state. Every ended job has a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// The type of the job. It selects the handler and the defaults.
    pub kind: Cow<'a, str>,
    /// The agent whose fair share and limits it counts against.
    pub agent: Cow<'a, str>,
    /// The lane that it runs in.
    pub lane: Cow<'a, str>,
    /// The session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Cow<'a, str>>,
    /// The tenant that may see it.
    pub tenant: Cow<'a, str>,
    /// A lower number runs sooner.
    pub priority: i32,
    /// The named resources that it holds while it runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    /// The number of the latest attempt. 0 before the first one.
    pub attempt: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Attempts that were lost.
    pub losses: u32,
    /// When it was submitted.
    pub created_at: Cow<'a, str>,
    /// When its latest attempt started to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Cow<'a, str>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Cow<'a, str>>,
    /// The job does not start before this time. For a job that waits for a retry: the time of the retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Cow<'a, str>>,
    /// The job neither starts nor runs after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Cow<'a, str>>,
    /// How long one attempt may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Cow<'a, str>>,
    /// How long it may wait before its first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<Cow<'a, str>>,
    /// The units of the machine that it holds while it runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost: u32,
    /// The least quiet state of the machine in which it may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<Cow<'a, str>>,
    /// The only hours in which it may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<Cow<'a, str>>,
    /// The worker that has its lease, in a lane of pull workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Cow<'a, str>>,
    /// The process id of that worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Free labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Cow<'a, str>>,
    /// The `traceparent` that it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Cow<'a, str>>,
    /// The `tracestate` that it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<Cow<'a, str>>,
    /// The ended job that this one retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<Cow<'a, str>>,
    /// The URL that receives a webhook when the job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Cow<'a, str>>,
    /// The job that runs instead, if this one was merged into a debounce batch of its session (reason `merged`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<Cow<'a, str>>,
    /// The schedule that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<JobSchedule>,
    /// The run that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Cow<'a, str>>,
    /// Its node in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Cow<'a, str>>,
    /// The progress that the running attempt reported. A restart of the server clears it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The result of the handler: JSON as it is, other bytes as `{"base64": "…"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// The caller that submitted it: a token's id, or `open` on a server without tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<Cow<'a, str>>,
    /// True when an equal earlier request created this job. Only in responses to a submit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
    /// Likely mistakes in a request that was admitted. Only in responses to a submit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Why it waits, in short. Only in lists that were requested with explanations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Cow<'a, str>>,
}

/// A likely mistake in a request that was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    /// A stable code for programs: `unserved_kind`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The schedule that created a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobSchedule {
    /// Its id. The schedule may have been deleted since.
    pub id: String,
    /// Its name when it created the job.
    pub name: String,
    /// The slot of the job. For a manual fire, the time of the request.
    pub slot: String,
    /// True for a manual fire.
    pub by_hand: bool,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobError {
    /// A stable code for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// False when a retry cannot help.
    pub retryable: bool,
    /// Further details from the handler: JSON as it is, other bytes as `{"base64": "…"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
}

/// The progress of a running attempt, as the attempt reported it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// From 0 to 1.
    pub fraction: f64,
    /// The message of the report.
    pub message: String,
    /// Metrics of the attempt by name, with the latest value of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// When it was reported.
    pub at: String,
}

/// A progress report of a running job, in the live stream (`job.progress`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// The job.
    pub job_id: String,
    /// The attempt that reported it.
    pub attempt: u32,
    /// The progress.
    pub progress: Progress,
}

/// Jobs, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobList<'a> {
    /// A page of jobs. It may be short or empty although there is a `next`.
    pub jobs: Vec<Job<'a>>,
    /// Pass it as `cursor`, with the same filters, for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `count=true`: how many jobs the filters match, on all pages. Absent where counting them would take too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<JobCounts>,
}

/// How many jobs a filter matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobCounts {
    /// All of them.
    pub total: u64,
    /// The same by state. A state without jobs is left out.
    pub states: BTreeMap<String, u64>,
    /// With `by`: the same for each lane, kind, agent or error code, the largest first. At most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<JobGroup>,
    /// How many groups are left out.
    #[serde(default)]
    pub more_groups: u64,
}

/// How many jobs a lane, a kind, an agent or an error code has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobGroup {
    /// The lane, the kind, the agent or the code.
    pub name: String,
    /// All of its jobs that the filter matches.
    pub total: u64,
    /// The same by state. A state without jobs is left out.
    pub states: BTreeMap<String, u64>,
}
