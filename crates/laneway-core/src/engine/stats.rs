//! Figures of now, derived from live jobs and open attempts.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::counts::Counts;
use crate::engine::queue::{AgentQueue, Lane, Tenant};
use crate::engine::webhooks::deliveries::DeliveryStats;
use crate::{JobId, JobState, LaneSettings, Name, Wall};

/// Figures of now.
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
    /// Runs that were told to stop and whose job has ended, but that still hold their gates.
    pub still_running: u64,
    /// True while the server stops.
    pub draining: bool,
    /// True while new jobs are rejected and what waits goes on.
    pub closed: bool,
    /// True while storage runs low.
    pub storage_low: bool,
    /// Most attempts at once, server-wide.
    pub running_max: u32,
    /// Every lane, by name.
    pub lanes: Vec<LaneStats>,
    /// Agents, by lane and name: those with jobs first when there are more than [`Stats::AGENTS_MAX`].
    pub agents: Vec<AgentStats>,
    /// Deliveries of all tenants; nothing where only one tenant's figures are shown.
    pub deliveries: DeliveryStats,
}

impl Stats {
    /// Most agents listed.
    pub const AGENTS_MAX: usize = 1_000;
}

/// Figures of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneStats {
    /// The lane.
    pub lane: Name,
    /// Its settings.
    pub settings: LaneSettings,
    /// Jobs that wait (scheduled or queued).
    pub waiting: u64,
    /// Open attempts.
    pub open: u64,
    /// The job that has waited longest among those listed first in each agent, with the time it was submitted.
    pub oldest: Option<(JobId, Wall)>,
    /// What happened in it since the start.
    pub counts: Counts,
    /// True: it is one of [`crate::Settings::shown_once_used`] and has had no job since the start.
    pub unused: bool,
}

/// Figures of an agent in a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentStats {
    /// The tenant.
    pub tenant: Name,
    /// The agent.
    pub agent: Name,
    /// The lane.
    pub lane: Name,
    /// Jobs that wait.
    pub waiting: u64,
    /// Open attempts.
    pub open: u64,
    /// What happened to its jobs since the start. Agents without jobs are remembered in a bounded number.
    pub counts: Counts,
}

impl Engine {
    /// Figures of now. With a tenant: only what is that tenant's.
    pub fn stats(&self, tenant: Option<&Name>) -> Stats {
        let mut stats = Stats {
            running_max: self.settings.running_max,
            deliveries: if tenant.is_none() { self.delivery_stats() } else { DeliveryStats::default() },
            ..self.server.stats()
        };
        let shown = tenant.map(|tenant| self.queue.tenants.find(tenant));
        let is_shown = |ix: Ix<Tenant>| shown.is_none_or(|tenant| tenant == Some(ix));
        self.count_states(&is_shown, &mut stats);
        let mut lanes = self.queue.lanes.map(|lane| LaneStats {
            lane: lane.name.clone(),
            settings: lane.settings.clone(),
            waiting: 0,
            open: 0,
            oldest: None,
            counts: Counts::default(),
            unused: false,
        });
        for (lane, counts) in self.queue.forgotten.seen_by(tenant) {
            lanes[lane].counts.add(counts);
        }
        for (_, (lane, tenant, agent), agent_queue) in self.queue.agent_queues.iter() {
            if !is_shown(*tenant) {
                continue;
            }
            lanes[*lane].counts.add(&agent_queue.counts);
            if agent_queue.idle {
                continue;
            }
            let figures = &mut lanes[*lane];
            figures.waiting += u64::from(agent_queue.waiting);
            figures.open += u64::from(agent_queue.open);
            if let Some(oldest) = self.oldest_of(agent_queue)
                && figures.oldest.is_none_or(|other| oldest.1 < other.1)
            {
                figures.oldest = Some(oldest);
            }
            if stats.agents.len() < Stats::AGENTS_MAX {
                stats.agents.push(self.agent_stats(*lane, *tenant, agent, agent_queue));
            }
        }
        for ((lane, ..), counts) in self.queue.forgotten.strangers(tenant) {
            lanes[*lane].counts.add(&counts);
        }
        self.add_idle_agents(tenant, &is_shown, &mut stats);
        let mut lanes = lanes.into_vec();
        // A lane that is named no more is shown only while it has jobs.
        lanes.retain(|lane| self.queue.lane_of.contains_key(&lane.lane) || lane.waiting + lane.open > 0);
        for lane in &mut lanes {
            lane.unused = self.settings.shown_once_used.contains(&lane.lane)
                && lane.waiting + lane.open == 0
                && lane.counts.is_empty();
        }
        lanes.sort_by(|a, b| a.lane.cmp(&b.lane));
        stats.agents.sort_by(|a, b| (&a.lane, &a.tenant, &a.agent).cmp(&(&b.lane, &b.tenant, &b.agent)));
        stats.lanes = lanes;
        stats
    }

