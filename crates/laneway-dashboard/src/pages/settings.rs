//! The configuration in effect: what differs from the defaults, and changes while the server runs.

use std::collections::BTreeMap;

use askama::Template;
use axum::http::{Method, StatusCode};
use laneway_wire::ConfigReload;
use serde_json::{Map, Value};

use crate::call::Failure;
use crate::context::{Answer, Context};
use crate::widgets::Button;

/// Most running jobs of a lane that the configuration adds. Its other keys have the defaults of `main`.
const ADDED_LANE_RUNNING_MAX: &str = "256";

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    root: String,
    csrf: String,
    search: String,
    changed: Vec<Row>,
    added: Vec<Row>,
    others: Vec<Row>,
    left_out: usize,
    may_change: bool,
    reload: Button,
}

struct Row {
    key: String,
    value: String,
    default: Option<String>,
}

/// Keys with their default value that are shown at once.
const OTHERS_SHOWN: usize = 200;

/// Shows the configuration.
pub async fn show(context: &Context) -> Answer {
    let config: Value = context.api.get("/v1/config").await?;
    let mut keys = Vec::new();
    flatten("", &config, &mut keys);
    let mut defaults = Vec::new();
    flatten("", &context.defaults, &mut defaults);
    let (defaults, in_effect) = (defaults.into_iter().collect(), keys.iter().cloned().collect());
    let search = context.field("search").unwrap_or_default();
    let (mut changed, mut added, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in keys.into_iter().filter(|(key, _)| key.contains(search)) {
        let default = default_of(&key, &defaults, &in_effect);
        let list = match &default {
            None => &mut added,
            Some(default) if *default != value => &mut changed,
            Some(_) => &mut others,
        };
        list.push(Row { key, value, default });
    }
    let left_out = others.len().saturating_sub(OTHERS_SHOWN);
    others.truncate(OTHERS_SHOWN);
    let page = SettingsPage {
        root: context.root.clone(),
        csrf: context.csrf.clone(),
        search: search.to_owned(),
        changed,
        added,
        others,
        left_out,
        may_change: context.may().administer,
        reload: Button::new(context, "settings/reload", "Read the file again"),
    };
    context.page("settings", "Settings", &page)
}

/// The default of a key. `None`: the configuration has added it, such as a kind. Keys of an added lane have the defaults of `main`, keys
/// of a tenant have the values of `tenants_default`.
fn default_of(
    key: &str,
    defaults: &BTreeMap<String, String>,
    in_effect: &BTreeMap<String, String>,
) -> Option<String> {
    if let Some(default) = defaults.get(key) {
        return Some(default.clone());
    }
    let (section, rest) = key.split_once('.')?;
    let (_, name) = rest.rsplit_once('.')?;
    match section {
        "lanes" if name == "running_max" => Some(ADDED_LANE_RUNNING_MAX.to_owned()),
        "lanes" => defaults.get(&format!("lanes.main.{name}")).cloned(),
        "tenants" => in_effect.get(&format!("tenants_default.{name}")).cloned(),
        _ => None,
    }
}

/// The keys of a tree with dots between the parts, and their values as JSON.
fn flatten(path: &str, value: &Value, keys: &mut Vec<(String, String)>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, keys);
            }
        }
        Value::Object(_) => {}
        other => keys.push((path.to_owned(), other.to_string())),
    }
}

/// Changes one key.
pub async fn change(context: &Context) -> Answer {
    let Some(key) = context.field("key") else {
        return Err(Failure::new(
            StatusCode::BAD_REQUEST,
            "key is empty; write one such as lanes.main.running_max",
        ));
    };
    let text = context.field("value").unwrap_or_default();
    // A value that is not JSON is a text. An empty one removes the change.
    let value = match text {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    let patch = key.split('.').rev().fold(value, |inner, part| {
        let mut object = Map::new();
        object.insert(part.to_owned(), inner);
        Value::Object(object)
    });
    let _: Value = context.api.send(Method::PATCH, "/v1/config", &patch).await?;
    context.back("settings", format!("The key {key} has its new value."))
}

/// Reads the configuration file again.
pub async fn reload(context: &Context) -> Answer {
    let done: ConfigReload =
        context.api.send(Method::POST, "/v1/config/reload", &serde_json::json!({})).await?;
    let note = match (done.changed.len(), done.needs_restart.len()) {
        (0, 0) => "The file has no changes.".to_owned(),
        (changed, 0) => format!("{changed} keys changed."),
        (changed, later) => format!("{changed} keys changed; {later} take effect after a restart."),
    };
    context.back("settings", note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_becomes_keys_with_dots() {
        let mut keys = Vec::new();
        flatten("", &serde_json::json!({"a": {"b": 1, "c": {}}, "d": ["x"]}), &mut keys);
        assert_eq!(keys, [("a.b".to_owned(), "1".to_owned()), ("d".to_owned(), "[\"x\"]".to_owned())]);
    }

    #[test]
    fn lanes_and_tenants_that_were_added_have_defaults() {
        let of = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let defaults = of(&[("lanes.main.running_max", "30"), ("lanes.main.order", "fair")]);
        let in_effect = of(&[("tenants_default.queued_max", "7")]);
        let cases = [
            ("lanes.main.running_max", Some("30")),
            ("lanes.bulk.running_max", Some("256")),
            ("lanes.a.b.order", Some("fair")),
            ("tenants.acme.queued_max", Some("7")),
            ("kinds.render.timeout", None),
        ];
        for (key, default) in cases {
            assert_eq!(default_of(key, &defaults, &in_effect).as_deref(), default, "{key}");
        }
    }
}
