//! Jobs: shown, listed, explained, changed, canceled, retried and deleted.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use laneway_core::{JobId, Reply, Span};
use laneway_runtime::Retried;
use laneway_runtime::store::{CountBy, JobView, Reader};
use laneway_wire::{
    AttemptList, EventList, Explanation, Job, JobCounts, JobList, JobPatchRequest, LogList, Problem,
};

use crate::api::Api;
use crate::auth::{self, Caller};
use crate::body;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::json;
use crate::query::{Call, JOB_FILTERS, NoInput, NoParameters, Parameters, PathJob};
use crate::render;
use crate::reply::{self, Answer};
use crate::v1::{schedules, submit};

/// The largest and the default number of listed events of a job: more than its attempts cause with any reasonable
/// policy.
const EVENTS_MAX: usize = 1_000;
/// The longest time that a request may wait for the end of a job. Proxies cut requests that are silent for longer.
pub const WAIT_MAX: Span = Span::secs(60);
/// The number of jobs that are explained before the scheduler processes other commands.
const EXPLAINED_AT_ONCE: usize = 32;

/// Shows a job. With `wait`, responds when it has ended or the time has passed, whichever is first.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", operation_id = "get_job", tag = "jobs",
    params(("id" = String, Path), ("wait" = Option<String>, Query, description = "Respond when the job has ended, or after this time: at most 60s. A server that stops, or needs the share of this caller for another one, responds at once.")),
    responses((status = 200, body = Job<'_>), (status = 400, description = "invalid_id, invalid_field", body = Problem), (status = 404, description = "not_found", body = Problem), (status = 429, description = "too_many requests wait, with Retry-After", body = Problem))
)]
pub async fn get_job(Call(api, caller): Call, PathJob(id): PathJob, list: Parameters) -> Answer {
    let list = list.only(&["wait"])?;
    let wait = list.get("wait").map(|text| convert::span("wait", text)).transpose()?.unwrap_or_default();
    if wait > WAIT_MAX {
        return Err(ApiError::field(
            "wait",
            "is longer than 60s; use 60s or less, and send the request again",
        ));
    }
    let mut view = find(&api, &caller, id).await?;
    if wait > Span(0) && view.end.is_none() {
        wait_for_end(&api, &caller, &view, Duration::from_millis(wait.0)).await?;
        view = find(&api, &caller, id).await?;
    }
    reply::ok(&render::job(&view, api.scheduler.progress(id)))
}

