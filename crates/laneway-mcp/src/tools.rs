//! The tools: their descriptions from `tools.json`, and the request of the API that each becomes.
//!
//! A tool has the name of its operation in the API, and its arguments have the names of the API's fields. The API checks their
//! values. Here is checked only what decides where a value goes: into the path, the query or the body.

use std::sync::LazyLock;

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use crate::api::{ApiRequest, Method, escape};

/// The tools as clients see them, in their order.
static TOOLS: LazyLock<Vec<Tool>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../tools.json")).expect("tools.json lists tools"));

/// The longest wait of a call, in seconds. A client that supports tasks does not need to wait.
pub const WAIT_S_MAX: u64 = 3600;
/// How long `wait_for_job` waits when the call does not say so, in seconds.
pub const WAIT_S_DEFAULT: u64 = 60;
/// The argument with the time that a call waits. It is not a field of the API.
const WAIT: &str = "wait_s";

/// Where the arguments go that are not in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// There are none.
    Nowhere,
    /// Into the query.
    Query,
    /// Into the body.
    Body,
}

/// A tool, and the operation of the API that it calls.
#[derive(Debug)]
pub struct Operation {
    /// The name of the tool.
    pub tool: &'static str,
    method: Method,
    /// The path; parameters are in braces.
    path: &'static str,
    rest: Rest,
    /// When the call waits for the job.
    pub waits: Waits,
}

/// Whether a call waits for the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Never.
    Never,
    /// If it has the argument `wait_s`.
    OnRequest,
    /// Always.
    Always,
}

/// Every operation, in the order of the tools.
static OPERATIONS: [Operation; 14] = [
    operation("submit_job", Method::Post, "/v1/jobs", Rest::Body, Waits::OnRequest),
    operation("get_job", Method::Get, "/v1/jobs/{id}", Rest::Nowhere, Waits::Never),
    operation("list_jobs", Method::Get, "/v1/jobs", Rest::Query, Waits::Never),
    operation("wait_for_job", Method::Get, "/v1/jobs/{id}", Rest::Nowhere, Waits::Always),
    operation("cancel_job", Method::Post, "/v1/jobs/{id}/cancel", Rest::Nowhere, Waits::Never),
    operation("retry_job", Method::Post, "/v1/jobs/{id}/retry", Rest::Nowhere, Waits::Never),
    operation("explain_job", Method::Get, "/v1/jobs/{id}/explain", Rest::Nowhere, Waits::Never),
    operation("list_job_logs", Method::Get, "/v1/jobs/{id}/logs", Rest::Query, Waits::Never),
    operation("list_schedules", Method::Get, "/v1/schedules", Rest::Query, Waits::Never),
    operation("create_schedule", Method::Post, "/v1/schedules", Rest::Body, Waits::Never),
    operation("pause_schedule", Method::Post, "/v1/schedules/{id}/pause", Rest::Nowhere, Waits::Never),
    operation("resume_schedule", Method::Post, "/v1/schedules/{id}/resume", Rest::Nowhere, Waits::Never),
    operation("fire_schedule", Method::Post, "/v1/schedules/{id}/fire", Rest::Body, Waits::Never),
    operation("stop_session", Method::Post, "/v1/sessions/{key}/stop", Rest::Nowhere, Waits::Never),
];

const fn operation(
    tool: &'static str,
    method: Method,
    path: &'static str,
    rest: Rest,
    waits: Waits,
) -> Operation {
    Operation { tool, method, path, rest, waits }
}

/// An argument that cannot be placed in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongArgument {
    /// Its name.
    pub field: String,
    /// A stable code, one of the API's.
    pub code: &'static str,
    /// What is wrong, and the remedy.
    pub message: String,
}

/// A call of a tool as a request, with the time that it waits.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// The request.
    pub request: ApiRequest,
    /// How long to wait for the end of the job, in seconds.
    pub wait_s: Option<u64>,
}

