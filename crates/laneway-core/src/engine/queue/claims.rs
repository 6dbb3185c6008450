//! Heads for pull workers, and jobs that are reserved for them.

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{AgentQueue, Class, Demand, Lane, Queue, QueueHead, Tenant};
use crate::engine::workers::Workers;
use crate::lease::Claim;

impl Queue {
    /// The first head of a tenant in a lane, for each demand.
    pub(in crate::engine) fn heads_of_tenant(&self, lane: Ix<Lane>, tenant: Ix<Tenant>) -> Vec<QueueHead> {
        let of_tenant =
            |head: &&QueueHead| head.2.class.is_some_and(|class| self.classes[class].tenant == tenant);
        let by_demand = self.lanes[lane].by_demand.values();
        by_demand.filter_map(|heads| heads.iter().find(of_tenant)).copied().collect()
    }

    /// The heads of a tenant in a lane that have one of the kinds of a claim.
    pub(in crate::engine) fn heads_of_kinds(
        &self,
        lane: Ix<Lane>,
        tenant: Ix<Tenant>,
        claim: &Claim,
    ) -> Vec<QueueHead> {
        let kinds = claim.kinds.iter().filter_map(|kind| self.kinds.find(kind));
        let classes = kinds.flat_map(|kind| self.kinds[kind].classes.iter().copied());
        let classes = classes.filter(|&class| {
            self.classes[class].tenant == tenant && self.is_pull(self.classes[class].demand)
        });
        let lane = &self.lanes[lane];
        classes.filter_map(|class| lane.classes.get(&class)?.head).collect()
    }

    /// The heads of an agent that suit a claim.
    pub(in crate::engine) fn heads_of_agent(
        &self,
        workers: &Workers,
        agent_queue: Ix<AgentQueue>,
        claim: &Claim,
    ) -> Vec<QueueHead> {
        let groups = self.agent_queues[agent_queue].groups.iter();
        let shown = groups.filter_map(|(source, group)| Some((group.shown_key()?, agent_queue, source)));
        let wanted = |class: Ix<Class>| {
            let kind = self.classes[class].kind;
            claim.kinds.is_empty() || kind.is_some_and(|kind| claim.kinds.contains(self.kinds.key(kind)))
        };
        let open = shown.filter(|&(_, _, source)| {
            source.class.is_some_and(|class| self.class_is_open(workers, class) && wanted(class))
                && source.key.is_none_or(|key| self.keys[key].gate.is_open())
        });
        open.collect()
    }

    /// The demand of a head of a lane with pull workers.
    pub(in crate::engine) fn demand_of_head(&self, head: QueueHead) -> Demand {
        let demand = head.2.class.and_then(|class| self.classes[class].demand);
        self.demands[demand.expect("jobs for pull workers have a demand")]
    }

    /// An attempt is reserved until a worker claims it. `number`: the attempt's.
    pub(in crate::engine) fn reserve(&mut self, ix: Ix<Job>, job: &Job, number: u64) {
        let lane = self.lane_of(job);
        self.lanes[lane].reserved.insert((number, ix));
    }

    /// A reserved attempt was claimed, or closed.
    pub(in crate::engine) fn unreserve(&mut self, ix: Ix<Job>, job: &Job, number: u64) {
        let lane = self.lane_of(job);
        self.lanes[lane].reserved.remove(&(number, ix));
    }

    /// Jobs of a lane that are reserved, in the order of their attempts.
    pub(in crate::engine) fn reserved_in(&self, lane: Ix<Lane>) -> impl Iterator<Item = Ix<Job>> {
        self.lanes[lane].reserved.iter().map(|&(_, job)| job)
    }

    pub(in crate::engine) fn is_listed_reserved(&self, ix: Ix<Job>, job: &Job, number: u64) -> bool {
        self.lane_of_job(job).reserved.contains(&(number, ix))
    }

    /// Reserved jobs of all lanes.
    pub(in crate::engine) fn reserved_count(&self) -> usize {
        self.lanes.values().map(|lane| lane.reserved.len()).sum()
    }
}
