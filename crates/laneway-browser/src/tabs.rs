//! Finds the instance that has a browser tab: registered tabs first, then the tabs that the instances list themselves.
//!
//! The lists of the instances are remembered until a tab is not found. Then each instance is asked again, at most once a
//! second; a caller that comes sooner waits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use laneway_core::{JobRow, Name, Role};
use laneway_runtime::config::Config;
use laneway_runtime::executors::context::cut;
use laneway_runtime::executors::http::answer::{Body, read_body, with_causes};
use laneway_runtime::executors::http::{HttpClient, HttpError, printable};
use laneway_runtime::live_config::LiveConfig;
use reqwest::Url;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::watch;

use crate::browsers::{Browsers, WeakBrowsers};
use crate::instances::{self, Instance, TAB_LEN_MAX};
use crate::page::Page;

/// An instance is asked for its tabs at most this often.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long an instance may take to list its tabs.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest list of tabs that is read, in bytes.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Most tabs that are remembered from all lists together.
const LISTED_MAX: usize = 100_000;
/// Most instances that are asked at the same time.
const ASKS_MAX: usize = 16;
/// Longest cause in the error for a tab that is not found, in bytes.
const CAUSE_MAX: usize = 512;

/// Finds tabs and acts on them. Clones share what they know.
#[derive(Clone)]
pub struct Tabs {
    pub(crate) inner: Arc<Inner>,
    /// The browsers of this machine. Weak: the loop holds the handlers of tab actions, and must not hold these.
    own: Option<WeakBrowsers>,
}

pub(crate) struct Inner {
    pub(crate) client: HttpClient,
    configs: watch::Receiver<Arc<Config>>,
    known: Mutex<Known>,
}

/// The tabs that are known without asking an instance.
#[derive(Default)]
struct Known {
    /// The registered tabs of a configuration.
    registered: Option<(Arc<Config>, HashMap<String, Name>)>,
    listed: BTreeMap<Name, Listed>,
    asked: BTreeMap<Name, Arc<tokio::sync::Mutex<Asked>>>,
}

/// The list of an instance, and its URL at that time.
struct Listed {
    url: Url,
    tabs: HashSet<String>,
    /// The listed tabs for which the instance answered 404 since. The 404 may be about the tab, or about something in it.
    doubtful: HashSet<String>,
}

/// When and at which URL an instance was last asked, and why it did not answer.
#[derive(Default)]
struct Asked {
    last: Option<(Instant, Url)>,
    error: Option<String>,
}

/// The instance that has a tab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its id.
    pub id: Name,
    /// The instance.
    pub instance: Instance,
}

/// No instance has the tab.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("tab {tab:?} not found: {cause}")]
pub struct NoTab {
    tab: String,
    cause: String,
}

impl Tabs {
    /// Finds tabs of the instances that the configuration names, as it changes.
    pub fn new(live: &LiveConfig) -> Result<Tabs, HttpError> {
        let (client, configs) = (HttpClient::new()?, live.subscribe());
        Ok(Tabs { inner: Arc::new(Inner { client, configs, known: Mutex::default() }), own: None })
    }

    /// Finds tabs of these browsers, too, before those of instances.
    pub fn with_browsers(self, browsers: &Browsers) -> Tabs {
        Tabs { own: Some(browsers.downgrade()), ..self }
    }

    /// True when a caller of this role may run code in tabs of this machine.
    pub fn may_script(&self, role: Role) -> bool {
        self.browsers().is_some_and(|browsers| browsers.may_script(role))
    }

    /// True when the submitter of a job may run code in tabs of this machine.
    pub(crate) fn may_submitter_script(&self, row: &JobRow) -> bool {
        self.browsers().is_some_and(|browsers| browsers.check_script_right(row).is_ok())
    }

    /// A tab of an open browser of the tenant. `None`: there is none.
    pub(crate) async fn own_page(&self, tenant: &Name, tab: &str) -> Option<Page> {
        self.browsers()?.fleet().page(tenant, tab).await
    }

    fn browsers(&self) -> Option<Browsers> {
        self.own.as_ref().and_then(WeakBrowsers::upgrade)
    }

    /// The instance that has the tab. Asks the instances when none is known to have it.
    pub async fn find(&self, tab: &str) -> Result<Owner, NoTab> {
        let none = |cause: &str| NoTab {
            tab: cut(tab, TAB_LEN_MAX).to_owned(),
            cause: cut(cause, CAUSE_MAX).to_owned(),
        };
        if tab.is_empty() || tab.len() > TAB_LEN_MAX || matches!(tab, "." | "..") {
            return Err(none("this is no id of a tab"));
        }
        let config = self.inner.configs.borrow().clone();
        if instances::all(&config).next().is_none() {
            return Err(none("there are no instances"));
        }
        if let Some(owner) = self.known_owner(&config, tab, false) {
            return Ok(owner);
        }
        let since = Instant::now();
        let asks: Vec<_> = instances::all(&config)
            .map(|(id, instance)| {
                let (tabs, id, instance) = (self.clone(), id.clone(), instance.clone());
                async move { tabs.ask(&id, &instance, since).await.map_err(|error| format!("{id}: {error}")) }
            })
            .collect();
        let mut answers = stream::iter(asks).buffer_unordered(ASKS_MAX);
        let mut errors = Vec::new();
        while let Some(answer) = answers.next().await {
            // The first that has it is enough; a slow one is not waited for.
            if let Some(owner) = self.known_owner(&config, tab, false) {
                return Ok(owner);
            }
            errors.extend(answer.err());
        }
        // Its instance was asked just now, or does not answer: its last list is the best information.
        if let Some(owner) = self.known_owner(&config, tab, true) {
            return Ok(owner);
        }
        errors.sort();
        match errors.is_empty() {
            true => Err(none("no instance has it")),
            false => Err(none(&format!("no instance that answers has it ({})", errors.join("; ")))),
        }
    }

