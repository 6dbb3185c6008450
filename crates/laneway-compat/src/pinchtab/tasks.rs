//! Tasks: submit one, list them, show one, cancel one.

use axum::extract::{Path, Query, Request};
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use laneway_browser::TAB_ACTION;
use laneway_core::command::Submitted;
use laneway_core::{Name, Rejection, RejectionCode, Reply, Seq, Span};
use laneway_runtime::Caller;
use laneway_runtime::store::{JobFilter, JobView, Reader, StoreError};
use serde::Deserialize;
use serde_json::json;

use super::decode::{Fields, read_body};
use super::error::{Problem, json_line};
use super::time::rfc3339;
use super::translate::{self, Asked, full_message, job_id, state_name, task_id};
use super::wire::{Accepted, Task, TaskList};
use super::{LANE, Pinchtab, callback};
use crate::body::Call;
use crate::names::name_of;

/// What handlers return.
pub type Answer = Result<Response, Problem>;

/// Most tasks in a list.
const LIST_MAX: usize = 10_000;
/// Most bytes of payloads and results in a list.
const LIST_BYTES_MAX: usize = 32 << 20;
/// How many jobs are read at once for a list.
const PAGE: usize = 500;
/// How many pages are read for a list; a page may be short, because each scans a bounded number of rows.
const PAGES_MAX: usize = 200;
/// The header with the id of a rejected task; the body has no field for it.
const REJECTED_TASK: HeaderName = HeaderName::from_static("x-pinchtab-task-id");

/// The header that marks a list as truncated, for clients that ignore unknown fields.
const TRUNCATED: HeaderName = HeaderName::from_static("x-pinchtab-truncated");

/// Submits a task.
pub async fn submit_task(Call(pinchtab, caller): Call<Pinchtab>, request: Request) -> Answer {
    let body = read_body(request).await?;
    let mut asked = Asked::of_task(Fields::of_body(&body)?)?;
    asked.check()?;
    callback::check(&pinchtab.guard.on_behalf_of(&caller.tenant), &asked.callback_url).await?;
    let agent_id = asked.agent_id.clone();
    let submission = asked.into_submission(&caller, pinchtab.scheduler.wall())?;
    match pinchtab.scheduler.submit(submission).await? {
        Ok(submitted) => Ok(json_line(StatusCode::ACCEPTED, &accepted(&submitted))),
        Err(rejection) => Err(pinchtab.rejected(&rejection, &agent_id).await),
    }
}

fn accepted(submitted: &Submitted) -> Accepted {
    Accepted {
        task_id: task_id(submitted.job),
        state: state_name(submitted.state),
        position: submitted.waiting.into(),
        created_at: rfc3339(submitted.created_at),
    }
}

impl Pinchtab {
    /// The response to a rejected task.
    pub async fn rejected(&self, rejection: &Rejection, agent_id: &str) -> Problem {
        match (rejection.code, rejection.full) {
            (RejectionCode::QueueFull, Some(full)) => {
                let lane = Name::fixed(LANE);
                let queued = self.scheduler.waiting_in(lane.clone()).await;
                let config = self.live.current();
                let limits = config.settings().lanes.get(&lane).cloned().unwrap_or_default();
                let problem =
                    Problem::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", full_message(full, agent_id))
                        .retry_after(rejection.retry_after.unwrap_or(Span::secs(1)))
                        .details(json!({
                            "agentId": agent_id,
                            "queued": queued.unwrap_or(full.waiting),
                            "maxQueue": limits.queued_max,
                            "maxPerAgent": limits.queued_per_agent_max,
                        }));
                match rejection.recorded {
                    Some(job) => problem.header(REJECTED_TASK, task_id(job)),
                    None => problem,
                }
            }
            (RejectionCode::DeadlinePast, _) => translate::deadline_past(),
            (RejectionCode::Draining, _) => laneway_runtime::Stopped.into(),
            (RejectionCode::StorageLow, _) => {
                Problem::generic(StatusCode::INSUFFICIENT_STORAGE, rejection.message.as_ref())
                    .retry_after(Span::secs(60))
            }
            _ => Problem::bad_request(rejection.message.as_ref()),
        }
    }

