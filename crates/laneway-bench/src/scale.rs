//! A million queued jobs of 10,000 agents and 100,000 sessions, beside five million ended ones: memory, restart,
//! and whether draining slows down.
//!
//! The ended jobs are made by the same batches as in the server (submit, open, finish, commit), without HTTP.

use laneway_core::command::AdminCommand;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use laneway_core::{
    Command, ExecutorMode, ExecutorOffer, Fence, Mono, Name, Notice, Now, Outcome, Session, Settings,
    Submission, Wall,
};
use laneway_runtime::Driver;
use laneway_store::SqliteStore;

use crate::bench::Bench;
use crate::child::Server;
use crate::drain::{BenchScheduler, job, runtime};
use crate::load::requests_per_second;
use crate::measurement::{Goal, Measurement, Unit};
use crate::raw::payload;

const AGENTS: u64 = 10_000;
const SESSIONS: u64 = 100_000;
const JOBS_PER_CALL: u64 = 1_000;
/// The backlog that the rate is compared with, kept constant by refilling.
const SMALL_BACKLOG: u64 = 10_000;
/// Jobs behind two sessions that never end.
const BLOCKED: u64 = 100_000;

/// Limits for all jobs; no job starts.
const SETTINGS: [(&str, &str); 5] = [
    ("LANEWAY_LANES__MAIN__PAUSED", "true"),
    ("LANEWAY_LANES__MAIN__QUEUED_MAX", "10000000"),
    ("LANEWAY_LANES__MAIN__QUEUED_PER_AGENT_MAX", "10000000"),
    ("LANEWAY_LIMITS__QUEUED_MAX", "10000000"),
    ("LANEWAY_TENANTS_DEFAULT__QUEUED_MAX", "10000000"),
];

/// All benchmarks at scale.
pub fn million(bench: &Bench<'_>) -> anyhow::Result<Vec<Measurement>> {
    let (queued, ended) = (bench.sized(1_000_000), bench.sized(5_000_000));
    let dir = bench.fresh_dir("scale")?;
    make_ended(bench, &dir, ended, ended_job, |_| Outcome::Succeeded(None))?;

    bench.now(format!("scale: {queued} jobs over HTTP"));
    let server = Server::laneway(&dir, &SETTINGS)?;
    requests_per_second(server.address, "/v1/jobs/batch", 4, queued / JOBS_PER_CALL, queued_batch)?;
    let loaded = server.resident_anonymous()?;
    server.kill()?;
    let mut restarts = Vec::new();
    let mut restarted = Vec::new();
    for run in 1..=bench.runs {
        bench.now(format!("scale: restart {run}"));
        let server = Server::laneway(&dir, &SETTINGS)?;
        restarts.push(server.ready_after.as_secs_f64() * 1_000.0);
        restarted.push(server.resident_anonymous()?);
        server.kill()?;
    }

    let mut stops = Vec::new();
    for run in 1..=bench.runs {
        bench.now(format!("scale: stop and start {run}"));
        let server = Server::laneway(&dir, &SETTINGS)?;
        let stopped = server.stop()?;
        let server = Server::laneway(&dir, &SETTINGS)?;
        stops.push((stopped + server.ready_after).as_secs_f64() * 1_000.0);
        server.kill()?;
    }

    let (mut big, mut blocked, mut small) = (Vec::new(), Vec::new(), Vec::new());
    let sample = queued / 10 / u64::from(bench.runs);
    for run in 1..=bench.runs {
        bench.now(format!("scale: drain rate, run {run}: small backlog"));
        small.push(runtime()?.block_on(held_rate(&bench.fresh_dir("scale-small")?, sample))?);
        bench.now(format!("scale: drain rate, run {run}: big backlog"));
        big.push(runtime()?.block_on(big_rate(&dir, sample))?);
    }
    bench.now(format!("scale: {BLOCKED} jobs behind two sessions"));
    runtime()?.block_on(block_two_sessions(&dir))?;
    for run in 1..=bench.runs {
        bench.now(format!("scale: drain rate, run {run}: behind two busy sessions"));
        blocked.push(runtime()?.block_on(big_rate(&dir, sample))?);
    }

    let raw_is = "the same with a backlog held at 10,000 by refilling, without ended jobs";
    let (least, most) = (Some(Goal::AtLeast(0.8)), Goal::AtMost(600e6));
    Ok(vec![
        Measurement::absolute("memory with 1M queued, after load", Unit::Bytes, vec![loaded], most),
        Measurement::absolute("memory with 1M queued, after restart", Unit::Bytes, restarted, most),
        Measurement::absolute(
            "kill -9 to ready with 1M queued",
            Unit::Millis,
            restarts,
            Goal::AtMost(5_000.0),
        ),
        Measurement::absolute("SIGTERM to ready with 1M queued", Unit::Millis, stops, Goal::AtMost(5_000.0)),
        Measurement::beside("drain with 1M queued", Unit::PerSecond, big, small.clone(), raw_is, least),
        Measurement::beside(
            "drain with 100k behind two sessions",
            Unit::PerSecond,
            blocked,
            small,
            raw_is,
            least,
        ),
    ])
}