    /// The instance answered that it has no such tab: the next search does not rely on its list.
    pub fn doubt(&self, owner: &Name, tab: &str) {
        if let Some(listed) = self.known().listed.get_mut(owner)
            && listed.tabs.contains(tab)
        {
            listed.doubtful.insert(tab.to_owned());
        }
    }

    /// The owner of the tab, if it is known.
    fn known_owner(&self, config: &Arc<Config>, tab: &str, doubtful: bool) -> Option<Owner> {
        let mut known = self.known();
        let owner = |id: &Name| {
            instances::get(config, id).map(|instance| Owner { id: id.clone(), instance: instance.clone() })
        };
        if let Some(id) = known.registered(config).get(tab) {
            return owner(id);
        }
        // The list of an instance that has moved since does not count.
        let holds = |id: &Name, listed: &Listed| {
            listed.tabs.contains(tab)
                && (doubtful || !listed.doubtful.contains(tab))
                && instances::get(config, id).is_some_and(|now| now.url == listed.url)
        };
        known.listed.iter().find(|(id, listed)| holds(id, listed)).and_then(|(id, _)| owner(id))
    }

    /// Asks an instance for its tabs, unless another caller did after `since`. An instance that was asked less than a second
    /// ago is asked when that second is over: a tab may be newer than its last list.
    async fn ask(&self, id: &Name, instance: &Instance, since: Instant) -> Result<(), String> {
        let lock = Arc::clone(self.known().asked.entry(id.clone()).or_default());
        let mut asked = lock.lock().await;
        if let Some((at, _)) = asked.last.as_ref().filter(|(_, url)| *url == instance.url) {
            if *at >= since {
                return asked.error.clone().map_or(Ok(()), Err);
            }
            tokio::time::sleep(ASK_AGAIN_AFTER.saturating_sub(at.elapsed())).await;
        }
        let begun = Instant::now();
        let listed = match tokio::time::timeout(ASK_TIMEOUT, self.list(instance)).await {
            Ok(listed) => listed,
            Err(_) => Err(format!("did not list its tabs within {} seconds", ASK_TIMEOUT.as_secs())),
        };
        asked.last = Some((begun, instance.url.clone()));
        asked.error = listed.as_ref().err().cloned();
        self.known().keep(id, instance, listed?);
        Ok(())
    }

    /// Asks the instance for its list.
    async fn list(&self, instance: &Instance) -> Result<HashSet<String>, String> {
        let mut request = self.inner.client.inner().get(url_below(&instance.url, &["tabs"]));
        if let Some(token) = &instance.token {
            request = request.bearer_auth(token.reveal());
        }
        let response = request.send().await.map_err(|error| printable(&with_causes(error)))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("answered {status} when asked for its tabs"));
        }
        let body =
            read_body(response, LIST_BYTES_MAX).await.map_err(|error| printable(&with_causes(error)))?;
        match body {
            Body::Whole(body) => tabs_of(&body).ok_or_else(|| "does not list tabs".to_owned()),
            Body::Cut(_) => Err(format!("lists more than {LIST_BYTES_MAX} bytes of tabs")),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The registered tabs of this configuration.
    fn registered(&mut self, config: &Arc<Config>) -> &HashMap<String, Name> {
        if !self.registered.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, config)) {
            let mut tabs = HashMap::new();
            // In the order of ids; the first that has a tab keeps it.
            for (id, instance) in instances::all(config) {
                for tab in &instance.tabs {
                    tabs.entry(tab.clone()).or_insert_with(|| id.clone());
                }
            }
            self.listed.retain(|id, _| instances::get(config, id).is_some());
            self.asked.retain(|id, _| instances::get(config, id).is_some());
            self.registered = Some((Arc::clone(config), tabs));
        }
        &self.registered.as_ref().expect("it was just put there").1
    }

    /// Remembers the list of an instance, up to the limit of all lists.
    fn keep(&mut self, id: &Name, instance: &Instance, mut tabs: HashSet<String>) {
        self.listed.remove(id);
        let others: usize = self.listed.values().map(|listed| listed.tabs.len()).sum();
        let free = LISTED_MAX.saturating_sub(others);
        if tabs.len() > free {
            tracing::warn!(instance = %id, tabs = tabs.len(), free, "an instance lists more tabs than are remembered");
            tabs = tabs.into_iter().take(free).collect();
        }
        self.listed.insert(id.clone(), Listed { url: instance.url.clone(), tabs, doubtful: HashSet::new() });
    }
}

/// The ids in a list of tabs: `{"tabs": […]}` or the list alone, of objects with `id` or `tabId`, or of ids.
pub(crate) fn tabs_of(body: &[u8]) -> Option<HashSet<String>> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let list = value.as_array().or_else(|| value.get("tabs")?.as_array())?;
    let id = |tab: &Value| {
        let id = tab.as_str().or_else(|| tab.get("id")?.as_str()).or_else(|| tab.get("tabId")?.as_str());
        id.filter(|id| !id.is_empty() && id.len() <= TAB_LEN_MAX).map(str::to_owned)
    };
    Some(list.iter().filter_map(id).collect())
}

/// The URL with these parts added to its path, each escaped. None of them may be `.` or `..`.
pub(crate) fn url_below(url: &Url, parts: &[&str]) -> Url {
    let mut url = url.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(parts);
    }
    url
}
