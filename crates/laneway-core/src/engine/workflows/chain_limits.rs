//! Limits and middleware chains: the running nodes of one chain take one slot in every limit that they share.
//!
//! A caller waits for the node that it called, so the two do not work at the same time; a lane that lets one job run at a
//! time must let them run all the same. A called node needs no slot of its own in a limit in which its chain has one, and
//! goes before all queued jobs, because a running node waits for it. Nor does it need a slot of its own on the worker that
//! runs its chain. Slots of executors and units of the machine are really used by each node and are not shared.
//!
//! The nodes of a called group may run side by side: the first of them takes its caller's slot, each other one needs its
//! own. So a chain takes as many slots as nodes of its group run, but at least one while one of its own nodes runs. A chain
//! in such a group counts as one of its nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Engine;
use crate::engine::capacity::FreeCapacity;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::{KeyEntry, Kind, Queue};
use crate::engine::workers::Worker;
use crate::engine::workflows::Workflows;
use crate::engine::workflows::open_runs::{MemberEntry, OpenRun};
use crate::{JobRow, JobState, Name, Now, RunId};

/// A chain: its run and its host.
type ChainKey = (RunId, Name);

/// A chain that a job belongs to, or in whose group it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Level {
    key: ChainKey,
    /// True for a middleware or the host of the chain; false for a node of the group that is the host.
    linked: bool,
}

/// The nodes of chains that run, and those that are queued.
#[derive(Default)]
pub(super) struct Chains {
    /// Jobs with an open attempt, by their chain.
    open: BTreeMap<ChainKey, Running>,
    /// The chains of each of them, the innermost first.
    of: BTreeMap<Ix<Job>, Vec<Level>>,
    /// Queued called nodes, the oldest first.
    queued: BTreeSet<(u64, Ix<Job>)>,
    /// Queued nodes of called groups, by the chain of the group.
    queued_inside: BTreeMap<ChainKey, BTreeSet<(u64, Ix<Job>)>>,
    /// The chain of each of those.
    inside_of: BTreeMap<Ix<Job>, ChainKey>,
}

/// The running nodes of one chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Running {
    /// Its middlewares and its host.
    linked: BTreeSet<Ix<Job>>,
    /// The nodes of the group that is its host, those of chains and groups in it included.
    inside: BTreeSet<Ix<Job>>,
}

impl Running {
    fn side(&mut self, linked: bool) -> &mut BTreeSet<Ix<Job>> {
        if linked { &mut self.linked } else { &mut self.inside }
    }
}

/// The running nodes of a job's chains beside the job: for each chain, whether the job is linked to it, and the others.
#[derive(Debug, Default)]
pub(in crate::engine) struct Mates(Vec<(bool, Running)>);

impl Mates {
    /// True when the job needs no slot of its own in a limit, because of the mates that count in it.
    pub(in crate::engine) fn share(&self, counts: impl Fn(Ix<Job>) -> bool) -> bool {
        let any = |of: &BTreeSet<Ix<Job>>| of.iter().any(|&mate| counts(mate));
        self.0.iter().any(|(linked, running)| match linked {
            true => any(&running.linked) || any(&running.inside),
            // The caller's slot is free for one of the group.
            false => any(&running.linked) && !any(&running.inside),
        })
    }

    /// Middlewares and hosts among them.
    pub(in crate::engine) fn linked(&self) -> impl Iterator<Item = Ix<Job>> {
        self.0.iter().flat_map(|(_, running)| &running.linked).copied()
    }
}

/// How many slots open attempts take of a limit, by their chains.
pub(in crate::engine) fn slots<'a>(jobs: impl IntoIterator<Item = &'a [Level]>) -> u32 {
    /// Whether a node of the chain runs, how many slots are taken in its group, and the chains around it.
    type Tally<'a> = (u32, u32, &'a [Level]);
    let mut total = 0;
    // The innermost chains first.
    let mut tallies: BTreeMap<(Reverse<usize>, &ChainKey), Tally> = BTreeMap::new();
    let mut tally = |levels: &'a [Level], linked: u32, inside: u32, tallies: &mut BTreeMap<_, Tally<'a>>| {
        let Some((first, around)) = levels.split_first() else {
            total += linked.max(inside);
            return;
        };
        let entry = tallies.entry((Reverse(levels.len()), &first.key)).or_insert((0, 0, around));
        (entry.0, entry.1) = (entry.0.max(linked), entry.1 + inside);
    };
    for levels in jobs {
        let linked = levels.first().is_some_and(|level| level.linked);
        tally(levels, u32::from(linked), u32::from(!linked), &mut tallies);
    }
    while let Some((_, (linked, inside, around))) = tallies.pop_first() {
        tally(around, 0, linked.max(inside), &mut tallies);
    }
    total
}

