//! The dashboard beside many jobs: how long its pages take, how much they weigh, and what 200 open dashboards cost.
//!
//! Pages are read over one keep-alive connection, beside a file of the dashboard that needs no work. An open dashboard does what a
//! browser does: it reads `live`, and fetches the main part of its page after each notice. The readers share the machine with the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use laneway_core::{Failure, Name, Outcome, Session, Submission};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;
use crate::child::Server;
use crate::drain::job;
use crate::load::{Connection, requests_per_second};
use crate::measurement::{Goal, Measurement, Unit};
use crate::raw::payload;
use crate::scale::make_ended;

/// No job starts, and there is space for all of them.
const SETTINGS: [(&str, &str); 6] = [
    ("LANEWAY_LANES__MAIN__PAUSED", "true"),
    ("LANEWAY_LANES__MAIN__QUEUED_MAX", "10000000"),
    ("LANEWAY_LANES__MAIN__QUEUED_PER_AGENT_MAX", "10000000"),
    ("LANEWAY_LIMITS__QUEUED_MAX", "10000000"),
    ("LANEWAY_TENANTS_DEFAULT__QUEUED_MAX", "10000000"),
    ("LANEWAY_LANES__MAIN__RETENTION", "30d"),
];
const JOBS_PER_CALL: u64 = 1_000;
const AGENTS: u64 = 1_000;
const KINDS: [&str; 4] = ["noop-0", "noop-1", "noop-2", "noop-3"];
const TAGS: u64 = 200;
/// How often a page is read in one run.
const READS: u64 = 200;
/// How many dashboards are open.
const DASHBOARDS: u64 = 200;
/// Jobs that are submitted beside the dashboards. They take several seconds, since 200 pages are notified every five seconds.
const ENQUEUED: u64 = 200_000;
/// What a page loads besides itself.
const FILES: [&str; 3] = ["/ui/assets/style.css", "/ui/assets/app.js", "/ui/assets/icon.svg"];
/// The first pages of lists: their names and their filters.
const LISTS: [(&str, &str); 19] = [
    ("jobs", "jobs"),
    ("jobs: queued", "jobs?state=queued"),
    ("jobs: failed", "jobs?state=failed"),
    ("jobs: running (none)", "jobs?state=running"),
    ("jobs: kind", "jobs?kind=noop-3"),
    ("jobs: lane", "jobs?lane=main"),
    ("jobs: agent", "jobs?agent=agent-77"),
    ("jobs: session", "jobs?session=session-50"),
    ("jobs: tag", "jobs?tag=customer-17"),
    ("jobs: error code", "jobs?error_code=smtp"),
    ("jobs: failed of a kind", "jobs?state=failed&kind=noop-3"),
    ("jobs: words", "jobs?search=timeout"),
    ("jobs: one letter", "jobs?search=a"),
    ("jobs: one digit", "jobs?search=1"),
    (
        "jobs: everything at once",
        "jobs?state=failed&kind=noop-1&lane=main&agent=agent-77&tag=customer-17&search=timeout",
    ),
    ("sessions", "sessions"),
    ("agents", "agents"),
    ("runs", "runs"),
    ("audit", "audit"),
];

/// The benchmarks.
pub fn pages(bench: &Bench<'_>) -> anyhow::Result<Vec<Measurement>> {
    let (queued, ended) = (bench.sized(1_000_000), bench.sized(5_000_000));
    let dir = bench.fresh_dir("dashboard")?;
    make_ended(bench, &dir, ended, ended_job, outcome)?;
    let server = Server::laneway(&dir, &SETTINGS)?;
    bench.now(format!("dashboard: {queued} jobs over HTTP"));
    requests_per_second(server.address, "/v1/jobs/batch", 4, queued / JOBS_PER_CALL, queued_batch)?;
    let mut measurements = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = Connection::open(server.address).await?;
        measurements.extend(overview(bench, &mut connection).await?);
        for (name, path) in LISTS {
            measurements.push(list(bench, &mut connection, name, &format!("/ui/{path}")).await?);
        }
        anyhow::Ok(())
    })?;
    measurements.extend(beside_dashboards(bench, server.address)?);
    drop(server);
    std::fs::remove_dir_all(&dir).with_context(|| format!("failed to remove {}", dir.display()))?;
    Ok(measurements)
}

