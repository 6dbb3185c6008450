//! The bounded queue between the loop and the exporter. The loop never waits for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::{
    AttemptEnd, Change, ClosedAttempt, DeliveryTry, Event, EventKind, JobRow, JobState, Name, OpenAttempt,
    Reason, RunId, RunRow, Sampling, Seq, Wall,
};
use tokio::sync::Notify;

use crate::executors::cut;
use crate::metrics::{Metrics, SpanFate};

/// As many records as make the exporter send at once, before its interval has passed.
pub(super) const BATCH_LEN: usize = 512;
/// Longest message of an error in a span, in bytes.
const MESSAGE_LEN_MAX: usize = 512;

/// Something that is committed and becomes a span.
pub(super) enum Record {
    /// A job was admitted, or created by a schedule; durable at `until`.
    Submitted { row: Arc<JobRow>, until: Wall },
    /// A run was admitted.
    RunSubmitted { run: RunId, first: Seq, nodes: usize, at: Wall, until: Wall },
    /// A job may start from now on.
    Queued { seq: Seq, at: Wall },
    /// An attempt was opened: the wait for it is over.
    Opened { seq: Seq, attempt: u32, at: Wall },
    /// An attempt has ended.
    Closed(Box<Closed>),
    /// A job ended while it waited for the attempt of this number.
    EndedWaiting { seq: Seq, attempt: u32, at: Wall, state: JobState, reason: Reason },
    /// A webhook was sent, with or without success.
    Tried(Box<DeliveryTry>),
}

/// An attempt that has ended, without the detail of its error.
pub(super) struct Closed {
    pub(super) open: OpenAttempt,
    pub(super) end: AttemptEnd,
    /// Code and message of its error.
    pub(super) error: Option<(Name, Box<str>)>,
    pub(super) at: Wall,
}

impl Closed {
    fn of(closed: &ClosedAttempt) -> Closed {
        let error = closed.error.as_ref();
        Closed {
            open: closed.open.clone(),
            end: closed.end,
            error: error.map(|error| (error.code.clone(), cut(&error.message, MESSAGE_LEN_MAX).into())),
            at: closed.closed_at,
        }
    }
}

impl Record {
    /// The job that it is about.
    pub(super) fn seq(&self) -> Seq {
        match self {
            Record::Submitted { row, .. } => row.seq,
            Record::RunSubmitted { first, .. } => *first,
            Record::Queued { seq, .. } | Record::Opened { seq, .. } | Record::EndedWaiting { seq, .. } => {
                *seq
            }
            Record::Closed(closed) => closed.open.seq,
            Record::Tried(tried) => tried.seq,
        }
    }

    /// True for a record that becomes a span if its trace is sampled.
    pub(super) fn is_span(&self) -> bool {
        !matches!(self, Record::Queued { .. })
    }
}

/// The queue. Clones are the same queue.
#[derive(Clone)]
pub struct SpanQueue {
    inner: Arc<Inner>,
}

struct Inner {
    records: Mutex<VecDeque<Record>>,
    len_max: usize,
    sampling: Sampling,
    /// Notified when there are enough records for a request.
    filled: Notify,
}

impl SpanQueue {
    /// A queue for this many records. `sampling` applies to jobs whose caller has no trace.
    pub fn new(len_max: usize, sampling: Sampling) -> SpanQueue {
        let (records, filled) = (Mutex::default(), Notify::new());
        SpanQueue { inner: Arc::new(Inner { records, len_max, sampling, filled }) }
    }

    pub(crate) fn sampling(&self) -> Sampling {
        self.inner.sampling
    }

    /// Takes down what a batch committed. What does not fit is counted and dropped.
    pub(crate) fn record(&self, changes: &[Change], events: &[Event], now: Wall, metrics: &Metrics) {
        let mut records = self.records();
        let mut dropped = 0;
        let mut put = |record: Record| match records.len() < self.inner.len_max {
            true => records.push_back(record),
            false => dropped += u64::from(record.is_span()),
        };
        // First: a job that becomes queued may start in the same batch.
        for event in events.iter().filter(|event| event.kind == EventKind::JobQueued) {
            if let Some(line) = &event.job {
                put(Record::Queued { seq: line.seq, at: event.at });
            }
        }
        for change in changes {
            match change {
                Change::JobCreated { row, .. } => put(Record::Submitted { row: Arc::clone(row), until: now }),
                Change::RunCreated(row) => {
                    let RunRow { id, first, ref nodes, created_at: at, .. } = **row;
                    put(Record::RunSubmitted { run: id, first, nodes: nodes.len(), at, until: now });
                }
                Change::AttemptOpened(OpenAttempt { seq, fence, opened_at, .. }) => {
                    put(Record::Opened { seq: *seq, attempt: fence.attempt, at: *opened_at });
                }
                Change::AttemptClosed(closed) => put(Record::Closed(Box::new(Closed::of(closed)))),
                Change::JobEnded(end) if end.attempt_id.is_none() => {
                    put(Record::EndedWaiting {
                        seq: end.seq,
                        attempt: end.attempts + 1,
                        at: end.finished_at,
                        state: end.state,
                        reason: end.reason,
                    });
                }
                Change::DeliveryTried(tried) => put(Record::Tried(tried.clone())),
                _ => {}
            }
        }
        let len = records.len();
        drop(records);
        metrics.spans(SpanFate::QueueFull, dropped);
        if len >= BATCH_LEN {
            self.inner.filled.notify_one();
        }
    }

    /// Takes records from the front, as many as make one request.
    pub(super) fn take(&self) -> Vec<Record> {
        let mut records = self.records();
        let len = records.len().min(BATCH_LEN);
        records.drain(..len).collect()
    }

    /// True when a whole request can be made.
    pub(super) fn is_filled(&self) -> bool {
        self.records().len() >= BATCH_LEN
    }

    /// Waits until a whole request can be made.
    pub(super) async fn filled(&self) {
        loop {
            let notified = self.inner.filled.notified();
            if self.is_filled() {
                return;
            }
            notified.await;
        }
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<Record>> {
        self.inner.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