impl OpenRun {
    /// The groups around a member that start when they are called, the innermost first.
    fn called_around(&self, within: Option<u32>) -> impl Iterator<Item = u32> {
        let around = std::iter::successors(within, |group| self.members[*group as usize].within);
        around.filter(|group| self.members[*group as usize].is_called_group())
    }

    fn levels(&self, host: Option<Name>, within: Option<u32>) -> Vec<Level> {
        let id = self.row.id;
        let own = host.map(|host| Level { key: (id, host), linked: true });
        let around = self.called_around(within).map(|group| &self.row.nodes[group as usize]);
        own.into_iter().chain(around.map(|node| Level { key: (id, node.clone()), linked: false })).collect()
    }
}

/// In which limits others of its chain hold a slot for a job.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Shared {
    /// Server and tenant: something of the chain runs.
    pub(in crate::engine) any: bool,
    pub(in crate::engine) lane: bool,
    pub(in crate::engine) agent: bool,
    pub(in crate::engine) kind: bool,
}

impl Mates {
    /// In which limits these others hold a slot for a job.
    pub(in crate::engine) fn shared(&self, jobs: &Jobs, queue: &Queue, job: Ix<Job>) -> Shared {
        let lane = |job: Ix<Job>| queue.lane_of(&jobs[job]);
        let kind = |job: Ix<Job>| queue.class(jobs[job].class()).kind();
        Shared {
            any: self.share(|_| true),
            lane: self.share(|mate| lane(mate) == lane(job)),
            agent: self.share(|mate| jobs[mate].agent_queue() == jobs[job].agent_queue()),
            kind: self.share(|mate| kind(mate) == kind(job)),
        }
    }

    /// Whether these hold a slot for a job at a worker, and one of this kind.
    pub(in crate::engine) fn slot_at(
        &self,
        jobs: &Jobs,
        queue: &Queue,
        worker: Ix<Worker>,
        kind: Ix<Kind>,
    ) -> (bool, bool) {
        let is_here = |mate: Ix<Job>| jobs.open(mate).pushed_to() == Some(worker);
        let is_kind = |mate: Ix<Job>| queue.class(jobs[mate].class()).kind() == Some(kind);
        (self.share(is_here), self.share(|mate| is_here(mate) && is_kind(mate)))
    }

    /// True when these hold the key for a job.
    pub(in crate::engine) fn hold_key(&self, jobs: &Jobs, queue: &Queue, key: Ix<KeyEntry>) -> bool {
        self.share(|mate| queue.keys_of(&jobs[mate]).contains(&key))
    }
}

impl Chains {
    /// The other running nodes of these chains.
    fn mates(&self, job: Ix<Job>, levels: impl IntoIterator<Item = Level>) -> Mates {
        let running = |level: Level| {
            let mut running = self.open.get(&level.key).cloned().unwrap_or_default();
            running.side(level.linked).remove(&job);
            (level.linked, running)
        };
        Mates(levels.into_iter().map(running).collect())
    }

    /// Lists a called node, or a node of a called group, that waits in the queue, and removes one that does not.
    fn note_queued(&mut self, entry: (u64, Ix<Job>), is_called: bool, around: Option<ChainKey>) {
        if is_called {
            self.queued.insert(entry);
        } else {
            self.queued.remove(&entry);
        }
        let (_, job) = entry;
        if let Some(key) = self.inside_of.remove(&job)
            && let Some(jobs) = self.queued_inside.get_mut(&key)
        {
            jobs.remove(&entry);
            if jobs.is_empty() {
                self.queued_inside.remove(&key);
            }
        }
        if let Some(key) = around {
            self.inside_of.insert(job, key.clone());
            self.queued_inside.entry(key).or_default().insert(entry);
        }
    }
}

