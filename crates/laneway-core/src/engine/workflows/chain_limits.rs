//! Limits and middleware chains: all that runs of one chain takes one place in every limit that it shares.
//!
//! A caller waits for the node that it called, so the two do not work at the same time; a lane that lets one job run at a
//! time must let them run all the same. A called node needs no place of its own in a limit in which its chain has one, and
//! goes before whatever waits in the queue: somebody who runs waits for it. Nor does it need a slot of its own on the worker
//! that runs its chain. Slots of places and units of the machine are really used by each of them and are not shared.
//!
//! The nodes of a group that is called may run beside one another: the first of them takes its caller's place, each other
//! one needs its own. So a chain takes as many places as what runs in its group, but one at least while one of its own
//! nodes runs. A chain in such a group counts as one of its nodes.

use crate::engine::jobs::Job;
use crate::engine::queue::{KeyEntry, Kind};
use crate::engine::workers::pool::Worker;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Engine;
use crate::engine::capacity::FreeCapacity;
use crate::engine::collections::slab::Ix;
use crate::engine::workflows::runs::OpenRun;
use crate::{JobRow, JobState, Name, Now, RunId};

/// A chain: its run and its host.
pub(in crate::engine) type ChainKey = (RunId, Name);

/// A chain that a job belongs to, or in whose group it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Level {
    key: ChainKey,
    /// True for a middleware or the host of the chain; false for a node of the group that is the host.
    linked: bool,
}

/// What runs of chains, and what waits for its turn.
#[derive(Default)]
pub(in crate::engine) struct Chains {
    /// Jobs with an open attempt, by their chain.
    open: BTreeMap<ChainKey, Running>,
    /// The chains of each of them, the innermost first.
    pub(in crate::engine) of: BTreeMap<Ix<Job>, Vec<Level>>,
    /// Called nodes that wait for their turn, the oldest first.
    queued: BTreeSet<(u64, Ix<Job>)>,
    /// Nodes of called groups that wait for their turn, by the chain of the group.
    queued_inside: BTreeMap<ChainKey, BTreeSet<(u64, Ix<Job>)>>,
    /// The chain of each of those.
    inside_of: BTreeMap<Ix<Job>, ChainKey>,
}

/// What runs of one chain.
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

/// Others that run of a job's chains: for each chain whether the job is linked to it, and what else runs of it.
#[derive(Debug, Default)]
pub(in crate::engine) struct Mates(Vec<(bool, Running)>);

