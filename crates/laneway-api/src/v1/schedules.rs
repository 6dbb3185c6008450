//! Schedules: created, shown, changed, paused, resumed, fired, deleted and previewed.

use axum::extract::{Request, State};
use axum::http::header::{HeaderValue, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use laneway_core::schedule::preview;
use laneway_core::{JobSpec, Name, Reply, Schedule, ScheduleId, Timing, Wall};
use laneway_runtime::store::FiringLogFilter;
use laneway_wire as wire;
use laneway_wire::{
    FireScheduleRequest, PreviewRequest, Problem, ScheduleFiredByHand, ScheduleFiringList, ScheduleList,
    SchedulePatchRequest, SchedulePreview, ScheduleRequest,
};

use crate::api::Api;
use crate::auth::Caller;
use crate::body;
use crate::callback;
use crate::convert::{self, TimingFields};
use crate::error::{ApiError, Code};
use crate::json;
use crate::query::{Call, JsonBody, NoInput, NoParameters, OptionalBody, Parameters, PathSchedule};
use crate::render;
use crate::reply::{self, Answer};
use crate::v1::submit;

/// Names the user whose credentials a schedule uses.
const CREDENTIAL_HEADER: &str = "laneway-credential-user";

/// Lists schedules in the order of their creation.
#[utoipa::path(
    get, path = "/v1/schedules", operation_id = "list_schedules", tag = "schedules",
    params(
        ("name" = Option<String>, Query, description = "Only the schedule of this name, enabled or not"),
        ("include_disabled" = Option<bool>, Query, description = "`true`: include disabled schedules"),
        ("after" = Option<String>, Query, description = "Only schedules after this id: `next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"),
    ),
    responses((status = 200, body = ScheduleList), (status = 400, description = "invalid_field, unknown_field, invalid_id", body = Problem))
)]
pub async fn list_schedules(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&["name", "include_disabled", "after", "limit"])?;
    let limit = list.limit()?;
    let after = list.get("after").map(convert::schedule_id).transpose()?;
    let include_disabled = list.flag("include_disabled")?;
    if let Some(name) = list.get("name") {
        let name = convert::session_key("name", name)?;
        let found = api.scheduler.schedule_named(caller.tenant.clone(), name).await?;
        return reply::ok(&ScheduleList { schedules: shown(found.as_slice())?, next: None });
    }
    let scope = caller.scope().cloned();
    // One more than requested shows whether there is another page.
    let mut found = api.scheduler.schedules(scope, after, limit + 1, include_disabled).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|schedule| schedule.id.to_string());
    reply::ok(&ScheduleList { schedules: shown(&found)?, next })
}

/// Creates a schedule. A second one of the same name is rejected.
#[utoipa::path(
    post, path = "/v1/schedules", operation_id = "create_schedule", tag = "schedules",
    request_body = ScheduleRequest<'_>,
    responses(
        (status = 201, description = "The new schedule", body = wire::Schedule),
        (status = 400, description = "malformed_json, invalid_field, unknown_field, too_deep", body = Problem),
        (status = 409, description = "already_exists", body = Problem),
        (status = 422, description = "no_future_run, invalid, unknown_kind", body = Problem),
        (status = 429, description = "too_many", body = Problem),
    )
)]
pub async fn create_schedule(Call(api, caller): Call, _: NoParameters, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    json::check_content_type(&parts.headers)?;
    let remedy = "is not accepted for schedules; omit it: a second schedule of the same name is rejected";
    submit::reject_key(&parts.headers, remedy)?;
    let config = api.config.current();
    let bytes = body::read(&parts.headers, body, config.server.body_max).await?;
    let request: ScheduleRequest<'_> = json::parse(&bytes, json::DEPTH_MAX + 1)?;
    let (settings, now) = (config.settings(), api.scheduler.wall());
    let spec = convert::schedule_spec(&request, &caller.tenant, settings, &api.names, now)?;
    check_callback(&api, &spec.job).await?;
    let schedule = changed(api.scheduler.put_schedule(spec, caller.origin()).await?)?;
    let mut response = reply::json(StatusCode::CREATED, &render::schedule(&schedule)?)?;
    let location = format!("/v1/schedules/{}", schedule.id);
    response.headers_mut().insert(LOCATION, HeaderValue::from_str(&location).map_err(ApiError::internal)?);
    Ok(response)
}

