//! Metrics for Prometheus, in base units.
//!
//! Counters follow from what was committed, histograms from what was measured, gauges from the engine at the moment of the
//! scrape. Labels are lanes, codes and states only: agents, tenants and sessions come from clients and have no bound.

mod workers;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use laneway_core::engine::{CapacityView, Counts, Stats, StoreCounters};
use laneway_core::{Bytes, Change, Effects, Event, EventKind, Name, RejectionCode, Reply, Span, TokenRecord};
use laneway_store::{Epoch, Keys, Lag, Loaded, Priors, Reader, Store, StoreError};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::batch::Committed;
use crate::clock::Stopwatch;
use crate::damage::DamageWatch;

pub use workers::{ConnectionMetrics, Retry, WorkerMetrics};

/// Bounds for times in seconds: a no-op handler and a long browser job both show.
const TIMES: [f64; 15] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0];

/// A counter by lane.
type LaneCounter = Family<LaneLabel, Counter<f64, AtomicU64>>;

/// Counters of lanes that follow from no event: name and meaning.
const LANE_COUNTS: [(&str, &str); 6] = [
    ("lane_rejected", "Jobs rejected because a queue was full, by lane"),
    ("lane_expired", "Jobs whose deadline or queue timeout passed while they waited, by lane"),
    ("lane_dispatched", "Jobs whose first attempt opened, by lane"),
    ("lane_queue_wait_seconds", "How long these waited, by lane"),
    ("lane_runs", "Attempts that ran and have ended, by lane"),
    ("lane_run_time_seconds", "How long these ran, by lane"),
];

/// How far the tables of the store are behind its log: name and meaning, in the order of [`Metrics::observe_store`].
const STORE_LAG: [(&str, &str); 4] = [
    ("store_lag_commits", "Commits that are durable in the log and not yet in the tables"),
    ("store_lag_changes", "Changes of these commits"),
    ("store_lag_bytes", "Bytes of their payloads, results and events"),
    ("store_lag_seconds", "Age of the oldest of them"),
];

/// All gauges. Clones are the same gauges.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Registered>,
}

struct Registered {
    registry: Registry,
    /// Metrics whose names have no prefix.
    plain: Registry,
    workers: WorkerMetrics,
    /// The lanes' counters, found without a lookup by text. Written by the loop only.
    lanes: Mutex<BTreeMap<Name, LaneCounters>>,
    jobs: Family<LaneEvent, Counter>,
    rejections: Family<CodeLabel, Counter>,
    events: Counter,
    batches: Counter,
    queue_wait: Histogram,
    run_time: Histogram,
    commit_time: Histogram,
    batch_commands: Histogram,
    batch_changes: Histogram,
    inbox_len: Family<InboxLabel, Gauge>,
    jobs_now: Family<StateLabel, Gauge>,
    lane_waiting: Family<LaneLabel, Gauge>,
    lane_open: Family<LaneLabel, Gauge>,
    /// Counters of lanes since the start, in the order of [`LANE_COUNTS`].
    lane_counts: [LaneCounter; LANE_COUNTS.len()],
    deliveries: Family<OutcomeLabel, Counter>,
    otel_spans: Family<OutcomeLabel, Counter>,
    delivery_tries: Counter,
    outbound_rejected: Counter,
    deliveries_now: Gauge,
    draining: Gauge,
    units: Family<StateLabel, Gauge>,
    busy: Gauge,
    leases: Gauge,
    stall: Counter<f64, AtomicU64>,
    damaged_rows: Gauge,
    damage: DamageWatch,
    store_lag: [Gauge<f64, AtomicU64>; STORE_LAG.len()],
}

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanFate {
    /// The collector has it.
    Exported,
    /// The queue was full.
    QueueFull,
    /// The collector did not take its request.
    Failed,
    /// The collector rejected it.
    Rejected,
    /// Its job is not stored any more.
    Unreadable,
}

impl SpanFate {
    fn as_str(self) -> &'static str {
        match self {
            SpanFate::Exported => "exported",
            SpanFate::QueueFull => "queue_full",
            SpanFate::Failed => "failed",
            SpanFate::Rejected => "rejected",
            SpanFate::Unreadable => "unreadable",
        }
    }
}

