//! Workers behind a network that cuts, delays, doubles, loses and reorders frames.
//!
//! A real server process, the real SDK, and a proxy between them that draws its faults from a seed. In spite of the faults,
//! no task runs twice at the same time, no attempt runs twice, every job succeeds with its own result, and the
//! event log of the server obeys the rules of the simulator's checker. `LANEWAY_FAULT_CONNECTIONS` sets how many
//! connections there are at least (200 by default, 1,000 in `scripts/test`), `LANEWAY_FAULT_SEED` replays the draws as far
//! as timing allows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use laneway_client::worker::{Outcome, Task, Worker};
use laneway_core::JobId;
use laneway_sim::history;
use laneway_store::{SqliteStore, Store};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;

use crate::kill::{Random, Server, number, settings};

/// Workers behind the proxy: many, because a worker waits half a second before it connects again.
const WORKERS: u64 = 48;
/// How many jobs the lane runs at once: enough that other jobs run while those of cut connections wait.
const RUNNING_MAX: u32 = 96;
/// How many jobs are submitted at once.
const BATCH: u64 = 20;
/// How many results are checked at once.
const READERS: usize = 16;

/// The calls of the handlers.
#[derive(Default)]
struct Seen {
    running: BTreeSet<String>,
    runs: BTreeMap<(String, u64), usize>,
    offences: Vec<String>,
}

impl Seen {
    fn begin(&mut self, task: &Task) {
        if !self.running.insert(task.id().to_owned()) {
            self.offences.push(format!("{} runs twice at the same time", task.id()));
        }
        let runs = self.runs.entry((task.id().to_owned(), task.seq())).or_default();
        *runs += 1;
        if *runs > 1 {
            self.offences.push(format!("{} {} ran {runs} times", task.id(), task.seq()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w1_w2_a_bad_network_loses_nothing_and_runs_nothing_twice() {
    let wanted = number("LANEWAY_FAULT_CONNECTIONS").unwrap_or(200);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LANEWAY_FAULT_SEED").unwrap_or(clock.as_nanos() as u64);
    println!("{wanted} connections, LANEWAY_FAULT_SEED={seed}");
    let began = std::time::Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), RUNNING_MAX).await;
    let proxy = Proxy::start(server.address, seed).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let workers: Vec<_> = (0..WORKERS).map(|worker| start_worker(&proxy, worker, seed, &seen)).collect();
    let acked = submit_until(server.address, &proxy, wanted).await;
    let faults = began.elapsed().as_secs();
    // The network works again, and the remaining jobs end.
    proxy.calm.store(true, Ordering::SeqCst);
    server.wait_until_done().await;
    let connections = proxy.connections.load(Ordering::SeqCst);
    check_results(server.address, &acked).await;
    server.kill();
    workers.iter().for_each(JoinHandle::abort);

    let seen = seen.lock().unwrap();
    assert_eq!(seen.offences, Vec::<String>::new(), "LANEWAY_FAULT_SEED={seed}");
    let ids: BTreeSet<JobId> = acked.keys().copied().collect();
    let store = SqliteStore::open(dir.path(), Default::default()).unwrap();
    let found =
        history::check(store.reader().as_ref(), &settings(RUNNING_MAX), &ids).unwrap_or_else(|broken| {
            panic!("LANEWAY_FAULT_SEED={seed}: {broken}");
        });
    let (runs, took) = (seen.runs.len(), began.elapsed().as_secs());
    let jobs = acked.len();
    println!(
        "{connections} connections, {jobs} jobs, {runs} runs, {faults} s of faults, {took} s in all, {found:?}"
    );
    assert!(connections >= wanted);
    assert_eq!(found.ended, found.jobs, "every job has ended: nothing is stuck");
}

fn start_worker(
    proxy: &Proxy,
    worker: u64,
    seed: u64,
    seen: &Arc<Mutex<Seen>>,
) -> JoinHandle<Result<(), laneway_client::worker::WorkerError>> {
    let seen = Arc::clone(seen);
    let url = format!("ws://{}/v1/workers/connect", proxy.address);
    let worker = Worker::builder(&url, &format!("w{worker}"))
        .max_parallel(4)
        .seed(seed ^ worker)
        .heartbeat(Duration::from_secs(1), Duration::ZERO)
        .handler("work", move |task: Task| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().unwrap().begin(&task);
                let parameters: Value = task.read()?;
                task.progress(0.5, "half");
                // Long enough that connections break while it runs.
                tokio::time::sleep(Duration::from_millis(parameters["ms"].as_u64().unwrap_or(0))).await;
                seen.lock().unwrap().running.remove(task.id());
                Outcome::of(&json!({"number": parameters["number"]}))
            }
        })
        .build()
        .unwrap();
    tokio::spawn(worker.run())
}

/// Submits jobs until the proxy has seen enough connections. Returns every job with its number.
async fn submit_until(address: SocketAddr, proxy: &Proxy, wanted: u64) -> BTreeMap<JobId, u64> {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let (mut acked, mut next) = (BTreeMap::new(), 0u64);
    while proxy.connections.load(Ordering::SeqCst) < wanted {
        let jobs: Vec<Value> = (next..next + BATCH)
            .map(|number| {
                let mut job = json!({"kind": "work", "payload": {"number": number, "ms": number % 7 * 20},
                    "agent": format!("agent-{}", number % 5)});
                if number.is_multiple_of(3) {
                    job["keys"] = json!({"concurrency_key": format!("k-{}", number % 4)});
                }
                job
            })
            .collect();
        let sent = http.post(format!("http://{address}/v1/jobs/batch")).json(&json!({"jobs": jobs})).send();
        let answer: Value = sent.await.unwrap().json().await.unwrap();
        for (item, number) in answer["items"].as_array().unwrap().iter().zip(next..) {
            acked.insert(JobId::parse(item["job"]["id"].as_str().unwrap()).unwrap(), number);
        }
        next += BATCH;
        // Enough work for the workers, and no long backlog at the end of the test.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    acked
}

async fn check_results(address: SocketAddr, acked: &BTreeMap<JobId, u64>) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let reads = acked.iter().map(|(id, number)| {
        let shown = http.get(format!("http://{address}/v1/jobs/{id}")).send();
        async move {
            let job: Value = shown.await.unwrap().json().await.unwrap();
            assert_eq!(job["state"], "succeeded", "{job}");
            assert_eq!(job["result"], json!({"number": number}), "{job}");
        }
    });
    futures_util::stream::iter(reads).buffer_unordered(READERS).collect::<()>().await;
}

/// The proxy between workers and server.
struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
    /// True: frames pass unchanged.
    calm: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(server: SocketAddr, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, calm) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, is_calm) = (Arc::clone(&connections), Arc::clone(&calm));
        tokio::spawn(async move {
            let mut random = Random(seed);
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(relay(stream, server, Random(random.next()), Arc::clone(&is_calm)));
            }
        });
        Proxy { address, connections, calm }
    }
}

