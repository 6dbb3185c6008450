//! Where values come from: defaults, file, environment, flags and stored changes, merged into one tree.
//!
//! Each layer has the place of each of its keys, so that a problem can name the line or the variable. This file does not
//! know the meaning of values.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laneway_core::Bytes;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::error::{ConfigError, ConfigErrorKind, ConfigErrors};
use super::lane_variables;
use super::otel_variables;
use super::overrides::Overrides;
use super::path::KeyPath;
use super::schema::Schema;
use super::{Config, Secret, aliases, build};

/// The prefix of environment variables that set a key.
const ENVIRONMENT_PREFIX: &str = "LANEWAY_";
/// Separates the parts of a key in a variable's name. Variables without it mean no key.
const ENVIRONMENT_SEPARATOR: &str = "__";
/// Largest file that is read, in bytes: far more than 10,000 lanes need.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// The layers below the stored changes: defaults, file, environment, flags.
#[derive(Clone, Debug)]
pub struct Layers {
    schema: Arc<Schema>,
    path: Option<PathBuf>,
    /// The file's content as it was read.
    content: Option<Arc<[u8]>>,
    file: Layer,
    environment: Layer,
    flags: Layer,
    warnings: Vec<String>,
}

/// A tree and where each of its keys was written.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    pub(super) tree: Table,
    pub(super) places: Places,
}

/// Where keys were written. A key without a place has its default.
pub(super) type Places = BTreeMap<KeyPath, Place>;

/// Where a key was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a file.
    File { path: Arc<Path>, line: usize },
    /// In a variable of the environment. The text is kept, because what looks like a number may be meant as a
    /// text; it may be a secret.
    Environment { name: String, text: Secret },
    /// By the caller of the program.
    Flags,
    /// By an API call.
    Stored,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, line } => write!(f, "{}:{line}", path.display()),
            Place::Environment { name, .. } => write!(f, "environment {name}"),
            Place::Flags => f.write_str("flags"),
            Place::Stored => f.write_str("an API call"),
        }
    }
}

impl Layers {
    /// The defaults alone.
    pub fn builtin(schema: &Arc<Schema>) -> Layers {
        Layers {
            schema: schema.clone(),
            path: None,
            content: None,
            file: Layer::default(),
            environment: Layer::default(),
            flags: Layer::default(),
            warnings: Vec::new(),
        }
    }

    /// Reads the file (if one is named) and takes the environment and the flags. Of the variables, only those that begin
    /// with `LANEWAY_` and hold `__`, and the short names of lanes (`LANEWAY_LANE_MAIN`, …), and those of OpenTelemetry are looked at. `flags` is a
    /// tree as in the file.
    pub fn read(
        schema: &Arc<Schema>,
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: Table,
    ) -> Result<Layers, ConfigErrors> {
        let mut errors = Vec::new();
        let (content, layer) = file.map(|path| read_file(path, &mut errors)).unwrap_or_default();
        let variables: Vec<(String, String)> = environment.into_iter().collect();
        let (short, mut warnings) = lane_variables::read(&variables, schema);
        let (otel, of_otel) = otel_variables::read(&variables, schema);
        warnings.extend(of_otel);
        // The full name of a key is stronger than the short one.
        let mut environment = short;
        environment.put_over(&otel);
        environment.put_over(&read_environment(variables, &mut errors));
        let layers = Layers {
            schema: schema.clone(),
            path: file.map(PathBuf::from),
            content,
            file: layer,
            environment,
            flags: Layer::all_from(flags, &Place::Flags),
            warnings,
        };
        ConfigErrors::unless_empty(errors, || layers)
    }

    /// The same layers with the file as it is now.
    pub fn read_again(&self) -> Result<Layers, ConfigErrors> {
        let mut errors = Vec::new();
        let read = self.path.as_deref().map(|path| read_file(path, &mut errors));
        let (content, file) = read.unwrap_or_default();
        ConfigErrors::unless_empty(errors, || Layers { content, file, ..self.clone() })
    }

