//! Changes by API calls: the topmost layer, kept in the store.
//!
//! It holds only what calls may change: limits and policies. Addresses, files, secrets and the targets that get them
//! stay where only the operator of the machine can write. Instances are put by calls of their own, each as a whole and
//! with its own token.

use std::sync::Arc;

use laneway_core::{Bytes, Name};
use serde_json::{Map, Value};

use super::aliases::written_out_in_patch;
use super::dialects::MOUNT_KEYS;
use super::error::{ConfigError, ConfigErrorKind, ConfigErrors};
use super::layers::{Layer, Place};
use super::path::KeyPath;
use super::schema::Schema;

/// Keys of a kind that calls may not change: a caller that moved a target would receive its token.
const TARGET_KEYS: [&str; 4] = ["target", "target_headers", "target_token", "target_response_max"];

/// The message for keys that are read at the start.
const RESTART: &str =
    "cannot be changed by a call: change it in the file, the environment or the flags, and restart";

/// Changes by API calls, as a tree over all other layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides(Map<String, Value>);

impl Overrides {
    /// Nothing was changed.
    pub fn none() -> Overrides {
        Overrides::default()
    }

    /// Reads what [`Overrides::to_stored`] wrote.
    pub fn from_stored(bytes: &Bytes) -> Result<Overrides, ConfigErrors> {
        serde_json::from_slice(bytes).map(Overrides).map_err(|error| {
            let message = format!("what the store keeps of earlier changes cannot be read: {error}");
            ConfigErrors::one(
                ConfigErrorKind::Unreadable,
                &KeyPath::root(),
                Place::Stored.to_string(),
                message,
            )
        })
    }

    /// The bytes that the store keeps: JSON.
    pub fn to_stored(&self) -> Bytes {
        Arc::from(Value::Object(self.0.clone()).to_string().into_bytes())
    }

    /// These changes with `patch` merged over them as RFC 7396 says: `null` removes a change.
    pub fn patched(&self, schema: &Schema, patch: &Value) -> Result<Overrides, ConfigErrors> {
        let Value::Object(patch) = patch else {
            let message = r#"a change of the configuration is a JSON object, such as {"lanes": {"main": {"paused": true}}}"#;
            return Err(ConfigErrors::one(ConfigErrorKind::Invalid, &KeyPath::root(), "", message));
        };
        let mut errors = Vec::new();
        reject_unchangeable(schema, patch, &mut errors);
        let mut tree = self.0.clone();
        merge_patch(&mut tree, &written_out_in_patch(schema, patch));
        ConfigErrors::unless_empty(errors, || Overrides(tree))
    }

    /// These changes with an entry of the section put as a whole, or (`None`) no longer put.
    pub(crate) fn with_entry(&self, section: &str, id: &Name, entry: Option<Value>) -> Overrides {
        let mut tree = self.0.clone();
        let entries = tree.entry(section).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(entries) = entries {
            match entry {
                Some(entry) => drop(entries.insert(id.to_string(), entry)),
                None => drop(entries.remove(id.as_str())),
            }
        }
        Overrides(tree)
    }

    /// True when a call put the entry.
    pub(crate) fn has_entry(&self, section: &str, id: &Name) -> bool {
        self.0.get(section).is_some_and(|entries| entries.get(id.as_str()).is_some())
    }

    /// The changes as a layer.
    pub(super) fn layer(&self) -> Result<Layer, ConfigErrors> {
        let mut errors = Vec::new();
        let tree = to_table(&self.0, &KeyPath::root(), &mut errors);
        ConfigErrors::unless_empty(errors, || Layer::all_from(tree, &Place::Stored))
    }

    /// Removes the change of the key that prints as `key`, if there is one.
    pub(super) fn remove_printed(&mut self, key: &str) {
        fn remove(tree: &mut Map<String, Value>, path: &KeyPath, key: &str) {
            tree.retain(|part, _| path.join(part).to_string() != key);
            for (part, value) in tree.iter_mut() {
                if let Value::Object(below) = value {
                    remove(below, &path.join(part), key);
                }
            }
        }
        if !key.is_empty() {
            remove(&mut self.0, &KeyPath::root(), key);
        }
    }
}

