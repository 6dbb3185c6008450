//! The dialects of a real server: their paths, prefixes and addresses, and that each can be disabled.

use laneway_client::worker::{Outcome, Task, Worker};
use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, code, laneway, text};

/// The status and the body of a call.
async fn ask(method: &str, url: &str, body: &Value) -> (u16, Value) {
    let client = Client::builder().no_proxy().build().unwrap();
    let mut request = client.request(method.parse().unwrap(), url);
    if !body.is_null() {
        request = request.body(body.to_string());
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

async fn status(url: &str) -> u16 {
    ask("GET", url, &Value::Null).await.0
}

#[tokio::test]
async fn pinchtab_is_on_the_main_port_and_its_tasks_are_jobs() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.banner["dialects"]["pinchtab"], json!(server.url));
    let (code, task) =
        ask("POST", &format!("{}/tasks", server.url), &json!({"agentId": "a1", "action": "click"})).await;
    assert_eq!((code, task["taskId"].as_str().unwrap().len()), (202, 36));
    let jobs = server.json(&["jobs", "list"]);
    assert_eq!(
        (&jobs["jobs"][0]["kind"], &jobs["jobs"][0]["lane"]),
        (&json!("tab_action"), &json!("pinchtab"))
    );
}

#[tokio::test]
async fn a_dialect_can_be_switched_off() {
    let dir = TempDir::new().unwrap();
    let off = ["pinchtab", "goclaw", "synthia", "astraflow", "browser_manager"]
        .map(|name| format!("dialects.{name}.enabled=false"));
    let off: Vec<&str> = off.iter().flat_map(|switch| ["--set", switch]).collect();
    let server = Server::start(dir.path(), &off);
    for path in [
        "/tasks",
        "/scheduler/stats",
        "/tabs/t1/action",
        "/ws",
        "/api/system/scheduler/status",
        "/api/v1/runs",
        "/api/env/list",
    ] {
        assert_eq!(status(&format!("{}{path}", server.url)).await, 404, "{path}");
    }
    assert_eq!(status(&format!("{}/livez", server.url)).await, 200);
    assert_eq!(server.banner["dialects"], json!({}));
}

#[tokio::test]
async fn a_dialect_can_have_a_prefix() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "dialects.pinchtab.prefix=/pt"]);
    assert_eq!(status(&format!("{}/pt/tasks", server.url)).await, 200);
    assert_eq!(status(&format!("{}/tasks", server.url)).await, 404);
}

#[tokio::test]
async fn a_dialect_can_have_an_address_of_its_own() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "dialects.pinchtab.listen=127.0.0.1:0"]);
    let apart = server.banner["dialects"]["pinchtab"].as_str().unwrap().to_owned();
    assert_ne!(apart, server.url);
    assert_eq!(status(&format!("{apart}/tasks")).await, 200);
    assert_eq!(status(&format!("{apart}/v1/jobs")).await, 404, "nothing else is there");
    assert_eq!(status(&format!("{}/tasks", server.url)).await, 404, "and it is not on the main port");
    // The same tokens are valid on both.
    let token = server.json(&["token", "create", "--role", "admin"]);
    let (code, reply) = ask("GET", &format!("{apart}/tasks"), &Value::Null).await;
    assert_eq!((code, &reply["code"]), (401, &json!("missing_token")), "{token}");
    assert_eq!(server.stop(), Some(0));
}

/// The settings are the same for every dialect: it can be disabled, behind a prefix, or on its own address.
#[tokio::test]
async fn every_dialect_has_the_same_switches() {
    for (name, path) in [
        ("pinchtab", "/tasks"),
        ("goclaw", "/ws"),
        ("synthia", "/api/system/scheduler/queue/jobs"),
        ("astraflow", "/api/v1/runs"),
        ("browser_manager", "/api/env/list"),
    ] {
        let set = |key: &str, value: &str| format!("dialects.{name}.{key}={value}");
        let start = |switch: String| {
            let dir = TempDir::new().unwrap();
            (Server::start(dir.path(), &["--set", &switch]), dir)
        };
        let (off, _dir) = start(set("enabled", "false"));
        assert_eq!(status(&format!("{}{path}", off.url)).await, 404, "{name} is off");

        let (behind, _dir) = start(set("prefix", "/its/own"));
        assert_eq!(status(&format!("{}{path}", behind.url)).await, 404, "{name} is behind its prefix");
        assert_ne!(status(&format!("{}/its/own{path}", behind.url)).await, 404, "{name}");

        let (beside, _dir) = start(set("listen", "127.0.0.1:0"));
        let apart = beside.banner["dialects"][name].as_str().unwrap();
        assert_ne!(apart, beside.url);
        assert_eq!(status(&format!("{}{path}", beside.url)).await, 404, "{name} is not on the main port");
        assert_ne!(status(&format!("{apart}{path}")).await, 404, "{name}");
    }
}

