//! Runs: submitted, shown, listed and canceled.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use laneway_core::{Member, Reply, RunId, RunSpec, RunState, RunSubmission, Seq};
use laneway_runtime::RunView;
use laneway_runtime::config::Config;
use laneway_runtime::store::RunFilter;
use laneway_wire::{Problem, Run, RunList, RunRequest};

use crate::api::Api;
use crate::auth::Caller;
use crate::body;
use crate::callback;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::json;
use crate::query::{Call, NoInput, NoParameters, Parameters, PathRun};
use crate::render;
use crate::reply::{self, Answer};
use crate::v1::submit;

/// The largest body of a run in bytes, unless the configuration allows more for any body.
const RUN_BODY_MAX: usize = 32 << 20;
/// A larger body, in bytes, is parsed on a blocking thread, one per tenant at a time.
const LARGE_RUN: usize = 1 << 20;

/// Submits a run: jobs that depend on one another, all of them or none.
///
/// The response means that the run is durable. A repeated request with the same idempotency key gets the first run,
/// with `existing`.
#[utoipa::path(
    post, path = "/v1/runs", operation_id = "submit_run", tag = "runs",
    params(("Idempotency-Key" = Option<String>, Header, description = "The same as the field `idempotency_key`.")),
    request_body = RunRequest<'_>,
    responses(
        (status = 202, description = "The run", body = Run<'_>),
        (status = 400, description = "malformed_json, invalid_field, unknown_field, too_deep", body = Problem),
        (status = 413, description = "body_too_large", body = Problem),
        (status = 422, description = "deadline_past, idempotency_mismatch, unknown_kind, invalid: a cycle, an unknown or repeated node, too many nodes", body = Problem),
        (status = 429, description = "queue_full, with Retry-After", body = Problem),
        (status = 503, description = "draining, unavailable, with Retry-After", body = Problem),
        (status = 507, description = "storage_low", body = Problem),
    )
)]
pub async fn submit_run(Call(api, caller): Call, _: NoParameters, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    json::check_content_type(&parts.headers)?;
    let config = api.config.current();
    let bytes = body::read(&parts.headers, body, RUN_BODY_MAX.max(config.server.body_max)).await?;
    let preparer = Preparer { api: api.clone(), caller: caller.clone(), config };
    let (spec, prepared) = if bytes.len() <= LARGE_RUN {
        preparer.prepare(&parts.headers, &bytes)?
    } else {
        let permit = api.parsers.take(caller.bound.as_ref()).await;
        let parsed = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            preparer.prepare(&parts.headers, &bytes)
        });
        parsed.await.map_err(ApiError::internal)??
    };
    let guard = api.guard.on_behalf_of(&caller.tenant).for_batch();
    let mut members: Vec<Member> = Vec::with_capacity(prepared.len());
    for (index, (mut member, url)) in prepared.into_iter().enumerate() {
        if let Some(url) = url {
            let checked = callback::check(&guard, &url).await;
            member.spec.callback = Some(checked.map_err(|error| error.within(&format!("nodes[{index}]")))?);
        }
        members.push(member);
    }
    let submission = RunSubmission {
        spec,
        members,
        definition: None,
        origin: caller.origin(),
        prior: None,
        strict_lanes: true,
    };
    let submitted = api.scheduler.submit_run(submission).await??;
    let view = find(&api, &caller, submitted.run).await?;
    reply::json(StatusCode::ACCEPTED, &Run { existing: submitted.existing, ..render::run(&view) })
}

/// A node, and its callback that is not checked yet.
type Prepared = (Member, Option<String>);

/// Parses and converts runs.
struct Preparer {
    api: Api,
    caller: Caller,
    config: Arc<Config>,
}

