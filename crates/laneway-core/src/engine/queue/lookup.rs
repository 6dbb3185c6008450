//! Reading the queue: records by handle, handles by name, and what a job shares with others.

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::submit::Belongs;
use crate::engine::queue::{
    AgentQueue, Bin, Class, Demand, Executor, KeyEntry, KeyName, Kind, Lane, Queue, QueueHead, Rank, Tenant,
};
use crate::kept_keys::KeyUse;
use crate::lease::Dispatch;
use crate::settings::MAIN_LANE;
use crate::{JobSpec, Name};

impl Queue {
    /// Open attempts, server-wide.
    pub(in crate::engine) fn open(&self) -> u32 {
        self.open
    }

    /// Attempts opened since the start.
    pub(in crate::engine) fn starts(&self) -> u64 {
        self.starts
    }

    pub(in crate::engine) fn lane(&self, lane: Ix<Lane>) -> &Lane {
        &self.lanes[lane]
    }

    pub(in crate::engine) fn agent_queue(&self, agent_queue: Ix<AgentQueue>) -> &AgentQueue {
        &self.agent_queues[agent_queue]
    }

    pub(in crate::engine) fn tenant(&self, tenant: Ix<Tenant>) -> &Tenant {
        &self.tenants[tenant]
    }

    pub(in crate::engine) fn kind(&self, kind: Ix<Kind>) -> &Kind {
        &self.kinds[kind]
    }

    pub(in crate::engine) fn class(&self, class: Ix<Class>) -> &Class {
        &self.classes[class]
    }

    pub(in crate::engine) fn tenant_name(&self, tenant: Ix<Tenant>) -> &Name {
        self.tenants.key(tenant)
    }

    pub(in crate::engine) fn kind_name(&self, kind: Ix<Kind>) -> &Name {
        self.kinds.key(kind)
    }

    pub(in crate::engine) fn executor_name(&self, executor: Ix<Executor>) -> &Name {
        self.executors.key(executor)
    }

    pub(in crate::engine) fn key_name(&self, key: Ix<KeyEntry>) -> &KeyName {
        self.keys.key(key)
    }

    pub(in crate::engine) fn key_is_open(&self, key: Ix<KeyEntry>) -> bool {
        self.keys[key].gate.is_open()
    }

    pub(in crate::engine) fn find_key(&self, name: &KeyName) -> Option<Ix<KeyEntry>> {
        self.keys.find(name)
    }

    /// How much of a key is taken.
    pub(in crate::engine) fn key_use(&self, key: Ix<KeyEntry>) -> KeyUse {
        let KeyEntry { gate, kept, .. } = &self.keys[key];
        KeyUse { open: gate.used - kept, kept: *kept, limit: gate.limit }
    }

    /// Every key with its name.
    pub(in crate::engine) fn key_names(&self) -> impl Iterator<Item = &KeyName> {
        self.keys.iter().map(|(_, name, _)| name)
    }

    /// Every lane. The lanes can change while walking.
    pub(in crate::engine) fn lanes(&self) -> impl Iterator<Item = Ix<Lane>> + use<> {
        self.lanes.handles()
    }

    /// Every class that has jobs.
    pub(in crate::engine) fn classes(&self) -> impl Iterator<Item = (Ix<Class>, &Class)> {
        self.classes.iter().map(|(ix, _, class)| (ix, class))
    }

    /// The classes of a tenant. A copy, so that they can change while walking.
    pub(in crate::engine) fn classes_of_tenant(&self, tenant: Ix<Tenant>) -> Vec<Ix<Class>> {
        self.tenants[tenant].classes.iter().copied().collect()
    }

    /// Kinds that an executor runs.
    pub(in crate::engine) fn kinds_with_executor(&self) -> impl Iterator<Item = &Name> {
        self.kinds.iter().filter(|(_, _, kind)| kind.executor.is_some()).map(|(_, name, _)| name)
    }

    /// True when the settings name the lane.
    pub(in crate::engine) fn has_lane(&self, lane: &Name) -> bool {
        self.by_name.contains_key(lane)
    }

    /// A lane that the settings name.
    pub(in crate::engine) fn find_lane(&self, lane: &Name) -> Option<Ix<Lane>> {
        self.by_name.get(lane).copied()
    }

    /// The lane of that name. An unknown lane means `main`.
    pub(in crate::engine) fn lane_or_main(&self, lane: &Name) -> Ix<Lane> {
        self.find_lane(lane).unwrap_or_else(|| self.main_lane())
    }

    /// The lane that stands for unknown ones.
    pub(super) fn main_lane(&self) -> Ix<Lane> {
        self.by_name[&Name::fixed(MAIN_LANE)]
    }

    pub(in crate::engine) fn find_tenant(&self, tenant: &Name) -> Option<Ix<Tenant>> {
        self.tenants.find(tenant)
    }

    pub(in crate::engine) fn find_executor(&self, executor: &Name) -> Option<Ix<Executor>> {
        self.executors.find(executor)
    }

    pub(in crate::engine) fn find_agent_queue(
        &self,
        lane: Ix<Lane>,
        tenant: Ix<Tenant>,
        agent: &Name,
    ) -> Option<Ix<AgentQueue>> {
        let is_it = |key: &(Ix<Lane>, Ix<Tenant>, Name)| key.0 == lane && key.1 == tenant && key.2 == *agent;
        self.agent_queues.find_by(&(lane, tenant, agent), is_it)
    }