fn reject_unchangeable(schema: &Schema, patch: &Map<String, Value>, errors: &mut Vec<ConfigError>) {
    let mut reject = |path: KeyPath, message: String| {
        let (kind, key) = (ConfigErrorKind::NotChangeable, path.to_string());
        errors.push(ConfigError { kind, key, place: String::new(), message });
    };
    let is_fixed = |name: &str| schema.fixed_sections().iter().any(|section| section.name == name);
    for section in patch.keys().filter(|name| matches!(name.as_str(), "server" | "log") || is_fixed(name)) {
        reject(KeyPath::of(&[section]), RESTART.to_owned());
    }
    if patch.get("limits").is_some_and(|limits| limits.get("local_slots").is_some()) {
        reject(KeyPath::of(&["limits", "local_slots"]), RESTART.to_owned());
    }
    for section in schema.entry_sections().iter().filter(|section| patch.contains_key(section.name)) {
        reject(KeyPath::of(&[section.name]), section.not_patchable.to_owned());
    }
    for (dialect, keys) in patch.get("dialects").and_then(Value::as_object).into_iter().flatten() {
        for key in keys.as_object().into_iter().flat_map(Map::keys) {
            if MOUNT_KEYS.contains(&key.as_str()) {
                reject(KeyPath::of(&["dialects", dialect, key]), RESTART.to_owned());
            }
        }
    }
    const SENT: &str = "cannot be changed by a call, because it says whom to trust: change it in the file";
    let sections = patch.get("webhooks").map(|keys| (vec!["webhooks"], keys));
    let tenants = patch.get("tenants").and_then(Value::as_object).into_iter().flatten();
    let sections =
        sections.into_iter().chain(tenants.map(|(name, keys)| (vec!["tenants", name.as_str()], keys)));
    for (path, keys) in sections {
        let keys = keys.as_object().into_iter().flat_map(Map::keys);
        for key in keys.filter(|key| key.contains("secret") || *key == "allow_hosts") {
            reject(KeyPath::of(&path).join(key), SENT.to_owned());
        }
    }
    if patch.get("workers").and_then(|keys| keys.get("require_certificate")).is_some() {
        reject(KeyPath::of(&["workers", "require_certificate"]), SENT.to_owned());
    }
    let kinds = patch.get("kinds").and_then(Value::as_object).into_iter().flatten();
    for (kind, keys) in kinds {
        for key in
            keys.as_object().into_iter().flat_map(Map::keys).filter(|key| TARGET_KEYS.contains(&key.as_str()))
        {
            let message =
                "cannot be changed by a call, because a target is sent secrets: change it in the file";
            reject(KeyPath::of(&["kinds", kind, key]), message.to_owned());
        }
    }
}

/// RFC 7396: objects are merged, `null` removes, everything else replaces.
pub fn merge_patch(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            Value::Object(patch) => {
                let below = target.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                if !below.is_object() {
                    *below = Value::Object(Map::new());
                }
                if let Value::Object(below) = below {
                    merge_patch(below, patch);
                }
            }
            value => drop(target.insert(key.clone(), value.clone())),
        }
    }
}

fn to_table(tree: &Map<String, Value>, path: &KeyPath, errors: &mut Vec<ConfigError>) -> toml::Table {
    let values = tree.iter().filter_map(|(key, value)| {
        let value = to_toml(value, &path.join(key), errors)?;
        Some((key.clone(), value))
    });
    values.collect()
}

fn to_toml(value: &Value, path: &KeyPath, errors: &mut Vec<ConfigError>) -> Option<toml::Value> {
    let mut reject = |message: &str| {
        let (kind, key, place) = (ConfigErrorKind::Invalid, path.to_string(), Place::Stored.to_string());
        errors.push(ConfigError { kind, key, place, message: message.to_owned() });
        None
    };
    match value {
        Value::Null => reject("null is no value in a list"),
        Value::Bool(flag) => Some(toml::Value::Boolean(*flag)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Some(toml::Value::Integer(number)),
            (None, Some(number)) => Some(toml::Value::Float(number)),
            (None, None) => reject("the number is beyond every range"),
        },
        Value::String(text) => Some(toml::Value::String(text.clone())),
        Value::Array(items) => {
            Some(toml::Value::Array(items.iter().filter_map(|item| to_toml(item, path, errors)).collect()))
        }
        Value::Object(tree) => Some(toml::Value::Table(to_table(tree, path, errors))),
    }
}
