//! The program from outside: real processes, a real port, real exit codes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A server in its own process, on a free port.
pub struct Server {
    pub process: Child,
    pub url: String,
    /// The banner that it writes after its start.
    pub banner: Value,
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server, and waits until it has written its address.
    pub fn start(data_dir: &Path, flags: &[&str]) -> Server {
        Server::start_at("127.0.0.1:0", data_dir, flags)
    }

    /// Starts a server whose temporary files, and those of the programs that it starts, are in this directory.
    pub fn start_with_temp_dir(temp_dir: &Path, data_dir: &Path, flags: &[&str]) -> Server {
        let mut command = laneway();
        command.env("TMPDIR", temp_dir);
        Server::spawn(command, "127.0.0.1:0", data_dir, flags)
    }

    /// Starts a server at this address.
    pub fn start_at(address: &str, data_dir: &Path, flags: &[&str]) -> Server {
        Server::spawn(laneway(), address, data_dir, flags)
    }

    fn spawn(mut command: Command, address: &str, data_dir: &Path, flags: &[&str]) -> Server {
        let mut process = command
            .args(["--json", "serve", "--listen", address, "--set", "limits.storage_low=1MiB", "--data-dir"])
            .arg(data_dir)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut banner = String::new();
        output.read_line(&mut banner).unwrap();
        let banner: Value = serde_json::from_str(&banner).unwrap_or_else(|error| {
            let ended = process.wait_with_output_of();
            panic!("the server says {banner:?} ({error}): {ended}");
        });
        let url = banner["url"].as_str().unwrap().to_owned();
        Server { process, url, banner, _output: output }
    }

    /// Runs a command against this server.
    pub fn run(&self, args: &[&str]) -> Output {
        laneway().arg("--url").arg(&self.url).args(args).output().unwrap()
    }

    /// Runs a command that must succeed, and reads its JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[&["--json"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
    }

    /// Submits a job, and returns its id.
    pub fn submit(&self, args: &[&str]) -> String {
        self.json(&[&["submit"], args].concat())["id"].as_str().unwrap().to_owned()
    }

    /// Its JSON log lines, until it stops.
    pub fn log_until_stopped(mut self) -> Vec<Value> {
        let stderr = BufReader::new(self.process.stderr.take().unwrap());
        assert_eq!(self.stop(), Some(0));
        stderr.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    }

    pub fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").arg(format!("-{name}")).arg(self.process.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Stops it gracefully, and returns its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The standard error of an ended process.
trait EndedOutput {
    fn wait_with_output_of(&mut self) -> String;
}

impl EndedOutput for Child {
    fn wait_with_output_of(&mut self) -> String {
        let _ = self.kill();
        let mut text = String::new();
        if let Some(stderr) = self.stderr.take() {
            text = BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<_>>().join("\n");
        }
        text
    }
}

/// The program, without the variables of our own environment that it would read.
pub fn laneway() -> Command {
    command(env!("CARGO_BIN_EXE_laneway").as_ref())
}

/// The same for a program at another path.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    let ours = |name: &str| name.starts_with("LANEWAY_") || name.starts_with("GOCLAW_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| ours(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

