//! The configuration in effect: what differs from the defaults, and changes while the server runs.

use askama::Template;
use axum::http::{Method, StatusCode};
use laneway_wire::ConfigReload;
use serde_json::{Map, Value};

use crate::call::Failure;
use crate::context::{Answer, Context};
use crate::widgets::Button;

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    root: String,
    csrf: String,
    search: String,
    changed: Vec<Row>,
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
    let search = context.field("search").unwrap_or_default();
    let default_of =
        |key: &str| defaults.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone());
    let rows = keys.into_iter().filter(|(key, _)| key.contains(search)).map(|(key, value)| {
        let default = default_of(&key);
        (default.as_ref() != Some(&value), Row { key, value, default })
    });
    let (changed, others): (Vec<_>, Vec<_>) = rows.partition(|(differs, _)| *differs);
    let left_out = others.len().saturating_sub(OTHERS_SHOWN);
    let page = SettingsPage {
        root: context.root.clone(),
        csrf: context.csrf.clone(),
        search: search.to_owned(),
        changed: changed.into_iter().map(|(_, row)| row).collect(),
        others: others.into_iter().take(OTHERS_SHOWN).map(|(_, row)| row).collect(),
        left_out,
        may_change: context.may().administer,
        reload: Button::new(context, "settings/reload", "Read the file again"),
    };
    context.page("settings", "Settings", &page)
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
}
