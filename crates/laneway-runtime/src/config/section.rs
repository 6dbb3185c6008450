//! Reads one section of the tree: typed values out, problems noted, unknown keys found.
//!
//! Nothing here stops at a problem: a value that cannot be used is replaced by one that can, and the problem list
//! decides in the end whether there is a configuration at all.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use laneway_core::nearest::nearest;
use laneway_core::{Name, Span};
use toml::{Table, Value};

use super::error::{ConfigError, ConfigErrorKind};
use super::layers::{Place, Places};
use super::path::KeyPath;
use super::units::{format_size, format_span, parse_size, parse_span};

/// The value that stands for "no such limit".
pub(super) const NONE: &str = "none";

/// The problems found so far, and where keys were written.
pub(super) struct Problems {
    places: Places,
    list: RefCell<Vec<ConfigError>>,
}

impl Problems {
    pub(super) fn new(places: Places) -> Problems {
        Problems { places, list: RefCell::default() }
    }

    /// Notes a problem of a key.
    pub(super) fn note(&self, kind: ConfigErrorKind, path: &KeyPath, message: impl Into<String>) {
        let place = self.place_of(path).map(Place::to_string).unwrap_or_default();
        let error = ConfigError { kind, key: path.to_string(), place, message: message.into() };
        self.list.borrow_mut().push(error);
    }

    /// The places again, and every problem.
    pub(super) fn finish(self) -> (Places, Vec<ConfigError>) {
        (self.places, self.list.into_inner())
    }

    /// Where the key, or the nearest part above it, was written.
    fn place_of(&self, path: &KeyPath) -> Option<&Place> {
        let mut path = path.clone();
        loop {
            if let Some(place) = self.places.get(&path) {
                return Some(place);
            }
            path = path.parent()?;
        }
    }

    /// The text of a variable, where the key was given by one.
    fn variable_text(&self, path: &KeyPath) -> Option<&str> {
        match self.places.get(path) {
            Some(Place::Environment { text, .. }) => Some(text.reveal()),
            _ => None,
        }
    }
}

