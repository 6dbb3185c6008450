//! The worker's metrics in Prometheus format. The names are those of the protocol.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::protocol::Tally;

/// Upper bounds of the histogram buckets of task durations, in milliseconds.
const DURATIONS_MS: [f64; 12] =
    [1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 10_000.0, 60_000.0, 300_000.0, 3_600_000.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    node_type: String,
}

/// The metrics.
pub(super) struct Metrics {
    registry: Registry,
    inflight: Gauge,
    durations: Family<KindLabel, Histogram>,
    failures: Family<KindLabel, Counter>,
    waiting: Gauge,
    connected: Gauge,
    counters: Vec<(Reading, Counter)>,
}

/// Reads a counter of the protocol.
type Reading = fn(&Tally) -> u64;
/// A counter of the protocol: name, help, and how to read it.
type TallyRow = (&'static str, &'static str, Reading);
const TALLIES: [TallyRow; 8] = [
    ("heartbeat_sent", "Heartbeats sent", |tally| tally.heartbeats),
    ("heartbeat_degraded", "Heartbeats sent with healthy=false", |tally| tally.degraded),
    ("frames_resent", "Frames sent again because no acknowledgement came", |tally| tally.resent),
    ("dispatch_duplicates", "Duplicate dispatches, which were not run again", |tally| tally.duplicates),
    ("dispatch_rejected", "Dispatches that were rejected", |tally| tally.rejected),
    ("results_rejected", "Outcomes that the scheduler rejected", |tally| tally.stale),
    ("outbox_overflow", "Rejections and reports sent once because the outbox was full", |tally| tally.unkept),
    ("feedback_dropped", "Feedback frames dropped while there was no connection", |tally| {
        tally.feedback_dropped
    }),
];

impl Metrics {
    pub(super) fn new() -> Metrics {
        let mut registry = Registry::default();
        let inflight = Gauge::default();
        registry.register("inflight_tasks", "Running tasks", inflight.clone());
        let durations = Family::<KindLabel, Histogram>::new_with_constructor(|| Histogram::new(DURATIONS_MS));
        registry.register("task_duration_ms", "How long tasks ran, in milliseconds", durations.clone());
        let failures = Family::<KindLabel, Counter>::default();
        registry.register("task_failures", "Tasks that did not succeed", failures.clone());
        let waiting = Gauge::default();
        registry.register("results_waiting", "Outcomes without an acknowledgement", waiting.clone());
        let connected = Gauge::default();
        registry.register("connected", "1 while the session is up", connected.clone());
        let counters = TALLIES
            .map(|(name, help, read)| {
                let counter = Counter::default();
                registry.register(name, help, counter.clone());
                (read, counter)
            })
            .into();
        Metrics { registry, inflight, durations, failures, waiting, connected, counters }
    }

    /// A task has ended.
    pub(super) fn ended(&self, kind: &str, took: Duration, failed: bool) {
        let label = KindLabel { node_type: kind.to_owned() };
        self.durations.get_or_create(&label).observe(took.as_secs_f64() * 1_000.0);
        if failed {
            self.failures.get_or_create(&label).inc();
        }
    }

    /// Sets the gauges and counters.
    pub(super) fn set(&self, tally: &Tally, inflight: usize, waiting: usize, connected: bool) {
        self.inflight.set(i64::try_from(inflight).unwrap_or(i64::MAX));
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.connected.set(i64::from(connected));
        for (read, counter) in &self.counters {
            let grown = read(tally).saturating_sub(counter.get());
            counter.inc_by(grown);
        }
    }

    /// All metrics as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string cannot fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d19_the_names_of_the_protocol_are_there() {
        let metrics = Metrics::new();
        metrics.ended("resize", Duration::from_millis(3), true);
        metrics.set(&Tally { heartbeats: 2, degraded: 1, ..Tally::default() }, 4, 0, true);
        metrics.set(&Tally { heartbeats: 3, degraded: 1, ..Tally::default() }, 4, 0, true);
        let text = metrics.text();
        for line in [
            "inflight_tasks 4",
            "task_duration_ms_bucket{le=\"5.0\",node_type=\"resize\"} 1",
            "heartbeat_sent_total 3",
            "heartbeat_degraded_total 1",
            "task_failures_total{node_type=\"resize\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
