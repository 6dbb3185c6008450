//! Defects that new users found: waiting, tables, short ids, payloads, the demo, log lines about failed jobs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr;

use crate::cli::{Server, code, laneway, text};

/// A command against a server, with its standard error line by line.
fn watched(server: &Server, args: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut command = laneway();
    command.args(["--url", &server.url]).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    (child, stderr)
}

/// Reads lines until one holds `part`.
fn line_with(lines: &mut BufReader<ChildStderr>, part: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "no {part:?} in {seen}");
        if line.contains(part) {
            return line;
        }
        seen.push_str(&line);
    }
}

fn on_80_columns(server: &Server, args: &[&str]) -> Output {
    laneway().args(["--url", &server.url]).args(args).env("COLUMNS", "80").output().unwrap()
}

#[test]
fn defect_19_the_demo_leaves_other_servers_alone() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let output = laneway().args(["demo", "--for", "2s"]).env("LANEWAY_URL", &server.url).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("demo-chat") && stdout.contains("SUCCEEDED") && !stdout.contains(&server.url),
        "{stdout}"
    );
    assert!(!server.json(&["lanes", "list"]).to_string().contains("demo-"));
    // A server that `--url` names is used.
    let output = server.run(&["demo", "--for", "1s"]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(server.json(&["lanes", "list"]).to_string().contains("demo-chat"));
    let unreachable =
        laneway().args(["--url", "http://127.0.0.1:1", "demo", "--for", "1s"]).output().unwrap();
    assert_eq!(code(&unreachable), 4);
}