/// Makes ended jobs: 500 are submitted, opened and finished in a few batches. `job` makes them, `outcome` says how each ends.
pub(crate) fn make_ended(
    bench: &Bench<'_>,
    dir: &Path,
    ended: u64,
    job: fn(u64) -> Submission,
    outcome: fn(u64) -> Outcome,
) -> anyhow::Result<()> {
    let store = SqliteStore::open(dir, Default::default())?;
    let mut now = wall_now()?;
    let settings = Settings { running_max: 100_000, ..Settings::default() };
    let mut driver = Driver::recover(Box::new(store), settings, 7, now)?;
    let kinds = ["noop-0", "noop-1", "noop-2", "noop-3"].map(Name::fixed).to_vec();
    let executor = ExecutorOffer {
        executor: Name::fixed("local"),
        mode: ExecutorMode::Attached,
        kinds,
        slots: u32::MAX,
    };
    let mut commands = VecDeque::from([Command::Admin(AdminCommand::Offer(executor))]);
    let batch = driver.apply(now, &mut commands)?;
    driver.commit(batch)?;
    let (mut submitted, mut finished) = (0, 0);
    let mut open: VecDeque<Fence> = VecDeque::new();
    while finished < ended {
        if submitted < ended && open.len() < 500 {
            let items: Vec<Submission> = (submitted..(submitted + 200).min(ended)).map(job).collect();
            submitted += items.len() as u64;
            commands.push_back(Command::SubmitBatch { items: Arc::new(items), atomic: false });
        }
        for fence in open.drain(..open.len().min(250)) {
            commands.push_back(Command::Finish(fence, outcome(finished)));
            finished += 1;
        }
        now = Now { mono: Mono(now.mono.0 + 1), wall: Wall(now.wall.0 + 1) };
        while !commands.is_empty() {
            let batch = driver.apply(now, &mut commands)?;
            open.extend(driver.commit(batch)?.notices.iter().filter_map(|notice| match notice {
                Notice::Offer(offer) => Some(offer.fence),
                _ => None,
            }));
        }
        if finished % 50_000 < 250 {
            bench.now(format!("scale: {finished} of {ended} ended jobs"));
        }
    }
    Ok(())
}

/// Like the jobs of the drain benchmark, but without sessions and keys, so that no gate blocks them.
fn ended_job(number: u64) -> Submission {
    let mut submission = job(number);
    submission.spec.session = None;
    submission.spec.keys = Vec::new();
    submission
}

fn wall_now() -> anyhow::Result<Now> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(Now { mono: Mono(1), wall: Wall(i64::try_from(since.as_millis())?) })
}

/// A call with a thousand jobs; every other one belongs to a session.
fn queued_batch(call: u64) -> String {
    let mut text = String::with_capacity(300 * JOBS_PER_CALL as usize);
    text.push_str("{\"jobs\":[");
    for number in call * JOBS_PER_CALL..(call + 1) * JOBS_PER_CALL {
        if !text.ends_with('[') {
            text.push(',');
        }
        text.push_str(&format!("{{\"kind\":\"noop-{}\",\"agent\":\"agent-{}\"", number % 4, number % AGENTS));
        if number % 2 == 0 {
            text.push_str(&format!(",\"session\":\"session-{}\"", number / 2 % SESSIONS));
        }
        text.push_str(&format!(",\"payload\":{}}}", payload(number)));
    }
    text.push_str("]}");
    text
}

/// The rate of draining `sample` jobs from the backlog.
async fn big_rate(dir: &Path, sample: u64) -> anyhow::Result<f64> {
    let bench_scheduler = BenchScheduler::open_paused(dir).await?;
    let before = bench_scheduler.waiting().await?;
    let start = Instant::now();
    bench_scheduler.pause(false).await?;
    bench_scheduler.wait_until_waiting(before.saturating_sub(sample)).await?;
    let drained = before - bench_scheduler.waiting().await?;
    let rate = drained as f64 / start.elapsed().as_secs_f64();
    bench_scheduler.pause(true).await?;
    bench_scheduler.close().await?;
    Ok(rate)
}

/// The rate of draining while the backlog is kept at [`SMALL_BACKLOG`].
async fn held_rate(dir: &Path, sample: u64) -> anyhow::Result<f64> {
    let bench_scheduler = BenchScheduler::open_paused(dir).await?;
    bench_scheduler.submit(0..SMALL_BACKLOG, job).await?;
    let mut submitted = SMALL_BACKLOG;
    let start = Instant::now();
    bench_scheduler.pause(false).await?;
    loop {
        let waiting = bench_scheduler.waiting().await?;
        let drained = submitted - waiting;
        if drained >= sample {
            let rate = drained as f64 / start.elapsed().as_secs_f64();
            bench_scheduler.close().await?;
            return Ok(rate);
        }
        match SMALL_BACKLOG.saturating_sub(waiting) {
            0 => tokio::time::sleep(Duration::from_millis(1)).await,
            missing => {
                bench_scheduler.submit(submitted..submitted + missing, job).await?;
                submitted += missing;
            }
        }
    }
}

/// Two sessions whose first job never ends, and many jobs behind each.
async fn block_two_sessions(dir: &Path) -> anyhow::Result<()> {
    let bench_scheduler = BenchScheduler::open_paused(dir).await?;
    bench_scheduler
        .submit(0..BLOCKED, |number| {
            let mut submission = job(number);
            let key = if number % 2 == 0 { "busy-0" } else { "busy-1" };
            submission.spec.session = Some(Session::new(Name::fixed(key)));
            submission.spec.keys = Vec::new();
            if number < 2 {
                submission.spec.kind = Name::fixed("forever");
            }
            submission
        })
        .await?;
    bench_scheduler.close().await.context("failed to close")
}