#[test]
fn a_job_goes_its_way() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let job =
        server.json(&["submit", "echo", "--payload", r#"{"hello": "world"}"#, "--wait", "--tag", "first"]);
    assert_eq!(job["state"], "succeeded");
    assert_eq!(job["result"], json!({"hello": "world"}));
    let id = job["id"].as_str().unwrap();

    let shown = server.json(&["jobs", "show", &id[24..]]);
    assert_eq!(shown["id"], id, "a unique ending of an id is enough");
    let events: Vec<&str> = shown["events"]["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(events, ["job.submitted", "job.started", "job.succeeded"]);

    let list = server.run(&["jobs", "list", "--tag", "first"]);
    let table = text(&list.stdout);
    assert!(table.starts_with("ID ") && table.contains(id) && table.contains("succeeded"), "{table}");
    assert!(!table.contains('\x1b'), "no colours where output is no terminal");
    let again = server.json(&["jobs", "retry", id]);
    assert_eq!(again["retry_of"], id);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_failed_job_ends_wait_with_1() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let output = server.run(&["submit", "fail", "--payload", r#"{"permanent": true}"#, "--wait"]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("failed (permanent)"), "{}", text(&output.stderr));
}

#[test]
fn a_payload_comes_from_standard_input_or_a_file() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let file = dir.path().join("payload.json");
    std::fs::write(&file, "[1, 2]\n").unwrap();
    let job = server.json(&["submit", "echo", "--payload", &format!("@{}", file.display()), "--wait"]);
    assert_eq!(job["result"], json!([1, 2]));

    let mut child = laneway()
        .args(["--url", &server.url, "--json", "submit", "echo", "--payload", "-", "--wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"{\"n\": 3}").unwrap();
    let output = child.wait_with_output().unwrap();
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(job["result"], json!({"n": 3}));

    let wrong = server.run(&["submit", "echo", "--payload", "not json"]);
    assert_eq!(code(&wrong), 2);
    assert!(text(&wrong.stderr).contains("is not JSON"), "{}", text(&wrong.stderr));
}

#[test]
fn lanes_pause_explain_and_resume() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let lane = server.json(&["lanes", "set", "slow", "--running-max", "1"]);
    assert_eq!(lane["running_max"], 1);
    assert_eq!(server.json(&["lanes", "pause", "slow"])["paused"], true);
    let job = server.json(&["submit", "echo", "--lane", "slow"]);
    assert_eq!(job["state"], "queued");
    let id = job["id"].as_str().unwrap();
    let why = server.json(&["jobs", "explain", id]);
    assert_eq!(why["blocked_by"][0]["code"], "lane_paused", "{why}");
    let stats = server.json(&["stats"]);
    assert_eq!(stats["queued"], 1);
    assert_eq!(server.json(&["jobs", "cancel", id])["state"], "canceled");
    assert_eq!(server.json(&["lanes", "resume", "slow"])["paused"], false);
    let gone = server.run(&["jobs", "cancel", id]);
    assert_ne!(code(&gone), 0, "an ended job cannot be canceled");
}

#[test]
fn exit_codes_show_what_happened() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let unknown = "00000000-0000-7000-8000-000000000000";
    assert_eq!(code(&server.run(&["jobs", "show", unknown])), 3);
    assert_eq!(code(&server.run(&["jobs", "show", "nonsense"])), 3);
    assert_eq!(code(&server.run(&["jobs", "frobnicate"])), 2);
    let unreachable = laneway().args(["--url", "http://127.0.0.1:1", "stats"]).output().unwrap();
    assert_eq!(code(&unreachable), 4);
    assert!(text(&unreachable.stderr).contains("laneway serve"), "{}", text(&unreachable.stderr));
}

#[test]
fn a_second_server_on_the_same_directory_rejects() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let second =
        laneway().args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path()).output().unwrap();
    assert_eq!(code(&second), 75);
    let stderr = text(&second.stderr);
    assert!(
        stderr.contains("in use by process") && stderr.contains(&server.process.id().to_string()),
        "{stderr}"
    );
}

#[test]
fn an_open_server_stays_on_its_machine() {
    let dir = TempDir::new().unwrap();
    let open =
        laneway().args(["serve", "--listen", "0.0.0.0:0", "--data-dir"]).arg(dir.path()).output().unwrap();
    assert_ne!(code(&open), 0);
    assert!(text(&open.stderr).contains("token"), "{}", text(&open.stderr));
}

#[test]
fn a_directory_that_cannot_be_used_ends_with_74() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a-file");
    std::fs::write(&file, "no directory").unwrap();
    let output =
        laneway().args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&file).output().unwrap();
    assert_eq!(code(&output), 74, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("a-file"), "{}", text(&output.stderr));
    let damaged = dir.path().join("damaged");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join("laneway.db"), [7; 8_192]).unwrap();
    let output =
        laneway().args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&damaged).output().unwrap();
    assert_eq!(code(&output), 74, "{}", text(&output.stderr));
}

