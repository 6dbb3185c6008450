//! The store in PostgreSQL, beside raw statements on the same database. The database must be empty; nothing is left in it.
//!
//! ```sql
//! CREATE TABLE laneway_bench.job(id BIGINT PRIMARY KEY, queue BIGINT NOT NULL, prio BIGINT NOT NULL, run_at BIGINT NOT NULL,
//!   state BIGINT NOT NULL DEFAULT 0, attempt BIGINT NOT NULL DEFAULT 0, payload TEXT NOT NULL);
//! CREATE INDEX ready ON laneway_bench.job(queue, prio, run_at, id) WHERE state = 0;
//! -- insert, 1,024 per transaction:
//! INSERT INTO laneway_bench.job(id,queue,prio,run_at,payload) SELECT * FROM unnest(…);
//! -- claim and finish, 256 of each per transaction:
//! UPDATE laneway_bench.job SET state=2 WHERE id = ANY(…);
//! UPDATE laneway_bench.job SET state=1, attempt=attempt+1 WHERE id IN (SELECT id FROM laneway_bench.job WHERE queue=0 AND
//!   state=0 ORDER BY prio,run_at,id LIMIT 256 FOR UPDATE SKIP LOCKED) RETURNING id;
//! ```

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use laneway_core::{Name, Outcome, Settings};
use laneway_runtime::{Handlers, Options, Scheduler};
use laneway_store::PostgresStore;
use laneway_store::postgres::{RawConnection, RawParam};
use tokio::sync::mpsc;

use crate::bench::Bench;
use crate::drain::{BenchScheduler, job, runtime};
use crate::measurement::{Goal, Measurement, Unit};
use crate::raw::payload;

const INSERTS_PER_TRANSACTION: u64 = 1_024;
const CLAIMS_PER_TRANSACTION: i64 = 256;
/// How long an idle server is watched.
const IDLE: Duration = Duration::from_secs(10);

/// All benchmarks of the store in PostgreSQL.
pub fn measure(bench: &Bench<'_>, url: &str) -> anyhow::Result<Vec<Measurement>> {
    let raw = RawConnection::connect(url)?;
    let taken = raw
        .numbers("SELECT count(*) FROM pg_namespace WHERE nspname IN ('laneway', 'laneway_bench')", vec![])?;
    ensure!(
        taken == [0],
        "the database has a schema laneway or laneway_bench; name an empty database for benchmarks"
    );
    let measured = measure_all(bench, url, &raw);
    let cleared = clear(&raw);
    let measured = measured?;
    cleared?;
    Ok(measured)
}

fn clear(raw: &RawConnection) -> anyhow::Result<()> {
    Ok(raw.execute("SET client_min_messages = error; DROP SCHEMA IF EXISTS laneway CASCADE; DROP SCHEMA IF EXISTS laneway_bench CASCADE")?)
}

fn measure_all(bench: &Bench<'_>, url: &str, raw: &RawConnection) -> anyhow::Result<Vec<Measurement>> {
    let jobs = bench.sized(100_000);
    let count = bench.sized(500).max(50);
    let (mut inserts, mut submits, mut claims, mut drains) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut commits, mut starts) = (Vec::new(), Vec::new());
    // First: later the database cleans up after the others, which it counts as transactions, too.
    bench.now("PostgreSQL: an idle server");
    let statements = runtime()?.block_on(idle_transactions(url, raw))?;
    clear(raw)?;
    for run in 1..=bench.runs {
        bench.now(format!("PostgreSQL, run {run}: raw statements"));
        make_raw_table(raw)?;
        inserts.push(timed(jobs, || insert(raw, jobs))?);
        claims.push(timed(jobs, || claim_and_finish(raw))?);
        commits.push(median_ms(&single_inserts(raw, jobs, count)?));
        clear(raw)?;
        bench.now(format!("PostgreSQL, run {run}: ours"));
        let (submitted, drained) = runtime()?.block_on(submit_and_drain(url, jobs))?;
        submits.push(submitted);
        drains.push(drained);
        clear(raw)?;
        starts.push(median_ms(&runtime()?.block_on(idle_latency(url, count))?));
        clear(raw)?;
    }
    let in_batches = "raw inserts of 1,024 rows per transaction by UNNEST on the same database";
    let claimed = "raw claim and finish, 256 of each per transaction, on the same database";
    let one = "one raw insert that commits on the same database";
    Ok(vec![
        Measurement::beside(
            "batch submit, PostgreSQL",
            Unit::PerSecond,
            submits,
            inserts,
            in_batches,
            Some(Goal::AtLeast(0.4)),
        ),
        Measurement::beside(
            "drain by local handlers, PostgreSQL",
            Unit::PerSecond,
            drains,
            claims,
            claimed,
            Some(Goal::AtLeast(0.8)),
        ),
        Measurement::beside(
            "submit to handler, PostgreSQL, p50",
            Unit::Millis,
            starts,
            commits,
            one,
            Some(Goal::AtMost(3.0)),
        ),
        Measurement::absolute(
            "transactions of an idle server, PostgreSQL",
            Unit::PerSecond,
            vec![statements],
            Goal::AtMost(2.0),
        ),
    ])
}