/// Times of one page: the median and the highest but one percent, in milliseconds.
async fn times(connection: &mut Connection, path: &str, reads: u64) -> anyhow::Result<(f64, f64)> {
    let mut took = Vec::new();
    for _ in 0..reads {
        let start = Instant::now();
        connection.get(path).await?;
        took.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    took.sort_by(f64::total_cmp);
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    Ok((at(50), at(99)))
}

/// The overview: its times and its weight.
async fn overview(bench: &Bench<'_>, connection: &mut Connection) -> anyhow::Result<Vec<Measurement>> {
    let reads = bench.sized(READS * 5).max(50);
    let (mut p50, mut p99, mut raw50, mut raw99) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        bench.now(format!("dashboard: overview, run {run}"));
        let bare = times(connection, FILES[1], reads).await?;
        let ours = times(connection, "/ui/", reads).await?;
        p50.push(ours.0);
        p99.push(ours.1);
        raw50.push(bare.0);
        raw99.push(bare.1);
    }
    let mut weight = connection.get("/ui/").await?.len();
    let page = weight as f64;
    for file in FILES {
        weight += connection.get(file).await?.len();
    }
    let (raw_is, weight) = ("a file of the dashboard, same connection", weight as f64);
    Ok(vec![
        Measurement::beside(
            "overview page, p50",
            Unit::Millis,
            p50,
            raw50,
            raw_is,
            Some(Goal::ValueAtMost(30.0)),
        ),
        Measurement::beside(
            "overview page, p99",
            Unit::Millis,
            p99,
            raw99,
            raw_is,
            Some(Goal::ValueAtMost(30.0)),
        ),
        Measurement::beside(
            "weight of the overview with its files",
            Unit::Bytes,
            vec![weight],
            vec![page],
            "the page alone",
            Some(Goal::ValueAtMost(150e3)),
        ),
    ])
}

/// The first page of a list.
async fn list(
    bench: &Bench<'_>,
    connection: &mut Connection,
    name: &str,
    path: &str,
) -> anyhow::Result<Measurement> {
    let reads = bench.sized(READS).max(50);
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        bench.now(format!("dashboard: {name}, run {run}"));
        raw.push(times(connection, FILES[1], reads).await?.1);
        ours.push(times(connection, path, reads).await?.1);
    }
    let raw_is = "a file of the dashboard, same connection";
    let goal = Some(Goal::ValueAtMost(50.0));
    Ok(Measurement::beside(format!("first page, p99, {name}"), Unit::Millis, ours, raw, raw_is, goal))
}

/// Submitting over HTTP with open dashboards, in turns with none.
fn beside_dashboards(bench: &Bench<'_>, address: SocketAddr) -> anyhow::Result<Vec<Measurement>> {
    let requests = bench.sized(ENQUEUED).max(ENQUEUED / 2);
    let rate = || requests_per_second(address, "/v1/jobs", 32, requests, queued_job);
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    rate()?;
    for run in 1..=bench.runs {
        bench.now(format!("dashboard: enqueue alone, run {run}"));
        raw.push(rate()?);
        bench.now(format!("dashboard: enqueue beside {DASHBOARDS} dashboards, run {run}"));
        let open = Dashboards::open(address)?;
        ours.push(rate()?);
        let fetched = open.close()?;
        ensure!(fetched > 0, "no dashboard was updated while jobs were submitted");
    }
    let raw_is = "the same jobs without dashboards";
    let goal = Some(Goal::AtLeast(0.95));
    Ok(vec![Measurement::beside("enqueue beside 200 dashboards", Unit::PerSecond, ours, raw, raw_is, goal)])
}

/// Open dashboards, in a thread of their own.
struct Dashboards {
    stop: CancellationToken,
    thread: std::thread::JoinHandle<anyhow::Result<u64>>,
}

