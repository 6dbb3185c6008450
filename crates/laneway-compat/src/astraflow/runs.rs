//! Runs: start, list, show, cancel.

use axum::extract::{Path, Request};
use axum::http::header::{ETAG, HeaderName, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use laneway_core::{Name, Reply, RunId, RunRow, RunState, Seq};
use laneway_runtime::store::RunFilter;
use laneway_runtime::{Caller, RunView};

use super::error::{Problem, json};
use super::query::{Given, Parameters};
use super::wire::{RunList, RunRef};
use super::workflow::{definition_hash, run_of};
use super::{Astraflow, LANE, show};
use crate::body::Call;
use crate::body::{self, BodyError};

/// What handlers return.
pub type Answer = Result<Response, Problem>;

/// The idempotency key of a start.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Longest body of a start, in bytes: the definition and the parameters of all nodes.
const BODY_MAX: usize = 16 << 20;
/// A larger body, in bytes, is parsed on a blocking thread.
const LARGE: usize = 1 << 20;

/// Starts a run, with all its nodes or not at all. A success means that the run is durable.
pub async fn start_run(Call(held, caller): Call<Astraflow>, headers: HeaderMap, request: Request) -> Answer {
    let started = held.start(&caller, &headers, request).await.map_err(|problem| problem.of(&caller))?;
    Ok(json(StatusCode::ACCEPTED, &started))
}

/// Lists runs, newest first, without their nodes.
pub async fn list_runs(Call(held, caller): Call<Astraflow>, parameters: Given) -> Answer {
    let list = held.list(&caller, parameters).await.map_err(|problem| problem.of(&caller))?;
    Ok(json(StatusCode::OK, &list))
}

/// Shows a run with its nodes.
pub async fn get_run(Call(held, caller): Call<Astraflow>, Path(id): Path<String>) -> Answer {
    let view = held.find(&caller, &id).await.map_err(|problem| problem.of(&caller))?;
    let shown = show::whole(&held.scheduler, view).await.map_err(|error| Problem::from(error).of(&caller))?;
    Ok(json(StatusCode::OK, &shown))
}

/// Cancels a run: all its nodes that have not ended.
pub async fn cancel_run(Call(held, caller): Call<Astraflow>, Path(id): Path<String>) -> Answer {
    let ended = held.cancel(&caller, &id).await.map_err(|problem| problem.of(&caller))?;
    Ok(json(StatusCode::ACCEPTED, &reference(&ended.row)))
}

/// The workflow that a run was started with, as it was sent.
pub async fn get_run_definition(
    Call(held, caller): Call<Astraflow>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answer {
    let view = held.find(&caller, &id).await.map_err(|problem| problem.of(&caller))?;
    let first = view.row.first;
    let found = held.scheduler.read(move |reader| reader.run_definition(first)).await;
    let definition = found.map_err(|error| Problem::from(error).of(&caller))?;
    let Some(definition) = definition else {
        return Err(Problem::not_found("the run was not started with a workflow").of(&caller));
    };
    let tag = format!("W/\"sha256:{}\"", definition_hash(&view.row.spec));
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known =
        known.is_some_and(|known| known.split(',').any(|known| [tag.as_str(), "*"].contains(&known.trim())));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => {
            let content_type = [("content-type", "application/json")];
            (StatusCode::OK, content_type, definition.to_vec()).into_response()
        }
    };
    let tag = HeaderValue::from_str(&tag).expect("hex digits are a header");
    response.headers_mut().insert(ETAG, tag);
    Ok(response)
}

/// The short response about a run.
fn reference(row: &RunRow) -> RunRef {
    RunRef {
        run_id: row.id.to_string(),
        status: show::run_status(row.state),
        definition_hash: definition_hash(&row.spec).to_owned(),
        client_id: row.spec.client.as_ref().map(Name::to_string).unwrap_or_default(),
        created_at: show::time(row.created_at),
    }
}

impl Astraflow {
    async fn start(&self, caller: &Caller, headers: &HeaderMap, request: Request) -> Result<RunRef, Problem> {
        let key = headers.get(IDEMPOTENCY_KEY).map(HeaderValue::to_str).transpose();
        let key =
            key.map_err(|_| Problem::field("Idempotency-Key", "holds something else than printable ASCII"))?;
        let body = self.read_body(request, BODY_MAX).await?;
        let config = self.live.current();
        let submission = if body.len() <= LARGE {
            run_of(&body, key, caller, config.settings())?
        } else {
            let permit = self.parsers.take(caller.bound.as_ref()).await;
            let (key, caller) = (key.map(str::to_owned), caller.clone());
            let parsed = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                run_of(&body, key.as_deref(), &caller, config.settings())
            });
            parsed.await.map_err(Problem::internal)??
        };
        let submitted = self.scheduler.submit_run(submission).await?;
        let id = submitted.map_err(|rejection| Problem::rejected(&rejection))?.run;
        let row = self.scheduler.read(move |reader| reader.run(id)).await?;
        row.as_ref().map(reference).ok_or_else(no_run)
    }

    /// The body of a request, or an error of this dialect.
    pub(super) async fn read_body(&self, request: Request, len_max: usize) -> Result<Vec<u8>, Problem> {
        body::read(request, len_max).await.map_err(|error| match error {
            BodyError::TooLarge => {
                let message = format!("the body has more than {len_max} bytes");
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
            }
            BodyError::Late => {
                Problem::new(StatusCode::REQUEST_TIMEOUT, "body_late", "the body did not arrive in time")
            }
            BodyError::Busy => {
                let message = "too many large bodies at once; send it again";
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_bodies", message)
            }
            BodyError::Broken => Problem::field("(the body)", "ended too early"),
        })
    }

    async fn list(&self, caller: &Caller, given: Given) -> Result<RunList, Problem> {
        let parameters = Parameters::of(given)?;
        let limit = parameters.limit()?;
        let states = parameters.get("status").map(run_states).transpose()?.unwrap_or_default();
        let client = parameters
            .get("clientId")
            .map(|text| Name::new(text).map_err(|error| Problem::field("clientId", error.to_string())));
        let filter = RunFilter {
            tenant: Some(caller.tenant.clone()),
            states,
            client: client.transpose()?,
            lane: Some(Name::fixed(LANE)),
        };
        let list = format!("runs {filter:?}");
        let before = parameters.get("cursor").map(|cursor| {
            let detail =
                "must be `nextCursor` of the page before, with the same filters; start again without it";
            self.cursors.read(&list, cursor).map(Seq).ok_or_else(|| Problem::field("cursor", detail))
        });
        let page = self.scheduler.runs(filter, before.transpose()?, limit).await?;
        let next_cursor = page.next.map(|next| self.cursors.write(&list, next));
        Ok(RunList { items: page.items.iter().map(show::row).collect(), next_cursor })
    }

    /// The run of an id, if the caller's tenant has one.
    pub(super) async fn find(&self, caller: &Caller, id: &str) -> Result<RunView, Problem> {
        let id = RunId::parse(id).ok_or_else(no_run)?;
        let view = self.scheduler.run(Some(caller.tenant.clone()), id).await?;
        view.filter(|view| is_ours(&view.row)).ok_or_else(no_run)
    }

    async fn cancel(&self, caller: &Caller, id: &str) -> Result<RunView, Problem> {
        let view = self.find(caller, id).await?;
        let tenant = Some(caller.tenant.clone());
        match self.scheduler.cancel_run(tenant, view.row.id, caller.origin()).await? {
            Reply::RunCanceled { .. } => self.find(caller, id).await,
            Reply::Rejected(rejection) => Err(Problem::rejected(&rejection)),
            Reply::NotFound => {
                let status = show::run_status(self.find(caller, id).await?.row.state);
                let message = format!("the run has ended ({status}), so there is nothing to cancel");
                Err(Problem::new(StatusCode::CONFLICT, "already_ended", message))
            }
            other => Err(Problem::internal(other)),
        }
    }
}

/// True for a run in this dialect's lane.
fn is_ours(row: &RunRow) -> bool {
    row.spec.lane.as_str() == LANE
}

fn no_run() -> Problem {
    Problem::not_found("there is no such run, or it was forgotten some time after its end")
}

/// The states in a comma-separated list of the dialect's names.
fn run_states(names: &str) -> Result<Vec<RunState>, Problem> {
    let state = |name: &str| {
        let found = RunState::ALL.into_iter().find(|state| show::run_status(*state) == name);
        found.ok_or_else(|| {
            Problem::field(
                "status",
                "must be queued, running, succeeded, failed or cancelled, or some of them with commas",
            )
        })
    };
    names.split(',').map(str::trim).map(state).collect()
}
