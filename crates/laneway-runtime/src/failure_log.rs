//! One log line for every job that failed, and for every attempt that failed or was lost and is followed by another one.
//!
//! The lines have a target of their own and are on by default: an operator who starts a server and sees a job fail looks at its
//! log first. How many are written in a second is bounded; what is left out is counted.

use laneway_core::event::JobLine;
use laneway_core::{Change, Event, EventKind, Failure, Mono, Now, Reason, Seq, Wall};

use crate::otel::live::{LiveTraces, TraceIds};

/// The target of the lines, for `log.filter`.
pub const TARGET: &str = "laneway::failures";

/// Most lines in a second.
const LINES_MAX: u32 = 50;
/// How long a count of lines lasts, in milliseconds.
const WINDOW_MS: u64 = 1_000;
/// Longest error that is written, in characters; the job has all of it.
const ERROR_LEN_MAX: usize = 300;

/// Writes lines about failures, and counts them.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    /// When the count began.
    began: Option<Mono>,
    written: u32,
    left_out: u64,
}

impl FailureLog {
    /// Writes down which jobs failed in a batch. `changes` are those of the same batch: they hold the errors.
    pub(crate) fn log(&mut self, now: Now, changes: &[Change], events: &[Event], traces: &LiveTraces) {
        for event in events {
            let Some(line) = &event.job else { continue };
            let Some(sort) = Sort::of(event.kind, line.reason) else { continue };
            if !tracing::enabled!(target: TARGET, tracing::Level::WARN) {
                return;
            }
            if self.may_write(now.mono) {
                write(event, line, sort, &Found::of(line.seq, changes), traces.ids(line));
            } else {
                self.left_out += 1;
            }
        }
    }

    /// Counts one line more. A new second begins with how many were left out before it.
    fn may_write(&mut self, now: Mono) -> bool {
        let is_over = self.began.is_none_or(|began| now.0.saturating_sub(began.0) >= WINDOW_MS);
        if is_over {
            if self.left_out > 0 {
                tracing::warn!(target: TARGET, left_out = self.left_out, "more jobs failed than are written here");
            }
            *self = FailureLog { began: Some(now), written: 0, left_out: 0 };
        }
        self.written += 1;
        self.written <= LINES_MAX
    }
}

/// The subject of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// The job has failed.
    Failed,
    /// An attempt has failed, and there will be another one.
    Retried,
    /// An attempt was lost, and there will be another one.
    Lost,
}

impl Sort {
    fn of(kind: EventKind, reason: Option<Reason>) -> Option<Sort> {
        match (kind, reason) {
            (EventKind::JobFailed, _) => Some(Sort::Failed),
            (EventKind::JobRetrying, _) => Some(Sort::Retried),
            (EventKind::JobQueued, Some(Reason::Lost)) => Some(Sort::Lost),
            _ => None,
        }
    }
}

/// The changes of a batch about a job that failed.
#[derive(Default)]
struct Found<'a> {
    error: Option<&'a Failure>,
    wake_at: Option<Wall>,
}

impl<'a> Found<'a> {
    fn of(seq: Seq, changes: &'a [Change]) -> Found<'a> {
        let mut found = Found::default();
        for change in changes {
            match change {
                Change::AttemptClosed(closed) if closed.open.seq == seq && closed.error.is_some() => {
                    found.error = closed.error.as_ref();
                }
                Change::JobEnded(end) if end.seq == seq && end.error.is_some() => {
                    found.error = end.error.as_ref()
                }
                Change::JobMoved { seq: moved, status } if *moved == seq => found.wake_at = status.wake_at,
                _ => {}
            }
        }
        found
    }
}

fn write(event: &Event, line: &JobLine, sort: Sort, found: &Found<'_>, ids: Option<TraceIds>) {
    let trace_id = ids.as_ref().map(|ids| ids.trace_id.as_str());
    let span_id = ids.as_ref().map(|ids| ids.span_id.as_str());
    let JobLine { seq: _, id, kind, lane, agent, attempt, reason, previous: _, error: _ } = line;
    let tenant = event.tenant.as_ref().map(|tenant| tenant.as_str()).unwrap_or_default();
    let error = found.error.map(error_text).unwrap_or_default();
    let retry_in_ms = found.wake_at.map_or(0, |at| at.0.saturating_sub(event.at.0));
    match sort {
        Sort::Failed => {
            let reason = reason.map(|reason| reason.as_str()).unwrap_or_default();
            tracing::warn!(
                target: TARGET, job = %id, %kind, attempt, reason, error, %lane, %agent, tenant, trace_id, span_id, "job failed"
            );
        }
        Sort::Retried => {
            let what = "attempt failed; the job is tried again";
            tracing::info!(
                target: TARGET, job = %id, %kind, attempt, retry_in_ms, error, %lane, %agent, tenant, trace_id, span_id, "{what}"
            );
        }
        Sort::Lost => {
            let what = "attempt lost; the job runs again";
            tracing::info!(
                target: TARGET, job = %id, %kind, attempt, %lane, %agent, tenant, trace_id, span_id, "{what}"
            );
        }
    }
}

/// An error on one line, without anything that could forge another one.
fn error_text(error: &Failure) -> String {
    let text = format!("{}: {}", error.code, error.message);
    let mut short: String =
        text.chars().take(ERROR_LEN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > ERROR_LEN_MAX {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_19_lines_about_failures_are_bounded_by_the_second() {
        let mut log = FailureLog::default();
        let written = (0..200).filter(|_| log.may_write(Mono(5))).count();
        assert_eq!(written, LINES_MAX as usize);
        assert!(log.may_write(Mono(5 + WINDOW_MS)), "the next second begins anew");
    }

    #[test]
    fn an_error_is_one_line() {
        let error = Failure::retryable("bad", "first\nsecond\x1b[31m".repeat(100));
        let text = error_text(&error);
        assert!(text.starts_with("bad: first second [31m") && text.ends_with('…'), "{text}");
        assert!(!text.contains(char::is_control));
    }
}
