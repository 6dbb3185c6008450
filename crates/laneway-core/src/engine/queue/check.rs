//! Recounts the queue from the jobs and compares: counters are derived, never free-standing.

use std::collections::{BTreeMap, BTreeSet};

use crate::JobState;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::bin::BinKey;
use crate::engine::queue::{AgentQueue, Class, Executor, KeyEntry, Kind, Lane, Queue, Tenant};
use crate::engine::workers::Workers;
use crate::engine::workflows::Workflows;
use crate::engine::workflows::chain_limits::{self, Level};

/// The limits in which the attempts of a chain share slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Server,
    Tenant(Ix<Tenant>),
    Lane(Ix<Lane>),
    Agent(Ix<AgentQueue>),
    Kind(Ix<Kind>),
    Key(Ix<KeyEntry>),
}

/// Counts of one thing: waiting jobs and open attempts.
type Counts<K> = BTreeMap<K, (u32, u32)>;

/// Jobs that wait and open attempts, counted anew.
#[derive(Default)]
struct Recount {
    lanes: Counts<Ix<Lane>>,
    agent_queues: Counts<Ix<AgentQueue>>,
    tenants: Counts<Ix<Tenant>>,
    kinds: Counts<Ix<Kind>>,
    executors: Counts<Ix<Executor>>,
    keys: Counts<Ix<KeyEntry>>,
    total: (u32, u32),
    states: BTreeMap<Ix<Tenant>, [u32; JobState::ALL.len()]>,
}

impl Recount {
    fn of(&mut self, scope: Scope) -> &mut (u32, u32) {
        match scope {
            Scope::Server => &mut self.total,
            Scope::Tenant(ix) => self.tenants.entry(ix).or_default(),
            Scope::Lane(ix) => self.lanes.entry(ix).or_default(),
            Scope::Agent(ix) => self.agent_queues.entry(ix).or_default(),
            Scope::Kind(ix) => self.kinds.entry(ix).or_default(),
            Scope::Key(ix) => self.keys.entry(ix).or_default(),
        }
    }
}

impl Queue {
    /// Every limit counts the waiting jobs and open attempts that there are.
    pub(in crate::engine) fn check_counts(&self, jobs: &Jobs, workflows: &Workflows) -> Result<(), String> {
        let Recount { lanes, agent_queues, tenants, kinds, executors, keys, total, states } =
            self.recount(jobs, workflows);
        compare("server", &"", (self.waiting, self.open), total)?;
        for (ix, lane) in self.lanes.iter() {
            let recount = lanes.get(&ix).copied().unwrap_or_default();
            compare("lane", &lane.name, (lane.waiting, lane.open), recount)?;
        }
        for (ix, key, agent_queue) in self.agent_queues.iter() {
            compare(
                "agent",
                key,
                (agent_queue.waiting, agent_queue.open),
                agent_queues.get(&ix).copied().unwrap_or_default(),
            )?;
        }
        for (ix, name, tenant) in self.tenants.iter() {
            let recount = tenants.get(&ix).copied().unwrap_or_default();
            compare("tenant", name, (tenant.waiting, tenant.gate.used), recount)?;
            let recount = states.get(&ix).copied().unwrap_or_default();
            if tenant.states != recount {
                return Err(format!("tenant {name}: states {:?}, but jobs say {recount:?}", tenant.states));
            }
        }
        for (ix, name, kind) in self.kinds.iter() {
            compare_open("kind", name, kind.gate.used, &kinds, ix)?;
        }
        for (ix, name, executor) in self.executors.iter() {
            compare_open("executor", name, executor.gate.used, &executors, ix)?;
        }
        for (ix, name, key) in self.keys.iter() {
            let open = key.gate.used.checked_sub(key.kept);
            let open = open.ok_or_else(|| format!("key {name:?}: keeps more than is taken of it"))?;
            compare_open("key", name, open, &keys, ix)?;
        }
        Ok(())
    }

    /// Every key counts these ended jobs that keep it.
    pub(in crate::engine) fn check_kept(&self, recount: &BTreeMap<Ix<KeyEntry>, u32>) -> Result<(), String> {
        for (ix, name, key) in self.keys.iter() {
            let recount = recount.get(&ix).copied().unwrap_or_default();
            if key.kept != recount {
                return Err(format!("key {name:?}: counts {} keepers, but there are {recount}", key.kept));
            }
        }
        Ok(())
    }

    /// Counts again what jobs and open attempts take of every limit.
    fn recount(&self, jobs: &Jobs, workflows: &Workflows) -> Recount {
        let mut count = Recount::default();
        // Open attempts of chains are counted in the end: they share slots.
        let mut of_chains: BTreeMap<Scope, Vec<&[Level]>> = BTreeMap::new();
        for (ix, job) in jobs.iter() {
            let class = &self.classes[job.class()];
            let waits = u32::from(!job.has_attempt());
            let open = 1 - waits;
            let levels = workflows.open_levels(ix).filter(|_| open == 1);
            let mut alone = |scope| match levels {
                Some(levels) => {
                    of_chains.entry(scope).or_default().push(levels);
                    0
                }
                None => open,
            };
            let lane = self.agent_queues[job.agent_queue()].lane;
            let add = |count: &mut (u32, u32), open| *count = (count.0 + waits, count.1 + open);
            add(&mut count.total, alone(Scope::Server));
            count.states.entry(class.tenant).or_default()[usize::from(job.state().code())] += 1;
            add(count.lanes.entry(lane).or_default(), alone(Scope::Lane(lane)));
            add(
                count.agent_queues.entry(job.agent_queue()).or_default(),
                alone(Scope::Agent(job.agent_queue())),
            );
            add(count.tenants.entry(class.tenant).or_default(), alone(Scope::Tenant(class.tenant)));
            let kind = class.own_kind();
            add(count.kinds.entry(kind).or_default(), alone(Scope::Kind(kind)));
            if job.has_attempt() {
                add(count.executors.entry(jobs.open(ix).executor()).or_default(), open);
            }
            for &key in self.keys_of(job) {
                add(count.keys.entry(key).or_default(), alone(Scope::Key(key)));
            }
        }
        for (scope, jobs) in of_chains {
            count.of(scope).1 += chain_limits::slots(jobs);
        }
        count
    }

