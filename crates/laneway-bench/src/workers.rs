//! Jobs run by workers over WebSockets: the speed of one worker, and the cost of two thousand.
//!
//! The server is a separate process. One worker is the SDK with handlers that do nothing, beside a bare WebSocket
//! echo with as many messages in flight; a job is four frames (dispatch, acknowledgement, result,
//! acknowledgement) and a commit where an echo is two frames. The two thousand workers write frames to plain
//! sockets, because the server is what is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use laneway_client::worker::{Outcome, Worker};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::bench::Bench;
use crate::child::Server;
use crate::drain::runtime;
use crate::load::{Connection, requests_per_second};
use crate::measurement::{Goal, Measurement, Unit};

/// Tasks of the one worker at once, and messages of the echo in flight.
const PARALLEL: u32 = 64;
/// Connected workers.
const FLEET: u64 = 2_000;
/// How often the fleet is measured at most: each time takes half a minute.
const FLEET_RUNS: u32 = 3;
/// Jobs per second for the fleet, and how many are submitted together.
const RATE: u64 = 1_000;
const TOGETHER: u64 = 20;
const JOBS_PER_CALL: u64 = 1_000;

/// Limits for all jobs; the workers limit what runs.
const SETTINGS: [(&str, &str); 4] = [
    ("LANEWAY_LANES__MAIN__RUNNING_MAX", "100000"),
    ("LANEWAY_LANES__MAIN__RUNNING_PER_AGENT_MAX", "100000"),
    ("LANEWAY_LIMITS__RUNNING_MAX", "100000"),
    ("LANEWAY_TENANTS_DEFAULT__RUNNING_MAX", "100000"),
];

/// All benchmarks of workers.
pub fn over_sockets(bench: &Bench<'_>) -> anyhow::Result<Vec<Measurement>> {
    let jobs = bench.sized(50_000);
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        bench.now(format!("workers, run {run}: bare WebSocket echo"));
        let server = Server::echo()?;
        raw.push(runtime()?.block_on(echo_rate(server.address, jobs))?);
        bench.now(format!("workers, run {run}: one worker, {PARALLEL} tasks at once"));
        let dir = bench.fresh_dir("workers")?;
        let server = Server::laneway(&dir, &SETTINGS)?;
        ours.push(one_worker(&server, jobs)?);
    }
    let (mut memory, mut latency) = (Vec::new(), Vec::new());
    for run in 1..=bench.runs.min(FLEET_RUNS) {
        bench.now(format!("workers, run {run}: {FLEET} of them, connecting"));
        let dir = bench.fresh_dir("workers-fleet")?;
        let server = Server::laneway(&dir, &SETTINGS)?;
        let (of_each, p99) = runtime()?.block_on(fleet(bench, &server))?;
        memory.push(of_each);
        latency.push(p99);
    }
    let raw_is = "a bare WebSocket echo of a frame of the same size, as many under way";
    Ok(vec![
        Measurement::absolute("one worker, jobs", Unit::PerSecond, ours.clone(), Goal::AtLeast(10_000.0)),
        Measurement::beside("one worker, jobs beside the echo", Unit::PerSecond, ours, raw, raw_is, None),
        Measurement::absolute("memory of a connected worker", Unit::Bytes, memory, Goal::AtMost(100e3)),
        Measurement::absolute("dispatch to 2,000 workers, p99", Unit::Millis, latency, Goal::AtMost(100.0)),
    ])
}

