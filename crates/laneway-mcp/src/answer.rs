//! Answers of the API as results of tools: a sentence, the JSON as text, and the JSON as structured content.

use laneway_wire::{Job, Problem};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::api::{ApiResponse, Unanswered};
use crate::tools::WrongArgument;

/// The states in which a job has ended without success.
const UNSUCCESSFUL: [&str; 3] = ["failed", "canceled", "rejected"];

/// True when a job in this state has ended.
pub fn has_ended(state: &str) -> bool {
    state == "succeeded" || UNSUCCESSFUL.contains(&state)
}

/// The job in a response, if it is one.
pub fn job_in(response: &ApiResponse) -> Option<Job<'_>> {
    if !(200..300).contains(&response.status) {
        return None;
    }
    serde_json::from_slice(&response.body).ok()
}

/// The result of a tool.
pub fn result(response: &ApiResponse) -> CallToolResult {
    if !(200..300).contains(&response.status) {
        return rejection(response);
    }
    let text = String::from_utf8_lossy(&response.body).into_owned();
    let mut content = Vec::with_capacity(2);
    if let Some(job) = job_in(response) {
        content.push(ContentBlock::text(sentence(&job)));
    }
    content.push(ContentBlock::text(text));
    let mut result = CallToolResult::success(content);
    // Structured content is an object in the protocol. Every answer of the API is one.
    result.structured_content = serde_json::from_slice::<Value>(&response.body).ok().filter(Value::is_object);
    result
}

/// The result of a call that waited for a job. A job that did not succeed is an error, so that an agent takes notice.
pub fn ended(response: &ApiResponse) -> CallToolResult {
    let mut result = result(response);
    if job_in(response).is_some_and(|job| UNSUCCESSFUL.contains(&&*job.state)) {
        result.is_error = Some(true);
    }
    result
}

/// The error for a request that the API rejected, with its code and its remedy.
fn rejection(response: &ApiResponse) -> CallToolResult {
    match serde_json::from_slice::<Problem>(&response.body) {
        Ok(problem) => failure(sentence_of(&problem), json!(problem)),
        Err(_) => {
            let text: String = String::from_utf8_lossy(&response.body)
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect();
            let message = format!("the server answered {}: {text}", response.status);
            failure(message.clone(), json!({"status": response.status, "detail": message}))
        }
    }
}

/// The error for a request that got no answer.
pub fn unanswered(error: &Unanswered) -> CallToolResult {
    failure(
        format!("{} [{}]", error.message, error.code),
        json!({"code": error.code, "detail": error.message}),
    )
}

/// The error for an argument that fits no request.
pub fn wrong_argument(wrong: &WrongArgument) -> CallToolResult {
    let WrongArgument { field, code, message } = wrong;
    failure(format!("{message} [{code}]"), json!({"code": code, "field": field, "detail": message}))
}

fn failure(text: String, problem: Value) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(problem);
    result
}

/// A problem in one line: the field, what is wrong, the code, and when to try again.
pub fn sentence_of(problem: &Problem) -> String {
    let mut text = problem.detail.clone();
    if let Some(field) = problem.field.as_deref().filter(|field| !text.contains(field)) {
        text = format!("{field}: {text}");
    }
    text = format!("{text} [{}]", problem.code);
    if let Some(millis) = problem.retry_after_ms {
        text = format!("{text}; try again in {} s", millis.div_ceil(1000));
    }
    text
}

/// A job in one sentence.
pub fn sentence(job: &Job<'_>) -> String {
    let Job { id, kind, state, reason, error, warnings, progress, .. } = job;
    let mut text = format!("Job {id} ({kind}) ");
    text.push_str(&match &**state {
        "succeeded" => "succeeded".to_owned(),
        "failed" | "canceled" | "rejected" => match reason {
            Some(reason) => format!("{} ({reason})", ended_as(state)),
            None => ended_as(state).to_owned(),
        },
        state => format!("is {state}"),
    });
    if let Some(progress) = progress.as_ref().filter(|_| !has_ended(state)) {
        text.push_str(&format!(", {:.0} % done", progress.fraction * 100.0));
    }
    text.push('.');
    if let Some(error) = error {
        text.push_str(&format!(" {}: {}", error.code, error.message));
    }
    for warning in warnings {
        text.push_str(&format!(" Warning: {}.", warning.message));
    }
    text
}

fn ended_as(state: &str) -> &str {
    match state {
        "failed" => "failed",
        "canceled" => "was canceled",
        _ => "was rejected",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: Value) -> ApiResponse {
        ApiResponse { status, body: body.to_string().into_bytes() }
    }

    fn texts(result: &CallToolResult) -> Vec<String> {
        let content = serde_json::to_value(&result.content).unwrap();
        content.as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap().to_owned()).collect()
    }

    pub fn job(state: &str) -> Value {
        json!({
            "id": "01990000-0000-7000-8000-000000000001", "state": state, "kind": "echo", "agent": "default",
            "lane": "main", "tenant": "default", "priority": 0, "attempt": 1, "failures": 0, "losses": 0,
            "created_at": "2030-01-01T08:00:00Z",
        })
    }

    #[test]
    fn a_job_is_a_sentence_and_the_json_of_the_api() {
        let body = job("queued");
        let result = result(&response(201, body.clone()));
        assert_eq!(
            texts(&result),
            ["Job 01990000-0000-7000-8000-000000000001 (echo) is queued.".to_owned(), body.to_string()]
        );
        assert_eq!(result.structured_content, Some(body));
        assert_ne!(result.is_error, Some(true));
    }

    #[test]
    fn a_failed_job_is_an_error_only_for_a_call_that_waited() {
        let mut body = job("failed");
        body["reason"] = json!("exhausted");
        body["error"] = json!({"code": "boom", "message": "it broke", "retryable": true});
        let response = response(200, body);
        assert_ne!(result(&response).is_error, Some(true));
        let ended = ended(&response);
        assert_eq!(ended.is_error, Some(true));
        assert!(
            texts(&ended)[0].ends_with("(echo) failed (exhausted). boom: it broke"),
            "{:?}",
            texts(&ended)
        );
    }

    #[test]
    fn a_rejection_has_the_code_the_field_and_the_remedy() {
        let problem = json!({
            "type": "about:blank", "title": "Queue full", "status": 429, "detail": "the lane main is full",
            "code": "queue_full", "field": "lane_of_job", "retry_after_ms": 1500,
        });
        let result = result(&response(429, problem.clone()));
        assert_eq!(result.is_error, Some(true));
        assert_eq!(texts(&result), ["lane_of_job: the lane main is full [queue_full]; try again in 2 s"]);
        assert_eq!(result.structured_content, Some(problem));
    }

    #[test]
    fn an_answer_that_is_not_of_the_api_is_quoted_and_cut() {
        let response = ApiResponse { status: 502, body: vec![b'x'; 10_000] };
        let result = result(&response);
        assert_eq!(result.is_error, Some(true));
        let text = &texts(&result)[0];
        assert!(text.starts_with("the server answered 502: xxx") && text.len() < 300, "{text}");
    }
}
