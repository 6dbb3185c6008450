//! Bulk operations of a real server, which is killed while one of them runs.

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, code, text};

/// Jobs of the operation: many pages.
const JOBS: usize = 3_000;

async fn ask(http: &Client, server: &Server, path: &str) -> Value {
    http.get(format!("{}{path}", server.url)).send().await.unwrap().json().await.unwrap()
}

async fn begin(http: &Client, server: &Server, body: &Value) -> String {
    let answer = http.post(format!("{}/v1/jobs/bulk", server.url)).json(body).send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let operation: Value = answer.json().await.unwrap();
    assert_eq!(operation["matched"], JOBS, "{operation}");
    operation["id"].as_str().unwrap().to_owned()
}

/// Waits until the operation has a progress that satisfies this.
async fn progress(http: &Client, server: &Server, id: &str, enough: impl Fn(&Value) -> bool) -> Value {
    loop {
        let operation = ask(http, server, &format!("/v1/operations/{id}")).await;
        if enough(&operation) {
            return operation;
        }
        assert_eq!(operation["state"], "running", "{operation}");
    }
}

async fn states(http: &Client, server: &Server) -> Value {
    ask(http, server, "/v1/jobs/counts?kind=unserved").await["states"].clone()
}

/// Begins an operation, kills the server in the middle of it, and lets the next server end it.
async fn through_a_kill(http: &Client, server: Server, data: &TempDir, body: &Value) -> Server {
    let id = begin(http, &server, body).await;
    let seen = progress(http, &server, &id, |operation| operation["done"].as_u64().unwrap() > 0).await;
    // SIGKILL.
    drop(server);
    assert_eq!(seen["state"], "running", "the operation ended before the server was killed: {seen}");
    let server = Server::start(data.path(), &[]);
    let ended = progress(http, &server, &id, |operation| operation["state"] != "running").await;
    assert_eq!((&ended["state"], &ended["failed"]), (&json!("done"), &json!(0)), "{ended}");
    server
}

#[tokio::test]
async fn an_operation_goes_on_after_a_kill_and_does_nothing_twice() {
    let (data, http) = (TempDir::new().unwrap(), Client::builder().no_proxy().build().unwrap());
    let server = Server::start(data.path(), &[]);
    let jobs: Vec<Value> = (0..500).map(|n| json!({"kind": "unserved", "payload": n})).collect();
    for _ in 0..JOBS / 500 {
        let batch = http.post(format!("{}/v1/jobs/batch", server.url)).json(&json!({"jobs": jobs}));
        let answer = batch.send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
    let cancel = json!({"action": "cancel", "filter": {"kind": "unserved"}});
    let server = through_a_kill(&http, server, &data, &cancel).await;
    assert_eq!(states(&http, &server).await, json!({"canceled": JOBS}));
    let retry = json!({"action": "retry", "filter": {"kind": "unserved", "state": "canceled"}});
    let server = through_a_kill(&http, server, &data, &retry).await;
    assert_eq!(
        states(&http, &server).await,
        json!({"canceled": JOBS, "queued": JOBS}),
        "each is retried once"
    );
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn the_command_line_counts_first_and_shows_the_end() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path(), &[]);
    for _ in 0..3 {
        server.submit(&["unserved", "--agent", "ann"]);
    }
    server.submit(&["unserved", "--agent", "bob"]);
    let dry = server.run(&["jobs", "cancel", "--agent", "ann", "--dry-run"]);
    assert_eq!(code(&dry), 0, "{}", text(&dry.stderr));
    assert!(text(&dry.stdout).contains('3'), "{}", text(&dry.stdout));
    assert_eq!(server.json(&["jobs", "list", "--state", "queued"])["jobs"].as_array().unwrap().len(), 4);
    let canceled = server.run(&["jobs", "cancel", "--agent", "ann"]);
    assert_eq!(code(&canceled), 0, "{}", text(&canceled.stderr));
    assert_eq!(server.json(&["jobs", "list", "--state", "canceled"])["jobs"].as_array().unwrap().len(), 3);
    assert_eq!(server.json(&["jobs", "list", "--state", "queued"])["jobs"].as_array().unwrap().len(), 1);
}
