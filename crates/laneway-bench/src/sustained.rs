//! Submitting and running at once, for minutes: does the store keep up, and does its memory stay flat?
//!
//! Clients submit as fast as the server runs jobs: they stop while more than [`BACKLOG_MAX`] wait. Ended jobs are deleted after
//! half a minute, so that deleting is part of it. Every second, the rate, the lag of the tables behind the commit log and the
//! memory of the server are read, from its own metrics and from the kernel.

mod picture;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;

use crate::bench::Bench;
use crate::child::Server;
use crate::load::Connection;
use crate::measurement::{Goal, Measurement, Unit};
use crate::raw::payload;
use picture::Panel;

/// How long it takes: ten minutes, or twenty seconds with `--quick`.
const SECONDS: u64 = 600;
const SECONDS_QUICK: u64 = 20;
/// Clients wait while more jobs do.
const BACKLOG_MAX: f64 = 20_000.0;
/// Connections that submit.
const CONNECTIONS: u64 = 4;
const JOBS_PER_CALL: u64 = 100;
const SETTINGS: [(&str, &str); 3] = [
    ("LANEWAY_LANES__MAIN__RUNNING_MAX", "1024"),
    ("LANEWAY_LANES__MAIN__RETENTION", "30s"),
    ("LANEWAY_LIMITS__EVENT_RETENTION", "1m"),
];

/// What was seen in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Jobs that ended.
    jobs: f64,
    waiting: f64,
    lag_commits: f64,
    lag_bytes: f64,
    lag_seconds: f64,
    memory_bytes: f64,
}

/// The benchmark.
pub fn enqueue_and_drain(bench: &Bench<'_>) -> anyhow::Result<Vec<Measurement>> {
    let seconds = if bench.quick { SECONDS_QUICK } else { SECONDS };
    let server = Server::laneway(&bench.fresh_dir("sustained")?, &SETTINGS)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let samples = runtime.block_on(measure(bench, &server, seconds))?;
    server.stop()?;
    if let Some(file) = &bench.picture {
        let drawn = picture::draw(seconds, &panels(&samples));
        std::fs::write(file, drawn).with_context(|| format!("failed to write {}", file.display()))?;
    }
    let of = |value: fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<f64>>();
    // A tenth of the time is for caches to fill.
    let warm = samples.get(samples.len() / 10).copied().unwrap_or_default();
    let last = samples.last().copied().unwrap_or_default();
    let longest = of(|sample| sample.lag_seconds * 1_000.0).into_iter().fold(0.0, f64::max);
    Ok(vec![
        Measurement::beside(
            "sustained: jobs submitted and run",
            Unit::PerSecond,
            of(|sample| sample.jobs),
            vec![warm.jobs; samples.len()],
            "the same after a tenth of the time",
            Some(Goal::AtLeast(0.8)),
        ),
        Measurement::absolute(
            "sustained: longest lag of the tables",
            Unit::Millis,
            vec![longest],
            Goal::AtMost(1_000.0),
        ),
        Measurement::beside(
            "sustained: memory at the end",
            Unit::Bytes,
            vec![last.memory_bytes],
            vec![warm.memory_bytes],
            "the same after a tenth of the time",
            Some(Goal::AtMost(1.2)),
        ),
    ])
}

async fn measure(bench: &Bench<'_>, server: &Server, seconds: u64) -> anyhow::Result<Vec<Sample>> {
    let (next, is_full, is_over) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::open(server.address).await?;
        let (next, is_full, is_over) = (Arc::clone(&next), Arc::clone(&is_full), Arc::clone(&is_over));
        clients.push(tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                if is_full.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    continue;
                }
                let call = next.fetch_add(1, Ordering::Relaxed);
                connection.post("/v1/jobs/batch", batch(call).as_bytes()).await?;
            }
            anyhow::Ok(())
        }));
    }
    let watched = watch(bench, server, seconds, &is_full).await;
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await??;
    }
    watched
}

