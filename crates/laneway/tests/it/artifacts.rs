//! Artifacts from end to end: a program writes files, the server passes them on, a command downloads them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, laneway};

/// A worker in a process of its own.
struct Worker(Child);

impl Worker {
    /// Starts a worker of this server whose programs make artifacts in `folder`.
    fn start(server: &Server, folder: &Path, flags: &[&str]) -> Worker {
        let process = laneway()
            .args(["--url", &server.url, "--json", "worker", "--id", "w-1", "--artifacts"])
            .arg(folder)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut worker = Worker(process);
        let mut banner = String::new();
        BufReader::new(worker.0.stdout.take().unwrap()).read_line(&mut banner).unwrap();
        worker
    }

    /// Waits until it ends by itself.
    fn end(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Every file and folder below `folder`.
fn below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        found.push(entry.file_name().into_string().unwrap());
        if entry.metadata().unwrap().is_dir() {
            found.extend(below(&entry.path()));
        }
    }
    found
}

/// Runs a job to its end, and returns its artifacts.
fn make(server: &Server, kind: &str) -> (Value, Vec<Value>) {
    let output = server.run(&["--json", "submit", kind, "--wait"]);
    let job: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    let list = server.json(&["artifacts", "list", job["id"].as_str().unwrap()]);
    (job, list["artifacts"].as_array().unwrap().clone())
}

#[test]
fn files_that_a_program_leaves_are_fetched_through_the_server() {
    let (data, made) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path(), &[]);
    let good =
        "good=sh -c 'cd \"$LANEWAY_ARTIFACTS\" && printf hello > b.txt && head -c 3000000 /dev/zero > a.bin'";
    let bad = "bad=sh -c 'echo > \"$LANEWAY_ARTIFACTS/x\"; exit 65'";
    let odd = "odd=sh -c 'mkdir \"$LANEWAY_ARTIFACTS/x\"'";
    let worker = Worker::start(&server, made.path(), &["--kind", good, "--kind", bad, "--kind", odd]);

    let (_, artifacts) = make(&server, "good");
    let listed: Vec<Value> = artifacts
        .iter()
        .map(|artifact| {
            json!([artifact["metadata"], artifact["size_bytes"], artifact["type"], artifact["worker_id"]])
        })
        .collect();
    let expected = [
        json!([{"name": "a.bin"}, 3_000_000, "file", "w-1"]),
        json!([{"name": "b.txt", "mime_type": "text/plain"}, 5, "file", "w-1"]),
    ];
    assert_eq!(listed, expected);

    // To standard output, and to a file.
    let id = |at: usize| artifacts[at]["id"].as_str().unwrap();
    assert_eq!(server.run(&["artifacts", "get", id(1)]).stdout, b"hello");
    let file = data.path().join("fetched.bin");
    let saved = server.json(&["artifacts", "get", id(0), "-o", file.to_str().unwrap()]);
    assert_eq!(saved["bytes"], 3_000_000);
    assert_eq!(std::fs::read(&file).unwrap(), vec![0; 3_000_000]);
    let page = text(&server.run(&[
        "artifacts",
        "list",
        artifacts[0]["id"].as_str().unwrap().split('.').next().unwrap(),
    ]));
    assert!(page.contains("a.bin") && page.contains("3000000"), "{page}");

    // A failed program leaves no artifacts. A folder or a link is not an artifact.
    let before = below(made.path()).len();
    for (kind, code) in [("bad", "exit_65"), ("odd", "bad_artifact")] {
        let (job, artifacts) = make(&server, kind);
        assert_eq!((&job["error"]["code"], artifacts.len()), (&json!(code), 0), "{job}");
    }
    assert_eq!(below(made.path()).len(), before);

    // A missing artifact is an error, not an empty file.
    let nothing = data.path().join("nothing.bin");
    worker.end();
    let output = server.run(&["artifacts", "get", id(0), "-o", nothing.to_str().unwrap()]);
    assert!(text(&output).contains("worker_away"), "{}", text(&output));
    assert!(!output.status.success() && !nothing.exists());
    assert_eq!(below(made.path()), Vec::<String>::new(), "a worker that ends takes its artifacts along");
    let missing = server.run(&["artifacts", "get", "00000000-0000-7000-8000-000000000000.1"]);
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing));
}
