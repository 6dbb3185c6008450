//! A full disk: running jobs can end and are stored, no job starts, a restart works, and with free space jobs start again.
//!
//! Most tests fill a real file system of their own, which needs the right to mount; without it they report that and pass.
//! The last one needs no rights. `LANEWAY_DISK_CYCLES` sets how often a server is started on a full disk (3 by default).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, laneway, text};
use crate::kill::number;

/// A small file system, unmounted at the end.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    fn mount(mib: u32) -> Option<SmallDisk> {
        let dir = TempDir::new().unwrap();
        let size = format!("size={mib}m");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        let disk = done.ok().filter(|output| output.status.success()).map(|_| SmallDisk { dir });
        if disk.is_none() {
            println!("skipped: mounting is not allowed here");
        }
        disk
    }

    fn filler(&self) -> PathBuf {
        self.dir.path().join("filler")
    }

    /// Fills the file system.
    fn fill(&self) {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(self.filler()).unwrap();
        for size in [1 << 20, 1 << 12, 1] {
            let chunk = vec![0; size];
            while file.write_all(&chunk).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

struct Api {
    http: reqwest::Client,
    url: String,
}

impl Api {
    fn of(server: &Server) -> Api {
        Api { http: reqwest::Client::builder().no_proxy().build().unwrap(), url: server.url.clone() }
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let sent = self.http.post(format!("{}{path}", self.url)).json(body).send().await.unwrap();
        (sent.status().as_u16(), sent.json().await.unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        self.http.get(format!("{}{path}", self.url)).send().await.unwrap().json().await.unwrap()
    }

    async fn submit(&self, size: usize) -> (u16, Value) {
        let body = json!({"kind": "render", "lane": "work", "payload": "p".repeat(size)});
        self.post("/v1/jobs", &body).await
    }

    async fn claim(&self) -> Value {
        let (status, answer) = self.post("/v1/leases", &json!({"worker": "w", "lane": "work"})).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Completes the claimed jobs with results of this many bytes.
    async fn end(&self, lease: &str, size: usize) {
        let body = json!({"worker": "w", "outcome": "succeeded", "result": "r".repeat(size)});
        let (status, answer) = self.post(&format!("/v1/leases/{lease}/release"), &body).await;
        assert_eq!(status, 204, "a result is stored on a full disk: {answer}");
    }

    async fn until_low(&self, low: bool) {
        let begun = Instant::now();
        while self.get("/v1/stats").await["storage_low"] != low {
            assert!(begun.elapsed() < Duration::from_secs(60), "storage_low is never {low}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn cycles() -> u64 {
    number("LANEWAY_DISK_CYCLES").unwrap_or(3)
}

async fn until_reserve(dir: &Path) {
    let begun = Instant::now();
    while std::fs::metadata(dir.join("reserve")).map_or(0, |found| found.len()) != 4 << 20 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no reserve is made");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn start(dir: &Path) -> Server {
    Server::start(
        dir,
        &[
            "--set",
            "limits.storage_low=8MiB",
            "--set",
            "limits.storage_reserve=4MiB",
            "--set",
            "limits.lease=5m",
            "--set",
            "lanes.work.dispatch=claim",
            "--set",
            "lanes.work.running_max=100",
        ],
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_06_a_full_disk_is_survived() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let dir = disk.dir.path().join("data");
    let cycles = cycles();
    let mut server = start(&dir);
    let mut api = Api::of(&server);
    until_reserve(&dir).await;
    let mut acked = Vec::new();
    for _ in 0..24 + cycles * 2 {
        let (status, job) = api.submit(1_000).await;
        assert_eq!(status, 201, "{job}");
        acked.push(job["id"].as_str().unwrap().to_owned());
    }
    let mut leases = Vec::new();
    for _ in 0..9 + cycles {
        leases.push(api.claim().await["lease"]["id"].as_str().unwrap().to_owned());
    }
    disk.fill();
    api.until_low(true).await;
    let (status, rejected) = api.submit(10).await;
    assert_eq!((status, &rejected["code"]), (507, &json!("storage_low")), "{rejected}");
    let denied = api.claim().await;
    assert_eq!((&denied["granted"], &denied["reason"]), (&json!(false), &json!("storage_low")), "{denied}");
    for lease in leases.drain(..6) {
        api.end(&lease, 100_000).await;
    }
    let (status, canceled) =
        api.post(&format!("/v1/jobs/{}/cancel", acked[acked.len() - 1]), &json!({})).await;
    assert!(matches!(status, 200 | 202), "{canceled}");
    // Kill and start on the full disk; the space that the reserve freed is filled each time.
    for _ in 0..cycles {
        disk.fill();
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        server = start(&dir);
        api = Api::of(&server);
        api.until_low(true).await;
        assert_eq!(api.submit(10).await.0, 507);
        assert_eq!(api.get(&format!("/v1/jobs/{}", acked[0])).await["state"], "succeeded");
        api.end(&leases.pop().unwrap(), 50_000).await;
    }
    disk.free();
    api.until_low(false).await;
    let (status, job) = api.submit(10).await;
    assert_eq!(status, 201, "{job}");
    for lease in leases.drain(..) {
        api.end(&lease, 10).await;
    }
    loop {
        let claimed = api.claim().await;
        let Some(lease) = claimed["lease"]["id"].as_str() else { break };
        api.end(lease, 10).await;
    }
    for (number, id) in acked.iter().enumerate() {
        let state = api.get(&format!("/v1/jobs/{id}")).await["state"].clone();
        let expected = if number == acked.len() - 1 { "canceled" } else { "succeeded" };
        assert_eq!(state, expected, "job {number}");
    }
    assert_eq!(server.stop(), Some(0));
    println!("{} jobs, {cycles} restarts on a full disk: nothing is lost", acked.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_06_a_start_on_a_full_disk_works_after_a_graceful_stop() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let dir = disk.dir.path().join("data");
    let mut server = start(&dir);
    let (status, job) = Api::of(&server).submit(1_000).await;
    assert_eq!(status, 201, "{job}");
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let cycles = cycles();
    for _ in 0..cycles {
        until_reserve(&dir).await;
        assert_eq!(server.stop(), Some(0));
        assert!(!dir.join("laneway.db-shm").exists(), "a graceful stop leaves no index of the log");
        // An earlier defect: a start on a full disk left an index without its number.
        std::fs::File::create(dir.join("lock")).unwrap();
        disk.fill();
        server = start(&dir);
        let api = Api::of(&server);
        api.until_low(true).await;
        assert_eq!(api.submit(10).await.0, 507);
        assert_eq!(api.get(&path).await["state"], "queued");
        disk.free();
        api.until_low(false).await;
    }
    let api = Api::of(&server);
    let lease = api.claim().await["lease"]["id"].as_str().unwrap().to_owned();
    api.end(&lease, 10).await;
    assert_eq!(api.get(&path).await["state"], "succeeded");
    assert_eq!(server.stop(), Some(0));
    println!("{cycles} starts on a full disk after graceful stops");
}

#[test]
fn defect_06_a_full_disk_without_a_reserve_is_named_with_its_remedy() {
    let Some(disk) = SmallDisk::mount(16) else { return };
    let dir = disk.dir.path().join("data");
    assert_eq!(Server::start(&dir, &["--set", "limits.storage_reserve=0B"]).stop(), Some(0));
    disk.fill();
    let start = ["serve", "--listen", "127.0.0.1:0", "--data-dir"];
    let failed = laneway().args(start).arg(&dir).output().unwrap();
    assert_eq!(failed.status.code(), Some(74));
    let stderr = text(&failed.stderr);
    assert!(stderr.contains(dir.to_str().unwrap()) && stderr.contains("Free disk space"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_06_below_the_mark_nothing_starts_and_what_runs_ends() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.work.dispatch=claim"]);
    let api = Api::of(&server);
    let (_, first) = api.submit(10).await;
    let (_, second) = api.submit(10).await;
    let lease = api.claim().await["lease"]["id"].as_str().unwrap().to_owned();
    let mark = |size: &str| json!({"limits": {"storage_low": size}});
    let patch = async |size: &str| {
        let sent = api.http.patch(format!("{}/v1/config", api.url)).json(&mark(size)).send().await.unwrap();
        assert!(sent.status().is_success(), "{}", sent.status());
    };
    patch("1024TiB").await;
    api.until_low(true).await;
    assert_eq!(api.submit(10).await.0, 507);
    assert_eq!(api.claim().await["reason"], "storage_low");
    let path = format!("/v1/jobs/{}/explain", second["id"].as_str().unwrap());
    assert_eq!(api.get(&path).await["blocked_by"][0]["code"], "storage_low");
    api.end(&lease, 10).await;
    let path = format!("/v1/jobs/{}", first["id"].as_str().unwrap());
    assert_eq!(api.get(&path).await["state"], "succeeded");
    patch("1MiB").await;
    api.until_low(false).await;
    assert_eq!(api.claim().await["granted"], true);
}