impl Workflows {
    /// A canceled job still runs after a start: its run may not be known any more.
    pub(in crate::engine) fn resume_canceled(&mut self, job: Ix<Job>, row: &JobRow) {
        let Some(of) = &row.spec.member else { return };
        let host = of.chain.as_ref().map(|chain| chain.host.clone());
        let levels = match self.runs.open.get(&of.run) {
            Some(run) => {
                let position = |name: &Name| run.row.nodes.iter().position(|node| node == name);
                run.levels(host, of.within.as_ref().and_then(position).map(|at| at as u32))
            }
            None => host.map(|host| Level { key: (of.run, host), linked: true }).into_iter().collect(),
        };
        if !levels.is_empty() {
            self.chains.of.insert(job, levels);
        }
    }

    /// The chains of an open attempt, the innermost first; `None` when it has none.
    pub(in crate::engine) fn open_levels(&self, job: Ix<Job>) -> Option<&[Level]> {
        self.chains.of.get(&job).map(Vec::as_slice)
    }

    /// The chains that a job belongs to, or in whose groups it is, the innermost first.
    fn levels_of(&self, jobs: &Jobs, job: Ix<Job>) -> Vec<Level> {
        if !jobs[job].in_run() {
            return Vec::new();
        }
        self.chains.of.get(&job).cloned().unwrap_or_else(|| self.levels_of_member(job))
    }

    fn levels_of_member(&self, job: Ix<Job>) -> Vec<Level> {
        let Some((run, position)) = self.runs.run_of(job) else { return Vec::new() };
        let member = run.member(position);
        run.levels(member.link.map(|link| run.row.nodes[link.host as usize].clone()), member.within)
    }

    /// Others of its chains that run.
    pub(in crate::engine) fn mates(&self, jobs: &Jobs, job: Ix<Job>) -> Mates {
        if !jobs[job].in_run() {
            return Mates::default();
        }
        self.chains.mates(job, self.levels_of(jobs, job))
    }

    /// An attempt of a job opened.
    pub(in crate::engine) fn enter_chain(&mut self, jobs: &Jobs, job: Ix<Job>) {
        if !jobs[job].in_run() {
            return;
        }
        let levels = self.levels_of(jobs, job);
        for Level { key, linked } in &levels {
            self.chains.open.entry(key.clone()).or_default().side(*linked).insert(job);
        }
        if !levels.is_empty() {
            self.chains.of.insert(job, levels);
        }
    }

    /// The attempt of a job closed. Returns the others of its chains that run.
    pub(in crate::engine) fn leave_chain(&mut self, jobs: &Jobs, job: Ix<Job>) -> Mates {
        if !jobs[job].in_run() {
            return Mates::default();
        }
        let mates = self.mates(jobs, job);
        for Level { key, linked } in self.chains.of.remove(&job).into_iter().flatten() {
            let running = self.chains.open.entry(key.clone()).or_default();
            running.side(linked).remove(&job);
            if *running == Running::default() {
                self.chains.open.remove(&key);
            }
        }
        mates
    }

    /// The jobs that hold slots for a queued job: for a called node, the running nodes of its chain; for a node in a group,
    /// those of the chain that waits for the group.
    pub(in crate::engine) fn slot_sharers(&self, jobs: &Jobs, queue: &Queue, job: Ix<Job>) -> Mates {
        if !jobs[job].in_run() || queue.waits_for_claim(&jobs[job]) {
            return Mates::default();
        }
        let Some((run, position)) = self.runs.run_of(job) else { return Mates::default() };
        let member = run.member(position);
        let groups = run.called_around(member.within);
        let mut awaited = groups.map(|group| run.member(group).is_awaited());
        let levels = self.levels_of_member(job).into_iter();
        let held = levels.filter(|level| match level.linked {
            true => member.is_called(),
            false => awaited.next().expect("there is a level for each group around"),
        });
        self.chains.mates(job, held)
    }

    /// The chain of the called group around a job, for one that is not a called node itself.
    fn chain_around(&self, job: Ix<Job>) -> Option<ChainKey> {
        let (run, position) = self.runs.run_of(job)?;
        let member = run.member(position);
        let group = run.called_around(member.within).next().filter(|_| !member.is_called())?;
        Some((run.row.id, run.row.nodes[group as usize].clone()))
    }

    /// The state of a member changed: updates the lists of queued called nodes and nodes of called groups.
    pub(in crate::engine) fn note_queued(&mut self, entry: &Job, job: Ix<Job>) {
        let queued = entry.state() == JobState::Queued;
        let is_called = queued && self.runs.member_of(job).is_some_and(MemberEntry::is_called);
        let around = if queued { self.chain_around(job) } else { None };
        self.chains.note_queued((entry.seq(), job), is_called, around);
    }

