//! Metrics of the worker protocol, under the names of its specification, without a prefix.
//!
//! Tenants, kinds and workers come from outside, so each sort of label has a bound; what comes beyond it is counted
//! together as `other`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use laneway_core::Name;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Most tenants that have labels of their own.
const TENANTS_MAX: usize = 256;
/// Most kinds that have labels of their own.
const KINDS_MAX: usize = 256;
/// Most workers that have labels of their own.
const WORKERS_MAX: usize = 4_096;

/// Bounds for the time from dispatch to result, in milliseconds.
const LATENCIES_MS: [f64; 14] =
    [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3.6e6];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabel {
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabel {
    tenant: String,
    worker: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    tenant: String,
    node_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    tenant: String,
    dir: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PackageLabel {
    tenant: String,
    op: &'static str,
    status: &'static str,
}

/// Makes histograms with our bounds.
#[derive(Clone)]
struct Latencies;

impl MetricConstructor<Histogram> for Latencies {
    fn new_metric(&self) -> Histogram {
        Histogram::new(LATENCIES_MS)
    }
}

/// Names that have labels of their own.
#[derive(Default)]
struct Known(Mutex<BTreeSet<Name>>);

impl Known {
    fn label(&self, name: &Name, max: usize) -> String {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) || (known.len() < max && known.insert(name.clone())) {
            return name.to_string();
        }
        "other".to_owned()
    }
}

/// All metrics of the protocol.
#[derive(Default)]
pub struct WorkerMetrics {
    tenants: Known,
    kinds: Known,
    workers: Known,
    connections: Family<TenantLabel, Gauge>,
    misses: Family<WorkerLabel, Counter>,
    dispatches: Family<KindLabel, Counter>,
    retries: Family<ReasonLabel, Counter>,
    latency: LatencyFamily,
    bytes: Family<DirectionLabel, Counter>,
    packages: Family<PackageLabel, Counter>,
}

struct LatencyFamily(Family<KindLabel, Histogram, Latencies>);

impl Default for LatencyFamily {
    fn default() -> LatencyFamily {
        LatencyFamily(Family::new_with_constructor(Latencies))
    }
}

/// Why a task was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Its frame was not acknowledged in time.
    Unacknowledged,
    /// The worker came back over another connection.
    Rebound,
    /// A worker rejected it.
    Rejected,
}

impl Retry {
    fn as_str(self) -> &'static str {
        match self {
            Retry::Unacknowledged => "unacknowledged",
            Retry::Rebound => "rebound",
            Retry::Rejected => "rejected",
        }
    }
}

/// The metrics of one connection, looked up once. It counts as active until it is dropped.
pub struct ConnectionMetrics {
    active: Gauge,
    /// Bytes of frames that came.
    pub received: Counter,
    /// Bytes of frames that went.
    pub sent: Counter,
}

impl Drop for ConnectionMetrics {
    fn drop(&mut self) {
        self.active.dec();
    }
}

impl WorkerMetrics {
    /// Names every figure. A counter's name gets `_total` from the encoder, a histogram's `_bucket`.
    pub(super) fn register(&self, to: &mut Registry) {
        for reason in [Retry::Unacknowledged, Retry::Rebound, Retry::Rejected] {
            // Shown from the start, so that a rate can be taken.
            drop(self.retries.get_or_create(&ReasonLabel { reason: reason.as_str() }));
        }
        to.register("ws_conn_active", "Connections of workers", self.connections.clone());
        to.register("ws_heartbeat_miss", "Heartbeats that did not come in time", self.misses.clone());
        to.register("cmd_dispatch", "Tasks sent to workers", self.dispatches.clone());
        to.register("cmd_retry", "Tasks sent again, or sent back, by reason", self.retries.clone());
        to.register("result_latency_ms", "Time from dispatch to result", self.latency.0.clone());
        to.register("ws_frame_bytes", "Bytes of frames, by direction", self.bytes.clone());
        to.register("pkg_ops", "Installs and uninstalls of packages, by outcome", self.packages.clone());
    }

    /// A worker has connected.
    pub fn connected(&self, tenant: &Name) -> ConnectionMetrics {
        let tenant = self.tenants.label(tenant, TENANTS_MAX);
        let active = self.connections.get_or_create(&TenantLabel { tenant: tenant.clone() }).clone();
        active.inc();
        let bytes = |dir| self.bytes.get_or_create(&DirectionLabel { tenant: tenant.clone(), dir }).clone();
        ConnectionMetrics { active, received: bytes("in"), sent: bytes("out") }
    }

    /// A heartbeat did not come in time.
    pub fn missed(&self, tenant: &Name, worker: &Name) {
        let tenant = self.tenants.label(tenant, TENANTS_MAX);
        let worker = self.workers.label(worker, WORKERS_MAX);
        self.misses.get_or_create(&WorkerLabel { tenant, worker }).inc();
    }

    /// A task was sent.
    pub fn dispatched(&self, tenant: &Name, kind: &Name) {
        self.dispatches.get_or_create(&self.kind_label(tenant, kind)).inc();
    }

    /// A task was sent again, or sent back.
    pub fn retried(&self, reason: Retry) {
        self.retries.get_or_create(&ReasonLabel { reason: reason.as_str() }).inc();
    }

    /// A result came so long after its dispatch.
    pub fn answered(&self, tenant: &Name, kind: &Name, took_ms: f64) {
        self.latency.0.get_or_create(&self.kind_label(tenant, kind)).observe(took_ms);
    }

    /// Something became of a package.
    pub fn packaged(&self, tenant: &Name, op: &'static str, ok: bool) {
        let tenant = self.tenants.label(tenant, TENANTS_MAX);
        let status = if ok { "installed" } else { "failed" };
        self.packages.get_or_create(&PackageLabel { tenant, op, status }).inc();
    }

    fn kind_label(&self, tenant: &Name, kind: &Name) -> KindLabel {
        KindLabel {
            tenant: self.tenants.label(tenant, TENANTS_MAX),
            node_type: self.kinds.label(kind, KINDS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_from_outside_are_bounded() {
        let metrics = WorkerMetrics::default();
        for n in 0..TENANTS_MAX + 10 {
            metrics.dispatched(&Name::new(&format!("t{n}")).unwrap(), &Name::fixed("k"));
        }
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        assert!(page.contains(r#"cmd_dispatch_total{tenant="other",node_type="k"} 10"#), "{page}");
    }

    #[test]
    fn a_connection_is_active_until_it_is_dropped() {
        let metrics = WorkerMetrics::default();
        let tenant = Name::fixed("acme");
        let one = metrics.connected(&tenant);
        let two = metrics.connected(&tenant);
        assert_eq!(one.active.get(), 2);
        drop(two);
        assert_eq!(one.active.get(), 1);
    }
}