/// The tools, always in the same order.
pub fn all() -> &'static [Tool] {
    &TOOLS
}

/// The operation of a tool.
pub fn find(tool: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.tool == tool)
}

/// The names of all tools, for an error message.
pub fn names() -> String {
    let names: Vec<&str> = OPERATIONS.iter().map(|operation| operation.tool).collect();
    names.join(", ")
}

impl Operation {
    /// The request for these arguments.
    pub fn call(&self, mut arguments: JsonObject) -> Result<Call, WrongArgument> {
        let wait_s = self.take_wait(&mut arguments)?;
        let mut path = String::new();
        for part in self.path.split('/').skip(1) {
            path.push('/');
            match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                None => path.push_str(part),
                Some(name) => path.push_str(&escape(&segment(name, arguments.remove(name))?)),
            }
        }
        let mut body = None;
        match self.rest {
            Rest::Nowhere => {
                if let Some(name) = arguments.keys().next() {
                    return Err(self.unknown(name));
                }
            }
            Rest::Query => path.push_str(&query(arguments)?),
            Rest::Body => body = Some(Value::Object(arguments).to_string().into_bytes()),
        }
        Ok(Call { request: ApiRequest { method: self.method, path, body, trace: None }, wait_s })
    }

    fn take_wait(&self, arguments: &mut JsonObject) -> Result<Option<u64>, WrongArgument> {
        let given = match self.waits {
            Waits::Never => return Ok(None),
            Waits::OnRequest | Waits::Always => arguments.remove(WAIT),
        };
        match given {
            None | Some(Value::Null) => Ok((self.waits == Waits::Always).then_some(WAIT_S_DEFAULT)),
            Some(value) => {
                let seconds = value.as_u64().filter(|seconds| (1..=WAIT_S_MAX).contains(seconds));
                seconds.map(Some).ok_or_else(|| {
                    invalid(WAIT, format!("{value} is not a whole number of seconds from 1 to {WAIT_S_MAX}"))
                })
            }
        }
    }

    fn unknown(&self, name: &str) -> WrongArgument {
        let known: Vec<&str> =
            self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let known = known.join(", ");
        WrongArgument {
            field: name.to_owned(),
            code: "unknown_field",
            message: format!("{} has no argument {name:?}; its arguments are: {known}", self.tool),
        }
    }
}

fn invalid(field: &str, message: impl Into<String>) -> WrongArgument {
    WrongArgument { field: field.to_owned(), code: "invalid_field", message: message.into() }
}

/// An argument for the path. A dot segment would name another path.
fn segment(name: &str, value: Option<Value>) -> Result<String, WrongArgument> {
    match value {
        Some(Value::String(text)) if !matches!(text.as_str(), "" | "." | "..") => Ok(text),
        Some(Value::String(text)) => Err(invalid(name, format!("{text:?} is not a valid {name}"))),
        None | Some(Value::Null) => Err(invalid(name, format!("{name} is missing; give it as a string"))),
        Some(other) => Err(invalid(name, format!("{name} must be a string, not {}", type_of(&other)))),
    }
}

/// The query with these parameters. A list is written with commas.
fn query(arguments: JsonObject) -> Result<String, WrongArgument> {
    let mut query = String::new();
    for (name, value) in arguments {
        let text = match &value {
            Value::Null => continue,
            Value::Array(items) => {
                let texts: Result<Vec<String>, WrongArgument> =
                    items.iter().map(|item| scalar(&name, item)).collect();
                texts?.join(",")
            }
            value => scalar(&name, value)?,
        };
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(&escape(&name));
        query.push('=');
        query.push_str(&escape(&text));
    }
    Ok(query)
}

fn scalar(name: &str, value: &Value) -> Result<String, WrongArgument> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        other => Err(invalid(
            name,
            format!("{name} must be a string, a number or a boolean, not {}", type_of(other)),
        )),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
