//! A job as a task of MCP. The id of the task is the id of the job, so a task needs no memory of its own.
//!
//! | state of the job | status of the task |
//! |---|---|
//! | `scheduled`, `queued`, `assigned`, `running` | `working` |
//! | `succeeded` | `completed` |
//! | `failed`, `rejected` | `completed`, and the result is marked as an error |
//! | `canceled` | `cancelled` |
//!
//! In the protocol, `failed` means that the call itself failed with a protocol error; a job that failed is a result. No state of
//! a job waits for an answer of the client, so no task is `input_required`.

use laneway_wire::Job;
use rmcp::model::{DetailedTask, JsonObject, Task, TaskPayload, TaskStatus};
use serde_json::Value;

use crate::answer;
use crate::api::ApiResponse;

/// How often a client should ask for a task, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;

/// The task of a job.
pub fn task(job: &Job<'_>) -> Task {
    let updated = job.finished_at.as_ref().or(job.started_at.as_ref()).unwrap_or(&job.created_at);
    Task::new(&*job.id, status(&job.state), &*job.created_at, &**updated)
        .with_status_message(answer::sentence(job))
        .with_poll_interval_ms(POLL_INTERVAL_MS)
}

/// The task of the job in a response, with its result if it has ended.
pub fn detailed(response: &ApiResponse) -> Option<DetailedTask> {
    let job = answer::job_in(response)?;
    let payload = match status(&job.state) {
        TaskStatus::Cancelled => TaskPayload::Cancelled,
        TaskStatus::Completed => TaskPayload::Completed { result: object(answer::ended(response)) },
        _ => TaskPayload::Working,
    };
    Some(DetailedTask::new(task(&job), payload))
}

fn status(state: &str) -> TaskStatus {
    match state {
        "succeeded" | "failed" | "rejected" => TaskStatus::Completed,
        "canceled" => TaskStatus::Cancelled,
        _ => TaskStatus::Working,
    }
}

fn object(result: rmcp::model::CallToolResult) -> JsonObject {
    match serde_json::to_value(result) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_state_of_a_job_has_a_status() {
        for (state, expected, is_error) in [
            ("scheduled", "working", None),
            ("queued", "working", None),
            ("assigned", "working", None),
            ("running", "working", None),
            ("succeeded", "completed", Some(false)),
            ("failed", "completed", Some(true)),
            ("rejected", "completed", Some(true)),
            ("canceled", "cancelled", None),
        ] {
            let body = json!({
                "id": "01990000-0000-7000-8000-000000000001", "state": state, "kind": "echo", "agent": "default",
                "lane": "main", "tenant": "default", "priority": 0, "attempt": 1, "failures": 0, "losses": 0,
                "created_at": "2030-01-01T08:00:00Z", "finished_at": "2030-01-01T08:00:05Z",
            });
            let response = ApiResponse { status: 200, body: body.to_string().into_bytes() };
            let task = serde_json::to_value(detailed(&response).unwrap()).unwrap();
            assert_eq!(task["status"], expected, "{state}");
            assert_eq!(task["taskId"], "01990000-0000-7000-8000-000000000001");
            assert_eq!(task["lastUpdatedAt"], "2030-01-01T08:00:05Z");
            let shown = task.get("result").map(|result| result["isError"].as_bool().unwrap_or(false));
            assert_eq!(shown, is_error, "{state}");
        }
    }

    #[test]
    fn a_response_without_a_job_is_no_task() {
        assert!(detailed(&ApiResponse { status: 404, body: b"{}".to_vec() }).is_none());
        assert!(detailed(&ApiResponse { status: 200, body: b"[]".to_vec() }).is_none());
    }
}