/// Shows the payload of a job, byte for byte.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/payload", operation_id = "get_job_payload", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The payload", body = serde_json::Value), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_job_payload(Call(api, caller): Call, PathJob(id): PathJob, _: NoParameters) -> Answer {
    let view = find(&api, &caller, id).await?;
    let payload = api.scheduler.read(move |reader| reader.payload(view.row.seq)).await?;
    let payload = payload.ok_or_else(ApiError::no_job)?;
    let mut response = Response::new(Body::from(payload.to_vec()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Lists jobs, newest first.
#[utoipa::path(
    get, path = "/v1/jobs", operation_id = "list_jobs", tag = "jobs",
    params(
        ("state" = Option<String>, Query, description = "One or more states: repeated, or separated by commas."),
        ("lane" = Option<String>, Query), ("agent" = Option<String>, Query), ("kind" = Option<String>, Query),
        ("session" = Option<String>, Query), ("tag" = Option<String>, Query),
        ("error_code" = Option<String>, Query, description = "The code of the error that ended the job."),
        ("reason" = Option<String>, Query, description = "One or more reasons of the end: repeated, or separated by commas."),
        ("search" = Option<String>, Query, description = "Words: each must begin a word of the kind, the agent, a tag, or the error. Or the beginning of an id."),
        ("created_before" = Option<String>, Query, description = "RFC 3339"),
        ("created_after" = Option<String>, Query, description = "RFC 3339"),
        ("finished_before" = Option<String>, Query, description = "RFC 3339"),
        ("finished_after" = Option<String>, Query, description = "RFC 3339"),
        ("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page; keep every filter unchanged"),
        ("explain" = Option<bool>, Query, description = "true: `waiting_for` says why a waiting job waits"),
        ("count" = Option<bool>, Query, description = "true: `counts` says how many jobs match"),
    ),
    responses((status = 200, body = JobList<'_>), (status = 400, description = "invalid_field, unknown_field, invalid_cursor", body = Problem))
)]
pub async fn list_jobs(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&[&JOB_FILTERS[..], &["limit", "cursor", "explain", "count"]].concat())?;
    let (filter, limit) = (list.job_filter(caller.scope())?, list.limit()?);
    let name = format!("jobs {filter:?}");
    let before =
        list.get("cursor").map(|cursor| api.cursors.read(&name, cursor)).transpose()?.map(laneway_core::Seq);
    let (tenant, counted) = (filter.tenant.clone(), list.flag("count")?);
    let read = move |reader: &dyn Reader| {
        let counts = if counted { reader.count_jobs(&filter, CountBy::Nothing)? } else { None };
        Ok((reader.jobs(&filter, before, limit)?, counts))
    };
    let (page, counts) = api.scheduler.list(tenant, read).await?;
    let shown = page.items.iter().map(|view| render::job(view, api.scheduler.progress(view.row.id)));
    let mut jobs: Vec<Job<'_>> = shown.collect();
    if list.flag("explain")? {
        for (job, reason) in jobs.iter_mut().zip(reasons(&api, &caller, &page.items).await?) {
            job.waiting_for = reason.map(Cow::Owned);
        }
    }
    let next = page.next.map(|next| api.cursors.write(&name, next));
    reply::ok(&JobList { jobs, next, counts: counts.map(render::job_counts) })
}

/// Counts jobs, by state and group.
#[utoipa::path(
    get, path = "/v1/jobs/counts", operation_id = "count_jobs", tag = "jobs",
    params(
        ("state" = Option<String>, Query, description = "One or more states: repeated, or separated by commas."),
        ("lane" = Option<String>, Query), ("agent" = Option<String>, Query), ("kind" = Option<String>, Query),
        ("session" = Option<String>, Query), ("tag" = Option<String>, Query),
        ("error_code" = Option<String>, Query, description = "The code of the error that ended the job."),
        ("reason" = Option<String>, Query, description = "One or more reasons of the end: repeated, or separated by commas."),
        ("search" = Option<String>, Query, description = "Words: each must begin a word of the kind, the agent, a tag, or the error. Or the beginning of an id."),
        ("created_before" = Option<String>, Query, description = "RFC 3339"),
        ("created_after" = Option<String>, Query, description = "RFC 3339"),
        ("finished_before" = Option<String>, Query, description = "RFC 3339"),
        ("finished_after" = Option<String>, Query, description = "RFC 3339"),
        ("by" = Option<String>, Query, description = "Count for each lane, kind, agent or error code."),
    ),
    responses((status = 200, body = JobCounts), (status = 400, description = "invalid_field, unknown_field", body = Problem))
)]
pub async fn count_jobs(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&[&JOB_FILTERS[..], &["by"]].concat())?;
    let filter = list.job_filter(caller.scope())?;
    let by = match list.get("by") {
        None => CountBy::Nothing,
        Some("lane") => CountBy::Lane,
        Some("kind") => CountBy::Kind,
        Some("agent") => CountBy::Agent,
        Some("error_code") => CountBy::ErrorCode,
        Some(_) => return Err(ApiError::field("by", "must be one of lane, kind, agent, error_code")),
    };
    let tenant = filter.tenant.clone();
    let counts = api.scheduler.list(tenant, move |reader| reader.count_jobs(&filter, by)).await?;
    let too_many = || {
        let detail = "too many jobs would have to be read to count these; leave out finished_before and finished_after, or search for longer words";
        ApiError::new(Code::InvalidField, detail)
    };
    reply::ok(&render::job_counts(counts.ok_or_else(too_many)?))
}

