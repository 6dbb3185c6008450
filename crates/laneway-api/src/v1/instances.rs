//! Instances: servers of browser tabs. Listed, set and removed.
//!
//! An instance is a part of the configuration, so every change is a change of the configuration. Its token is never
//! shown.

use axum::extract::State;
use axum::http::StatusCode;
use laneway_browser::{InstancePatch, instances};
use laneway_core::Name;
use laneway_runtime::config::{Config, Secret, shown_url};
use laneway_wire::{Instance, InstanceList, InstanceRequest, Problem};

use crate::api::Api;
use crate::error::{ApiError, Code};
use crate::query::{Call, JsonBody, NoInput, NoParameters, PathName};
use crate::reply::{self, Answer};

/// Lists every instance.
#[utoipa::path(get, path = "/v1/instances", operation_id = "list_instances", tag = "instances", responses((status = 200, body = InstanceList)))]
pub async fn list_instances(State(api): State<Api>, _: NoParameters) -> Answer {
    let config = api.config.current();
    let instances = instances::all(&config).map(|(id, instance)| render(id, instance)).collect();
    reply::ok(&InstanceList { instances })
}

/// Shows an instance.
#[utoipa::path(
    get, path = "/v1/instances/{id}", operation_id = "get_instance", tag = "instances", params(("id" = String, Path)),
    responses((status = 200, body = Instance), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_instance(State(api): State<Api>, PathName(id): PathName, _: NoParameters) -> Answer {
    reply::ok(&shown(&api.config.current(), &id).ok_or_else(no_instance)?)
}

/// Creates or changes an instance. An absent field keeps its value. An instance that moves to another address loses
/// its token.
#[utoipa::path(
    put, path = "/v1/instances/{id}", operation_id = "put_instance", tag = "instances", params(("id" = String, Path)),
    request_body = InstanceRequest,
    responses((status = 200, description = "Changed", body = Instance), (status = 201, description = "Made", body = Instance), (status = 400, description = "invalid_field, unknown_field", body = Problem))
)]
pub async fn put_instance(
    Call(api, caller): Call,
    PathName(id): PathName,
    JsonBody(InstanceRequest { url, port, token, tabs }): JsonBody<InstanceRequest>,
) -> Answer {
    if url.is_some() && port.is_some() {
        return Err(ApiError::field("port", "is set beside url; send one of them"));
    }
    let patch = InstancePatch { url, port, token: token.map(|token| Secret::new(&token)), tabs };
    let (config, is_new) = instances::put(&api.config, id.clone(), patch, caller.origin()).await?;
    let instance = shown(&config, &id).ok_or_else(|| ApiError::internal("a stored instance is missing"))?;
    reply::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &instance)
}

/// Removes an instance, or its changes: an instance of the configuration file is shown as the file has it.
#[utoipa::path(
    delete, path = "/v1/instances/{id}", operation_id = "delete_instance", tag = "instances", params(("id" = String, Path)),
    responses((status = 200, description = "The instance of the configuration file is in effect again", body = Instance), (status = 204, description = "Removed"), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: the configuration file has it", body = Problem))
)]
pub async fn delete_instance(Call(api, caller): Call, PathName(id): PathName, _: NoInput) -> Answer {
    shown(&api.config.current(), &id).ok_or_else(no_instance)?;
    let config = instances::remove(&api.config, id.clone(), caller.origin()).await?;
    match shown(&config, &id) {
        Some(instance) => reply::ok(&instance),
        None => reply::no_content(),
    }
}

fn shown(config: &Config, id: &Name) -> Option<Instance> {
    instances::get(config, id).map(|instance| render(id, instance))
}

fn render(id: &Name, instance: &laneway_browser::Instance) -> Instance {
    Instance {
        id: id.to_string(),
        url: shown_url(instance.url.as_str()),
        has_token: instance.token.is_some(),
        tabs: instance.tabs.clone(),
    }
}

fn no_instance() -> ApiError {
    ApiError::new(Code::NotFound, "the instance does not exist; create it with PUT")
}
