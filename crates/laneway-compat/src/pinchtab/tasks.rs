//! Tasks: submit one, list them, show one, cancel one.

use axum::Extension;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::HeaderName;
use axum::response::Response;
use laneway_core::command::Submitted;
use laneway_core::{Name, Refusal, RefusalCode, Reply, Seq, Span};
use laneway_runtime::Caller;
use laneway_runtime::store::{JobFilter, JobView, Reader, StoreError};
use laneway_runtime::tabs::TAB_ACTION;
use serde::Deserialize;
use serde_json::json;

use super::decode::{Fields, read_body};
use super::error::{Problem, json_line};
use super::time::rfc3339;
use super::translate::{self, Asked, job_id, rejection, state_word, task_id};
use super::wire::{Accepted, Task, TaskList};
use super::{LANE, Pinchtab, callback};
use crate::names::name_of;

/// What handlers give.
pub type Answer = Result<Response, Problem>;

/// Most tasks of a list.
const LIST_MAX: usize = 10_000;
/// Most bytes of payloads and results in a list.
const LIST_BYTES_MAX: usize = 32 << 20;
/// How many jobs are read at once for a list.
const PAGE: usize = 500;
/// How many pages are read for a list; a page may be short, because each looks at a bounded number of rows.
const PAGES_MAX: usize = 200;
/// Names the task that was rejected; the body has no room for it.
const REJECTED_TASK: HeaderName = HeaderName::from_static("x-pinchtab-task-id");