/// A section that is being read.
pub struct Section<'a> {
    pub(super) path: KeyPath,
    table: &'a Table,
    /// The values of keys that the section leaves out.
    base: Option<&'a Table>,
    problems: &'a Problems,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    pub(super) fn new(
        path: KeyPath,
        table: &'a Table,
        base: Option<&'a Table>,
        problems: &'a Problems,
    ) -> Section<'a> {
        Section { path, table, base, problems, known: RefCell::default() }
    }

    /// Notes a problem of one of the section's keys.
    pub fn problem(&self, key: &str, message: impl Into<String>) {
        self.problems.note(ConfigErrorKind::Invalid, &self.path.join(key), message);
    }

    /// The value of a key, from the section or its base.
    pub fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().push(key);
        self.table.get(key).or_else(|| self.base?.get(key))
    }

    /// A whole number within `range`.
    pub fn count(&self, key: &'static str, range: RangeInclusive<u32>) -> u32 {
        self.opt_count(key, range.clone()).unwrap_or(*range.start())
    }

    /// The same, where the key may be absent.
    pub fn opt_count(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.get(key)?;
        let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
        if let Some(number) = number.filter(|number| range.contains(number)) {
            return Some(number);
        }
        let (from, to) = (range.start(), range.end());
        self.problem(key, format!("is {}; write a whole number from {from} to {to}", shown(value)));
        None
    }

    /// A length of time within `range`.
    pub fn span(&self, key: &'static str, range: RangeInclusive<Span>) -> Span {
        self.opt_span(key, range.clone()).unwrap_or(*range.start())
    }

    /// The same, where the key may be absent.
    pub fn opt_span(&self, key: &'static str, range: RangeInclusive<Span>) -> Option<Span> {
        let value = self.get(key)?;
        if let Some(span) = value.as_str().and_then(parse_span).filter(|span| range.contains(span)) {
            return Some(span);
        }
        let (from, to) = (format_span(*range.start()), format_span(*range.end()));
        let message = format!(
            "is {}; write a length of time from \"{from}\" to \"{to}\", such as \"30s\", \"1h30m\" or \"500ms\"",
            shown(value)
        );
        self.problem(key, message);
        None
    }

    /// A length of time, or `"none"`.
    pub(super) fn span_or_none(&self, key: &'static str, range: RangeInclusive<Span>) -> Option<Span> {
        match self.table.get(key).or_else(|| self.base?.get(key)) {
            Some(Value::String(text)) if text == NONE => {
                self.known.borrow_mut().push(key);
                None
            }
            _ => self.opt_span(key, range),
        }
    }

    /// A size in bytes within `range`.
    pub fn size(&self, key: &'static str, range: RangeInclusive<u64>) -> u64 {
        let Some(value) = self.get(key) else { return *range.start() };
        if let Some(size) = value.as_str().and_then(parse_size).filter(|size| range.contains(size)) {
            return size;
        }
        let (from, to) = (format_size(*range.start()), format_size(*range.end()));
        self.problem(
            key,
            format!("is {}; write a size from \"{from}\" to \"{to}\", such as \"1MiB\"", shown(value)),
        );
        *range.start()
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &'static str) -> bool {
        match self.get(key) {
            Some(Value::Boolean(flag)) => *flag,
            Some(other) => {
                self.problem(key, format!("is {}; write true or false", shown(other)));
                false
            }
            None => false,
        }
    }

    /// One of several names.
    pub fn one_of<T: Copy>(&self, key: &'static str, names: &[(&str, T)]) -> T {
        let value = self.get(key);
        let found =
            value.and_then(Value::as_str).and_then(|text| names.iter().find(|(name, _)| *name == text));
        if let Some((_, meaning)) = found {
            return *meaning;
        }
        let list: Vec<String> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let is = value.map_or_else(|| "missing".to_owned(), shown);
        self.problem(key, format!("is {is}; write {}", list.join(" or ")));
        names[0].1
    }

    /// A text, where the key may be absent. A variable's text counts as it is, even when it looks like a number.
    pub fn opt_text(&self, key: &'static str) -> Option<String> {
        match self.get(key)? {
            Value::String(text) => Some(text.clone()),
            other => {
                let raw = self.problems.variable_text(&self.path.join(key));
                if raw.is_none() {
                    self.problem(key, format!("is {}; write a text in quotes", other.type_str()));
                }
                raw.map(str::to_owned)
            }
        }
    }

    /// A text.
    pub fn text(&self, key: &'static str) -> String {
        self.opt_text(key).unwrap_or_default()
    }

    /// A list of texts.
    pub fn texts(&self, key: &'static str) -> Vec<String> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let texts =
            value.as_array().map(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        if let Some(Some(texts)) = texts {
            return texts;
        }
        self.problem(key, format!("is {}; write a list of texts, such as [\"a\", \"b\"]", shown(value)));
        Vec::new()
    }

    /// A section below this one. `base` gives what it leaves out.
    pub(super) fn section(&self, key: &'static str, base: Option<&'a Table>) -> Option<Section<'a>> {
        let value = self.get(key)?;
        let table = self.as_table(key, value)?;
        Some(Section::new(self.path.join(key), table, base, self.problems))
    }

    /// The same, or `base` where there is no such section.
    pub(super) fn section_or(&self, key: &'static str, base: &'a Table) -> Section<'a> {
        let section = self.section(key, Some(base));
        section.unwrap_or_else(|| Section::new(self.path.join(key), base, None, self.problems))
    }

    /// The sections below `key`, each under a name that users gave; `len_max` at most.
    pub(super) fn named(
        &self,
        key: &'static str,
        base: Option<&'a Table>,
        len_max: usize,
    ) -> Vec<(Name, Section<'a>)> {
        let Some(tables) = self.get(key).and_then(|value| self.as_table(key, value)) else {
            return Vec::new();
        };
        if tables.len() > len_max {
            self.problem(key, format!("has {} entries; at most {len_max} are allowed", tables.len()));
            return Vec::new();
        }
        let above = self.path.join(key);
        let mut sections = Vec::new();
        for (text, value) in tables {
            let path = above.join(text);
            let wrong = |message: String| self.problems.note(ConfigErrorKind::Invalid, &path, message);
            let name = match Name::new(text) {
                Ok(name) if name.is_plain() => name,
                Ok(_) => {
                    wrong("is no name here; use letters, digits and . _ : - only".to_owned());
                    continue;
                }
                Err(error) => {
                    wrong(error.to_string());
                    continue;
                }
            };
            match value {
                Value::Table(table) => sections.push((name, Section::new(path, table, base, self.problems))),
                _ => wrong(format!("is no section; write [{path}]")),
            }
        }
        sections
    }

    /// The plain pairs of name and text below `key`. Values may be secrets, so problems do not show them.
    pub(super) fn pairs(&self, key: &'static str) -> Vec<(String, String)> {
        let Some(table) = self.get(key).and_then(|value| self.as_table(key, value)) else {
            return Vec::new();
        };
        let path = self.path.join(key);
        let mut pairs = Vec::new();
        for (name, value) in table {
            let path = path.join(name);
            match value.as_str().or_else(|| self.problems.variable_text(&path)) {
                Some(text) => pairs.push((name.clone(), text.to_owned())),
                None => self.problems.note(ConfigErrorKind::Invalid, &path, "is no text; write it in quotes"),
            }
        }
        pairs
    }

    /// Call this last: it reports the keys that were not read.
    pub(super) fn finish(self) {
        let known = self.known.into_inner();
        for key in self.table.keys().filter(|key| !known.contains(&key.as_str())) {
            let message = match nearest(key, known.iter().copied()) {
                Some(near) => format!("unknown key; did you mean `{near}`?"),
                None => format!("unknown key; known here: {}", known.join(", ")),
            };
            self.problems.note(ConfigErrorKind::UnknownKey, &self.path.join(key), message);
        }
    }

    fn as_table(&self, key: &str, value: &'a Value) -> Option<&'a Table> {
        if value.as_table().is_none() {
            let path = self.path.join(key);
            self.problem(key, format!("is no section; write [{path}]"));
        }
        value.as_table()
    }
}

/// A value as problems show it, bounded.
fn shown(value: &Value) -> String {
    const LEN_MAX: usize = 60;
    let text = match value {
        Value::Table(_) => "a section".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        value => value.to_string().replace('\n', "\\n"),
    };
    if text.chars().count() <= LEN_MAX { text } else { text.chars().take(LEN_MAX).chain(['…']).collect() }
}
