//! Batches: many tasks of one agent, each accepted or rejected on its own.

use axum::extract::Request;
use axum::http::StatusCode;
use laneway_core::Rejection;
use laneway_core::command::{Submission, Submitted};
use laneway_runtime::Caller;
use serde_json::json;

use super::decode::{Fields, read_body};
use super::error::{Problem, json_line};
use super::tasks::Answer;
use super::translate::{Asked, full_message, state_name, task_id};
use super::wire::{Batch, BatchItem};
use super::{NAME, Pinchtab, callback};
use crate::body::Call;

/// Submits many tasks, and returns the outcome of each.
pub async fn submit_tasks(Call(pinchtab, caller): Call<Pinchtab>, request: Request) -> Answer {
    let body = read_body(request).await?;
    let mut fields = Fields::of_body(&body)?;
    let (agent_id, callback_url) = (fields.text("agentId")?, fields.text("callbackUrl")?);
    let tasks = fields.list("tasks")?;
    let max = pinchtab.live.current().dialect(NAME).count("max_batch_size") as usize;
    if !agent_id.is_empty() && tasks.len() > max {
        let problem = Problem::new(StatusCode::BAD_REQUEST, "batch_too_large", "batch exceeds maximum size");
        return Err(problem.details(json!({"submitted": tasks.len(), "max": max})));
    }
    let items: Vec<Asked> = tasks
        .into_iter()
        .map(|item| Asked::of_item(Fields::of(item, "tasks")?))
        .collect::<Result<_, Problem>>()?;
    if agent_id.is_empty() {
        return Err(Problem::bad_request("missing required field 'agentId'"));
    }
    if items.is_empty() {
        return Err(Problem::bad_request("batch must contain at least one task"));
    }
    // Only now are the shared fields copied to each item.
    let asked = items
        .into_iter()
        .map(|item| Asked { agent_id: agent_id.clone(), callback_url: callback_url.clone(), ..item })
        .collect();
    let tasks = pinchtab.submit_each(&caller, asked, &agent_id).await?;
    Ok(json_line(StatusCode::ACCEPTED, &Batch { submitted: tasks.len(), tasks }))
}

impl Pinchtab {
    /// Submits the valid tasks, in order and in one commit.
    async fn submit_each(
        &self,
        caller: &Caller,
        asked: Vec<Asked>,
        agent_id: &str,
    ) -> Result<Vec<BatchItem>, Problem> {
        // Every host name is resolved once for the whole batch.
        let (now, guard) = (self.scheduler.wall(), self.guard.on_behalf_of(&caller.tenant).for_batch());
        let (mut items, mut good): (Vec<Option<BatchItem>>, Vec<Submission>) = (Vec::new(), Vec::new());
        for mut task in asked {
            let checked = match task.check() {
                Ok(()) => callback::check(&guard, &task.callback_url).await,
                wrong => wrong,
            };
            match checked.and_then(|()| task.into_submission(caller, now)) {
                Ok(submission) => {
                    good.push(submission);
                    items.push(None);
                }
                Err(problem) => items.push(Some(invalid(&problem))),
            }
        }
        let mut verdicts = match good.is_empty() {
            true => Vec::new(),
            false => self.scheduler.submit_batch(good, false).await?,
        }
        .into_iter();
        let verdict = |item: Option<BatchItem>| {
            item.unwrap_or_else(|| {
                item_of(verdicts.next().expect("there is a verdict for each task"), agent_id)
            })
        };
        Ok(items.into_iter().map(verdict).collect())
    }
}

fn item_of(verdict: Result<Submitted, Rejection>, agent_id: &str) -> BatchItem {
    match verdict {
        Ok(submitted) => BatchItem {
            task_id: task_id(submitted.job),
            state: state_name(submitted.state),
            position: submitted.waiting.into(),
            error: None,
        },
        Err(rejection) => BatchItem {
            task_id: rejection.recorded.map(task_id).unwrap_or_default(),
            state: "rejected",
            position: 0,
            error: Some(match rejection.full {
                Some(full) => full_message(full, agent_id),
                None => rejection.message.to_string(),
            }),
        },
    }
}

/// An invalid task. It is not stored.
fn invalid(problem: &Problem) -> BatchItem {
    let error = Some(super::error::sanitized(problem.message()));
    BatchItem { task_id: String::new(), state: "rejected", position: 0, error }
}