/// Shows a schedule.
#[utoipa::path(
    get, path = "/v1/schedules/{id}", operation_id = "get_schedule", tag = "schedules", params(("id" = String, Path)),
    responses((status = 200, body = wire::Schedule), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_schedule(
    Call(api, caller): Call,
    PathSchedule(id): PathSchedule,
    _: NoParameters,
) -> Answer {
    reply::ok(&render::schedule(&find(&api, &caller, id).await?)?)
}

/// Changes a schedule: a merge patch of the object that created it. It is applied completely or not at all.
#[utoipa::path(
    patch, path = "/v1/schedules/{id}", operation_id = "update_schedule", tag = "schedules", params(("id" = String, Path)),
    request_body = SchedulePatchRequest<'_>,
    responses(
        (status = 200, description = "The changed schedule", body = wire::Schedule),
        (status = 400, description = "malformed_json, invalid_field, unknown_field, too_deep", body = Problem),
        (status = 404, description = "not_found", body = Problem),
        (status = 409, description = "already_exists", body = Problem),
        (status = 422, description = "no_future_run, invalid, unknown_kind", body = Problem),
    )
)]
pub async fn update_schedule(
    Call(api, caller): Call,
    PathSchedule(id): PathSchedule,
    _: NoParameters,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    json::check_content_type(&parts.headers)?;
    let config = api.config.current();
    let bytes = body::read(&parts.headers, body, config.server.body_max).await?;
    let request: SchedulePatchRequest<'_> = json::parse(&bytes, json::DEPTH_MAX + 1)?;
    let (settings, now) = (config.settings(), api.scheduler.wall());
    // A DNS lookup may be slow, so a new callback is checked before the lock is taken.
    let old = find(&api, &caller, id).await?;
    let patch = convert::schedule_patch(&request, &old, settings, &api.names, now)?;
    let checked = patch.job.as_ref().and_then(|job| job.callback.clone());
    if let Some(job) = patch.job.as_ref().filter(|job| job.callback != old.spec.job.callback) {
        check_callback(&api, job).await?;
    }
    must_hold(&api, &old, &parts.headers)?;
    // A patch is merged into the current job, so no other patch may come between the read and the change.
    let _alone = api.schedule_patches.lock().await;
    let old = find(&api, &caller, id).await?;
    // Another patch may have set the credentials of a user in between.
    must_hold(&api, &old, &parts.headers)?;
    let patch = convert::schedule_patch(&request, &old, settings, &api.names, now)?;
    if let Some(job) = patch.job.as_deref().filter(|job| {
        // Another patch may have set a callback in between.
        job.callback != checked && job.callback != old.spec.job.callback
    }) {
        check_callback(&api, job).await?;
    }
    let scope = caller.scope().cloned();
    let schedule = changed(api.scheduler.update_schedule(scope, id, patch, caller.origin()).await?)?;
    reply::ok(&render::schedule(&schedule)?)
}

/// Deletes a schedule. An active firing goes on, and its firing log is kept.
#[utoipa::path(
    delete, path = "/v1/schedules/{id}", operation_id = "delete_schedule", tag = "schedules", params(("id" = String, Path)),
    responses((status = 200, description = "The deleted schedule", body = wire::Schedule), (status = 404, description = "not_found", body = Problem))
)]
pub async fn delete_schedule(Call(api, caller): Call, PathSchedule(id): PathSchedule, _: NoInput) -> Answer {
    let scope = caller.scope().cloned();
    let schedule = changed(api.scheduler.delete_schedule(scope, id, caller.origin()).await?)?;
    reply::ok(&render::schedule(&schedule)?)
}

/// Pauses a schedule: it does not fire until it is resumed.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/pause", operation_id = "pause_schedule", tag = "schedules", params(("id" = String, Path)),
    responses((status = 200, body = wire::Schedule), (status = 404, description = "not_found", body = Problem))
)]
pub async fn pause_schedule(Call(api, caller): Call, PathSchedule(id): PathSchedule, _: NoInput) -> Answer {
    toggle(&api, &caller, id, false).await
}

