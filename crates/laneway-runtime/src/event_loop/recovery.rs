//! What the loop does with the result of a recovery, and the log lines about jobs from then on.

use laneway_core::{AttemptEnd, Change, Now};

use crate::batch::{Committed, Driver};
use crate::failure_log::FailureLog;
use crate::job_log::{self, DialectJobs};
use crate::metrics::Metrics;
use crate::otel::SpanQueue;
use crate::otel::live::LiveTraces;

/// Logs, counts and records the effects of the recovery. Returns the log lines about jobs from then on.
pub(super) fn recovered(
    driver: &mut Driver,
    metrics: &Metrics,
    spans: Option<&SpanQueue>,
    (began, now): (Now, Now),
    dialect_jobs: DialectJobs,
) -> JobLines {
    let (recovered, took) = (driver.recovered(), now.mono.since(began.mono));
    metrics.batch(&recovered);
    if let Some(spans) = spans {
        spans.record(&recovered.changes, &recovered.events, now.wall, metrics);
    }
    let is_lost =
        |change: &&Change| matches!(change, Change::AttemptClosed(closed) if closed.end == AttemptEnd::Lost);
    let attempts_lost = recovered.changes.iter().filter(is_lost).count();
    let stats = driver.engine().stats(None);
    let jobs = stats.scheduled + stats.queued + stats.assigned + stats.running;
    tracing::info!(jobs, attempts_lost, took_ms = took.0, "recovered");
    let traces = LiveTraces::new(driver.take_traces(), spans.is_some());
    JobLines { failures: FailureLog::default(), traces, dialect_jobs }
}

/// Writes the log lines about jobs.
pub(super) struct JobLines {
    failures: FailureLog,
    /// The traces of live jobs.
    traces: LiveTraces,
    dialect_jobs: DialectJobs,
}

impl JobLines {
    /// Writes the lines of a committed batch. Its changes hold the errors.
    pub(super) fn write(&mut self, now: Now, committed: &Committed) {
        let Committed { changes, events, .. } = committed;
        self.traces.add_new(changes);
        self.failures.log(now, changes, events, &self.traces);
        job_log::log_events(events, &self.dialect_jobs, &self.traces);
        self.traces.remove_ended(changes);
    }
}
