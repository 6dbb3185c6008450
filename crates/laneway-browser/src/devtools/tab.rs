//! What is known of a tab from its events.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::page::Place;

/// Requests of a page that are counted. A page with more of them never counts as idle.
const REQUESTS_MAX: usize = 10_000;
/// Dialogs that are remembered.
const DIALOGS_MAX: usize = 20;
/// The longest text of a dialog that is remembered, in letters.
const DIALOG_LETTERS_MAX: usize = 1_000;

/// The state of one tab, changed by its events.
pub(crate) struct TabState {
    /// The id of the tab.
    pub(crate) tab: Arc<str>,
    /// The DevTools session.
    pub(crate) session: Arc<str>,
    /// Taken by an action that sends input, so that two of them do not mix.
    input: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

/// Why a tab takes no more commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Its process crashed.
    Crashed,
    /// It was closed, or the browser ended.
    Closed,
}

/// A dialog that a page opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dialog {
    /// `alert`, `confirm`, `prompt` or `beforeunload`.
    pub(crate) kind: String,
    /// Its text.
    pub(crate) message: String,
}

/// How the next dialog is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DialogReply {
    /// As if the user had pressed OK.
    pub(crate) accept: bool,
    /// The input for a `prompt`.
    pub(crate) text: Option<String>,
}

/// The document of the main frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Document {
    /// Names the load of this document.
    pub(crate) loader: String,
    /// How many documents there were, this one included.
    pub(crate) count: u64,
    /// It is parsed.
    pub(crate) parsed: bool,
    /// It is loaded with everything that it needs.
    pub(crate) loaded: bool,
    /// It is an empty page, as a new tab shows it.
    pub(crate) blank: bool,
}

#[derive(Default)]
struct State {
    gone: Option<Gone>,
    document: Document,
    /// The HTTP status of a document, with its loader.
    status: Option<(String, u16)>,
    requests: HashSet<String>,
    quiet_since: Option<Instant>,
    dialogs: Vec<Dialog>,
    next_dialog: Option<DialogReply>,
    /// It behaves as if it were in front.
    has_focus: bool,
    /// The elements of the latest snapshot, by the number of their ref.
    refs: Vec<Place>,
}

impl TabState {
    pub(crate) fn new(tab: &str, session: &Arc<str>) -> TabState {
        let state = State { quiet_since: Some(Instant::now()), ..State::default() };
        let (changes, _) = watch::channel(0);
        TabState {
            tab: tab.into(),
            session: session.clone(),
            input: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
            changes,
        }
    }

    /// Waits until no other action sends input.
    pub(crate) async fn lock_input(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.input.lock().await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
    }

    /// Notes that the tab takes no more commands. The first reason counts.
    pub(crate) fn is_gone(&self, reason: Gone) {
        self.change(|state| state.gone = state.gone.or(Some(reason)));
    }

    /// A crashed tab that shows a document again has a new process.
    fn has_recovered(state: &mut State) {
        if state.gone == Some(Gone::Crashed) {
            state.gone = None;
        }
    }

