//! Submitting over HTTP: one job per call beside a bare echo, a thousand per call beside raw inserts.
//!
//! 1,000 agents, 200-byte payloads, the lane paused, every answer after its fsync.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::bench::Bench;
use crate::child::Server;
use crate::load::requests_per_second;
use crate::measurement::{Goal, Measurement, Unit};
use crate::raw::{self, append_and_sync, payload};

/// No job starts: only admission is measured.
const PAUSED: [(&str, &str); 1] = [("LANEWAY_LANES__MAIN__PAUSED", "true")];
const CONNECTIONS: u64 = 32;
const JOBS_PER_CALL: u64 = 1_000;
/// Connections that send batches: enough to parse one batch while another is committed.
const BATCH_CONNECTIONS: u64 = 4;

/// One job per call over one connection: each call waits for its own fsync.
pub fn one_by_one(bench: &Bench<'_>) -> anyhow::Result<Measurement> {
    let requests = bench.sized(20_000);
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        bench.now(format!("enqueue over one connection, run {run}: fdatasync and echo"));
        let synced = append_and_sync(&bench.fresh_dir("enqueue-one-raw")?, u32::try_from(requests)?)?;
        let synced = synced.iter().sum::<Duration>().as_secs_f64() / requests as f64;
        let echo = Server::echo()?;
        let echoed = 1.0 / requests_per_second(echo.address, "/v1/jobs", 1, requests, job)?;
        drop(echo);
        raw.push(1.0 / (synced + echoed));
        bench.now(format!("enqueue over one connection, run {run}: ours"));
        let server = Server::laneway(&bench.fresh_dir("enqueue-one")?, &PAUSED)?;
        ours.push(requests_per_second(server.address, "/v1/jobs", 1, requests, job)?);
    }
    let raw_is = "one append of 4 KiB with fdatasync, then a round trip to a bare echo";
    let goal = Some(Goal::AtLeast(0.7));
    Ok(Measurement::beside("enqueue over HTTP, 1 connection", Unit::PerSecond, ours, raw, raw_is, goal))
}

/// One job per call.
pub fn one_a_call(bench: &Bench<'_>) -> anyhow::Result<Measurement> {
    let requests = bench.sized(200_000);
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        bench.now(format!("enqueue over HTTP, run {run}: echo"));
        let echo = Server::echo()?;
        raw.push(requests_per_second(echo.address, "/v1/jobs", CONNECTIONS, requests, job)?);
        drop(echo);
        bench.now(format!("enqueue over HTTP, run {run}: ours"));
        let server = Server::laneway(&bench.fresh_dir("enqueue")?, &PAUSED)?;
        ours.push(requests_per_second(server.address, "/v1/jobs", CONNECTIONS, requests, job)?);
    }
    let raw_is = "a bare axum echo that parses the same body, same client";
    let goal = Some(Goal::AtLeast(0.4));
    Ok(Measurement::beside("enqueue over HTTP, 32 connections", Unit::PerSecond, ours, raw, raw_is, goal))
}

/// A thousand jobs per call, without and with idempotency keys.
pub fn thousand_a_call(bench: &Bench<'_>) -> anyhow::Result<Vec<Measurement>> {
    let jobs = bench.sized(200_000);
    let (mut plain, mut keyed, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        bench.now(format!("batch submit, run {run}: raw inserts"));
        raw.push(raw::sqlite(&bench.fresh_dir("batch-raw")?, jobs)?.0);
        bench.now(format!("batch submit, run {run}: ours"));
        plain.push(batches(bench, jobs, false)?);
        bench.now(format!("batch submit, run {run}: ours with idempotency keys"));
        keyed.push(batches(bench, jobs, true)?);
    }
    let raw_is = "raw SQLite inserts of as many rows, 1,024 per transaction, FULL";
    let goal = Some(Goal::AtLeast(0.4));
    Ok(vec![
        Measurement::beside(
            "batch submit, 1,000 per call",
            Unit::PerSecond,
            plain,
            raw.clone(),
            raw_is,
            goal,
        ),
        Measurement::beside("batch submit with idempotency keys", Unit::PerSecond, keyed, raw, raw_is, None),
    ])
}

fn batches(bench: &Bench<'_>, jobs: u64, keyed: bool) -> anyhow::Result<f64> {
    let server = Server::laneway(&bench.fresh_dir("batch")?, &PAUSED)?;
    let calls = jobs / JOBS_PER_CALL;
    let key = AtomicU64::new(0);
    let body = move |call: u64| {
        let mut text = String::with_capacity(300 * JOBS_PER_CALL as usize);
        text.push_str("{\"jobs\":[");
        for at in 0..JOBS_PER_CALL {
            if at > 0 {
                text.push(',');
            }
            let mut one = job(call * JOBS_PER_CALL + at);
            if keyed {
                one.pop();
                one.push_str(&format!(
                    ",\"idempotency_key\":\"key-{}\"}}",
                    key.fetch_add(1, Ordering::Relaxed)
                ));
            }
            text.push_str(&one);
        }
        text.push_str("]}");
        text
    };
    let rate = requests_per_second(server.address, "/v1/jobs/batch", BATCH_CONNECTIONS, calls, body)?;
    Ok(rate * JOBS_PER_CALL as f64)
}

fn job(number: u64) -> String {
    format!("{{\"kind\":\"noop\",\"agent\":\"agent-{}\",\"payload\":{}}}", number % 1_000, payload(number))
}
