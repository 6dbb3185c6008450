//! The parameters of a request, parsed leniently: a parameter of the wrong type counts as absent, as clients
//! expect.

use serde_json::{Map, Value};

/// Parameters by name.
#[derive(Clone, Debug, Default)]
pub struct Params(pub Map<String, Value>);

impl Params {
    /// A text. An empty one counts as absent.
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

    /// The object at this key, as parameters.
    pub fn object(&self, key: &str) -> Option<Params> {
        self.0.get(key).and_then(Value::as_object).cloned().map(Params)
    }

    /// The id of the job: `jobId`, or `id`.
    pub fn job(&self) -> Option<&str> {
        self.text("jobId").or_else(|| self.text("id"))
    }
}
