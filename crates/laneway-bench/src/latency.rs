//! From submit to the handler's start on an idle server, beside one append of 4 KiB with fdatasync.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use laneway_api::Api;
use laneway_core::{Name, Outcome, Settings};
use laneway_runtime::config::{Layers, Overrides, Schema};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Handlers, Options, Scheduler};
use laneway_store::SqliteStore;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;
use crate::drain::{job, runtime};
use crate::load::Connection;
use crate::measurement::{Goal, Measurement, Unit, median};
use crate::raw::{append_and_sync, payload};

/// Both benchmarks: in process, and over HTTP.
pub fn idle(bench: &Bench<'_>) -> anyhow::Result<Vec<Measurement>> {
    let count = u32::try_from(bench.sized(500).max(50))?;
    let (mut inside, mut http, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        bench.now(format!("idle latency, run {run}"));
        let dir = bench.fresh_dir("latency")?;
        raw.push(median_ms(&append_and_sync(&dir, count)?));
        let (one, other) = runtime()?.block_on(measure(&dir.join("data"), count))?;
        inside.push(median_ms(&one));
        http.push(median_ms(&other));
    }
    let raw_is = "one append of 4 KiB with fdatasync on the same disk";
    let goals = (Some(Goal::AtMost(2.5)), Some(Goal::AtMost(4.0)));
    Ok(vec![
        Measurement::beside(
            "submit to handler, in process, p50",
            Unit::Millis,
            inside,
            raw.clone(),
            raw_is,
            goals.0,
        ),
        Measurement::beside("submit to handler, over HTTP, p50", Unit::Millis, http, raw, raw_is, goals.1),
    ])
}

/// The latencies in process, then over HTTP, one job at a time.
async fn measure(data_dir: &Path, count: u32) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let store = SqliteStore::open(data_dir, Default::default())?;
    let (scheduler, _running) = Scheduler::start(Box::new(store), Options::new(Settings::default()))?;
    let (entered, mut entries) = mpsc::channel::<Instant>(16);
    let handlers = Handlers::new().on("noop-0", move |_| {
        let at = Instant::now();
        let entered = entered.clone();
        async move {
            entered.send(at).await.expect("the benchmark receives");
            Outcome::Succeeded(None)
        }
    });
    scheduler.run_here(Name::fixed("local"), handlers, u32::MAX).await?;

    let mut inside = Vec::new();
    for number in 0..count {
        let submission = job(u64::from(number) * 4);
        let start = Instant::now();
        scheduler.submit(submission).await?.map_err(|rejection| anyhow::anyhow!("rejected: {rejection}"))?;
        inside.push(entries.recv().await.context("the handler runs")?.duration_since(start));
        settle(&scheduler).await?;
    }

    let (address, stop) = serve_api(scheduler.clone()).await?;
    let http = over_http(address, &scheduler, &mut entries, count).await?;
    stop.cancel();
    scheduler.drain(Duration::ZERO).await?;
    Ok((inside, http))
}

/// The HTTP API in front of the scheduler, with default settings.
async fn serve_api(scheduler: Scheduler) -> anyhow::Result<(SocketAddr, CancellationToken)> {
    let (layers, overrides) = (Layers::builtin(&Schema::native()), Overrides::none());
    let config = layers.resolve(&overrides)?;
    let live = LiveConfig::new(layers, overrides, config, scheduler.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    tokio::spawn(laneway_api::serve(listener, Api::new(scheduler, live, |_, _, _| true)?, stop.clone()));
    Ok((address, stop))
}

async fn over_http(
    address: SocketAddr,
    scheduler: &Scheduler,
    entries: &mut mpsc::Receiver<Instant>,
    count: u32,
) -> anyhow::Result<Vec<Duration>> {
    let mut connection = Connection::open(address).await?;
    let mut times = Vec::new();
    for number in 0..count {
        let body = Arc::new(format!("{{\"kind\":\"noop-0\",\"payload\":{}}}", payload(u64::from(number))));
        let start = Instant::now();
        connection.post("/v1/jobs", body.as_bytes()).await?;
        times.push(entries.recv().await.context("the handler runs")?.duration_since(start));
        settle(scheduler).await?;
    }
    Ok(times)
}

/// Waits until all work is done, so that the next job finds an idle server.
pub async fn settle(scheduler: &Scheduler) -> anyhow::Result<()> {
    loop {
        let stats = scheduler.stats(None).await?;
        if stats.queued + stats.running == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

fn median_ms(times: &[Duration]) -> f64 {
    median(&times.iter().map(|time| time.as_secs_f64() * 1_000.0).collect::<Vec<_>>())
}
