//! Chromium for tests: one tab, driven over DevTools with real clicks. It waits for changes of the page, and never sleeps.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

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
    questions: Vec<String>,
    _dir: TempDir,
}

impl Browser {
    /// Starts Chromium with an empty profile.
    pub async fn start() -> Browser {
        let dir = TempDir::new().unwrap();
        let program =
            laneway_browser::Chromium::find(None).expect("Chromium is installed (apt-get install chromium)");
        let mut process = Command::new(program.program())
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
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, listening) = tokio::sync::oneshot::channel();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        std::thread::spawn(move || {
            let is_address = |line: &String| line.starts_with("DevTools listening on ws://");
            let found = lines.find(is_address).expect("Chromium reports its address");
            send.send(found.split('/').nth(2).unwrap().to_owned()).unwrap();
            // A full pipe would stop Chromium.
            lines.for_each(drop);
        });
        let address = tokio::time::timeout(PATIENCE, listening).await.expect("Chromium listens").unwrap();
        let list = format!("http://{address}/json/list");
        let tabs: Value = reqwest::get(list).await.unwrap().json().await.unwrap();
        let page = tabs.as_array().unwrap().iter().find(|tab| tab["type"] == "page").unwrap();
        let url = page["webSocketDebuggerUrl"].as_str().unwrap();
        let stream = TcpStream::connect(&address).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        let (violations, questions) = (Vec::new(), Vec::new());
        let mut browser = Browser { process, socket, calls: 0, violations, questions, _dir: dir };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({})).await;
        }
        browser
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.calls += 1;
        let call = json!({"id": self.calls, "method": method, "params": params}).to_string();
        self.socket.send(Message::text(call)).await.unwrap();
        self.calls
    }

    /// The next message. Questions of pages are answered with yes.
    async fn receive(&mut self) -> Value {
        let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("Chromium answers");
        let Message::Text(text) = message.unwrap().unwrap() else { return Value::Null };
        let message: Value = serde_json::from_str(&text).unwrap();
        let entry = message["params"]["entry"]["text"].as_str().unwrap_or_default();
        if entry.contains("Content Security Policy") {
            self.violations.push(entry.to_owned());
        }
        if message["method"] == "Page.javascriptDialogOpening" {
            self.questions.push(message["params"]["message"].as_str().unwrap().to_owned());
            self.send("Page.handleJavaScriptDialog", json!({"accept": true})).await;
        }
        message
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        loop {
            let message = self.receive().await;
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
        let id = self.send("Page.navigate", json!({"url": url})).await;
        let (mut answered, mut loaded) = (false, false);
        while !(answered && loaded) {
            let message = self.receive().await;
            answered |= message["id"] == id;
            loaded |= message["method"] == "Page.loadEventFired";
            // A change of the part after # loads nothing.
            loaded |= message["method"] == "Page.navigatedWithinDocument";
        }
    }

    /// The value of an expression.
    pub async fn eval(&mut self, script: &str) -> Value {
        let result =
            self.call("Runtime.evaluate", json!({"expression": script, "returnByValue": true})).await;
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true. The page checks it after each of its changes, and the next page continues.
    pub async fn until(&mut self, script: &str, what: &str) {
        let watch = format!(
            "new Promise((done) => {{
                const check = () => {{ try {{ if (({script}) === true) done(true); }} catch {{}} }};
                new MutationObserver(check).observe(document, {{attributes: true, characterData: true, childList: true, subtree: true}});
                for (const kind of ['focusin', 'focusout', 'readystatechange', 'load', 'pageshow']) addEventListener(kind, check, true);
                document.addEventListener('readystatechange', check);
                check();
            }})"
        );
        let watch = json!({"expression": watch, "returnByValue": true, "awaitPromise": true});
        let wait = async {
            while self.call("Runtime.evaluate", watch.clone()).await["result"]["value"] != json!(true) {}
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            let page = self.eval("document.body.innerText").await;
            panic!("{what}: {script} never became true on {page}");
        }
    }

    /// Clicks into the middle of an element, which must be visible and uncovered. The expression selects it.
    pub async fn click(&mut self, element: &str, what: &str) {
        self.until(&format!("Boolean({element})"), what).await;
        let at = self
            .eval(&format!(
                "(() => {{ const found = {element}; found.scrollIntoView({{block: 'center', inline: 'center'}});
                    const box = found.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
                    return {{x, y, top: found.contains(document.elementFromPoint(x, y))}}; }})()"
            ))
            .await;
        assert_eq!(at["top"], json!(true), "{what} is covered or not visible: {at}");
        for kind in ["mousePressed", "mouseReleased"] {
            let mouse = json!({"type": kind, "x": at["x"], "y": at["y"], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", mouse).await;
        }
    }

    /// Clicks the first button of the page with this text, and waits for the note that the next page shows.
    pub async fn press(&mut self, button: &str, note: &str) {
        // The note of the last page must not count.
        self.eval("document.querySelector('.note')?.remove()").await;
        self.press_in("document", button).await;
        let shown = "document.querySelector('.note')?.textContent";
        self.until(&format!("Boolean({shown}?.includes({note:?}))"), &format!("{note} after {button}")).await;
    }

    /// Clicks the first button with this text inside of an element.
    pub async fn press_in(&mut self, element: &str, button: &str) {
        let found = format!(
            "[...{element}.querySelectorAll('button')].find((b) => b.textContent.trim() === {button:?})"
        );
        self.click(&found, &format!("the button {button}")).await;
    }

    /// Writes into a field as a person does.
    pub async fn write(&mut self, field: &str, text: &str) {
        self.eval(&format!(
            "(() => {{ const field = document.querySelector({field:?}); field.focus(); field.select(); }})()"
        ))
        .await;
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// The questions that pages have asked, all answered with yes.
    pub fn questions(&mut self) -> Vec<String> {
        std::mem::take(&mut self.questions)
    }

    /// Keeps a picture of the whole page, at most 2,400 points high.
    pub async fn screenshot(&mut self, name: &str) {
        self.picture(name, None).await;
    }

    /// Keeps a picture of the page: its upper part, or the whole page.
    pub async fn picture(&mut self, name: &str, height: Option<u32>) {
        let most = height.unwrap_or(2_400);
        let size = self
            .eval(&format!("[innerWidth, Math.min({most}, document.documentElement.scrollHeight)]"))
            .await;
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let asked = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.call("Page.captureScreenshot", asked).await;
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
