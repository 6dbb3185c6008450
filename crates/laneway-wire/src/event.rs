//! Events, and the part of them that is the audit list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One numbered line of the durable trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Grows by one from event to event, server-wide.
    pub number: u64,
    /// When it happened.
    pub at: String,
    /// What happened, such as `job.succeeded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whose it is; absent for the server's own.
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
    /// What went wrong: with `job.failed`, `job.retrying` and `job.rejected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<EventError>,
    /// Who caused it by a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The call that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// A short text for people.
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
    /// The attempt it is about; 0 before the first.
    pub attempt: u32,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What went wrong, in short. The job and its attempts have the whole of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventError {
    /// A stable code for programs.
    pub code: String,
    /// A sentence for people, cut after 512 bytes.
    pub message: String,
}

/// The part of an event that is about a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventSchedule {
    /// The schedule's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What happened, in one word: `created`, `enabled`, `fired`, or how a run ended (`ok`, `error`, …).
    pub action: String,
}

/// The part of an event that is about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventRun {
    /// The run's id.
    pub id: String,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Events of a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The events.
    pub events: Vec<Event>,
}

/// What a stream says when events between two numbers can no longer be given, or never were there: numbers count anew when
/// a server was set up again or its data came from a backup, and `resumes_at` is then not above `after`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gap {
    /// The last event before the gap that the reader may have seen, or says to have seen.
    pub after: u64,
    /// The number of the first event that follows the gap.
    pub resumes_at: u64,
    /// `slow_reader`: nothing is lost, but the reader fell behind, and the stream ends here. Come back with
    /// `Last-Event-ID` set to `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One line of the audit list: who did what, when, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// The number of the event.
    pub number: u64,
    /// When.
    pub at: String,
    /// Who: a token's id, the identity of a client certificate, `open`, or a part of the server. Of a dispatch: who said
    /// it, `scheduler-control` or a worker.
    pub actor: String,
    /// What, such as `job.submitted`, `call.denied` or `cmd.dispatch`.
    pub action: String,
    /// `done`, `rejected` or `denied`. Of a dispatch: `dispatched`, `accepted`, how the attempt ended, or a code.
    pub outcome: String,
    /// Whose it is; absent for the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The job it was about. Of a dispatch it is what frames have as `corr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The worker that a dispatch went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The number of a dispatch, as frames have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What was changed, or why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The audit list, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// A page of entries. It may be short, or empty, while there is still a `next`.
    pub entries: Vec<AuditEntry>,
    /// Pass it as `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
