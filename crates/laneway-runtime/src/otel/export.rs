//! The task that sends spans and metrics to the collector.
//!
//! It takes records from the queue when a whole request is there or the interval has passed, and sends one request at a time. While
//! a collector does not answer, records stay in the queue until it is full; then new ones are dropped and counted.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use laneway_core::{JobRow, Seq, Wall};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::collector::{Collector, Sent, Signal};
use super::metrics_page;
use super::otlp::{self, Resource};
use super::queue::{BATCH_LEN, Record, SpanQueue};
use super::settings::OtelSettings;
use super::spans::{Missing, Span, SpanMaker, waited_since};
use crate::executors::http::HttpError;
use crate::metrics::SpanFate;
use crate::scheduler::{ReadError, Scheduler};

/// How often one request is sent at most.
const TRIES_MAX: u32 = 5;
/// The first wait between two tries; each further one is twice as long.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest wait between two tries, also where the collector asks for more.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long the last spans of a graceful stop may take.
const FLUSH_MAX: Duration = Duration::from_secs(3);
/// Most events of a job that are read to find since when it waited.
const EVENTS_MAX: usize = 64;

/// Sends spans and metrics until it is dropped or closed.
pub struct Exporter {
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Exporter {
    /// Starts the task. `None`: the settings have no endpoint.
    pub fn start(
        scheduler: Scheduler,
        queue: SpanQueue,
        settings: &OtelSettings,
    ) -> Result<Option<Exporter>, HttpError> {
        let Some(endpoint) = &settings.endpoint else { return Ok(None) };
        let (stop, host) = (CancellationToken::new(), endpoint.host_str().unwrap_or_default());
        let service_name = settings.service_name.clone();
        let export = Export {
            collector: Collector::new(settings, endpoint)?,
            maker: SpanMaker::new(queue.sampling()),
            resource: Resource { service_name, instance: instance_id() },
            since: scheduler.wall(),
            settings: settings.clone(),
            stop: stop.clone(),
            failing: false,
            queue,
            scheduler,
        };
        tracing::info!(host, sample = settings.sample, "spans and metrics are exported over OTLP");
        Ok(Some(Exporter { stop, task: Mutex::new(Some(tokio::spawn(export.run()))) }))
    }

    /// Sends what is left, within a bound. Call it after the loop has ended.
    pub async fn close(&self) {
        self.stop.cancel();
        let Some(mut task) = self.take_task() else { return };
        if timeout(FLUSH_MAX, &mut task).await.is_err() {
            tracing::warn!("the collector did not take the last spans in time; they are lost");
            task.abort();
        }
    }

    fn take_task(&self) -> Option<JoinHandle<()>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Exporter {
    /// Like a crash: the loop must not live on for the sake of spans.
    fn drop(&mut self) {
        if let Some(task) = self.take_task() {
            task.abort();
        }
    }
}

/// Tells this process from others of the same name.
fn instance_id() -> String {
    format!("{:016x}", random())
}

/// A random number. Without random bytes, two servers are only harder to tell apart.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_be_bytes(bytes)
}

struct Export {
    scheduler: Scheduler,
    queue: SpanQueue,
    collector: Collector,
    maker: SpanMaker,
    resource: Resource,
    settings: OtelSettings,
    /// When counters began to count.
    since: Wall,
    stop: CancellationToken,
    /// True after a request that failed, so that a collector that is down does not fill the log.
    failing: bool,
}

/// What the task waits for.
enum Due {
    Spans,
    Metrics,
    Stop,
}

impl Export {
    async fn run(mut self) {
        let mut spans = ticks(self.settings.interval);
        let mut metrics = ticks(self.settings.metrics_interval.max(Duration::from_secs(1)));
        let has_metrics = !self.settings.metrics_interval.is_zero();
        loop {
            let due = tokio::select! {
                biased;
                () = self.stop.cancelled() => Due::Stop,
                _ = metrics.tick(), if has_metrics => Due::Metrics,
                _ = spans.tick() => Due::Spans,
                () = self.queue.filled() => Due::Spans,
            };
            if matches!(due, Due::Spans | Due::Stop) {
                self.send_spans().await;
            }
            if has_metrics && matches!(due, Due::Metrics | Due::Stop) {
                self.send_metrics().await;
            }
            if matches!(due, Due::Stop) {
                return;
            }
        }
    }

