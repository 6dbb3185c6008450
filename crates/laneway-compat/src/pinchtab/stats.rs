//! Figures of now: what waits and runs, what became of tasks since the start, and the limits in force.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use laneway_core::Name;
use laneway_runtime::Caller;
use laneway_runtime::config;
use serde_json::{Map, Value, json};

use super::error::json_line;
use super::tasks::Answer;
use super::time::go_duration;
use super::{LANE, Pinchtab};

/// Shows the three sections.
pub async fn get_scheduler_stats(
    State(pinchtab): State<Pinchtab>,
    Extension(caller): Extension<Caller>,
) -> Answer {
    let tenant = caller.scope().cloned();
    let stats = pinchtab.scheduler.read(move |engine, _| engine.stats(tenant.as_ref())).await?;
    let lane = stats.lanes.iter().find(|lane| lane.lane.as_str() == LANE);
    let mut agents: Map<String, Value> = Map::new();
    for agent in stats.agents.iter().filter(|agent| agent.lane.as_str() == LANE) {
        agents.insert(agent.agent.to_string(), json!({"queued": agent.waiting, "inflight": agent.open}));
    }
    let queue = json!({
        "totalQueued": lane.map_or(0, |lane| lane.waiting),
        "totalInflight": lane.map_or(0, |lane| lane.open),
        "agents": agents,
    });
    let config = config_section(&pinchtab.live.current());
    Ok(json_line(StatusCode::OK, &json!({"queue": queue, "config": config})))
}

/// The limits in force.
pub fn config_section(config: &config::Config) -> Value {
    let lane = config.settings().lanes.get(&Name::fixed(LANE)).cloned().unwrap_or_default();
    let own = &config.dialects.pinchtab;
    json!({
        "strategy": own.strategy,
        "maxQueueSize": lane.queued_max,
        "maxPerAgent": lane.queued_per_agent_max,
        "maxInflight": lane.running_max,
        "maxPerAgentFlight": lane.running_per_agent_max,
        "workerCount": own.worker_count,
        "resultTTL": go_duration(lane.retention),
    })
}