/// Resumes a schedule: its next slot is the first one after now.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/resume", operation_id = "resume_schedule", tag = "schedules", params(("id" = String, Path)),
    responses((status = 200, body = wire::Schedule), (status = 404, description = "not_found", body = Problem), (status = 422, description = "no_future_run", body = Problem))
)]
pub async fn resume_schedule(
    Call(api, caller): Call,
    PathSchedule(id): PathSchedule,
    headers: HeaderMap,
    _: NoInput,
) -> Answer {
    must_hold(&api, &find(&api, &caller, id).await?, &headers)?;
    toggle(&api, &caller, id, true).await
}

/// Fires a schedule manually. Its slots do not change. Not while a firing of it is active.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/fire", operation_id = "fire_schedule", tag = "schedules", params(("id" = String, Path)),
    request_body(content = FireScheduleRequest, description = "May be omitted."),
    responses((status = 200, description = "The job, or why there is none", body = ScheduleFiredByHand), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 404, description = "not_found", body = Problem))
)]
pub async fn fire_schedule(
    Call(api, caller): Call,
    PathSchedule(id): PathSchedule,
    headers: HeaderMap,
    OptionalBody(request): OptionalBody<FireScheduleRequest>,
) -> Answer {
    let mode = convert::fire_mode(request.mode.as_deref())?;
    must_hold(&api, &find(&api, &caller, id).await?, &headers)?;
    match api.scheduler.run_schedule(caller.scope().cloned(), id, mode, caller.origin()).await? {
        Reply::ScheduleFiredByHand { fired, reason, job } => reply::ok(&ScheduleFiredByHand {
            fired,
            reason: reason.map(|reason| reason.as_str().to_owned()),
            job_id: job.map(|job| job.to_string()),
        }),
        other => Err(not_changed(other)),
    }
}

/// Lists the firing log of one schedule, newest first, also of a deleted one.
#[utoipa::path(
    get, path = "/v1/schedules/{id}/firings", operation_id = "list_schedule_firings", tag = "schedules",
    params(("id" = String, Path), ("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"), ("cursor" = Option<String>, Query, description = "`next` of the previous page")),
    responses((status = 200, body = ScheduleFiringList), (status = 404, description = "not_found", body = Problem))
)]
pub async fn list_schedule_firings(
    Call(api, caller): Call,
    PathSchedule(id): PathSchedule,
    list: Parameters,
) -> Answer {
    // This is read first: a schedule that deletes itself disappears in the commit that logs its firing.
    let found = find(&api, &caller, id).await;
    let firings = read_firings(&api, &caller, Some(id), list).await?;
    if firings.total == 0 {
        // A schedule that never fired has an empty list; one that never existed has none.
        found?;
    }
    reply::ok(&firings)
}

/// Lists the firing log of all schedules, newest first.
#[utoipa::path(
    get, path = "/v1/schedules/firings", operation_id = "list_all_schedule_firings", tag = "schedules",
    params(("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"), ("cursor" = Option<String>, Query, description = "`next` of the previous page")),
    responses((status = 200, body = ScheduleFiringList), (status = 400, description = "invalid_field, unknown_field, invalid_cursor", body = Problem))
)]
pub async fn list_all_schedule_firings(Call(api, caller): Call, list: Parameters) -> Answer {
    reply::ok(&read_firings(&api, &caller, None, list).await?)
}

/// Shows the next firings of a timing. It stores nothing.
#[utoipa::path(
    post, path = "/v1/schedules/preview", operation_id = "preview_schedule", tag = "schedules",
    request_body = PreviewRequest,
    responses((status = 200, body = SchedulePreview), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 422, description = "no_future_run", body = Problem))
)]
pub async fn preview_schedule(
    State(api): State<Api>,
    _: Caller,
    JsonBody(request): JsonBody<PreviewRequest>,
) -> Answer {
    let config = api.config.current();
    let count = convert::preview_count(request.count)?;
    let from = match &request.from {
        Some(from) => convert::time("from", from)?,
        None => api.scheduler.wall(),
    };
    let zone = match &request.zone {
        Some(zone) if Timing::knows_zone(zone) => convert::session_key("zone", zone)?,
        Some(_) => {
            let detail = "is not a time zone; use an IANA name such as Europe/Berlin or UTC";
            return Err(ApiError::field("zone", detail));
        }
        None => config.settings().schedules.zone.clone(),
    };
    let fields = TimingFields {
        cron: request.cron.as_deref(),
        zone: request.cron.as_ref().map(|_| zone.as_str()),
        every: request.every.as_deref(),
        anchor: request.anchor.as_deref(),
        at: request.at.as_deref(),
    };
    let slots = next_slots(&convert::timing(&fields, from)?, from, count).await?;
    reply::ok(&render::preview(&zone, &slots))
}

