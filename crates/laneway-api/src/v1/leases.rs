//! Leases of pull workers: requested, kept alive, reported on and released; and the capacity of the machine.

use axum::extract::Request;
use laneway_core::lease::{Claim, LeaseFor, LeaseMessage, LeaseRequest as Asked, LeaseUpdate};
use laneway_core::{AttemptId, Denial, Grant, Holder, Name, Outcome, Reply};
use laneway_runtime::config::format_span;
use laneway_runtime::runs::LeasedWork;
use laneway_wire::{
    Capacity, Lease, LeaseAlive, LeaseAnswer, LeaseBeat, LeaseList, LeaseRelease, LeaseReport, LeaseRequest,
    LeaseRevoke, Problem,
};
use serde::de::DeserializeOwned;

use crate::api::Api;
use crate::auth::Caller;
use crate::body::{self, Received};
use crate::convert;
use crate::error::{ApiError, Code};
use crate::json;
use crate::query::{Call, NoParameters, OptionalBody, Parameters, PathLease};
use crate::render;
use crate::reply::{self, Answer};
use crate::v1::submit;

/// Lists open leases: those of workers, and those of reserved jobs.
#[utoipa::path(
    get, path = "/v1/leases", operation_id = "list_leases", tag = "leases",
    params(("lane" = Option<String>, Query), ("worker" = Option<String>, Query), ("agent" = Option<String>, Query)),
    responses((status = 200, body = LeaseList), (status = 400, description = "invalid_field, unknown_field", body = Problem))
)]
pub async fn list_leases(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&["lane", "worker", "agent"])?;
    let (lane, worker, agent) = (list.name("lane")?, list.name("worker")?, list.name("agent")?);
    let is = |wanted: &Option<Name>, name: Option<&Name>| wanted.is_none() || wanted.as_ref() == name;
    let mut views = api.scheduler.leases(caller.scope().cloned()).await?;
    views.retain(|view| {
        let holder = view.holder.as_ref().map(|holder| &holder.worker);
        is(&lane, Some(&view.lane)) && is(&worker, holder) && is(&agent, Some(&view.agent))
    });
    let now = api.scheduler.wall();
    reply::ok(&LeaseList { leases: views.iter().map(|view| render::lease(view, now)).collect() })
}

/// Shows a lease.
#[utoipa::path(
    get, path = "/v1/leases/{id}", operation_id = "get_lease", tag = "leases", params(("id" = String, Path)),
    responses((status = 200, body = Lease), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_lease(Call(api, caller): Call, PathLease(id): PathLease, _: NoParameters) -> Answer {
    reply::ok(&find(&api, &caller, id).await?)
}

/// Requests work. The response has a lease, or the reason why there is none.
#[utoipa::path(
    post, path = "/v1/leases", operation_id = "request_lease", tag = "leases", request_body = LeaseRequest<'_>,
    responses((status = 200, description = "Granted or denied", body = LeaseAnswer), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 404, description = "not_found: the job does not exist", body = Problem), (status = 422, description = "never_fits, unknown_lane, invalid", body = Problem))
)]
pub async fn request_lease(Call(api, caller): Call, _: NoParameters, request: Request) -> Answer {
    let bytes = read(&api, request).await?;
    let asked: LeaseRequest<'_> = json::parse(&bytes, json::DEPTH_MAX)?;
    let holder = Holder { worker: convert::name("worker", &asked.worker)?, pid: asked.pid, boot: None };
    let reply = match (&asked.job, &asked.new) {
        (Some(_), Some(_)) => return Err(ApiError::field("new", "is set beside job; send one of them")),
        (Some(job), None) => {
            let (tenant, job) = (caller.scope().cloned(), convert::job_id(job)?);
            api.scheduler.request_lease(Asked { what: LeaseFor::Job { tenant, job }, holder }).await?
        }
        (None, Some(new)) => {
            let submission = submit::submission(&api, &caller, new).await?;
            let what = LeaseFor::New(Box::new(submission));
            api.scheduler.request_lease(Asked { what, holder }).await?
        }
        (None, None) => api.scheduler.claim(claim(&caller, &asked, holder)?).await?,
    };
    match reply {
        Reply::Granted(grant) => granted(&api, &caller, &grant).await,
        Reply::Denied(denied) => reply::ok(&not_granted(&denied)),
        Reply::Rejected(rejection) => Err(rejection.into()),
        _ => {
            Err(ApiError::new(Code::NotFound, "the lane does not exist, or there is no live job of that id"))
        }
    }
}