#[test]
fn defect_19_wait_reports_attempts_and_why() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let (mut child, mut lines) =
        watched(&server, &["submit", "fail", "--payload", r#"{"times": 1}"#, "--wait"]);
    line_with(&mut lines, "submitted ");
    let why = line_with(&mut lines, "queued: ");
    assert!(why.contains("paused"), "{why}");
    server.json(&["lanes", "resume", "main"]);
    let failed = line_with(&mut lines, "attempt 1 failed: ");
    assert!(failed.contains("asked_to_fail"), "{failed}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let (mut child, mut lines) =
        watched(&server, &["submit", "sleep", "--payload", r#"{"ms": 3000}"#, "--wait"]);
    let progress = line_with(&mut lines, "attempt 1 runs");
    assert!(progress.contains(" % asleep"), "{progress}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn defect_19_ctrl_c_ends_the_wait_and_not_the_job() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (mut child, mut lines) =
        watched(&server, &["submit", "sleep", "--payload", r#"{"ms": 3600000}"#, "--wait"]);
    let id = line_with(&mut lines, "submitted ").trim().strip_prefix("submitted ").unwrap().to_owned();
    // The signal handler is installed before the first status line is written.
    line_with(&mut lines, "attempt 1 runs");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let cancel = format!("laneway --url {} jobs cancel {}", server.url, &id[28..]);
    assert!(rest.contains(&format!("job {id} goes on")) && rest.contains(&cancel), "{rest}");
    assert_eq!(server.json(&["jobs", "show", &id])["state"], "running");
}

#[test]
fn defect_19_jobs_wait_ends_as_documented() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let done = server.submit(&["echo", "--payload", "7"]);
    let waited = server.run(&["jobs", "wait", &done[28..]]);
    assert_eq!(code(&waited), 0, "{}", text(&waited.stderr));
    assert!(text(&waited.stdout).ends_with("\n7\n"), "{}", text(&waited.stdout));
    let failed = server.submit(&["fail", "--payload", r#"{"permanent": true}"#]);
    assert_eq!(code(&server.run(&["jobs", "wait", &failed])), 1);
    let endless = server.submit(&["sleep", "--payload", r#"{"ms": 3600000}"#]);
    let waited = server.run(&["jobs", "wait", &endless, "--timeout", "50ms"]);
    assert_eq!(code(&waited), 124);
    assert!(text(&waited.stderr).contains("goes on"), "{}", text(&waited.stderr));
    assert_eq!(code(&server.run(&["jobs", "wait", "00000000-0000-7000-8000-000000000000"])), 3);
    assert_eq!(server.json(&["jobs", "wait", &done])["result"], 7);
}

#[test]
fn defect_19_every_command_takes_short_ids() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.bulk.dispatch=claim"]);
    let file = dir.path().join("run.json");
    std::fs::write(&file, json!({"nodes": [{"node": "one", "job": {"kind": "echo"}}]}).to_string()).unwrap();
    let run = server.json(&["runs", "submit", file.to_str().unwrap()])["id"].as_str().unwrap().to_owned();
    let end = |id: &str| id[id.len() - 8..].to_owned();
    assert_eq!(server.json(&["runs", "get", &end(&run)])["id"], json!(run));
    assert_eq!(code(&server.run(&["runs", "get", "ffffffff"])), 3);

    let schedule = server.json(&["schedules", "create", "daily", "echo", "--every", "1h"])["id"].clone();
    let shown = server.json(&["schedules", "show", &end(schedule.as_str().unwrap())]);
    assert_eq!(shown["id"], schedule);

    let job = server.submit(&["crawl", "--lane", "bulk"]);
    let lease = server.json(&["leases", "request", "w1", "--job", &end(&job)])["lease"]["id"].clone();
    let lease = lease.as_str().unwrap();
    let released = server.json(&["leases", "release", &end(lease), "--worker", "w1"]);
    assert_eq!(released["id"], json!(lease));
    assert_eq!(server.json(&["jobs", "show", &end(&job)])["state"], "succeeded");

    let admin = server.json(&["token", "create", "--role", "admin"]);
    let secret = admin["secret"].as_str().unwrap();
    let viewer = server.json(&["--token", secret, "token", "create", "--role", "viewer"]);
    let id = viewer["token"]["id"].as_str().unwrap();
    let revoked = server.run(&["--token", secret, "token", "revoke", &id[..6]]);
    assert_eq!(code(&revoked), 0, "{}", text(&revoked.stderr));
    assert!(text(&revoked.stdout).contains(id), "the whole id is named");
}

#[test]
fn defect_19_tables_fit_80_columns() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    let agent = "an-agent-with-a-rather-long-name";
    let waits = server.submit(&["echo", "--agent", agent, "--session", "agent:a7:chat:a-long-session-key"]);
    server.submit(&["echo", "--agent", agent, "--session", "agent:a7:chat:a-long-session-key"]);
    server.json(&["schedules", "create", "a-schedule-with-a-long-name", "echo", "--cron", "0 9 * * 1-5"]);
    for args in [
        &["jobs", "list"][..],
        &["jobs", "explain", &waits],
        &["lanes", "list"],
        &["stats"],
        &["sessions", "list"],
        &["schedules", "list"],
        &["token", "list"],
    ] {
        let output = on_80_columns(&server, args);
        assert_eq!(code(&output), 0, "{args:?}: {}", text(&output.stderr));
        for line in text(&output.stdout).lines() {
            assert!(line.width() <= 80, "{args:?}: {line:?}");
        }
    }
    let list = text(&on_80_columns(&server, &["jobs", "list"]).stdout);
    assert!(list.contains(&waits[28..]) && !list.contains(&waits), "{list}");
    let piped = text(&server.run(&["jobs", "list"]).stdout);
    assert!(piped.contains(&waits) && piped.contains(agent), "{piped}");
}

#[test]
fn defect_19_the_list_says_why_a_job_waits() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "lanes.main.paused=true"]);
    server.submit(&["echo"]);
    let list = text(&server.run(&["jobs", "list"]).stdout);
    assert!(list.contains("WHY") && list.contains("paused"), "{list}");
}

#[test]
fn defect_19_show_has_the_payload() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let small = server.submit(&["echo", "--payload", r#"{"b": 1, "a": [2]}"#]);
    let shown = text(&server.run(&["jobs", "show", &small]).stdout);
    assert!(shown.contains(r#"payload     {"b": 1, "a": [2]}"#), "{shown}");
    assert_eq!(server.json(&["jobs", "show", &small])["payload"], json!({"b": 1, "a": [2]}));
    let list: Vec<u32> = (0..100).collect();
    let large = server.submit(&["echo", "--payload", &json!({"list": list}).to_string()]);
    let shown = text(&server.run(&["jobs", "show", &large]).stdout);
    assert!(shown.contains("payload     {") && shown.contains("--full shows them"), "{shown}");
    assert!(shown.lines().count() < 80, "{shown}");
    let full = text(&server.run(&["jobs", "show", &large, "--full"]).stdout);
    assert!(full.lines().any(|line| line.trim() == "99") && !full.contains("--full shows"), "{full}");
}

#[test]
fn defect_19_the_server_logs_jobs_that_fail() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "log.format=json"]);
    let twice = server.submit(&["fail", "--payload", r#"{"times": 1}"#]);
    server.run(&["jobs", "wait", &twice]);
    let never = server.submit(&["fail", "--payload", r#"{"permanent": true}"#]);
    server.run(&["jobs", "wait", &never]);
    server.json(&["submit", "echo", "--wait"]);
    let log = server.log_until_stopped();
    let about = |id: &str| log.iter().filter(|line| line["job"] == id).collect::<Vec<_>>();
    let again = about(&twice);
    assert_eq!(again.len(), 1, "{log:#?}");
    assert_eq!(
        (&again[0]["attempt"], &again[0]["kind"], &again[0]["level"]),
        (&json!(1), &json!("fail"), &json!("INFO"))
    );
    assert!(again[0]["message"].as_str().unwrap().contains("tried again"), "{again:?}");
    assert!(again[0]["retry_in_ms"].as_u64().unwrap() >= 500, "{again:?}");
    let failed = about(&never);
    assert_eq!(
        (failed.len(), &failed[0]["level"], &failed[0]["reason"]),
        (1, &json!("WARN"), &json!("permanent"))
    );
    assert_eq!(failed[0]["error"], "asked_to_fail: failed permanently, as requested");
    let machine =
        log.iter().any(|line| line["message"].as_str().is_some_and(|text| text.contains("another state")));
    assert!(!machine, "the machine's state is a line of level debug");
}

#[test]
fn defect_19_a_signal_ends_the_demo_and_removes_its_directory() {
    for signal in ["INT", "TERM", "HUP"] {
        let dir = TempDir::new().unwrap();
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let mut command = laneway();
        command.arg("demo").env("TMPDIR", dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        assert_ne!(lines.read_line(&mut String::new()).unwrap(), 0, "it says how it goes");
        assert_eq!(files(), 1, "its server has a directory");
        let number = child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &number]).status().unwrap().success());
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}: {rest}");
        assert!(rest.contains("the demo ran for"), "{signal}: {rest}");
        assert_eq!(files(), 0, "{signal}");
    }
}

#[test]
fn defect_19_a_demo_whose_output_is_closed_ends_and_removes_its_directory() {
    let dir = TempDir::new().unwrap();
    let mut command = laneway();
    command.arg("demo").env("TMPDIR", dir.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    assert_ne!(lines.read_line(&mut String::new()).unwrap(), 0);
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn defect_19_a_list_for_programs_says_why_jobs_wait() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.json(&["submit", "ehco"]);
    let list = server.json(&["jobs", "list"]);
    let why = list["jobs"][0]["waiting_for"].as_str().unwrap_or_default();
    assert!(why.contains("ehco"), "{list}");
}

#[test]
fn defect_19_help_of_submit_has_its_options_in_groups() {
    let help = text(&laneway().args(["submit", "--help"]).output().unwrap().stdout);
    let mut group = String::new();
    let (mut groups, mut found) = (Vec::new(), Vec::new());
    for line in help.lines() {
        if let Some(head) = line.strip_suffix(':').filter(|head| head.ends_with("ptions")) {
            head.clone_into(&mut group);
            groups.push(group.clone());
        }
        // Options stand at the left; descriptions and examples name options, too.
        let stands_left = line.starts_with("  ") && line.trim_start().starts_with('-');
        let Some(option) =
            line.split_whitespace().find(|word| word.starts_with("--")).filter(|_| stands_left)
        else {
            continue;
        };
        let expected = match option {
            "--payload" | "--wait" | "--help" => "Options",
            "--agent" | "--lane" | "--priority" | "--key" | "--tag" => "Queue options",
            "--not-before"
            | "--deadline"
            | "--timeout"
            | "--queue-timeout"
            | "--expected-duration"
            | "--hours" => "Time options",
            "--retries" | "--idempotency-key" | "--callback" | "--traceparent" | "--tracestate" => {
                "Retry and delivery options"
            }
            "--session"
            | "--chat"
            | "--mode"
            | "--cap"
            | "--drop"
            | "--debounce"
            | "--debounce-max"
            | "--session-concurrency" => "Session options",
            "--cost" | "--quiet" => "Machine options",
            "--url" | "--token" | "--token-file" | "--ca" | "--cert" | "--json" | "--color" => {
                "Global options"
            }
            other => panic!("say here in which group {other} belongs"),
        };
        assert_eq!(group, expected, "{line}");
        found.push(option.to_owned());
    }
    assert_eq!(found.len(), 36, "{found:?}");
    let order = ["Options", "Queue options", "Time options", "Retry and delivery options", "Session options"];
    assert_eq!(groups[..5], order, "{help}");
    assert_eq!(groups[5..], ["Machine options", "Global options"], "{help}");
}

/// Answers one call with a document, and returns the request line and the body.
fn answer_once(status: &str, document: Value) -> (String, std::thread::JoinHandle<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let status = status.to_owned();
    let asked = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let (mut first, mut len) = (String::new(), 0);
        reader.read_line(&mut first).unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).unwrap();
        let document = if document.is_null() { String::new() } else { document.to_string() };
        let head =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", document.len());
        reader.get_mut().write_all((head + &document).as_bytes()).unwrap();
        (first.trim().to_owned(), text(&body))
    });
    (url, asked)
}

#[test]
fn defect_19_warnings_of_the_server_are_shown() {
    let job = json!({
        "id": "01a1e107-0745-7000-8d3c-4aea73d31572", "state": "queued", "kind": "ehco", "agent": "default",
        "lane": "main", "tenant": "default", "priority": 0, "attempt": 0, "failures": 0, "losses": 0,
        "created_at": "2030-01-01T00:00:00Z",
        "warnings": [{"code": "unserved_kind", "message": "no handler serves kind ehco; did you mean echo?"}]});
    let (url, asked) = answer_once("201 Created", job);
    let output = laneway().args(["--url", &url, "submit", "ehco"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "warning: no handler serves kind ehco; did you mean echo?\n");
    assert!(asked.join().unwrap().0.starts_with("POST /v1/jobs "));
}

#[test]
fn defect_19_an_unknown_lane_is_shown_with_its_suggestion() {
    let problem = json!({"type": "about:blank", "title": "No such lane", "status": 422, "code": "unknown_lane",
        "field": "lane", "detail": "there is no lane mian; did you mean main?"});
    let (url, _) = answer_once("422 Unprocessable Content", problem);
    let output = laneway().args(["--url", &url, "submit", "echo", "--lane", "mian"]).output().unwrap();
    assert_eq!(code(&output), 1);
    assert_eq!(text(&output.stderr), "error: there is no lane mian; did you mean main? [unknown_lane]\n");
}

#[test]
fn defect_19_lanes_are_deleted_and_their_dispatch_is_set() {
    let (url, asked) = answer_once("204 No Content", Value::Null);
    let output = laneway().args(["--url", &url, "lanes", "delete", "old"]).output().unwrap();
    assert_eq!((code(&output), text(&output.stdout)), (0, "lane old is deleted\n".to_owned()));
    assert!(asked.join().unwrap().0.starts_with("DELETE /v1/lanes/old "));
    let (url, asked) = answer_once(
        "409 Conflict",
        json!({"type": "about:blank", "title": "", "status": 409, "code": "conflict", "detail": "no"}),
    );
    let set = ["--url", &url, "lanes", "set", "bulk", "--dispatch", "claim", "--running-max", "4"];
    assert_eq!(code(&laneway().args(set).output().unwrap()), 1);
    let (first, body) = asked.join().unwrap();
    assert!(first.starts_with("PUT /v1/lanes/bulk "), "{first}");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), json!({"running_max": 4, "dispatch": "claim"}));
    let wrong =
        laneway().args(["--url", &url, "lanes", "set", "bulk", "--dispatch", "shove"]).output().unwrap();
    assert_eq!(code(&wrong), 2);
}

#[test]
fn defect_19_a_worker_says_what_it_does() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let fails = "render-thumbnail=sh -c 'exit 65'";
    let flags = ["worker", "--id", "w1", "--kind", "shout=cat", "--kind", fails, "--log-format", "text"];
    let (mut child, mut lines) = watched(&server, &flags);
    for part in ["connected", "registered"] {
        let line = line_with(&mut lines, part);
        assert!(!line.starts_with('{') && !line.contains('\x1b'), "{line}");
    }
    let id = server.submit(&["shout"]);
    for part in ["job started", "job ended"] {
        let line = line_with(&mut lines, part);
        assert!(line.contains(&format!("{} attempt=1", &id[28..])) && line.contains("shout"), "{line}");
        assert!(line.trim_end().width() <= 80, "{line}");
    }
    // A failed job has its code, and the line still fits.
    let id = server.submit(&["render-thumbnail"]);
    let line = line_with(&mut lines, "exit_65");
    assert!(line.contains(&id[28..]) && line.contains("render-thumbnail") && line.contains("ms"), "{line}");
    assert!(line.trim_end().width() <= 80, "{} columns: {line}", line.trim_end().width());
    child.kill().unwrap();
    child.wait().unwrap();
}
