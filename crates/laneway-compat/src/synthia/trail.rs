//! The audit trail of an intent, in their words.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Path, State};
use laneway_core::event::JobLine;
use laneway_core::{AttemptId, Event, EventKind, Reason};
use laneway_runtime::Caller;
use serde_json::{Value, json};

use super::Synthia;
use super::error::{Answer, ok};
use super::time::stamp;
use super::words::event_word;

/// Most events of one job that are shown.
const EVENTS_MAX: usize = 1_000;

/// What happened to an intent, oldest first.
pub async fn list_intent_events(
    State(synthia): State<Synthia>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let view = synthia.find_intent(&caller, &id).await?.view;
    let seq = view.row.seq;
    let (events, closed) = synthia
        .scheduler
        .query(move |reader| Ok((reader.events_of(seq, EVENTS_MAX)?, reader.attempts(seq)?)))
        .await?;
    let mut leases: BTreeMap<u32, AttemptId> = BTreeMap::new();
    leases.extend(closed.iter().map(|attempt| {
        let fence = attempt.closed.open.fence;
        (fence.attempt, fence.attempt_id)
    }));
    leases.extend(view.open.iter().map(|open| (open.fence.attempt, open.fence.attempt_id)));
    leases.extend(view.end.iter().filter_map(|end| Some((end.attempts, end.attempt_id?))));
    let mut state = "QUEUED";
    let mut lines = Vec::new();
    for event in &events {
        let Some(job) = &event.job else { continue };
        for word in words_of(event, job, state) {
            let to = state_after(word, state);
            let lease = leases.get(&job.attempt).filter(|_| word == "DISPATCHING" || word == "RUNNING");
            lines.push(line(event, job, word, (state, to), lease.copied()));
            state = to;
        }
    }
    ok(&json!({"job_id": id, "events": lines}))
}

/// One line of a trail.
pub fn line(
    event: &Event,
    job: &JobLine,
    word: &'static str,
    (from, to): (&'static str, &'static str),
    lease: Option<AttemptId>,
) -> Value {
    json!({
        "event_id": event.number,
        "ts": stamp(event.at),
        "job_id": job.id.to_string(),
        "type": word,
        "from_state": from,
        "to_state": to,
        "reason": reason(event, job),
        "attempt": job.attempt,
        "lease_id": lease.map(|lease| lease.to_string()),
    })
}

/// The words of an event: that a job starts means that it was admitted, and both are told.
pub fn words_of(event: &Event, job: &JobLine, state: &str) -> Vec<&'static str> {
    match event_word(event.kind, job.reason) {
        Some(word @ ("DISPATCHING" | "RUNNING")) if state == "QUEUED" => vec!["ADMITTED", word],
        Some(word) => vec![word],
        None => Vec::new(),
    }
}

/// The state that a word leaves a job in.
pub fn state_after(word: &'static str, state: &'static str) -> &'static str {
    match word {
        "SUBMITTED" | "QUEUED" => "QUEUED",
        "DISPATCHING" => "DISPATCHING",
        "RUNNING" => "RUNNING",
        "DONE" => "DONE",
        "FAILED" | "TIMEOUT" => "FAILED",
        "CANCELED" => "CANCELED",
        _ => state,
    }
}

fn reason(event: &Event, job: &JobLine) -> String {
    let word = match (event.kind, job.reason) {
        (EventKind::JobDenied, _) => return event.detail.as_deref().unwrap_or("capacity").to_owned(),
        (EventKind::JobSubmitted, _) => "submitted",
        (EventKind::JobAssigned, _) => "admitted",
        (EventKind::JobStarted, _) => "ack",
        (EventKind::JobSucceeded, _) => "complete",
        (EventKind::JobFailed, Some(Reason::Permanent | Reason::Exhausted)) => "complete",
        (EventKind::JobCanceled, _) => "canceled",
        (EventKind::JobQueued | EventKind::JobDeferred, Some(Reason::HandedBack)) => "dispatch_timeout",
        (EventKind::JobQueued, Some(Reason::Lost)) => "lease_expired",
        (_, Some(reason)) => reason.word(),
        (_, None) => "",
    };
    word.to_owned()
}
