//! Events of a browser: tabs that come and go, dialogs, and the password of the proxy.
//!
//! The browser attaches every new tab, frame and worker to the connection before it runs. So each of them gets its
//! settings, and a request cannot pass them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_runtime::config::Secret;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::connection::Outgoing;
use super::tab::{Gone, TabState};
use crate::chromium::ports;

/// Tabs that are known at once. A page that opens more of them gets them closed.
const TABS_MAX: usize = 200;
/// Frames with a process of their own that are known at once.
const FRAMES_MAX: usize = 1_000;
/// Requests whose authentication is remembered, so that a wrong password is sent once and not for ever.
const CHALLENGES_MAX: usize = 1_000;

/// What the browser's targets are set to.
#[derive(Clone, Debug)]
pub(crate) struct HubOptions {
    /// User and password of the proxy.
    pub(crate) proxy_credentials: Option<(String, Secret)>,
    /// The language that pages see.
    pub(crate) locale: Option<String>,
    /// `file:` URLs may be opened.
    pub(crate) allow_file_urls: bool,
}

/// What is known of a browser's tabs.
pub(crate) struct Hub {
    options: HubOptions,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// Tabs by their session.
    by_session: HashMap<Arc<str>, Arc<TabState>>,
    /// Tabs by their id.
    by_tab: HashMap<Arc<str>, Arc<TabState>>,
    /// Sessions of frames that have a process of their own, by the id of the frame.
    frames: HashMap<Arc<str>, Arc<str>>,
    /// Requests for which the password was sent.
    challenged: HashSet<String>,
    closed: bool,
}

impl Hub {
    pub(crate) fn new(options: HubOptions) -> Hub {
        let (changes, _) = watch::channel(0);
        Hub { options, state: Mutex::default(), changes }
    }

