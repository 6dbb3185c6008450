//! The program as its users meet it: real processes, a real port, real exit codes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A server in a process of its own, on a free port.
struct Server {
    process: Child,
    url: String,
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server and waits until it says where it is.
    fn start(data_dir: &Path, flags: &[&str]) -> Server {
        let mut process = laneway()
            .args([
                "--json",
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--set",
                "limits.storage_low=1MiB",
                "--data-dir",
            ])
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
        Server { process, url, _output: output }
    }

    /// Runs a command against this server.
    fn run(&self, args: &[&str]) -> Output {
        laneway().arg("--url").arg(&self.url).args(args).output().unwrap()
    }

    /// Runs a command that must succeed, and reads its JSON.
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[&["--json"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
    }

    fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").arg(format!("-{name}")).arg(self.process.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Asks it to stop politely and gives its exit code.
    fn stop(mut self) -> Option<i32> {
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

/// What a process that ended wrote to standard error.
trait EndedOutput {
    fn wait_with_output_of(&mut self) -> String;
}

impl EndedOutput for Child {
    fn wait_with_output_of(&mut self) -> String {
        let _ = self.kill();
        let mut said = String::new();
        if let Some(stderr) = self.stderr.take() {
            said = BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<_>>().join("\n");
        }
        said
    }
}

/// The program, with nothing of our own environment that could mean something to it.
fn laneway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LANEWAY_")) {
        command.env_remove(name);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
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
    assert_eq!(code(&wrong), 1);
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
    assert_eq!(why["holds"][0]["code"], "lane_paused", "{why}");
    let stats = server.json(&["stats"]);
    assert_eq!(stats["queued"], 1);
    assert_eq!(server.json(&["jobs", "cancel", id])["state"], "canceled");
    assert_eq!(server.json(&["lanes", "resume", "slow"])["paused"], false);
    let gone = server.run(&["jobs", "cancel", id]);
    assert_ne!(code(&gone), 0, "an ended job cannot be canceled");
}

#[test]
fn exit_codes_tell_what_happened() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let unknown = "00000000-0000-7000-8000-000000000000";
    assert_eq!(code(&server.run(&["jobs", "show", unknown])), 3);
    assert_eq!(code(&server.run(&["jobs", "show", "nonsense"])), 3);
    assert_eq!(code(&server.run(&["jobs", "frobnicate"])), 2);
    let nobody = laneway().args(["--url", "http://127.0.0.1:1", "stats"]).output().unwrap();
    assert_eq!(code(&nobody), 4);
    assert!(text(&nobody.stderr).contains("laneway serve"), "{}", text(&nobody.stderr));
}

#[test]
fn a_second_server_on_the_same_directory_refuses() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let second =
        laneway().args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path()).output().unwrap();
    assert_eq!(code(&second), 75);
    let said = text(&second.stderr);
    assert!(said.contains("in use by process") && said.contains(&server.process.id().to_string()), "{said}");
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
    let limit = |server: &Server| server.json(&["lanes", "list"])["lanes"][0]["running_max"].clone();
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
fn a_wrong_configuration_is_named_and_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("laneway.toml");
    std::fs::write(&file, "[lanes.main]\nruning_max = 3\n").unwrap();
    let checked = laneway().args(["config", "check", "--config"]).arg(&file).output().unwrap();
    assert_eq!(code(&checked), 78);
    let said = text(&checked.stderr);
    assert!(said.contains("laneway.toml:2") && said.contains("running_max"), "{said}");
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
fn tokens_close_the_door() {
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
fn the_demo_moves() {
    let output = laneway().args(["--url", "http://127.0.0.1:1", "demo", "--for", "2s"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("demo-chat") && said.contains("SUCCEEDED"), "{said}");
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