/// Changes a waiting job: its priority, and when it starts at the earliest. It is applied completely or not at all.
///
/// A queued job with a later time is scheduled until then. A scheduled job whose time has come is queued. A job that waits for
/// other nodes of its run waits for them first. Jobs of a session start in the order of their times.
#[utoipa::path(
    patch, path = "/v1/jobs/{id}", operation_id = "update_job", tag = "jobs", params(("id" = String, Path)),
    request_body = JobPatchRequest<'_>,
    responses((status = 200, description = "The changed job", body = Job<'_>), (status = 400, description = "malformed_json, invalid_field, unknown_field, invalid_id", body = Problem), (status = 404, description = "not_found", body = Problem), (status = 409, description = "not_waiting: an attempt is open; already_ended", body = Problem), (status = 422, description = "deadline_past, invalid: the node has no time of its own", body = Problem))
)]
pub async fn update_job(
    Call(api, caller): Call,
    PathJob(id): PathJob,
    _: NoParameters,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    json::check_content_type(&parts.headers)?;
    let bytes = body::read(&parts.headers, body, api.config.current().server.body_max).await?;
    let request: JobPatchRequest<'_> = json::parse(&bytes, json::DEPTH_MAX)?;
    let patch = convert::job_patch(&request)?;
    match api.scheduler.update_job(caller.scope().cloned(), id, patch, caller.origin()).await? {
        Reply::Updated { .. } => {
            let view = find(&api, &caller, id).await?;
            reply::ok(&render::job(&view, None))
        }
        Reply::Rejected(rejection) => Err(rejection.into()),
        Reply::NotFound => {
            let view = find(&api, &caller, id).await?;
            let detail = format!("the job has ended ({}) and cannot be changed", view.state());
            Err(ApiError::new(Code::AlreadyEnded, detail))
        }
        other => Err(ApiError::internal(format!("the engine answered a change with {other:?}"))),
    }
}

/// Deletes an ended job with its payload, result, attempts, logs and webhook delivery. Its events stay in the event log.
///
/// Its idempotency key is free afterwards. Nodes of runs are deleted together with their run.
#[utoipa::path(
    delete, path = "/v1/jobs/{id}", operation_id = "delete_job", tag = "jobs", params(("id" = String, Path)),
    responses((status = 204, description = "The job is deleted"), (status = 404, description = "not_found", body = Problem), (status = 409, description = "not_ended: cancel the job first; in_use: it is a node of a run, keeps keys, its webhook is not delivered, or a job that it was merged into has not ended", body = Problem))
)]
pub async fn delete_job(Call(api, caller): Call, PathJob(id): PathJob, _: NoInput) -> Answer {
    match api.scheduler.delete_job(caller.scope().cloned(), id, caller.origin()).await? {
        Reply::Deleted { .. } => reply::no_content(),
        Reply::Rejected(rejection) => Err(rejection.into()),
        Reply::NotFound => Err(ApiError::no_job()),
        other => Err(ApiError::internal(format!("the engine answered a deletion with {other:?}"))),
    }
}

/// Cancels a job.
///
/// A waiting job never starts. A running job is canceled at once; its attempt must stop, and keeps its slots until it
/// has.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", operation_id = "cancel_job", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The canceled job", body = Job<'_>), (status = 404, description = "not_found", body = Problem), (status = 409, description = "already_ended", body = Problem))
)]
pub async fn cancel_job(Call(api, caller): Call, PathJob(id): PathJob, _: NoInput) -> Answer {
    match api.scheduler.cancel(caller.scope().cloned(), id, caller.origin()).await? {
        Reply::Canceled { .. } => {
            let view = find(&api, &caller, id).await?;
            reply::ok(&render::job(&view, None))
        }
        Reply::Rejected(rejection) => Err(rejection.into()),
        Reply::NotFound => {
            let view = find(&api, &caller, id).await?;
            let detail = format!("the job has ended ({}) and cannot be canceled", view.state());
            Err(ApiError::new(Code::AlreadyEnded, detail))
        }
        other => Err(ApiError::internal(format!("the engine answered a cancel with {other:?}"))),
    }
}