#[derive(Clone)]
struct LaneCounters {
    submitted: Counter,
    started: Counter,
    retried: Counter,
    succeeded: Counter,
    failed: Counter,
    canceled: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneEvent {
    lane: Text,
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabel {
    lane: Text,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InboxLabel {
    inbox: &'static str,
}

/// A name as the value of a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Text(Name);

impl EncodeLabelValue for Text {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.0.as_str(), encoder)
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registered = Registered::new();
        registered.register();
        Metrics { shared: Arc::new(registered) }
    }

    /// The page for Prometheus. Gauges are as of the last [`crate::Scheduler::render_metrics`].
    pub fn render(&self) -> String {
        let mut page = String::new();
        [&self.shared.registry, &self.shared.plain]
            .into_iter()
            .try_for_each(|registry| encode_registry(&mut page, registry))
            .and_then(|()| encode_eof(&mut page))
            .expect("a string takes whatever is written to it");
        page
    }

    /// A call was rejected before it reached the loop, for the reason `code`.
    pub fn rejected(&self, code: &'static str) {
        self.shared.rejections.get_or_create(&CodeLabel { code }).inc();
    }

    /// Damage of the store that was met.
    pub(crate) fn damage(&self) -> &DamageWatch {
        &self.shared.damage
    }

    /// Metrics of the worker protocol.
    pub fn workers(&self) -> &WorkerMetrics {
        &self.shared.workers
    }

    /// Counts the results of one batch.
    pub(crate) fn batch(&self, committed: &Committed) {
        let gauges = &self.shared;
        gauges.batches.inc();
        gauges.events.inc_by(committed.events.len() as u64);
        if !committed.replies.is_empty() {
            gauges.batch_commands.observe(committed.replies.len() as f64);
        }
        if !committed.changes.is_empty() {
            gauges.batch_changes.observe(committed.changes.len() as f64);
        }
        committed.replies.iter().for_each(|reply| self.reply(reply));
        self.events(&committed.events);
        for change in &committed.changes {
            match change {
                Change::AttemptClosed(closed) => {
                    if let Some(started) = closed.open.started_at {
                        gauges.run_time.observe(seconds(closed.closed_at.since(started)));
                    }
                }
                Change::DeliveryTried(_) => drop(gauges.delivery_tries.inc()),
                Change::DeliveryPut(row) if row.ended_at.is_some() => {
                    let outcome = OutcomeLabel { outcome: row.state.as_str() };
                    gauges.deliveries.get_or_create(&outcome).inc();
                }
                _ => {}
            }
        }
    }

    /// Counts what became of spans.
    pub(crate) fn spans(&self, fate: SpanFate, count: u64) {
        if count > 0 {
            self.shared.otel_spans.get_or_create(&OutcomeLabel { outcome: fate.as_str() }).inc_by(count);
        }
    }

    /// A job's first attempt opened after this much waiting.
    pub(crate) fn waited(&self, wait: Span) {
        self.shared.queue_wait.observe(seconds(wait));
    }

    /// Takes down how the store is: damaged rows that were met, and how far its tables are behind its log.
    pub(crate) fn observe_store(&self, lag: &Lag) {
        self.shared.damaged_rows.set(self.damage().count().cast_signed());
        let values = [lag.commits as f64, lag.changes as f64, lag.bytes as f64, lag.age.as_secs_f64()];
        for (gauge, value) in self.shared.store_lag.iter().zip(values) {
            gauge.set(value);
        }
    }

    /// The process did not run for this long.
    pub(crate) fn stalled(&self, time: Duration) {
        self.shared.stall.inc_by(time.as_secs_f64());
    }

    /// Sets the gauges to the values of this moment.
    pub(crate) fn observe_now(&self, stats: &Stats, requests: usize, messages: usize) {
        let gauges = &self.shared;
        let states = [
            ("scheduled", stats.scheduled),
            ("queued", stats.queued),
            ("assigned", stats.assigned),
            ("running", stats.running),
            ("still_running", stats.still_running),
        ];
        for (state, count) in states {
            gauges.jobs_now.get_or_create(&StateLabel { state }).set(count.cast_signed());
        }
        gauges.lane_waiting.clear();
        gauges.lane_open.clear();
        gauges.lane_counts.iter().for_each(|family| family.clear());
        for lane in stats.lanes.iter().filter(|lane| !lane.unused) {
            let label = LaneLabel { lane: Text(lane.lane.clone()) };
            gauges.lane_waiting.get_or_create(&label).set(lane.waiting.cast_signed());
            gauges.lane_open.get_or_create(&label).set(lane.open.cast_signed());
            let Counts { rejected, expired, dispatched, queue_wait, runs, run_time, .. } = lane.counts;
            let counts = [
                rejected as f64,
                expired as f64,
                dispatched as f64,
                seconds(queue_wait),
                runs as f64,
                seconds(run_time),
            ];
            for (family, count) in gauges.lane_counts.iter().zip(counts) {
                // The engine counts; a new counter of the same value is what it says.
                family.get_or_create(&label).inc_by(count);
            }
        }
        gauges.deliveries_now.set(stats.deliveries.waiting.cast_signed());
        for (inbox, len) in [("commands", requests), ("runners", messages)] {
            gauges.inbox_len.get_or_create(&InboxLabel { inbox }).set(len as i64);
        }
        gauges.draining.set(i64::from(stats.draining));
    }

    /// Counts an outbound message that was rejected.
    pub fn outbound_rejected(&self) {
        self.shared.outbound_rejected.inc();
    }

    /// Takes down how much of the machine is in use at this moment.
    pub(crate) fn observe_capacity(&self, capacity: &CapacityView) {
        let CapacityView { usable, used, reserved, free, .. } = *capacity;
        for (state, units) in [("usable", usable), ("used", used), ("reserved", reserved), ("free", free)] {
            self.shared.units.get_or_create(&StateLabel { state }).set(units.into());
        }
        self.shared.busy.set(capacity.busy.into());
        self.shared.leases.set(capacity.leases.into());
    }

    fn reply(&self, reply: &Reply) {
        let count = |code: RejectionCode| self.rejected(code.as_str());
        match reply {
            Reply::Rejected(rejection) => count(rejection.code),
            Reply::Batch(verdicts) => {
                verdicts
                    .iter()
                    .filter_map(|verdict| verdict.as_ref().err())
                    .for_each(|rejection| count(rejection.code));
            }
            _ => {}
        }
    }

    fn events(&self, events: &[Event]) {
        let mut lanes = self.shared.lanes();
        for event in events {
            let Some(line) = &event.job else { continue };
            if !lanes.contains_key(&line.lane) {
                lanes.insert(line.lane.clone(), self.shared.lane_counters(&line.lane));
            }
            let Some(lane) = lanes.get(&line.lane) else { continue };
            match event.kind {
                EventKind::JobSubmitted => lane.submitted.inc(),
                EventKind::JobStarted => lane.started.inc(),
                EventKind::JobRetrying => lane.retried.inc(),
                EventKind::JobSucceeded => lane.succeeded.inc(),
                EventKind::JobFailed => lane.failed.inc(),
                EventKind::JobCanceled => lane.canceled.inc(),
                _ => continue,
            };
        }
    }
}

impl Registered {
    fn new() -> Registered {
        let times = || Histogram::new(TIMES);
        let sizes = || Histogram::new(exponential_buckets(1.0, 2.0, 13));
        Registered {
            registry: Registry::with_prefix("laneway"),
            plain: Registry::default(),
            workers: WorkerMetrics::default(),
            lanes: Mutex::default(),
            jobs: Family::default(),
            rejections: Family::default(),
            events: Counter::default(),
            batches: Counter::default(),
            queue_wait: times(),
            run_time: times(),
            commit_time: times(),
            batch_commands: sizes(),
            batch_changes: sizes(),
            inbox_len: Family::default(),
            jobs_now: Family::default(),
            lane_waiting: Family::default(),
            lane_open: Family::default(),
            lane_counts: LANE_COUNTS.map(|_| Family::default()),
            deliveries: Family::default(),
            otel_spans: Family::default(),
            delivery_tries: Counter::default(),
            outbound_rejected: Counter::default(),
            deliveries_now: Gauge::default(),
            draining: Gauge::default(),
            units: Family::default(),
            busy: Gauge::default(),
            leases: Gauge::default(),
            stall: Counter::default(),
            damaged_rows: Gauge::default(),
            damage: DamageWatch::default(),
            store_lag: Default::default(),
        }
    }

