//! One instance drives a real tab of a headless browser: a click changes the page, and the task's result shows
//! it.
//!
//! Needs Debian's `chromium` (or another one named by `LANEWAY_TEST_CHROMIUM`); `scripts/test` installs it where it can.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::instance::Instance;
use crate::world::{PATIENCE, World};

/// A button that counts how often it was clicked.
const PAGE: &str = "data:text/html,<button id=b onclick=\"o.textContent=++n+' clicks'\">Click</button>\
                    <p id=o>none</p><script>var n=0,o=document.getElementById('o')</script>";

#[tokio::test]
async fn pt_e2e_a_click_on_a_real_tab_changes_the_page() {
    let (browser, tab) = BrowserInstance::start().await;
    let other = Instance::echo(&["t2"]).await;
    let world = World::in_real_time("").await;
    // One instance lists its tabs, the tabs of the other one are registered.
    world.put_instance("browser", browser.address, &[]).await;
    world.put_instance("other", other.address, &["t2"]).await;
    for clicks in 1..=2 {
        let task = json!({"agentId": "a1", "action": "click", "tabId": tab, "params": {"selector": "#b"}});
        let id = world.submit(task).await;
        let task = world.ended(&id).await;
        assert_eq!(task["state"], "done", "{task}");
        assert_eq!(task["result"], json!({"success": true, "text": format!("{clicks} clicks")}));
    }
    let missing = json!({"agentId": "a1", "action": "click", "tabId": tab, "selector": "#nothing"});
    let id = world.submit(missing).await;
    let task = world.ended(&id).await;
    assert_eq!(
        (&task["state"], &task["error"]),
        (&json!("failed"), &json!("executor returned 404: no element #nothing"))
    );
    // The immediate path reaches the same page.
    let body = json!({"kind": "click", "selector": "#b"});
    let (status, reply) = world.ask("POST", &format!("/tabs/{tab}/action"), &body).await;
    assert_eq!((status, &reply["text"]), (200, &json!("3 clicks")));
    let id = world.submit(json!({"agentId": "a1", "action": "click", "tabId": "t2"})).await;
    assert_eq!(world.ended(&id).await["result"]["tab"], "t2");
}

/// A small instance in front of a browser.
struct BrowserInstance {
    address: SocketAddr,
    _process: Process,
}

/// The browser, which ends with the test.
struct Process {
    child: Child,
    _profile: TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state of the instance: its one tab, and the connection to it.
#[derive(Clone)]
struct Inside {
    tab: Arc<str>,
    page: Arc<Mutex<Page>>,
}

/// A DevTools connection to the page, one command at a time.
struct Page {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: Value,
    last: u64,
    /// Names of events that came while answers were awaited.
    events: Vec<String>,
}

impl BrowserInstance {
    async fn start() -> (BrowserInstance, String) {
        let (process, url) = tokio::task::spawn_blocking(launch).await.unwrap();
        let (socket, _) = connect_async(url).await.unwrap();
        let mut page = Page { socket, session: Value::Null, last: 0, events: Vec::new() };
        let tab = page.call("Target.createTarget", json!({"url": "about:blank"})).await["targetId"]
            .as_str()
            .unwrap()
            .to_owned();
        let attached = page.call("Target.attachToTarget", json!({"targetId": tab, "flatten": true})).await;
        page.session = attached["sessionId"].clone();
        page.call("Page.enable", json!({})).await;
        page.call("Page.navigate", json!({"url": PAGE})).await;
        page.until("Page.loadEventFired").await;
        let inside = Inside { tab: tab.as_str().into(), page: Arc::new(Mutex::new(page)) };
        let app =
            Router::new().route("/tabs", get(list)).route("/tabs/{tab}/action", post(act)).with_state(inside);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        (BrowserInstance { address, _process: process }, tab)
    }
}

/// Starts a browser, and returns its DevTools URL.
fn launch() -> (Process, String) {
    let program = std::env::var_os("LANEWAY_TEST_CHROMIUM").map(PathBuf::from).or_else(installed).unwrap_or_else(|| {
        panic!("there is no chromium; install it (Debian and Ubuntu: apt-get install chromium) or name one in LANEWAY_TEST_CHROMIUM")
    });
    let profile = tempfile::tempdir().unwrap();
    let mut child = Command::new(&program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--remote-debugging-port=0"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut reply = String::new();
    let url = loop {
        let line = lines.next().unwrap_or_else(|| panic!("the browser ended: {reply}")).unwrap();
        if let Some(url) = line.strip_prefix("DevTools listening on ") {
            break url.to_owned();
        }
        reply.push_str(&line);
        reply.push('\n');
    };
    // Keep reading, so that a full pipe never blocks the browser.
    std::thread::spawn(move || lines.for_each(drop));
    (Process { child, _profile: profile }, url)
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|program| program.is_file())
}

impl Page {
    /// Sends a command and waits for its answer.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": params});
        if !self.session.is_null() {
            command["sessionId"] = self.session.clone();
        }
        self.socket.send(Message::text(command.to_string())).await.unwrap();
        loop {
            let answer = self.receive().await;
            if answer["id"] == self.last {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Waits until an event happens, or has happened already.
    async fn until(&mut self, event: &str) {
        while !self.events.iter().any(|seen| seen == event) {
            self.receive().await;
        }
    }

    /// The next message of the browser.
    async fn receive(&mut self) -> Value {
        loop {
            let reply =
                tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("the browser is silent");
            let Message::Text(text) = reply.unwrap().unwrap() else { continue };
            let reply: Value = serde_json::from_str(&text).unwrap();
            self.events.extend(reply["method"].as_str().map(str::to_owned));
            return reply;
        }
    }

    /// The value of an expression in the page.
    async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        self.call("Runtime.evaluate", params).await["result"]["value"].clone()
    }

    /// Clicks into the middle of an element, as a user would. `None`: there is no such element.
    async fn click(&mut self, selector: &str) -> Option<String> {
        let selector = Value::from(selector);
        let executor = self
            .evaluate(&format!(
                "(e => e && (r => [r.x + r.width / 2, r.y + r.height / 2])(e.getBoundingClientRect()))(document.querySelector({selector}))"
            ))
            .await;
        let [x, y] = [executor.get(0)?, executor.get(1)?];
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params).await;
        }
        Some(self.evaluate("document.getElementById('o').textContent").await.as_str()?.to_owned())
    }
}

async fn list(State(inside): State<Inside>) -> Json<Value> {
    Json(json!({"tabs": [{"id": &*inside.tab}]}))
}

async fn act(State(inside): State<Inside>, Path(tab): Path<String>, Json(action): Json<Value>) -> Response {
    let selector = action["selector"].as_str().unwrap_or_default();
    if *tab != *inside.tab || action["kind"] != "click" {
        return (StatusCode::BAD_REQUEST, "not that").into_response();
    }
    match inside.page.lock().await.click(selector).await {
        Some(text) => Json(json!({"success": true, "text": text})).into_response(),
        None => (StatusCode::NOT_FOUND, format!("no element {selector}")).into_response(),
    }
}
