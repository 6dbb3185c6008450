//! Schedules and their firings, as the server shows them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::CatchUpRequest;

/// A schedule: it creates jobs at a time, in an interval, or by a cron expression.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Its id.
    #[schema(example = "sch_0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80")]
    pub id: String,
    /// Its name, unique within its tenant.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// False: it does not fire.
    pub enabled: bool,
    /// The cron expression, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * 1-5")]
    pub cron: Option<String>,
    /// The time zone of the expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub zone: Option<String>,
    /// The interval, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30m")]
    pub every: Option<String>,
    /// The start of the interval's grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// The time, if it fires once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T08:00:00Z")]
    pub at: Option<String>,
    /// The job that each slot creates: the same object as in `POST /v1/jobs`.
    #[schema(value_type = crate::JobRequest<'static>)]
    pub job: Box<RawValue>,
    /// The policy for slots that passed while the server was down.
    pub catch_up: CatchUpRequest,
    /// The policy for a slot that comes while an earlier firing is active: `skip`, `allow`, `queue` or
    /// `cancel_running`.
    pub overlap: String,
    /// Jobs start up to this much after their slot, at random.
    pub jitter: String,
    /// True: the server deletes it when its job has ended.
    pub delete_after_run: bool,
    /// The next slot. Absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// The latest slot that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<String>,
    /// When its latest firing ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ended_at: Option<String>,
    /// The status of its latest firing: `ok`, `error`, `queued`, `running`, `canceled`, `skipped`, `interrupted` or
    /// `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<String>,
    /// The error of its latest firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The number of jobs that it has submitted.
    pub firings: u64,
    /// When it was created.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
}

/// Schedules, in the order of their creation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScheduleList {
    /// A page of schedules.
    pub schedules: Vec<Schedule>,
    /// Pass it as `after` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The response to a manual fire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleFiredByHand {
    /// True: the schedule created a job.
    pub fired: bool,
    /// Why it created none: `not_due`, `already_running` or `already_queued`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

/// One entry of the firing log: a firing that ended, or a slot that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleFiring {
    /// The number of the entry. Numbers grow.
    pub number: u64,
    /// The schedule. It may have been deleted since.
    pub schedule_id: String,
    /// The schedule's name when it fired.
    pub name: String,
    /// The tenant.
    pub tenant: String,
    /// The agent of the job.
    pub agent: String,
    /// The job. Absent when the slot was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The slot. For a manual fire, the time of the request.
    pub slot: String,
    /// How it ended: `ok`, `error`, `canceled`, `skipped`, `interrupted` or `timeout`.
    pub status: String,
    /// The result of a firing that succeeded, as text, truncated to 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The error, or why the slot was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The number of attempts.
    pub attempts: u32,
    /// The time from the first start to the end, in milliseconds.
    pub duration_ms: u64,
    /// The number of input tokens, if the handler reported it.
    pub input_tokens: u64,
    /// The number of output tokens, if the handler reported it.
    pub output_tokens: u64,
    /// When the first attempt started, or when the slot was skipped.
    pub ran_at: String,
    /// When it ended.
    pub ended_at: String,
}

/// Entries of the firing log, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleFiringList {
    /// A page of entries.
    pub firings: Vec<ScheduleFiring>,
    /// The number of all entries.
    pub total: u64,
    /// Pass it as `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The next firings of a timing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchedulePreview {
    /// The time zone of the local times.
    pub zone: String,
    /// The firings, soonest first.
    pub firings: Vec<PreviewedFiring>,
}

/// One future firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewedFiring {
    /// The time, in UTC.
    pub at: String,
    /// The time, in the time zone.
    pub local: String,
}