/// Retries an ended job: creates a new job with the same spec and payload.
///
/// Every request creates another job, so an idempotency key is rejected.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/retry", operation_id = "retry_job", tag = "jobs", params(("id" = String, Path)),
    responses((status = 201, description = "The new job; `retry_of` names the old one", body = Job<'_>), (status = 400, description = "invalid_id, or an Idempotency-Key, which is not accepted here", body = Problem), (status = 403, description = "forbidden: the job runs with the credentials of a user, and the header laneway-credential-user does not name that user", body = Problem), (status = 404, description = "not_found", body = Problem), (status = 409, description = "not_ended", body = Problem), (status = 422, description = "unknown_lane: the lane of the job was deleted", body = Problem), (status = 429, description = "queue_full", body = Problem))
)]
pub async fn retry_job(
    Call(api, caller): Call,
    PathJob(id): PathJob,

    headers: HeaderMap,
    _: NoInput,
) -> Answer {
    submit::reject_key(
        &headers,
        "is not accepted for a retry; omit it, and look for a job with this retry_of before you repeat the request",
    )?;
    let view = find(&api, &caller, id).await?;
    let payload = api.scheduler.read(move |reader| reader.payload(view.row.seq)).await?.unwrap_or_default();
    if !schedules::holds_credential(&api, &view.row.spec.kind, &payload, &headers) {
        let detail = "the job runs with the credentials of a user (credentialUserId): name the same user in the header \
                      laneway-credential-user";
        return Err(ApiError::new(Code::Forbidden, detail));
    }
    match api.scheduler.retry(caller.scope().cloned(), id, caller.origin()).await? {
        Retried::Submitted(submitted) => {
            let view = find(&api, &caller, submitted.job).await?;
            reply::new_job(StatusCode::CREATED, submitted.job, &render::job(&view, None))
        }
        Retried::Rejected(rejection) => Err(rejection.into()),
        Retried::Live(state) => {
            let detail =
                format!("the job is {state}; only ended jobs can be retried, so wait or cancel it first");
            Err(ApiError::new(Code::NotEnded, detail))
        }
        Retried::NotFound => Err(ApiError::no_job()),
    }
}

/// Explains why a job does not run.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/explain", operation_id = "explain_job", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = Explanation), (status = 404, description = "not_found", body = Problem))
)]
pub async fn explain_job(Call(api, caller): Call, PathJob(id): PathJob, _: NoParameters) -> Answer {
    if let Some(explanation) = api.scheduler.explain(caller.scope().cloned(), id).await? {
        return reply::ok(&render::explanation(id.to_string(), &explanation));
    }
    let view = find(&api, &caller, id).await?;
    reply::ok(&render::explanation_of_ended(id.to_string(), &view))
}

/// Lists the log lines of a job, oldest first.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/logs", operation_id = "list_job_logs", tag = "jobs",
    params(("id" = String, Path), ("after" = Option<u64>, Query, description = "Only lines after this number"), ("limit" = Option<usize>, Query)),
    responses((status = 200, body = LogList), (status = 404, description = "not_found", body = Problem))
)]
pub async fn list_job_logs(Call(api, caller): Call, PathJob(id): PathJob, list: Parameters) -> Answer {
    let list = list.only(&["after", "limit"])?;
    let (after, limit) = (list.number("after")?.unwrap_or(0), list.limit()?);
    let view = find(&api, &caller, id).await?;
    let lines = api.scheduler.read(move |reader| reader.logs(view.row.seq, after, limit)).await?;
    let next = lines.last().filter(|_| lines.len() == limit).map(|line| line.line);
    reply::ok(&LogList { lines: lines.iter().map(render::log_line).collect(), next })
}

