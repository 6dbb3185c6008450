//! Makes spans of what was committed.
//!
//! A record names a job by its number; this file knows the rows of recent jobs, and says which others must be read from the
//! store. Everything about a span follows from durable data, so a restart in the middle of a job changes nothing.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use laneway_core::trace::run_span;
use laneway_core::{
    AttemptEnd, DeliveryTry, Event, EventKind, JobRow, JobState, JobTrace, RunId, Sampling, Seq, SpanOf, Wall,
};

use super::queue::{Closed, Record};

/// Most jobs whose rows are kept. Others are read from the store again.
const KNOWN_MAX: usize = 4_096;

/// One span, ready to be sent.
#[derive(Debug, PartialEq)]
pub(super) struct Span {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) parent: Option<u64>,
    pub(super) flags: u8,
    pub(super) state: Option<Box<str>>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) start: Wall,
    pub(super) end: Wall,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// Why what it stands for failed.
    pub(super) error: Option<String>,
}

/// The role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal,
    Server,
    Client,
    Consumer,
}

/// The value of an attribute.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
}

impl Value {
    fn text(text: impl ToString) -> Value {
        Value::Text(text.to_string())
    }
}

/// What must be read from the store before spans can be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// Jobs whose rows are not known.
    pub(super) rows: Vec<Seq>,
    /// Jobs of which it is not known since when they waited for the attempt of this number.
    pub(super) waits: Vec<(Seq, u32)>,
}

/// Makes spans, and remembers the jobs that they are about.
pub(super) struct SpanMaker {
    sampling: Sampling,
    rows: Recent<Arc<JobRow>>,
    /// Since when a job waits.
    queued: Recent<Wall>,
    /// Since when a job waited for an attempt, as read from the store for the records at hand.
    learned: HashMap<(Seq, u32), Wall>,
}

impl SpanMaker {
    pub(super) fn new(sampling: Sampling) -> SpanMaker {
        SpanMaker { sampling, rows: Recent::new(), queued: Recent::new(), learned: HashMap::new() }
    }

    /// Takes up the rows that the records bring along, and says what is missing for the others.
    pub(super) fn look_up(&mut self, records: &[Record]) -> Missing {
        for record in records {
            if let Record::Submitted { row, .. } = record {
                self.rows.put(row.seq, Arc::clone(row));
            }
        }
        let (mut asked, mut known, mut missing) = (HashSet::new(), HashSet::new(), Missing::default());
        for record in records.iter() {
            let seq = record.seq();
            if record.is_span() && self.rows.get(seq).is_none() && asked.insert(seq) {
                missing.rows.push(seq);
            }
            match record {
                Record::Submitted { .. } | Record::Queued { .. } => drop(known.insert(seq)),
                Record::Opened { attempt, .. } | Record::EndedWaiting { attempt, .. }
                    if !known.remove(&seq) && self.queued.get(seq).is_none() =>
                {
                    missing.waits.push((seq, *attempt));
                }
                _ => {}
            }
        }
        missing
    }

    /// Takes up what was read from the store.
    pub(super) fn learn(
        &mut self,
        rows: impl IntoIterator<Item = JobRow>,
        waits: impl IntoIterator<Item = ((Seq, u32), Wall)>,
    ) {
        rows.into_iter().for_each(|row| self.rows.put(row.seq, Arc::new(row)));
        self.learned = waits.into_iter().collect();
    }

    /// The spans of the records whose traces are sampled, and how many records are of jobs that are not stored any more.
    pub(super) fn spans(&mut self, records: &[Record]) -> (Vec<Span>, u64) {
        let (mut spans, mut unknown) = (Vec::with_capacity(records.len()), 0);
        for record in records {
            self.note_wait(record);
            if !record.is_span() {
                continue;
            }
            let Some(row) = self.rows.get(record.seq()).cloned() else {
                unknown += 1;
                continue;
            };
            let trace = JobTrace::of(&row, self.sampling);
            let since = match record {
                Record::Opened { attempt, .. } | Record::EndedWaiting { attempt, .. } => {
                    let queued = self.queued.take(row.seq);
                    self.learned.remove(&(row.seq, *attempt)).or(queued)
                }
                _ => None,
            };
            if trace.is_sampled() {
                spans.extend(span(record, &row, &trace, since));
            }
        }
        (spans, unknown)
    }

