//! Jobs that run beside many event streams: the cost of readers for the throughput of jobs.
//!
//! Jobs are submitted a thousand per call and run by a handler that does nothing: first alone, then beside
//! streams of another tenant, which are idle, then beside streams of the same tenant, each of which gets every
//! event. The readers share the machine with the server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::child::Server;
use crate::drain::runtime;
use crate::load::Connection;
use crate::measurement::{Goal, Measurement, Unit};

/// How many streams are open.
const STREAMS: u64 = 1_000;
const JOBS_PER_CALL: u64 = 1_000;
/// How long a reader waits before it reconnects.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);
const SETTINGS: [(&str, &str); 1] = [("LANEWAY_LANES__MAIN__RUNNING_MAX", "1024")];

/// The benchmarks.
pub fn beside_readers(bench: &Bench<'_>) -> anyhow::Result<Vec<Measurement>> {
    let jobs = bench.sized(100_000);
    let (mut alone, mut idle, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        let server = Server::laneway(&bench.fresh_dir("streams")?, &SETTINGS)?;
        runtime()?.block_on(async {
            bench.now(format!("streams, run {run}: jobs alone"));
            jobs_per_second(server.address, jobs / 10).await?;
            alone.push(jobs_per_second(server.address, jobs).await?);
            bench.now(format!("streams, run {run}: beside {STREAMS} streams of another tenant"));
            let readers = open(server.address, "other").await?;
            idle.push(jobs_per_second(server.address, jobs).await?);
            drop(readers);
            bench.now(format!("streams, run {run}: beside {STREAMS} streams of the same tenant"));
            let _readers = open(server.address, "default").await?;
            busy.push(jobs_per_second(server.address, jobs).await?);
            anyhow::Ok(())
        })?;
    }
    let raw_is = "the same jobs without streams";
    let goal = Some(Goal::AtLeast(0.95));
    Ok(vec![
        Measurement::beside(
            "jobs beside 1,000 idle streams",
            Unit::PerSecond,
            idle,
            alone.clone(),
            raw_is,
            goal,
        ),
        Measurement::beside(
            "jobs beside 1,000 streams that get all",
            Unit::PerSecond,
            busy,
            alone,
            raw_is,
            None,
        ),
    ])
}

/// Jobs per second, from the first submit to the last end.
async fn jobs_per_second(address: SocketAddr, jobs: u64) -> anyhow::Result<f64> {
    let job = json!({"kind": "echo", "payload": {"n": 1}});
    let body = json!({"jobs": vec![job; JOBS_PER_CALL as usize]}).to_string();
    let mut connection = Connection::open(address).await?;
    let start = Instant::now();
    for _ in 0..jobs.div_ceil(JOBS_PER_CALL) {
        connection.post("/v1/jobs/batch", body.as_bytes()).await?;
    }
    loop {
        let stats: Value = serde_json::from_slice(connection.get("/v1/stats").await?)?;
        let live =
            ["scheduled", "queued", "assigned", "running"].map(|state| stats[state].as_u64().unwrap_or(0));
        if live.iter().sum::<u64>() == 0 {
            return Ok(jobs as f64 / start.elapsed().as_secs_f64());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Opens streams for a tenant and reads them until the set is dropped.
async fn open(address: SocketAddr, tenant: &str) -> anyhow::Result<JoinSet<()>> {
    let head = format!("GET /v1/events HTTP/1.1\r\nhost: {address}\r\nlaneway-tenant: {tenant}\r\n\r\n");
    let mut readers = JoinSet::new();
    for _ in 0..STREAMS {
        let (head, mut stream) = (head.clone(), connect(address, &head).await?);
        readers.spawn(async move {
            let mut buffer = vec![0; 16 << 10];
            loop {
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
                // It fell behind and was disconnected: it reconnects, like a browser.
                tokio::time::sleep(COME_BACK_AFTER).await;
                let Ok(again) = connect(address, &head).await else { return };
                stream = again;
            }
        });
    }
    Ok(readers)
}

async fn connect(address: SocketAddr, head: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    ensure!(&answer == b"HTTP/1.1 200", "a stream was not opened");
    Ok(stream)
}
