//! A graceful stop, and SIGUSR1, while an HTTP target works: a job that allows no loss is not sent a second time.
//!
//! The tests use a real process and real sockets. The decisions of the engine are tested in `laneway-core`.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::Server;
use crate::webhooks::Hook;

/// A server whose jobs of kind `render` go to a target, with this limit of losses.
fn with_target(dir: &TempDir, hook: &Hook, losses_max: u32) -> Server {
    let target = format!("kinds.render.target={}", hook.url);
    let losses = format!("kinds.render.retry.losses_max={losses_max}");
    let flags = [
        &target,
        "kinds.render.retry.retries_max=0",
        &losses,
        "kinds.render.timeout=1h",
        "server.drain_limit=0s",
    ];
    let flags: Vec<&str> = flags.into_iter().flat_map(|flag| ["--set", flag]).collect();
    Server::start(dir.path(), &flags)
}

/// The job ended as lost after one attempt, and the target is called again only for another job.
fn is_lost_and_sent_once(server: &Server, hook: &Hook, id: &str) {
    let job = server.json(&["jobs", "show", id]);
    assert_eq!((&job["state"], &job["reason"]), (&json!("failed"), &json!("lost")), "{job}");
    assert_eq!(job["attempt"], 1, "{job}");
    server.submit(&["render", "--wait"]);
    hook.next();
    assert!(hook.calls.try_recv().is_err(), "the target was called again");
}

#[test]
fn defect_02_a_stop_sends_nothing_to_a_target_again_that_allows_no_loss() {
    let (dir, hook) = (TempDir::new().unwrap(), Hook::start(1));
    let server = with_target(&dir, &hook, 0);
    let id = server.submit(&["render"]);
    hook.next();
    assert_eq!(server.stop(), Some(0));
    let server = with_target(&dir, &hook, 0);
    is_lost_and_sent_once(&server, &hook, &id);
}

#[test]
fn a_stop_hands_back_what_allows_a_loss_and_it_is_sent_again() {
    let (dir, hook) = (TempDir::new().unwrap(), Hook::start(1));
    let server = with_target(&dir, &hook, 1);
    let id = server.submit(&["render"]);
    hook.next();
    assert_eq!(server.stop(), Some(0));
    let server = with_target(&dir, &hook, 1);
    hook.next();
    assert!(server.run(&["jobs", "wait", &id]).status.success());
}

#[test]
fn defect_02_a_reset_of_sessions_sends_nothing_again_that_allows_no_loss() {
    let (dir, hook) = (TempDir::new().unwrap(), Hook::start(1));
    let server = with_target(&dir, &hook, 0);
    let id = server.submit(&["render", "--session", "s1"]);
    hook.next();
    server.signal("USR1");
    server.run(&["jobs", "wait", &id]);
    is_lost_and_sent_once(&server, &hook, &id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_02_a_stop_sends_no_tab_action_again() {
    let (dir, hook) = (TempDir::new().unwrap(), Hook::start(1));
    let at = hook.url.strip_suffix("/done").unwrap();
    let url = format!("instances.desk.url={at}");
    let flags = ["--set", &url, "--set", "instances.desk.tabs=[\"t1\"]", "--set", "server.drain_limit=0s"];
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let click = async |server: &Server| {
        let body = json!({"agentId": "a1", "action": "click", "tabId": "t1"});
        let sent = http.post(format!("{}/tasks", server.url)).json(&body).send().await.unwrap();
        sent.json::<Value>().await.unwrap()["taskId"].as_str().unwrap().to_owned()
    };
    let server = Server::start(dir.path(), &flags);
    let id = click(&server).await;
    assert!(hook.next().starts_with("POST /tabs/t1/action"));
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &flags);
    let task = http.get(format!("{}/tasks/{id}", server.url)).send().await.unwrap();
    let task = task.json::<Value>().await.unwrap();
    let message = "executor request failed: the scheduler stopped while the task ran";
    assert_eq!((&task["state"], &task["error"]), (&json!("failed"), &json!(message)), "{task}");
    click(&server).await;
    hook.next();
    assert!(hook.calls.try_recv().is_err(), "the action was sent again");
}
