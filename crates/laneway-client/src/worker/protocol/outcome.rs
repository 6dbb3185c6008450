//! Builds the frame for the end of an attempt.

use std::time::Duration;

use laneway_wire::frame::{
    AckNote, ErrorCode, FRAME_LEN_MAX, Frame, JsonObject, List, Message, ResultError, ResultStatus,
    TaskResult, Text,
};
use serde_json::json;

use super::super::outbox::{Keep, TaskKey};
use super::super::tasks::{Open, Rejection, StopReason};
use super::{Action, Now, Protocol, report};
use crate::worker::ended::{Ended, Failure};

/// Most characters of an error message in a result.
const MESSAGE_LEN_MAX: usize = 16 << 10;

/// Bytes reserved in a frame for its envelope: four texts of the largest size, escaped, and the syntax around
/// them.
const ENVELOPE_LEN_MAX: usize = 64 << 10;

/// A summary of an ended attempt, for metrics and logs.
pub struct EndedRun {
    /// Its kind.
    pub kind: Text,
    /// How long it ran.
    pub took: Duration,
    /// The code of its failure, if it failed.
    pub code: Option<Text>,
    /// True when its result is sent, and with it the artifacts that it names.
    pub gives: bool,
}

impl Protocol {
    /// An attempt has ended: its outcome is sent, and kept until it is acknowledged. An attempt that is not
    /// open is ignored.
    pub fn ended(
        &mut self,
        now: Now,
        key: &TaskKey,
        ended: Ended,
        out: &mut Vec<Action>,
    ) -> Option<EndedRun> {
        let (open, next) = self.tasks.end(now.mono, key)?;
        let Open { run_id, node_id, kind, started, stopping, .. } = open;
        let took = now.mono.saturating_sub(started);
        let ended = match (stopping, ended) {
            (_, Ended::Done(outcome)) => Ended::Done(outcome),
            // The attempt was stopped, whatever its handler returned.
            (Some(_), _) => Ended::Stopped,
            (None, ended) => ended,
        };
        let why = stopping.unwrap_or(StopReason::Lease);
        let message = match why {
            // The result of an attempt that no longer belongs to this worker is discarded.
            StopReason::Stale => None,
            _ => self.outcome_message(key, run_id.clone(), Some(&node_id), Some(took), ended, why),
        };
        let message = message.map(|message| bounded(message, took));
        let code = message.as_ref().and_then(code_of);
        let gives = message.is_some() && code.is_none();
        if let Some(message) = message {
            self.send_outcome(now, key.clone(), run_id, message, out);
        }
        if let Some(order) = next {
            out.push(Action::Start(order));
        }
        self.close_if_drained(out);
        Some(EndedRun { kind, took, code, gives })
    }

    pub(super) fn send_outcome(
        &mut self,
        now: Now,
        key: TaskKey,
        run_id: Text,
        message: Message,
        out: &mut Vec<Action>,
    ) {
        let frame = self.frame(now, message);
        let (corr, seq) = (Some(key.task_id.clone()), Some(key.seq));
        let frame = Frame { corr, seq, ack: AckNote::requested(), ..frame };
        self.send_kept(now, frame, Keep::Outcome { key, run_id }, out);
    }

    /// The frame for an end. `why` matters only for attempts that were stopped.
    pub(super) fn outcome_message(
        &self,
        key: &TaskKey,
        run_id: Text,
        node_id: Option<&Text>,
        took: Option<Duration>,
        ended: Ended,
        why: StopReason,
    ) -> Option<Message> {
        let blank = TaskResult {
            run_id,
            task_id: key.task_id.clone(),
            status: ResultStatus::Succeeded,
            result: JsonObject::empty(),
            duration_ms: took.and_then(|took| u64::try_from(took.as_millis()).ok()),
            metadata: None,
            artifacts: None,
            error: None,
        };
        let stopped = matches!(ended, Ended::Stopped);
        if stopped && why != StopReason::Canceled {
            // Not the task's fault: the scheduler retries a task with this code.
            let message = match why {
                StopReason::Drain => "the worker stopped before the task ended",
                _ => "the lease expired: the scheduler did not answer",
            };
            let part = "worker.runner";
            let rejection = Rejection { code: ErrorCode::RunnerCancelled, part, message: message.to_owned() };
            let node_id = node_id.map(Text::as_str);
            let details =
                json!({"run_id": blank.run_id.as_str(), "task_id": key.task_id.as_str(), "node_id": node_id});
            return Some(Message::Error(report(rejection, &details)));
        }
        Some(Message::Result(Box::new(match ended {
            Ended::Done(outcome) => {
                let artifacts = Some(outcome.artifacts).filter(|artifacts| !artifacts.is_empty());
                let Ok(artifacts) = artifacts.map(List::new).transpose() else {
                    let failure =
                        Failure::permanent("too_many_artifacts", "the handler made too many artifacts");
                    return Some(Message::Result(Box::new(failed(blank, failure))));
                };
                let status = if outcome.skipped { ResultStatus::Skipped } else { ResultStatus::Succeeded };
                TaskResult { status, result: outcome.result, metadata: outcome.metadata, artifacts, ..blank }
            }
            Ended::Failed(failure) => failed(blank, failure),
            Ended::Panicked(message) => failed(
                blank,
                Failure::permanent(
                    ErrorCode::RunnerFailure.as_str(),
                    format!("the handler panicked: {message}"),
                ),
            ),
            Ended::TimedOut => failed(
                blank,
                Failure::transient(ErrorCode::Timeout.as_str(), "the task took longer than timeout_ms"),
            ),
            Ended::Stopped => {
                let message = "the task was stopped at the request of the scheduler".to_owned();
                let error =
                    ResultError { code: ErrorCode::RunnerCancelled.into(), message, remediation: None };
                TaskResult { status: ResultStatus::Cancelled, error: Some(error), ..blank }
            }
        })))
    }
}

/// A result that does not fit in a frame could never arrive, and each attempt to send it would cost a connection.
fn bounded(message: Message, took: Duration) -> Message {
    let len = serde_json::to_vec(&message).map_or(0, |json| json.len());
    match message {
        Message::Result(result) if len > FRAME_LEN_MAX - ENVELOPE_LEN_MAX => {
            let blank = TaskResult {
                result: JsonObject::empty(),
                metadata: None,
                artifacts: None,
                error: None,
                duration_ms: u64::try_from(took.as_millis()).ok(),
                ..*result
            };
            let message = format!("the result has {len} bytes as JSON; return large data as an artifact");
            Message::Result(Box::new(failed(blank, Failure::permanent("result_too_long", message))))
        }
        message => message,
    }
}

fn failed(blank: TaskResult, failure: Failure) -> TaskResult {
    let Failure { code, message, remediation, retryable } = failure;
    let message: String = message.chars().take(MESSAGE_LEN_MAX).collect();
    TaskResult {
        status: ResultStatus::Failed,
        metadata: JsonObject::of(&json!({"retryable": retryable})).ok(),
        error: Some(ResultError { code, message, remediation }),
        ..blank
    }
}

fn code_of(message: &Message) -> Option<Text> {
    match message {
        Message::Result(result) => result.error.as_ref().map(|error| error.code.clone()),
        Message::Error(error) => Some(error.code.clone()),
        _ => None,
    }
}
