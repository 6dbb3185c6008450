//! The server's side of the worker protocol, from outside: its log lines, restarts after a kill, client certificates.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::cli::{Server, code, laneway, text};

/// The longest wait for a message of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The worker's end of a connection, driven by the test.
struct FakeWorker {
    socket: WebSocketStream<TcpStream>,
    id: String,
    tenant: &'static str,
    frames: u64,
}

impl FakeWorker {
    /// A worker `w1` with the package `test` 1.0, which also runs the kind `k`.
    async fn registered(url: &str, tenant: &'static str, token: Option<&str>) -> FakeWorker {
        FakeWorker::having(url, tenant, token, &[]).await
    }

    /// The same, for a process that still runs these tasks.
    async fn having(url: &str, tenant: &'static str, token: Option<&str>, tasks: &[&Value]) -> FakeWorker {
        FakeWorker::connected("w1", url, tenant, token, tasks).await
    }

    async fn connected(
        id: &str,
        url: &str,
        tenant: &'static str,
        token: Option<&str>,
        tasks: &[&Value],
    ) -> FakeWorker {
        let address = url.strip_prefix("http://").unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let url = format!("ws://{address}/v1/workers/connect");
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        let mut fake = FakeWorker { socket, id: id.to_owned(), tenant, frames: 0 };
        let shake = json!({"protocol": 1, "auth": {"mode": "token", "token": token},
            "worker": {"id": id, "version": "1", "hostname": "here"}});
        fake.ask("handshake", shake, None).await;
        let capabilities =
            json!({"concurrency": {"max_parallel": 4}, "runtimes": ["test"], "features": ["kind:k"]});
        let packages = json!([{"name": "test", "version": "1.0", "status": "installed"}]);
        let tasks = tasks.iter().map(|task| json!({"task_id": task["corr"], "seq": task["seq"]}));
        let tasks: Vec<Value> = tasks.collect();
        let offer =
            json!({"capabilities": capabilities, "packages": packages, "boot_id": "b1", "tasks": tasks});
        fake.ask("register", offer, None).await;
        fake
    }

    /// Sends a frame, and waits for its acknowledgement.
    async fn ask(&mut self, kind: &str, payload: Value, task: Option<&Value>) {
        let id = self.send(kind, payload, task, json!({"request": true})).await;
        while self.receive("ack").await["payload"]["for"] != json!(id) {}
    }

    async fn send(&mut self, kind: &str, payload: Value, task: Option<&Value>, ack: Value) -> String {
        self.frames += 1;
        let id = format!("{kind}-{}", self.frames);
        let frame = json!({"type": kind, "id": id, "ts": "2030-01-01T00:00:00Z", "tenant": self.tenant,
            "sender": {"role": "worker", "id": &self.id}, "corr": task.map(|task| &task["corr"]),
            "seq": task.map(|task| &task["seq"]), "ack": ack, "payload": payload});
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
        id
    }

    /// The next dispatch; it is accepted.
    async fn take(&mut self) -> Value {
        let frame = self.receive("cmd.dispatch").await;
        let id = &frame["id"];
        self.send("ack", json!({"ok": true, "for": id}), Some(&frame), json!({"for": id})).await;
        frame
    }

    async fn bring(&mut self, task: &Value, result: Value) {
        let (run, id) = (&task["payload"]["run_id"], &task["payload"]["task_id"]);
        let result = json!({"run_id": run, "task_id": id, "status": "SUCCEEDED", "result": result});
        self.ask("result", result, Some(task)).await;
    }

    /// The code with which the server closes the connection, if it gives one.
    async fn close_code(&mut self) -> Option<u16> {
        loop {
            let received = tokio::time::timeout(PATIENCE, self.socket.next()).await;
            match received.expect("the socket stays open") {
                Some(Ok(Message::Close(close))) => return close.map(|close| close.code.into()),
                Some(Ok(_)) => {}
                None | Some(Err(_)) => return None,
            }
        }
    }

