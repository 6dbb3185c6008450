//! One log line for every step of a job's life, for operators who want to read along.
//!
//! The lines have targets of their own, so that they can be switched on and off by themselves: one for native jobs, off by
//! default, and one for jobs of dialects, on by default as in the systems whose dialects they are. Whether anybody reads
//! them is asked once a turn: a busy server that does not write them pays nothing for them.

use laneway_core::event::JobLine;
use laneway_core::{Event, EventKind};

use crate::agent_turn::{AGENT_TURN, CRON_LANE};

/// The target of the lines, for `log.filter`.
pub const TARGET: &str = "laneway::jobs";

/// The target of the lines about jobs of dialects, whose systems write them by default.
pub const DIALECTS_TARGET: &str = "laneway::dialects";

/// Lanes that only dialects use.
const DIALECT_LANES: [&str; 4] = ["pinchtab", "synthia", "synthia_jobs", "astraflow"];

/// One line. A macro, because the target of a line is fixed where it is written.
macro_rules! log_line {
    ($target:expr, $event:expr, $line:expr, $what:expr) => {{
        let JobLine { seq: _, id, kind, lane, agent, attempt, reason, previous: _, error: _ } = $line;
        let tenant = $event.tenant.as_ref().map(|tenant| tenant.as_str()).unwrap_or_default();
        let reason = reason.map(|reason| reason.as_str()).unwrap_or_default();
        tracing::info!(target: $target, job = %id, %agent, %lane, %kind, tenant, attempt, reason, "{}", $what);
    }};
}

/// Writes down what happened to jobs.
pub(crate) fn log_events(events: &[Event]) {
    let native = tracing::enabled!(target: TARGET, tracing::Level::INFO);
    let dialects = tracing::enabled!(target: DIALECTS_TARGET, tracing::Level::INFO);
    if !native && !dialects {
        return;
    }
    for event in events {
        let (Some(line), Some(what)) = (&event.job, step(event.kind)) else { continue };
        match is_of_dialect(line) {
            true if dialects => log_line!(DIALECTS_TARGET, event, line, what),
            false if native => log_line!(TARGET, event, line, what),
            _ => {}
        }
    }
}

/// True for jobs that a dialect made: those in its lanes, and turns of agents by the clock.
fn is_of_dialect(line: &JobLine) -> bool {
    let lane = line.lane.as_str();
    DIALECT_LANES.contains(&lane) || (lane == CRON_LANE && line.kind.as_str() == AGENT_TURN)
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
