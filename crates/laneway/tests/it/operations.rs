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

#[test]
fn the_command_line_reschedules_prioritizes_and_deletes() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path(), &[]);
    let ids: Vec<String> = (0..3).map(|_| server.submit(&["unserved", "--agent", "ann"])).collect();
    let short = &ids[0][28..];
    let later = server.json(&["jobs", "reschedule", short, "--delay", "1h"]);
    assert_eq!((&later["state"], &later["id"]), (&json!("scheduled"), &json!(ids[0])), "{later}");
    let sooner = server.json(&["jobs", "priority", short, "--to", "-5"]);
    assert_eq!(sooner["priority"], -5, "{sooner}");
    let found = server.json(&["jobs", "list", "--search", short]);
    assert_eq!(found["jobs"].as_array().unwrap().len(), 1, "the short form of an id finds it: {found}");
    let both =
        server.run(&["jobs", "reschedule", short, "--delay", "1h", "--run-at", "2030-01-01T00:00:00Z"]);
    assert_eq!(code(&both), 2, "{}", text(&both.stderr));
    let none = server.run(&["jobs", "reschedule", short]);
    assert_eq!(code(&none), 2, "{}", text(&none.stderr));
    let dry = server.run(&["jobs", "priority", "--agent", "ann", "--to", "9", "--dry-run"]);
    assert!(code(&dry) == 0 && text(&dry.stdout).contains("3 jobs match"), "{}", text(&dry.stdout));
    let changed = server.run(&["jobs", "priority", "--agent", "ann", "--to", "9"]);
    assert_eq!(code(&changed), 0, "{}", text(&changed.stderr));
    let now = server.run(&["jobs", "reschedule", "--state", "scheduled", "--delay", "0s"]);
    assert_eq!(code(&now), 0, "{}", text(&now.stderr));
    let list = server.json(&["jobs", "list", "--state", "queued"]);
    let jobs = list["jobs"].as_array().unwrap();
    assert!(jobs.len() == 3 && jobs.iter().all(|job| job["priority"] == 9), "{list}");
    // A job must have ended, and many jobs are not deleted without a confirmation.
    let live = server.run(&["jobs", "delete", short]);
    assert!(code(&live) != 0 && text(&live.stderr).contains("cancel it first"), "{}", text(&live.stderr));
    assert_eq!(code(&server.run(&["jobs", "cancel", "--agent", "ann"])), 0);
    assert_eq!(code(&server.run(&["jobs", "delete", short])), 0);
    let asked = server.run(&["jobs", "delete", "--agent", "ann"]);
    assert!(code(&asked) == 2 && text(&asked.stderr).contains("--yes"), "{}", text(&asked.stderr));
    let deleted = server.run(&["jobs", "delete", "--agent", "ann", "--yes"]);
    assert!(
        code(&deleted) == 0 && text(&deleted.stdout).contains("2 of 2 jobs"),
        "{}",
        text(&deleted.stdout)
    );
    assert_eq!(server.json(&["jobs", "list"])["jobs"], json!([]));
}
