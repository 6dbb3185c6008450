//! Limits and middleware chains: all that runs of one chain takes one place in every limit that it shares.
//!
//! A caller waits for the node that it called, so the two do not work at the same time; a lane that lets one job run at a
//! time must let them run all the same. A called node needs no place of its own in a limit in which its chain has one, and
//! goes before whatever waits in the queue: somebody who runs waits for it. Slots of places and workers, and units of the
//! machine, are really used by each of them and are not shared.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::needs::Room;
use super::slab::{Ix, NONE};
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{JobRow, JobState, Name, Now, RunId};

/// A chain: its run and its host.
pub(super) type ChainKey = (RunId, Name);

/// What runs of chains, and what waits for its turn.
#[derive(Default)]
pub(super) struct Chains {
    /// Jobs with an open attempt, by their chain.
    open: BTreeMap<ChainKey, Vec<Ix>>,
    /// The chain of each of them.
    pub(super) of: BTreeMap<Ix, ChainKey>,
    /// Called nodes that wait for their turn, the oldest first.
    queued: BTreeSet<(u64, Ix)>,
}

/// In which limits others of its chain hold a place for a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    /// Server and tenant: something of the chain runs.
    pub(super) any: bool,
    pub(super) lane: bool,
    pub(super) agent: bool,
    pub(super) kind: bool,
}

impl Engine {
    /// The attempt of an ended job that is taken up after a start: its run may not be known any more.
    pub(super) fn resume_lingering_chain(&mut self, job: Ix, row: &JobRow) {
        if let Some(of) = &row.spec.member
            && let Some(chain) = &of.chain
        {
            self.chains.of.insert(job, (of.run, chain.host.clone()));
        }
    }

    /// The chain that a job belongs to.
    fn chain_of(&self, job: Ix) -> Option<ChainKey> {
        if !self.jobs[job].in_run {
            return None;
        }
        if let Some(key) = self.chains.of.get(&job) {
            return Some(key.clone());
        }
        let &(id, position) = self.runs.members.get(&job)?;
        let run = &self.runs.open[&id];
        let link = run.members[position as usize].link?;
        Some((id, run.row.nodes[link.host as usize].clone()))
    }

    /// Others of its chain that run.
    pub(super) fn mates(&self, job: Ix) -> Vec<Ix> {
        let Some(key) = self.chain_of(job) else { return Vec::new() };
        let open = self.chains.open.get(&key).map_or(&[][..], |open| open);
        open.iter().copied().filter(|mate| *mate != job).collect()
    }

    /// An attempt of a job opens.
    pub(super) fn enter_chain(&mut self, job: Ix) {
        if let Some(key) = self.chain_of(job) {
            self.chains.of.insert(job, key.clone());
            self.chains.open.entry(key).or_default().push(job);
        }
    }

    /// The attempt of a job closes.
    pub(super) fn leave_chain(&mut self, job: Ix) -> Vec<Ix> {
        let mates = self.mates(job);
        if let Some(key) = self.chains.of.remove(&job) {
            let open = self.chains.open.entry(key.clone()).or_default();
            open.retain(|mate| *mate != job);
            if open.is_empty() {
                self.chains.open.remove(&key);
            }
        }
        mates
    }

    /// In which limits these others hold a place for a job.
    pub(super) fn shared_with(&self, job: Ix, mates: &[Ix]) -> Shared {
        let lane = |job: Ix| self.nodes[self.jobs[job].node].lane;
        let kind = |job: Ix| self.classes[self.jobs[job].class].kind;
        Shared {
            any: !mates.is_empty(),
            lane: mates.iter().any(|mate| lane(*mate) == lane(job)),
            agent: mates.iter().any(|mate| self.jobs[*mate].node == self.jobs[job].node),
            kind: mates.iter().any(|mate| kind(*mate) == kind(job)),
        }
    }

    /// Does one of these hold the key?
    pub(super) fn holds_key(&self, mates: &[Ix], key: Ix) -> bool {
        let holds = |mate: &Ix| {
            let keyset = self.jobs[*mate].keyset;
            keyset != NONE && self.keysets.key(keyset).contains(&key)
        };
        mates.iter().any(holds)
    }

    /// Who holds places for a job that wants to start: of a called node, what runs of its chain.
    pub(super) fn place_holders(&self, job: Ix) -> Vec<Ix> {
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::ChainBlocksItself) {
            return Vec::new();
        }
        let entry = &self.jobs[job];
        if !entry.in_run || !self.is_called_node(job) || self.waits_for_a_claim(job) {
            return Vec::new();
        }
        self.mates(job)
    }

    fn is_called_node(&self, job: Ix) -> bool {
        let found = self.runs.members.get(&job);
        found.is_some_and(|(id, position)| self.runs.open[id].members[*position as usize].is_called())
    }

    /// Keeps the list of called nodes that wait for their turn.
    pub(super) fn note_queued(&mut self, job: Ix) {
        let entry = (self.jobs[job].seq, job);
        if self.jobs[job].state == JobState::Queued && self.is_called_node(job) {
            self.chains.queued.insert(entry);
        } else {
            self.chains.queued.remove(&entry);
        }
    }

    /// True while no called node waits for its turn.
    pub(super) fn nobody_is_called(&self) -> bool {
        self.chains.queued.is_empty()
    }

    /// The called node that starts next.
    pub(super) fn next_called(&self, now: Now, room: Option<&Room>) -> Option<Ix> {
        let queued = self.chains.queued.iter().map(|&(_, job)| job);
        queued.into_iter().find(|&job| self.may_start_called(now, job, room))
    }

    fn may_start_called(&self, now: Now, job: Ix, room: Option<&Room>) -> bool {
        let entry = &self.jobs[job];
        if !self.class_has_room(entry.class) || self.waits_for_a_claim(job) {
            return false;
        }
        let mates = self.place_holders(job);
        let shared = self.shared_with(job, &mates);
        let (node, class) = (&self.nodes[entry.node], &self.classes[entry.class]);
        let lane = &self.lanes[node.lane as usize];
        let keys = if entry.keyset == NONE { &[][..] } else { self.keysets.key(entry.keyset) };
        shared.any
            && !lane.settings.paused
            && !self.is_overdue(now, job)
            && !self.is_missing(now, job)
            && (shared.lane || lane.open < lane.settings.running_max)
            && (shared.agent || node.open < lane.settings.running_per_agent_max)
            && (shared.kind || self.kinds[class.kind].gate.is_open())
            && keys.iter().all(|&key| self.keys[key].gate.is_open() || self.holds_key(&mates, key))
            && !(self.goes_to_workers(entry.class) && self.told_worker(job).is_none())
            && self.need_of_job(job).is_none_or(|need| room.is_none_or(|room| room.takes(need)))
    }

    /// Recounts who waits for its turn.
    pub(super) fn check_chains(&self) -> Result<(), String> {
        let queued = self
            .jobs
            .iter()
            .filter(|(ix, job)| job.in_run && job.state == JobState::Queued && self.is_called_node(*ix));
        let queued: BTreeSet<(u64, Ix)> = queued.map(|(ix, job)| (job.seq, ix)).collect();
        let open = self.jobs.iter().filter(|(ix, job)| job.open != NONE && self.chain_of(*ix).is_some());
        let open: BTreeSet<Ix> = open.map(|(ix, _)| ix).collect();
        let known: Vec<Ix> = self.chains.open.values().flatten().copied().collect();
        if queued != self.chains.queued
            || open.len() != known.len()
            || !known.iter().all(|job| open.contains(job))
        {
            return Err("chains do not know what runs and waits of them".into());
        }
        Ok(())
    }
}
