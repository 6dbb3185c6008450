//! Lanes: listed, created, changed, paused, resumed and removed.
//!
//! A lane is a part of the configuration, so every change is a change of the configuration: validated as a whole,
//! durable, and audited.

use axum::http::StatusCode;
use laneway_core::Name;
use laneway_wire::{Lane, LaneList, LaneRequest, Problem};
use serde_json::{Value, json};

use crate::api::Api;
use crate::auth::Caller;
use crate::error::{ApiError, Code};
use crate::query::{Call, JsonBody, NoInput, NoParameters, Parameters, PathName};
use crate::render;
use crate::reply::{self, Answer};
use crate::v1::stats;

/// Lists lanes with their limits and statistics: those of the configuration, and removed ones while they have jobs.
/// The lane of a dialect is omitted until it has had a job or has settings of its own.
#[utoipa::path(
    get, path = "/v1/lanes", operation_id = "list_lanes", tag = "lanes",
    params(("all" = Option<bool>, Query, description = "true: include unused lanes of dialects")),
    responses((status = 200, body = LaneList))
)]
pub async fn list_lanes(Call(api, caller): Call, list: Parameters) -> Answer {
    let all = list.only(&["all"])?.flag("all")?;
    let stats = stats::read(&api, &caller, all).await?;
    reply::ok(&LaneList { lanes: stats.lanes.iter().map(render::lane).collect() })
}

/// Shows a lane.
#[utoipa::path(
    get, path = "/v1/lanes/{name}", operation_id = "get_lane", tag = "lanes", params(("name" = String, Path)),
    responses((status = 200, body = Lane), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_lane(Call(api, caller): Call, PathName(name): PathName, _: NoParameters) -> Answer {
    reply::ok(&find(&api, &caller, &name).await?)
}

/// Creates a lane, or changes its limits. An absent field keeps its value.
#[utoipa::path(
    put, path = "/v1/lanes/{name}", operation_id = "put_lane", tag = "lanes", params(("name" = String, Path)),
    request_body = LaneRequest,
    responses((status = 200, description = "Changed", body = Lane), (status = 201, description = "Made", body = Lane), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 409, description = "conflict", body = Problem))
)]
pub async fn put_lane(
    Call(api, caller): Call,
    PathName(name): PathName,
    JsonBody(lane): JsonBody<LaneRequest>,
) -> Answer {
    let is_new = !api.config.current().settings().lanes.contains_key(&name);
    change(&api, &caller, &name, serde_json::to_value(&lane).map_err(ApiError::internal)?).await?;
    let lane = find(&api, &caller, &name).await?;
    reply::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &lane)
}

/// Removes a lane without jobs that was created through the API. Its ended jobs are kept for its retention.
#[utoipa::path(
    delete, path = "/v1/lanes/{name}", operation_id = "delete_lane", tag = "lanes", params(("name" = String, Path)),
    responses((status = 204, description = "Removed"), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: it is built in or in the configuration file, has jobs, or schedules use it", body = Problem))
)]
pub async fn delete_lane(Call(api, caller): Call, PathName(name): PathName, _: NoInput) -> Answer {
    find(&api, &caller, &name).await?;
    change(&api, &caller, &name, Value::Null).await?;
    reply::no_content()
}

/// Pauses a lane: jobs are still admitted, and none starts.
#[utoipa::path(
    post, path = "/v1/lanes/{name}/pause", operation_id = "pause_lane", tag = "lanes", params(("name" = String, Path)),
    responses((status = 200, body = Lane), (status = 404, description = "not_found", body = Problem))
)]
pub async fn pause_lane(Call(api, caller): Call, PathName(name): PathName, _: NoInput) -> Answer {
    set_paused(&api, &caller, &name, true).await
}

/// Resumes a lane.
#[utoipa::path(
    post, path = "/v1/lanes/{name}/resume", operation_id = "resume_lane", tag = "lanes", params(("name" = String, Path)),
    responses((status = 200, body = Lane), (status = 404, description = "not_found", body = Problem))
)]
pub async fn resume_lane(Call(api, caller): Call, PathName(name): PathName, _: NoInput) -> Answer {
    set_paused(&api, &caller, &name, false).await
}

async fn set_paused(api: &Api, caller: &Caller, name: &Name, paused: bool) -> Answer {
    find(api, caller, name).await?;
    change(api, caller, name, json!({ "paused": paused })).await?;
    reply::ok(&find(api, caller, name).await?)
}

async fn change(api: &Api, caller: &Caller, name: &Name, keys: Value) -> Result<(), ApiError> {
    let patch = json!({ "lanes": { name.as_str(): keys } });
    api.config.patch(patch, caller.origin()).await?;
    Ok(())
}

/// The lane, if the configuration in effect has it. The engine keeps removed lanes longer, but they cannot be
/// changed.
async fn find(api: &Api, caller: &Caller, name: &Name) -> Result<Lane, ApiError> {
    let no_lane = || {
        let detail = format!("there is no lane \"{name}\"; list all lanes with GET /v1/lanes");
        ApiError::new(Code::NotFound, detail)
    };
    if !api.config.current().settings().lanes.contains_key(name) {
        return Err(no_lane());
    }
    let stats = stats::read(api, caller, true).await?;
    stats.lanes.iter().find(|lane| lane.lane == *name).map(render::lane).ok_or_else(no_lane)
}
