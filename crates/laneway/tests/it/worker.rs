//! `laneway worker` from outside: a real process, real programs, and the test as its server.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use laneway_wire::frame::{Frame, Message, MessageType, PackageOutcome, ResultStatus, TaskResult};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::{self, WebSocket};

/// The longest wait for a message of the worker.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker in its own process, and the server's end of its connection.
struct Worker {
    process: Child,
    socket: WebSocket<TcpStream>,
    banner: Value,
    frames: u64,
}

impl Worker {
    /// Starts a worker, and answers until it is registered.
    fn start(flags: &[&str]) -> Worker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut process = Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(["--url", &url, "--json", "worker", "--id", "w-1", "--tenant", "acme"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut banner = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut banner).unwrap();
        let banner = serde_json::from_str(&banner).unwrap_or_else(|error| {
            let _ = process.kill();
            let output =
                process.stderr.take().map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok));
            panic!("{error}: {banner:?} {:?}", output.map(Iterator::collect::<Vec<_>>));
        });
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let socket = tungstenite::accept(stream).unwrap();
        let mut worker = Worker { process, socket, banner, frames: 0 };
        for kind in [MessageType::Handshake, MessageType::Register] {
            let frame = worker.receive(kind);
            worker.ack(&frame);
        }
        worker
    }

    /// The next frame of this type; heartbeats are acknowledged on the way.
    fn receive(&mut self, kind: MessageType) -> Frame {
        loop {
            let message = self.socket.read().unwrap();
            if !message.is_text() {
                continue;
            }
            let frame = Frame::parse(&message.into_data()).unwrap();
            if frame.message.kind() == kind {
                return frame;
            }
            if frame.message.kind() == MessageType::Heartbeat {
                self.ack(&frame);
            }
        }
    }

    fn send(&mut self, kind: &str, payload: Value, corr: &str, seq: u64) {
        self.frames += 1;
        let frame = json!({"type": kind, "id": format!("s-{}", self.frames), "ts": "2030-01-01T00:00:00Z",
            "tenant": "acme", "sender": {"role": "scheduler", "id": "s"}, "corr": corr, "seq": seq,
            "ack": {"request": kind != "ack"}, "payload": payload});
        self.socket.send(tungstenite::Message::text(frame.to_string())).unwrap();
    }

    fn ack(&mut self, frame: &Frame) {
        self.send("ack", json!({"ok": true, "for": frame.id.as_str(), "info": "lease_ms=120000"}), "", 0);
    }

    fn dispatch(&mut self, seq: u64, kind: &str, parameters: Value) {
        let payload = json!({"run_id": "r1", "task_id": format!("t{seq}"), "node_id": "n", "node_type": kind,
            "package_name": "img", "package_version": "1.0", "parameters": parameters, "constraints": {}});
        self.send("cmd.dispatch", payload, &format!("t{seq}"), seq);
    }

    fn result(&mut self) -> TaskResult {
        let frame = self.receive(MessageType::Result);
        self.ack(&frame);
        match frame.message {
            Message::Result(result) => *result,
            other => panic!("{other:?} is no result"),
        }
    }

    /// The code and the message of a failure.
    fn failure(&mut self) -> (String, String, bool) {
        let result = self.result();
        assert_eq!(result.status, ResultStatus::Failed);
        let metadata: Value = result.metadata.unwrap().read().unwrap();
        let error = result.error.unwrap();
        (error.code.to_string(), error.message, metadata["retryable"].as_bool().unwrap())
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An executable script.
fn script(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, permissions).unwrap();
    path.display().to_string()
}

#[test]
fn programs_get_json_and_give_json() {
    let mut worker = Worker::start(&[
        "--kind",
        "echo=cat",
        "--kind",
        "env=sh -c 'echo \"\\\"$LANEWAY_TASK_ID $LANEWAY_SEQ $LANEWAY_KIND\\\"\"'",
        "--kind",
        "nothing=true",
        "--metrics",
        "127.0.0.1:0",
    ]);
    assert_eq!(worker.banner["kinds"], json!(["echo", "env", "nothing"]));
    worker.dispatch(1, "echo", json!({"a": [1, 2]}));
    assert_eq!(worker.result().result.get(), "{\"a\":[1,2]}");
    worker.dispatch(2, "env", json!({}));
    assert_eq!(worker.result().result.get(), "{\"value\":\"t2 2 env\"}");
    worker.dispatch(3, "nothing", json!({}));
    assert_eq!(worker.result().result.get(), "{}");
    // The metrics are served.
    let url = worker.banner["metrics"].as_str().unwrap().to_owned();
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .unwrap();
    let text = std::io::read_to_string(stream).unwrap();
    assert!(text.contains("task_duration_ms_count{node_type=\"echo\"} 1"), "{text}");
}

#[test]
fn d18_packages_bring_programs_and_are_removed() {
    let folder = TempDir::new().unwrap();
    let package = folder.path().join("img/1.0");
    std::fs::create_dir_all(&package).unwrap();
    let manifest = json!({"name": "img", "version": "1.0", "handlers": {"where": {"command": ["./where"]}}});
    std::fs::write(package.join("manifest.json"), manifest.to_string()).unwrap();
    script(&package, "where", "echo \"\\\"$(basename \"$PWD\")\\\"\"");
    let mut worker = Worker::start(&["--packages", folder.path().to_str().unwrap()]);
    worker.dispatch(1, "where", json!({}));
    assert_eq!(worker.result().result.get(), "{\"value\":\"1.0\"}");
    worker.send("pkg.uninstall", json!({"name": "img"}), "p", 0);
    let event = worker.receive(MessageType::PackageEvent);
    worker.ack(&event);
    assert!(
        matches!(&event.message, Message::PackageEvent(event) if event.status == PackageOutcome::Installed)
    );
    assert!(!package.exists());
    worker.dispatch(2, "where", json!({}));
    let rejection = worker.receive(MessageType::Error);
    assert!(matches!(&rejection.message, Message::Error(error) if error.code == "E.CMD.UNKNOWN"));
}

