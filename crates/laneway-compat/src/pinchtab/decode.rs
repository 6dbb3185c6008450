//! Reads requests the lenient way their clients are used to: names in any case, unknown fields left alone, only the first
//! JSON value of the body, `null` for nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use futures_util::StreamExt;
use serde_json::error::Category;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::error::Problem;

/// Largest body, in bytes.
pub const BODY_MAX: usize = 1 << 20;
/// Bodies up to this many bytes are read without asking for room.
const SMALL: usize = 64 << 10;
/// A body must have arrived after this long.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The whole body of a request, if it is not too large. `room` bounds how many large ones are read at once.
pub async fn read_body(room: &Arc<Semaphore>, request: Request) -> Result<Vec<u8>, Problem> {
    let said = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let len_max = said.unwrap_or(BODY_MAX);
    if len_max > BODY_MAX {
        return Err(too_large());
    }
    let read = async {
        let _room = match len_max > SMALL {
            true => Arc::clone(room).acquire_owned().await.ok(),
            false => None,
        };
        collect(request.into_body()).await
    };
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(read) => read,
        Err(_) => Err(Problem::generic(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

async fn collect(body: Body) -> Result<Vec<u8>, Problem> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Problem::bad_request("unexpected EOF"))?;
        if bytes.len() + chunk.len() > BODY_MAX {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn too_large() -> Problem {
    Problem::generic(StatusCode::PAYLOAD_TOO_LARGE, "http: request body too large")
}

/// The fields of an object, asked for by their names in any case.
#[derive(Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// The first JSON value of a body: an object, or `null` for an empty one.
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

    /// The field as it is written, else one that differs only in case.
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
