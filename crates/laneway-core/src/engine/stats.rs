//! The statistics of the server, derived from live jobs and open attempts.

use crate::Name;
use crate::engine::Engine;
use crate::engine::queue::stats::{AgentStats, LaneDepth, LaneStats};
use crate::engine::webhooks::deliveries::DeliveryStats;

/// The statistics of the server at one moment.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Stats {
    /// Jobs that wait for a time.
    pub scheduled: u64,
    /// Jobs that may start.
    pub queued: u64,
    /// Jobs offered to a worker.
    pub assigned: u64,
    /// Jobs that run.
    pub running: u64,
    /// Attempts of canceled jobs that were asked to stop and still hold their gates.
    pub still_running: u64,
    /// True while the server stops.
    pub draining: bool,
    /// True while new jobs are rejected and waiting jobs still start.
    pub closed: bool,
    /// True while storage runs low.
    pub storage_low: bool,
    /// Most attempts at once, server-wide.
    pub running_max: u32,
    /// Every lane, by name.
    pub lanes: Vec<LaneStats>,
    /// Agents, by lane and name: those with jobs first when there are more than [`Stats::AGENTS_MAX`].
    pub agents: Vec<AgentStats>,
    /// Deliveries of all tenants; nothing where only one tenant's statistics are shown.
    pub deliveries: DeliveryStats,
}

impl Stats {
    /// Most agents listed.
    pub const AGENTS_MAX: usize = 1_000;
}

impl Engine {
    /// The statistics of now. With a tenant: only what is that tenant's.
    pub fn stats(&self, tenant: Option<&Name>) -> Stats {
        let mut stats = Stats {
            running_max: self.settings.running_max,
            deliveries: if tenant.is_none() { self.delivery_stats() } else { DeliveryStats::default() },
            ..self.server.stats()
        };
        self.queue.add_states(tenant, &mut stats);
        self.queue.add_lanes_and_agents(&self.jobs, tenant, &mut stats);
        for lane in &mut stats.lanes {
            lane.unused = self.settings.shown_once_used.contains(&lane.lane)
                && lane.waiting + lane.open == 0
                && lane.counts.is_empty();
        }
        stats
    }

    /// The agents of one lane, however many there are in others: those with jobs first, [`Stats::AGENTS_MAX`] at most.
    pub fn agents_in(&self, tenant: Option<&Name>, lane: &Name) -> Vec<AgentStats> {
        self.queue.agents_in(tenant, lane)
    }

    /// What waits and runs, by tenant and lane. Tenants and lanes without jobs are left out.
    pub fn depths(&self) -> Vec<LaneDepth> {
        self.queue.depths()
    }

    /// How many jobs wait in a lane; none in one that does not exist.
    pub fn waiting_in(&self, lane: &Name) -> u32 {
        self.queue.find_lane(lane).map_or(0, |lane| self.queue.lane(lane).waiting())
    }
}
