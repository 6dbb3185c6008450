//! Schedules and their runs, as a server shows them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{CatchUpRequest, JobRequest};

/// A schedule: makes jobs at a time, in an interval, or by a cron expression.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Its id.
    #[schema(example = "sch_0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80")]
    pub id: String,
    /// Its name, unique within its tenant.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// False: no slot comes.
    pub enabled: bool,
    /// The expression, for one that goes by cron.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * 1-5")]
    pub cron: Option<String>,
    /// The time zone of the expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub zone: Option<String>,
    /// The interval, for one that comes again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30m")]
    pub every: Option<String>,
    /// Where the grid of the interval begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// The time, for one that comes once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T08:00:00Z")]
    pub at: Option<String>,
    /// What each slot makes: the same object as in `POST /v1/jobs`.
    #[schema(value_type = JobRequest<'static>)]
    pub job: Box<RawValue>,
    /// What becomes of slots that passed while the server was not there.
    pub catch_up: CatchUpRequest,
    /// What a slot does that finds an earlier run still going: `skip`, `allow`, `queue` or `cancel_running`.
    pub overlap: String,
    /// Jobs start up to this much after their slot.
    pub jitter: String,
    /// True: it is deleted once its run has ended.
    pub delete_after_run: bool,
    /// The next slot. Absent: none will come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// The latest slot that came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<String>,
    /// When its latest run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ended_at: Option<String>,
    /// How its latest run stands or ended: `ok`, `error`, `queued`, `running`, `canceled`, `skipped`, `interrupted` or
    /// `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<String>,
    /// What went wrong in its latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How many jobs it has submitted.
    pub firings: u64,
    /// When it was made.
    pub created_at: String,
    /// When somebody changed it last.
    pub updated_at: String,
}

/// Schedules, in the order they were made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScheduleList {
    /// A page of schedules.
    pub schedules: Vec<Schedule>,
    /// Pass it as `after` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What became of a run by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleFiredByHand {
    /// True: there is a job.
    pub fired: bool,
    /// Why there is none: `not_due`, `already_running` or `already_queued`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

/// One entry of the run log: a run that ended, or a slot that passed without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleFiring {
    /// Its number; grows from entry to entry.
    pub number: u64,
    /// The schedule, which may be gone by now.
    pub schedule_id: String,
    /// The schedule's name when the job was made.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// The agent of the job.
    pub agent: String,
    /// The job. Absent: the slot passed without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The slot; for a run by hand, when it was asked for.
    pub slot: String,
    /// How it ended: `ok`, `error`, `canceled`, `skipped`, `interrupted` or `timeout`.
    pub status: String,
    /// What a run that ended well gave back, as text, cut at 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What went wrong, or why the slot passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Attempts opened.
    pub attempts: u32,
    /// From its first start to its end, in milliseconds.
    pub duration_ms: u64,
    /// Tokens read, where the runner says so.
    pub input_tokens: u64,
    /// Tokens written, where the runner says so.
    pub output_tokens: u64,
    /// When its first attempt started, or when it was decided that none would.
    pub ran_at: String,
    /// When it ended.
    pub ended_at: String,
}

/// Entries of the run log, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleFiringList {
    /// A page of entries.
    pub firings: Vec<ScheduleFiring>,
    /// How many entries there are in all.
    pub total: u64,
    /// Pass it as `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The next runs of a timing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchedulePreview {
    /// The time zone that local times are in.
    pub zone: String,
    /// The runs, soonest first.
    pub firings: Vec<PreviewedFiring>,
}

/// One run that would come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewedFiring {
    /// When, in UTC.
    pub at: String,
    /// When, on a clock of the time zone.
    pub local: String,
}
