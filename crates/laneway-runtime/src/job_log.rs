//! One log line for every step of a job's life, for operators who want to read along.
//!
//! The lines have two targets: one for native jobs, off by default, and one for jobs of dialects, on by default, because
//! the original systems write such lines by default. Whether a target is enabled is checked once for each batch, so a busy
//! server that does not write the lines does not pay for them.

use laneway_core::event::JobLine;
use laneway_core::{Event, EventKind};

use crate::config::JobsOf;
use crate::otel::live::LiveTraces;

/// The target of the lines, for `log.filter`.
pub const TARGET: &str = "laneway::jobs";

/// The target of the lines about jobs of dialects, whose systems write them by default.
pub const DIALECTS_TARGET: &str = "laneway::dialects";

/// The jobs that belong to dialects. Empty by default.
#[derive(Clone, Debug, Default)]
pub struct DialectJobs(Vec<JobsOf>);

impl DialectJobs {
    /// These jobs.
    pub fn new(jobs: impl IntoIterator<Item = JobsOf>) -> DialectJobs {
        DialectJobs(jobs.into_iter().collect())
    }

    fn contains(&self, line: &JobLine) -> bool {
        let (lane, kind) = (line.lane.as_str(), line.kind.as_str());
        self.0.iter().any(|jobs| jobs.lane == lane && jobs.kind.is_none_or(|of| of == kind))
    }
}

/// One line. A macro, because the target of a line is fixed where it is written.
macro_rules! log_line {
    ($target:expr, $event:expr, $line:expr, $what:expr, $traces:expr) => {{
        let JobLine { seq: _, id, kind, lane, agent, attempt, reason, previous: _, error: _ } = $line;
        let ids = $traces.ids($line);
        let trace_id = ids.as_ref().map(|ids| ids.trace_id.as_str());
        let span_id = ids.as_ref().map(|ids| ids.span_id.as_str());
        let tenant = $event.tenant.as_ref().map(|tenant| tenant.as_str()).unwrap_or_default();
        let reason = reason.map(|reason| reason.as_str()).unwrap_or_default();
        tracing::info!(
            target: $target, job = %id, %agent, %lane, %kind, tenant, attempt, reason, trace_id, span_id, "{}", $what
        );
    }};
}

/// Logs what happened to jobs. Jobs in `of_dialects` have a target of their own.
pub(crate) fn log_events(events: &[Event], of_dialects: &DialectJobs, traces: &LiveTraces) {
    let native = tracing::enabled!(target: TARGET, tracing::Level::INFO);
    let dialects = tracing::enabled!(target: DIALECTS_TARGET, tracing::Level::INFO);
    if !native && !dialects {
        return;
    }
    for event in events {
        let (Some(line), Some(what)) = (&event.job, step(event.kind)) else { continue };
        match of_dialects.contains(line) {
            true if dialects => log_line!(DIALECTS_TARGET, event, line, what, traces),
            false if native => log_line!(TARGET, event, line, what, traces),
            _ => {}
        }
    }
}

/// The message for an event. Events without one are only in the event stream.
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