    /// The sections that the configuration may have.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// One sentence for each variable of the environment that was ignored because of its value.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The file, if one is named.
    pub fn file(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file's content as it was read.
    pub(crate) fn content(&self) -> Option<Arc<[u8]>> {
        self.content.clone()
    }

    /// Merges all layers with the stored changes on top, and checks the whole.
    pub fn resolve(&self, overrides: &Overrides) -> Result<Config, ConfigErrors> {
        let mut whole = Layer { tree: self.schema.builtin().clone(), places: Places::new() };
        let mut errors = Vec::new();
        for layer in [&self.file, &self.environment, &self.flags] {
            whole.put_over(&aliases::written_out(&self.schema, layer, &mut errors));
        }
        let stored = overrides.layer()?;
        for section in self.schema.entry_sections() {
            whole.forget_entries(section.name, &stored);
        }
        whole.put_over(&stored);
        let built = build::build(&self.schema, &whole.tree, whole.places);
        errors.extend(built.as_ref().err().iter().flat_map(|more| more.list()).cloned());
        ConfigErrors::unless_empty(errors, || built)?
    }

    /// The same for the start of a server, whose stored changes may be older than the program or the file. Changes that are
    /// no longer valid are left out and returned: a server that does not start could not remove them.
    pub fn resolve_stored(
        &self,
        stored: Option<&Bytes>,
    ) -> Result<(Config, Overrides, Vec<ConfigError>), ConfigErrors> {
        let mut left_out = Vec::new();
        let mut overrides = match stored.map(Overrides::from_stored).unwrap_or_else(|| Ok(Overrides::none()))
        {
            Ok(overrides) => overrides,
            Err(errors) => {
                left_out.extend_from_slice(errors.list());
                Overrides::none()
            }
        };
        loop {
            let errors = match self.resolve(&overrides) {
                Ok(config) => return Ok((config, overrides, left_out)),
                Err(errors) => errors,
            };
            // Each round removes at least one key, so this ends; without stored changes it is the caller's problem.
            let before = overrides.clone();
            for error in errors.list() {
                overrides.remove_printed(&error.key);
            }
            if overrides == before {
                self.resolve(&Overrides::none())?;
                overrides = Overrides::none();
            }
            left_out.extend_from_slice(errors.list());
        }
    }
}

/// The configuration that would result from `patch` over `overrides`; for checks before a change.
pub fn preview(
    layers: &Layers,
    overrides: &Overrides,
    patch: &serde_json::Value,
) -> Result<Config, ConfigErrors> {
    layers.resolve(&overrides.patched(&layers.schema, patch)?)
}

impl Layer {
    /// A layer whose keys were all written in one place.
    pub(super) fn all_from(tree: Table, place: &Place) -> Layer {
        fn note(table: &Table, path: &KeyPath, place: &Place, places: &mut Places) {
            for (key, value) in table {
                let path = path.join(key);
                if let Value::Table(table) = value {
                    note(table, &path, place, places);
                }
                places.insert(path, place.clone());
            }
        }
        let mut places = Places::new();
        note(&tree, &KeyPath::root(), place, &mut places);
        Layer { tree, places }
    }

    /// An entry that a call put is taken as a whole: no key of an entry with the same name in another layer shows through.
    /// Otherwise a caller who moves the address of an entry would receive the token that the file has for it.
    fn forget_entries(&mut self, section: &str, stored: &Layer) {
        let put = stored.tree.get(section).and_then(Value::as_table);
        let Some(mine) = self.tree.get_mut(section).and_then(Value::as_table_mut) else { return };
        for id in put.into_iter().flat_map(Table::keys) {
            mine.remove(id);
            self.places.retain(|path, _| !path.starts_with(&[section, id]));
        }
    }

    /// Puts `other` over this layer: tables are merged, everything else is replaced.
    fn put_over(&mut self, other: &Layer) {
        merge(&mut self.tree, &other.tree);
        self.places.extend(other.places.iter().map(|(path, place)| (path.clone(), place.clone())));
    }
}

fn merge(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
            _ => drop(base.insert(key.clone(), value.clone())),
        }
    }
}

fn read_file(path: &Path, errors: &mut Vec<ConfigError>) -> (Option<Arc<[u8]>>, Layer) {
    let unreadable = |place: String, message: String| ConfigError {
        kind: ConfigErrorKind::Unreadable,
        key: String::new(),
        place,
        message,
    };
    let text = match read_text(path) {
        Ok(text) => text,
        Err(message) => {
            errors.push(unreadable(path.display().to_string(), message));
            return (None, Layer::default());
        }
    };
    let (document, syntax) = DeTable::parse_recoverable(&text);
    for error in &syntax {
        let place = match error.span() {
            Some(span) => format!("{}:{}", path.display(), line_of(&text, span.start)),
            None => path.display().to_string(),
        };
        errors.push(unreadable(place, format!("not TOML: {}", error.message().replace('\n', ", "))));
    }
    let mut reading = FileReading { text: &text, path: Arc::from(path), places: Places::new(), errors };
    let tree = reading.table(document.get_ref(), &KeyPath::root());
    let places = reading.places;
    (Some(Arc::from(text.as_bytes())), Layer { tree, places })
}

