//! The events of an intent, in the format of the dialect.

use std::collections::BTreeMap;

use axum::extract::Path;
use laneway_core::event::JobLine;
use laneway_core::{AttemptId, Event, EventKind, Reason};
use serde_json::{Value, json};

use super::Synthia;
use super::error::{Answer, ok};
use super::time::stamp;
use super::vocabulary::event_name;
use crate::body::Call;

/// Most events of one job that are shown.
const EVENTS_MAX: usize = 1_000;

/// The events of an intent, oldest first.
pub async fn list_intent_events(Call(synthia, caller): Call<Synthia>, Path(id): Path<String>) -> Answer {
    let view = synthia.find_intent(&caller, &id).await?.view;
    let seq = view.row.seq;
    let (events, closed) = synthia
        .scheduler
        .read(move |reader| Ok((reader.events_of(seq, EVENTS_MAX)?, reader.attempts(seq)?)))
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
        for name in event_names(event, job, state) {
            let to = state_after(name, state);
            let lease = leases.get(&job.attempt).filter(|_| name == "DISPATCHING" || name == "RUNNING");
            lines.push(line(event, job, name, (state, to), lease.copied()));
            state = to;
        }
    }
    ok(&json!({"job_id": id, "events": lines}))
}

/// One event.
pub fn line(
    event: &Event,
    job: &JobLine,
    name: &'static str,
    (from, to): (&'static str, &'static str),
    lease: Option<AttemptId>,
) -> Value {
    json!({
        "event_id": event.number,
        "ts": stamp(event.at),
        "job_id": job.id.to_string(),
        "type": name,
        "from_state": from,
        "to_state": to,
        "reason": reason(event, job),
        "attempt": job.attempt,
        "lease_id": lease.map(|lease| lease.to_string()),
    })
}

/// The names of an event: a start from the queue implies an admission, and both are listed.
pub fn event_names(event: &Event, job: &JobLine, state: &str) -> Vec<&'static str> {
    match event_name(event.kind, job.reason) {
        Some(name @ ("DISPATCHING" | "RUNNING")) if state == "QUEUED" => vec!["ADMITTED", name],
        Some(name) => vec![name],
        None => Vec::new(),
    }
}

/// The state of a job after an event.
pub fn state_after(name: &'static str, state: &'static str) -> &'static str {
    match name {
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
    let name = match (event.kind, job.reason) {
        (EventKind::JobDenied, _) => return event.detail.as_deref().unwrap_or("capacity").to_owned(),
        (EventKind::JobSubmitted, _) => "submitted",
        (EventKind::JobAssigned, _) => "admitted",
        (EventKind::JobStarted, _) => "ack",
        (EventKind::JobSucceeded, _) => "complete",
        (EventKind::JobFailed, Some(Reason::Permanent | Reason::Exhausted)) => "complete",
        (EventKind::JobCanceled, _) => "canceled",
        (EventKind::JobQueued | EventKind::JobDeferred, Some(Reason::HandedBack)) => "dispatch_timeout",
        (EventKind::JobQueued, Some(Reason::Lost)) => "lease_expired",
        (_, Some(reason)) => reason.as_str(),
        (_, None) => "",
    };
    name.to_owned()
}