#[test]
fn a_taken_port_is_named() {
    let dir = TempDir::new().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output =
        laneway().args(["serve", "--listen", &address, "--data-dir"]).arg(dir.path()).output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains(&address), "{}", text(&output.stderr));
}

#[test]
fn a_hangup_reads_the_configuration_again() {
    let dir = TempDir::new().unwrap();
    // The named file is a link: the watcher looks at the link's directory and cannot see the change, so that only the
    // signal can be what reloads.
    let (real, link) = (dir.path().join("elsewhere/real.toml"), dir.path().join("watched/laneway.toml"));
    std::fs::create_dir(real.parent().unwrap()).unwrap();
    std::fs::create_dir(link.parent().unwrap()).unwrap();
    std::fs::write(&real, "[lanes.main]\nrunning_max = 3\n").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let mut server = Server::start(&dir.path().join("data"), &["--config", link.to_str().unwrap()]);
    let mut log = BufReader::new(server.process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let limit = |server: &Server| {
        let list = server.json(&["lanes", "list"]);
        let main = list["lanes"].as_array().unwrap().iter().find(|lane| lane["name"] == "main");
        main.unwrap()["running_max"].clone()
    };
    assert_eq!(limit(&server), 3);

    std::fs::write(&real, "[lanes.main]\nrunning_max = 5\n").unwrap();
    server.signal("HUP");
    assert!(log.any(|line| line.contains("configuration reloaded")));
    assert_eq!(limit(&server), 5);

    std::fs::write(&real, "[lanes.main]\nrunning_max = 7\nruning_max = 7\n").unwrap();
    server.signal("HUP");
    assert!(log.any(|line| line.contains("configuration not reloaded")));
    assert_eq!(limit(&server), 5, "a wrong file changes nothing, not even what is right in it");
}

#[test]
fn a_second_signal_does_not_wait_for_what_runs() {
    let dir = TempDir::new().unwrap();
    let mut server = Server::start(dir.path(), &["--set", "server.drain_limit=1h"]);
    let id = server.json(&["submit", "sleep", "--payload", r#"{"ms": 3600000}"#])["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(server.json(&["jobs", "show", &id])["state"], "running");
    server.signal("TERM");
    assert!(
        (0..1_000).any(|_| server.json(&["stats"])["draining"] == true),
        "the first signal never drained"
    );
    assert!(server.process.try_wait().unwrap().is_none(), "the first signal waits for what runs");
    server.signal("TERM");
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    drop(server);
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let job = server.json(&["jobs", "show", &id]);
    assert_eq!(
        (&job["state"], &job["failures"], &job["losses"]),
        (&json!("queued"), &json!(0), &json!(0)),
        "{job}"
    );
}

#[test]
fn a_wrong_configuration_is_named_and_rejected() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("laneway.toml");
    std::fs::write(&file, "[lanes.main]\nruning_max = 3\n").unwrap();
    let checked = laneway().args(["config", "check", "--config"]).arg(&file).output().unwrap();
    assert_eq!(code(&checked), 78);
    let stderr = text(&checked.stderr);
    assert!(stderr.contains("laneway.toml:2") && stderr.contains("running_max"), "{stderr}");
    std::fs::write(&file, "[lanes.main]\nrunning_max = 3\n").unwrap();
    let checked = laneway().args(["config", "check", "--config"]).arg(&file).output().unwrap();
    assert_eq!(code(&checked), 0, "{}", text(&checked.stderr));
    let dumped = laneway().args(["config", "dump", "--config"]).arg(&file).output().unwrap();
    assert!(text(&dumped.stdout).contains("running_max = 3"), "{}", text(&dumped.stdout));
}

#[test]
fn jobs_survive_a_stop_and_a_kill() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let first = server.json(&["submit", "echo", "--payload", "1"])["id"].clone();
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let second = server.json(&["submit", "echo", "--payload", "2"])["id"].clone();
    server.signal("KILL");
    drop(server);

    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let waiting = server.json(&["jobs", "list", "--state", "queued"]);
    let ids: Vec<&Value> = waiting["jobs"].as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert_eq!(ids, [&second, &first]);
}

#[test]
fn a_running_job_is_handed_back_at_a_stop() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "server.drain_limit=0s"]);
    let id = server.json(&["submit", "sleep", "--payload", r#"{"ms": 3600000}"#])["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(server.json(&["jobs", "show", &id])["state"], "running");
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let job = server.json(&["jobs", "show", &id]);
    assert_eq!(
        (&job["state"], &job["failures"], &job["losses"]),
        (&json!("queued"), &json!(0), &json!(0)),
        "{job}"
    );
}

#[test]
fn a_run_is_submitted_from_a_file_listed_shown_and_canceled() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let file = dir.path().join("run.json");
    let nodes = json!([
        {"node": "one", "job": {"kind": "echo", "payload": {"n": 1}}},
        {"node": "two", "job": {"kind": "unserved"}, "depends_on": ["one"]}]);
    std::fs::write(&file, json!({"name": "pair", "nodes": nodes}).to_string()).unwrap();
    let run = server.json(&["runs", "submit", file.to_str().unwrap()]);
    let id = run["id"].as_str().unwrap();
    let listed = server.run(&["runs", "list", "--state", "queued,running"]);
    assert!(text(&listed.stdout).contains(id), "{}", text(&listed.stdout));
    let shown = server.run(&["runs", "get", id]);
    let stderr = text(&shown.stdout);
    assert!(stderr.contains("pair") && stderr.contains("WAITS FOR") && stderr.contains("two"), "{stderr}");
    assert_eq!(server.json(&["runs", "cancel", id])["state"], "canceled");
    assert_eq!(code(&server.run(&["runs", "cancel", id])), 1);
    std::fs::write(&file, "{").unwrap();
    assert_eq!(code(&server.run(&["runs", "submit", file.to_str().unwrap()])), 2);
}

