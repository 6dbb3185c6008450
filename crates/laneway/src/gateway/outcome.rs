//! What a caller gets: an answer, or the exact reason why there is none.

use laneway_compat::agent_turn::answer_of;
use laneway_core::{Bytes, Failure, JobId, JobState, Reason, Rejection, RejectionCode};
use laneway_runtime::store::JobView;
use laneway_runtime::{Stopped, WaitError};
use thiserror::Error;

/// How a request ended.
pub type Outcome = Result<Answer, GatewayError>;

/// The answer of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The job that ran. For a merged message, the job that it was merged into.
    pub job: JobId,
    /// The answer as text: a string, or the `content` of an object.
    pub content: String,
    /// The result of the handler.
    pub result: Option<Bytes>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GatewayError {
    /// The queue of the session is full, and the new message was rejected.
    #[error("session queue is full")]
    QueueFull,
    /// The queue of the session is full, and newer messages replaced this one.
    #[error("message dropped from queue")]
    QueueDropped,
    /// It was sent before its session was stopped.
    #[error("message stale: enqueued before abort")]
    MessageStale,
    /// The gateway stops. Waiting messages are kept if the scheduler is durable, and run at the next start.
    #[error("gateway is shutting down, please retry shortly")]
    GatewayDraining,
    /// The session was reset.
    #[error("session queue cleared during reset")]
    LaneCleared,
    /// It was canceled, or another message interrupted it.
    #[error("context canceled")]
    Canceled,
    /// The turn failed; a panic has the message `run panic: …`.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// The scheduler rejected it: a limit is reached, or it is invalid.
    #[error("{0}")]
    Rejected(Rejection),
    /// A field of the request is invalid.
    #[error("{field} {problem}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The outcome could not be read.
    #[error("the outcome cannot be read: {0}")]
    Unknown(String),
}

impl From<Stopped> for GatewayError {
    fn from(_: Stopped) -> GatewayError {
        GatewayError::GatewayDraining
    }
}

impl From<Rejection> for GatewayError {
    fn from(rejection: Rejection) -> GatewayError {
        match rejection.code {
            RejectionCode::SessionFull => GatewayError::QueueFull,
            RejectionCode::Stale => GatewayError::MessageStale,
            RejectionCode::Draining => GatewayError::GatewayDraining,
            _ => GatewayError::Rejected(rejection),
        }
    }
}

impl From<WaitError> for GatewayError {
    fn from(error: WaitError) -> GatewayError {
        match error {
            WaitError::Stopped(stopped) => stopped.into(),
            WaitError::Read(laneway_runtime::ReadError::Stopped(stopped)) => stopped.into(),
            other => GatewayError::Unknown(other.to_string()),
        }
    }
}

/// The outcome for a job's end.
pub(super) fn outcome_of(view: JobView) -> Outcome {
    let job = view.row.id;
    let Some(end) = view.end else { return Err(GatewayError::Unknown("the job has not ended".to_owned())) };
    match (end.state, end.reason) {
        (JobState::Succeeded, _) => {
            let content = end.result.as_deref().map(answer_of).unwrap_or_default();
            Ok(Answer { job, content, result: end.result })
        }
        (_, Reason::Dropped) => Err(GatewayError::QueueDropped),
        (_, Reason::Stale) => Err(GatewayError::MessageStale),
        (_, Reason::Cleared) => Err(GatewayError::LaneCleared),
        (_, Reason::Shutdown) => Err(GatewayError::GatewayDraining),
        (JobState::Canceled, _) => Err(GatewayError::Canceled),
        (_, reason) => Err(GatewayError::Failed(failure_of(end.error, reason))),
    }
}

fn failure_of(error: Option<Failure>, reason: Reason) -> Failure {
    let Some(mut failure) = error else { return Failure::permanent(reason.as_str(), reason.as_str()) };
    if failure.code.as_str() == "panicked" {
        let text = failure.message.strip_prefix("the handler panicked: ").unwrap_or(&failure.message);
        failure.message = format!("run panic: {text}").into();
    }
    failure
}
