//! Push workers: shown, drained, bound to lanes, and their packages; and the schemas of their frames.
//!
//! A worker belongs to a tenant. A server-wide caller names the tenant with `Laneway-Tenant`, as for a submit.

use axum::extract::Path;
use axum::http::StatusCode;
use laneway_core::worker::{Orders, WorkerView};
use laneway_core::{EventKind, Name, Rejection, Reply};
use laneway_runtime::{PackageOrder, ToWorker};
use laneway_wire::frame::{Text, published_schema};
use laneway_wire::{
    DrainRequest, PackageRequest, Problem, RebindRequest, Worker, WorkerCommandSent, WorkerList,
};

use crate::api::Api;
use crate::auth::Caller;
use crate::error::{ApiError, Code};
use crate::query::{Call, JsonBody, NoParameters, OptionalBody, PathKey};
use crate::render;
use crate::reply::{self, Answer};

/// The longest URL of a package's archive, in bytes.
const URL_LEN_MAX: usize = 2_048;

/// Lists workers, with those that lost their connection and may come back.
#[utoipa::path(get, path = "/v1/workers", operation_id = "list_workers", tag = "workers", responses((status = 200, body = WorkerList)))]
pub async fn list_workers(Call(api, caller): Call, _: NoParameters) -> Answer {
    let (views, _) = api.scheduler.workers(caller.scope().cloned()).await?;
    reply::ok(&WorkerList { workers: views.iter().map(render::worker).collect() })
}

/// Shows a worker.
#[utoipa::path(
    get, path = "/v1/workers/{id}", operation_id = "get_worker", tag = "workers", params(("id" = String, Path)),
    responses((status = 200, body = Worker), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_worker(Call(api, caller): Call, PathKey(id): PathKey, _: NoParameters) -> Answer {
    reply::ok(&render::worker(&find(&api, &caller, &id).await?))
}

/// Drains a worker: it accepts no new tasks, finishes its tasks, and ends. With `drain` false, it accepts tasks
/// again.
#[utoipa::path(
    post, path = "/v1/workers/{id}/drain", operation_id = "drain_worker", tag = "workers", params(("id" = String, Path)),
    request_body = DrainRequest,
    responses((status = 200, body = Worker), (status = 404, description = "not_found", body = Problem))
)]
pub async fn drain_worker(
    Call(api, caller): Call,
    PathKey(id): PathKey,
    OptionalBody(DrainRequest { drain }): OptionalBody<DrainRequest>,
) -> Answer {
    let drain = drain.unwrap_or(true);
    let before = find(&api, &caller, &id).await?;
    match api.scheduler.drain_worker(caller.tenant.clone(), id.clone(), drain, caller.origin()).await? {
        Reply::Done => {
            // An idle worker leaves at once and is removed then, so the request has succeeded.
            let left =
                WorkerView { connection: None, orders: Orders { drained: drain, ..before.orders }, ..before };
            let view = look(&api, &caller, &id).await?.unwrap_or(left);
            reply::ok(&render::worker(&view))
        }
        Reply::NotFound => Err(no_worker()),
        other => Err(ApiError::internal(format!("the engine answered a drain with {other:?}"))),
    }
}

/// Sets the lanes that a worker serves, whatever it registers. An empty list means every lane. Its running tasks go
/// on.
#[utoipa::path(
    post, path = "/v1/workers/{id}/rebind", operation_id = "rebind_worker", tag = "workers", params(("id" = String, Path)),
    request_body = RebindRequest,
    responses((status = 200, body = Worker), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 404, description = "not_found", body = Problem))
)]
pub async fn rebind_worker(
    Call(api, caller): Call,
    PathKey(id): PathKey,
    JsonBody(RebindRequest { lanes }): JsonBody<RebindRequest>,
) -> Answer {
    let name = |(at, lane): (usize, &String)| {
        Name::new(lane).map_err(|error| ApiError::field(format!("lanes[{at}]"), error))
    };
    let lanes: Vec<Name> = lanes.iter().enumerate().map(name).collect::<Result<_, _>>()?;
    match api.scheduler.rebind_worker(caller.tenant.clone(), id.clone(), lanes, caller.origin()).await? {
        Reply::Done => reply::ok(&render::worker(&find(&api, &caller, &id).await?)),
        Reply::NotFound => Err(no_worker()),
        Reply::Rejected(rejection) => Err(rejection_of("lanes", &rejection)),
        other => Err(ApiError::internal(format!("the engine answered a rebind with {other:?}"))),
    }
}