#[test]
fn tokens_are_required() {
    let dir = TempDir::new().unwrap();
    // No server answers: the data directory is opened directly.
    let made = laneway()
        .args([
            "--url",
            "http://127.0.0.1:1",
            "--json",
            "token",
            "create",
            "--role",
            "admin",
            "--tenant",
            "*",
        ])
        .arg("--data-dir")
        .arg(dir.path())
        .output()
        .unwrap();
    assert_eq!(code(&made), 0, "{}", text(&made.stderr));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let secret = made["secret"].as_str().unwrap();

    let server = Server::start(dir.path(), &[]);
    assert_eq!(code(&server.run(&["stats"])), 5);
    assert_eq!(code(&server.run(&["--token", "lw_wrong", "stats"])), 5);
    server.json(&["--token", secret, "stats"]);
    let viewer = server.json(&["--token", secret, "token", "create", "--role", "viewer", "--tenant", "acme"]);
    let viewer_secret = viewer["secret"].as_str().unwrap();
    assert_eq!(code(&server.run(&["--token", viewer_secret, "submit", "echo"])), 5);
    let id = viewer["token"]["id"].as_str().unwrap();
    assert_eq!(code(&server.run(&["--token", secret, "token", "revoke", id])), 0);
    assert_eq!(code(&server.run(&["--token", viewer_secret, "stats"])), 5);
    let list = server.json(&["--token", secret, "token", "list"]);
    assert_eq!(list["tokens"].as_array().unwrap().len(), 2);
}