    /// The next frame of this type.
    async fn receive(&mut self, kind: &str) -> Value {
        loop {
            let received =
                tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("nothing is heard");
            if let Message::Text(text) = received.expect("the connection ended").unwrap() {
                let frame: Value = serde_json::from_str(&text).unwrap();
                if frame["type"] == kind {
                    return frame;
                }
            }
        }
    }
}

/// Reads a log while it is written, so that its writer never waits.
fn read_log(stderr: ChildStderr) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d20_the_log_of_the_server_is_json_with_the_fields_of_the_protocol() {
    let dir = TempDir::new().unwrap();
    let filter = "log.filter=debug,laneway_api=trace,laneway_runtime=trace,laneway_core=trace";
    let mut server = Server::start(dir.path(), &["--set", "log.format=json", "--set", filter]);
    let log = read_log(server.process.stderr.take().unwrap());
    let made = server.json(&["token", "create", "--role", "admin"]);
    let admin = made["secret"].as_str().unwrap().to_owned();
    let made = server.json(&["--token", &admin, "token", "create", "--role", "worker", "--tenant", "acme"]);
    let token = made["secret"].as_str().unwrap().to_owned();
    let made =
        server.json(&["--token", &admin, "token", "create", "--role", "submitter", "--tenant", "acme"]);
    let submitter = made["secret"].as_str().unwrap().to_owned();
    let submit = ["--token", &submitter, "submit", "k", "--payload", r#"{"p": "parameter-secret"}"#];

    let mut fake = FakeWorker::registered(&server.url, "acme", Some(&token)).await;
    let done = server.json(&submit)["id"].as_str().unwrap().to_owned();
    let task = fake.take().await;
    assert_eq!(task["corr"], json!(done));
    fake.bring(&task, json!({"r": "result-secret"})).await;
    // The same outcome under another id, a rejected frame, and an unreadable one.
    fake.bring(&task, json!({"r": "result-secret"})).await;
    let rejected = server.json(&submit)["id"].as_str().unwrap().to_owned();
    let second = fake.receive("cmd.dispatch").await;
    assert_eq!(
        fake.receive("cmd.dispatch").await["id"],
        second["id"],
        "it is sent again until it is answered"
    );
    let report = json!({"code": "E.CMD.CONCURRENCY_VIOLATION", "message": "no room"});
    fake.ask("error", report, Some(&second)).await;
    fake.send("feedback", json!({"run_id": "r"}), None, json!({})).await;
    fake.receive("error").await;
    drop(fake);
    assert_eq!(server.stop(), Some(0));

    let raw = log.join().unwrap();
    let whole = raw.join("\n");
    for secret in [token.as_str(), admin.as_str(), submitter.as_str(), "parameter-secret", "result-secret"] {
        assert!(!whole.contains(secret), "{secret} was written");
    }
    let lines: Vec<Value> = raw.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let check = |message: &str, kind: &str, sender: &str, corr: &str, code: Option<&str>| {
        let fits = |line: &&Value| {
            line["message"] == message
                && line["type"] == kind
                && line["sender.id"] == sender
                && line["corr"] == corr
                && line["code"].as_str() == code
        };
        let found = lines.iter().find(fits);
        let line =
            found.unwrap_or_else(|| panic!("no line {message} {kind} {sender} {corr} {code:?} in\n{whole}"));
        assert_eq!(line["tenant"], "acme", "{line}");
        assert!(line["id"].is_string() || message == "a worker rejected a task", "{line}");
        line.clone()
    };
    for (message, kind, sender, corr, code) in [
        ("sent", "cmd.dispatch", "scheduler-control", &done, None),
        ("received", "ack", "w1", &done, None),
        ("received", "result", "w1", &done, None),
        ("sent again", "cmd.dispatch", "scheduler-control", &rejected, None),
        ("received", "error", "w1", &rejected, Some("E.CMD.CONCURRENCY_VIOLATION")),
        ("a worker rejected a task", "cmd.dispatch", "w1", &rejected, Some("E.CMD.CONCURRENCY_VIOLATION")),
    ] {
        assert_eq!(check(message, kind, sender, corr, code)["seq"], 1);
    }
    check("sent", "ack", "scheduler-control", &done, Some("E.RESULT.DUPLICATE"));
    let unreadable = lines.iter().find(|line| line["message"] == "a frame cannot be read").unwrap();
    for (field, value) in
        [("tenant", "acme"), ("sender.id", "w1"), ("type", "feedback"), ("code", "E.CMD.UNKNOWN")]
    {
        assert_eq!(unreadable[field], value, "{unreadable}");
    }
    assert!(unreadable["id"].is_string(), "{unreadable}");
}

/// The original has its runs in memory only, and its cancel never reaches the worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn af_x16_a_run_survives_a_kill_and_its_cancel_reaches_the_worker() {
    let dir = TempDir::new().unwrap();
    let flags = ["--set", "dialects.astraflow.enabled=true"];
    let mut server = Server::start(dir.path(), &flags);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let node = |id: &str| json!({"id": id, "type": "t", "package": {"name": "test", "version": "1.0"}});
    let edge = json!({"id": "e", "source": {"node": "a", "port": ""}, "target": {"node": "b", "port": ""}});
    let workflow = json!({"id": "w", "nodes": [node("a"), node("b")], "edges": [edge]});
    let start = http
        .post(format!("{}/api/v1/runs", server.url))
        .json(&json!({"workflow": workflow, "clientId": "desk"}));
    let started = start.send().await.unwrap();
    assert_eq!(started.status().as_u16(), 202, "{}", started.text().await.unwrap());
    let run: Value = started.json().await.unwrap();
    let path = format!("/api/v1/runs/{}", run["runId"].as_str().unwrap());
    let mut fake = FakeWorker::registered(&server.url, "default", None).await;
    let first = fake.take().await;
    fake.bring(&first, json!({"out": 7})).await;
    let second = fake.take().await;
    assert_eq!(second["payload"]["node_id"], "b");
    let beat = json!({"healthy": true, "metrics": {"inflight": 1}});
    fake.ask("heartbeat", beat, None).await;
    server.process.kill().unwrap();
    server.process.wait().unwrap();

    let server = Server::start(dir.path(), &flags);
    let show = || async {
        http.get(format!("{}{path}", server.url)).send().await.unwrap().json::<Value>().await.unwrap()
    };
    let shown = show().await;
    assert_eq!(shown["status"], "running", "{shown}");
    assert_eq!(
        (&shown["nodes"][0]["status"], &shown["nodes"][0]["result"]),
        (&json!("succeeded"), &json!({"out": 7}))
    );
    let mut fake = FakeWorker::having(&server.url, "default", None, &[&second]).await;
    let again = fake.take().await;
    assert_eq!(
        (&again["corr"], &again["seq"]),
        (&second["corr"], &second["seq"]),
        "the same attempt, still its own"
    );
    let canceled = http.post(format!("{}{path}/cancel", server.url)).send().await.unwrap();
    assert_eq!(canceled.status().as_u16(), 202);
    let cancel = fake.receive("cmd.cancel").await;
    assert_eq!((&cancel["corr"], &cancel["seq"]), (&second["corr"], &second["seq"]));
    assert_eq!(show().await["status"], "cancelled");
    let metrics = http.get(format!("{}/metrics", server.url)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains(r#"ws_conn_active{tenant="default"} 1"#), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_15_results_of_workers_count_while_the_server_drains() {
    let dir = TempDir::new().unwrap();
    let mut server = Server::start(dir.path(), &["--set", "server.drain_limit=60s"]);
    let mut fake = FakeWorker::registered(&server.url, "default", None).await;
    let job = server.submit(&["k"]);
    let task = fake.take().await;
    let beat = json!({"healthy": true, "metrics": {"inflight": 1}});
    fake.ask("heartbeat", beat, None).await;
    server.signal("TERM");
    // From now on the worker drains and takes no jobs.
    let begun = std::time::Instant::now();
    while server.run(&["submit", "k"]).status.success() {
        assert!(begun.elapsed() < PATIENCE, "it never drains");
    }
    fake.bring(&task, json!({"n": 1})).await;
    // It waited for that task only.
    assert_eq!(fake.close_code().await, Some(1001));
    assert!(server.process.wait().unwrap().success());
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.json(&["jobs", "show", &job])["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_15_every_worker_reads_why_its_connection_ends() {
    let dir = TempDir::new().unwrap();
    let mut server = Server::start(dir.path(), &[]);
    let mut fakes = Vec::new();
    for n in 0..100 {
        let id = format!("w{n}");
        let mut fake = FakeWorker::connected(&id, &server.url, "default", None, &[]).await;
        // The server has not read this when it stops.
        fake.socket.feed(Message::Ping(vec![0; 100].into())).await.unwrap();
        fakes.push(fake);
    }
    server.signal("TERM");
    for fake in &mut fakes {
        assert_eq!(fake.close_code().await, Some(1001));
    }
    assert!(server.process.wait().unwrap().success());
}

/// An authority that signs certificates for this machine.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate for these URIs, and its key, into one file.
    fn sign(&self, dir: &Path, name: &str, uri: Option<&str>) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.subject_alt_names.extend(uri.map(|uri| SanType::URI(Ia5String::try_from(uri).unwrap())));
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        let (both, only_key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        std::fs::write(&both, cert.pem() + &key.serialize_pem()).unwrap();
        std::fs::write(&only_key, key.serialize_pem()).unwrap();
        (both, only_key)
    }

    fn write(&self, dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, self.0.pem()).unwrap();
        path
    }
}

/// Kills a process on drop.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn d4_a_worker_process_shows_its_certificate_and_runs_the_jobs_of_its_tenant() {
    let dir = TempDir::new().unwrap();
    let (authority, clients) = (Authority::new(), Authority::new());
    let (cert, key) = authority.sign(dir.path(), "server", None);
    let (ca, client_ca) = (authority.write(dir.path(), "ca.pem"), clients.write(dir.path(), "clients.pem"));
    let (boss, _) = clients.sign(dir.path(), "boss", Some("laneway://tenant/acme/role/admin"));
    let (worker, _) = clients.sign(dir.path(), "worker", Some("laneway://tenant/acme/role/worker"));
    let set = |key: &str, path: &Path| ["--set".to_owned(), format!("server.tls.{key}={}", path.display())];
    let mut flags = [set("cert", &cert), set("key", &key), set("client_ca", &client_ca)].concat();
    flags.extend(["--set".to_owned(), "workers.require_certificate=true".to_owned()]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(dir.path().join("data").as_path(), &flags);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let shown = |cert: &Path| {
        let path = |path: &Path| path.display().to_string();
        ["--ca".to_owned(), path(&ca), "--cert".to_owned(), path(cert)]
    };
    let process = laneway()
        .args([
            "--url",
            &server.url,
            "--json",
            "worker",
            "--id",
            "w-1",
            "--tenant",
            "acme",
            "--kind",
            "echo=cat",
        ])
        .args(shown(&worker))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _worker = Ends(process);
    let boss = shown(&boss);
    let mut submit: Vec<&str> = boss.iter().map(String::as_str).collect();
    submit.extend(["submit", "echo", "--payload", r#"{"a": 1}"#, "--wait"]);
    let job = server.json(&submit);
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!({"a": 1})), "{job}");
    assert_eq!(job["tenant"], "acme");
    let unauthenticated = server.run(&["--ca", ca.to_str().unwrap(), "jobs", "list"]);
    assert_ne!(
        code(&unauthenticated),
        0,
        "a worker without a certificate is rejected: {}",
        text(&unauthenticated.stdout)
    );
}
