//! A dialect's own names for keys of its lane.
//!
//! An alias such as `dialects.NAME.max_queue_size = 50` means `lanes.NAME.queued_max = 50`, in every layer. It is written out
//! before layers are merged, so that there is one value with one place. Zero leaves the key as it is.

use laneway_core::Span;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use super::error::{ConfigError, ConfigErrorKind};
use super::layers::Layer;
use super::path::KeyPath;
use super::schema::{DialectKey, Schema};
use super::units::parse_span;

/// Every dialect with its name for a key, and the key of the lane of the same name.
fn aliases(schema: &Schema) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    schema.dialects().iter().flat_map(|dialect| {
        dialect.keys.iter().filter_map(|known| match known {
            DialectKey::LaneAlias { key, lane_key } => Some((dialect.name, *key, *lane_key)),
            _ => None,
        })
    })
}

/// The layer with every alias written out. A key that has another value under each name is a problem.
pub(super) fn written_out(schema: &Schema, layer: &Layer, errors: &mut Vec<ConfigError>) -> Layer {
    let mut layer = layer.clone();
    for (dialect, alias, key) in aliases(schema) {
        let Some(value) = take(&mut layer.tree, dialect, alias) else { continue };
        let from = KeyPath::of(&["dialects", dialect, alias]);
        let place = layer.places.remove(&from);
        if value == Value::Integer(0) || value.as_str().is_some_and(is_zero_span) {
            continue;
        }
        let to = KeyPath::of(&["lanes", dialect, key]);
        let lanes = section(&mut layer.tree, "lanes").and_then(|lanes| section(lanes, dialect));
        // A value where a section must be is reported when the section is read.
        let Some(lane) = lanes else { continue };
        if let Some(other) = lane.get(key) {
            if *other == value {
                continue;
            }
            errors.push(ConfigError {
                kind: ConfigErrorKind::Invalid,
                key: from.to_string(),
                place: place.map(|place| place.to_string()).unwrap_or_default(),
                message: format!("is the same as {to}, which says {other}; remove one of them"),
            });
            continue;
        }
        lane.insert(key.to_owned(), value);
        if let Some(place) = place {
            for path in [KeyPath::of(&["lanes"]), KeyPath::of(&["lanes", dialect])] {
                layer.places.entry(path).or_insert_with(|| place.clone());
            }
            layer.places.insert(to, place);
        }
    }
    layer
}

/// The same for a change by an API call. If both names are given, the name in the lane's section wins.
pub(super) fn written_out_in_patch(schema: &Schema, patch: &Map<String, Json>) -> Map<String, Json> {
    let mut patch = patch.clone();
    for (dialect, alias, key) in aliases(schema) {
        let own = patch.get_mut("dialects").and_then(|dialects| dialects.get_mut(dialect));
        let Some(value) = own.and_then(Json::as_object_mut).and_then(|own| own.remove(alias)) else {
            continue;
        };
        if value == 0 || value.as_str().is_some_and(is_zero_span) {
            continue;
        }
        let lanes = patch.entry("lanes").or_insert_with(|| Json::Object(Map::new()));
        let Some(lanes) = lanes.as_object_mut() else { continue };
        let lane = lanes.entry(dialect).or_insert_with(|| Json::Object(Map::new()));
        if let Some(lane) = lane.as_object_mut() {
            lane.entry(key).or_insert(value);
        }
    }
    patch
}

/// True for a length of time of zero, such as `"0s"`: it leaves the value as it is, as the number 0 does.
fn is_zero_span(text: &str) -> bool {
    parse_span(text) == Some(Span(0))
}

fn take(tree: &mut Table, dialect: &str, alias: &str) -> Option<Value> {
    tree.get_mut("dialects")?.get_mut(dialect)?.as_table_mut()?.remove(alias)
}

fn section<'t>(table: &'t mut Table, key: &str) -> Option<&'t mut Table> {
    table.entry(key.to_owned()).or_insert_with(|| Value::Table(Table::new())).as_table_mut()
}
