//! A running browser.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::launch::Ready;
use super::ports::DebugPort;
use super::process::{Exit, Process, ProcessStart, members};
use super::record::{Identity, crash_handlers};
use crate::devtools::{Connection, DevToolsError, Hub, Outgoing};
use crate::page::Page;
use crate::proxy::Relay;

/// How long a command to the browser itself may take. They do not depend on pages.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How long the system may take to act on a SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// How long the handler of crashes may take to end after its browser, before it is killed.
const HANDLER_GRACE: Duration = Duration::from_millis(500);
/// How often the rest of the process group is looked for.
const GROUP_CHECK: Duration = Duration::from_millis(5);

/// A browser that runs. Clones are handles to the same one; when the last one is dropped, it is killed.
#[derive(Clone)]
pub struct Browser {
    inner: Arc<Inner>,
}

struct Inner {
    process: Process,
    data_dir: PathBuf,
    started: ProcessStart,
    debug_port: DebugPort,
    devtools_url: String,
    connection: Connection,
    hub: Arc<Hub>,
    /// Lives as long as the browser.
    _relay: Option<Relay>,
}

/// How a browser was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It closed by itself when DevTools asked it to, or had ended already.
    Closed(Exit),
    /// It ended after a SIGTERM.
    Terminated(Exit),
    /// It ended after a SIGKILL.
    Killed(Exit),
    /// Its process is still there even after a SIGKILL, which the system did not act on in time.
    StillRunning,
}

/// A tab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tab {
    /// Its id.
    pub id: String,
    /// What it shows.
    pub url: String,
    /// Its title.
    pub title: String,
}

impl fmt::Debug for Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Browser").field("pid", &self.pid()).field("debug_port", &self.debug_port()).finish()
    }
}

impl Browser {
    pub(super) fn new(process: Process, ready: Ready) -> Browser {
        let Ready { data_dir, port, url, connection, hub, relay } = ready;
        let unknown = || ProcessStart { boot: String::new(), ticks: 0 };
        let started = ProcessStart::of(process.pid()).unwrap_or_else(unknown);
        let inner = Inner {
            process,
            data_dir,
            started,
            debug_port: port,
            devtools_url: url,
            connection,
            hub,
            _relay: relay,
        };
        Browser { inner: Arc::new(inner) }
    }

    /// The pid, which is also the id of its process group.
    pub fn pid(&self) -> u32 {
        self.inner.process.pid()
    }

    /// When the process started. Empty where the system does not say.
    pub fn started(&self) -> &ProcessStart {
        &self.inner.started
    }

    /// The port on loopback on which DevTools listens.
    pub fn debug_port(&self) -> u16 {
        self.inner.debug_port.number()
    }

    /// The DevTools URL of the browser: `ws://127.0.0.1:…/devtools/browser/…`.
    pub fn devtools_url(&self) -> &str {
        &self.inner.devtools_url
    }

    /// Waits until the browser has ended, by itself or by [`Browser::stop`]. Several callers can wait.
    pub async fn exited(&self) -> Exit {
        self.inner.process.exited().await
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.inner.process.exit()
    }

    /// Stops it: DevTools closes it, after half of `grace` comes SIGTERM, and at the end of `grace` SIGKILL for the whole group.
    /// When it returns, no process of the group is left, except after [`Stopped::StillRunning`].
    pub async fn stop(&self, grace: Duration) -> Stopped {
        // Those of this browser: as soon as it has ended, another one may start with the same directory.
        let handlers = match self.exit() {
            None => crash_handlers(&self.inner.data_dir),
            Some(_) => Vec::new(),
        };
        let stopped = self.end(grace).await;
        if stopped == Stopped::StillRunning {
            return stopped;
        }
        let limit = Instant::now() + KILL_LIMIT;
        // The group was killed before the exit was reported; the system may need a moment to remove it.
        while !members(self.pid()).is_empty() {
            if Instant::now() >= limit {
                return Stopped::StillRunning;
            }
            sleep(GROUP_CHECK).await;
        }
        if end_crash_handlers(handlers, limit).await { stopped } else { Stopped::StillRunning }
    }