    /// Adds agents without jobs, as far as there is room.
    fn add_idle_agents(
        &self,
        tenant: Option<&Name>,
        is_shown: &dyn Fn(Ix<Tenant>) -> bool,
        stats: &mut Stats,
    ) {
        let idle = self
            .queue
            .agent_queues
            .iter()
            .filter(|(_, (_, tenant, _), agent_queue)| agent_queue.idle && is_shown(*tenant));
        let room = Stats::AGENTS_MAX - stats.agents.len();
        for (_, (lane, tenant, agent), agent_queue) in
            idle.filter(|(_, _, agent_queue)| !agent_queue.counts.is_empty()).take(room)
        {
            stats.agents.push(self.agent_stats(*lane, *tenant, agent, agent_queue));
        }
        let room = Stats::AGENTS_MAX - stats.agents.len();
        for ((lane, tenant, agent), counts) in self.queue.forgotten.strangers(tenant).take(room) {
            stats.agents.push(AgentStats {
                tenant: tenant.clone(),
                agent: agent.clone(),
                lane: self.queue.lanes[*lane].name.clone(),
                waiting: 0,
                open: 0,
                counts,
            });
        }
    }

    /// The agents of one lane, however many there are in others: those with jobs first, [`Stats::AGENTS_MAX`] at most.
    pub fn agents_in(&self, tenant: Option<&Name>, lane: &Name) -> Vec<AgentStats> {
        let Some(&ix) = self.queue.lane_of.get(lane) else { return Vec::new() };
        let shown = tenant.map(|tenant| self.queue.tenants.find(tenant));
        let is_shown = |of: Ix<Tenant>| shown.is_none_or(|tenant| tenant == Some(of));
        let here = |idle: bool| {
            let known = self.queue.agent_queues.iter().filter(move |(_, (of, tenant, _), agent_queue)| {
                *of == ix
                    && is_shown(*tenant)
                    && agent_queue.idle == idle
                    && (!idle || !agent_queue.counts.is_empty())
            });
            known.map(|(_, (lane, tenant, agent), agent_queue)| {
                self.agent_stats(*lane, *tenant, agent, agent_queue)
            })
        };
        let strangers = self.queue.forgotten.strangers(tenant).filter(|((of, ..), _)| *of == ix);
        let strangers = strangers.map(|((_, tenant, agent), counts)| AgentStats {
            tenant: tenant.clone(),
            agent: agent.clone(),
            lane: lane.clone(),
            waiting: 0,
            open: 0,
            counts,
        });
        here(false).chain(here(true)).chain(strangers).take(Stats::AGENTS_MAX).collect()
    }

    /// How many jobs wait in a lane; none in one that is not there.
    pub fn waiting_in(&self, lane: &Name) -> u32 {
        self.queue.lane_of.get(lane).map_or(0, |&lane| self.queue.lanes[lane].waiting)
    }

    fn agent_stats(
        &self,
        lane: Ix<Lane>,
        tenant: Ix<Tenant>,
        agent: &Name,
        agent_queue: &AgentQueue,
    ) -> AgentStats {
        AgentStats {
            tenant: self.queue.tenants.key(tenant).clone(),
            agent: agent.clone(),
            lane: self.queue.lanes[lane].name.clone(),
            waiting: u64::from(agent_queue.waiting),
            open: u64::from(agent_queue.open),
            counts: agent_queue.counts,
        }
    }

    fn count_states(&self, is_shown: &dyn Fn(Ix<Tenant>) -> bool, stats: &mut Stats) {
        for (ix, _, tenant) in self.queue.tenants.iter() {
            if !is_shown(ix) {
                continue;
            }
            for state in JobState::ALL {
                let count = u64::from(tenant.states[usize::from(state.code())]);
                match state {
                    JobState::Scheduled => stats.scheduled += count,
                    JobState::Queued => stats.queued += count,
                    JobState::Assigned => stats.assigned += count,
                    JobState::Running => stats.running += count,
                    _ => stats.still_running += count,
                }
            }
        }
    }

    /// The first job of each of an agent's hanging bins is a candidate; the oldest of them is near enough for people.
    fn oldest_of(&self, agent_queue: &AgentQueue) -> Option<(JobId, Wall)> {
        agent_queue
            .groups
            .iter()
            .filter_map(|(_, group)| group.bins.first())
            .filter_map(|((_, bin), ())| self.queue.bins[bin].jobs.first())
            .map(|(_, job)| (self.jobs[job].id(), self.jobs[job].created_at()))
            .min_by_key(|(_, at)| *at)
    }
}
