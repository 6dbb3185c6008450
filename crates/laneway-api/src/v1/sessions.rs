//! Sessions: shown, stopped, reset, and their context usage.
//!
//! A session belongs to a tenant. A server-wide caller names the tenant with `Laneway-Tenant`, as for a submit.

use laneway_core::Name;
use laneway_core::command::StopWhat;
use laneway_wire::{Problem, Session, SessionList, SessionStopped, SessionUsageRequest, SessionsReset};

use crate::api::Api;
use crate::auth::Caller;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::query::{Call, JsonBody, NoInput, NoParameters, Parameters, PathKey};
use crate::render;
use crate::reply::{self, Answer};

/// Lists sessions by name: those with jobs, and those with a stored state.
#[utoipa::path(
    get, path = "/v1/sessions", operation_id = "list_sessions", tag = "sessions",
    params(
        ("after" = Option<String>, Query, description = "Only sessions after this name: `next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"),
    ),
    responses((status = 200, body = SessionList), (status = 400, description = "invalid_field, unknown_field", body = Problem))
)]
pub async fn list_sessions(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&["after", "limit"])?;
    let after = list.get("after").map(|text| convert::session_key("after", text)).transpose()?;
    let limit = list.limit()?;
    // One more than requested shows whether there is another page.
    let mut views = api.scheduler.sessions(caller.tenant.clone(), after, limit + 1).await?;
    let more = views.len() > limit;
    views.truncate(limit);
    let next = views.last().filter(|_| more).map(|view| view.key.to_string());
    let sessions = views.iter().map(|view| render::session(&caller.tenant, view)).collect();
    reply::ok(&SessionList { sessions, next })
}

/// Shows a session.
#[utoipa::path(
    get, path = "/v1/sessions/{key}", operation_id = "get_session", tag = "sessions", params(("key" = String, Path)),
    responses((status = 200, body = Session), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_session(Call(api, caller): Call, PathKey(key): PathKey, _: NoParameters) -> Answer {
    let view = api.scheduler.session(caller.tenant.clone(), key).await?;
    let view = view.ok_or_else(|| {
        let detail = "the session does not exist: it has no live job and no stored state";
        ApiError::new(Code::NotFound, detail)
    })?;
    reply::ok(&render::session(&caller.tenant, &view))
}

/// Stops the longest-running job of a session, or its first waiting job when none runs.
#[utoipa::path(
    post, path = "/v1/sessions/{key}/stop", operation_id = "stop_session", tag = "sessions", params(("key" = String, Path)),
    responses((status = 200, description = "The stopped jobs; counts of 0 when there were none", body = SessionStopped))
)]
pub async fn stop_session(Call(api, caller): Call, PathKey(key): PathKey, _: NoInput) -> Answer {
    stop(&api, &caller, key, StopWhat::One).await
}

/// Stops every job of a session, running or waiting, and rejects jobs that were sent before.
#[utoipa::path(
    post, path = "/v1/sessions/{key}/stopall", operation_id = "stop_whole_session", tag = "sessions",
    params(("key" = String, Path)),
    responses((status = 200, description = "The stopped jobs; counts of 0 when there were none", body = SessionStopped))
)]
pub async fn stop_whole_session(Call(api, caller): Call, PathKey(key): PathKey, _: NoInput) -> Answer {
    stop(&api, &caller, key, StopWhat::All).await
}

/// Stops every job of a session and resets it: its generation grows by one.
#[utoipa::path(
    post, path = "/v1/sessions/{key}/reset", operation_id = "reset_session", tag = "sessions", params(("key" = String, Path)),
    responses((status = 200, description = "The stopped jobs, and the new generation", body = SessionStopped))
)]
pub async fn reset_session(Call(api, caller): Call, PathKey(key): PathKey, _: NoInput) -> Answer {
    stop(&api, &caller, key, StopWhat::Reset).await
}

/// Resets every session with jobs: of the caller's tenant, or of all tenants for a server-wide caller that names
/// none.
#[utoipa::path(
    post, path = "/v1/sessions/reset", operation_id = "reset_all_sessions", tag = "sessions",
    responses((status = 200, description = "The number of sessions that were reset, and of stopped jobs", body = SessionsReset))
)]
pub async fn reset_all_sessions(Call(api, caller): Call, _: NoInput) -> Answer {
    let origin = caller.origin();
    let reset = match caller.scope() {
        Some(tenant) => api.scheduler.reset_sessions_of(tenant, &origin).await?,
        None => api.scheduler.reset_sessions_of_all(&origin).await?,
    };
    let laneway_runtime::SessionsReset { sessions, running, waiting } = reset;
    reply::ok(&SessionsReset { sessions, running, waiting })
}

/// Reports how full the context of a session is. From 60 % on, its jobs start one by one; running jobs go on.
#[utoipa::path(
    put, path = "/v1/sessions/{key}/usage", operation_id = "report_session_usage", tag = "sessions",
    params(("key" = String, Path)), request_body = SessionUsageRequest,
    responses((status = 200, body = Session), (status = 400, description = "invalid_field, unknown_field", body = Problem))
)]
pub async fn report_session_usage(
    Call(api, caller): Call,
    PathKey(key): PathKey,
    JsonBody(SessionUsageRequest { tokens, window }): JsonBody<SessionUsageRequest>,
) -> Answer {
    for (field, number) in [("tokens", tokens), ("window", window)] {
        // The store has signed numbers of 64 bits.
        if i64::try_from(number).is_err() {
            return Err(ApiError::field(field, format!("must be from 0 to {}", i64::MAX)));
        }
    }
    api.scheduler.report_usage(caller.tenant.clone(), key.clone(), tokens, window).await?;
    let view = api.scheduler.session(caller.tenant.clone(), key.clone()).await?;
    reply::ok(&match view {
        Some(view) => render::session(&caller.tenant, &view),
        None => render::idle_session(&caller.tenant, &key, tokens, window),
    })
}

async fn stop(api: &Api, caller: &Caller, key: Name, what: StopWhat) -> Answer {
    let stopped =
        api.scheduler.stop_session(caller.tenant.clone(), key.clone(), what, caller.origin()).await?;
    reply::ok(&render::session_stopped(&key, &stopped))
}
