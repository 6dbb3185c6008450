//! Figures of now.

use axum::extract::State;
use laneway_core::engine::Stats;
use laneway_wire::Stats as WireStats;

use crate::api::Api;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::query::NoParameters;
use crate::reply::{self, Answer};
use crate::show;

/// Shows figures of now; for a caller that is bound to a tenant, that tenant's only.
#[utoipa::path(get, path = "/v1/stats", operation_id = "get_stats", tag = "stats", responses((status = 200, body = WireStats)))]
pub async fn get_stats(State(api): State<Api>, caller: Caller, _: NoParameters) -> Answer {
    reply::ok(&show::stats(&read(&api, &caller).await?))
}

/// The figures that the caller may see. Lanes that were removed are shown only while they have jobs.
pub async fn read(api: &Api, caller: &Caller) -> Result<Stats, ApiError> {
    let scope = caller.scope().cloned();
    let mut stats = api.scheduler.read(move |engine, _| engine.stats(scope.as_ref())).await?;
    let config = api.config.current();
    let lanes = &config.settings().lanes;
    stats.lanes.retain(|lane| lanes.contains_key(&lane.lane) || lane.waiting + lane.open > 0);
    Ok(stats)
}