/// Takes a task, or says why not.
pub async fn submit_task(
    State(pinchtab): State<Pinchtab>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Answer {
    let body = read_body(&pinchtab.large_bodies, request).await?;
    let mut asked = Asked::of_task(Fields::of_body(&body)?)?;
    asked.check()?;
    callback::check(&pinchtab.guard, &asked.callback_url).await?;
    let agent_id = asked.agent_id.clone();
    let submission = asked.into_submission(&caller, pinchtab.scheduler.wall())?;
    match pinchtab.scheduler.submit(submission).await? {
        Ok(submitted) => Ok(json_line(StatusCode::ACCEPTED, &accepted(&submitted))),
        Err(refusal) => Err(pinchtab.refused(&refusal, &agent_id).await),
    }
}

fn accepted(submitted: &Submitted) -> Accepted {
    Accepted {
        task_id: task_id(submitted.job),
        state: state_word(submitted.state),
        position: submitted.waiting.into(),
        created_at: rfc3339(submitted.created_at),
    }
}

impl Pinchtab {
    /// What a refused task is answered.
    pub async fn refused(&self, refusal: &Refusal, agent_id: &str) -> Problem {
        match (refusal.code, refusal.full) {
            (RefusalCode::QueueFull, Some(full)) => {
                let lane = Name::fixed(LANE);
                let queued =
                    self.scheduler.read(move |engine, _| engine.waiting_in(&Name::fixed(LANE))).await;
                let config = self.live.current();
                let limits = config.settings().lanes.get(&lane).cloned().unwrap_or_default();
                let problem =
                    Problem::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", rejection(full, agent_id))
                        .retry_after(refusal.retry_after.unwrap_or(Span::secs(1)))
                        .details(json!({
                            "agentId": agent_id,
                            "queued": queued.unwrap_or(full.waiting),
                            "maxQueue": limits.queued_max,
                            "maxPerAgent": limits.queued_per_agent_max,
                        }));
                match refusal.recorded {
                    Some(job) => problem.header(REJECTED_TASK, task_id(job)),
                    None => problem,
                }
            }
            (RefusalCode::DeadlinePast, _) => translate::deadline_past(),
            (RefusalCode::Draining, _) => laneway_runtime::Stopped.into(),
            (RefusalCode::StorageLow, _) => {
                Problem::generic(StatusCode::INSUFFICIENT_STORAGE, refusal.message.as_ref())
                    .retry_after(Span::secs(60))
            }
            _ => Problem::bad_request(refusal.message.as_ref()),
        }
    }

    /// The task of an id, if the caller has one.
    async fn find(&self, caller: &Caller, id: &str) -> Result<Option<(JobView, Task)>, Problem> {
        let Some(job) = job_id(id) else { return Ok(None) };
        let found = self
            .scheduler
            .query(move |reader| {
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

/// Which tasks a list shows.
#[derive(Debug, Deserialize)]
pub struct ListQuery {
    #[serde(rename = "agentId", default)]
    agent_id: String,
    #[serde(default)]
    state: String,
}

/// Lists tasks, newest first.
pub async fn list_tasks(
    State(pinchtab): State<Pinchtab>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer {
    let Query(ListQuery { agent_id, state }) =
        query.map_err(|error| Problem::bad_request(format!("invalid query: {}", error.body_text())))?;
    let states = translate::states_of(&state);
    let wants_states = state.split(',').any(|word| !word.trim().is_empty());
    let filter = JobFilter {
        tenant: caller.scope().cloned(),
        kind: Some(Name::fixed(TAB_ACTION)),
        agent: (!agent_id.is_empty()).then(|| name_of(&agent_id)),
        states: states.clone(),
        ..JobFilter::default()
    };
    // Words that name no state match nothing.
    let tasks = match wants_states && states.is_empty() {
        true => Vec::new(),
        false => pinchtab.scheduler.query(move |reader| collect(reader, &filter)).await?,
    };
    Ok(json_line(StatusCode::OK, &TaskList { count: tasks.len(), tasks }))
}

fn collect(reader: &dyn Reader, filter: &JobFilter) -> Result<Vec<Task>, StoreError> {
    let (mut tasks, mut bytes, mut before) = (Vec::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let page = reader.jobs(filter, before, PAGE)?;
        for view in &page.items {
            let Some(payload) = reader.payload(view.row.seq)? else { continue };
            let result =
                view.end.as_ref().and_then(|end| end.result.as_ref()).map_or(0, |result| result.len());
            bytes += payload.len() + result;
            if tasks.len() >= LIST_MAX || bytes > LIST_BYTES_MAX {
                return Ok(tasks);
            }
            tasks.extend(translate::task(view, &payload));
        }
        match page.next {
            Some(next) => before = Some(Seq(next)),
            None => break,
        }
    }
    Ok(tasks)
}

/// Shows a task.
pub async fn get_task(
    State(pinchtab): State<Pinchtab>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    match pinchtab.find(&caller, &id).await? {
        Some((_, task)) => Ok(json_line(StatusCode::OK, &task)),
        None => Err(no_task()),
    }
}

/// Shows the task `batch`, which there never is.
pub async fn get_no_task() -> Answer {
    Err(no_task())
}

fn no_task() -> Problem {
    Problem::not_found("task not found")
}

/// Ends a task that has not ended.
pub async fn cancel_task(
    State(pinchtab): State<Pinchtab>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let unknown = || Problem::not_found(format!("task {id:?} not found"));
    let (view, _) = pinchtab.find(&caller, &id).await?.ok_or_else(unknown)?;
    let tenant = caller.scope().cloned();
    match pinchtab.scheduler.cancel(tenant, view.row.id, caller.origin()).await? {
        Reply::Canceled { .. } => {
            Ok(json_line(StatusCode::OK, &json!({"status": "cancelled", "taskId": id})))
        }
        Reply::Refused(refusal) => Err(pinchtab.refused(&refusal, "").await),
        // It ended since it was looked up, or before.
        _ => match pinchtab.find(&caller, &id).await? {
            Some((_, task)) => {
                let message = format!("task {id:?} already in terminal state {:?}", task.state);
                Err(Problem::new(StatusCode::CONFLICT, "conflict", message))
            }
            None => Err(unknown()),
        },
    }
}