/// Forwards one connection until the proxy or one of the sides cuts it.
async fn relay(stream: TcpStream, server: SocketAddr, mut random: Random, calm: Arc<AtomicBool>) {
    let Ok(worker) = tokio_tungstenite::accept_async(stream).await else { return };
    let Ok(stream) = TcpStream::connect(server).await else { return };
    let url = format!("ws://{server}/v1/workers/connect");
    let Ok((server, _)) = tokio_tungstenite::client_async(url, stream).await else { return };
    let ((mut to_worker, mut from_worker), (mut to_server, mut from_server)) =
        (worker.split(), server.split());
    let mut left = 4 + random.next() % 30;
    let (mut held_up, mut held_down) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            message = from_worker.next() => {
                let Some(Ok(message)) = message else { return };
                for message in faults(message, &mut held_up, &mut random, &calm) {
                    if to_server.send(message).await.is_err() {
                        return;
                    }
                }
            }
            message = from_server.next() => {
                let Some(Ok(message)) = message else { return };
                for message in faults(message, &mut held_down, &mut random, &calm) {
                    if to_worker.send(message).await.is_err() {
                        return;
                    }
                }
            }
        }
        left = left.saturating_sub(1);
        if left == 0 && !calm.load(Ordering::SeqCst) {
            // The connection is cut without a close frame.
            return;
        }
    }
}

/// The frames to forward: none, the frame once or twice, and an earlier frame that was delayed.
fn faults(message: Message, held: &mut Vec<Message>, random: &mut Random, calm: &AtomicBool) -> Vec<Message> {
    let mut out = Vec::new();
    match random.next() % 100 {
        _ if calm.load(Ordering::SeqCst) || !message.is_text() => out.push(message),
        0..5 => {}
        5..12 => {
            held.push(message);
            return out;
        }
        12..20 => out.extend([message.clone(), message]),
        _ => out.push(message),
    }
    // A delayed frame follows the frames that came after it.
    out.append(held);
    out
}