/// Messages per second through an echo with [`PARALLEL`] in flight.
async fn echo_rate(address: SocketAddr, count: u64) -> anyhow::Result<f64> {
    let (mut send, mut receive) = connect(address, "/echo").await?.split();
    let frame = json!({"type": "result", "id": "result-00000000-0", "ts": "2030-01-01T00:00:00Z",
        "tenant": "default", "sender": {"role": "worker", "id": "bench"}, "payload": {"x": "y".repeat(250)}})
    .to_string();
    let start = Instant::now();
    for _ in 0..PARALLEL {
        send.feed(Message::text(frame.clone())).await?;
    }
    send.flush().await?;
    for received in 0..count {
        receive.next().await.context("the echo ended")??;
        if received + u64::from(PARALLEL) < count {
            send.send(Message::text(frame.clone())).await?;
        }
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// Jobs per second from the backlog through one worker to their durable end.
fn one_worker(server: &Server, jobs: u64) -> anyhow::Result<f64> {
    let body = |_| {
        json!({"jobs": vec![json!({"kind": "noop", "payload": {"n": 1}}); JOBS_PER_CALL as usize]})
            .to_string()
    };
    requests_per_second(server.address, "/v1/jobs/batch", 2, jobs / JOBS_PER_CALL, body)?;
    runtime()?.block_on(async {
        let url = format!("ws://{}/v1/workers/connect", server.address);
        let worker = Worker::builder(&url, "bench")
            .max_parallel(PARALLEL)
            .handler("noop", |_| async { Outcome::of(&json!({})) })
            .build()?;
        let start = Instant::now();
        let running = tokio::spawn(worker.run());
        let mut connection = Connection::open(server.address).await?;
        loop {
            let stats: Value = serde_json::from_slice(connection.get("/v1/stats").await?)?;
            let live = ["scheduled", "queued", "assigned", "running"]
                .map(|state| stats[state].as_u64().unwrap_or(0));
            if live.iter().sum::<u64>() == 0 {
                break;
            }
            ensure!(!running.is_finished(), "the worker ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        running.abort();
        Ok(jobs as f64 / start.elapsed().as_secs_f64())
    })
}

type Socket = WebSocketStream<TcpStream>;

async fn connect(address: SocketAddr, path: &str) -> anyhow::Result<Socket> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(tokio_tungstenite::client_async(format!("ws://{address}{path}"), stream).await?.0)
}

/// Connects many workers and submits [`RATE`] jobs per second. Returns the bytes per worker, and the 99th
/// percentile of the time from submit to dispatch in milliseconds.
async fn fleet(bench: &Bench<'_>, server: &Server) -> anyhow::Result<(f64, f64)> {
    let workers = bench.sized(FLEET);
    let before = server.resident_anonymous()?;
    let began = Instant::now();
    let (sender, mut received) = mpsc::channel(65_536);
    let sent = Arc::new(AtomicU64::new(0));
    for number in 0..workers {
        let mut socket = connect(server.address, "/v1/workers/connect").await?;
        greet(&mut socket, number).await?;
        let (send, receive) = socket.split();
        tokio::spawn(work(send, receive, number, began, sender.clone()));
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let memory = (server.resident_anonymous()? - before) / workers as f64;
    bench.now(format!("workers: {workers} of them, {RATE} jobs a second"));
    let seconds = if bench.quick { 3 } else { 15 };
    let mut connection = Connection::open(server.address).await?;
    let mut every = tokio::time::interval(Duration::from_millis(1_000 * TOGETHER / RATE));
    for _ in 0..seconds * RATE / TOGETHER {
        every.tick().await;
        let at = began.elapsed().as_micros() as u64;
        let job = json!({"kind": "noop", "payload": {"at": at}});
        let body = json!({"jobs": vec![job; TOGETHER as usize]}).to_string();
        connection.post("/v1/jobs/batch", body.as_bytes()).await?;
        sent.fetch_add(TOGETHER, Ordering::Relaxed);
    }
    let expected = sent.load(Ordering::Relaxed);
    let mut latencies = Vec::with_capacity(expected as usize);
    while (latencies.len() as u64) < expected {
        let next = tokio::time::timeout(Duration::from_secs(10), received.recv()).await;
        latencies.push(next.context("a job was not dispatched")?.context("every worker ended")?);
    }
    latencies.sort_unstable();
    let p99: u64 = latencies[latencies.len() * 99 / 100];
    Ok((memory, p99 as f64 / 1_000.0))
}

fn frame(kind: &str, id: &str, worker: u64, task: Option<(&Value, &Value)>, payload: Value) -> Message {
    let (corr, seq) = task.unzip();
    Message::text(
        json!({"type": kind, "id": id, "ts": "2030-01-01T00:00:00Z", "tenant": "default", "corr": corr, "seq": seq,
            "sender": {"role": "worker", "id": format!("w{worker}")}, "ack": {"request": true}, "payload": payload})
        .to_string(),
    )
}

async fn greet(socket: &mut Socket, worker: u64) -> anyhow::Result<()> {
    let auth = json!({"protocol": 1, "auth": {"mode": "token"},
        "worker": {"id": format!("w{worker}"), "version": "1", "hostname": "bench"}});
    socket.send(frame("handshake", "h", worker, None, auth)).await?;
    let offer = json!({"capabilities": {"concurrency": {"max_parallel": 4}, "runtimes": ["bench"],
        "features": ["kind:noop"]}, "packages": []});
    socket.send(frame("register", "r", worker, None, offer)).await?;
    for _ in 0..2 {
        let answer = socket.next().await.context("the server closed")??;
        ensure!(answer.to_text()?.contains("\"ok\":true"), "the server answered {answer}");
    }
    Ok(())
}

/// One worker: sends heartbeats every five seconds, and reports success for every task.
async fn work(
    mut send: SplitSink<Socket, Message>,
    mut receive: SplitStream<Socket>,
    worker: u64,
    began: Instant,
    sender: mpsc::Sender<u64>,
) -> anyhow::Result<()> {
    let first = Duration::from_millis(worker * 5_000 / FLEET);
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + first, Duration::from_secs(5));
    let mut number = 0u64;
    loop {
        number += 1;
        let id = format!("f{number}");
        let message = tokio::select! {
            _ = beat.tick() => {
                let vitals = json!({"healthy": true, "metrics": {"inflight": 0}});
                send.send(frame("heartbeat", &id, worker, None, vitals)).await?;
                continue;
            }
            message = receive.next() => message.context("the server closed")??,
        };
        let Ok(text) = message.to_text() else { continue };
        if !text.contains("cmd.dispatch") {
            continue;
        }
        let received: Value = serde_json::from_str(text)?;
        let at = received["payload"]["parameters"]["at"].as_u64().context("the job has its submit time")?;
        sender.send(began.elapsed().as_micros() as u64 - at).await?;
        let task = Some((&received["corr"], &received["seq"]));
        send.feed(frame("ack", &id, worker, task, json!({"ok": true, "for": received["id"]}))).await?;
        let result = json!({"run_id": received["payload"]["run_id"], "task_id": received["corr"], "status": "SUCCEEDED",
            "result": {}});
        send.send(frame("result", &format!("{id}r"), worker, task, result)).await?;
    }
}
