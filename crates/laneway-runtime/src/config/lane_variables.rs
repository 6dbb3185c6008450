//! The short variables for the lanes that every server has, such as `LANEWAY_LANE_MAIN=30`, and the names that dialects
//! add to them.
//!
//! A value that is not a whole number above zero is ignored with a warning: a typing error in a shared environment must
//! not keep a server from starting.

use toml::Value;

use super::Secret;
use super::build::RUNNING_MAX;
use super::layers::{Layer, Place, put_at};
use super::path::KeyPath;
use super::schema::Schema;

/// The lanes that have a variable.
const LANES: [&str; 4] = ["main", "subagent", "team", "cron"];

/// Longest value that a warning shows, in characters.
const SHOWN_MAX: usize = 60;

/// Every variable with its lane. Those of one lane come one after the other, the strongest first.
pub(super) fn all(schema: &Schema) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    for lane in LANES {
        variables.push((lane, format!("LANEWAY_LANE_{}", lane.to_ascii_uppercase())));
        let added = schema.dialects().iter().flat_map(|dialect| dialect.lane_variables);
        let added = added.filter(|(of, _)| *of == lane);
        variables.extend(added.map(|(_, name)| (lane, (*name).to_owned())));
    }
    variables
}

/// The limits that the variables set, and a sentence for each variable whose value cannot be used.
pub(super) fn read(environment: &[(String, String)], schema: &Schema) -> (Layer, Vec<String>) {
    let (mut layer, mut warnings) = (Layer::default(), Vec::new());
    let mut set = None;
    for (lane, name) in all(schema) {
        let Some((_, text)) = environment.iter().find(|(other, _)| *other == name) else { continue };
        match limit(text) {
            Some(limit) if set != Some(lane) => {
                put(&mut layer, lane, &name, text, limit);
                set = Some(lane);
            }
            Some(_) => {}
            None => warnings.push(warning(&name, text)),
        }
    }
    (layer, warnings)
}

fn limit(text: &str) -> Option<u32> {
    text.trim().parse().ok().filter(|limit| (1..=RUNNING_MAX).contains(limit))
}

fn put(layer: &mut Layer, lane: &str, name: &str, text: &str, limit: u32) {
    let parts = ["lanes", lane, "running_max"];
    put_at(&mut layer.tree, &parts, Value::from(limit)).expect("only this module writes into the tree");
    for len in 1..=parts.len() {
        let place = Place::Environment { name: name.to_owned(), text: Secret::new(text) };
        layer.places.insert(KeyPath::of(&parts[..len]), place);
    }
}

fn warning(name: &str, text: &str) -> String {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    format!("environment {name} is {shown:?} and is ignored; write a whole number from 1 to {RUNNING_MAX}")
}
