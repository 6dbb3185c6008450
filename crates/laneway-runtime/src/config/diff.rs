//! The differences between two configurations, key by key.

use std::collections::BTreeMap;
use std::fmt;

use super::path::KeyPath;
use super::render::{Entry, entries};
use super::schema::Schema;
use super::{Config, dialects};

/// Keys and sections whose values hold only after a restart.
const RESTART_ONLY: [&[&str]; 9] = [
    &["server"],
    &["log"],
    &["limits", "local_slots"],
    &["limits", "artifact_retention"],
    &["limits", "artifacts_per_tenant_max"],
    &["workers", "sockets_max"],
    &["workers", "unauthenticated_max"],
    &["workers", "unauthenticated_per_address_max"],
    &["streams"],
];

/// A key whose value changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The key.
    pub key: KeyPath,
    /// The old value, as TOML; `***` for a secret. `None`: there was none.
    pub from: Option<String>,
    /// The new value, as TOML; `***` for a secret. `None`: it was removed.
    pub to: Option<String>,
    /// True: the new value holds only after a restart.
    pub needs_restart: bool,
}

impl fmt::Display for ChangedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.as_deref().unwrap_or("unset"), self.to.as_deref().unwrap_or("unset"));
        write!(f, "{}: {from} -> {to}", self.key)
    }
}

/// The differences between two configurations, key by key. A changed secret is listed without its value.
pub fn changed_keys(from: &Config, to: &Config) -> Vec<ChangedKey> {
    let schema = &to.schema;
    let (from, to) = (by_path(from), by_path(to));
    let mut keys: Vec<&KeyPath> = from.keys().chain(to.keys()).collect();
    keys.sort();
    keys.dedup();
    let differs =
        keys.into_iter().filter(|key| from.get(key).map(|e| &e.value) != to.get(key).map(|e| &e.value));
    differs
        .map(|key| ChangedKey {
            key: key.clone(),
            from: from.get(key).map(|entry| entry.shown().to_string()),
            to: to.get(key).map(|entry| entry.shown().to_string()),
            needs_restart: needs_restart(schema, key),
        })
        .collect()
}

/// True when a new value of the key holds only after a restart.
pub(super) fn needs_restart(schema: &Schema, key: &KeyPath) -> bool {
    let parts: Vec<&str> = key.parts().iter().map(String::as_str).collect();
    RESTART_ONLY.iter().any(|only| key.starts_with(only))
        || schema.fixed_sections().iter().any(|section| key.starts_with(&[section.name]))
        || matches!(parts[..], ["dialects", name, key] if dialects::needs_restart(schema, name, key))
}

fn by_path(config: &Config) -> BTreeMap<KeyPath, Entry> {
    entries(config).into_iter().map(|entry| (entry.path.clone(), entry)).collect()
}
