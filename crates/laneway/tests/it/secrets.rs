//! Secrets of the real program: its logs at the most verbose level, and imports of tokens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{ChildStderr, Stdio};
use std::thread::JoinHandle;

use laneway_core::{Name, Origin};
use laneway_store::{SqliteOptions, SqliteStore, Store as _};
use serde_json::json;
use tempfile::TempDir;

use crate::cli::{Server, code, laneway, text};

/// Secrets that must not appear.
const PAYLOAD: &str = "canary-payload-5a1d";
const WEBHOOK_SECRET: &str = "Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LTcxYjI5YzRl";
const QUERY_SECRET: &str = "canary-query-83fe";

/// Reads everything that is logged, so that the pipe never fills.
fn collect(stderr: ChildStderr) -> JoinHandle<String> {
    std::thread::spawn(move || {
        BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<_>>().join("\n")
    })
}

/// A receiver that answers one call with 200, and returns the request.
fn receive_one() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/done?token={QUERY_SECRET}", listener.local_addr().unwrap());
    let call = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut part = [0; 16_384];
        let read = stream.read(&mut part).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        text(&part[..read])
    });
    (url, call)
}

#[test]
fn defect_13_traces_hold_no_tokens_secrets_or_payloads() {
    let dir = TempDir::new().unwrap();
    let secret = format!("webhooks.secret=\"whsec_{WEBHOOK_SECRET}\"");
    let mut server = Server::start(
        dir.path(),
        &["--set", "log.filter=trace", "--set", "webhooks.allow_hosts=[\"127.0.0.1\"]", "--set", &secret],
    );
    let server_log = collect(server.process.stderr.take().unwrap());
    let admin = server.json(&["token", "create", "--role", "admin"])["secret"].as_str().unwrap().to_owned();
    let mut worker = laneway()
        .args(["--url", &server.url, "worker", "--id", "w1", "--kind", "shout=cat", "--log-filter", "trace"])
        .env("LANEWAY_TOKEN", &admin)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let worker_log = collect(worker.stderr.take().unwrap());
    let (url, call) = receive_one();
    let payload = json!({ "text": PAYLOAD }).to_string();
    for args in [vec!["submit", "shout"], vec!["submit", "echo", "--callback", &url]] {
        let job = server.json(&[&args[..], &["--payload", &payload, "--wait", "--token", &admin]].concat());
        assert_eq!(job["state"], "succeeded", "{job}");
    }
    assert!(call.join().unwrap().contains("webhook-signature"), "the delivery was signed");
    // A wrong token is a secret, too: it may be valid elsewhere.
    let wrong = server.run(&["jobs", "list", "--token", "lw_0011223344556677_canary-token"]);
    assert_eq!(code(&wrong), 5);
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(server.stop(), Some(0));
    let secret_part = admin.rsplit('_').next().unwrap();
    for (who, log) in [("server", server_log.join().unwrap()), ("worker", worker_log.join().unwrap())] {
        assert!(log.contains("DEBUG"), "the {who} says too little for this test: {log}");
        for canary in
            [secret_part, PAYLOAD, WEBHOOK_SECRET, "canary-webhook-secret", QUERY_SECRET, "canary-token"]
        {
            let line = log.lines().find(|line| line.contains(canary));
            assert!(line.is_none(), "the {who} logs {canary}: {line:?}");
        }
    }
}

#[test]
fn defect_14_a_token_is_imported_from_a_file_or_standard_input() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let (file, secret) = (dir.path().join("secret"), "pt-4f9d1c3a7be82650d1f2");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let path = file.to_str().unwrap();
    let made = server.json(&["token", "import", "--role", "admin", "--file", path]);
    assert!(made.get("secret").is_none(), "{made}");
    assert_eq!(made["token"]["role"], "admin");
    let listed = server.run(&["--token-file", path, "token", "list"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(text(&listed.stderr).is_empty(), "no warning: {}", text(&listed.stderr));
    let warned = server.run(&["--token", secret, "token", "list"]);
    assert!(
        warned.status.success() && text(&warned.stderr).contains("LANEWAY_TOKEN"),
        "{}",
        text(&warned.stderr)
    );
    let mut weak = laneway()
        .args(["--url", &server.url, "--token-file", path, "token", "import", "--role", "viewer"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    weak.stdin.take().unwrap().write_all(b"dev-token\n").unwrap();
    let weak = weak.wait_with_output().unwrap();
    let problem = text(&weak.stderr);
    assert!(code(&weak) == 1 && problem.contains("16 to 512") && !problem.contains("dev-token"), "{problem}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn defect_13_a_token_on_the_command_line_is_warned_of() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let warned = server.run(&["--token", "canary-token-91ce", "stats"]);
    let stderr = text(&warned.stderr);
    assert!(stderr.contains("list of processes") && stderr.contains("LANEWAY_TOKEN"), "{stderr}");
    assert!(!stderr.contains("canary-token"), "{stderr}");
    assert!(text(&server.run(&["stats"]).stderr).is_empty(), "no token, no warning");
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test]
async fn defect_13_tokens_that_an_earlier_version_stored_are_encrypted_at_start() {
    let dir = TempDir::new().unwrap();
    let start = || async { laneway::embedded().data_dir(dir.path()).start().await.unwrap() };
    let instance =
        json!({"instances": {"desk": {"url": "http://127.0.0.1:9867", "token": "canary-instance-44ab"}}});
    let stored = || {
        let mut store = SqliteStore::open(dir.path(), SqliteOptions::default()).unwrap();
        text(&store.overrides().unwrap().unwrap())
    };
    // An earlier version stored changes of API calls without encryption.
    let laneway = start().await;
    let settings = laneway.live_config().current().settings().clone();
    let plain = instance.to_string().into_bytes().into();
    let origin = Origin::server("test");
    laneway.scheduler().configure(settings, Some(plain), "test", origin).await.unwrap();
    laneway.shutdown().await.unwrap();
    assert!(stored().contains("canary-instance"));

    start().await.shutdown().await.unwrap();
    let sealed = stored();
    assert!(!sealed.contains("canary-instance") && sealed.contains("sealed:v1:"), "{sealed}");
    // The change is still known, and it is not stored again.
    let laneway = start().await;
    let config = laneway.live_config().current();
    let desk = laneway_browser::instances::get(&config, &Name::fixed("desk")).unwrap();
    assert!(format!("{desk:?}").contains("token"), "{desk:?}");
    laneway.shutdown().await.unwrap();
    assert_eq!(stored(), sealed);
}
