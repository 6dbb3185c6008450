//! Workers that are killed and restarted under their name: an attempt begins once, and no program outlives its worker.
//!
//! A real server, real `laneway worker` processes, and programs that write down when they begin. `LANEWAY_RESTART_CYCLES`
//! sets how often a worker is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, laneway};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, and a folder that programs write to.
struct World {
    dir: TempDir,
    server: Server,
}

impl World {
    fn new() -> World {
        let dir = TempDir::new().unwrap();
        let server = Server::start(&dir.path().join("data"), &[]);
        World { dir, server }
    }

    /// A program that writes its dispatch and its process id to a file, and then runs `rest`.
    fn script(&self, rest: &str) -> PathBuf {
        let path = self.dir.path().join("program");
        let begun = self.begun().display().to_string();
        let text = format!("#!/bin/sh\necho \"$LANEWAY_TASK_ID $LANEWAY_SEQ $$\" >> {begun}\n{rest}\n");
        std::fs::write(&path, text).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, permissions).unwrap();
        path
    }

    fn begun(&self) -> PathBuf {
        self.dir.path().join("begun")
    }

    /// Every start: the task, the dispatch, the process.
    fn starts(&self) -> Vec<(String, u64, u32)> {
        let text = std::fs::read_to_string(self.begun()).unwrap_or_default();
        let start = |line: &str| {
            let mut parts = line.split(' ');
            let task = parts.next()?.to_owned();
            Some((task, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        };
        text.lines().filter_map(start).collect()
    }

    fn worker(&self, program: &Path) -> Child {
        laneway()
            .args(["--url", &self.server.url, "worker", "--id", "w1", "--kind"])
            .arg(format!("k={}", program.display()))
            .args(["--log-format", "text"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn job(&self, id: &str) -> Value {
        self.server.json(&["jobs", "show", id])
    }

    fn submit(&self, losses_max: u32) -> String {
        let body = json!({"kind": "k", "retry": {"retries_max": 0, "losses_max": losses_max}}).to_string();
        let address = self.server.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("POST /v1/jobs HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        let head = format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, made) = answer.split_once("\r\n\r\n").unwrap();
        let made: Value = serde_json::from_str(made).unwrap_or_else(|error| panic!("{error}: {answer}"));
        made["id"].as_str().unwrap().to_owned()
    }

    /// Restarts a worker whenever it has died, as a supervisor would, until the job has ended. Returns the number of starts.
    fn supervise(&self, program: &Path, job: &str) -> u32 {
        let begun = Instant::now();
        let (mut worker, mut lives) = (Killed(self.worker(program)), 1);
        while self.job(job)["finished_at"].is_null() {
            assert!(begun.elapsed() < PATIENCE, "it never ends: {}", self.job(job));
            if worker.0.try_wait().unwrap().is_some() {
                (worker, lives) = (Killed(self.worker(program)), lives + 1);
            }
        }
        lives
    }
}

/// A worker that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_alive(pid: u32) -> bool {
    // A zombie process does nothing.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

/// The pause between two checks, and the delay of a supervisor.
#[expect(clippy::disallowed_methods, reason = "the state of other processes is polled: they do not notify")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        pause(Duration::from_millis(5));
    }
}

#[test]
fn defect_01_a_program_that_kills_its_worker_begins_once_where_no_loss_is_allowed() {
    let world = World::new();
    let program = world.script("kill -9 $PPID\nsleep 60");
    let job = world.submit(0);
    let lives = world.supervise(&program, &job);
    assert!(lives >= 2, "the next process of the worker is what closes the attempt");
    let shown = world.job(&job);
    assert_eq!(
        (shown["state"].as_str(), shown["reason"].as_str()),
        (Some("failed"), Some("lost")),
        "{shown}"
    );
    let starts = world.starts();
    assert_eq!(starts.iter().map(|(_, seq, _)| *seq).collect::<Vec<_>>(), [1], "{starts:?}");
    until("the program outlives its worker", || !is_alive(starts[0].2));
}

#[test]
fn defect_01_every_loss_counts_and_has_a_number_of_its_own() {
    let world = World::new();
    let program = world.script("kill -9 $PPID\nsleep 60");
    let job = world.submit(2);
    world.supervise(&program, &job);
    let starts = world.starts();
    assert_eq!(starts.iter().map(|(_, seq, _)| *seq).collect::<Vec<_>>(), [1, 2, 3], "{starts:?}");
    assert_eq!(world.job(&job)["losses"], 3);
}

#[test]
fn defect_01_a_killed_workers_programs_are_dead_before_others_begin() {
    let cycles = std::env::var("LANEWAY_RESTART_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let world = World::new();
    // Its child must die, too: it writes the child's process id to a file.
    let helpers = world.dir.path().join("helpers");
    let program = world.script(&format!("sleep 300 &\necho $! >> {}\nwait", helpers.display()));
    world.submit(cycles);
    let mut worker = Killed(world.worker(&program));
    for cycle in 1..=cycles as usize {
        let helper = || std::fs::read_to_string(&helpers).unwrap_or_default().lines().count() >= cycle;
        until("the program does not begin", helper);
        drop(worker);
        // The delay of a supervisor.
        pause(Duration::from_millis(300));
        worker = Killed(world.worker(&program));
        let pid = world.starts()[cycle - 1].2;
        until("the next attempt does not begin", || {
            let begun = world.starts().len() > cycle;
            assert!(!begun || !is_alive(pid), "cycle {cycle}: two programs run for one task");
            begun
        });
    }
    let (starts, numbers) = (world.starts(), 1..=u64::from(cycles) + 1);
    assert!(starts.iter().map(|(_, seq, _)| *seq).eq(numbers), "{starts:?}");
    let helpers = std::fs::read_to_string(helpers).unwrap();
    for helper in helpers.lines().take(cycles as usize) {
        until("what a program started outlives its worker", || !is_alive(helper.parse().unwrap()));
    }
}

#[test]
fn defect_01_a_second_worker_of_the_same_name_is_denied_and_says_so() {
    let world = World::new();
    let go_on = world.dir.path().join("go-on");
    let program = world.script(&format!("until [ -e {} ]; do sleep 0.05; done", go_on.display()));
    let first = Killed(world.worker(&program));
    let job = world.submit(5);
    until("the program does not begin", || world.starts().len() == 1);
    let mut second = Killed(world.worker(&program));
    let log = BufReader::new(second.0.stderr.take().unwrap());
    let denied = log.lines().map_while(Result::ok).find(|line| line.contains("is connected already"));
    let denied = denied.expect("the second worker says why it does not come in");
    for part in ["w1", "since 20", "--id"] {
        assert!(denied.contains(part), "{denied}");
    }
    std::fs::write(&go_on, "").unwrap();
    until("the job never ends", || world.job(&job)["state"] == "succeeded");
    assert_eq!(world.starts().len(), 1, "no job is started twice");
    drop((first, second));
}

#[test]
fn defect_01_workers_have_names_of_their_own() {
    let world = World::new();
    let name = || {
        let mut worker = laneway()
            .args(["--url", &world.server.url, "--json", "worker", "--kind", "k=cat"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut banner = String::new();
        BufReader::new(worker.stdout.take().unwrap()).read_line(&mut banner).unwrap();
        drop(Killed(worker));
        let banner: Value = serde_json::from_str(&banner).unwrap();
        banner["id"].as_str().unwrap().to_owned()
    };
    assert_ne!(name(), name());
}
