//! The statistics of lanes and agents.

use std::collections::BTreeMap;

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Jobs;
use crate::engine::queue::counts::Counts;
use crate::engine::queue::{AgentQueue, Lane, Queue, Tenant};
use crate::engine::stats::Stats;
use crate::{JobId, JobState, LaneSettings, Name, Wall};

/// The statistics of a lane.
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

/// The statistics of an agent in a lane.
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

/// How much of a tenant waits and runs in a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneDepth {
    /// The tenant.
    pub tenant: Name,
    /// The lane.
    pub lane: Name,
    /// Jobs that wait (scheduled or queued).
    pub waiting: u64,
    /// Open attempts.
    pub open: u64,
}

/// Which tenants are shown: all, or at most one.
#[derive(Clone, Copy)]
enum Shown {
    All,
    Only(Option<Ix<Tenant>>),
}

impl Shown {
    fn shows(self, tenant: Ix<Tenant>) -> bool {
        match self {
            Shown::All => true,
            Shown::Only(only) => only == Some(tenant),
        }
    }
}

impl Queue {
    fn shown(&self, tenant: Option<&Name>) -> Shown {
        tenant.map_or(Shown::All, |tenant| Shown::Only(self.find_tenant(tenant)))
    }

    /// Counts jobs in memory by their state.
    pub(in crate::engine) fn add_states(&self, tenant: Option<&Name>, stats: &mut Stats) {
        let shown = self.shown(tenant);
        for (_, _, tenant) in self.tenants.iter().filter(|(ix, _, _)| shown.shows(*ix)) {
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

    /// Adds every lane, by name, and agents, those with jobs first.
    pub(in crate::engine) fn add_lanes_and_agents(
        &self,
        jobs: &Jobs,
        tenant: Option<&Name>,
        stats: &mut Stats,
    ) {
        let shown = self.shown(tenant);
        let mut lanes = self.lanes.map(|lane| LaneStats {
            lane: lane.name.clone(),
            settings: lane.settings.clone(),
            waiting: 0,
            open: 0,
            oldest: None,
            counts: Counts::default(),
            unused: false,
        });
        for (lane, counts) in self.forgotten.seen_by(tenant) {
            lanes[lane].counts.add(counts);
        }
        for (_, (lane, tenant, agent), queue) in self.agent_queues.iter() {
            if !shown.shows(*tenant) {
                continue;
            }
            let of_lane = &mut lanes[*lane];
            of_lane.counts.add(&queue.counts);
            if queue.idle {
                continue;
            }
            of_lane.waiting += u64::from(queue.waiting);
            of_lane.open += u64::from(queue.open);
            if let Some(oldest) = self.oldest_of(jobs, queue)
                && of_lane.oldest.is_none_or(|other| oldest.1 < other.1)
            {
                of_lane.oldest = Some(oldest);
            }
            if stats.agents.len() < Stats::AGENTS_MAX {
                stats.agents.push(self.agent_stats(*lane, *tenant, agent, queue));
            }
        }
        for ((lane, ..), counts) in self.forgotten.unadmitted(tenant) {
            lanes[*lane].counts.add(&counts);
        }
        self.add_idle_agents(tenant, shown, stats);
        stats.agents.sort_by(|a, b| (&a.lane, &a.tenant, &a.agent).cmp(&(&b.lane, &b.tenant, &b.agent)));
        stats.lanes = lanes.into_vec();
        // A lane that the settings do not name any more is shown only while it has jobs.
        stats.lanes.retain(|lane| self.has_lane(&lane.lane) || lane.waiting + lane.open > 0);
        stats.lanes.sort_by(|a, b| a.lane.cmp(&b.lane));
    }

    /// What waits and runs, by tenant and lane. Tenants and lanes without jobs are left out.
    pub(in crate::engine) fn depths(&self) -> Vec<LaneDepth> {
        let mut sums: BTreeMap<(Ix<Tenant>, Ix<Lane>), (u64, u64)> = BTreeMap::new();
        for (_, (lane, tenant, _), queue) in self.agent_queues.iter() {
            if !queue.idle {
                let sum = sums.entry((*tenant, *lane)).or_default();
                *sum = (sum.0 + u64::from(queue.waiting), sum.1 + u64::from(queue.open));
            }
        }
        let depth = |((tenant, lane), (waiting, open))| LaneDepth {
            tenant: self.tenants.key(tenant).clone(),
            lane: self.lanes[lane].name.clone(),
            waiting,
            open,
        };
        sums.into_iter().map(depth).collect()
    }

    /// Adds agents without jobs, up to the limit.
    fn add_idle_agents(&self, tenant: Option<&Name>, shown: Shown, stats: &mut Stats) {
        let idle = self.agent_queues.iter().filter(|(_, (_, tenant, _), queue)| {
            queue.idle && shown.shows(*tenant) && !queue.counts.is_empty()
        });
        for (_, (lane, tenant, agent), queue) in idle.take(Stats::AGENTS_MAX - stats.agents.len()) {
            stats.agents.push(self.agent_stats(*lane, *tenant, agent, queue));
        }
        let free = Stats::AGENTS_MAX - stats.agents.len();
        for ((lane, tenant, agent), counts) in self.forgotten.unadmitted(tenant).take(free) {
            stats.agents.push(unadmitted_stats(tenant, agent, &self.lanes[*lane].name, counts));
        }
    }

    /// The agents of one lane: those with jobs first, [`Stats::AGENTS_MAX`] at most.
    pub(in crate::engine) fn agents_in(&self, tenant: Option<&Name>, lane: &Name) -> Vec<AgentStats> {
        let Some(ix) = self.find_lane(lane) else { return Vec::new() };
        let shown = self.shown(tenant);
        let here = |idle: bool| {
            let known = self.agent_queues.iter().filter(move |(_, (of, tenant, _), queue)| {
                *of == ix && shown.shows(*tenant) && queue.idle == idle && (!idle || !queue.counts.is_empty())
            });
            known.map(|(_, (lane, tenant, agent), queue)| self.agent_stats(*lane, *tenant, agent, queue))
        };
        let unadmitted = self.forgotten.unadmitted(tenant).filter(|((of, ..), _)| *of == ix);
        let unadmitted =
            unadmitted.map(|((_, tenant, agent), counts)| unadmitted_stats(tenant, agent, lane, counts));
        here(false).chain(here(true)).chain(unadmitted).take(Stats::AGENTS_MAX).collect()
    }

    fn agent_stats(
        &self,
        lane: Ix<Lane>,
        tenant: Ix<Tenant>,
        agent: &Name,
        queue: &AgentQueue,
    ) -> AgentStats {
        AgentStats {
            tenant: self.tenants.key(tenant).clone(),
            agent: agent.clone(),
            lane: self.lanes[lane].name.clone(),
            waiting: u64::from(queue.waiting),
            open: u64::from(queue.open),
            counts: queue.counts,
        }
    }

    /// The first job of each of an agent's hanging bins is a candidate; the oldest of them is near enough for people.
    fn oldest_of(&self, jobs: &Jobs, queue: &AgentQueue) -> Option<(JobId, Wall)> {
        let groups = queue.groups.iter().filter_map(|(_, group)| group.bins.first());
        let heads = groups.filter_map(|((_, bin), ())| self.bins[bin].jobs.first());
        heads.map(|(_, job)| (jobs[job].id(), jobs[job].created_at())).min_by_key(|(_, at)| *at)
    }
}

/// The statistics of an agent without any admitted job.
fn unadmitted_stats(tenant: &Name, agent: &Name, lane: &Name, counts: Counts) -> AgentStats {
    let (tenant, agent, lane) = (tenant.clone(), agent.clone(), lane.clone());
    AgentStats { tenant, agent, lane, waiting: 0, open: 0, counts }
}
