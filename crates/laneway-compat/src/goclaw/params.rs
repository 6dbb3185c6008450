//! The parameters of a request, read leniently: what is of the wrong sort counts as left out, as their clients expect.

use serde_json::{Map, Value};

/// Parameters by name.
#[derive(Clone, Debug, Default)]
pub struct Params(pub Map<String, Value>);

impl Params {
    /// A text; an empty one counts as left out.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.given_text(key).filter(|text| !text.is_empty())
    }

    /// A text, empty or not.
    pub fn given_text(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }

    /// A flag.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.0.get(key).and_then(Value::as_bool)
    }

    /// A whole number.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.0.get(key).and_then(Value::as_i64)
    }

    /// Parameters below this one.
    pub fn object(&self, key: &str) -> Option<Params> {
        self.0.get(key).and_then(Value::as_object).cloned().map(Params)
    }

    /// The job that is meant: `jobId`, or `id`.
    pub fn job(&self) -> Option<&str> {
        self.text("jobId").or_else(|| self.text("id"))
    }
}