    /// Names every figure. A counter's name gets `_total` from the encoder.
    fn register(&mut self) {
        self.workers.register(&mut self.plain);
        let to = &mut self.registry;
        to.register("jobs", "What happened to jobs, by lane", self.jobs.clone());
        to.register("rejections", "Calls that were rejected, by code", self.rejections.clone());
        to.register("events", "Events committed", self.events.clone());
        to.register("batches", "Batches of the loop", self.batches.clone());
        to.register("queue_wait_seconds", "Time from eligible to first start", self.queue_wait.clone());
        to.register("run_time_seconds", "Time that attempts ran", self.run_time.clone());
        to.register("commit_seconds", "Time that commits took", self.commit_time.clone());
        to.register("batch_commands", "Commands in one commit", self.batch_commands.clone());
        to.register("batch_changes", "Changes in one commit", self.batch_changes.clone());
        to.register("inbox_length", "Messages that wait for the loop", self.inbox_len.clone());
        to.register("jobs_now", "Live jobs, by state", self.jobs_now.clone());
        to.register("lane_waiting", "Jobs that wait, by lane", self.lane_waiting.clone());
        to.register("lane_open_attempts", "Open attempts, by lane", self.lane_open.clone());
        for ((name, help), family) in LANE_COUNTS.iter().zip(&self.lane_counts) {
            to.register(*name, *help, family.clone());
        }
        to.register("deliveries", "Webhook deliveries that ended, by outcome", self.deliveries.clone());
        to.register("otel_spans", "Spans for OpenTelemetry, by outcome", self.otel_spans.clone());
        to.register("delivery_tries", "Tries at webhook deliveries", self.delivery_tries.clone());
        let help = "Messages that were too large to go out";
        to.register("outbound_rejected", help, self.outbound_rejected.clone());
        to.register("deliveries_waiting", "Webhook deliveries that wait", self.deliveries_now.clone());
        to.register("draining", "1 while the server stops", self.draining.clone());
        to.register("capacity_units", "Units of the machine, by what they are", self.units.clone());
        to.register("busy_rating", "How busy the machine counts, 0 to 10", self.busy.clone());
        to.register("leases", "Open leases of pull workers", self.leases.clone());
        to.register("stall_seconds", "Time in which the process did not run", self.stall.clone());
        to.register(
            "store_damaged_rows",
            "Damaged rows of the store that were met since the start",
            self.damaged_rows.clone(),
        );
        for ((name, meaning), gauge) in STORE_LAG.into_iter().zip(&self.store_lag) {
            to.register(name, meaning, gauge.clone());
        }
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<Name, LaneCounters>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane_counters(&self, lane: &Name) -> LaneCounters {
        let counter = |event| self.jobs.get_or_create(&LaneEvent { lane: Text(lane.clone()), event }).clone();
        LaneCounters {
            submitted: counter("submitted"),
            started: counter("started"),
            retried: counter("retried"),
            succeeded: counter("succeeded"),
            failed: counter("failed"),
            canceled: counter("canceled"),
        }
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1_000.0
}

/// A store whose commits are timed, and whose damage is reported.
pub(crate) struct TimedStore {
    pub(crate) store: Box<dyn Store>,
    pub(crate) metrics: Metrics,
}

impl Store for TimedStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.store.load(visit)
    }

    fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        self.store.counters()
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.store.tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.store.overrides()
    }

    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        let watch = Stopwatch::start();
        let outcome = self.store.commit(epoch, effects);
        self.metrics.shared.commit_time.observe(watch.elapsed().as_secs_f64());
        self.metrics.damage().seen(outcome)
    }

    fn check_owned(&self) -> Result<(), StoreError> {
        self.store.check_owned()
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.metrics.damage().seen(self.store.priors(keys))
    }

    fn close(&mut self) -> Result<bool, StoreError> {
        self.store.close()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.metrics.damage().reader(self.store.reader())
    }
}
