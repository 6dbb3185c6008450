//! Instances: servers of browser tabs that actions are forwarded to. They are the section `[instances]`.
//!
//! The file has instances, and API calls put others, each as a whole.

use std::sync::Arc;

use laneway_core::{Name, Origin};
use laneway_runtime::config::{
    Config, ConfigErrors, EntrySection, EntryValue, Secret, Section, SectionEntry, as_entry, target_url,
};
use laneway_runtime::live_config::LiveConfig;
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde_json::{Map, Value, json};

/// The section, for the schema of the configuration.
pub static INSTANCES: EntrySection = EntrySection {
    name: NAME,
    defaults: include_str!("../config.default.toml"),
    len_max: INSTANCES_MAX,
    read,
    secret: "token",
    not_patchable: "cannot be changed here, because an instance is sent its token: PUT /v1/instances/{id} changes one",
    not_removable: "no call put the instance: remove it where it is written (file, environment, flags)",
};

/// The name of the section.
const NAME: &str = "instances";
/// Most instances: each may be asked for its tabs when a tab is not found.
const INSTANCES_MAX: usize = 1_000;
/// Most tabs that are registered with one instance.
const TABS_MAX: usize = 10_000;
/// Longest id of a tab, in bytes.
pub const TAB_LEN_MAX: usize = 256;

/// A server of browser tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Where it is: its paths begin there.
    pub url: Url,
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<Secret>,
    /// Tabs that are known to be its own without asking it.
    pub tabs: Vec<String>,
}

/// A change of an instance. A field that is absent stays as it is, except the token of an instance that moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstancePatch {
    /// Where it is.
    pub url: Option<String>,
    /// Where it is, if it is on this machine.
    pub port: Option<u16>,
    /// Its token; an empty one removes it.
    pub token: Option<Secret>,
    /// Its tabs.
    pub tabs: Option<Vec<String>>,
}

impl InstancePatch {
    /// The whole instance as it is stored: this change over the current instance.
    fn over(&self, current: Option<&Instance>) -> Value {
        let mut kept = Map::new();
        let url = self.url.clone().or_else(|| self.port.map(local_url));
        let stays = match (&url, current) {
            (None, _) => true,
            (Some(url), Some(current)) => Url::parse(url).is_ok_and(|url| url == current.url),
            (Some(_), None) => false,
        };
        if let Some(url) = url.or_else(|| current.map(|current| current.url.to_string())) {
            kept.insert("url".to_owned(), url.into());
        }
        // The old token was given to the old address; another address does not get it.
        let old = current.filter(|_| stays).and_then(|current| current.token.as_ref());
        if let Some(token) = self.token.as_ref().or(old).filter(|token| !token.reveal().is_empty()) {
            kept.insert("token".to_owned(), token.reveal().into());
        }
        let tabs = self.tabs.clone().or_else(|| current.map(|current| current.tabs.clone()));
        kept.insert("tabs".to_owned(), json!(tabs.unwrap_or_default()));
        Value::Object(kept)
    }
}

impl SectionEntry for Instance {
    fn values(&self) -> Vec<(&'static str, EntryValue)> {
        let Instance { url, token, tabs } = self;
        let mut values = vec![("url", EntryValue::Plain(url.as_str().into()))];
        values.extend(token.clone().map(|token| ("token", EntryValue::Secret(token))));
        values.push(("tabs", EntryValue::Plain(tabs.clone().into())));
        values
    }
}

/// Every instance of the configuration, in the order of their ids.
pub fn all(config: &Config) -> impl Iterator<Item = (&Name, &Instance)> {
    config.entries(NAME)
}

/// The instance with this id.
pub fn get<'c>(config: &'c Config, id: &Name) -> Option<&'c Instance> {
    config.entry(NAME, id)
}

/// Puts an instance. Returns the configuration with it, and true when there was none with this id before. It holds, and
/// survives a restart, when this returns `Ok`; after an `Err` nothing has changed.
pub async fn put(
    live: &LiveConfig,
    id: Name,
    patch: InstancePatch,
    origin: Origin,
) -> Result<(Arc<Config>, bool), ConfigErrors> {
    live.put_entry(NAME, id, move |current| patch.over(current.and_then(as_entry)), origin).await
}

/// Removes an instance that calls put. Returns the configuration without it; an instance that the file has under this id
/// is in force again.
pub async fn remove(live: &LiveConfig, id: Name, origin: Origin) -> Result<Arc<Config>, ConfigErrors> {
    live.remove_entry(NAME, id, origin).await
}

fn read(section: &Section<'_>) -> Option<Arc<dyn SectionEntry>> {
    Some(Arc::new(instance(section)?))
}

fn instance(section: &Section<'_>) -> Option<Instance> {
    let port = section.opt_count("port", 1..=u32::from(u16::MAX));
    let url = section.opt_text("url");
    let token = section.opt_text("token");
    let tabs = section.texts("tabs");
    if tabs.len() > TABS_MAX {
        section.problem("tabs", format!("has {} entries; at most {TABS_MAX} are allowed", tabs.len()));
    }
    if tabs.iter().any(|tab| tab.is_empty() || tab.len() > TAB_LEN_MAX) {
        section.problem("tabs", format!("holds an id that is empty or longer than {TAB_LEN_MAX} bytes"));
    }
    if token.as_ref().is_some_and(|token| token.is_empty() || HeaderValue::from_str(token).is_err()) {
        section.problem("token", "cannot be sent in a header: it is empty or holds a control character");
    }
    let text = match (url, port) {
        (Some(url), None) => url,
        (None, Some(port)) => local_url(u16::try_from(port).unwrap_or_default()),
        (Some(_), Some(_)) => {
            section.problem("port", "stands beside `url`; write one of them");
            return None;
        }
        (None, None) => {
            section.problem("url", "is missing; write `url`, or `port` for an instance on this machine");
            return None;
        }
    };
    let url = target_url(&text).and_then(|url| match url.query() {
        Some(_) => Err("must not hold a query (?…): paths are added to it".to_owned()),
        None => Ok(url),
    });
    let url = url.map_err(|message| section.problem("url", message)).ok()?;
    Some(Instance { url, token: token.map(|token| Secret::new(&token)), tabs })
}

fn local_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/")
}