/// Sends a worker the command to install or remove a package. The audit entries show the outcome.
#[utoipa::path(
    post, path = "/v1/workers/{id}/packages", operation_id = "change_worker_packages", tag = "workers",
    params(("id" = String, Path)), request_body = PackageRequest,
    responses((status = 202, body = WorkerCommandSent), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: the worker is not connected", body = Problem))
)]
pub async fn change_worker_packages(
    Call(api, caller): Call,
    PathKey(id): PathKey,
    JsonBody(asked): JsonBody<PackageRequest>,
) -> Answer {
    let command = command_of(&asked)?;
    let view = find(&api, &caller, &id).await?;
    let sent = view.connection.is_some_and(|connection| api.scheduler.send_to_worker(connection, command));
    if !sent {
        return Err(ApiError::new(
            Code::Conflict,
            "the worker is not connected; send the request again when it is back",
        ));
    }
    let PackageRequest { operation, name, version, .. } = &asked;
    let detail = format!("pkg.{operation} {name} {} sent to worker {id}", version.as_deref().unwrap_or("*"));
    let tenant = Some(caller.tenant.clone());
    api.scheduler.note(EventKind::CallDone, tenant, &detail, caller.origin()).await?;
    reply::json(
        StatusCode::ACCEPTED,
        &WorkerCommandSent { worker: id.to_string(), operation: operation.clone() },
    )
}

/// A schema of the worker protocol, such as `ws.result.schema.json`.
#[utoipa::path(
    get, path = "/v1/schemas/{name}", operation_id = "get_schema", tag = "workers", params(("name" = String, Path)),
    responses((status = 200, description = "A JSON Schema (2020-12)"), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_schema(Path(name): Path<String>, _: NoParameters) -> Answer {
    let schema = published_schema(&name).ok_or_else(|| {
        ApiError::new(Code::NotFound, "the schema does not exist; schemas are named ws.<type>.schema.json")
    })?;
    Ok(reply::document(schema))
}

async fn find(api: &Api, caller: &Caller, id: &Name) -> Result<WorkerView, ApiError> {
    look(api, caller, id).await?.ok_or_else(no_worker)
}

async fn look(api: &Api, caller: &Caller, id: &Name) -> Result<Option<WorkerView>, ApiError> {
    let found = api.scheduler.worker(caller.tenant.clone(), id.clone()).await?;
    Ok(found.map(|(view, _)| view))
}

/// The error for a rejection of the engine about a field. The engine's message begins with its own name of the field.
fn rejection_of(field: &str, rejection: &Rejection) -> ApiError {
    let message = rejection.message.strip_prefix(field).unwrap_or(&rejection.message);
    ApiError::field(field, message.trim_start_matches([':', ' ']))
}

fn no_worker() -> ApiError {
    ApiError::new(Code::NotFound, "the worker does not exist; it is removed when it is gone and has no tasks")
}

/// The command for a package request. Errors name the field.
fn command_of(asked: &PackageRequest) -> Result<ToWorker, ApiError> {
    let PackageRequest { operation, name, version, url, sha256 } = asked;
    let text = |field: &str, text: &str| {
        Text::new(text).map(|text| text.as_str().into()).map_err(|error| ApiError::field(field, error))
    };
    let needed = |field: &str, value: &Option<String>| {
        let value = value.as_deref().ok_or_else(|| ApiError::field(field, "is required for an install"))?;
        text(field, value)
    };
    let name: Box<str> = text("name", name)?;
    match operation.as_str() {
        "install" => {
            let (url, sha256) = (needed("url", url)?, needed("sha256", sha256)?);
            let is_url = ["https://", "http://", "file://"].iter().any(|scheme| url.starts_with(scheme));
            if !is_url || url.len() > URL_LEN_MAX {
                return Err(ApiError::field("url", "must begin with https://, http:// or file://"));
            }
            if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(ApiError::field("sha256", "must have 64 hexadecimal digits"));
            }
            Ok(ToWorker::Install(PackageOrder { name, version: needed("version", version)?, url, sha256 }))
        }
        "uninstall" => {
            let version = version.as_deref().map(|version| text("version", version)).transpose()?;
            Ok(ToWorker::Uninstall { name, version })
        }
        _ => Err(ApiError::field("operation", "must be install or uninstall")),
    }
}
