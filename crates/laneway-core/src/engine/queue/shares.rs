//! Shares of tenants in the queues that they have in common.
//!
//! A part of every shared queue (`limits.reserved_percent`) is reserved for the known tenants in equal parts; the rest is for
//! the first that asks. A tenant alone on a server has all of it. A tenant that fills its queues therefore never takes the
//! share of another one, and a limit is never exceeded. Known tenants have a token or settings of their own.

use std::collections::BTreeSet;

use crate::Name;
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{Lane, Queue, Tenant};

/// How much of one queue is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Share {
    /// What is reserved for each tenant.
    each: u32,
    /// How many tenants there are.
    tenants: u32,
    /// How much of what is reserved is in use, all tenants together.
    used: u32,
}

impl Share {
    fn of(limit: u32, tenants: u32, percent: u8) -> Share {
        let reserved = u64::from(limit) * u64::from(percent) / 100;
        let each = if tenants < 2 { 0 } else { reserved / u64::from(tenants) };
        Share { each: u32::try_from(each).unwrap_or(u32::MAX), tenants, used: 0 }
    }

    /// A tenant has so much of the queue now, and had so much before.
    pub(in crate::engine) fn moved(&mut self, before: u32, after: u32) {
        self.used = self.used - before.min(self.each) + after.min(self.each);
    }

    /// How much of its share a tenant that has `own` takes with `asked` more.
    pub(in crate::engine) fn taken(&self, own: u32, asked: u32) -> u32 {
        own.saturating_add(asked).min(self.each) - own.min(self.each)
    }

    /// Is so much of it in use as the tenants have, by these counts?
    fn agrees_with(&self, counts: impl Iterator<Item = u32>) -> bool {
        counts.map(|count| count.min(self.each)).sum::<u32>() == self.used
    }

    /// What must stay free for others when a tenant that has `own` asks for one more, beside `asked` that it gets already.
    pub(in crate::engine) fn reserved_from(&self, own: u32, asked: u32) -> u32 {
        if own.saturating_add(asked) < self.each {
            return 0;
        }
        let others = u64::from(self.each) * u64::from(self.tenants.saturating_sub(1));
        let unused = others.saturating_sub(u64::from(self.used - self.each.min(own)));
        u32::try_from(unused).unwrap_or(u32::MAX)
    }
}

impl Engine {
    /// Tenants, tokens or limits may have changed: what is reserved is computed anew.
    pub(in crate::engine) fn recount_shares(&mut self) {
        let mut known: BTreeSet<&Name> = self.tokens.tenants().collect();
        known.extend(self.settings.tenants.keys());
        let tenants = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let percent = self.settings.reserved_percent;
        self.queue.recount_shares(self.settings.queued_max, tenants, percent);
        self.workflows.set_share(Share::of(self.settings.runs.open_nodes_max, tenants, percent));
    }

    /// The shares agree with the counts.
    pub(in crate::engine) fn check_shares(&self) -> Result<(), String> {
        self.queue.check_shares()?;
        if !self.workflows.share().agrees_with(self.workflows.nodes_by_tenant()) {
            return Err("the shares of open runs are miscounted".to_owned());
        }
        Ok(())
    }
}

impl Queue {
    /// Counts a job that begins to wait.
    pub(in crate::engine) fn count_waiting(&mut self, job: &Job) {
        self.waiting += 1;
        self.agent_queues[job.agent_queue()].waiting += 1;
        let lane = self.lane_of(job);
        self.lanes[lane].waiting += 1;
        self.count_in_shares(lane, self.tenant_of(job));
    }

    /// Counts a job that no longer waits.
    pub(in crate::engine) fn uncount_waiting(&mut self, job: &Job) {
        self.waiting -= 1;
        self.agent_queues[job.agent_queue()].waiting -= 1;
        let lane = self.lane_of(job);
        self.lanes[lane].waiting -= 1;
        self.uncount_in_shares(lane, self.tenant_of(job));
    }

    /// One job more of a tenant waits in a lane.
    fn count_in_shares(&mut self, lane: Ix<Lane>, tenant: Ix<Tenant>) {
        let tenant = &mut self.tenants[tenant];
        tenant.waiting += 1;
        self.share.moved(tenant.waiting - 1, tenant.waiting);
        let waiting = tenant.waiting_in.entry(lane).or_default();
        *waiting += 1;
        self.lanes[lane].share.moved(*waiting - 1, *waiting);
    }

    /// One job less of a tenant waits in a lane.
    fn uncount_in_shares(&mut self, lane: Ix<Lane>, tenant: Ix<Tenant>) {
        let tenant = &mut self.tenants[tenant];
        tenant.waiting -= 1;
        self.share.moved(tenant.waiting + 1, tenant.waiting);
        let waiting = tenant.waiting_in.get_mut(&lane).expect("it waited in this lane");
        *waiting -= 1;
        self.lanes[lane].share.moved(*waiting + 1, *waiting);
        if *waiting == 0 {
            tenant.waiting_in.remove(&lane);
        }
    }

    fn recount_shares(&mut self, queued_max: u32, tenants: u32, percent: u8) {
        self.share = Share::of(queued_max, tenants, percent);
        for lane in self.lanes.values_mut() {
            lane.share = Share::of(lane.settings.queued_max, tenants, percent);
        }
        for (_, _, tenant) in self.tenants.iter() {
            self.share.moved(0, tenant.waiting);
            for (&lane, &waiting) in &tenant.waiting_in {
                self.lanes[lane].share.moved(0, waiting);
            }
        }
    }

    /// The shares agree with the counts.
    fn check_shares(&self) -> Result<(), String> {
        let tenants = || self.tenants.iter().map(|(_, _, tenant)| tenant);
        if !self.share.agrees_with(tenants().map(|tenant| tenant.waiting)) {
            return Err("the shares of the server's queue are miscounted".to_owned());
        }
        for (ix, lane) in self.lanes.iter() {
            if !lane.share.agrees_with(tenants().map(|tenant| tenant.waiting_in(ix))) {
                return Err(format!("the shares of lane {} are miscounted", lane.name));
            }
        }
        Ok(())
    }
}
