//! Statistics of the server.

use laneway_core::engine::Stats;
use laneway_wire::Stats as WireStats;

use crate::api::Api;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::query::{Call, Parameters};
use crate::render;
use crate::reply::{self, Answer};

/// Shows statistics of the server. A caller that is bound to a tenant sees the statistics of that tenant only.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "get_stats", tag = "stats",
    params(("all" = Option<bool>, Query, description = "true: include unused lanes of dialects")),
    responses((status = 200, body = WireStats))
)]
pub async fn get_stats(Call(api, caller): Call, list: Parameters) -> Answer {
    let all = list.only(&["all"])?.flag("all")?;
    reply::ok(&render::stats(&read(&api, &caller, all).await?))
}

/// The statistics that the caller may see. Removed lanes are included only while they have jobs, unused lanes of
/// dialects only with `all`.
pub async fn read(api: &Api, caller: &Caller, all: bool) -> Result<Stats, ApiError> {
    let mut stats = api.scheduler.stats(caller.scope().cloned()).await?;
    let config = api.config.current();
    let lanes = &config.settings().lanes;
    stats.lanes.retain(|lane| lanes.contains_key(&lane.lane) || lane.waiting + lane.open > 0);
    stats.lanes.retain(|lane| all || !lane.unused);
    Ok(stats)
}