fn read_text(path: &Path) -> Result<String, String> {
    let len = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if len > FILE_MAX {
        return Err(format!("has {len} bytes; at most {FILE_MAX} are read"));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes)
        .map_err(|error| format!("not UTF-8 after byte {}", error.utf8_error().valid_up_to()))
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

/// Converts a parsed file to a plain tree, with the line of every key.
struct FileReading<'a> {
    text: &'a str,
    path: Arc<Path>,
    places: Places,
    errors: &'a mut Vec<ConfigError>,
}

impl FileReading<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &KeyPath) -> Table {
        let mut tree = Table::new();
        for (key, value) in table {
            let path = path.join(key.get_ref());
            let place = self.place(key.span());
            self.places.insert(path.clone(), place);
            tree.insert(key.get_ref().to_string(), self.value(value.get_ref(), &path));
        }
        tree
    }

    fn value(&mut self, value: &DeValue<'_>, path: &KeyPath) -> Value {
        match value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => self.beyond_range(path, number.as_str()),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => Value::Float(number),
                Err(_) => self.beyond_range(path, number.as_str()),
            },
            DeValue::Boolean(flag) => Value::Boolean(*flag),
            DeValue::Datetime(time) => Value::Datetime(*time),
            DeValue::Array(items) => {
                Value::Array(items.iter().map(|item| self.value(item.get_ref(), path)).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(table, path)),
        }
    }

    fn beyond_range(&mut self, path: &KeyPath, number: &str) -> Value {
        let place = self.places.get(path).map(Place::to_string).unwrap_or_default();
        let message = format!("{number} is beyond every range");
        self.errors.push(ConfigError {
            kind: ConfigErrorKind::Invalid,
            key: path.to_string(),
            place,
            message,
        });
        Value::Integer(0)
    }

    fn place(&self, span: Range<usize>) -> Place {
        Place::File { path: self.path.clone(), line: line_of(self.text, span.start) }
    }
}

fn read_environment(
    environment: impl IntoIterator<Item = (String, String)>,
    errors: &mut Vec<ConfigError>,
) -> Layer {
    let mut variables: Vec<(String, String)> = environment
        .into_iter()
        .filter(|(name, _)| {
            name.strip_prefix(ENVIRONMENT_PREFIX).is_some_and(|rest| rest.contains(ENVIRONMENT_SEPARATOR))
        })
        .collect();
    variables.sort();
    let mut layer = Layer::default();
    for (name, text) in variables {
        let rest = name[ENVIRONMENT_PREFIX.len()..].to_ascii_lowercase();
        let parts: Vec<&str> = rest.split(ENVIRONMENT_SEPARATOR).collect();
        if let Err(message) = put_at(&mut layer.tree, &parts, value_of(&text)) {
            let (key, place) = (KeyPath::of(&parts).to_string(), format!("environment {name}"));
            errors.push(ConfigError { kind: ConfigErrorKind::Invalid, key, place, message: message.into() });
            continue;
        }
        for len in 1..=parts.len() {
            let place = Place::Environment { name: name.clone(), text: Secret::new(&text) };
            layer.places.insert(KeyPath::of(&parts[..len]), place);
        }
    }
    layer
}

pub(super) fn put_at(tree: &mut Table, parts: &[&str], value: Value) -> Result<(), &'static str> {
    let Some((key, sections)) = parts.split_last() else { return Err("names no key") };
    if parts.iter().any(|part| part.is_empty()) {
        return Err("a part of the key is empty; write LANEWAY_SECTION__KEY");
    }
    let mut table = tree;
    for section in sections {
        let entry = table.entry((*section).to_owned()).or_insert_with(|| Value::Table(Table::new()));
        table = entry
            .as_table_mut()
            .ok_or("another variable gives a value to a part of this key; remove one of them")?;
    }
    table.insert((*key).to_owned(), value);
    Ok(())
}

/// A variable's text as a TOML value where it is one, else as the text itself.
fn value_of(text: &str) -> Value {
    let parsed: Option<Table> = format!("value = {text}").parse().ok();
    let value = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}
