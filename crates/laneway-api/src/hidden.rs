//! Hides what jobs carry from viewers, if `server.viewer_payloads` is `"hidden"`.
//!
//! It is one rule for all operations, applied where the gate sends a response: operations that return payloads, log lines or
//! artifacts are denied, and the fields with results and payloads are removed from every other answer. So a new operation cannot
//! forget it.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use laneway_core::Role;
use laneway_runtime::Caller;
use serde_json::Value;

use crate::api::Api;
use crate::error::{ApiError, Code};

/// Operations whose whole answer is hidden.
const DENIED: [&str; 3] = ["get_job_payload", "list_job_logs", "get_artifact"];
/// The largest answer that is rewritten, in bytes. Lists are bounded far below it.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// True when this caller may not see payloads.
pub fn hides(api: &Api, caller: &Caller) -> bool {
    caller.role == Role::Viewer && api.config.current().server.viewer_payloads_hidden
}

/// The error for an operation that such a caller may not call.
pub fn check(operation: &str) -> Result<(), ApiError> {
    match DENIED.contains(&operation) {
        false => Ok(()),
        true => Err(ApiError::new(
            Code::Forbidden,
            "payloads, results and log lines are hidden from the role viewer (server.viewer_payloads); use a token with another role",
        )),
    }
}

/// Removes results and payloads from an answer.
pub async fn strip(operation: &str, response: Response) -> Response {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_json || matches!(operation, "get_openapi" | "get_schema") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let stripped = match axum::body::to_bytes(body, ANSWER_BYTES_MAX).await {
        Ok(bytes) => serde_json::from_slice::<Value>(&bytes).map(|mut value| {
            // The summary of a firing is its result; that of an explanation is not.
            strip_value(&mut value, operation.ends_with("_firings"));
            value.to_string()
        }),
        Err(_) => Ok(String::new()),
    };
    parts.headers.remove(axum::http::header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(stripped.unwrap_or_default()))
}

fn strip_value(value: &mut Value, of_firings: bool) {
    match value {
        Value::Object(object) => {
            object.remove("result");
            object.remove("payload");
            if of_firings {
                object.remove("summary");
            }
            // The details of an error come from the handler.
            if let Some(Value::Object(error)) = object.get_mut("error") {
                error.remove("detail");
            }
            object.values_mut().for_each(|value| strip_value(value, of_firings));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| strip_value(value, of_firings)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_and_payloads_are_removed_at_every_depth() {
        let mut run = json!({"id": "r", "nodes": [{"job": {"state": "failed", "result": {"secret": 1},
            "error": {"code": "x", "message": "m", "detail": {"secret": 2}}}}]});
        strip_value(&mut run, false);
        assert!(!run.to_string().contains("secret"), "{run}");
        assert_eq!(run["nodes"][0]["job"]["error"]["message"], "m");
        let mut schedule =
            json!({"name": "n", "job": {"kind": "k", "payload": {"secret": 3}}, "summary": "s"});
        strip_value(&mut schedule, false);
        assert_eq!(schedule, json!({"name": "n", "job": {"kind": "k"}, "summary": "s"}));
        let mut firings = json!({"firings": [{"summary": "secret"}]});
        strip_value(&mut firings, true);
        assert_eq!(firings, json!({"firings": [{}]}));
    }

    #[test]
    fn whole_answers_are_denied() {
        assert!(check("get_job").is_ok());
        assert_eq!(check("get_job_payload").unwrap_err().code, Code::Forbidden);
    }
}