fn claim(caller: &Caller, asked: &LeaseRequest<'_>, holder: Holder) -> Result<Claim, ApiError> {
    let Some(lane) = &asked.lane else {
        return Err(ApiError::field("lane", "is missing; send a lane, a job or a new job"));
    };
    let kinds = asked.kinds.as_deref().unwrap_or_default();
    Ok(Claim {
        tenant: caller.tenant.clone(),
        lane: convert::name("lane", lane)?,
        agent: asked.agent.as_ref().map(|agent| convert::name("agent", agent)).transpose()?,
        kinds: kinds.iter().map(|kind| convert::name("kinds", kind)).collect::<Result<_, _>>()?,
        max_cost: asked.max_cost,
        holder,
        start: true,
        token: caller.token().cloned(),
    })
}

async fn granted(api: &Api, caller: &Caller, grant: &Grant) -> Answer {
    let (payload, trace) = match api.scheduler.work_of(grant.fence).await? {
        None => (Ok(None), None),
        Some(LeasedWork { payload, trace }) => (payload.map(Some), trace),
    };
    let payload = match payload {
        Ok(payload) => payload,
        // The payload of the node cannot be built, so no worker can run it.
        Err(clash) => {
            let problem = ApiError::new(Code::Conflict, clash.message.to_string());
            api.scheduler.finish(grant.fence, Outcome::Failed(clash)).await?;
            return Err(problem);
        }
    };
    reply::ok(&LeaseAnswer {
        granted: true,
        lease: Some(find(api, caller, grant.fence.attempt_id).await?),
        payload: payload.as_deref().map(render::raw),
        traceparent: trace.as_ref().map(|trace| trace.parent()),
        tracestate: trace.and_then(|trace| trace.state).map(Into::into),
        timeout: Some(format_span(grant.timeout)),
        deadline: grant.deadline.map(render::time),
        ttl_ms: Some(grant.lease.0),
        reason: None,
        message: None,
        retry_after: None,
        retry_after_ms: None,
    })
}

fn not_granted(denied: &Denial) -> LeaseAnswer {
    LeaseAnswer {
        granted: false,
        lease: None,
        payload: None,
        traceparent: None,
        tracestate: None,
        timeout: None,
        deadline: None,
        reason: Some(denied.reason.as_str().to_owned()),
        message: Some(render::denial(&denied.reason)),
        retry_after: Some(format_span(denied.retry_after)),
        retry_after_ms: Some(denied.retry_after.0),
        ttl_ms: None,
    }
}

/// Renews a lease.
#[utoipa::path(
    post, path = "/v1/leases/{id}/heartbeat", operation_id = "beat_lease", tag = "leases", params(("id" = String, Path)),
    request_body = LeaseBeat,
    responses((status = 200, body = LeaseAlive), (status = 403, description = "forbidden: the lease of another worker", body = Problem), (status = 404, description = "not_found: stop the attempt", body = Problem))
)]
pub async fn beat_lease(
    Call(api, caller): Call,
    PathLease(id): PathLease,
    _: NoParameters,
    request: Request,
) -> Answer {
    let LeaseBeat { worker, pid } = parse(&read(&api, request).await?)?;
    match update(&api, &caller, id, &worker, pid, LeaseUpdate::Alive).await? {
        Reply::Alive { lease, stop } => {
            let expires_at = render::time(api.scheduler.wall() + lease);
            reply::ok(&LeaseAlive { expires_at, ttl_ms: lease.0, stop })
        }
        other => Err(not_taken(other)),
    }
}

/// Reports progress. Only the latest report is kept, until a restart.
#[utoipa::path(
    post, path = "/v1/leases/{id}/report", operation_id = "report_lease", tag = "leases", params(("id" = String, Path)),
    request_body = LeaseReport,
    responses((status = 204, description = "Accepted"), (status = 403, description = "forbidden: the lease of another worker", body = Problem), (status = 404, description = "not_found", body = Problem))
)]
pub async fn report_lease(
    Call(api, caller): Call,
    PathLease(id): PathLease,
    _: NoParameters,
    request: Request,
) -> Answer {
    let LeaseReport { worker, progress, message } = parse(&read(&api, request).await?)?;
    if !(0.0..=1.0).contains(&progress) {
        return Err(ApiError::field("progress", "must be from 0 to 1"));
    }
    let (tenant, worker) = (caller.scope().cloned(), convert::name("worker", &worker)?);
    let message = message.unwrap_or_default();
    match api.scheduler.report(id, tenant, worker, progress, &message).await? {
        Reply::Done => reply::no_content(),
        other => Err(not_taken(other)),
    }
}

