//! Statistics of the server.

use laneway_core::engine::Stats;
use laneway_runtime::history::Range;
use laneway_wire::{Stats as WireStats, StatsHistory};

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

/// Shows what happened in the last hour or day: counts, wait and run times, queue depths. A caller that is bound to a
/// tenant sees that tenant only.
#[utoipa::path(
    get, path = "/v1/stats/history", operation_id = "get_stats_history", tag = "stats",
    params(
        ("range" = Option<String>, Query, description = "1h: by minutes (the default). 1d: by quarters of an hour"),
        ("lane" = Option<String>, Query, description = "Only jobs of this lane"),
        ("kind" = Option<String>, Query, description = "Only jobs of this kind. What waits and runs is counted by lane"),
    ),
    responses((status = 200, body = StatsHistory))
)]
pub async fn get_stats_history(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&["range", "lane", "kind"])?;
    let range = match list.get("range") {
        None | Some("1h") => Range::Hour,
        Some("1d") => Range::Day,
        Some(_) => return Err(ApiError::field("range", "must be 1h or 1d")),
    };
    let (lane, kind) = (list.name("lane")?, list.name("kind")?);
    let view = api.scheduler.history(caller.scope(), range, lane.as_ref(), kind.as_ref());
    reply::ok(&render::history(&view))
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
