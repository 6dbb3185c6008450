//! Shares of tenants in the queues that they have in common.
//!
//! A part of every shared queue (`limits.reserved_percent`) is divided into equal shares for the known tenants, which have
//! a token or settings of their own. The rest is for the first that asks. While a tenant has nothing in a queue, others may
//! borrow its share except for a minimum. Once it has something there, its whole share is reserved: what others borrowed
//! comes back as it leaves the queue. A tenant that fills its queues therefore never takes the minimum of another one, and
//! a limit is never exceeded. A tenant alone on a server has all of it.

use std::collections::BTreeSet;

use crate::Name;
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{Lane, Queue, Tenant};

/// A tenant that has nothing in a queue keeps this part of its share, and at least one.
const MINIMUM_PART: u32 = 4;

/// How much of one queue is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Share {
    /// The share of each tenant.
    each: u32,
    /// The part of it that others may not borrow.
    minimum: u32,
    /// How many tenants there are.
    tenants: u32,
    /// How many tenants have something in the queue.
    present: u32,
    /// How much of the shares is in use, all tenants together.
    used: u32,
    /// How much of the minimums is in use, all tenants together.
    minimum_used: u32,
}

impl Share {
    fn of(limit: u32, tenants: u32, percent: u8) -> Share {
        let reserved = u64::from(limit) * u64::from(percent) / 100;
        let each = if tenants < 2 { 0 } else { reserved / u64::from(tenants) };
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        Share { each, minimum: (each / MINIMUM_PART).max(each.min(1)), tenants, ..Share::default() }
    }

    /// A tenant has so much of the queue now, and had so much before.
    pub(in crate::engine) fn moved(&mut self, before: u32, after: u32) {
        if self.each > 0 {
            self.used = self.used - before.min(self.each) + after.min(self.each);
            self.minimum_used = self.minimum_used - before.min(self.minimum) + after.min(self.minimum);
        }
        self.present = self.present - before.min(1) + after.min(1);
    }

    /// Is so much of it in use as the tenants have, by these counts?
    fn agrees_with(&self, counts: impl Iterator<Item = u32>) -> bool {
        let mut counted = Share { present: 0, used: 0, minimum_used: 0, ..*self };
        counts.for_each(|count| counted.moved(0, count));
        counted == *self
    }

    /// False where there is nothing to share: one tenant, or a small queue.
    pub(in crate::engine) fn reserves(&self) -> bool {
        self.each > 0
    }

    /// What must stay free for others when a tenant that has `own` asks for one more.
    pub(in crate::engine) fn reserved_from(&self, own: u32) -> u32 {
        if !self.reserves() || own < self.minimum {
            return 0;
        }
        let others = u64::from(self.tenants.saturating_sub(1));
        let unused = |each: u32, tenants: u64, used: u32| {
            (u64::from(each) * tenants).saturating_sub(u64::from(used - own.min(each)))
        };
        let mut reserved = unused(self.minimum, others, self.minimum_used);
        if own >= self.each {
            let present = u64::from(self.present - own.min(1)).min(others);
            let absent = (others - present) * u64::from(self.minimum);
            reserved = reserved.max(unused(self.each, present, self.used) + absent);
        }
        u32::try_from(reserved).unwrap_or(u32::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of 80 with three tenants, each with a share of 16 and a minimum of 4.
    struct Shared {
        share: Share,
        counts: [u32; 3],
    }

    impl Shared {
        fn new() -> Shared {
            Shared { share: Share::of(80, 3, 60), counts: [0; 3] }
        }

        fn change(&mut self, tenant: usize, count: u32) {
            self.share.moved(self.counts[tenant], count);
            self.counts[tenant] = count;
            assert!(self.share.agrees_with(self.counts.into_iter()));
        }

        /// A tenant takes all that it gets.
        fn fill(&mut self, tenant: usize) -> u32 {
            let own = |shared: &Shared| shared.counts[tenant];
            while self.counts.iter().sum::<u32>() + self.share.reserved_from(own(self)) < 80 {
                self.change(tenant, own(self) + 1);
            }
            own(self)
        }
    }

    #[test]
    fn defect_11_a_free_share_is_borrowed_and_comes_back() {
        let mut shared = Shared::new();
        assert_eq!(shared.fill(0), 72, "all but the minimum of the others");
        assert_eq!((shared.fill(1), shared.fill(2)), (4, 4), "each finds its minimum");
        shared.change(0, 52);
        assert_eq!(shared.fill(0), 52, "what leaves the queue is for those that have less than their share");
        assert_eq!((shared.fill(1), shared.fill(2)), (16, 12));
        shared.change(0, 30);
        shared.change(2, 0);
        assert_eq!((shared.fill(2), shared.fill(1)), (34, 16), "the rest is for the first that asks");
    }

    #[test]
    fn defect_11_a_tenant_finds_its_minimum_in_any_order() {
        for (first, second, third) in [(0, 1, 2), (2, 0, 1), (1, 2, 0)] {
            let mut shared = Shared::new();
            shared.change(second, 3);
            shared.fill(first);
            shared.fill(second);
            assert!(shared.fill(third) >= 4, "{:?}", shared.counts);
            assert!(shared.counts.iter().sum::<u32>() <= 80);
        }
    }

    #[test]
    fn a_share_of_less_than_one_reserves_nothing() {
        let reserved = |limit, tenants, own| {
            let mut share = Share::of(limit, tenants, 50);
            share.moved(0, own);
            share.reserved_from(own)
        };
        assert_eq!((reserved(8, 1, 8), reserved(2, 3, 2), reserved(8, 2, 7)), (0, 0, 1));
    }
}