#[test]
fn events_can_be_read_from_the_start() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.json(&["submit", "echo", "--wait"]);
    let output = server.run(&["--json", "events", "--after", "0", "--until-idle"]);
    let events: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = events.iter().map(|event| event["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "numbers have no gaps");
    assert!(events.iter().any(|event| event["type"] == "job.succeeded"), "{events:?}");
}

#[test]
fn events_show_progress_too() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.json(&["submit", "echo", "--wait"]);
    for flags in [&[][..], &["--json"]] {
        let mut child = laneway()
            .args(["--url", &server.url, "events", "--after", "0"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Progress is not stored: the stream must be open before the job starts.
        assert!(lines.next().unwrap().contains("job.submitted"));
        let id = server.submit(&["sleep", "--payload", r#"{"ms": 1000}"#]);
        let line = lines.find(|line| line.contains("job.progress")).expect("the stream goes on");
        assert!(line.contains(&id) && line.contains("asleep"), "{line}");
        if !flags.is_empty() {
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["type"], "job.progress");
        }
        assert!(lines.any(|line| line.contains("job.succeeded") && line.contains(&id)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn waiting_outlives_a_restart_of_the_server() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let mut waiting = laneway()
        .args(["--url", &server.url, "--json", "submit", "echo", "--payload", "7", "--wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut stderr).unwrap();
    let id = stderr.trim().strip_prefix("submitted ").expect("the id, as soon as there is one").to_owned();
    assert_eq!(server.json(&["jobs", "show", &id])["state"], "queued");
    assert_eq!(server.stop(), Some(0));
    let _server = Server::start_at(&address, dir.path(), &[]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(code(&output), 0);
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&job["id"], &job["result"]), (&json!(id), &json!(7)));
}

#[test]
fn one_job_that_cannot_be_done_does_not_stop_the_others() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let unknown = "00000000-0000-7000-8000-000000000000";
    let [first, second] = [(); 2].map(|()| server.submit(&["echo"]));
    let canceled = server.run(&["jobs", "cancel", &first, unknown, &second]);
    assert_eq!(code(&canceled), 3);
    let (out, err) = (text(&canceled.stdout), text(&canceled.stderr));
    assert!(out.contains(&first) && out.contains(&second), "{out}");
    assert!(err.contains(unknown) && err.contains("1 of 3"), "{err}");
    let retried = server.run(&["--json", "jobs", "retry", unknown, &first]);
    assert_eq!(code(&retried), 3);
    let job: Value = serde_json::from_slice(&retried.stdout).unwrap();
    assert_eq!(job["retry_of"], json!(first));
    let report: Value = serde_json::from_str(text(&retried.stderr).lines().next().unwrap()).unwrap();
    assert_eq!((&report["job"], &report["exit"]), (&json!(unknown), &json!(3)));
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    for args in [
        &["jobs", "list", "-n", "0"][..],
        &["submit", "echo", "--priority", "soon"],
        &["lanes", "set", "main", "--aging-step", "soon"],
        &["workers", "rebind", "w1"],
        &["workers", "rebind", "w1", "--lane", "main", "--every-lane"],
    ] {
        let output = server.run(args);
        assert_eq!(code(&output), 2, "{args:?}: {}", text(&output.stderr));
    }
    for url in ["nonsense", "ftp://127.0.0.1"] {
        let output = laneway().args(["--url", url, "stats"]).output().unwrap();
        assert_eq!(code(&output), 2, "{url}");
        assert!(text(&output.stderr).contains("is not a URL"), "{}", text(&output.stderr));
    }
    server.submit(&["echo", "--priority", "-5"]);
    let id = server.submit(&["echo", "--priority", "HIGH"]);
    let output = server.run(&["jobs", "show", &id[..4]]);
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("is ambiguous: it matches 2 jobs"), "{}", text(&output.stderr));
}

#[test]
fn the_socket_of_goclaw_is_there_unless_it_is_switched_off() {
    for (flags, status) in [(vec![], "101"), (vec!["--set", "dialects.goclaw.enabled=false"], "404")] {
        let dir = TempDir::new().unwrap();
        let server = Server::start(dir.path(), &flags);
        let address = server.url.strip_prefix("http://").unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET /ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        .unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(stream);
        reader.read_line(&mut line).unwrap();
        assert_eq!(line.split(' ').nth(1), Some(status), "{line}");
        // An open socket does not keep the server from stopping.
        assert_eq!(server.stop(), Some(0));
        drop(reader);
    }
}

#[test]
fn aging_can_be_switched_off_by_either_value() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    for word in ["off", "none"] {
        let lane = server.json(&["lanes", "set", "main", "--aging-step", "45s"]);
        assert_eq!(lane["aging_step"], "45s");
        let lane = server.json(&["lanes", "set", "main", "--aging-step", word]);
        assert_eq!(lane["aging_step"], Value::Null, "{word}");
    }
}

#[test]
fn durations_of_the_list_are_ago() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.submit(&["echo"]);
    let count =
        |args: &[&str]| server.json(&[&["jobs", "list"], args].concat())["jobs"].as_array().unwrap().len();
    assert_eq!(count(&["--after", "5m"]), 1);
    assert_eq!(count(&["--before", "5m"]), 0);
}

#[test]
fn a_lane_that_is_not_there_cannot_be_paused() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    for verb in ["pause", "resume"] {
        assert_eq!(code(&server.run(&["lanes", verb, "nowhere"])), 3);
    }
    assert!(!server.json(&["lanes", "list"]).to_string().contains("nowhere"));
}

#[test]
fn a_worker_takes_jobs_of_its_lane_and_is_rebound_to_another() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.json(&["lanes", "set", "gpu", "--running-max", "4"]);
    let mut worker = laneway()
        .args(["--url", &server.url, "worker", "--id", "w1", "--kind", "shout=cat", "--lane", "gpu"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let theirs = server.json(&["submit", "shout", "--lane", "gpu", "--wait"]);
    assert_eq!(theirs["state"], "succeeded");
    assert_eq!(server.json(&["workers", "get", "w1"])["lanes"], json!(["gpu"]));
    let table = text(&server.run(&["workers", "list"]).stdout);
    assert!(table.contains("LANES") && table.contains("gpu"), "{table}");
    let other = server.submit(&["shout"]);
    assert_eq!(code(&server.run(&["workers", "rebind", "w2", "--lane", "main"])), 3);
    let unknown = server.run(&["workers", "rebind", "w1", "--lane", "nowhere"]);
    assert_ne!(code(&unknown), 0);
    assert!(text(&unknown.stderr).contains("there is no lane"), "{}", text(&unknown.stderr));
    let rebound = server.json(&["workers", "rebind", "w1", "--lane", "main"]);
    assert_eq!((&rebound["lanes"], &rebound["rebound"]), (&json!(["main"]), &json!(true)));
    server.json(&["submit", "shout", "--wait"]);
    assert_eq!(server.json(&["jobs", "show", &other])["state"], "succeeded", "it went before that one");
    assert_eq!(server.json(&["workers", "rebind", "w1", "--every-lane"])["lanes"], json!([]));
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn tokens_without_a_server_name_their_directory() {
    let dir = TempDir::new().unwrap();
    let away = |args: &[&str]| {
        let output =
            laneway().args(["--url", "http://127.0.0.1:1"]).args(args).current_dir(dir.path()).output();
        output.unwrap()
    };
    let rejected = away(&["token", "create", "--role", "admin"]);
    assert_eq!(code(&rejected), 1);
    assert!(text(&rejected.stderr).contains("laneway-data"), "{}", text(&rejected.stderr));
    assert!(!dir.path().join("laneway-data").exists());
    assert_eq!(code(&away(&["token", "list", "--data-dir", "here"])), 1, "a list makes no directory");

    let made = away(&["token", "create", "--role", "admin", "--data-dir", "here"]);
    assert_eq!(code(&made), 0, "{}", text(&made.stderr));
    let here = dir.path().join("here").canonicalize().unwrap();
    assert!(text(&made.stdout).contains(here.to_str().unwrap()), "{}", text(&made.stdout));

    let list = away(&["--json", "token", "list", "--data-dir", "here"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let id = list["tokens"][0]["id"].as_str().unwrap();
    let rejected = away(&["token", "rotate", id, "--expires", "1h", "--data-dir", "here"]);
    assert_eq!(code(&rejected), 1);
    assert!(text(&rejected.stderr).contains("last server-wide admin token"), "{}", text(&rejected.stderr));
    let rotated = away(&["--json", "token", "rotate", id, "--data-dir", "here"]);
    assert_eq!(code(&rotated), 0, "{}", text(&rotated.stderr));
    let rotated: Value = serde_json::from_slice(&rotated.stdout).unwrap();
    assert_eq!(rotated["data_dir"], json!(here));
}

#[test]
fn the_banner_names_a_server_that_is_elsewhere() {
    let dir = TempDir::new().unwrap();
    let mut process = laneway()
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let auth = lines.find(|line| line.contains("token create"));
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(auth.as_ref().is_some_and(|line| line.contains("laneway --url http://127.0.0.1:")), "{auth:?}");
}

#[test]
fn configurations_are_shown_as_they_are() {
    let dir = TempDir::new().unwrap();
    let defaults = laneway().args(["--json", "config", "dump", "--defaults"]).output().unwrap();
    let defaults: Value = serde_json::from_slice(&defaults.stdout).unwrap();
    assert_eq!(defaults["server"]["listen"], "127.0.0.1:7717");
    let dumped = text(&laneway().args(["config", "dump"]).output().unwrap().stdout);
    assert!(dumped.starts_with("# File, environment and flags"), "{dumped}");

    let wrong = ["--json", "config", "check", "--set", "log.filter=info,laneway=loud"];
    let checked = laneway().args(wrong).output().unwrap();
    assert_eq!(code(&checked), 78);
    let report: Value = serde_json::from_slice(&checked.stderr).unwrap();
    assert_eq!(report["problems"][0]["key"], "log.filter", "{report}");

    let server = Server::start(dir.path(), &[]);
    server.json(&["lanes", "set", "main", "--running-max", "17"]);
    let dumped = text(&server.run(&["config", "dump", "--server"]).stdout);
    let tree: toml::Table = dumped.parse().unwrap_or_else(|error| panic!("{error}: {dumped}"));
    assert_eq!(tree["lanes"]["main"]["running_max"].as_integer(), Some(17));
}

#[test]
fn the_log_reports_start_and_stop() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let running = server.submit(&["sleep", "--payload", r#"{"ms": 3600000}"#]);
    assert_eq!(server.json(&["jobs", "show", &running])["state"], "running");
    server.signal("KILL");
    drop(server);

    let server = Server::start(dir.path(), &["--set", "log.format=json", "--set", "server.drain_limit=0s"]);
    let url = server.url.clone();
    let log = server.log_until_stopped();
    let line = |message: &str| {
        let found = log.iter().find(|line| line["message"].as_str().is_some_and(|m| m.starts_with(message)));
        found.unwrap_or_else(|| panic!("no line {message:?} in {log:#?}"))
    };
    let recovered = line("recovered");
    assert_eq!((&recovered["jobs"], &recovered["attempts_lost"]), (&json!(1), &json!(1)));
    assert_eq!(line("started")["url"], json!(url));
    assert!(line("draining")["runs"].is_number());
    assert!(line("stopped")["interrupted"].is_number());
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = laneway().args(["completions", shell]).output().unwrap();
        assert!(text(&output.stdout).contains("explain"), "{shell}");
    }
}

#[test]
fn every_command_is_on_its_page() {
    let page = crate::repository::read("docs/cli.md");
    let help = text(&laneway().arg("--help").output().unwrap().stdout);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(commands.len() >= 11, "{help}");
    for command in commands {
        assert!(page.contains(&format!("| `laneway {command}")), "docs/cli.md has no row for {command}");
    }
    let codes =
        help.lines().skip_while(|line| *line != "Exit codes:").skip(1).filter(|line| !line.is_empty());
    for line in codes {
        let code = line.split_whitespace().next().unwrap();
        assert!(page.contains(&format!("| {code} |")), "docs/cli.md does not tell exit code {code}");
    }
}