    /// Takes down since when a job waits.
    fn note_wait(&mut self, record: &Record) {
        match record {
            Record::Queued { seq, at } => self.queued.put(*seq, *at),
            Record::Submitted { row, .. } if row.status.state == JobState::Queued => {
                self.queued.put(row.seq, row.created_at);
            }
            _ => {}
        }
    }
}

/// Since when a job waited for the attempt of this number, by its events.
pub(super) fn waited_since(events: &[Event], attempt: u32) -> Option<Wall> {
    let is_start = |event: &&Event| {
        matches!(event.kind, EventKind::JobQueued | EventKind::JobSubmitted)
            && event.job.as_ref().is_some_and(|line| line.attempt + 1 == attempt)
    };
    events.iter().rev().find(is_start).map(|event| event.at)
}

fn span(record: &Record, row: &JobRow, trace: &JobTrace<'_>, since: Option<Wall>) -> Option<Span> {
    match record {
        Record::Submitted { until, .. } => Some(submitted(row, trace, *until)),
        Record::RunSubmitted { run, nodes, at, until, .. } => {
            Some(run_submitted(row, trace, *run, *nodes, (*at, *until)))
        }
        Record::Queued { .. } => None,
        Record::Opened { attempt, at, .. } => {
            let mut span = of_job(row, trace, SpanOf::Wait(*attempt), (since?.min(*at), *at));
            span.attributes.push(("laneway.attempt", Value::Number((*attempt).into())));
            Some(span)
        }
        Record::EndedWaiting { attempt, at, state, reason, .. } => {
            let mut span =
                of_job(row, trace, SpanOf::Wait(*attempt), (since.unwrap_or(row.created_at).min(*at), *at));
            span.attributes.push(("laneway.outcome", Value::text(state.as_str())));
            span.attributes.push(("laneway.reason", Value::text(reason.as_str())));
            let failed = matches!(state, JobState::Failed | JobState::Rejected);
            span.error = failed.then(|| format!("the job ended while it waited: {}", reason.as_str()));
            Some(span)
        }
        Record::Closed(closed) => Some(attempt(row, trace, closed)),
        Record::Tried(tried) => Some(webhook(row, trace, tried)),
    }
}

fn submitted(row: &JobRow, trace: &JobTrace<'_>, until: Wall) -> Span {
    let mut span = of_job(row, trace, SpanOf::Submit, (row.created_at, until.max(row.created_at)));
    span.attributes.push(("laneway.submitted_by", Value::text(&row.submitted_by)));
    if let Some(job) = row.spec.retry_of {
        span.attributes.push(("laneway.retry_of", Value::text(job)));
    }
    if let Some(schedule) = &row.spec.schedule {
        (span.name, span.kind) = (format!("fire {}", schedule.name), SpanKind::Internal);
        span.attributes.push(("laneway.schedule", Value::text(&schedule.name)));
    }
    span
}

fn run_submitted(
    row: &JobRow,
    trace: &JobTrace<'_>,
    run: RunId,
    nodes: usize,
    (start, end): (Wall, Wall),
) -> Span {
    Span {
        span_id: run_span(run),
        parent: row.spec.trace.as_ref().map(|caller| caller.span_id),
        name: "submit run".to_owned(),
        kind: SpanKind::Server,
        attributes: vec![
            ("laneway.run.id", Value::text(run)),
            ("laneway.run.nodes", Value::Number(i64::try_from(nodes).unwrap_or(i64::MAX))),
            ("laneway.tenant", Value::text(&row.spec.tenant)),
        ],
        ..of_job(row, trace, SpanOf::Submit, (start, end.max(start)))
    }
}