    async fn end(&self, grace: Duration) -> Stopped {
        let process = &self.inner.process;
        if let Some(exit) = process.exit() {
            return Stopped::Closed(exit);
        }
        let limit = Instant::now() + grace;
        self.inner.connection.post(Outgoing::new(None, "Browser.close", json!({})));
        if let Ok(exit) = timeout(grace / 2, process.exited()).await {
            return Stopped::Closed(exit);
        }
        process.terminate();
        if let Ok(exit) = timeout_at(limit, process.exited()).await {
            return Stopped::Terminated(exit);
        }
        process.kill();
        match timeout(KILL_LIMIT, process.exited()).await {
            Ok(exit) => Stopped::Killed(exit),
            Err(_) => Stopped::StillRunning,
        }
    }

    async fn call(&self, method: &'static str, params: Value) -> Result<Value, DevToolsError> {
        self.inner.connection.call_within(CALL_LIMIT, None, method, params).await
    }

    /// The open tabs.
    pub async fn tabs(&self) -> Result<Vec<Tab>, DevToolsError> {
        let targets = self.call("Target.getTargets", json!({})).await?;
        let text = |target: &Value, field: &str| target[field].as_str().unwrap_or_default().to_owned();
        let tabs = targets["targetInfos"].as_array().into_iter().flatten();
        let tabs = tabs.filter(|target| target["type"] == "page");
        Ok(tabs
            .map(|tab| Tab { id: text(tab, "targetId"), url: text(tab, "url"), title: text(tab, "title") })
            .collect())
    }

    /// A tab, to act on it.
    pub async fn page(&self, tab: &str) -> Result<Page, DevToolsError> {
        if let Some(state) = self.inner.hub.find(tab) {
            return Ok(Page::new(self.inner.connection.clone(), self.inner.hub.clone(), state));
        }
        // A tab that just opened is not attached yet.
        let is_open = self.tabs().await?.iter().any(|open| open.id == tab);
        if !is_open {
            return Err(DevToolsError::NoTab(tab.to_owned()));
        }
        self.attached(tab).await
    }

    /// Opens a tab with an empty page.
    pub async fn new_tab(&self) -> Result<Page, DevToolsError> {
        // A window of its own: a tab behind another one is not painted, and has no screenshot.
        let params = json!({"url": "about:blank", "newWindow": true});
        let created = self.call("Target.createTarget", params).await?;
        let page = self.attached(created["targetId"].as_str().unwrap_or_default()).await?;
        // The load of the empty page would abort a navigation that comes before its end.
        page.first_load(CALL_LIMIT).await?;
        Ok(page)
    }

    async fn attached(&self, tab: &str) -> Result<Page, DevToolsError> {
        let attached = timeout(CALL_LIMIT, self.inner.hub.attached(tab)).await;
        let silent = |_| DevToolsError::Silent {
            method: "Target.attachedToTarget".to_owned(),
            limit_ms: CALL_LIMIT.as_millis() as u64,
        };
        let state = attached.map_err(silent)?.ok_or(DevToolsError::Closed)?;
        Ok(Page::new(self.inner.connection.clone(), self.inner.hub.clone(), state))
    }

    /// Closes a tab.
    pub async fn close_tab(&self, tab: &str) -> Result<(), DevToolsError> {
        let closed = self.call("Target.closeTarget", json!({"targetId": tab})).await;
        match closed {
            Ok(_) => Ok(()),
            Err(DevToolsError::Rejected { .. }) => Err(DevToolsError::NoTab(tab.to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// Chromium starts the handlers of its crashes in groups of their own. They end after the browser; one that does not is killed. False: one
/// is still running at `limit`.
async fn end_crash_handlers(mut handlers: Vec<Identity>, limit: Instant) -> bool {
    let grace = Instant::now() + HANDLER_GRACE;
    loop {
        handlers.retain(Identity::is_running);
        if handlers.is_empty() || Instant::now() >= limit {
            return handlers.is_empty();
        }
        if Instant::now() >= grace {
            handlers.iter().for_each(Identity::kill);
        }
        sleep(GROUP_CHECK).await;
    }
}