    /// Handles an event of the tab's own session, except those that need an answer.
    pub(crate) fn event(&self, method: &str, params: &Value) {
        let text = |field: &str| params[field].as_str().unwrap_or_default().to_owned();
        match method {
            "Page.frameNavigated" if params["frame"]["parentId"].is_null() => self.change(|state| {
                TabState::has_recovered(state);
                let loader = params["frame"]["loaderId"].as_str().unwrap_or_default().to_owned();
                let count = state.document.count + 1;
                // A page from the cache of the history is complete, and has no events of a load.
                let is_complete = params["type"] == "BackForwardCacheRestore";
                let blank = params["frame"]["url"] == "about:blank";
                state.document = Document { loader, count, parsed: is_complete, loaded: is_complete, blank };
            }),
            "Page.lifecycleEvent" => self.change(|state| {
                // The first document of a tab was there before its events were switched on. The main frame has the id of the tab.
                if state.document.count == 0 && params["frameId"] == *self.tab {
                    state.document.loader = text("loaderId");
                    state.document.count = 1;
                    state.document.blank = true;
                }
                if params["loaderId"] == state.document.loader.as_str() {
                    match params["name"].as_str() {
                        Some("DOMContentLoaded") => state.document.parsed = true,
                        Some("load") => state.document.loaded = true,
                        _ => {}
                    }
                }
            }),
            "Network.requestWillBeSent" => self.change(|state| {
                if state.requests.len() < REQUESTS_MAX {
                    state.requests.insert(text("requestId"));
                    state.quiet_since = None;
                }
            }),
            "Network.responseReceived" => {
                let (request, loader) = (text("requestId"), text("loaderId"));
                if request == loader && params["type"] == "Document" {
                    let status = params["response"]["status"].as_u64().unwrap_or(0);
                    self.change(|state| state.status = Some((loader, u16::try_from(status).unwrap_or(0))));
                }
            }
            "Network.loadingFinished" | "Network.loadingFailed" => self.change(|state| {
                state.requests.remove(&text("requestId"));
                if state.requests.is_empty() && state.quiet_since.is_none() {
                    state.quiet_since = Some(Instant::now());
                }
            }),
            "Inspector.targetCrashed" => self.is_gone(Gone::Crashed),
            _ => {}
        }
    }

    /// True once, when the tab has loaded its first page: from then on it behaves as if it were in front, so that several tabs can be
    /// worked on at once. Chromium crashes now and then if the command comes while the tab shows its first, empty page.
    pub(crate) fn takes_focus(&self) -> bool {
        let mut state = self.lock();
        let takes = !state.has_focus && state.document.loaded && !state.document.blank;
        state.has_focus |= takes;
        takes
    }

    /// Notes a dialog, and returns how it is answered: as the action asked for, or dismissed. A page that asks whether it may be
    /// left is always left.
    pub(crate) fn dialog(&self, kind: &str, message: &str) -> DialogReply {
        let mut reply = DialogReply { accept: kind == "beforeunload", text: None };
        self.change(|state| {
            if state.dialogs.len() == DIALOGS_MAX {
                state.dialogs.remove(0);
            }
            let message = message.chars().take(DIALOG_LETTERS_MAX).collect();
            state.dialogs.push(Dialog { kind: kind.to_owned(), message });
            if kind != "beforeunload"
                && let Some(asked) = state.next_dialog.take()
            {
                reply = asked;
            }
        });
        reply
    }

    /// How the next dialog is to be answered.
    pub(crate) fn answer_next_dialog(&self, reply: Option<DialogReply>) {
        self.change(|state| state.next_dialog = reply);
    }

    /// The dialogs since the last call.
    pub(crate) fn take_dialogs(&self) -> Vec<Dialog> {
        std::mem::take(&mut self.lock().dialogs)
    }

    /// Where the element of a ref of the latest snapshot is.
    pub(crate) fn place_of_ref(&self, number: usize) -> Option<Place> {
        self.lock().refs.get(number).cloned()
    }

    /// The elements of a new snapshot.
    pub(crate) fn set_refs(&self, refs: Vec<Place>) {
        self.lock().refs = refs;
    }

    /// Why the tab takes no more commands, if it does not.
    pub(crate) fn gone(&self) -> Option<Gone> {
        self.lock().gone
    }

    /// The document of the main frame.
    pub(crate) fn document(&self) -> Document {
        self.lock().document.clone()
    }

    /// The HTTP status of the current document.
    pub(crate) fn status(&self) -> Option<u16> {
        let state = self.lock();
        state
            .status
            .as_ref()
            .filter(|(loader, _)| *loader == state.document.loader)
            .map(|(_, status)| *status)
    }

    /// Since when no request is open, if none is.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        self.lock().quiet_since
    }

    /// Waits until `is_so` is true. It is checked after each event.
    pub(crate) async fn until(&self, mut is_so: impl FnMut(&TabState) -> bool) {
        let mut changes = self.changes.subscribe();
        while !is_so(self) {
            // The sender is in `self`, so it is there.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
