//! One tab: actions on its page.
//!
//! `action.rs` reads an action, `perform.rs` does it, `load.rs` opens addresses and waits, and `capture.rs` takes screenshots and
//! PDFs. `world.rs` runs `world.js` inside of the page, in a world that the page cannot see, and `frames.rs` finds the frame for it.

mod action;
mod capture;
mod error;
pub(crate) mod fields;
mod frames;
mod keyboard;
mod load;
mod perform;
mod world;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub(crate) use action::Verb;
pub use action::{BadAction, PageAction};
pub(crate) use capture::bytes_of;
pub use error::PageError;
pub(crate) use frames::Place;

use crate::devtools::{Connection, DevToolsError, Gone, Hub, Outgoing, TabState};

/// A tab of a browser. Clones are handles to the same one.
#[derive(Clone)]
pub struct Page {
    connection: Connection,
    hub: Arc<Hub>,
    state: Arc<TabState>,
}

/// How long an action may take, and how large its result may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// The longest time for one action. Defaults to 30 s.
    pub time: Duration,
    /// The longest result, in bytes of JSON. Defaults to 1 MiB; screenshots and PDFs have [`PageLimits::capture_bytes`].
    pub result_bytes: usize,
    /// The largest screenshot or PDF, in bytes. Defaults to 16 MiB.
    pub capture_bytes: usize,
}

impl Default for PageLimits {
    fn default() -> PageLimits {
        PageLimits { time: Duration::from_secs(30), result_bytes: 1 << 20, capture_bytes: 16 << 20 }
    }
}

impl Page {
    pub(crate) fn new(connection: Connection, hub: Arc<Hub>, state: Arc<TabState>) -> Page {
        Page { connection, hub, state }
    }

    /// Waits for the first document of a new tab.
    pub(crate) async fn first_load(&self, limit: Duration) -> Result<(), DevToolsError> {
        let silent = |_| DevToolsError::Silent {
            method: "Page.frameNavigated".to_owned(),
            limit_ms: limit.as_millis() as u64,
        };
        let loaded = self.state.until(|state| state.document().loaded || state.gone().is_some());
        tokio::time::timeout(limit, loaded).await.map_err(silent)
    }

    /// The id of the tab.
    pub fn tab(&self) -> &str {
        &self.state.tab
    }

    /// Does something with the page. The result is a JSON object such as `{"clicked":true}`; a screenshot is
    /// `{"format":"png","base64":"…"}`. Dialogs that the page opened meanwhile were dismissed and are in `dialogs`. Actions on one tab
    /// happen one after the other.
    pub async fn act(
        &self,
        action: &PageAction,
        limits: &PageLimits,
        stop: &CancellationToken,
    ) -> Result<Value, PageError> {
        let deadline = Instant::now() + limits.time;
        let run = Run { page: self, limits, deadline, frames: action.frames() };
        let work = async {
            let _alone = self.state.lock_input().await;
            run.perform(action).await
        };
        let outcome = tokio::select! {
            biased;
            done = timeout_at(deadline, work) => done.unwrap_or_else(|_| Err(PageError::TimedOut {
                waiting_for: format!("the action {}", action.kind()),
                limit_ms: limits.time.as_millis() as u64,
            })),
            gone = self.gone() => Err(gone),
            () = stop.cancelled() => Err(PageError::Canceled),
        };
        self.state.answer_next_dialog(None);
        match outcome {
            Ok(result) => Ok(self.with_dialogs(result)),
            Err(error) => {
                if error.is_timeout() || error == PageError::Canceled {
                    self.interrupt(action);
                }
                Err(error)
            }
        }
    }

    /// Waits until the tab takes no more commands.
    async fn gone(&self) -> PageError {
        self.state.until(|state| state.gone().is_some()).await;
        match self.state.gone() {
            Some(Gone::Crashed) => PageError::TabCrashed,
            _ => PageError::Closed,
        }
    }

    /// Frees the page from what the action left running: an endless script, or a load that does not end.
    fn interrupt(&self, action: &PageAction) {
        let post = |method| self.connection.post(Outgoing::new(Some(&self.state.session), method, json!({})));
        match action.verb {
            Verb::Navigate { .. } | Verb::Move(..) => post("Page.stopLoading"),
            Verb::Wait(_) => {}
            _ => post("Runtime.terminateExecution"),
        }
    }

    fn with_dialogs(&self, mut result: Value) -> Value {
        let dialogs = self.state.take_dialogs();
        if !dialogs.is_empty() && result.is_object() {
            let list = dialogs.iter().map(|dialog| json!({"type": dialog.kind, "message": dialog.message}));
            result["dialogs"] = list.collect();
        }
        result
    }

    /// A command for this tab.
    async fn call(&self, method: &'static str, params: Value) -> Result<Value, PageError> {
        self.call_in(&self.state.session, method, params).await
    }

    /// A command for the process of this tab, or of a frame in it.
    async fn call_in(
        &self,
        session: &Arc<str>,
        method: &'static str,
        params: Value,
    ) -> Result<Value, PageError> {
        self.connection.call(Some(session), method, params).await.map_err(|error| match error {
            DevToolsError::Closed => PageError::Closed,
            // The tab is closed, and the event that says so comes later.
            DevToolsError::Rejected { message, .. }
                if *session == self.state.session && message.contains("Session with given id not found") =>
            {
                PageError::Closed
            }
            error => PageError::DevTools(error),
        })
    }
}

/// One action while it is done.
struct Run<'a> {
    page: &'a Page,
    limits: &'a PageLimits,
    deadline: Instant,
    /// The selectors of the frames that the action is about, the outermost first. None: the page itself.
    frames: &'a [String],
}

impl Run<'_> {
    async fn call(&self, method: &'static str, params: Value) -> Result<Value, PageError> {
        self.page.call(method, params).await
    }

    /// The error after the deadline, with what was waited for.
    fn late(&self, waiting_for: impl Into<String>) -> PageError {
        PageError::TimedOut { waiting_for: waiting_for.into(), limit_ms: self.limits.time.as_millis() as u64 }
    }
}