    /// True if `file:` URLs may be opened.
    pub(crate) fn allows_file_urls(&self) -> bool {
        self.options.allow_file_urls
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tab with this id, as soon as it is attached. `None`: the connection is closed.
    pub(crate) async fn attached(&self, tab: &str) -> Option<Arc<TabState>> {
        self.until(|state| state.by_tab.get(tab).cloned()).await
    }

    /// Any tab, as soon as one is attached. `None`: the connection is closed.
    pub(crate) async fn any_attached(&self) -> Option<Arc<TabState>> {
        self.until(|state| state.by_tab.values().next().cloned()).await
    }

    async fn until(&self, mut find: impl FnMut(&State) -> Option<Arc<TabState>>) -> Option<Arc<TabState>> {
        let mut changes = self.changes.subscribe();
        loop {
            {
                let state = self.lock();
                if let Some(found) = find(&state) {
                    return Some(found);
                }
                if state.closed {
                    return None;
                }
            }
            changes.changed().await.ok()?;
        }
    }

    /// The tab with this id, if it is attached.
    pub(crate) fn find(&self, tab: &str) -> Option<Arc<TabState>> {
        self.lock().by_tab.get(tab).cloned()
    }

    /// The session of a frame that has a process of its own.
    pub(crate) fn session_of_frame(&self, frame: &str) -> Option<Arc<str>> {
        self.lock().frames.get(frame).cloned()
    }

    /// The connection has ended: every tab is gone.
    pub(crate) fn closed(&self) {
        let tabs: Vec<Arc<TabState>> = {
            let mut state = self.lock();
            state.closed = true;
            state.by_session.clear();
            state.frames.clear();
            state.by_tab.drain().map(|(_, tab)| tab).collect()
        };
        tabs.iter().for_each(|tab| tab.is_gone(Gone::Closed));
        self.changes.send_modify(|count| *count += 1);
    }

    /// Handles an event, and returns the commands that answer it.
    pub(crate) fn event(&self, session: Option<&Arc<str>>, method: &str, params: Value) -> Vec<Outgoing> {
        match method {
            "Target.attachedToTarget" => return self.target_attached(&params),
            "Target.detachedFromTarget" => self.target_detached(&params),
            "Target.targetCrashed" => {
                let tab = params["targetId"].as_str().and_then(|tab| self.find(tab));
                tab.inspect(|tab| tab.is_gone(Gone::Crashed));
            }
            "Fetch.requestPaused" => return vec![self.request_paused(session, &params)],
            "Fetch.authRequired" => return vec![self.auth_required(session, &params)],
            _ => {
                let Some(session) = session else { return Vec::new() };
                let Some(tab) = self.lock().by_session.get(session).cloned() else { return Vec::new() };
                if method == "Page.javascriptDialogOpening" {
                    return vec![dialog_opened(&tab, &params)];
                }
                tab.event(method, &params);
                if tab.takes_focus() {
                    let params = json!({"enabled": true});
                    return vec![Outgoing::new(Some(session), "Emulation.setFocusEmulationEnabled", params)];
                }
            }
        }
        Vec::new()
    }

    fn target_attached(&self, params: &Value) -> Vec<Outgoing> {
        let Some(session) = params["sessionId"].as_str().map(Arc::<str>::from) else { return Vec::new() };
        let target = &params["targetInfo"];
        let is_tab = target["type"] == "page";
        if is_tab && let Some(id) = target["targetId"].as_str() {
            let mut state = self.lock();
            if state.by_tab.len() >= TABS_MAX {
                return vec![Outgoing::new(None, "Target.closeTarget", json!({"targetId": id}))];
            }
            let tab = Arc::new(TabState::new(id, &session));
            state.by_session.insert(session.clone(), tab.clone());
            state.by_tab.insert(id.into(), tab);
            drop(state);
            self.changes.send_modify(|count| *count += 1);
        }
        if target["type"] == "iframe"
            && let Some(id) = target["targetId"].as_str()
        {
            let mut state = self.lock();
            // A page with more frames than that has frames that are not acted on.
            if state.frames.len() < FRAMES_MAX {
                state.frames.insert(id.into(), session.clone());
            }
        }
        self.settings_of(&session, is_tab)
    }

    /// The commands for a new target, in their order. The last one lets it run.
    fn settings_of(&self, session: &Arc<str>, is_tab: bool) -> Vec<Outgoing> {
        let command = |method, params| Outgoing::new(Some(session), method, params);
        let mut commands = Vec::new();
        if is_tab {
            commands.push(command("Page.enable", json!({})));
            commands.push(command("Page.setLifecycleEventsEnabled", json!({"enabled": true})));
            commands.push(command("Network.enable", json!({"maxTotalBufferSize": 0})));
            commands.push(command("Inspector.enable", json!({})));
        }
        if let Some(locale) = &self.options.locale {
            commands.push(command("Emulation.setLocaleOverride", json!({"locale": locale})));
        }
        // Every request is held where the proxy needs a password, otherwise only those for files and for debug ports.
        let has_credentials = self.options.proxy_credentials.is_some();
        let patterns = match (has_credentials, self.options.allow_file_urls) {
            (true, _) => json!([{"urlPattern": "*"}]),
            (false, true) => json!([{"urlPattern": ports::REQUESTS}]),
            (false, false) => json!([{"urlPattern": "file://*"}, {"urlPattern": ports::REQUESTS}]),
        };
        let params = json!({"patterns": patterns, "handleAuthRequests": has_credentials});
        commands.push(command("Fetch.enable", params));
        commands.push(command("Target.setAutoAttach", auto_attach()));
        commands.push(command("Runtime.runIfWaitingForDebugger", json!({})));
        commands
    }

    fn target_detached(&self, params: &Value) {
        let Some(session) = params["sessionId"].as_str() else { return };
        let mut state = self.lock();
        state.frames.retain(|_, of| **of != *session);
        let Some(tab) = state.by_session.remove(session) else { return };
        state.by_tab.remove(&tab.tab);
        drop(state);
        tab.is_gone(Gone::Closed);
        self.changes.send_modify(|count| *count += 1);
    }

    fn request_paused(&self, session: Option<&Arc<str>>, params: &Value) -> Outgoing {
        let request = &params["requestId"];
        let url = params["request"]["url"].as_str().unwrap_or_default();
        let is_denied_file = url.starts_with("file:") && !self.options.allow_file_urls;
        if is_denied_file || ports::is_debug_port(url) {
            let params = json!({"requestId": request, "errorReason": "AccessDenied"});
            return Outgoing::new(session, "Fetch.failRequest", params);
        }
        Outgoing::new(session, "Fetch.continueRequest", json!({"requestId": request}))
    }

    fn auth_required(&self, session: Option<&Arc<str>>, params: &Value) -> Outgoing {
        let id = params["requestId"].as_str().unwrap_or_default().to_owned();
        let answer = match &self.options.proxy_credentials {
            Some((user, password)) if params["authChallenge"]["source"] == "Proxy" && self.is_first(&id) => {
                json!({
                    "response": "ProvideCredentials", "username": user, "password": password.reveal(),
                })
            }
            _ => json!({"response": "CancelAuth"}),
        };
        Outgoing::new(
            session,
            "Fetch.continueWithAuth",
            json!({"requestId": id, "authChallengeResponse": answer}),
        )
    }

    /// True for the first challenge of a request. A second one means that the password is wrong.
    fn is_first(&self, request: &str) -> bool {
        let challenged = &mut self.lock().challenged;
        if challenged.len() >= CHALLENGES_MAX {
            challenged.clear();
        }
        challenged.insert(request.to_owned())
    }
}

/// Attach every target before it runs.
pub(crate) fn auto_attach() -> Value {
    json!({"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true})
}

fn dialog_opened(tab: &TabState, params: &Value) -> Outgoing {
    let text = |field: &str| params[field].as_str().unwrap_or_default();
    let reply = tab.dialog(text("type"), text("message"));
    let mut answer = json!({"accept": reply.accept});
    if let Some(text) = reply.text {
        answer["promptText"] = text.into();
    }
    Outgoing::new(Some(&tab.session), "Page.handleJavaScriptDialog", answer)
}