    /// True while no called node and no node of a called group is queued.
    pub(in crate::engine) fn no_called_node_waits(&self) -> bool {
        self.chains.queued.is_empty() && self.chains.queued_inside.is_empty()
    }
}

impl Engine {
    /// The called node, or node of a called group, that starts next.
    pub(in crate::engine) fn next_called(
        &self,
        now: Now,
        capacity: Option<&FreeCapacity>,
    ) -> Option<Ix<Job>> {
        if self.workflows.no_called_node_waits() {
            return None;
        }
        let first = |queued: &BTreeSet<(u64, Ix<Job>)>| {
            queued.iter().copied().find(|&(_, job)| self.may_start_called(now, job, capacity))
        };
        // While a node of the group runs, it has the caller's slot.
        let has_slot = |key: &ChainKey| {
            let running = self.workflows.chains.open.get(key);
            running.is_some_and(|running| !running.linked.is_empty() && running.inside.is_empty())
        };
        let inside = self.workflows.chains.queued_inside.iter().filter(|(key, _)| has_slot(key));
        let inside = inside.filter_map(|(_, queued)| first(queued));
        first(&self.workflows.chains.queued).into_iter().chain(inside).min().map(|(_, job)| job)
    }

    fn may_start_called(&self, now: Now, job: Ix<Job>, capacity: Option<&FreeCapacity>) -> bool {
        let entry = &self.jobs[job];
        let has_slot = self.queue.class_has_free_slot(&self.workers, entry.class())
            || self.worker_of_chain(job).is_some();
        if !has_slot || self.queue.waits_for_claim(entry) {
            return false;
        }
        let mates = self.workflows.slot_sharers(&self.jobs, &self.queue, job);
        let shared = mates.shared(&self.jobs, &self.queue, job);
        let agent_queue = self.queue.agent_queue(entry.agent_queue());
        let lane = self.queue.lane(agent_queue.lane());
        let keys = self.queue.keys_of(entry);
        shared.any
            && !lane.settings().paused
            && !entry.is_overdue(now)
            && !self.is_missing(now, job)
            && (shared.lane || lane.open() < lane.settings().running_max)
            && (shared.agent || agent_queue.open() < lane.settings().running_per_agent_max)
            && (shared.kind || self.queue.kind(self.queue.kind_of(entry)).is_open())
            && keys
                .iter()
                .all(|&key| self.queue.key_is_open(key) || mates.hold_key(&self.jobs, &self.queue, key))
            && !(self.queue.goes_to_workers(entry.class()) && self.picked_worker(job).is_none())
            && self
                .queue
                .demand_of(entry)
                .is_none_or(|demand| capacity.is_none_or(|capacity| capacity.fits(demand)))
    }
}

impl Workflows {
    /// Recounts the running and the queued nodes of chains.
    pub(super) fn check_chains(&self, jobs: &Jobs) -> Result<(), String> {
        let fault = || Err("the running or queued nodes of chains are miscounted".into());
        let (mut queued, mut inside_of) = (BTreeSet::new(), BTreeMap::new());
        let mut open: BTreeMap<ChainKey, Running> = BTreeMap::new();
        for (ix, job) in jobs.iter().filter(|(_, job)| job.in_run()) {
            if job.state() == JobState::Queued {
                let is_called = self.runs.member_of(ix).is_some_and(MemberEntry::is_called);
                queued.extend(is_called.then_some((job.seq(), ix)));
                inside_of.extend(self.chain_around(ix).map(|key| (ix, key)));
            }
            if !job.has_attempt() {
                continue;
            }
            let levels = self.levels_of(jobs, ix);
            // The run of a canceled job that still runs may not be known any more.
            if self.runs.members.contains_key(&ix) && levels != self.levels_of_member(ix) {
                return fault();
            }
            for level in levels {
                open.entry(level.key).or_default().side(level.linked).insert(ix);
            }
        }
        let mut queued_inside: BTreeMap<ChainKey, BTreeSet<(u64, Ix<Job>)>> = BTreeMap::new();
        for (ix, key) in &inside_of {
            queued_inside.entry(key.clone()).or_default().insert((jobs[*ix].seq(), *ix));
        }
        let known = &self.chains;
        if (queued, inside_of, queued_inside)
            != (known.queued.clone(), known.inside_of.clone(), known.queued_inside.clone())
            || open != known.open
        {
            return fault();
        }
        Ok(())
    }
}