fn make_raw_table(raw: &RawConnection) -> anyhow::Result<()> {
    Ok(raw.execute(
        "CREATE SCHEMA laneway_bench;
         CREATE TABLE laneway_bench.job(id BIGINT PRIMARY KEY, queue BIGINT NOT NULL, prio BIGINT NOT NULL,
           run_at BIGINT NOT NULL, state BIGINT NOT NULL DEFAULT 0, attempt BIGINT NOT NULL DEFAULT 0, payload TEXT NOT NULL);
         CREATE INDEX ready ON laneway_bench.job(queue, prio, run_at, id) WHERE state = 0;",
    )?)
}

fn timed(count: u64, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

fn median_ms(times: &[Duration]) -> f64 {
    let millis: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    crate::measurement::median(&millis)
}

fn insert_rows(raw: &RawConnection, numbers: std::ops::Range<u64>) -> anyhow::Result<()> {
    let sql = "INSERT INTO laneway_bench.job(id,queue,prio,run_at,payload)
               SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::text[])";
    let ids: Vec<i64> = numbers.clone().map(u64::cast_signed).collect();
    let queues = vec![0; ids.len()];
    let priorities = ids.iter().map(|id| id % 10).collect();
    let payloads = numbers.map(payload).collect();
    let columns = vec![
        RawParam::Ints(ids.clone()),
        RawParam::Ints(queues),
        RawParam::Ints(priorities),
        RawParam::Ints(ids),
        RawParam::Texts(payloads),
    ];
    raw.numbers(sql, columns)?;
    Ok(())
}

fn insert(raw: &RawConnection, jobs: u64) -> anyhow::Result<()> {
    let mut number = 0;
    while number < jobs {
        let end = (number + INSERTS_PER_TRANSACTION).min(jobs);
        insert_rows(raw, number..end)?;
        number = end;
    }
    Ok(())
}

fn single_inserts(raw: &RawConnection, from: u64, count: u64) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for number in from..from + count {
        let start = Instant::now();
        insert_rows(raw, number..number + 1)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn claim_and_finish(raw: &RawConnection) -> anyhow::Result<()> {
    let mut claimed = Vec::new();
    loop {
        raw.execute("BEGIN")?;
        raw.numbers(
            "UPDATE laneway_bench.job SET state=2 WHERE id = ANY($1)",
            vec![RawParam::Ints(claimed)],
        )?;
        claimed = raw.numbers(
            "UPDATE laneway_bench.job SET state=1, attempt=attempt+1 WHERE id IN (SELECT id FROM laneway_bench.job
             WHERE queue=0 AND state=0 ORDER BY prio,run_at,id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id",
            vec![RawParam::Int(CLAIMS_PER_TRANSACTION)],
        )?;
        raw.execute("COMMIT")?;
        if claimed.is_empty() {
            return Ok(());
        }
    }
}

/// Jobs per second, submitted in batches of 1,000 by four clients, then run by handlers that do nothing.
async fn submit_and_drain(url: &str, jobs: u64) -> anyhow::Result<(f64, f64)> {
    let bench = BenchScheduler::over_paused(Box::new(PostgresStore::open(url)?)).await?;
    let start = Instant::now();
    let part = jobs / 4;
    let (a, b, c, d) = tokio::join!(
        bench.submit(0..part, job),
        bench.submit(part..2 * part, job),
        bench.submit(2 * part..3 * part, job),
        bench.submit(3 * part..jobs, job)
    );
    a.and(b).and(c).and(d)?;
    let submitted = jobs as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    bench.pause(false).await?;
    bench.wait_until_waiting(0).await?;
    let drained = jobs as f64 / start.elapsed().as_secs_f64();
    bench.close().await?;
    Ok((submitted, drained))
}

/// From submit to the handler's start, one job at a time.
async fn idle_latency(url: &str, count: u64) -> anyhow::Result<Vec<Duration>> {
    let store = PostgresStore::open(url)?;
    let (scheduler, _running) = Scheduler::start(Box::new(store), Options::new(Settings::default()))?;
    let (entered, mut entries) = mpsc::channel::<Instant>(16);
    let handlers = Handlers::new().on("noop-0", move |_| {
        let (at, entered) = (Instant::now(), entered.clone());
        async move {
            entered.send(at).await.expect("the benchmark receives");
            Outcome::Succeeded(None)
        }
    });
    scheduler.run_here(Name::fixed("local"), handlers, u32::MAX).await?;
    let mut times = Vec::new();
    for number in 0..count {
        let submission = job(number * 4);
        let start = Instant::now();
        scheduler.submit(submission).await?.map_err(|rejection| anyhow::anyhow!("rejected: {rejection}"))?;
        times.push(entries.recv().await.context("the handler runs")?.duration_since(start));
        crate::latency::settle(&scheduler).await?;
    }
    scheduler.drain(Duration::ZERO).await?;
    Ok(times)
}

/// Transactions per second of a server without jobs.
async fn idle_transactions(url: &str, raw: &RawConnection) -> anyhow::Result<f64> {
    let bench = BenchScheduler::over_paused(Box::new(PostgresStore::open(url)?)).await?;
    // The server counts what a connection did about a second later.
    let settled = Duration::from_secs(3);
    tokio::time::sleep(settled).await;
    let before = transactions(raw)?;
    tokio::time::sleep(IDLE).await;
    let after = transactions(raw)?;
    bench.close().await?;
    // The look itself is one.
    Ok((after - before - 1).max(0) as f64 / IDLE.as_secs_f64())
}

fn transactions(raw: &RawConnection) -> anyhow::Result<i64> {
    let sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    raw.numbers(sql, vec![])?.first().copied().context("the database counts transactions")
}
