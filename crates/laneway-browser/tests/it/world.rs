//! A browser for a test, and short ways to act on it.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use laneway_browser::page::PageError;
use laneway_browser::{Browser, Chromium, LaunchOptions, Page, PageAction, PageLimits};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use crate::site::Site;

/// How long a test waits for what must happen, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The Chromium of this machine.
pub fn chromium() -> Chromium {
    let named = std::env::var_os("LANEWAY_TEST_CHROMIUM").map(PathBuf::from);
    Chromium::find(named.as_deref()).unwrap_or_else(|_| {
        panic!("there is no chromium; install it (Debian and Ubuntu: apt-get install chromium) or name one in LANEWAY_TEST_CHROMIUM")
    })
}

pub fn limits() -> PageLimits {
    PageLimits { time: PATIENCE, ..PageLimits::default() }
}

/// A browser with one tab, and a site for it.
pub struct World {
    pub site: Site,
    pub browser: Browser,
    pub page: Page,
    pub stop: CancellationToken,
    pub directory: TempDir,
}

impl World {
    pub async fn start() -> World {
        World::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut LaunchOptions)) -> World {
        World::started_as(&chromium(), tempfile::tempdir().unwrap(), change).await
    }

    /// With more arguments than a browser is usually started with.
    pub async fn with_arguments(more: &str, change: impl FnOnce(&mut LaunchOptions)) -> World {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("exec {} \"$@\" {more}", chromium().program().display());
        let program = crate::fakes::fake(&directory, &script);
        World::started_as(&program, directory, change).await
    }

    async fn started_as(
        program: &Chromium,
        directory: TempDir,
        change: impl FnOnce(&mut LaunchOptions),
    ) -> World {
        let mut options = options(&directory);
        change(&mut options);
        let stop = CancellationToken::new();
        let browser = program.launch(&options, &stop).await.unwrap();
        let page = browser.new_tab().await.unwrap();
        World { site: Site::start().await, browser, page, stop, directory }
    }

    pub async fn try_act(&self, action: Value) -> Result<Value, PageError> {
        let parsed = PageAction::parse(&action).unwrap_or_else(|error| panic!("{action}: {error}"));
        self.page.act(&parsed, &limits(), &self.stop).await
    }

    pub async fn act(&self, action: Value) -> Value {
        self.try_act(action.clone()).await.unwrap_or_else(|error| panic!("{action}: {error}"))
    }

    pub async fn fails(&self, action: Value) -> String {
        match self.try_act(action.clone()).await {
            Ok(result) => panic!("{action}: {result}"),
            Err(error) => error.to_string(),
        }
    }

    /// Opens a page with this body.
    pub async fn show(&self, body: &str) {
        let url = self.site.page(body);
        self.act(json!({"kind": "navigate", "url": url})).await;
    }

    pub async fn evaluate(&self, expression: &str) -> Value {
        self.act(json!({"kind": "evaluate", "expression": expression})).await["result"].clone()
    }

    pub async fn end(self) {
        self.browser.stop(PATIENCE).await;
    }
}

pub fn options(directory: &TempDir) -> LaunchOptions {
    LaunchOptions { start_limit: PATIENCE, ..LaunchOptions::new(directory.path().join("profile")) }
}

/// Sends one command to the tab over a DevTools connection of its own, as another client of the debug port would. `None`: there was no
/// answer.
pub async fn send_to_tab(world: &World, method: &str, params: Value) -> Option<Value> {
    let url = format!("ws://127.0.0.1:{}/devtools/page/{}", world.browser.debug_port(), world.page.tab());
    let stream = TcpStream::connect(("127.0.0.1", world.browser.debug_port())).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let command = json!({"id": 1, "method": method, "params": params});
    socket.send(Message::text(command.to_string())).await.unwrap();
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await.ok()??.ok()?;
        let message: Value = serde_json::from_str(message.to_text().ok()?).ok()?;
        if message["id"] == 1 {
            return Some(message);
        }
    }
}
