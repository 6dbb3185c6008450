//! Parses requests as leniently as the original server: field names in any case, unknown fields ignored, only the
//! first JSON value of the body, `null` for an absent value.

use axum::extract::Request;
use axum::http::StatusCode;
use laneway_core::Span;
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::error::Problem;
use crate::body::{self, BodyError};

/// Largest body, in bytes.
pub const BODY_MAX: usize = 1 << 20;

/// The body of a request, up to [`BODY_MAX`] bytes.
pub async fn read_body(request: Request) -> Result<Vec<u8>, Problem> {
    body::read(request, BODY_MAX).await.map_err(|error| match error {
        BodyError::TooLarge => {
            Problem::generic(StatusCode::PAYLOAD_TOO_LARGE, "http: request body too large")
        }
        BodyError::Late => Problem::generic(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
        BodyError::Busy => {
            let message = "too many large bodies at once; send it again";
            Problem::generic(StatusCode::TOO_MANY_REQUESTS, message).retry_after(Span::secs(1))
        }
        BodyError::Broken => Problem::bad_request("unexpected EOF"),
    })
}

/// The fields of an object, by name in any case.
#[derive(Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of a body: its first JSON value, an object, or `null` for an empty one.
    pub fn of_body(body: &[u8]) -> Result<Fields, Problem> {
        let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
        let value = match values.next() {
            None => return Err(Problem::bad_request("EOF")),
            Some(Err(error)) if error.classify() == Category::Eof => {
                return Err(Problem::bad_request("unexpected EOF"));
            }
            Some(Err(error)) => return Err(Problem::bad_request(format!("invalid JSON: {error}"))),
            Some(Ok(value)) => value,
        };
        Fields::of(value, "(the body)")
    }

    /// The fields of a value that must be an object, or `null`.
    pub fn of(value: Value, what: &str) -> Result<Fields, Problem> {
        match value {
            Value::Object(fields) => Ok(Fields(fields)),
            Value::Null => Ok(Fields(Map::new())),
            other => Err(misfit(&other, what, "object")),
        }
    }

    /// A text; absent and `null` are empty.
    pub fn text(&mut self, name: &str) -> Result<String, Problem> {
        match self.take(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(misfit(&other, name, "string")),
        }
    }

    /// A whole number; absent and `null` are 0.
    pub fn int(&mut self, name: &str) -> Result<i64, Problem> {
        match self.take(name) {
            None => Ok(0),
            Some(Value::Number(number)) if number.is_i64() => Ok(number.as_i64().unwrap_or_default()),
            Some(other) => Err(misfit(&other, name, "int")),
        }
    }

    /// An object; absent and `null` are empty.
    pub fn object(&mut self, name: &str) -> Result<Map<String, Value>, Problem> {
        match self.take(name) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(other) => Err(misfit(&other, name, "object")),
        }
    }

    /// A list; absent and `null` are empty.
    pub fn list(&mut self, name: &str) -> Result<Vec<Value>, Problem> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(misfit(&other, name, "list")),
        }
    }

    /// The field with this exact name, else one that differs only in case.
    fn take(&mut self, name: &str) -> Option<Value> {
        let key = match self.0.contains_key(name) {
            true => name.to_owned(),
            false => self.0.keys().find(|key| key.eq_ignore_ascii_case(name))?.clone(),
        };
        self.0.remove(&key).filter(|value| !value.is_null())
    }
}

fn misfit(value: &Value, name: &str, wanted: &str) -> Problem {
    let given = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) => format!("number {number}"),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    Problem::bad_request(format!("json: cannot unmarshal {given} into field {name} of type {wanted}"))
}
