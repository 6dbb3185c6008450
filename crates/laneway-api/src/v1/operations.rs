//! Bulk operations: started, shown, listed and canceled. `bulk.rs` carries them out.

use axum::http::StatusCode;
use laneway_wire::{BulkRequest, Operation, OperationList, Problem};

use crate::bulk;
use crate::query::{Call, JsonBody, NoInput, NoParameters, PathName};
use crate::reply::{self, Answer};

/// Starts a bulk operation: cancels, retries, reschedules or deletes every job of a filter, or changes its priority, in the
/// background.
///
/// With `dry_run`, nothing changes, and the answer says how many jobs match.
#[utoipa::path(
    post, path = "/v1/jobs/bulk", operation_id = "start_bulk", tag = "jobs", request_body = BulkRequest,
    responses((status = 200, description = "What a dry run found", body = Operation), (status = 202, description = "The operation runs", body = Operation), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 403, description = "forbidden: the role may not do this with one job", body = Problem), (status = 429, description = "too_many operations run", body = Problem))
)]
pub async fn start_bulk(Call(api, caller): Call, JsonBody(request): JsonBody<BulkRequest>) -> Answer {
    let operation = bulk::start(&api, &caller, request).await?;
    let status = if operation.dry_run { StatusCode::OK } else { StatusCode::ACCEPTED };
    reply::json(status, &operation)
}

/// Lists bulk operations: those that run, and the latest that have ended.
#[utoipa::path(
    get, path = "/v1/operations", operation_id = "list_operations", tag = "jobs",
    responses((status = 200, body = OperationList))
)]
pub async fn list_operations(Call(api, caller): Call, _: NoParameters) -> Answer {
    reply::ok(&OperationList { operations: bulk::list(&api, &caller).await? })
}

/// Shows a bulk operation with its progress.
#[utoipa::path(
    get, path = "/v1/operations/{id}", operation_id = "get_operation", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = Operation), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_operation(Call(api, caller): Call, PathName(id): PathName, _: NoParameters) -> Answer {
    reply::ok(&bulk::find(&api, &caller, &id).await?)
}

/// Cancels a bulk operation. What it has done with jobs stays done.
#[utoipa::path(
    post, path = "/v1/operations/{id}/cancel", operation_id = "cancel_operation", tag = "jobs", params(("id" = String, Path)),
    responses((status = 202, description = "It ends soon", body = Operation), (status = 404, description = "not_found", body = Problem), (status = 409, description = "already_ended", body = Problem))
)]
pub async fn cancel_operation(Call(api, caller): Call, PathName(id): PathName, _: NoInput) -> Answer {
    reply::json(StatusCode::ACCEPTED, &bulk::cancel(&api, &caller, &id).await?)
}
