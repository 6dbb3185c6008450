//! Nodes as real processes, each with its own way to the database.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::proxy::{Proxy, Target};
use crate::postgres_server::TestDatabase;

/// How long an owner owns the jobs without a renewal, in these tests.
pub const TTL: Duration = Duration::from_millis(1_500);
/// The longest wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A node.
pub struct Node {
    child: Child,
    address: SocketAddr,
    dir: TempDir,
    store: String,
    pub proxy: Proxy,
}

/// Nodes on one database.
pub struct Cluster<'d> {
    database: &'d TestDatabase,
    pub nodes: Vec<Node>,
    http: reqwest::Client,
}

impl Node {
    async fn start(database: &TestDatabase) -> Node {
        let proxy = Proxy::start(Target::of(&database.url())).await;
        // A node keeps its port when it is started again: its workers know no other.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let store = format!("postgres://laneway@{}/{}?sslmode=disable", proxy.address, database.name());
        let dir = TempDir::new().unwrap();
        let child = spawn(address, &dir, &store);
        Node { child, address, dir, store, proxy }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{name}");
    }

    /// Waits until the process has ended. True: in order.
    pub fn ended(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(address: SocketAddr, dir: &TempDir, store: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_laneway"))
        .args(["serve", "--listen", &address.to_string(), "--store", store, "--data-dir"])
        .arg(dir.path())
        .args(["--set", "lanes.pulled.dispatch=claim", "--set", "lanes.pulled.running_max=16"])
        .env("LANEWAY_LOG__FILTER", std::env::var("LANEWAY_CLUSTER_LOG").unwrap_or("off".to_owned()))
        .env("LANEWAY_CLUSTER__TTL", format!("{}ms", TTL.as_millis()))
        .env("LANEWAY_LANES__MAIN__RUNNING_MAX", "16")
        .env("LANEWAY_RETRY__LOSSES_MAX", "1000")
        .env("LANEWAY_RETRY__BACKOFF", r#"{ base = "5ms", factor = 2, max = "50ms", jitter = "none" }"#)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

impl Cluster<'_> {
    pub async fn start(database: &TestDatabase, count: usize) -> Cluster<'_> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
        let mut cluster = Cluster { database, nodes: Vec::new(), http };
        for _ in 0..count {
            cluster.nodes.push(Node::start(database).await);
        }
        for node in 0..count {
            cluster.serves(node, 0).await;
        }
        cluster
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// Starts a node that has ended.
    pub async fn restart(&mut self, node: usize) {
        let Node { address, dir, store, .. } = &self.nodes[node];
        self.nodes[node].child = spawn(*address, dir, store);
        self.serves(node, 0).await;
    }

    /// Which node owns the jobs, and since which epoch.
    pub async fn owner(&self) -> (usize, u64) {
        let sql = "SELECT node.url, tenure.epoch FROM laneway.tenure JOIN laneway.node ON node.id = tenure.node \
                   WHERE NOT free AND expires_at > clock_timestamp()";
        let begun = Instant::now();
        loop {
            let row = self.database.psql(sql);
            let found = row.split_once('|').and_then(|(url, epoch)| {
                Some((self.nodes.iter().position(|node| node.url() == url)?, epoch.parse().ok()?))
            });
            if let Some(found) = found {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "no node owns the jobs: {row:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a node answers a submit that a later owner has committed.
    pub async fn serves(&self, node: usize, after_epoch: u64) {
        let (begun, url) = (Instant::now(), self.nodes[node].url());
        loop {
            let job = json!({"kind": "echo"});
            let made = self.http.post(format!("{url}/v1/jobs")).json(&job).send().await;
            let made = made.is_ok_and(|made| made.status().as_u16() == 201);
            if made && (after_epoch == 0 || self.owner().await.1 > after_epoch) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{url} serves nothing");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a job has ended, as one node sees it.
    pub async fn ended(&self, node: usize, job: &str) {
        let url = format!("{}/v1/jobs/{job}", self.nodes[node].url());
        let begun = Instant::now();
        loop {
            let shown = self.http.get(&url).send().await.unwrap().json::<Value>().await.unwrap();
            if shown["state"] == "succeeded" {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{shown}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until no job waits or runs.
    pub async fn wait_until_done(&self) {
        let begun = Instant::now();
        loop {
            let stats = self.http.get(format!("{}/v1/stats", self.nodes[0].url())).send().await.unwrap();
            let stats: Value = stats.json().await.unwrap_or_default();
            let left = ["scheduled", "queued", "assigned", "running"].map(|state| stats[state].as_u64());
            if left.iter().all(|count| *count == Some(0)) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "stuck: {stats}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits until something is so.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
