//! The traces of live jobs, for log lines that the loop writes.
//!
//! The engine and the loop do not have the rows of waiting jobs. A job whose trace follows from its own id needs no entry here;
//! one with a caller's trace has a few bytes.

use std::collections::HashMap;

use laneway_core::event::JobLine;
use laneway_core::{Change, JobRow, JobTrace, Sampling, Seq, SpanOf};

/// The trace of a job that does not follow from its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    trace_id: u128,
    /// The caller's span, or that of the run.
    parent: u64,
    by_caller: bool,
}

impl Given {
    /// The trace of a job. `None`: it follows from the job's id.
    pub(crate) fn of(row: &JobRow) -> Option<Given> {
        let by_caller = row.spec.trace.is_some();
        let JobTrace { trace_id, parent, .. } = JobTrace::of(row, Sampling::ratio(0.0));
        Some(Given { trace_id, parent: parent?, by_caller })
    }
}

/// The traces of live jobs.
#[derive(Default)]
pub(crate) struct LiveTraces {
    given: HashMap<Seq, Given>,
    /// True while spans are exported: then every job has a trace.
    exported: bool,
}

/// The ids on a log line, in hexadecimal digits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TraceIds {
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
}

impl LiveTraces {
    /// The traces of jobs that a restart found.
    pub(crate) fn new(found: Vec<(Seq, Given)>, exported: bool) -> LiveTraces {
        let mut traces = LiveTraces { given: HashMap::new(), exported };
        found.into_iter().for_each(|(seq, given)| traces.put(seq, given));
        traces
    }

    fn put(&mut self, seq: Seq, given: Given) {
        if self.exported || given.by_caller {
            self.given.insert(seq, given);
        }
    }

    /// Takes up the jobs that a batch created.
    pub(crate) fn add_new(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::JobCreated { row, .. } = change
                && (row.spec.trace.is_some() || row.spec.member.is_some())
                && let Some(given) = Given::of(row)
            {
                self.put(row.seq, given);
            }
        }
    }

    /// Forgets the jobs that a batch ended. Its lines are written before.
    pub(crate) fn remove_ended(&mut self, changes: &[Change]) {
        if self.given.is_empty() {
            return;
        }
        for change in changes {
            if let Change::JobEnded(end) = change {
                self.given.remove(&end.seq);
            }
        }
    }

    /// The ids for a line about a job: the span of its attempt, if it has one.
    pub(crate) fn ids(&self, line: &JobLine) -> Option<TraceIds> {
        let given = self.given.get(&line.seq);
        let (trace_id, span_id) = match (given, self.exported) {
            (given, true) => {
                let span = if line.attempt > 0 { SpanOf::Attempt(line.attempt) } else { SpanOf::Submit };
                (given.map_or(line.id.0, |given| given.trace_id), span.id(line.id))
            }
            (Some(given), false) => (given.trace_id, given.parent),
            (None, false) => return None,
        };
        Some(TraceIds { trace_id: format!("{trace_id:032x}"), span_id: format!("{span_id:016x}") })
    }
}