    /// Sends everything that is in the queue now.
    async fn send_spans(&mut self) {
        loop {
            let records = self.queue.take();
            if records.is_empty() {
                return;
            }
            let last = records.len() < BATCH_LEN;
            let spans = self.spans_of(records).await;
            if !spans.is_empty() {
                let body = otlp::traces(&self.resource, &spans);
                self.send(Signal::Traces, body, spans.len() as u64).await;
            }
            if last {
                return;
            }
        }
    }

    async fn spans_of(&mut self, records: Vec<Record>) -> Vec<Span> {
        let missing = self.maker.look_up(&records);
        if missing != Missing::default() {
            match self.read(missing).await {
                Ok((rows, waits)) => self.maker.learn(rows, waits),
                Err(error) => tracing::debug!(%error, "jobs of spans could not be read"),
            }
        }
        let (spans, unknown) = self.maker.spans(&records);
        self.scheduler.metrics().spans(SpanFate::Unreadable, unknown);
        spans
    }

    async fn read(&self, missing: Missing) -> Result<(Vec<JobRow>, Vec<((Seq, u32), Wall)>), ReadError> {
        let read = self.scheduler.read(move |reader| {
            let rows = reader.jobs_at(&missing.rows)?.into_iter().map(|job| job.row).collect();
            let mut waits = Vec::new();
            for (seq, attempt) in missing.waits {
                let since = waited_since(&reader.events_of(seq, EVENTS_MAX)?, attempt);
                waits.extend(since.map(|since| ((seq, attempt), since)));
            }
            Ok((rows, waits))
        });
        read.await
    }

    async fn send_metrics(&mut self) {
        let page = match self.scheduler.render_metrics().await {
            Ok(page) => page,
            // The loop has ended: counters are final, and gauges are as they were last.
            Err(_) => self.scheduler.metrics().render(),
        };
        let metrics = metrics_page::read(&page);
        let body = otlp::metrics(&self.resource, &metrics, self.since, self.scheduler.wall());
        self.send(Signal::Metrics, body, 0).await;
    }

    /// Sends one request, again and again where the collector allows it. `spans` are counted.
    async fn send(&mut self, signal: Signal, body: Vec<u8>, spans: u64) {
        let mut wait = RETRY_FIRST;
        for number in 1..=TRIES_MAX {
            let (after, why) = match self.collector.post(signal, body.clone()).await {
                Sent::Accepted { rejected, why } => return self.accepted(signal, spans, rejected, &why),
                Sent::Failed { why } => return self.failed(signal, spans, &why),
                Sent::TryAgain { after, why } => (after, why),
            };
            // Metrics are sent anew after their interval, and the end of the process waits for nothing.
            if number == TRIES_MAX || signal == Signal::Metrics || self.stop.is_cancelled() {
                return self.failed(signal, spans, &why);
            }
            // Servers that lost the same collector do not come back at the same moment.
            let jitter = Duration::from_millis(random() % 250);
            tokio::select! {
                () = sleep(after.unwrap_or(wait).min(RETRY_MAX) + jitter) => {}
                () = self.stop.cancelled() => {}
            }
            wait *= 2;
        }
    }

    fn accepted(&mut self, signal: Signal, spans: u64, rejected: u64, why: &str) {
        if self.failing {
            self.failing = false;
            tracing::info!("the OpenTelemetry collector answers again");
        }
        if rejected > 0 {
            tracing::warn!(
                ?signal,
                rejected,
                why,
                "the OpenTelemetry collector rejected a part of a request"
            );
        }
        let rejected = rejected.min(spans);
        let metrics = self.scheduler.metrics();
        metrics.spans(SpanFate::Exported, spans - rejected);
        metrics.spans(SpanFate::Rejected, rejected);
    }

    fn failed(&mut self, signal: Signal, spans: u64, why: &str) {
        if !self.failing {
            self.failing = true;
            tracing::warn!(
                ?signal,
                why,
                "the OpenTelemetry collector does not take spans and metrics; they are dropped until it does; see otel.endpoint"
            );
        }
        self.scheduler.metrics().spans(SpanFate::Failed, spans);
    }
}

/// Ticks of an interval, the first one after the interval.
fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
