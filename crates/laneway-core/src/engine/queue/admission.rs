//! Does the queue have space for one more job? Every limit on waiting jobs is checked here.

use std::collections::BTreeMap;

use crate::command::{Rejection, RejectionCode};
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::{Belongs, RETRY_SOON};
use crate::engine::queue::shares::Share;
use crate::engine::queue::{Lane, Queue};
use crate::{CapScope, Full, JobSpec, Name, Settings};

/// Jobs that a batch will add, counted before any of them is added.
#[derive(Default)]
pub(in crate::engine) struct PlannedJobs {
    total: u32,
    lanes: BTreeMap<Ix<Lane>, u32>,
    agents: BTreeMap<(Ix<Lane>, Name, Name), u32>,
    tenants: BTreeMap<Name, u32>,
    lane_tenants: BTreeMap<(Ix<Lane>, Name), u32>,
}

impl PlannedJobs {
    /// Plans one more job in a lane.
    pub(in crate::engine) fn add(&mut self, lane: Ix<Lane>, spec: &JobSpec) {
        self.total += 1;
        *self.lanes.entry(lane).or_default() += 1;
        *self.agents.entry((lane, spec.tenant.clone(), spec.agent.clone())).or_default() += 1;
        *self.tenants.entry(spec.tenant.clone()).or_default() += 1;
        *self.lane_tenants.entry((lane, spec.tenant.clone())).or_default() += 1;
    }

    /// The shares of the server's queue and of the lane's, as they are when these jobs wait.
    fn shares(&self, queue: &Queue, lane: Ix<Lane>) -> (Share, Share) {
        let (mut of_server, mut of_lane) = (queue.share, queue.lanes[lane].share);
        let found = |tenant: &Name| queue.find_tenant(tenant).map(|tenant| &queue.tenants[tenant]);
        for (tenant, added) in &self.tenants {
            let own = found(tenant).map_or(0, |tenant| tenant.waiting);
            of_server.moved(own, own + added);
        }
        for ((_, tenant), added) in self.lane_tenants.iter().filter(|((at, _), _)| *at == lane) {
            let own = found(tenant).map_or(0, |tenant| tenant.waiting_in(lane));
            of_lane.moved(own, own + added);
        }
        (of_server, of_lane)
    }
}

impl Queue {
    /// Is there space for the job, beside what a batch adds before it?
    pub(in crate::engine) fn check_caps(
        &self,
        settings: &Settings,
        spec: &JobSpec,
        belongs: Belongs,
        planned: Option<&PlannedJobs>,
    ) -> Result<(), Rejection> {
        let at = belongs.lane;
        let lane = &self.lanes[at];
        let (mut total, mut in_lane, mut of_agent, mut of_tenant, mut of_tenant_here) = (0, 0, 0, 0, 0);
        if let Some(planned) = planned {
            let agent = (at, spec.tenant.clone(), spec.agent.clone());
            total = planned.total;
            in_lane = planned.lanes.get(&at).copied().unwrap_or(0);
            of_agent = planned.agents.get(&agent).copied().unwrap_or(0);
            of_tenant = planned.tenants.get(&spec.tenant).copied().unwrap_or(0);
            of_tenant_here = planned.lane_tenants.get(&(at, spec.tenant.clone())).copied().unwrap_or(0);
        }
        let (mut own, mut own_here) = (0, 0);
        if let Some(agent_queue) = belongs.agent_queue {
            of_agent += self.agent_queues[agent_queue].waiting;
        }
        if let Some(tenant) = belongs.tenant {
            own = self.tenants[tenant].waiting;
            if lane.share.reserves() {
                own_here = self.tenants[tenant].waiting_in(at);
            }
        }
        let (share, share_here) =
            planned.map_or((self.share, lane.share), |planned| planned.shares(self, at));
        let reserved = share.reserved_from(own + of_tenant);
        let reserved_here = share_here.reserved_from(own_here + of_tenant_here);
        let tenant_max = settings.tenant_limits(&spec.tenant).queued_max;
        check_cap(CapScope::Server, self.waiting + total, settings.queued_max, reserved)?;
        check_cap(CapScope::Lane, lane.waiting + in_lane, lane.settings.queued_max, reserved_here)?;
        check_cap(CapScope::Tenant, of_tenant + own, tenant_max, 0)?;
        check_cap(CapScope::Agent, of_agent, lane.settings.queued_per_agent_max, 0)
    }

    /// Where the job says nothing, the settings of its kind count; where those say nothing, the settings of the server.
    pub(in crate::engine) fn fill_in_defaults(
        &self,
        settings: &Settings,
        spec: &mut JobSpec,
        belongs: Belongs,
    ) {
        let lane = &self.lanes[belongs.lane].name;
        if spec.lane != *lane {
            spec.lane = lane.clone();
        }
        let kind = match belongs.kind {
            None => settings.kinds.get(&spec.kind),
            Some(known) => Some(&self.kinds[known].settings),
        };
        settings.fill_in_defaults(spec, kind);
        if spec.keys.len() > 1 {
            spec.keys.sort();
            spec.keys.dedup();
        }
    }
}

/// `reserved` of the cap is for other tenants.
fn check_cap(scope: CapScope, waiting: u32, cap: u32, reserved: u32) -> Result<(), Rejection> {
    if waiting < cap.saturating_sub(reserved) {
        return Ok(());
    }
    let setting = scope.setting();
    let rest = if waiting < cap { ", and the rest is reserved for other tenants" } else { "" };
    let message =
        format!("the queue is full ({setting}): {waiting} of {cap} jobs wait{rest}; submit again later");
    let full = Some(Full { scope, waiting, cap });
    Err(Rejection {
        retry_after: Some(RETRY_SOON),
        full,
        ..Rejection::new(RejectionCode::QueueFull, message)
    })
}