fn attempt(row: &JobRow, trace: &JobTrace<'_>, closed: &Closed) -> Span {
    let Closed { open, end, error, at } = closed;
    let times = (open.opened_at.min(*at), *at);
    let mut span = of_job(row, trace, SpanOf::Attempt(open.fence.attempt), times);
    span.attributes.extend([
        ("laneway.attempt", Value::Number(open.fence.attempt.into())),
        ("laneway.attempt.id", Value::text(open.fence.attempt_id)),
        ("laneway.outcome", Value::text(end.as_str())),
        ("laneway.executor", Value::text(&open.executor)),
    ]);
    if let Some(holder) = &open.holder {
        span.attributes.push(("laneway.worker", Value::text(&holder.worker)));
    }
    if let Some((code, _)) = error {
        span.attributes.push(("error.type", Value::text(code)));
    }
    span.error = match end {
        AttemptEnd::Succeeded | AttemptEnd::Canceled | AttemptEnd::HandedBack => None,
        _ => Some(error.as_ref().map_or_else(|| end.as_str().to_owned(), |(_, message)| message.to_string())),
    };
    span
}

fn webhook(row: &JobRow, trace: &JobTrace<'_>, tried: &DeliveryTry) -> Span {
    let DeliveryTry { seq: _, number, at, took, status, error } = tried;
    let began = Wall(at.0.saturating_sub(i64::try_from(took.0).unwrap_or(i64::MAX)));
    let mut span = of_job(row, trace, SpanOf::Webhook(*number), (began, *at));
    span.attributes.push(("laneway.webhook.try", Value::Number((*number).into())));
    span.attributes.push(("http.request.method", Value::text("POST")));
    if let Some(callback) = &row.spec.callback {
        span.attributes.push(("server.address", Value::Text(callback.host())));
    }
    if let Some(status) = status {
        span.attributes.push(("http.response.status_code", Value::Number((*status).into())));
    }
    span.error = error.as_ref().map(ToString::to_string);
    span
}

/// A span with what all spans of a job have.
fn of_job(row: &JobRow, trace: &JobTrace<'_>, of: SpanOf, (start, end): (Wall, Wall)) -> Span {
    let spec = &row.spec;
    let (name, kind) = match of {
        SpanOf::Submit => (format!("submit {}", spec.kind), SpanKind::Server),
        SpanOf::Wait(_) => (format!("wait {}", spec.kind), SpanKind::Internal),
        SpanOf::Attempt(_) => (format!("attempt {}", spec.kind), SpanKind::Consumer),
        SpanOf::Webhook(_) => (format!("webhook {}", spec.kind), SpanKind::Client),
    };
    let mut attributes = vec![
        ("laneway.job.id", Value::text(row.id)),
        ("laneway.kind", Value::text(&spec.kind)),
        ("laneway.lane", Value::text(&spec.lane)),
        ("laneway.agent", Value::text(&spec.agent)),
        ("laneway.tenant", Value::text(&spec.tenant)),
    ];
    if let Some(member) = &spec.member {
        attributes.push(("laneway.run.id", Value::text(member.run)));
        attributes.push(("laneway.node", Value::text(&member.node)));
    }
    let submit = SpanOf::Submit.id(row.id);
    Span {
        trace_id: trace.trace_id,
        span_id: of.id(row.id),
        parent: if of == SpanOf::Submit { trace.parent } else { Some(submit) },
        flags: trace.flags,
        state: trace.state.map(Into::into),
        name,
        kind,
        start,
        end,
        attributes,
        error: None,
    }
}

/// The latest [`KNOWN_MAX`] entries, by job.
struct Recent<T> {
    entries: HashMap<Seq, T>,
    /// Oldest first. An entry may have been taken since.
    order: VecDeque<Seq>,
}

impl<T> Recent<T> {
    fn new() -> Recent<T> {
        Recent { entries: HashMap::new(), order: VecDeque::new() }
    }

    fn get(&self, seq: Seq) -> Option<&T> {
        self.entries.get(&seq)
    }

    fn take(&mut self, seq: Seq) -> Option<T> {
        self.entries.remove(&seq)
    }

    fn put(&mut self, seq: Seq, entry: T) {
        if self.entries.insert(seq, entry).is_none() {
            self.order.push_back(seq);
        }
        while self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
