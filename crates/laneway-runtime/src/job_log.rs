//! One log line for every step of a job's life, for operators who want to read along.
//!
//! The lines have a target of their own, so that they can be switched on and off by themselves. Whether anybody reads
//! them is asked once a turn: a busy server that does not write them pays nothing for them.

use laneway_core::event::JobLine;
use laneway_core::{Event, EventKind};

/// The target of the lines, for `log.filter`.
pub const TARGET: &str = "laneway::jobs";

/// Writes down what happened to jobs.
pub(crate) fn log_events(events: &[Event]) {
    if !tracing::enabled!(target: TARGET, tracing::Level::INFO) {
        return;
    }
    for event in events {
        if let Some(line) = &event.job
            && let Some(what) = step(event.kind)
        {
            log_line(event, line, what);
        }
    }
}

/// What a reader is told of; steps in between are in the event stream.
fn step(kind: EventKind) -> Option<&'static str> {
    match kind {
        EventKind::JobSubmitted => Some("job submitted"),
        EventKind::JobAssigned | EventKind::JobStarted => Some("job dispatched"),
        EventKind::JobRetrying => Some("job retrying"),
        EventKind::JobSucceeded => Some("job completed"),
        EventKind::JobFailed => Some("job failed"),
        EventKind::JobCanceled => Some("job canceled"),
        EventKind::JobRejected => Some("job rejected"),
        _ => None,
    }
}

fn log_line(event: &Event, line: &JobLine, what: &'static str) {
    let JobLine { seq: _, id, kind, lane, agent, attempt, reason, previous: _ } = line;
    let tenant = event.tenant.as_ref().map(|tenant| tenant.as_str()).unwrap_or_default();
    let reason = reason.map(|reason| reason.word()).unwrap_or_default();
    tracing::info!(target: TARGET, job = %id, %agent, %lane, %kind, tenant, attempt, reason, "{what}");
}
