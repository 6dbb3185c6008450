//! Tasks and actions of PinchTab's clients on tabs of this machine, over HTTP, without an instance of PinchTab.

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::eventually;
use crate::cli::Server;

/// The page of the test: a form, and the same button in a frame.
const FORM: &str = "<title>Form</title><input id=i><select id=s><option>S<option>L</select><input type=checkbox id=c>\
    <button id=b onclick='o.textContent+=1' ondblclick='o.textContent+=2' onmouseover='h.textContent=3'>Go</button>\
    <p id=o></p><p id=h></p><iframe id=f srcdoc='<button id=b>inside</button>'></iframe><div style='height:3000px'></div>";

/// A caller.
struct Caller<'a> {
    server: &'a Server,
    token: String,
}

impl Caller<'_> {
    async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let client = Client::builder().no_proxy().build().unwrap();
        let request = client.request(method, format!("{}{path}", self.server.url)).bearer_auth(&self.token);
        let response = request.body(body.to_string()).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap().parse().unwrap_or(Value::Null))
    }

    /// An action at once.
    async fn act(&self, tab: &str, action: Value) -> (u16, Value) {
        self.ask(Method::POST, &format!("/tabs/{tab}/action"), &action).await
    }

    /// A task at its end.
    async fn task(&self, tab: &str, action: &str, selector: &str, params: Value) -> Value {
        let task =
            json!({"agentId": "ann", "action": action, "tabId": tab, "selector": selector, "params": params});
        let (status, answer) = self.ask(Method::POST, "/tasks", &task).await;
        assert_eq!(status, 202, "{answer}");
        let path = format!("/tasks/{}", answer["taskId"].as_str().unwrap());
        let mut ended = Value::Null;
        eventually("the task ends", async || {
            ended = self.ask(Method::GET, &path, &Value::Null).await.1;
            !ended["completedAt"].is_null()
        })
        .await;
        ended
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_action_kind_runs_as_a_task_and_at_once() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let admin = server.json(&["token", "create", "--role", "admin"])["secret"].as_str().unwrap().to_owned();
    let token = |role: &str, tenant: &str| {
        let made = server.json(&["--token", &admin, "token", "create", "--role", role, "--tenant", tenant]);
        Caller { server: &server, token: made["secret"].as_str().unwrap().to_owned() }
    };
    let (operator, submitter) = (token("operator", "acme"), token("submitter", "acme"));
    let (viewer, other) = (token("viewer", "acme"), token("operator", "other"));
    server.json(&["--token", &operator.token, "profiles", "create", "p1"]);
    let started = server.json(&["--token", &operator.token, "browsers", "start", "p1", "--wait"]);
    let tab = started["result"]["tabId"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();

    let url = format!("data:text/html,{FORM}").replace('#', "%23");
    for (action, selector, params) in [
        ("navigate", "", json!({"url": url})),
        ("wait", "#b", json!({})),
        ("click", "#b", json!({})),
        ("dblclick", "#b", json!({})),
        ("hover", "#b", json!({})),
        ("focus", "#i", json!({})),
        ("type", "#i", json!({"text": "An"})),
        ("press", "", json!({"key": "n"})),
        ("select", "#s", json!({"value": "L"})),
        ("check", "#c", json!({})),
        ("fill", "#i", json!({"value": "Bob"})),
        ("click", "#b", json!({"frame": "#f"})),
        ("scroll", "", json!({"scrollY": 100})),
        ("screenshot", "", json!({})),
        ("evaluate", "", json!({"expression": "1 + 1"})),
    ] {
        let task = operator.task(&tab, action, selector, params).await;
        assert_eq!(task["state"], "done", "{task}");
        assert_eq!(task["result"]["success"], true, "{task}");
    }
    let seen = "[o.textContent, h.textContent, i.value, s.value, c.checked, scrollY > 0]";
    let (status, read) = operator.act(&tab, json!({"kind": "evaluate", "expression": seen})).await;
    assert_eq!(
        (status, &read["result"]["result"]),
        (200, &json!(["1112", "3", "Bob", "L", true, true])),
        "{read}"
    );

    // An element by its ref of a snapshot, which a task uses later.
    let (_, snapshot) = submitter.act(&tab, json!({"kind": "snapshot", "filter": "interactive"})).await;
    let nodes = snapshot["result"]["nodes"].as_array().unwrap();
    let field = nodes.iter().find(|node| node["role"] == "textbox").unwrap();
    let task = json!({"agentId": "ann", "action": "fill", "tabId": tab, "ref": field["ref"], "params": {"value": "by ref"}});
    assert_eq!(submitter.ask(Method::POST, "/tasks", &task).await.0, 202);
    let what = json!({"what": "value"});
    eventually("the task is done", async || {
        let read = submitter.task(&tab, "extract", "#i", what.clone()).await;
        read["result"]["result"]["value"] == "by ref"
    })
    .await;

    // Code of the caller needs the role operator, whichever way it comes.
    for action in ["evaluate", "eval", "wait"] {
        let code = json!({"kind": action, "expression": "1", "function": "true"});
        let (status, answer) = submitter.act(&tab, code.clone()).await;
        assert_eq!((status, &answer["code"]), (403, &json!("forbidden")), "{action}: {answer}");
        let task = submitter.task(&tab, action, "", json!({"expression": "1", "function": "true"})).await;
        assert_eq!(task["state"], "failed", "{task}");
    }
    assert_eq!(viewer.act(&tab, json!({"kind": "text"})).await.0, 403);
    // Another tenant does not find the tab.
    let (status, answer) = other.act(&tab, json!({"kind": "text"})).await;
    assert_eq!(status, 404, "{answer}");
    assert_eq!(other.task(&tab, "text", "", json!({})).await["state"], "failed");
    // What is wrong is named.
    for (action, status, code) in [
        (json!({"kind": "click", "selector": "#none"}), 404, "element_not_found"),
        (json!({"kind": "click", "selector": "#b", "frame": "#none"}), 404, "frame_not_found"),
        (json!({"kind": "click", "ref": "e999"}), 409, "stale_ref"),
        (json!({"kind": "fly"}), 400, "bad_action"),
        (json!({"kind": "navigate", "url": "file:///etc/passwd"}), 403, "url_not_allowed"),
    ] {
        let (found, answer) = operator.act(&tab, action).await;
        assert_eq!((found, answer["code"].as_str()), (status, Some(code)), "{answer}");
    }
    assert_eq!(server.stop(), Some(0));
}