/// Lists the events of a job, oldest first.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/events", operation_id = "list_job_events", tag = "jobs",
    params(("id" = String, Path), ("limit" = Option<usize>, Query, description = "Only the latest events: 1 to 1000; 1000 when absent")),
    responses((status = 200, body = EventList), (status = 404, description = "not_found", body = Problem))
)]
pub async fn list_job_events(Call(api, caller): Call, PathJob(id): PathJob, list: Parameters) -> Answer {
    let limit = list.only(&["limit"])?.limit_up_to(EVENTS_MAX)?.unwrap_or(EVENTS_MAX);
    let view = find(&api, &caller, id).await?;
    let events = api.scheduler.read(move |reader| reader.events_of(view.row.seq, limit)).await?;
    reply::ok(&EventList { events: events.iter().map(render::event).collect() })
}

/// Lists the attempts of a job, oldest first.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/attempts", operation_id = "list_attempts", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = AttemptList), (status = 404, description = "not_found", body = Problem))
)]
pub async fn list_attempts(Call(api, caller): Call, PathJob(id): PathJob, _: NoParameters) -> Answer {
    let view = find(&api, &caller, id).await?;
    let seq = view.row.seq;
    let closed = api.scheduler.read(move |reader| reader.attempts(seq)).await?;
    reply::ok(&render::attempts(&view, &closed))
}

/// Waits until a job has ended, the time has passed, or the server stops. Fails when the caller's permission ends
/// meanwhile.
async fn wait_for_end(api: &Api, caller: &Caller, view: &JobView, most: Duration) -> Result<(), ApiError> {
    let share = api.waits.take(caller).map_err(|none| {
        let mut error = ApiError::new(Code::TooMany, format!("too many requests wait: {none}"));
        error.retry_after = Some(Span::secs(5));
        error
    })?;
    let mut tokens = api.scheduler.token_changes();
    let waits = api.scheduler.wait_at_most(&view.row.spec.tenant, view.row.id, most);
    tokio::pin!(waits);
    loop {
        tokio::select! {
            biased;
            changed = tokens.changed() => {
                changed.map_err(|_| ApiError::unavailable())?;
                if !caller.is_still_allowed(&tokens.borrow_and_update(), api.scheduler.wall()) {
                    break;
                }
            }
            () = api.closing.cancelled() => break,
            // All shares are taken and another caller has fewer, so this one responds early.
            () = share.revoked() => break,
            ended = &mut waits => {
                ended?;
                break;
            }
        }
    }
    match caller.is_still_allowed(&api.scheduler.tokens(), api.scheduler.wall()) {
        true => Ok(()),
        false => Err(auth::unauthorized("the token was revoked or has expired; request a new one")),
    }
}

/// Why each of these jobs waits, in their order. A few are read at a time, because each read blocks the scheduler.
async fn reasons(api: &Api, caller: &Caller, jobs: &[JobView]) -> Result<Vec<Option<String>>, ApiError> {
    let mut reasons = Vec::with_capacity(jobs.len());
    for jobs in jobs.chunks(EXPLAINED_AT_ONCE) {
        let ids: Vec<JobId> = jobs.iter().map(|view| view.row.id).collect();
        let holds = api.scheduler.first_holds(caller.scope().cloned(), ids).await?;
        reasons.extend(holds.iter().map(|hold| hold.as_ref().map(render::waiting_for)));
    }
    Ok(reasons)
}

/// The job, if the caller may see it. Jobs of other tenants do not exist for the caller.
pub(super) async fn find(api: &Api, caller: &Caller, id: JobId) -> Result<JobView, ApiError> {
    let view = api.scheduler.read(move |reader| reader.job(id)).await?;
    let visible = |view: &JobView| caller.scope().is_none_or(|tenant| *tenant == view.row.spec.tenant);
    view.filter(visible).ok_or_else(ApiError::no_job)
}
