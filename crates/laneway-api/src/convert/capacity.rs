//! Converts the capacity request of a job, and the outcome that a pull worker reports.

use laneway_core::capacity::{COST_MAX, Hours};
use laneway_core::{AttemptId, CapacityRequest, Failure, Outcome, QuietRule};
use laneway_runtime::executors::context::cut;
use laneway_wire::{JobRequest, LeaseRelease};

use super::{name, optional, positive_span};
use crate::error::{ApiError, Code};

/// The longest stored message of a failure, in bytes.
const MESSAGE_MAX: usize = 4_096;

/// The capacity request of a job.
pub fn capacity_request(request: &JobRequest<'_>) -> Result<CapacityRequest, ApiError> {
    let cost = request.cost.unwrap_or(0);
    if cost > COST_MAX {
        return Err(ApiError::field("cost", format!("is {cost}; use 0 to {COST_MAX} units")));
    }
    Ok(CapacityRequest {
        cost,
        quiet: optional("quiet", &request.quiet, quiet)?,
        unique: request.unique.unwrap_or(false),
        expected_duration: optional("expected_duration", &request.expected_duration, positive_span)?,
        hours: optional("hours", &request.hours, hours)?,
    })
}

fn quiet(field: &str, text: &str) -> Result<QuietRule, ApiError> {
    let known = QuietRule::ALL.into_iter().find(|rule| rule.as_str() == text);
    known.ok_or_else(|| {
        ApiError::field(
            field,
            "must be quiet, normal or busy: the least quiet state in which the job may start",
        )
    })
}

fn hours(field: &str, text: &str) -> Result<Hours, ApiError> {
    Hours::parse(text).ok_or_else(|| {
        let message = "must be hours such as 22:00-06:00, 22:00-06:00 Europe/Berlin or 22:00-06:00 +01:00";
        ApiError::field(field, message)
    })
}

/// A lease's id from a path.
pub fn lease_id(text: &str) -> Result<AttemptId, ApiError> {
    AttemptId::parse(text).ok_or_else(|| {
        let detail =
            "a lease id looks like 3b1d5e6f-7c1e-4d3a-8f00-0190a5b07a80; the response to the request has it";
        ApiError::new(Code::InvalidId, detail)
    })
}

/// The outcome of an attempt, as its worker reported it.
pub fn outcome(release: &LeaseRelease<'_>) -> Result<Outcome, ApiError> {
    let text = release.outcome.as_ref();
    if text != "failed" && release.error.is_some() {
        return Err(ApiError::field(
            "error",
            format!("is set with the outcome {text}; it is for failed only"),
        ));
    }
    match text {
        "succeeded" => Ok(Outcome::Succeeded(release.result.map(|result| result.get().as_bytes().into()))),
        "failed" => {
            let Some(error) = &release.error else {
                return Err(ApiError::field("error", "is missing; send an error with a message"));
            };
            let code = error.code.as_deref().map(|code| name("error.code", code)).transpose()?;
            let failure = Failure::retryable("failed", cut(&error.message, MESSAGE_MAX));
            Ok(Outcome::Failed(Failure {
                code: code.unwrap_or(failure.code),
                retryable: error.retryable.unwrap_or(true),
                detail: release.result.map(|result| result.get().as_bytes().into()),
                ..failure
            }))
        }
        "canceled" => Ok(Outcome::Canceled),
        "handed_back" => Ok(Outcome::HandedBack),
        _ => Err(ApiError::field("outcome", "must be succeeded, failed, canceled or handed_back")),
    }
}
