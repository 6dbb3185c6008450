//! Callbacks at the end of a task: which URLs are allowed, and what is sent.

use laneway_core::job::CALLBACK_URL_LEN_MAX;
use laneway_runtime::webhooks::{CallbackFormat, Ended, Guard, GuardError, Rendered};

use super::error::Problem;
use super::translate::{self, task_id};

/// The name of the format.
pub const FORMAT: &str = "pinchtab";

/// Checks a callback URL. A blank one means no callback.
pub async fn check(guard: &Guard, url: &str) -> Result<(), Problem> {
    if url.trim().is_empty() {
        return Ok(());
    }
    let checked = match url.len() > CALLBACK_URL_LEN_MAX {
        true => Err(GuardError::Invalid),
        false => guard.check(url).await.map(drop),
    };
    checked.map_err(|error| Problem::bad_request(format!("invalid task: invalid callbackUrl: {error}")))
}

/// Sends the task as `GET /tasks/{id}` returns it, with the headers of the original server.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskCallback;

impl CallbackFormat for TaskCallback {
    fn render(&self, ended: &Ended<'_>) -> Rendered {
        let task = translate::task(ended.job, ended.payload);
        Rendered {
            signed: None,
            content_type: "application/json",
            headers: vec![
                // The same for every end: receivers check the task's state.
                ("x-pinchtab-event", "task.completed".to_owned()),
                ("x-pinchtab-task-id", task_id(ended.job.row.id)),
            ],
            body: serde_json::to_vec(&task).unwrap_or_default(),
        }
    }
}
