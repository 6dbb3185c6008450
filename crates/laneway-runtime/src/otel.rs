//! OpenTelemetry: spans and metrics over OTLP/HTTP, and the trace context that work is given.
//!
//! Spans are made from what is committed, never before. The loop puts short records into a bounded queue ([`SpanQueue`]) and
//! never waits for it; a task on the program's runtime ([`Exporter`]) makes spans of them and sends them. A collector that is slow or
//! gone costs spans, which are counted, and nothing else. Without an endpoint there is no queue and no task
//! ([decision 21](../../../docs/decisions/0021-opentelemetry.md)).

mod collector;
mod export;
pub(crate) mod live;
mod metrics_page;
mod otlp;
mod protobuf;
mod queue;
mod settings;
mod spans;

use laneway_core::{JobRow, JobTrace, SpanOf, TraceContext};

pub use export::Exporter;
pub use queue::SpanQueue;
pub use settings::{OTEL, OtelSettings};

/// The trace context for the work below a span of a job. While spans are exported it names that span. Otherwise the
/// caller's context is passed on as it came: a span id that is never exported would leave a gap in the caller's trace.
pub(crate) fn context_below(
    queue: Option<&SpanQueue>,
    row: &JobRow,
    span: SpanOf,
) -> Option<Box<TraceContext>> {
    match queue {
        Some(queue) => Some(Box::new(JobTrace::of(row, queue.sampling()).below(span))),
        None => row.spec.trace.clone(),
    }
}
