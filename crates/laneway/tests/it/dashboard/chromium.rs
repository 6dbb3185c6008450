//! Chromium for tests: one tab, driven over DevTools.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::PATIENCE;

/// A browser with one tab.
pub struct Browser {
    process: Child,
    socket: WebSocketStream<TcpStream>,
    calls: u64,
    violations: Vec<String>,
    _dir: TempDir,
}

impl Browser {
    /// Starts Chromium with an empty profile.
    pub async fn start() -> Browser {
        let dir = TempDir::new().unwrap();
        let program =
            laneway_browser::Chromium::find(None).expect("Chromium is installed (apt-get install chromium)");
        let process = Command::new(program.program())
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-port=0",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", dir.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let port_file = dir.path().join("DevToolsActivePort");
        let port = async {
            loop {
                let text = tokio::fs::read_to_string(&port_file).await.unwrap_or_default();
                if let Some(port) = text.lines().next().filter(|_| text.lines().count() > 1) {
                    return port.to_owned();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let port = tokio::time::timeout(PATIENCE, port).await.expect("Chromium listens");
        let list = format!("http://127.0.0.1:{port}/json/list");
        let tabs: Value = reqwest::get(list).await.unwrap().json().await.unwrap();
        let page = tabs.as_array().unwrap().iter().find(|tab| tab["type"] == "page").unwrap();
        let url = page["webSocketDebuggerUrl"].as_str().unwrap();
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        let mut browser = Browser { process, socket, calls: 0, violations: Vec::new(), _dir: dir };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({})).await;
        }
        browser
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let call = json!({"id": id, "method": method, "params": params}).to_string();
        self.socket.send(Message::text(call)).await.unwrap();
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("Chromium answers");
            let Message::Text(text) = message.unwrap().unwrap() else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            let entry = message["params"]["entry"]["text"].as_str().unwrap_or_default();
            if entry.contains("Content Security Policy") {
                self.violations.push(entry.to_owned());
            }
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    /// Opens a page, and waits until it is loaded.
    pub async fn open(&mut self, url: &str, theme: &str, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.call("Emulation.setEmulatedMedia", media).await;
        self.call("Page.navigate", json!({"url": url})).await;
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'", url).await;
    }

    /// The value of an expression.
    pub async fn eval(&mut self, script: &str) -> Value {
        let result =
            self.call("Runtime.evaluate", json!({"expression": script, "returnByValue": true})).await;
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub async fn until(&mut self, script: &str, what: &str) {
        let begin = std::time::Instant::now();
        while self.eval(script).await != json!(true) {
            if begin.elapsed() > PATIENCE {
                let page = self.eval("document.body.innerText").await;
                panic!("{what}: {script} never became true on {page}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Keeps a picture of the page.
    pub async fn screenshot(&mut self, name: &str) {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"})).await;
        let bytes = decode(picture["data"].as_str().unwrap());
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dashboard-screenshots");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{name}.png")), bytes).unwrap();
    }

    /// What the content policy kept pages from.
    pub async fn violations(&mut self) -> Vec<String> {
        self.eval("1").await;
        std::mem::take(&mut self.violations)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Base64 to bytes.
fn decode(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = ALPHABET.iter().position(|letter| *letter == byte).unwrap();
        bits = (bits << 6) | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
