//! The configuration: shown, changed, and reloaded.

use axum::extract::State;
use laneway_wire::{ConfigReload, Problem};

use crate::api::Api;
use crate::audit;
use crate::json::StrictValue;
use crate::query::{Call, JsonBody, NoInput, NoParameters};
use crate::reply::{self, Answer};

/// Shows the configuration in effect. Secrets are `***`.
#[utoipa::path(get, path = "/v1/config", operation_id = "get_config", tag = "config", responses((status = 200, description = "The whole tree", body = serde_json::Value)))]
pub async fn get_config(State(api): State<Api>, _: NoParameters) -> Answer {
    reply::ok(&api.config.current().to_json())
}

/// Changes the configuration (JSON merge patch, RFC 7396), completely or not at all. `null` removes the change of an
/// earlier request.
#[utoipa::path(
    patch, path = "/v1/config", operation_id = "patch_config", tag = "config", request_body = serde_json::Value,
    responses((status = 200, description = "The whole configuration after the change", body = serde_json::Value), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 409, description = "conflict", body = Problem))
)]
pub async fn patch_config(
    Call(api, caller): Call,
    JsonBody(StrictValue(patch)): JsonBody<StrictValue>,
) -> Answer {
    let config = api.config.patch(patch, caller.origin()).await?;
    reply::ok(&config.to_json())
}

/// Reads the configuration file again, and applies it completely or not at all.
#[utoipa::path(
    post, path = "/v1/config/reload", operation_id = "reload_config", tag = "config",
    responses((status = 200, body = ConfigReload), (status = 409, description = "conflict: the file cannot be used", body = Problem))
)]
pub async fn reload_config(Call(api, caller): Call, _: NoInput) -> Answer {
    let done = api.config.reload().await?;
    let lines =
        |changes: &[laneway_runtime::config::ChangedKey]| changes.iter().map(ToString::to_string).collect();
    let answer = ConfigReload { changed: lines(&done.changed), needs_restart: lines(&done.needs_restart) };
    let who = audit::Who { actor: caller.actor.clone(), tenant: None, request: caller.request.clone() };
    let detail = format!(
        "reload_config: {} keys changed, {} need a restart",
        answer.changed.len(),
        answer.needs_restart.len()
    );
    audit::note_done(&api, who, &detail).await;
    reply::ok(&answer)
}
