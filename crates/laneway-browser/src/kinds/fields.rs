//! Reads the payload of a job field by field, so that an error names the field, the value and what is expected.

use laneway_core::nearest::nearest;
use serde_json::{Map, Value};
use thiserror::Error;

/// A payload that is not valid. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {message}")]
pub struct BadPayload {
    /// The field, such as `profileId` or `proxy.port`.
    pub field: String,
    /// What is wrong with it.
    pub problem: PayloadProblem,
    /// A sentence that says so, with the remedy.
    pub message: String,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadProblem {
    /// It is missing.
    Missing,
    /// It has another type.
    Type,
    /// Its value is out of range, or has the wrong form.
    Range,
    /// Its text is too long.
    TooLong,
    /// There is no such field.
    Unknown,
    /// The payload is not JSON.
    Json,
}

impl BadPayload {
    /// A problem of a field.
    pub fn new(field: impl Into<String>, problem: PayloadProblem, message: impl Into<String>) -> BadPayload {
        BadPayload { field: field.into(), problem, message: message.into() }
    }
}

/// An object that is being read.
pub(super) struct Fields {
    object: Map<String, Value>,
    /// The name of the object, with a dot behind it; empty for the payload itself.
    above: &'static str,
    known: Vec<&'static str>,
}

impl Fields {
    /// The payload. An empty one is an empty object.
    pub(super) fn of_payload(payload: &[u8]) -> Result<Fields, BadPayload> {
        if payload.is_empty() {
            return Ok(Fields { object: Map::new(), above: "", known: Vec::new() });
        }
        match serde_json::from_slice(payload) {
            Ok(Value::Object(object)) => Ok(Fields { object, above: "", known: Vec::new() }),
            Ok(Value::Null) => Ok(Fields { object: Map::new(), above: "", known: Vec::new() }),
            Ok(_) => Err(BadPayload::new("payload", PayloadProblem::Type, "is no JSON object")),
            Err(error) => {
                Err(BadPayload::new("payload", PayloadProblem::Json, format!("is no JSON: {error}")))
            }
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.object.remove(key).filter(|value| !value.is_null())
    }

    fn problem(&self, key: &str, problem: PayloadProblem, message: impl Into<String>) -> BadPayload {
        BadPayload::new(format!("{}{key}", self.above), problem, message)
    }

    /// A text of at most `len_max` bytes that must be there.
    pub(super) fn text(&mut self, key: &'static str, len_max: usize) -> Result<String, BadPayload> {
        let text = self.opt_text(key, len_max)?;
        text.ok_or_else(|| self.problem(key, PayloadProblem::Missing, "is missing; give a text"))
    }

    /// A text of at most `len_max` bytes. An empty one counts as absent.
    pub(super) fn opt_text(
        &mut self,
        key: &'static str,
        len_max: usize,
    ) -> Result<Option<String>, BadPayload> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) if text.len() > len_max => {
                let message = format!("has {} bytes; at most {len_max} are allowed", text.len());
                Err(self.problem(key, PayloadProblem::TooLong, message))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.problem(key, PayloadProblem::Type, "is no text; write it in quotes")),
        }
    }

    /// `true` or `false`.
    pub(super) fn opt_flag(&mut self, key: &'static str) -> Result<Option<bool>, BadPayload> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => {
                Err(self.problem(key, PayloadProblem::Type, "is neither true nor false; write one of them"))
            }
        }
    }

    /// A whole number within the range.
    pub(super) fn opt_number(
        &mut self,
        key: &'static str,
        min: u64,
        max: u64,
    ) -> Result<Option<u64>, BadPayload> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let message = format!("is {value}; write a whole number from {min} to {max}");
        if !value.is_number() {
            return Err(self.problem(key, PayloadProblem::Type, message));
        }
        match value.as_u64().filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.problem(key, PayloadProblem::Range, message)),
        }
    }

    /// A list of texts, at most `count_max` of at most `len_max` bytes each.
    pub(super) fn texts(
        &mut self,
        key: &'static str,
        count_max: usize,
        len_max: usize,
    ) -> Result<Vec<String>, BadPayload> {
        let message = format!("is no list of at most {count_max} texts of at most {len_max} bytes");
        let texts = match self.take(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) if items.len() <= count_max => items
                .into_iter()
                .map(|item| item.as_str().filter(|text| text.len() <= len_max).map(str::to_owned))
                .collect(),
            Some(_) => None,
        };
        texts.ok_or_else(|| self.problem(key, PayloadProblem::Type, message))
    }

    /// Any value.
    pub(super) fn value(&mut self, key: &'static str) -> Option<Value> {
        self.take(key)
    }

    /// An object; `above` is its name with a dot behind it.
    pub(super) fn object(
        &mut self,
        key: &'static str,
        above: &'static str,
    ) -> Result<Option<Fields>, BadPayload> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Fields { object, above, known: Vec::new() })),
            Some(_) => Err(self.problem(key, PayloadProblem::Type, "is no JSON object")),
        }
    }

    /// Call this last: a field that was not read is an error.
    pub(super) fn finish(self) -> Result<(), BadPayload> {
        let Some(key) = self.object.keys().next() else { return Ok(()) };
        let message = match nearest(key, self.known.iter().copied()) {
            Some(near) => format!("is no field here; did you mean `{near}`?"),
            None if self.known.is_empty() => "is no field here; there are none".to_owned(),
            None => format!("is no field here; known are {}", self.known.join(", ")),
        };
        Err(self.problem(key, PayloadProblem::Unknown, message))
    }
}
