//! Agents: how much of each lane they use, and whether the shares are fair.

use std::collections::BTreeMap;

use askama::Template;
use laneway_wire::Stats;

use crate::call::query;
use crate::context::{Answer, Context};
use crate::format::{count, duration};
use crate::widgets::Meter;

#[derive(Template)]
#[template(path = "agents.html")]
struct Agents {
    lanes: Vec<LaneGroup>,
}

struct LaneGroup {
    name: String,
    order: String,
    agents: Vec<AgentRow>,
    left_out: usize,
}

struct AgentRow {
    name: String,
    tenant: String,
    href: String,
    waiting: String,
    running: String,
    share: Meter,
    succeeded: String,
    failed: String,
    wait: String,
}

/// Agents of one lane that are shown.
const AGENTS_SHOWN: usize = 50;

/// Lists agents by lane.
pub async fn list(context: &Context) -> Answer {
    let stats: Stats = context.api.get("/v1/stats").await?;
    let mut by_lane: BTreeMap<&str, Vec<&laneway_wire::AgentStats>> = BTreeMap::new();
    for agent in &stats.agents {
        by_lane.entry(&agent.lane).or_default().push(agent);
    }
    let lanes = by_lane.into_iter().map(|(lane, mut agents)| {
        agents
            .sort_by_key(|agent| std::cmp::Reverse((agent.running + agent.waiting, agent.counts.dispatched)));
        let started: u64 = agents.iter().map(|agent| agent.counts.dispatched).sum();
        let order = stats.lanes.iter().find(|found| found.name == lane).map(|found| found.order.clone());
        let rows = agents.iter().take(AGENTS_SHOWN).map(|agent| AgentRow {
            name: agent.agent.clone(),
            tenant: agent.tenant.clone(),
            href: format!("{}jobs{}", context.root, query([("agent", agent.agent.as_str()), ("lane", lane)])),
            waiting: count(&agent.waiting),
            running: count(&agent.running),
            share: Meter::new(agent.counts.dispatched, started),
            succeeded: count(&agent.counts.succeeded),
            failed: count(&agent.counts.failed),
            wait: match agent.counts.dispatched {
                0 => "–".to_owned(),
                started => duration(agent.counts.queue_wait_ms / started),
            },
        });
        LaneGroup {
            name: lane.to_owned(),
            order: order.unwrap_or_default(),
            agents: rows.collect(),
            left_out: agents.len().saturating_sub(AGENTS_SHOWN),
        }
    });
    context.page("agents", "Agents", &Agents { lanes: lanes.collect() })
}