/// Workers of AstraFlow know one address: the dialect's own address serves their socket and the routes of pages.
#[tokio::test]
async fn defect_15_workers_connect_on_the_dialects_own_address() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "dialects.astraflow.listen=127.0.0.1:0"]);
    let apart = server.banner["dialects"]["astraflow"].as_str().unwrap().to_owned();
    assert_ne!(apart, server.url);
    let worker = Worker::builder(&format!("{}/ws/worker", apart.replace("http:", "ws:")), "w1")
        .handler("nothing", |_: Task| async move { Outcome::of(&json!({})) })
        .build()
        .unwrap();
    let running = tokio::spawn(worker.run());
    for _ in 0..300 {
        let (code, _) = ask("GET", &format!("{apart}/api/v1/workers/w1"), &Value::Null).await;
        if code == 200 {
            running.abort();
            assert_eq!(
                status(&format!("{apart}/v1/jobs")).await,
                404,
                "nothing else of the native API is there"
            );
            // The route exists: it rejects the id.
            assert_eq!(status(&format!("{apart}/v1/artifacts/none.1")).await, 400);
            assert_eq!(
                status(&format!("{}/ws/worker", server.url)).await,
                400,
                "it is on the main port, too"
            );
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the worker never registers");
}

#[test]
fn an_address_that_others_reach_needs_tokens_for_dialects_too() {
    let dir = TempDir::new().unwrap();
    let rejected = laneway()
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--set",
            "dialects.pinchtab.listen=0.0.0.0:0",
            "--data-dir",
        ])
        .arg(dir.path())
        .output()
        .unwrap();
    assert_ne!(code(&rejected), 0);
    assert!(text(&rejected.stderr).contains("cannot listen on 0.0.0.0:0"), "{}", text(&rejected.stderr));
}

#[tokio::test]
async fn instances_are_put_listed_and_taken_back() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let put = server.json(&[
        "instances",
        "put",
        "desk",
        "--port",
        "9868",
        "--instance-token",
        "s3cret",
        "--tab",
        "t1",
    ]);
    let desk = json!({"id": "desk", "url": "http://127.0.0.1:9868/", "has_token": true, "tabs": ["t1"]});
    assert_eq!(put, desk);
    assert_eq!(server.json(&["instances", "list"]), json!({"instances": [desk]}));
    let table = text(&server.run(&["instances", "list"]).stdout);
    assert!(table.contains("desk") && !table.contains("s3cret"), "{table}");
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.json(&["instances", "list"]), json!({"instances": [desk]}), "a restart keeps it");
    server.json(&["instances", "delete", "desk"]);
    assert_eq!(server.json(&["instances", "list"]), json!({"instances": []}));
    assert_ne!(code(&server.run(&["instances", "delete", "desk"])), 0);
}

#[tokio::test]
async fn the_file_changes_the_limits_of_a_running_dialect() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("laneway.toml");
    std::fs::write(&file, "[dialects.pinchtab]\nmax_queue_size = 7\n").unwrap();
    let server = Server::start(&dir.path().join("data"), &["--config", file.to_str().unwrap()]);
    let stats = format!("{}/scheduler/stats", server.url);
    assert_eq!(ask("GET", &stats, &Value::Null).await.1["config"]["maxQueueSize"], 7);
    std::fs::write(&file, "[dialects.pinchtab]\nmax_queue_size = 8\n").unwrap();
    let reload = format!("{}/v1/config/reload", server.url);
    assert_eq!(ask("POST", &reload, &Value::Null).await.0, 200);
    assert_eq!(ask("GET", &stats, &Value::Null).await.1["config"]["maxQueueSize"], 8);
}
