//! Translates jobs of the scheduler into jobs of the dialect.

use jiff::Timestamp;
use laneway_browser::kinds::TIMEOUT_CODES;
use laneway_core::{AttemptEnd, Failure, JobEnd, JobId, JobState, Reason, Span, Wall};
use laneway_runtime::store::{AttemptView, JobView};
use serde_json::Value;

use super::KINDS;
use super::wire::Job;

/// The message of an attempt that ran too long.
pub const EXECUTION_TIMEOUT: &str = "Execution timeout";
/// The message of a job that waited too long.
pub const QUEUE_TIMEOUT: &str = "Queue timeout";

/// The names of the states of jobs.
pub const STATUSES: [(&str, Status); 5] = [
    ("queued", Status::Queued),
    ("running", Status::Running),
    ("succeeded", Status::Succeeded),
    ("failed", Status::Failed),
    ("canceled", Status::Canceled),
];

/// A state of a job, as the dialect knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It waits, also for a retry.
    Queued,
    /// It runs.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was canceled.
    Canceled,
}

impl Status {
    /// The state of a job of the scheduler. A rejected job is never recorded here.
    pub fn of(state: JobState) -> Status {
        match state {
            JobState::Scheduled | JobState::Queued => Status::Queued,
            JobState::Assigned | JobState::Running => Status::Running,
            JobState::Succeeded => Status::Succeeded,
            JobState::Failed | JobState::Rejected => Status::Failed,
            JobState::Canceled => Status::Canceled,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::Running => "running",
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::Canceled => "canceled",
        }
    }

    /// The states of the scheduler that it stands for.
    pub fn states(self) -> Vec<JobState> {
        JobState::ALL.into_iter().filter(|state| Status::of(*state) == self).collect()
    }

    /// True for the states that nothing leaves.
    pub fn is_terminal(self) -> bool {
        matches!(self, Status::Succeeded | Status::Failed | Status::Canceled)
    }
}

/// A time, in UTC.
pub fn time(at: Wall) -> String {
    Timestamp::from_millisecond(at.0).unwrap_or(Timestamp::MAX).to_string()
}

/// The job of an id in a path.
pub fn job_id(text: &str) -> Option<JobId> {
    JobId::parse(text)
}

/// True for jobs that the dialect shows.
pub fn is_ours(view: &JobView) -> bool {
    KINDS.contains(&view.row.spec.kind.as_str())
}

/// The job.
pub fn job(view: &JobView) -> Job {
    let (row, end) = (&view.row, view.end.as_ref());
    let started_at = match end {
        Some(end) => end.started_at,
        None => view.open.as_ref().and_then(|open| open.started_at.or(Some(open.opened_at))),
    };
    Job {
        job_id: row.id.to_string(),
        job_type: row.spec.kind.to_string(),
        status: Status::of(view.state()).as_str(),
        result: result(view),
        error_message: end.and_then(error_message),
        retry_count: retry_count(view),
        max_retries: row.spec.retry.as_ref().map_or(0, |retry| retry.retries_max),
        timeout_seconds: row.spec.timeout.map(|Span(ms)| ms.div_ceil(1_000)),
        created_at: time(row.created_at),
        started_at: started_at.map(time),
        finished_at: end.map(|end| time(end.finished_at)),
    }
}

/// The result of a job; `null` while there is none. Bytes that are not JSON are shown as text.
pub fn result(view: &JobView) -> Value {
    let bytes = view.end.as_ref().and_then(|end| end.result.as_deref());
    bytes.map_or(Value::Null, |bytes| {
        serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into())
    })
}

/// Why a job did not succeed.
pub fn error_message(end: &JobEnd) -> Option<String> {
    let message = || end.error.as_ref().map(failure_message);
    match (end.state, end.reason) {
        (JobState::Succeeded, _) => None,
        (_, Reason::QueueTimeout) => Some(QUEUE_TIMEOUT.to_owned()),
        (_, Reason::TimedOut) => Some(EXECUTION_TIMEOUT.to_owned()),
        (JobState::Canceled, _) => message(),
        _ => message().or_else(|| Some(format!("the job ended: {}", end.reason))),
    }
}

/// The message of a failed attempt of a job that waits for its retry.
pub fn attempt_message(attempt: &AttemptView) -> Option<String> {
    match attempt.end() {
        AttemptEnd::TimedOut => Some(EXECUTION_TIMEOUT.to_owned()),
        AttemptEnd::Failed | AttemptEnd::Lost => attempt.closed.error.as_ref().map(failure_message),
        _ => None,
    }
}

fn failure_message(failure: &Failure) -> String {
    message_of(failure.code.as_str(), &failure.message)
}

/// The dialect's text for an error.
pub fn message_of(code: &str, message: &str) -> String {
    if TIMEOUT_CODES.contains(&code) { EXECUTION_TIMEOUT.to_owned() } else { message.to_owned() }
}

/// How often a job was tried again: every failed or lost attempt was followed by another one, except the last attempt of a
/// failed job.
fn retry_count(view: &JobView) -> u32 {
    match &view.end {
        None => view.row.status.failures + view.row.status.losses,
        Some(end) => {
            let ended_by_attempt = end.state == JobState::Failed && end.attempt_id.is_some();
            (end.failures + end.losses).saturating_sub(u32::from(ended_by_attempt))
        }
    }
}

/// The number of the job's latest event.
pub fn last_event(view: &JobView) -> u64 {
    let open = view.open.as_ref().map_or(0, |open| open.last_event);
    let end = view.end.as_ref().map_or(0, |end| end.last_event);
    view.row.status.last_event.max(open).max(end)
}