impl Dashboards {
    /// Opens all of them, and waits until each has its stream.
    fn open(address: SocketAddr) -> anyhow::Result<Dashboards> {
        let stop = CancellationToken::new();
        let (token, (ready, is_ready)) = (stop.clone(), std::sync::mpsc::sync_channel(1));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async move {
                let (mut open, fetched) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
                for number in 0..DASHBOARDS {
                    let stream = live(address).await?;
                    let path = if number % 2 == 0 { "/ui/" } else { "/ui/jobs" };
                    let watch = watch(address, stream, path, Arc::clone(&fetched));
                    open.spawn(token.clone().run_until_cancelled_owned(watch));
                }
                // The receiver may be gone.
                let _ = ready.send(());
                token.cancelled().await;
                while let Some(ended) = open.join_next().await {
                    if let Some(failed) = ended? {
                        failed?;
                    }
                }
                Ok(fetched.load(Ordering::Relaxed))
            })
        });
        let _ = is_ready.recv();
        Ok(Dashboards { stop, thread })
    }

    /// Closes all of them. Returns how many parts of pages they have fetched.
    fn close(self) -> anyhow::Result<u64> {
        self.stop.cancel();
        self.thread.join().map_err(|_| anyhow::anyhow!("a reader has panicked"))?
    }
}

/// Opens the stream of notices.
async fn live(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET /ui/live HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    ensure!(&answer == b"HTTP/1.1 200", "a dashboard was not opened");
    Ok(stream)
}

/// Fetches the main part of a page after each notice, until the stream ends.
async fn watch(
    address: SocketAddr,
    mut stream: TcpStream,
    path: &str,
    fetched: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut connection = Connection::open(address).await?;
    let mut buffer = vec![0; 4 << 10];
    loop {
        let read = stream.read(&mut buffer).await?;
        ensure!(read > 0, "the server has closed a stream");
        if buffer[..read].windows(13).any(|part| part == b"event: change") {
            connection.get_with(path, "x-laneway-fragment: 1").await?;
            fetched.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A job of one of many agents, with a tag; one in ten has a session.
fn ended_job(number: u64) -> Submission {
    let mut submission = job(number);
    let name = |text: String| Name::new(&text).expect("letters and digits are a name");
    submission.spec.agent = name(format!("agent-{}", number.wrapping_mul(7_919) / 128 % AGENTS));
    submission.spec.tags = vec![name(format!("customer-{}", number.wrapping_mul(15_485_863) / 128 % TAGS))];
    submission.spec.session =
        number.is_multiple_of(10).then(|| Session::new(name(format!("session-{}", number / 10))));
    submission.spec.keys = Vec::new();
    submission
}

/// One in 25 jobs fails.
fn outcome(number: u64) -> Outcome {
    const FAILURES: [(&str, &str); 4] = [
        ("http_status", "the target answered 503 Service Unavailable"),
        ("timeout", "the attempt ran longer than its timeout of 30 s"),
        ("panicked", "index out of bounds: the len is 3"),
        ("smtp", "ConnectTimeout: mail.example.net:25 did not answer"),
    ];
    if !number.is_multiple_of(25) {
        return Outcome::Succeeded(None);
    }
    let (code, message) = FAILURES[(number / 25 % 4) as usize];
    Outcome::Failed(Failure::permanent(code, message))
}

/// A call with a thousand jobs.
fn queued_batch(call: u64) -> String {
    let jobs: Vec<String> = (call * JOBS_PER_CALL..(call + 1) * JOBS_PER_CALL).map(queued_job).collect();
    format!("{{\"jobs\":[{}]}}", jobs.join(","))
}

fn queued_job(number: u64) -> String {
    let kind = KINDS[(number % 4) as usize];
    let (agent, tag) =
        (number.wrapping_mul(7_919) / 128 % AGENTS, number.wrapping_mul(15_485_863) / 128 % TAGS);
    format!(
        "{{\"kind\":\"{kind}\",\"agent\":\"agent-{agent}\",\"tags\":[\"customer-{tag}\"],\"payload\":{}}}",
        payload(number)
    )
}
