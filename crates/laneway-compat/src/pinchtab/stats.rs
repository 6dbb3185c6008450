//! Current statistics: waiting and running tasks, outcomes since the start, and the limits in force.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use laneway_core::engine::{AgentStats, Counts, LaneStats};
use laneway_core::{Name, Span};
use laneway_runtime::config;
use serde_json::{Map, Value, json};

use super::error::json_line;
use super::tasks::Answer;
use super::time::go_duration;
use super::{LANE, NAME, Pinchtab};
use crate::body::Call;

/// The shortest reported time of something that took time, in milliseconds.
const SHORTEST_MS: f64 = 1e-6;

/// Shows the three sections.
pub async fn get_scheduler_stats(Call(pinchtab, caller): Call<Pinchtab>) -> Answer {
    let (stats, known) = pinchtab.scheduler.agents_in(caller.scope().cloned(), Name::fixed(LANE)).await?;
    let lane = stats.lanes.iter().find(|lane| lane.lane.as_str() == LANE);
    let agents = agents(&known);
    let sections = json!({
        "queue": queue_section(lane, &agents),
        "metrics": metrics_section(lane, &agents),
        "config": config_section(&pinchtab.live.current()),
    });
    Ok(json_line(StatusCode::OK, &sections))
}

/// The statistics of an agent, in all tenants that the caller sees.
#[derive(Default)]
struct Agent {
    queued: u64,
    inflight: u64,
    counts: Counts,
}

fn agents(known: &[AgentStats]) -> BTreeMap<&str, Agent> {
    let mut agents: BTreeMap<&str, Agent> = BTreeMap::new();
    for stats in known {
        let agent = agents.entry(stats.agent.as_str()).or_default();
        agent.queued += stats.waiting;
        agent.inflight += stats.open;
        agent.counts.add(&stats.counts);
    }
    agents
}

fn queue_section(lane: Option<&LaneStats>, agents: &BTreeMap<&str, Agent>) -> Value {
    let busy = agents.iter().filter(|(_, agent)| agent.queued + agent.inflight > 0);
    let agents: Map<String, Value> = busy
        .map(|(id, agent)| ((*id).to_owned(), json!({"queued": agent.queued, "inflight": agent.inflight})))
        .collect();
    json!({
        "totalQueued": lane.map_or(0, |lane| lane.waiting),
        "totalInflight": lane.map_or(0, |lane| lane.open),
        "agents": agents,
    })
}

fn metrics_section(lane: Option<&LaneStats>, agents: &BTreeMap<&str, Agent>) -> Value {
    let counts = lane.map(|lane| lane.counts).unwrap_or_default();
    let known = agents.iter().filter(|(_, agent)| !agent.counts.is_empty());
    let agents: Map<String, Value> = known
        .map(|(id, Agent { counts, .. })| {
            let stats = json!({
                "submitted": counts.submitted,
                "completed": counts.succeeded,
                "failed": counts.failed,
                "cancelled": counts.canceled,
                "rejected": counts.rejected,
            });
            ((*id).to_owned(), stats)
        })
        .collect();
    json!({
        "tasksSubmitted": counts.submitted,
        "tasksCompleted": counts.succeeded,
        "tasksFailed": counts.failed,
        "tasksCancelled": counts.canceled,
        "tasksRejected": counts.rejected,
        "tasksExpired": counts.expired,
        "dispatchCount": counts.dispatched,
        "avgDispatchLatencyMs": average_ms(counts.queue_wait, counts.dispatched),
        "avgExecutionMs": average_ms(counts.run_time, counts.runs),
        "agents": agents,
    })
}

/// An average over at least one value is more than zero, because nothing takes no time at all.
fn average_ms(sum: Span, count: u64) -> f64 {
    match count {
        0 => 0.0,
        count => (sum.0 as f64 / count as f64).max(SHORTEST_MS),
    }
}

/// The limits in force.
pub fn config_section(config: &config::Config) -> Value {
    let lane = config.settings().lanes.get(&Name::fixed(LANE)).cloned().unwrap_or_default();
    let own = config.dialect(NAME);
    json!({
        "strategy": own.text("strategy"),
        "maxQueueSize": lane.queued_max,
        "maxPerAgent": lane.queued_per_agent_max,
        "maxInflight": lane.running_max,
        "maxPerAgentFlight": lane.running_per_agent_max,
        "workerCount": own.count("worker_count"),
        "resultTTL": go_duration(lane.retention),
    })
}
