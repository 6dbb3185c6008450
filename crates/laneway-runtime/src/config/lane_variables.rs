//! The short variables for the lanes that every server has: `LANEWAY_LANE_MAIN=30`, and the names that older gateways set.
//!
//! A value that is no whole number above zero is ignored with a warning, as those gateways do: a slip in a shared
//! environment must not keep a server from starting.

use toml::Value;

use super::Secret;
use super::build::RUNNING_MAX;
use super::layers::{Layer, Place, put_at};
use super::path::KeyPath;

/// Each lane with its variables, strongest first.
const VARIABLES: [(&str, &[&str]); 4] = [
    ("main", &["LANEWAY_LANE_MAIN", "GOCLAW_LANE_MAIN"]),
    ("subagent", &["LANEWAY_LANE_SUBAGENT", "GOCLAW_LANE_SUBAGENT"]),
    ("team", &["LANEWAY_LANE_TEAM", "GOCLAW_LANE_TEAM", "GOCLAW_LANE_DELEGATE"]),
    ("cron", &["LANEWAY_LANE_CRON", "GOCLAW_LANE_CRON"]),
];

/// The name of every variable.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().flat_map(|(_, names)| names.iter().copied())
}

/// Longest value that a warning shows, in characters.
const SHOWN_MAX: usize = 60;

/// What the variables say, and a sentence for each that says nothing usable.
pub(super) fn read(environment: &[(String, String)]) -> (Layer, Vec<String>) {
    let (mut layer, mut warnings) = (Layer::default(), Vec::new());
    for (lane, names) in VARIABLES {
        let mut set = false;
        for name in names {
            let Some((_, text)) = environment.iter().find(|(other, _)| other == name) else { continue };
            match limit(text) {
                Some(limit) if !set => {
                    put(&mut layer, lane, name, text, limit);
                    set = true;
                }
                Some(_) => {}
                None => warnings.push(warning(name, text)),
            }
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
