//! Webhook deliveries: listed, shown, and replayed.

use axum::http::StatusCode;
use laneway_core::{DeliveryState, JobId, Reply, Seq};
use laneway_runtime::store::DeliveryFilter;
use laneway_wire::{Delivery, DeliveryList, Problem};

use crate::api::Api;
use crate::auth::Caller;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::query::{Call, NoInput, NoParameters, Parameters, PathJob};
use crate::render;
use crate::reply::{self, Answer};

/// Lists deliveries, newest job first.
#[utoipa::path(
    get, path = "/v1/deliveries", operation_id = "list_deliveries", tag = "deliveries",
    params(
        ("job" = Option<String>, Query, description = "Only the delivery of this job"),
        ("state" = Option<String>, Query, description = "`waiting`, `delivered`, `failed` or `dropped`"),
        ("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page; keep every filter unchanged"),
    ),
    responses((status = 200, body = DeliveryList), (status = 400, description = "invalid_field, unknown_field, invalid_cursor", body = Problem))
)]
pub async fn list_deliveries(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&["job", "state", "limit", "cursor"])?;
    let filter = DeliveryFilter {
        tenant: caller.scope().cloned(),
        job: list.get("job").map(convert::job_id).transpose()?,
        state: list.get("state").map(state).transpose()?,
    };
    let limit = list.limit()?;
    let name = format!("deliveries {filter:?}");
    let before = list.get("cursor").map(|cursor| api.cursors.read(&name, cursor)).transpose()?.map(Seq);
    let tenant = filter.tenant.clone();
    let page = api.scheduler.list(tenant, move |reader| reader.deliveries(&filter, before, limit)).await?;
    let deliveries = page.items.iter().map(render::delivery).collect();
    reply::ok(&DeliveryList { deliveries, next: page.next.map(|next| api.cursors.write(&name, next)) })
}

/// Shows the delivery of a job, with every try.
#[utoipa::path(
    get, path = "/v1/deliveries/{id}", operation_id = "get_delivery", tag = "deliveries",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Delivery), (status = 400, description = "invalid_id", body = Problem), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_delivery(Call(api, caller): Call, PathJob(id): PathJob, _: NoParameters) -> Answer {
    reply::ok(&find(&api, &caller, id).await?)
}

/// Sends the webhook of a job again, whatever its state.
///
/// It keeps its `webhook-id`. A waiting delivery is tried now; one that is being tried is left alone.
#[utoipa::path(
    post, path = "/v1/deliveries/{id}/replay", operation_id = "replay_delivery", tag = "deliveries",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 202, description = "The delivery is sent", body = Delivery), (status = 404, description = "not_found", body = Problem), (status = 429, description = "too_many", body = Problem))
)]
pub async fn replay_delivery(Call(api, caller): Call, PathJob(id): PathJob, _: NoInput) -> Answer {
    match api.scheduler.redeliver(caller.scope().cloned(), id, caller.origin()).await? {
        Reply::Done => reply::json(StatusCode::ACCEPTED, &find(&api, &caller, id).await?),
        Reply::Rejected(rejection) => Err(rejection.into()),
        Reply::NotFound => Err(no_delivery()),
        other => Err(ApiError::internal(format!("the engine answered a replay with {other:?}"))),
    }
}

/// The delivery, if the caller may see it.
async fn find(api: &Api, caller: &Caller, id: JobId) -> Result<Delivery, ApiError> {
    let found = api.scheduler.read(move |reader| {
        let Some(row) = reader.delivery(id)? else { return Ok(None) };
        let tries = reader.delivery_tries(row.seq)?;
        let callback = reader.job(id)?.and_then(|job| job.row.spec.callback);
        Ok(Some((row, tries, callback)))
    });
    let (row, tries, callback) = found.await?.ok_or_else(no_delivery)?;
    if caller.scope().is_some_and(|tenant| *tenant != row.tenant) {
        return Err(no_delivery());
    }
    Ok(Delivery {
        url: callback.map(|callback| callback.url.into()),
        history: tries.iter().map(render::delivery_try).collect(),
        ..render::delivery(&row)
    })
}

fn state(text: &str) -> Result<DeliveryState, ApiError> {
    DeliveryState::parse(text).ok_or_else(|| {
        let names: Vec<&str> = DeliveryState::ALL.iter().map(|state| state.as_str()).collect();
        ApiError::field("state", format!("must be one of {}", names.join(", ")))
    })
}

fn no_delivery() -> ApiError {
    let detail =
        "the job has no delivery: it has no callback, has not ended, or was removed after its retention";
    ApiError::new(Code::NotFound, detail)
}
