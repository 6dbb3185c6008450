//! Kills the server again and again under load: every acknowledged job is stored, and the event log obeys the rules.
//!
//! A real server process on a real disk, clients that submit, batch and cancel, and `kill -9` at moments drawn from a
//! seed. `LANEWAY_KILL_CYCLES` sets how often (50 by default), `LANEWAY_KILL_SEED` replays the moments.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use laneway_core::{JobId, LaneSettings, Name, Settings};
use laneway_sim::history;
use laneway_store::{SqliteStore, Store};
use serde_json::{Value, json};

const CLIENTS: u64 = 4;
const LANE_MAX: u32 = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let cycles: u64 = number("LANEWAY_KILL_CYCLES").unwrap_or(50);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LANEWAY_KILL_SEED").unwrap_or(clock.as_nanos() as u64);
    println!("{cycles} cycles, LANEWAY_KILL_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let numbers = Arc::new(AtomicU64::new(0));
    let mut random = Random(seed);
    let mut acked = BTreeSet::new();
    for _ in 0..cycles {
        let mut server = Server::start(dir.path(), LANE_MAX).await;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| tokio::spawn(client(server.address, Random(random.next()), Arc::clone(&numbers))))
            .collect();
        // This is not a wait for an event: the seed draws the moment of the kill.
        tokio::time::sleep(Duration::from_millis(20 + random.next() % 500)).await;
        server.kill();
        for client in clients {
            acked.extend(client.await.unwrap());
        }
    }
    let mut server = Server::start(dir.path(), LANE_MAX).await;
    server.wait_until_done().await;
    server.kill();

    let store = SqliteStore::open(dir.path(), Default::default()).unwrap();
    let found =
        history::check(store.reader().as_ref(), &settings(LANE_MAX), &acked).unwrap_or_else(|broken| {
            panic!("LANEWAY_KILL_SEED={seed}: {broken}");
        });
    println!("{} acknowledged, {found:?}", acked.len());
    assert!(acked.len() as u64 > cycles, "the clients were heard");
    assert_eq!(found.ended, found.jobs, "every job has ended: nothing is stuck");
}

/// The settings of the server for the checker.
pub fn settings(running_max: u32) -> Settings {
    let mut settings = Settings::default();
    let lane = LaneSettings { running_max, ..LaneSettings::default() };
    settings.lanes.insert(Name::fixed("main"), lane);
    settings
}

/// Submits jobs until the server is gone. Returns the ids of the acknowledged jobs.
async fn client(address: SocketAddr, mut random: Random, numbers: Arc<AtomicU64>) -> Vec<JobId> {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut acked = Vec::new();
    loop {
        let id_of = |job: &Value| JobId::parse(job["id"].as_str().expect("a job has an id")).unwrap();
        if random.next().is_multiple_of(8) {
            let jobs: Vec<Value> = (0..10).map(|_| job(&mut random, &numbers)).collect();
            let body = json!({"jobs": jobs, "atomic": random.next().is_multiple_of(2)});
            let Ok(sent) = http.post(format!("http://{address}/v1/jobs/batch")).json(&body).send().await
            else {
                break;
            };
            let Ok(answer) = sent.json::<Value>().await else { break };
            let items =
                answer["items"].as_array().unwrap_or_else(|| panic!("a batch answers with items: {answer}"));
            acked.extend(items.iter().map(|item| id_of(&item["job"])));
            continue;
        }
        let body = job(&mut random, &numbers);
        let Ok(sent) = http.post(format!("http://{address}/v1/jobs")).json(&body).send().await else { break };
        let status = sent.status();
        let Ok(answer) = sent.json::<Value>().await else { break };
        assert!(status.is_success(), "{status}: {answer}");
        let id = id_of(&answer);
        acked.push(id);
        if random.next().is_multiple_of(10) {
            let canceled = http.post(format!("http://{address}/v1/jobs/{id}/cancel")).send().await;
            let Ok(canceled) = canceled else { break };
            assert!(matches!(canceled.status().as_u16(), 200 | 202 | 409), "{}", canceled.status());
        }
    }
    acked
}

fn job(random: &mut Random, numbers: &AtomicU64) -> Value {
    let number = numbers.fetch_add(1, Ordering::Relaxed);
    let (kind, payload) = match random.next() % 4 {
        0 => ("sleep", json!({"ms": random.next() % 30})),
        1 => ("fail", json!({"times": random.next() % 3})),
        _ => ("echo", json!({"number": number})),
    };
    let mut job = json!({"kind": kind, "payload": payload, "agent": format!("agent-{}", random.next() % 5)});
    if random.next().is_multiple_of(3) {
        job["session"] = json!(format!("session-{}", random.next() % 4));
    }
    if random.next().is_multiple_of(4) {
        job["keys"] = json!({"profile": format!("p-{}", random.next() % 3)});
    }
    if random.next().is_multiple_of(3) {
        job["idempotency_key"] = json!(format!("key-{number}"));
    }
    job
}

/// A server process on a data directory.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    http: reqwest::Client,
}

impl Server {
    /// Starts a server whose lane runs this many jobs at once.
    pub async fn start(data_dir: &Path, running_max: u32) -> Server {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(["serve", "--listen", &address.to_string(), "--data-dir"])
            .arg(data_dir)
            .env("LANEWAY_LOG__FILTER", "error")
            .env("LANEWAY_LANES__MAIN__RUNNING_MAX", running_max.to_string())
            .env("LANEWAY_RETRY__LOSSES_MAX", "1000")
            .env("LANEWAY_RETRY__BACKOFF", r#"{ base = "5ms", factor = 2, max = "50ms", jitter = "none" }"#)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut server = Server { child, address, http };
        let start = Instant::now();
        while server.http.get(format!("http://{address}/readyz")).send().await.is_err() {
            assert!(server.child.try_wait().unwrap().is_none(), "the server ended at its start");
            assert!(start.elapsed() < Duration::from_secs(60), "the server was not ready within a minute");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server
    }

    /// Waits until no job waits or runs.
    pub async fn wait_until_done(&self) {
        let start = Instant::now();
        loop {
            let stats = self.http.get(format!("http://{}/v1/stats", self.address)).send().await.unwrap();
            let stats: Value = stats.json().await.unwrap();
            let left: u64 = ["scheduled", "queued", "assigned", "running"]
                .iter()
                .map(|state| stats[*state].as_u64().unwrap())
                .sum();
            if left == 0 {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(120), "stuck: {stats}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A small seeded generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