/// Ends an attempt: releases the lease with its outcome.
#[utoipa::path(
    post, path = "/v1/leases/{id}/release", operation_id = "release_lease", tag = "leases", params(("id" = String, Path)),
    request_body = LeaseRelease<'_>,
    responses((status = 204, description = "Accepted"), (status = 403, description = "forbidden: the lease of another worker", body = Problem), (status = 404, description = "not_found: the lease has ended, and nothing changed", body = Problem))
)]
pub async fn release_lease(
    Call(api, caller): Call,
    PathLease(id): PathLease,
    _: NoParameters,
    request: Request,
) -> Answer {
    let bytes = read(&api, request).await?;
    let release: LeaseRelease<'_> = json::parse(&bytes, json::DEPTH_MAX)?;
    let ended = LeaseUpdate::Ended(convert::outcome(&release)?);
    match update(&api, &caller, id, &release.worker, None, ended).await? {
        Reply::Done => reply::no_content(),
        Reply::Rejected(rejection) => Err(rejection.into()),
        other => Err(not_taken(other)),
    }
}

/// Revokes a lease: its job fails, and its attempt must stop.
#[utoipa::path(
    post, path = "/v1/leases/{id}/revoke", operation_id = "revoke_lease", tag = "leases", params(("id" = String, Path)),
    request_body = LeaseRevoke,
    responses((status = 204, description = "Revoked"), (status = 404, description = "not_found", body = Problem))
)]
pub async fn revoke_lease(
    Call(api, caller): Call,
    PathLease(id): PathLease,
    OptionalBody(LeaseRevoke { reason }): OptionalBody<LeaseRevoke>,
) -> Answer {
    let said = LeaseUpdate::Revoke(reason.unwrap_or_else(|| "revoked".to_owned()).into());
    let tenant = caller.scope().cloned();
    let message = LeaseMessage { lease: id, tenant, worker: None, pid: None, update: said };
    match api.scheduler.lease_message(message).await? {
        Reply::Done => reply::no_content(),
        other => Err(not_taken(other)),
    }
}

/// Shows the capacity of the machine, and the agents that use it.
#[utoipa::path(get, path = "/v1/capacity", operation_id = "get_capacity", tag = "leases", responses((status = 200, body = Capacity)))]
pub async fn get_capacity(Call(api, caller): Call, _: NoParameters) -> Answer {
    let view = api.scheduler.capacity().await?;
    reply::ok(&render::capacity(&view, caller.scope()))
}

async fn find(api: &Api, caller: &Caller, id: AttemptId) -> Result<Lease, ApiError> {
    let view = api.scheduler.lease(caller.scope().cloned(), id).await?;
    view.map(|view| render::lease(&view, api.scheduler.wall())).ok_or_else(no_lease)
}

async fn update(
    api: &Api,
    caller: &Caller,
    lease: AttemptId,
    worker: &str,
    pid: Option<u32>,
    said: LeaseUpdate,
) -> Result<Reply, ApiError> {
    let (tenant, worker) = (caller.scope().cloned(), Some(convert::name("worker", worker)?));
    Ok(api.scheduler.lease_message(LeaseMessage { lease, tenant, worker, pid, update: said }).await?)
}

async fn read(api: &Api, request: Request) -> Result<Received, ApiError> {
    let (parts, body) = request.into_parts();
    let received = body::read(&parts.headers, body, api.config.current().server.body_max).await?;
    if !received.is_empty() {
        json::check_content_type(&parts.headers)?;
    }
    Ok(received)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    json::parse(bytes, json::DEPTH_MAX)
}

/// The error for a message about a lease that was rejected.
fn not_taken(reply: Reply) -> ApiError {
    match reply {
        Reply::NotYours => {
            ApiError::new(Code::Forbidden, "the lease belongs to another worker; nothing changed")
        }
        _ => no_lease(),
    }
}

fn no_lease() -> ApiError {
    ApiError::new(Code::NotFound, "the lease does not exist or has ended; stop its attempt")
}