impl Mates {
    /// Does the job need no slot of its own in a limit, because of those who count in it?
    pub(in crate::engine) fn share(&self, counts: impl Fn(Ix<Job>) -> bool) -> bool {
        let any = |of: &BTreeSet<Ix<Job>>| of.iter().any(|&mate| counts(mate));
        self.0.iter().any(|(linked, running)| match linked {
            true => any(&running.linked) || any(&running.inside),
            // The caller's place is there for one of the group.
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
    /// Is a node of the chain there, how many slots are taken in its group, and the chains around it.
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

/// In which limits others of its chain hold a place for a job.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Shared {
    /// Server and tenant: something of the chain runs.
    pub(in crate::engine) any: bool,
    pub(in crate::engine) lane: bool,
    pub(in crate::engine) agent: bool,
    pub(in crate::engine) kind: bool,
}

impl Engine {
    /// The attempt of an ended job that is taken up after a start: its run may not be known any more.
    pub(in crate::engine) fn resume_lingering_chain(&mut self, job: Ix<Job>, row: &JobRow) {
        let Some(of) = &row.spec.member else { return };
        let host = of.chain.as_ref().map(|chain| chain.host.clone());
        let levels = match self.workflows.runs.open.get(&of.run) {
            Some(run) => {
                let position = |name: &Name| run.row.nodes.iter().position(|node| node == name);
                run.levels(host, of.within.as_ref().and_then(position).map(|at| at as u32))
            }
            None => host.map(|host| Level { key: (of.run, host), linked: true }).into_iter().collect(),
        };
        if !levels.is_empty() {
            self.workflows.chains.of.insert(job, levels);
        }
    }

    /// The chains that a job belongs to, or in whose groups it is, the innermost first.
    fn levels_of(&self, job: Ix<Job>) -> Vec<Level> {
        if !self.jobs[job].in_run() {
            return Vec::new();
        }
        self.workflows.chains.of.get(&job).cloned().unwrap_or_else(|| self.levels_of_member(job))
    }

    fn levels_of_member(&self, job: Ix<Job>) -> Vec<Level> {
        let Some((id, position)) = self.workflows.runs.members.get(&job) else { return Vec::new() };
        let run = &self.workflows.runs.open[id];
        let member = &run.members[*position as usize];
        run.levels(member.link.map(|link| run.row.nodes[link.host as usize].clone()), member.within)
    }

    fn mates_of(&self, job: Ix<Job>, levels: impl IntoIterator<Item = Level>) -> Mates {
        let running = |level: Level| {
            let mut running = self.workflows.chains.open.get(&level.key).cloned().unwrap_or_default();
            running.side(level.linked).remove(&job);
            (level.linked, running)
        };
        Mates(levels.into_iter().map(running).collect())
    }

    /// Others of its chains that run.
    pub(in crate::engine) fn mates(&self, job: Ix<Job>) -> Mates {
        self.mates_of(job, self.levels_of(job))
    }

    /// An attempt of a job opens.
    pub(in crate::engine) fn enter_chain(&mut self, job: Ix<Job>) {
        let levels = self.levels_of(job);
        for Level { key, linked } in &levels {
            self.workflows.chains.open.entry(key.clone()).or_default().side(*linked).insert(job);
        }
        if !levels.is_empty() {
            self.workflows.chains.of.insert(job, levels);
        }
    }

    /// The attempt of a job closes.
    pub(in crate::engine) fn leave_chain(&mut self, job: Ix<Job>) -> Mates {
        let mates = self.mates(job);
        for Level { key, linked } in self.workflows.chains.of.remove(&job).into_iter().flatten() {
            let running = self.workflows.chains.open.entry(key.clone()).or_default();
            running.side(linked).remove(&job);
            if *running == Running::default() {
                self.workflows.chains.open.remove(&key);
            }
        }
        mates
    }

    /// In which limits these others hold a place for a job.
    pub(in crate::engine) fn shared_with(&self, job: Ix<Job>, mates: &Mates) -> Shared {
        let lane = |job: Ix<Job>| self.queue.lane_of(&self.jobs[job]);
        let kind = |job: Ix<Job>| self.queue.class(self.jobs[job].class()).kind();
        Shared {
            any: mates.share(|_| true),
            lane: mates.share(|mate| lane(mate) == lane(job)),
            agent: mates.share(|mate| self.jobs[mate].agent_queue() == self.jobs[job].agent_queue()),
            kind: mates.share(|mate| kind(mate) == kind(job)),
        }
    }

    /// Do these have a slot for a job at a worker, and one of this kind?
    pub(in crate::engine) fn mates_at(
        &self,
        worker: Ix<Worker>,
        kind: Ix<Kind>,
        mates: &Mates,
    ) -> (bool, bool) {
        let is_here = |mate: Ix<Job>| {
            let open = self.jobs.open(mate);
            open.pushed_to() == Some(worker)
        };
        let is_kind = |mate: Ix<Job>| self.queue.class(self.jobs[mate].class()).kind() == Some(kind);
        (mates.share(is_here), mates.share(|mate| is_here(mate) && is_kind(mate)))
    }

    /// Do these hold the key for a job?
    pub(in crate::engine) fn holds_key(&self, mates: &Mates, key: Ix<KeyEntry>) -> bool {
        mates.share(|mate| self.queue.keys_of(&self.jobs[mate]).contains(&key))
    }

    /// Who holds places for a job that wants to start: of a called node, what runs of its chain; of a node in a group,
    /// what runs of the chain that waits for the group.
    pub(in crate::engine) fn slot_sharers(&self, job: Ix<Job>) -> Mates {
        if !self.jobs[job].in_run() || self.waits_for_a_claim(job) {
            return Mates::default();
        }
        let Some((id, position)) = self.workflows.runs.members.get(&job) else { return Mates::default() };
        let run = &self.workflows.runs.open[id];
        let member = &run.members[*position as usize];
        let groups = run.called_around(member.within);
        let mut awaited = groups.map(|group| run.members[group as usize].is_awaited());
        let levels = self.levels_of_member(job).into_iter();
        let held = levels.filter(|level| match level.linked {
            true => member.is_called(),
            false => awaited.next().expect("there is a level for each group around"),
        });
        self.mates_of(job, held)
    }

    fn is_called_node(&self, job: Ix<Job>) -> bool {
        let found = self.workflows.runs.members.get(&job);
        found.is_some_and(|(id, position)| {
            self.workflows.runs.open[id].members[*position as usize].is_called()
        })
    }

    /// The chain of the called group that a job is in, for one that is no called node itself.
    fn chain_around(&self, job: Ix<Job>) -> Option<ChainKey> {
        let (id, position) = self.workflows.runs.members.get(&job)?;
        let run = &self.workflows.runs.open[id];
        let member = &run.members[*position as usize];
        let group = run.called_around(member.within).next().filter(|_| !member.is_called())?;
        Some((*id, run.row.nodes[group as usize].clone()))
    }

    /// Keeps the lists of called nodes, and nodes of called groups, that wait for their turn.
    pub(in crate::engine) fn note_queued(&mut self, job: Ix<Job>) {
        let entry = (self.jobs[job].seq(), job);
        let queued = self.jobs[job].state() == JobState::Queued;
        if queued && self.is_called_node(job) {
            self.workflows.chains.queued.insert(entry);
        } else {
            self.workflows.chains.queued.remove(&entry);
        }
        if let Some(key) = self.workflows.chains.inside_of.remove(&job)
            && let Some(jobs) = self.workflows.chains.queued_inside.get_mut(&key)
        {
            jobs.remove(&entry);
            if jobs.is_empty() {
                self.workflows.chains.queued_inside.remove(&key);
            }
        }
        if let Some(key) = self.chain_around(job).filter(|_| queued) {
            self.workflows.chains.inside_of.insert(job, key.clone());
            self.workflows.chains.queued_inside.entry(key).or_default().insert(entry);
        }
    }

    /// True while no called node waits for its turn.
    pub(in crate::engine) fn nobody_is_called(&self) -> bool {
        self.workflows.chains.queued.is_empty() && self.workflows.chains.queued_inside.is_empty()
    }

    /// The called node, or node of a called group, that starts next.
    pub(in crate::engine) fn next_called(
        &self,
        now: Now,
        capacity: Option<&FreeCapacity>,
    ) -> Option<Ix<Job>> {
        let first = |queued: &BTreeSet<(u64, Ix<Job>)>| {
            queued.iter().copied().find(|&(_, job)| self.may_start_called(now, job, capacity))
        };
        // While something in the group runs, it has the caller's place.
        let has_place = |key: &ChainKey| {
            let running = self.workflows.chains.open.get(key);
            running.is_some_and(|running| !running.linked.is_empty() && running.inside.is_empty())
        };
        let inside = self.workflows.chains.queued_inside.iter().filter(|(key, _)| has_place(key));
        let inside = inside.filter_map(|(_, queued)| first(queued));
        first(&self.workflows.chains.queued).into_iter().chain(inside).min().map(|(_, job)| job)
    }

    fn may_start_called(&self, now: Now, job: Ix<Job>, capacity: Option<&FreeCapacity>) -> bool {
        let entry = &self.jobs[job];
        let has_room = self.queue.class_has_free_slot(&self.workers, entry.class())
            || self.worker_of_chain(job).is_some();
        if !has_room || self.waits_for_a_claim(job) {
            return false;
        }
        let mates = self.slot_sharers(job);
        let shared = self.shared_with(job, &mates);
        let (node, class) = (self.queue.agent_queue(entry.agent_queue()), self.queue.class(entry.class()));
        let lane = self.queue.lane(node.lane());
        let keys = self.queue.keys_of(&self.jobs[job]);
        shared.any
            && !lane.settings().paused
            && !self.jobs[job].is_overdue(now)
            && !self.is_missing(now, job)
            && (shared.lane || lane.open() < lane.settings().running_max)
            && (shared.agent || node.open() < lane.settings().running_per_agent_max)
            && (shared.kind || self.queue.kind(class.own_kind()).is_open())
            && keys.iter().all(|&key| self.queue.key_is_open(key) || self.holds_key(&mates, key))
            && !(self.goes_to_workers(entry.class()) && self.told_worker(job).is_none())
            && self
                .queue
                .demand_of(entry)
                .is_none_or(|demand| capacity.is_none_or(|capacity| capacity.fits(demand)))
    }

    /// Recounts what runs of chains, and who waits for its turn.
    pub(in crate::engine) fn check_chains(&self) -> Result<(), String> {
        let fault = || Err("chains do not know what runs and waits of them".into());
        let (mut queued, mut inside_of) = (BTreeSet::new(), BTreeMap::new());
        let mut open: BTreeMap<ChainKey, Running> = BTreeMap::new();
        for (ix, job) in self.jobs.iter().filter(|(_, job)| job.in_run()) {
            if job.state() == JobState::Queued {
                queued.extend(self.is_called_node(ix).then_some((job.seq(), ix)));
                inside_of.extend(self.chain_around(ix).map(|key| (ix, key)));
            }
            if !job.has_attempt() {
                continue;
            }
            let levels = self.levels_of(ix);
            // Of a job that has ended, its run may not be known any more.
            if self.workflows.runs.members.contains_key(&ix) && levels != self.levels_of_member(ix) {
                return fault();
            }
            for level in levels {
                open.entry(level.key).or_default().side(level.linked).insert(ix);
            }
        }
        let mut queued_inside: BTreeMap<ChainKey, BTreeSet<(u64, Ix<Job>)>> = BTreeMap::new();
        for (ix, key) in &inside_of {
            queued_inside.entry(key.clone()).or_default().insert((self.jobs[*ix].seq(), *ix));
        }
        let known = &self.workflows.chains;
        if (queued, inside_of, queued_inside)
            != (known.queued.clone(), known.inside_of.clone(), known.queued_inside.clone())
            || open != known.open
        {
            return fault();
        }
        Ok(())
    }
}
