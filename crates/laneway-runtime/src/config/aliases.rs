//! A dialect's own names for keys of other sections.
//!
//! An alias such as `dialects.NAME.max_queue_size = 50` means `lanes.NAME.queued_max = 50`, in every layer. It is written out
//! before layers are merged, so that there is one value with one place. Zero leaves the key as it is. Keys that follow an alias get
//! its value, too, unless they have one in the same layer.

use laneway_core::Span;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use super::error::{ConfigError, ConfigErrorKind};
use super::layers::{Layer, Place};
use super::path::KeyPath;
use super::schema::{DialectKey, Schema};
use super::units::parse_span;

/// A dialect's name for a key of another section.
#[derive(Clone, Copy)]
struct Alias {
    dialect: &'static str,
    /// The key below the section of the dialect.
    key: &'static [&'static str],
    /// The key that it stands for.
    to: &'static [&'static str],
    /// The section of the dialect, for the keys that follow it.
    keys: &'static [DialectKey],
}

impl Alias {
    fn path(self) -> Vec<&'static str> {
        [&["dialects", self.dialect], self.key].concat()
    }

    /// The keys that follow it.
    fn followers(self) -> impl Iterator<Item = &'static [&'static str]> {
        self.keys.iter().filter_map(move |known| match known {
            DialectKey::Follower { key, to } if *key == self.key => Some(*to),
            _ => None,
        })
    }
}

fn aliases(schema: &Schema) -> impl Iterator<Item = Alias> {
    schema.dialects().iter().flat_map(|dialect| {
        dialect.keys.iter().filter_map(|known| match known {
            DialectKey::Alias { key, to } => {
                Some(Alias { dialect: dialect.name, key, to, keys: dialect.keys })
            }
            _ => None,
        })
    })
}

/// The layer with every alias written out. A key that has another value under each name is a problem.
pub(super) fn written_out(schema: &Schema, layer: &Layer, errors: &mut Vec<ConfigError>) -> Layer {
    let mut layer = layer.clone();
    for alias in aliases(schema) {
        let Some(value) = take(&mut layer.tree, &alias.path()) else { continue };
        let from = KeyPath::of(&alias.path());
        let place = layer.places.remove(&from);
        if value == Value::Integer(0) || value.as_str().is_some_and(is_zero_span) {
            continue;
        }
        for follower in alias.followers() {
            set_if_absent(&mut layer, follower, &value, place.as_ref());
        }
        if let Some(other) = set_if_absent(&mut layer, alias.to, &value, place.as_ref()) {
            if other == value {
                continue;
            }
            let to = KeyPath::of(alias.to);
            errors.push(ConfigError {
                kind: ConfigErrorKind::Invalid,
                key: from.to_string(),
                place: place.map(|place| place.to_string()).unwrap_or_default(),
                message: format!("is the same as {to}, which says {other}; remove one of them"),
            });
        }
    }
    layer
}

/// Sets a key of the layer. Returns the value that it has already; that one stays.
fn set_if_absent(layer: &mut Layer, to: &[&str], value: &Value, place: Option<&Place>) -> Option<Value> {
    let (key, sections) = to.split_last()?;
    // A value where a section must be is reported when the section is read.
    let target = section(&mut layer.tree, sections)?;
    if let Some(other) = target.get(*key) {
        return Some(other.clone());
    }
    target.insert((*key).to_owned(), value.clone());
    if let Some(place) = place {
        for len in 1..to.len() {
            layer.places.entry(KeyPath::of(&to[..len])).or_insert_with(|| place.clone());
        }
        layer.places.insert(KeyPath::of(to), place.clone());
    }
    None
}

/// The same for a change by an API call. If both names are given, the name that the alias stands for wins.
pub(super) fn written_out_in_patch(schema: &Schema, patch: &Map<String, Json>) -> Map<String, Json> {
    let mut patch = patch.clone();
    for alias in aliases(schema) {
        let Some(value) = take_json(&mut patch, &alias.path()) else { continue };
        if value == 0 || value.as_str().is_some_and(is_zero_span) {
            continue;
        }
        for to in alias.followers().chain([alias.to]) {
            let Some((key, sections)) = to.split_last() else { continue };
            let target = sections.iter().try_fold(&mut patch, |object, name| {
                object.entry(*name).or_insert_with(|| Json::Object(Map::new())).as_object_mut()
            });
            if let Some(target) = target {
                target.entry(*key).or_insert(value.clone());
            }
        }
    }
    patch
}

/// True for a length of time of zero, such as `"0s"`: it leaves the value as it is, as the number 0 does.
fn is_zero_span(text: &str) -> bool {
    parse_span(text) == Some(Span(0))
}

fn take(tree: &mut Table, path: &[&str]) -> Option<Value> {
    let (key, sections) = path.split_last()?;
    let table = sections.iter().try_fold(tree, |table, name| table.get_mut(*name)?.as_table_mut())?;
    table.remove(*key)
}

fn take_json(object: &mut Map<String, Json>, path: &[&str]) -> Option<Json> {
    let (key, sections) = path.split_last()?;
    let object = sections.iter().try_fold(object, |object, name| object.get_mut(*name)?.as_object_mut())?;
    object.remove(*key)
}

fn section<'t>(tree: &'t mut Table, sections: &[&str]) -> Option<&'t mut Table> {
    sections.iter().try_fold(tree, |table, name| {
        table.entry((*name).to_owned()).or_insert_with(|| Value::Table(Table::new())).as_table_mut()
    })
}