    /// Finds what a job shares with others already. An unknown lane means `main`.
    pub(in crate::engine) fn locate(&self, spec: &JobSpec) -> Belongs {
        let lane = self.lane_or_main(&spec.lane);
        let tenant = self.find_tenant(&spec.tenant);
        let agent_queue = tenant.and_then(|tenant| self.find_agent_queue(lane, tenant, &spec.agent));
        Belongs { lane, agent_queue, tenant, kind: self.kinds.find(&spec.kind) }
    }

    pub(in crate::engine) fn lane_of(&self, job: &Job) -> Ix<Lane> {
        self.agent_queues[job.agent_queue()].lane
    }

    /// The lane of a job, with its settings.
    pub(in crate::engine) fn lane_of_job(&self, job: &Job) -> &Lane {
        &self.lanes[self.lane_of(job)]
    }

    /// Lane, tenant and agent of an agent queue.
    pub(in crate::engine) fn agent_queue_key(
        &self,
        agent_queue: Ix<AgentQueue>,
    ) -> &(Ix<Lane>, Ix<Tenant>, Name) {
        self.agent_queues.key(agent_queue)
    }

    pub(in crate::engine) fn agent_of(&self, job: &Job) -> &Name {
        &self.agent_queues.key(job.agent_queue()).2
    }

    pub(in crate::engine) fn tenant_of(&self, job: &Job) -> Ix<Tenant> {
        self.classes[job.class()].tenant
    }

    /// The name of the tenant of a job.
    pub(in crate::engine) fn owner_of(&self, job: &Job) -> &Name {
        self.tenants.key(self.tenant_of(job))
    }

    pub(in crate::engine) fn kind_of(&self, job: &Job) -> Ix<Kind> {
        self.classes[job.class()].own_kind()
    }

    /// The keys that an attempt of a job takes.
    pub(in crate::engine) fn keys_of(&self, job: &Job) -> &[Ix<KeyEntry>] {
        job.keyset().map_or(&[], |keyset| &self.keysets[keyset].0)
    }

    pub(in crate::engine) fn first_closed_key(&self, job: &Job) -> Option<Ix<KeyEntry>> {
        self.keys_of(job).iter().copied().find(|&key| !self.key_is_open(key))
    }

    /// The capacity request of a job.
    pub(in crate::engine) fn demand_of(&self, job: &Job) -> Option<Demand> {
        self.classes[job.class()].demand.map(|demand| self.demands[demand])
    }

    /// The units that a job asks for.
    pub(in crate::engine) fn cost_of(&self, job: &Job) -> u32 {
        self.demand_of(job).map_or(0, |demand| demand.cost)
    }

    /// True when pull workers get jobs with this demand.
    pub(in crate::engine) fn is_pull(&self, demand: Option<Ix<Demand>>) -> bool {
        demand.is_some_and(|demand| self.demands[demand].pull)
    }

    /// True when the executor of its kind runs the jobs of a class.
    pub(in crate::engine) fn goes_to_executor(&self, class: Ix<Class>) -> bool {
        let class = &self.classes[class];
        self.kinds[class.own_kind()].executor.is_some() && class.placement.is_none()
    }

    /// True when push workers run the jobs of a class.
    pub(in crate::engine) fn goes_to_workers(&self, class: Ix<Class>) -> bool {
        let class = &self.classes[class];
        class.route.is_some() || (class.placement.is_some() && !self.is_pull(class.demand))
    }

    /// True for a job that starts only when a pull worker claims it.
    pub(in crate::engine) fn waits_for_claim(&self, job: &Job) -> bool {
        self.lane_of_job(job).settings.pull.dispatch == Dispatch::Claim
    }

    /// True while some job has a capacity request.
    pub(super) fn has_demands(&self) -> bool {
        !self.demands.is_empty()
    }

    /// The demands of the heads in a lane. A copy, so that the heads can change while walking.
    pub(in crate::engine) fn demands_in(
        &self,
        lane: Ix<Lane>,
        wanted: impl Fn(Demand) -> bool,
    ) -> Vec<Ix<Demand>> {
        let demands = self.lanes[lane].by_demand.keys().copied();
        demands.filter(|&demand| wanted(self.demands[demand])).collect()
    }

    /// The first head of a lane with this demand.
    pub(in crate::engine) fn first_with_demand(
        &self,
        lane: Ix<Lane>,
        demand: Ix<Demand>,
    ) -> Option<QueueHead> {
        self.lanes[lane].by_demand.get(&demand)?.first().copied()
    }

    /// The bin of a head, and its first job.
    pub(in crate::engine) fn head_of(&self, head: QueueHead) -> (Ix<Bin>, Ix<Job>) {
        let (_, agent_queue, source) = head;
        let group = self.agent_queues[agent_queue].groups.get(source).expect("a head has its group");
        let ((_, bin), ()) = group.bins.first().expect("a shown group is not empty");
        let (_, job) = self.bins[bin].jobs.first().expect("bins are not empty");
        (bin, job)
    }

    /// The jobs of a bin, in their order.
    pub(in crate::engine) fn jobs_in_bin(&self, bin: Ix<Bin>) -> impl Iterator<Item = (Rank, Ix<Job>)> {
        self.bins[bin].jobs.iter()
    }

    /// The first job of a bin.
    pub(in crate::engine) fn first_in_bin(&self, bin: Ix<Bin>) -> Option<(Rank, Ix<Job>)> {
        self.bins[bin].jobs.first()
    }

    pub(in crate::engine) fn bin_len(&self, bin: Ix<Bin>) -> usize {
        self.bins[bin].jobs.len()
    }

    /// True while a bin hangs in the tree: its session and its head let it start.
    pub(in crate::engine) fn bin_hangs(&self, bin: Ix<Bin>) -> bool {
        self.bins[bin].at.is_some()
    }
}
