//! Reads the fields of an action or a step. Every error names the field.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::action::BadAction;

/// The longest text of a field, in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// The fields of a JSON object. It notes which ones were read.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    read: RefCell<BTreeSet<&'static str>>,
}

/// The error of a field.
pub(crate) fn bad(field: &str, reason: impl Into<String>) -> BadAction {
    BadAction { field: field.to_owned(), reason: reason.into() }
}

impl<'a> Fields<'a> {
    pub(crate) fn new(value: &'a Value, field: &str) -> Result<Fields<'a>, BadAction> {
        let map = value.as_object().ok_or_else(|| bad(field, "it must be an object"))?;
        Ok(Fields { map, read: RefCell::default() })
    }

    /// A field, unless it is absent or null.
    pub(crate) fn value(&self, name: &'static str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, name: &'static str) -> Result<Option<String>, BadAction> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| bad(name, "it must be a text"))?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(bad(name, format!("it has more than {TEXT_BYTES_MAX} bytes")));
        }
        Ok(Some(text.to_owned()))
    }

    pub(crate) fn required(&self, name: &'static str) -> Result<String, BadAction> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| bad(name, "it is required"))
    }

    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, BadAction> {
        match self.value(name) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| bad(name, "it must be true or false")),
        }
    }

    pub(crate) fn number(&self, name: &'static str, min: f64, max: f64) -> Result<Option<f64>, BadAction> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(bad(name, format!("it must be a number from {min} to {max}"))),
        }
    }

    /// One of these words, the first one if the field is absent.
    pub(crate) fn word(&self, name: &'static str, words: &[&'static str]) -> Result<&'static str, BadAction> {
        match self.text(name)? {
            None => Ok(words[0]),
            Some(text) => match words.iter().find(|word| **word == text) {
                Some(word) => Ok(word),
                None => Err(bad(name, format!("{text:?} is not known; give one of {}", words.join(", ")))),
            },
        }
    }

    /// An error for the first field that was not read.
    pub(crate) fn no_others(&self) -> Result<(), BadAction> {
        let read = self.read.borrow();
        match self.map.keys().find(|name| !read.contains(name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let known: Vec<&str> = read.iter().copied().collect();
                Err(bad(name, format!("it is not known here; known are {}", known.join(", "))))
            }
        }
    }
}