    /// Each bin hangs where its head belongs, and each job knows its bin.
    pub(in crate::engine) fn check_bins(&self, jobs: &Jobs) -> Result<(), String> {
        let mut hanging = 0;
        for (ix, key, bin) in self.bins.iter() {
            if bin.jobs.is_empty() || self.bins.find(key) != Some(ix) {
                return Err(format!("bin {ix} is empty or not found by its key"));
            }
            if let Some((_, job)) = bin.jobs.iter().find(|(_, job)| jobs[*job].bin() != Some(ix)) {
                return Err(format!("job {} does not know its bin", jobs[job].id()));
            }
            if let BinKey::Plain { shared_class, .. } = *key
                && let Some((_, job)) =
                    bin.jobs.iter().find(|(_, job)| !self.may_wait_in(&jobs[*job], shared_class))
            {
                return Err(format!("job {} waits in a shared class of another executor", jobs[job].id()));
            }
            let Some(at) = bin.at else { continue };
            hanging += 1;
            let (_, head) = bin.jobs.first().expect("checked above");
            if at.rank != self.rank_of(&jobs[head]) || at.agent_queue != jobs[head].agent_queue() {
                return Err(format!("bin {ix} hangs where its head does not belong"));
            }
            let group = self.agent_queues[at.agent_queue].groups.get(at.source);
            if !group.is_some_and(|group| group.bins.contains(&(at.rank, ix))) {
                return Err(format!("bin {ix} is not in the group it hangs in"));
            }
        }
        let grouped: usize = self
            .agent_queues
            .iter()
            .flat_map(|(_, _, agent_queue)| agent_queue.groups.iter())
            .map(|(_, group)| group.bins.len())
            .sum();
        if grouped != hanging {
            return Err(format!("{grouped} bins are grouped, {hanging} hang"));
        }
        Ok(())
    }

    /// A job waits in a bin of its own class, or of the shared class of its tenant and executor. Its kind may have got a limit
    /// since.
    fn may_wait_in(&self, job: &Job, shared_class: Ix<Class>) -> bool {
        let class = job.class();
        let (own, other) = (&self.classes[class], &self.classes[shared_class]);
        class == shared_class
            || (other.kind.is_none()
                && other.tenant == own.tenant
                && other.demand == own.demand
                && other.executor == self.kinds[own.own_kind()].executor)
    }

    /// Each level shows the first of the level below, if the gate in between is open.
    pub(in crate::engine) fn check_heads(&self, workers: &Workers) -> Result<(), String> {
        self.check_fair_keys()?;
        for lane in self.lanes.values() {
            let (mut shown, mut by_demand) = (0, 0);
            for (key, source) in lane.sources.iter() {
                let open = key.key.is_none_or(|key| self.keys[key].gate.is_open());
                let head = if open { source.agents.first() } else { None };
                if head != source.head {
                    return Err(format!("lane {}: source {key:?} shows the wrong head", lane.name));
                }
                let Some((fair, agent_queue)) = head else { continue };
                let above = match key.class {
                    None => {
                        shown += 1;
                        &lane.heads
                    }
                    Some(class) => &lane.classes[&class].heads,
                };
                if !above.contains(&(fair, agent_queue, key)) {
                    return Err(format!("lane {}: the head of {key:?} is not shown", lane.name));
                }
            }
            for (class, sources) in &lane.classes {
                let head =
                    if self.class_is_open(workers, *class) { sources.heads.first().copied() } else { None };
                if head != sources.head {
                    return Err(format!("lane {}: class {class} shows the wrong head", lane.name));
                }
                match self.classes[*class].demand {
                    None => shown += usize::from(head.is_some()),
                    Some(demand) => {
                        let above = lane.by_demand.get(&demand);
                        if head.is_some_and(|head| !above.is_some_and(|heads| heads.contains(&head))) {
                            return Err(format!(
                                "lane {}: the head of class {class} is not shown",
                                lane.name
                            ));
                        }
                        by_demand += usize::from(head.is_some());
                    }
                }
            }
            if lane.by_demand.values().map(BTreeSet::len).sum::<usize>() != by_demand {
                return Err(format!("lane {}: does not show {by_demand} heads with a demand", lane.name));
            }
            if lane.heads.len() != shown {
                return Err(format!(
                    "lane {}: shows {} heads instead of {shown}",
                    lane.name,
                    lane.heads.len()
                ));
            }
        }
        Ok(())
    }
}

fn compare(
    what: &str,
    name: &dyn std::fmt::Debug,
    counted: (u32, u32),
    recount: (u32, u32),
) -> Result<(), String> {
    if counted == recount {
        return Ok(());
    }
    Err(format!("{what} {name:?}: counts (waiting, open) {counted:?}, but jobs say {recount:?}"))
}

fn compare_open<T>(
    what: &str,
    name: &dyn std::fmt::Debug,
    used: u32,
    counts: &Counts<Ix<T>>,
    ix: Ix<T>,
) -> Result<(), String> {
    let recount = counts.get(&ix).map_or(0, |count| count.1);
    compare(what, name, (0, used), (0, recount))
}