    /// The task with this id, if the caller may see it.
    async fn find(&self, caller: &Caller, id: &str) -> Result<Option<(JobView, Task)>, Problem> {
        let Some(job) = job_id(id) else { return Ok(None) };
        let found = self
            .scheduler
            .read(move |reader| {
                let Some(view) = reader.job(job)? else { return Ok(None) };
                let payload = reader.payload(view.row.seq)?;
                Ok(payload.map(|payload| (view, payload)))
            })
            .await?;
        let seen =
            found.filter(|(view, _)| caller.scope().is_none_or(|tenant| *tenant == view.row.spec.tenant));
        Ok(seen.and_then(|(view, payload)| translate::task(&view, &payload).map(|task| (view, task))))
    }
}

/// The filter of a list.
#[derive(Debug, Deserialize)]
pub struct ListQuery {
    #[serde(rename = "agentId", default)]
    agent_id: String,
    #[serde(default)]
    state: String,
}

/// Lists tasks, newest first.
pub async fn list_tasks(
    Call(pinchtab, caller): Call<Pinchtab>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer {
    let Query(ListQuery { agent_id, state }) =
        query.map_err(|error| Problem::bad_request(format!("invalid query: {}", error.body_text())))?;
    let states = translate::states_of(&state);
    let filters_states = state.split(',').any(|name| !name.trim().is_empty());
    let filter = JobFilter {
        tenant: caller.scope().cloned(),
        kind: Some(Name::fixed(TAB_ACTION)),
        agent: (!agent_id.is_empty()).then(|| name_of(&agent_id)),
        states: states.clone(),
        ..JobFilter::default()
    };
    // Unknown state names match no task.
    let (tasks, truncated) = match filters_states && states.is_empty() {
        true => (Vec::new(), false),
        false => {
            let tenant = filter.tenant.clone();
            pinchtab.scheduler.list(tenant, move |reader| collect(reader, &filter)).await?
        }
    };
    let mut response = json_line(StatusCode::OK, &TaskList { count: tasks.len(), tasks, truncated });
    if truncated {
        response.headers_mut().insert(TRUNCATED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// The newest tasks that match, and whether older ones were left out.
fn collect(reader: &dyn Reader, filter: &JobFilter) -> Result<(Vec<Task>, bool), StoreError> {
    let (mut tasks, mut bytes, mut before) = (Vec::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let page = reader.jobs(filter, before, PAGE)?;
        for view in &page.items {
            let Some(payload) = reader.payload(view.row.seq)? else { continue };
            let result =
                view.end.as_ref().and_then(|end| end.result.as_ref()).map_or(0, |result| result.len());
            bytes += payload.len() + result;
            if tasks.len() >= LIST_MAX || bytes > LIST_BYTES_MAX {
                return Ok((tasks, true));
            }
            tasks.extend(translate::task(view, &payload));
        }
        match page.next {
            Some(next) => before = Some(Seq(next)),
            None => return Ok((tasks, false)),
        }
    }
    Ok((tasks, true))
}

/// Shows a task.
pub async fn get_task(Call(pinchtab, caller): Call<Pinchtab>, Path(id): Path<String>) -> Answer {
    match pinchtab.find(&caller, &id).await? {
        Some((_, task)) => Ok(json_line(StatusCode::OK, &task)),
        None => Err(no_task()),
    }
}

/// The task `batch` never exists.
pub async fn get_no_task() -> Answer {
    Err(no_task())
}

fn no_task() -> Problem {
    Problem::not_found("task not found")
}

/// Cancels a task that has not ended.
pub async fn cancel_task(Call(pinchtab, caller): Call<Pinchtab>, Path(id): Path<String>) -> Answer {
    let unknown = || Problem::not_found(format!("task {id:?} not found"));
    let (view, _) = pinchtab.find(&caller, &id).await?.ok_or_else(unknown)?;
    let tenant = caller.scope().cloned();
    match pinchtab.scheduler.cancel(tenant, view.row.id, caller.origin()).await? {
        Reply::Canceled { .. } => {
            Ok(json_line(StatusCode::OK, &json!({"status": "cancelled", "taskId": id})))
        }
        Reply::Rejected(rejection) => Err(pinchtab.rejected(&rejection, "").await),
        // It has ended before or since it was looked up.
        _ => match pinchtab.find(&caller, &id).await? {
            Some((_, task)) => {
                let message = format!("task {id:?} already in terminal state {:?}", task.state);
                Err(Problem::new(StatusCode::CONFLICT, "conflict", message))
            }
            None => Err(unknown()),
        },
    }
}
