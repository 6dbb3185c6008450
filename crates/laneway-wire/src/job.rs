//! A job as the server shows it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A job. Fields without a value are left out.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Job<'a> {
    /// Its id: a time-ordered UUID.
    pub id: Cow<'a, str>,
    /// `scheduled`, `queued`, `assigned`, `running`, `succeeded`, `failed`, `canceled` or `rejected`.
    pub state: Cow<'a, str>,
    /// Why it ended so; every ended job has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// What sort of work it is.
    pub kind: Cow<'a, str>,
    /// The party whose fair share and limits it counts against.
    pub agent: Cow<'a, str>,
    /// The pool it runs in.
    pub lane: Cow<'a, str>,
    /// The session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Cow<'a, str>>,
    /// The tenant that may see it.
    pub tenant: Cow<'a, str>,
    /// Lower runs sooner.
    pub priority: i32,
    /// Named resources it needs while it runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    /// Number of the latest attempt; 0 before the first.
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
    /// Not started before this time. For a job that waits for a retry: when it may start again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Cow<'a, str>>,
    /// Neither started nor running after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Cow<'a, str>>,
    /// How long one attempt may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Cow<'a, str>>,
    /// How long it may wait before its first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<Cow<'a, str>>,
    /// Units of the machine that it holds while it runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost: u32,
    /// The least quiet state of the machine in which it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<Cow<'a, str>>,
    /// The only hours in which it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<Cow<'a, str>>,
    /// The worker that holds it, where workers ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Cow<'a, str>>,
    /// That worker's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Free labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Cow<'a, str>>,
    /// The ended job that this one tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<Cow<'a, str>>,
    /// Who is told when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Cow<'a, str>>,
    /// The job that runs in its place, for one that was absorbed by a burst of its session (reason `merged`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<Cow<'a, str>>,
    /// The schedule that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<JobSchedule>,
    /// The run that it is a node of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Cow<'a, str>>,
    /// Which node of its run it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Cow<'a, str>>,
    /// How far its running attempt has come, as the attempt itself says. Not kept over a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What the handler gave back: JSON as it is, anything else as `{"base64": "…"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// What the last failure was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// Who submitted it: a token's id, or `open` where the server asks for no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<Cow<'a, str>>,
    /// True when this answer names a job that an equal request made earlier. Only in answers to a submit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
    /// What is likely a mistake although the job was admitted. Only in answers to a submit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Why it waits, in short. Only in lists that were asked to explain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Cow<'a, str>>,
}

/// Something that is likely a mistake although it was done.
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

/// The schedule that made a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobSchedule {
    /// Its id. The schedule may be gone by now.
    pub id: String,
    /// Its name when the job was made.
    pub name: String,
    /// The slot that the job stands for; for a run by hand, when it was asked for.
    pub slot: String,
    /// True: somebody asked for this run.
    pub by_hand: bool,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobError {
    /// A stable word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// False when trying again cannot help.
    pub retryable: bool,
    /// Anything else the handler wanted kept: JSON as it is, anything else as `{"base64": "…"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
}

/// How far a running attempt has come, in its own words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// From 0 to 1.
    pub fraction: f64,
    /// What it says.
    pub message: String,
    /// Metrics of its own, by name: the latest value of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// When it said so.
    pub at: String,
}

/// A report of a running job, as the live stream shows it (`job.progress`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// The job.
    pub job_id: String,
    /// The attempt that says so.
    pub attempt: u32,
    /// How far it is.
    pub progress: Progress,
}

/// Jobs, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobList<'a> {
    /// A page of jobs. It may be short, or empty, while there is still a `next`.
    pub jobs: Vec<Job<'a>>,
    /// Pass it as `cursor`, with the same filters, for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