impl Preparer {
    /// The run of a body, and its nodes.
    fn prepare(&self, headers: &HeaderMap, bytes: &[u8]) -> Result<(RunSpec, Vec<Prepared>), ApiError> {
        let Preparer { api, caller, config } = self;
        let body_max = config.server.body_max;
        let mut run: RunRequest<'_> = json::parse(bytes, json::DEPTH_MAX + 4)?;
        if let Some(key) = submit::key_of_header(headers, run.idempotency_key.as_deref())? {
            run.idempotency_key = Some(Cow::Borrowed(key));
        }
        let spec = convert::run_spec(&run, &caller.tenant, &api.names)?;
        let trace = convert::trace_of_headers(headers);
        let nodes = run.nodes.iter().enumerate().map(|(index, node)| {
            let within = |error: ApiError| error.within(&format!("nodes[{index}]"));
            if node.job.payload.is_some_and(|payload| payload.get().len() > body_max) {
                return Err(within(body::too_large(body_max)));
            }
            let mut member =
                convert::run_member(node, &spec, config.settings(), &api.names).map_err(within)?;
            if member.spec.trace.is_none() {
                member.spec.trace = trace.clone();
            }
            Ok((member, node.job.callback.as_deref().map(str::to_owned)))
        });
        let nodes = nodes.collect::<Result<_, _>>()?;
        Ok((spec, nodes))
    }
}

/// Lists runs, newest first, without their nodes.
#[utoipa::path(
    get, path = "/v1/runs", operation_id = "list_runs", tag = "runs",
    params(
        ("state" = Option<String>, Query, description = "One or more states: repeated, or separated by commas."),
        ("client" = Option<String>, Query),
        ("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent; a page has at most 200"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page; keep every filter unchanged"),
    ),
    responses((status = 200, body = RunList<'_>), (status = 400, description = "invalid_field, unknown_field, invalid_cursor", body = Problem))
)]
pub async fn list_runs(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&["state", "client", "limit", "cursor"])?;
    let filter = RunFilter {
        tenant: caller.scope().cloned(),
        states: list.names("state", &RunState::ALL, RunState::as_str, RunState::parse)?,
        client: list.name("client")?,
        lane: None,
    };
    let name = format!("runs {filter:?}");
    let before = list.get("cursor").map(|cursor| api.cursors.read(&name, cursor)).transpose()?.map(Seq);
    let page = api.scheduler.runs(filter, before, list.limit()?).await?;
    let runs = page.items.iter().map(render::run_row).collect();
    reply::ok(&RunList { runs, next: page.next.map(|next| api.cursors.write(&name, next)) })
}

/// Shows a run with its nodes: their jobs, results and errors.
#[utoipa::path(
    get, path = "/v1/runs/{id}", operation_id = "get_run", tag = "runs", params(("id" = String, Path)),
    responses((status = 200, body = Run<'_>), (status = 400, description = "invalid_id", body = Problem), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_run(Call(api, caller): Call, PathRun(id): PathRun, _: NoParameters) -> Answer {
    let view = find(&api, &caller, id).await?;
    reply::ok(&render::run(&view))
}

/// Cancels a run: all its jobs that have not ended.
///
/// Waiting jobs never start. Running jobs are canceled at once; their attempts must stop, and keep their slots until
/// they have.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", operation_id = "cancel_run", tag = "runs", params(("id" = String, Path)),
    responses((status = 202, description = "The run", body = Run<'_>), (status = 404, description = "not_found", body = Problem), (status = 409, description = "already_ended", body = Problem))
)]
pub async fn cancel_run(Call(api, caller): Call, PathRun(id): PathRun, _: NoInput) -> Answer {
    match api.scheduler.cancel_run(caller.scope().cloned(), id, caller.origin()).await? {
        Reply::RunCanceled { .. } => {
            let view = find(&api, &caller, id).await?;
            reply::json(StatusCode::ACCEPTED, &render::run(&view))
        }
        Reply::Rejected(rejection) => Err(rejection.into()),
        Reply::NotFound => {
            let view = find(&api, &caller, id).await?;
            let detail = format!("the run has ended ({}) and cannot be canceled", view.row.state);
            Err(ApiError::new(Code::AlreadyEnded, detail))
        }
        other => Err(ApiError::internal(format!("the engine answered a cancel with {other:?}"))),
    }
}

/// The run, if the caller may see it.
async fn find(api: &Api, caller: &Caller, id: RunId) -> Result<RunView, ApiError> {
    let view = api.scheduler.run(caller.scope().cloned(), id).await?;
    view.ok_or_else(|| ApiError::new(Code::NotFound, "the run does not exist, or its retention has ended"))
}
