//! Events, and the audit entries that are derived from them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One numbered entry of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// The number of the event. Numbers are server-wide and have no gaps.
    pub number: u64,
    /// When it happened.
    pub at: String,
    /// The type of the event, such as `job.succeeded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The tenant of the event. Absent for events of the server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The job it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<EventJob>,
    /// The schedule it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<EventSchedule>,
    /// The run it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<EventRun>,
    /// The error, for `job.failed`, `job.retrying` and `job.rejected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<EventError>,
    /// The caller whose request caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The id of the request that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// A short description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The part of an event that is about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventJob {
    /// The job's id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Its lane.
    pub lane: String,
    /// Its agent.
    pub agent: String,
    /// The number of the attempt. 0 before the first one.
    pub attempt: u32,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A short form of an error. The job and its attempts have the full form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventError {
    /// A stable code for programs.
    pub code: String,
    /// A sentence for people, truncated to 512 bytes.
    pub message: String,
}

/// The part of an event that is about a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventSchedule {
    /// The schedule's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What happened: `created`, `enabled`, `fired`, …, or how a firing ended (`ok`, `error`, …).
    pub action: String,
}

/// The part of an event that is about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventRun {
    /// The run's id.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Events of a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The events.
    pub events: Vec<Event>,
}

/// A gap in an event stream: the server no longer has the events between two numbers, or never had them. When a
/// server is set up again or restored from a backup, its numbers start again, and `resumes_at` is not above `after`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gap {
    /// The last event before the gap that the reader saw or claims to have seen.
    pub after: u64,
    /// The number of the first event that follows the gap.
    pub resumes_at: u64,
    /// `slow_reader`: no event is lost, but the reader fell behind and the stream ends here. Connect again with
    /// `Last-Event-ID` set to `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One audit entry: a caller, an action, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// The number of the event.
    pub number: u64,
    /// When it happened.
    pub at: String,
    /// The caller: a token's id, the identity of a client certificate, `open`, or a part of the server. For a
    /// dispatch, the sender: `scheduler-control` or a worker.
    pub actor: String,
    /// The action, such as `job.submitted`, `call.denied` or `cmd.dispatch`.
    pub action: String,
    /// `done`, `rejected` or `denied`. For a dispatch: `dispatched`, `accepted`, the outcome of the attempt, or a
    /// code.
    pub outcome: String,
    /// The tenant. Absent for events of the server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The job. For a dispatch, the `corr` of its frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The worker that received the dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The `seq` of the dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What changed, or why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Audit entries, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// A page of entries. It may be short or empty although there is a `next`.
    pub entries: Vec<AuditEntry>,
    /// Pass it as `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