/// Reads the metrics ten times a second, and keeps a sample of each second.
async fn watch(
    bench: &Bench<'_>,
    server: &Server,
    seconds: u64,
    is_full: &AtomicBool,
) -> anyhow::Result<Vec<Sample>> {
    const LOOKS: u64 = 10;
    let mut metrics = Connection::open(server.address).await?;
    let mut samples = Vec::new();
    let (begun, mut ended_before, mut at_before) = (Instant::now(), 0.0, Instant::now());
    let mut peak = Sample::default();
    for look in 1..=seconds * LOOKS {
        tokio::time::sleep_until(begun + Duration::from_secs(1) * look as u32 / LOOKS as u32).await;
        let page = String::from_utf8_lossy(metrics.get("/metrics").await?).into_owned();
        let value = |name: &str| sum_of(&page, name);
        let waiting = value("laneway_jobs_now{state=\"queued\"}");
        is_full.store(waiting > BACKLOG_MAX, Ordering::Relaxed);
        // The highest lag of the second counts.
        peak.lag_commits = peak.lag_commits.max(value("laneway_store_lag_commits"));
        peak.lag_bytes = peak.lag_bytes.max(value("laneway_store_lag_bytes"));
        peak.lag_seconds = peak.lag_seconds.max(value("laneway_store_lag_seconds"));
        if look % LOOKS == 0 {
            let (ended, at) = (succeeded(&page), Instant::now());
            let jobs = (ended - ended_before) / (at - at_before).as_secs_f64();
            (ended_before, at_before) = (ended, at);
            samples.push(Sample { jobs, waiting, memory_bytes: server.resident_anonymous()?, ..peak });
            peak = Sample::default();
            bench.now(format!("sustained: {} of {seconds} s, {jobs:.0} jobs/s", look / LOOKS));
        }
    }
    Ok(samples)
}

/// The value of a metric, with all its labels.
fn sum_of(page: &str, name: &str) -> f64 {
    let lines = page.lines().filter(|line| line.split(' ').next() == Some(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Jobs that succeeded, in all lanes.
fn succeeded(page: &str) -> f64 {
    let lines = page
        .lines()
        .filter(|line| line.starts_with("laneway_jobs_total{") && line.contains("event=\"succeeded\""));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn batch(call: u64) -> String {
    let numbers = call * JOBS_PER_CALL..(call + 1) * JOBS_PER_CALL;
    let jobs: Vec<String> = numbers
        .map(|number| {
            let agent = number % 1_000;
            format!("{{\"kind\":\"echo\",\"agent\":\"agent-{agent}\",\"payload\":{}}}", payload(number))
        })
        .collect();
    format!("{{\"jobs\":[{}]}}", jobs.join(","))
}

fn panels(samples: &[Sample]) -> Vec<Panel> {
    let panel =
        |title, values: fn(&Sample) -> f64| Panel { title, values: samples.iter().map(values).collect() };
    vec![
        panel("jobs submitted and run, per second", |sample| sample.jobs),
        panel("jobs that wait", |sample| sample.waiting),
        panel("lag of the tables, commits", |sample| sample.lag_commits),
        panel("lag of the tables, KB", |sample| sample.lag_bytes / 1e3),
        panel("lag of the tables, ms", |sample| sample.lag_seconds * 1e3),
        panel("memory of the server, MB", |sample| sample.memory_bytes / 1e6),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_by_their_whole_name() {
        let page = "# TYPE x gauge\nlaneway_store_lag_bytes 12.5\nlaneway_store_lag_bytes_more 7\n\
                    laneway_jobs_now{state=\"queued\"} 3\nlaneway_jobs_total{lane=\"a\",event=\"succeeded\"} 4\n\
                    laneway_jobs_total{lane=\"b\",event=\"succeeded\"} 5\nlaneway_jobs_total{lane=\"b\",event=\"failed\"} 9\n";
        assert_eq!(sum_of(page, "laneway_store_lag_bytes"), 12.5);
        assert_eq!(sum_of(page, "laneway_jobs_now{state=\"queued\"}"), 3.0);
        assert_eq!(succeeded(page), 9.0);
    }
}
