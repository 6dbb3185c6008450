//! Floods: many connections, calls and large bodies of one client, and their cost for other clients.
//!
//! A real server process, clients that open streams and never read them, silent sockets, calls that wait, bodies that never
//! arrive or are mostly invalid, and tokens. `LANEWAY_FLOOD_SOCKETS` sets how many connections a flood opens,
//! `LANEWAY_FLOOD_JOBS` how many jobs a measurement runs, `LANEWAY_FLOOD_ITEMS` how many items an invalid batch has,
//! `LANEWAY_FLOOD_TOKENS` how many tokens a tenant tries to create.

mod bodies;
mod sockets;
mod streams;
mod tokens;
mod waiters;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How many connections a flood opens.
fn sockets() -> usize {
    count("LANEWAY_FLOOD_SOCKETS", 200)
}

/// A number that the environment may set.
fn count(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// The head of a call.
fn head(method: &str, path: &str, token: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n{more}\r\n")
}

/// A server process with an admin's token.
struct Server {
    child: Child,
    address: SocketAddr,
    http: reqwest::Client,
    admin: String,
}

impl Server {
    /// Starts a server on a data directory. `settings` are environment variables.
    async fn start(data_dir: &Path, settings: &[(&str, &str)]) -> Server {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut server = Server::start_by(data_dir, settings, "http", http).await;
        server.admin = server.token("*", "admin").await;
        server
    }

    /// The same without a token, with this client.
    async fn start_by(
        data_dir: &Path,
        settings: &[(&str, &str)],
        scheme: &str,
        http: reqwest::Client,
    ) -> Server {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(["serve", "--listen", &address.to_string(), "--data-dir"])
            .arg(data_dir)
            .env("LANEWAY_LOG__FILTER", "error")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Server { child, address, http, admin: String::new() };
        let start = Instant::now();
        while server.http.get(format!("{scheme}://{address}/readyz")).send().await.is_err() {
            assert!(server.child.try_wait().unwrap().is_none(), "the server ended at its start");
            assert!(start.elapsed() < Duration::from_secs(60), "the server was not ready within a minute");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server
    }

    /// Creates a token.
    async fn token(&self, tenant: &str, role: &str) -> String {
        let request = self.http.post(format!("http://{}/v1/tokens", self.address));
        let request = if self.admin.is_empty() { request } else { request.bearer_auth(&self.admin) };
        let answer: Value = request
            .json(&json!({"tenant": tenant, "role": role}))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        answer["secret"].as_str().unwrap_or_else(|| panic!("a token is answered: {answer}")).to_owned()
    }

    /// Submits jobs of the kind `echo` for the owner of `token`, a thousand a call, and waits until all have ended.
    async fn run_jobs(&self, token: &str, count: usize) {
        for _ in 0..count.div_ceil(1_000) {
            let jobs = vec![json!({"kind": "echo", "payload": {"text": "x"}}); count.min(1_000)];
            let request = self.http.post(format!("http://{}/v1/jobs/batch", self.address)).bearer_auth(token);
            let status = request.json(&json!({"jobs": jobs})).send().await.unwrap().status();
            assert!(status.is_success(), "{status}");
        }
        let start = Instant::now();
        loop {
            let request = self.http.get(format!("http://{}/v1/stats", self.address)).bearer_auth(&self.admin);
            let stats: Value = request.send().await.unwrap().json().await.unwrap();
            let states = ["scheduled", "queued", "assigned", "running"];
            if states.iter().all(|state| stats[*state] == 0) {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(120), "stuck: {stats}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The CPU time of the server so far.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // Linux reports 100 ticks per second, independent of the kernel's own rate.
        Duration::from_millis(ticks * 10)
    }

    /// A line of `/proc/<pid>/status`, in KiB.
    fn memory_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Calls the health check again and again, and records the time of each answer.
struct Probe {
    asking: JoinHandle<()>,
    took: Arc<Mutex<Vec<Duration>>>,
}

impl Probe {
    fn start(server: &Server) -> Probe {
        let took: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let (http, admin, noted) = (server.http.clone(), server.admin.clone(), Arc::clone(&took));
        let url = format!("http://{}/v1/stats", server.address);
        let asking = tokio::spawn(async move {
            loop {
                let asked = Instant::now();
                let status = http.get(&url).bearer_auth(&admin).send().await.unwrap().status();
                assert!(status.is_success(), "{status}");
                noted.lock().unwrap().push(asked.elapsed());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        Probe { asking, took }
    }

    /// Waits for this many more answers.
    async fn answers(&self, count: usize) {
        let until = self.took.lock().unwrap().len() + count;
        let start = Instant::now();
        while self.took.lock().unwrap().len() < until {
            assert!(!self.asking.is_finished(), "every probe is answered");
            assert!(start.elapsed() < Duration::from_secs(60), "the probes are not answered");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends the probe. Returns the time of the slowest answer.
    fn slowest(self) -> Duration {
        self.slowest_but(0)
    }

    /// Ends the probe. Returns the time of the slowest answer, without this many of the slowest in a thousand.
    fn slowest_but(self, per_mille: usize) -> Duration {
        assert!(!self.asking.is_finished(), "every probe is answered");
        self.asking.abort();
        let mut took = self.took.lock().unwrap().clone();
        took.sort_unstable();
        let left_out = took.len() * per_mille / 1_000;
        took.iter().rev().nth(left_out).copied().unwrap_or_default()
    }
}