#[test]
fn defect_19_programs_that_fail_say_why_and_may_be_tried_again() {
    let folder = TempDir::new().unwrap();
    let fail = script(folder.path(), "fail", "echo first >&2; echo 'no such file' >&2; exit 3");
    let one = script(folder.path(), "one", "exit 1");
    let again = script(folder.path(), "again", "exit 75");
    let wrong = script(folder.path(), "wrong", "exit 65");
    let shot = script(folder.path(), "shot", "kill -9 $$");
    let babble = script(folder.path(), "babble", "head -c 1048577 /dev/zero");
    let flags: Vec<String> = [
        format!("fail={fail}"),
        format!("one={one}"),
        format!("again={again}"),
        format!("wrong={wrong}"),
        format!("shot={shot}"),
        format!("babble={babble}"),
        "nonsense=echo no json".to_owned(),
        "missing=/nowhere/at/all".to_owned(),
    ]
    .into_iter()
    .flat_map(|kind| ["--kind".to_owned(), kind])
    .collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut worker = Worker::start(&flags);
    worker.dispatch(1, "fail", json!({}));
    let chunk = worker.receive(MessageType::Feedback);
    let Message::Feedback(feedback) = chunk.message else { panic!("no feedback") };
    assert_eq!(feedback.chunks.unwrap()[0].text.as_deref(), Some("first\n"));
    let (code, message, retryable) = worker.failure();
    assert_eq!((code.as_str(), retryable), ("exit_3", true));
    assert!(message.contains("no such file"), "{message}");
    for (seq, kind, code, retryable) in [
        (2, "again", "exit_75", true),
        (3, "babble", "output_too_long", false),
        (4, "nonsense", "bad_output", false),
        (5, "missing", "not_started", false),
        (6, "one", "exit_1", true),
        (7, "wrong", "exit_65", false),
        (8, "shot", "killed", true),
    ] {
        worker.dispatch(seq, kind, json!({}));
        let (found, message, may_retry) = worker.failure();
        assert_eq!((found.as_str(), may_retry), (code, retryable), "{kind}: {message}");
        assert!(!message.trim_end().ends_with(':'), "{kind}: {message}");
    }
}

#[test]
fn a_cancel_ends_the_program_and_all_that_it_started() {
    let folder = TempDir::new().unwrap();
    // It ignores SIGTERM, and leaves a child behind that does, too.
    let text =
        "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >&2; while :; do read line </dev/zero; done' & wait";
    let stubborn = script(folder.path(), "stubborn", text);
    let mut worker = Worker::start(&["--kind", &format!("stubborn={stubborn}"), "--stop-grace", "300ms"]);
    worker.dispatch(1, "stubborn", json!({}));
    let Message::Feedback(feedback) = worker.receive(MessageType::Feedback).message else {
        panic!("no feedback")
    };
    let child = feedback.chunks.unwrap()[0].text.clone().unwrap().trim().to_owned();
    assert!(Path::new("/proc").join(&child).exists());
    worker.send("cmd.cancel", json!({"run_id": "r1", "task_id": "t1"}), "t1", 1);
    assert_eq!(worker.result().status, ResultStatus::Cancelled);
    let begin = Instant::now();
    // It exists until the process that adopted it reaps it.
    while is_alive(&child) {
        assert!(begin.elapsed() < PATIENCE, "{child} lives on");
        std::thread::yield_now();
    }
}

/// True while a process runs. A zombie process does not.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[test]
fn d13_sigterm_lets_programs_end_and_brings_their_results() {
    let folder = TempDir::new().unwrap();
    let gate = folder.path().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let wait =
        script(folder.path(), "wait", &format!("echo ready >&2; cat {} ; echo '{{}}'", gate.display()));
    let mut worker = Worker::start(&["--kind", &format!("wait={wait}")]);
    worker.dispatch(1, "wait", json!({}));
    worker.receive(MessageType::Feedback);
    worker.signal("TERM");
    // The next heartbeat reports that the worker drains; then the program may continue.
    loop {
        let beat = worker.receive(MessageType::Heartbeat);
        worker.ack(&beat);
        if matches!(&beat.message, Message::Heartbeat(heartbeat) if !heartbeat.healthy) {
            break;
        }
    }
    std::fs::write(&gate, "").unwrap();
    assert_eq!(worker.result().status, ResultStatus::Succeeded);
    assert_eq!(worker.process.wait().unwrap().code(), Some(0));
    let log = BufReader::new(worker.process.stderr.take().unwrap());
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let ended = lines.iter().find(|line| line["message"] == "job ended").unwrap();
    assert_eq!((&ended["tenant"], &ended["sender.id"]), (&json!("acme"), &json!("w-1")));
    assert_eq!((&ended["corr"], &ended["seq"]), (&json!("t1"), &json!(1)));
}

#[test]
fn a_worker_with_nothing_to_run_says_so() {
    for (flags, code, part) in [
        (vec!["worker"], 2, "--kind"),
        (vec!["worker", "--kind", "a"], 2, "NAME=COMMAND"),
        (vec!["worker", "--kind", "a=b", "--max-parallel", "0"], 2, "max_parallel"),
        (vec!["worker", "--file", "/nowhere/worker.toml"], 1, "/nowhere/worker.toml"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_laneway")).args(&flags).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
        assert!(said.contains(part), "{flags:?}: {said}");
    }
}
