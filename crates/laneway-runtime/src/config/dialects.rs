//! The sections of dialects: how each is mounted, and the values of its own keys.
//!
//! The limits of a dialect are those of its lane (see `aliases.rs`). The keys of a section come from the schema.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use laneway_core::Span;
use toml::{Table, Value};

use super::schema::{CountRule, DialectKey, DialectSection, Schema};
use super::section::Section;

/// Longest prefix of a dialect's paths, in bytes.
const PREFIX_MAX: usize = 64;
/// Most requests of one address in one window: far more than one machine can answer.
const REQUESTS_MAX: u32 = 10_000_000;

/// The keys that say where a dialect is mounted. A change needs a restart, and API calls cannot change them.
pub(super) const MOUNT_KEYS: [&str; 3] = ["enabled", "prefix", "listen"];

/// The sections of every dialect, in the order of the schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dialects(Vec<DialectConfig>);

/// The section of one dialect.
#[derive(Clone, Debug, PartialEq)]
pub struct DialectConfig {
    /// The dialect.
    pub name: &'static str,
    /// How it is mounted.
    pub mount: Mount,
    /// Its own keys.
    pub(super) values: Vec<(&'static str, Value)>,
}

/// How a dialect is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// False: its paths do not exist.
    pub enabled: bool,
    /// The prefix of all its paths; empty, or `/name`.
    pub prefix: String,
    /// A separate address. `None`: the main one.
    pub listen: Option<SocketAddr>,
    /// Most requests of one client address in one window. 0: no limit.
    pub requests_max: u32,
    /// The length of a window.
    pub requests_window: Span,
}

impl Dialects {
    /// Every dialect.
    pub fn iter(&self) -> impl Iterator<Item = &DialectConfig> {
        self.0.iter()
    }

    /// The dialect of this name.
    pub fn get(&self, name: &str) -> Option<&DialectConfig> {
        self.iter().find(|dialect| dialect.name == name)
    }

    /// Takes the values that only a restart can change from `current`.
    pub(super) fn keep_until_restart(&mut self, current: &Dialects, schema: &Schema) {
        for dialect in &mut self.0 {
            let Some(current) = current.get(dialect.name) else { continue };
            let Mount { enabled, prefix, listen, requests_max: _, requests_window: _ } = &current.mount;
            let mount = &mut dialect.mount;
            (mount.enabled, mount.prefix, mount.listen) = (*enabled, prefix.clone(), *listen);
            for (key, value) in &mut dialect.values {
                if let Some((_, kept)) = current.values.iter().find(|(other, _)| other == key)
                    && needs_restart(schema, dialect.name, key)
                {
                    value.clone_from(kept);
                }
            }
        }
    }
}

impl DialectConfig {
    /// The value of a number. Panics when the dialect contributed no such key.
    pub fn count(&self, key: &str) -> u32 {
        let number = self.value(key).as_integer().and_then(|number| u32::try_from(number).ok());
        number.expect("the key was read as a number")
    }

    /// The value of a text. Panics when the dialect contributed no such key.
    pub fn text(&self, key: &str) -> &str {
        self.value(key).as_str().expect("the key was read as a text")
    }

    fn value(&self, key: &str) -> &Value {
        let found = self.values.iter().find(|(other, _)| *other == key);
        &found.expect("a dialect reads only keys that it contributed").1
    }
}

/// True when a new value of the key of this dialect holds only after a restart.
pub(super) fn needs_restart(schema: &Schema, dialect: &str, key: &str) -> bool {
    let Some(section) = schema.dialects().iter().find(|section| section.name == dialect) else {
        return false;
    };
    let is_restart_key = |known: &DialectKey| matches!(known, DialectKey::Count { key: known, rule: CountRule::NeedsRestart, .. } if *known == key);
    MOUNT_KEYS.contains(&key) || section.keys.iter().any(is_restart_key)
}

/// Reads `[dialects]`.
pub(super) fn read(root: &Section<'_>, schema: &Schema) -> Dialects {
    let Some(section) = root.section("dialects", None) else { return Dialects::default() };
    let dialects = schema.dialects().iter().map(|dialect| read_one(&section, dialect, schema)).collect();
    section.finish();
    Dialects(dialects)
}

fn read_one(section: &Section<'_>, dialect: &'static DialectSection, schema: &Schema) -> DialectConfig {
    let base = builtin(schema, dialect.name);
    let own = section.section_or(dialect.name, base);
    let mount = mount(&own);
    let mut values = Vec::new();
    for known in dialect.keys {
        match known {
            DialectKey::Count { key, range, rule } => {
                let mut number = Value::from(own.count(key, range.clone()));
                if *rule == CountRule::ZeroIsDefault && number == Value::Integer(0) {
                    number = base.get(*key).cloned().unwrap_or(number);
                }
                values.push((*key, number));
            }
            DialectKey::Text { key } => values.push((*key, Value::from(own.text(key)))),
            // Aliases are written out as the keys that they stand for by now. This names the key in "did you mean".
            DialectKey::Alias { key: [key], .. } => drop(own.get(key)),
            DialectKey::Alias { .. } | DialectKey::Follower { .. } => {}
        }
    }
    check_sections_of_aliases(&own, dialect);
    own.finish();
    DialectConfig { name: dialect.name, mount, values }
}

/// Reports unknown keys beside the aliases that have a section of their own.
fn check_sections_of_aliases(own: &Section<'_>, dialect: &'static DialectSection) {
    let in_sections = dialect.keys.iter().filter_map(|known| match known {
        DialectKey::Alias { key: [section, key], .. } => Some((*section, *key)),
        _ => None,
    });
    let mut by_section: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
    for (section, key) in in_sections {
        by_section.entry(section).or_default().push(key);
    }
    for (section, keys) in by_section {
        let Some(section) = own.section(section, None) else { continue };
        for key in keys {
            let _ = section.get(key);
        }
        section.finish();
    }
}

/// The section of one dialect in the embedded defaults.
fn builtin<'s>(schema: &'s Schema, dialect: &str) -> &'s Table {
    let section = schema.builtin().get("dialects").and_then(|dialects| dialects.get(dialect));
    section.and_then(Value::as_table).expect("a dialect contributes the defaults of its section")
}

fn mount(section: &Section<'_>) -> Mount {
    let prefix = section.text("prefix");
    if !is_prefix(&prefix) {
        let message = format!(
            "is {prefix:?}; write \"\" or a path such as \"/pt\" that begins with / and does not end with it"
        );
        section.problem("prefix", message);
    }
    let listen = section.opt_text("listen").filter(|text| !text.is_empty());
    let listen = listen.and_then(|text| {
        let parsed = text.parse().ok();
        if parsed.is_none() {
            let message =
                format!("is {text:?}; write an IP address and a port, such as \"127.0.0.1:9867\", or \"\"");
            section.problem("listen", message);
        }
        parsed
    });
    Mount {
        enabled: section.flag("enabled"),
        prefix,
        listen,
        requests_max: section.count("requests_max", 0..=REQUESTS_MAX),
        requests_window: section.span("requests_window", Span::secs(1)..=Span::hours(1)),
    }
}

fn is_prefix(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    text.is_empty()
        || (text.len() <= PREFIX_MAX
            && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part)))
}
