//! The messages of OTLP: requests with spans and with metrics, and what an answer rejects.
//!
//! Field numbers are those of `opentelemetry/proto` 1.x, which are stable.

use laneway_core::Wall;

use super::metrics_page::{Metric, Point, Shape};
use super::protobuf::{Found, Message, find};
use super::spans::{Span, SpanKind, Value};

/// The name of the part that makes spans and metrics.
const SCOPE: &str = "laneway";
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u64 = 2;
const NANOS_PER_MS: u64 = 1_000_000;

/// What all spans and metrics of this process share.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) service_name: String,
    /// Tells two servers of one name apart.
    pub(super) instance: String,
}

/// An `ExportTraceServiceRequest`.
pub(super) fn traces(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        write_resource(of_resource, resource);
        of_resource.message(2, |of_scope| {
            write_scope(of_scope);
            for span in spans {
                of_scope.message(2, |message| write_span(message, span));
            }
        });
    });
    request.into_bytes()
}

/// An `ExportMetricsServiceRequest`. Counters and histograms count from `since`.
pub(super) fn metrics(resource: &Resource, metrics: &[Metric], since: Wall, now: Wall) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        write_resource(of_resource, resource);
        of_resource.message(2, |of_scope| {
            write_scope(of_scope);
            for metric in metrics {
                of_scope.message(2, |message| write_metric(message, metric, (nanos(since), nanos(now))));
            }
        });
    });
    request.into_bytes()
}

/// How many spans or points a collector rejected although it accepted the request, and why.
pub(super) fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let Some(Found::Bytes(partial)) = find(answer, 1) else { return None };
    let Some(Found::Number(count)) = find(partial, 1) else { return None };
    let why = match find(partial, 2) {
        Some(Found::Bytes(text)) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    (count > 0).then_some((count, why))
}

fn write_resource(message: &mut Message, resource: &Resource) {
    let Resource { service_name, instance } = resource;
    message.message(1, |message| {
        let attributes = [
            ("service.name", service_name.as_str()),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", instance.as_str()),
        ];
        for (key, value) in attributes {
            message.message(1, |message| write_text_attribute(message, key, value));
        }
    });
}

fn write_scope(message: &mut Message) {
    message.message(1, |scope| {
        scope.text(1, SCOPE);
        scope.text(2, env!("CARGO_PKG_VERSION"));
    });
}

fn write_span(message: &mut Message, span: &Span) {
    let Span { trace_id, span_id, parent, flags, state, name, kind, start, end, attributes, error } = span;
    message.bytes(1, &trace_id.to_be_bytes());
    message.bytes(2, &span_id.to_be_bytes());
    message.text(3, state.as_deref().unwrap_or_default());
    if let Some(parent) = parent {
        message.bytes(4, &parent.to_be_bytes());
    }
    message.text(5, name);
    message.uint(
        6,
        match kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
            SpanKind::Consumer => 5,
        },
    );
    message.fixed64(7, nanos(*start));
    message.fixed64(8, nanos(*end));
    for (key, value) in attributes {
        message.message(9, |attribute| match value {
            Value::Text(text) => write_text_attribute(attribute, key, text),
            Value::Number(number) => {
                attribute.text(1, key);
                attribute.message(2, |value| value.int_set(3, *number));
            }
        });
    }
    if let Some(error) = error {
        message.message(15, |status| {
            status.text(2, error);
            status.uint(3, STATUS_ERROR);
        });
    }
    message.fixed32(16, u32::from(*flags));
}

fn write_text_attribute(message: &mut Message, key: &str, text: &str) {
    message.text(1, key);
    message.message(2, |value| value.text_set(1, text));
}

fn write_metric(message: &mut Message, metric: &Metric, times: (u64, u64)) {
    let Metric { name, help, shape, points } = metric;
    message.text(1, name);
    message.text(2, help);
    match shape {
        Shape::Gauge => message.message(5, |gauge| write_points(gauge, points, (0, times.1))),
        Shape::Counter => message.message(7, |sum| {
            write_points(sum, points, times);
            sum.uint(2, CUMULATIVE);
            sum.uint(3, 1);
        }),
        Shape::Histogram => message.message(9, |histogram| {
            write_points(histogram, points, times);
            histogram.uint(2, CUMULATIVE);
        }),
    }
}

fn write_points(message: &mut Message, points: &[Point], (since, now): (u64, u64)) {
    for point in points {
        message.message(1, |message| {
            message.fixed64(2, since);
            message.fixed64(3, now);
            match point {
                Point::Number { labels, value } => {
                    message.double_set(4, *value);
                    write_labels(message, 7, labels);
                }
                Point::Histogram { labels, count, sum, buckets } => {
                    message.fixed64(4, *count);
                    message.double_set(5, *sum);
                    message.packed(6, buckets.iter().map(|(_, count)| count.to_le_bytes()));
                    let bounds = buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
                    message.packed(7, bounds.map(f64::to_le_bytes));
                    write_labels(message, 9, labels);
                }
            }
        });
    }
}

fn write_labels(message: &mut Message, field: u64, labels: &[(String, String)]) {
    for (key, value) in labels {
        message.message(field, |message| write_text_attribute(message, key, value));
    }
}

fn nanos(at: Wall) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(NANOS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_is_read() {
        let mut answer = Message::default();
        answer.message(1, |partial| {
            partial.uint(1, 3);
            partial.text(2, "too old");
        });
        assert_eq!(rejected(&answer.into_bytes()), Some((3, "too old".to_owned())));
        for full in [&b""[..], b"{}", b"\x0a\x00", b"\xff\xff"] {
            assert_eq!(rejected(full), None, "{full:?}");
        }
    }
}