/// Computes slots on a blocking thread: a rare expression may take milliseconds.
async fn next_slots(timing: &Timing, from: Wall, count: usize) -> Result<Vec<Wall>, ApiError> {
    let timing = timing.clone();
    let slots = tokio::task::spawn_blocking(move || preview(&timing, from, count)).await;
    slots.map_err(ApiError::internal)?.map_err(|error| convert::timing_error(&error))
}

async fn read_firings(
    api: &Api,
    caller: &Caller,
    schedule: Option<ScheduleId>,
    list: Parameters,
) -> Result<ScheduleFiringList, ApiError> {
    let list = list.only(&["limit", "cursor"])?;
    let limit = list.limit()?;
    let filter = FiringLogFilter { tenant: caller.scope().cloned(), schedule };
    let name = format!("firings {filter:?}");
    let before = list.get("cursor").map(|cursor| api.cursors.read(&name, cursor)).transpose()?;
    let page = api.scheduler.firing_log(filter, before, limit).await?;
    Ok(ScheduleFiringList {
        firings: page.items.iter().map(render::schedule_firing).collect(),
        total: page.total,
        next: page.next.map(|next| api.cursors.write(&name, next)),
    })
}

async fn toggle(api: &Api, caller: &Caller, id: ScheduleId, enabled: bool) -> Answer {
    let scope = caller.scope().cloned();
    let schedule = changed(api.scheduler.toggle_schedule(scope, id, enabled, caller.origin()).await?)?;
    reply::ok(&render::schedule(&schedule)?)
}

/// Checks whether the server may call the callback.
async fn check_callback(api: &Api, job: &JobSpec) -> Result<(), ApiError> {
    let Some(named) = &job.callback else { return Ok(()) };
    callback::check(&api.guard.on_behalf_of(&job.tenant), &named.url)
        .await
        .map_err(|error| error.within("job"))?;
    Ok(())
}

/// Checks that the caller names the user whose credentials the schedule uses, as in the gateway.
fn must_hold(api: &Api, schedule: &Schedule, headers: &HeaderMap) -> Result<(), ApiError> {
    if holds_credential(api, &schedule.spec.job.kind, &schedule.spec.payload, headers) {
        return Ok(());
    }
    let detail = "the schedule runs with the credentials of a user (credentialUserId): name the same user in the header \
                  laneway-credential-user; it can be paused and deleted without";
    Err(ApiError::new(Code::Forbidden, detail))
}

/// True when the request names the user whose credentials a job of this kind and payload uses, or when there is none.
pub(crate) fn holds_credential(api: &Api, kind: &Name, payload: &[u8], headers: &HeaderMap) -> bool {
    let credential = headers.get(CREDENTIAL_HEADER).and_then(|value| value.to_str().ok());
    (api.credentials)(kind, payload, credential)
}

/// The schedule, if the caller may see it.
async fn find(api: &Api, caller: &Caller, id: ScheduleId) -> Result<Schedule, ApiError> {
    api.scheduler.schedule(caller.scope().cloned(), id).await?.ok_or_else(no_schedule)
}

/// The schedule in the reply of a command.
fn changed(reply: Reply) -> Result<Schedule, ApiError> {
    match reply {
        Reply::Schedule(schedule) => Ok(*schedule),
        other => Err(not_changed(other)),
    }
}

fn not_changed(reply: Reply) -> ApiError {
    match reply {
        Reply::NotFound => no_schedule(),
        Reply::Rejected(rejection) => convert::rejected_schedule(rejection),
        other => ApiError::internal(format!("the engine answered about a schedule with {other:?}")),
    }
}

fn no_schedule() -> ApiError {
    let detail = "the schedule does not exist; it may have been deleted by a request or after its firing";
    ApiError::new(Code::NotFound, detail)
}

fn shown(schedules: &[Schedule]) -> Result<Vec<wire::Schedule>, ApiError> {
    schedules.iter().map(render::schedule).collect()
}
