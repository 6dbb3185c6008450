//! What a caller gets: an answer, or exactly why there is none.

use laneway_core::{Bytes, Failure, JobId, JobState, Reason, Refusal, RefusalCode};
use laneway_runtime::agent_turn::answer_of;
use laneway_runtime::store::JobView;
use laneway_runtime::{Stopped, WaitError};
use thiserror::Error;

/// How a request ended.
pub type Outcome = Result<Answer, GatewayError>;

/// What a run gave back.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The job that ran. For a message that was merged, the one that ran for it.
    pub job: JobId,
    /// The answer as text: a string, or the `content` of an object.
    pub content: String,
    /// What the handler gave back, as it is.
    pub result: Option<Bytes>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GatewayError {
    /// As many messages wait as may, and the new one is to give way.
    #[error("session queue is full")]
    QueueFull,
    /// Newer messages came, and as many wait as may.
    #[error("message dropped from queue")]
    QueueDropped,
    /// It was sent before everything of its session was stopped.
    #[error("message stale: enqueued before abort")]
    MessageStale,
    /// The gateway stops. What waits is kept where the scheduler is durable, and runs at the next start.
    #[error("gateway is shutting down, please retry shortly")]
    GatewayDraining,
    /// The session was reset.
    #[error("session queue cleared during reset")]
    LaneCleared,
    /// Somebody stopped it, or another message took its place.
    #[error("context canceled")]
    Canceled,
    /// The run failed; a panic says `run panic: …`.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// The scheduler did not take it: a limit is reached, or something about it cannot be.
    #[error("{0}")]
    Refused(Refusal),
    /// A part of the request is not what it must be.
    #[error("{field} {problem}")]
    Invalid {
        /// Which part.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The store could not say how it ended.
    #[error("the outcome cannot be read: {0}")]
    Unknown(String),
}

impl From<Stopped> for GatewayError {
    fn from(_: Stopped) -> GatewayError {
        GatewayError::GatewayDraining
    }
}

impl From<Refusal> for GatewayError {
    fn from(refusal: Refusal) -> GatewayError {
        match refusal.code {
            RefusalCode::SessionFull => GatewayError::QueueFull,
            RefusalCode::Stale => GatewayError::MessageStale,
            RefusalCode::Draining => GatewayError::GatewayDraining,
            _ => GatewayError::Refused(refusal),
        }
    }
}

impl From<WaitError> for GatewayError {
    fn from(error: WaitError) -> GatewayError {
        match error {
            WaitError::Stopped(stopped) => stopped.into(),
            WaitError::Query(laneway_runtime::QueryError::Stopped(stopped)) => stopped.into(),
            other => GatewayError::Unknown(other.to_string()),
        }
    }
}

/// The outcome that a job's end means.
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
    let Some(mut failure) = error else { return Failure::permanent(reason.word(), reason.word()) };
    if failure.code.as_str() == "panicked" {
        let text = failure.message.strip_prefix("the handler panicked: ").unwrap_or(&failure.message);
        failure.message = format!("run panic: {text}").into();
    }
    failure
}
