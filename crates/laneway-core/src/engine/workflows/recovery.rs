//! Members of runs over a restart, and the recount of runs.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Wake};
use crate::engine::workflows::graph::dependents;
use crate::engine::workflows::runs::Link;
use crate::{EndedMember, MemberOf, Name, RunRow, Wall};

impl Engine {
    /// Takes up an open run. Its live jobs follow.
    pub(in crate::engine) fn resume_run(&mut self, row: RunRow, ended: &[EndedMember]) {
        let (id, first) = (row.id, row.first.0);
        self.open_run(row);
        let run = self.workflows.runs.open.get_mut(&id).expect("it was just opened");
        for member in ended {
            let position = member.seq.0.wrapping_sub(first) as usize;
            let Some(entry) = run.members.get_mut(position) else { continue };
            entry.id = member.job;
            entry.ended = Some(member.state);
            entry.ended_at = Some(member.finished_at);
            entry.attempts = member.attempts;
            run.dispatched += u64::from(member.attempts);
        }
    }

    /// Takes up what a live member waits for. Nodes that are not known are waited for no more than ended ones.
    pub(in crate::engine) fn resume_dependencies(
        &mut self,
        positions: &BTreeMap<Name, u32>,
        of: &MemberOf,
        job: Ix<Job>,
    ) {
        let Some(&(id, position)) = self.workflows.runs.members.get(&job) else { return };
        let run = self.workflows.runs.open.get_mut(&id).expect("a member's run is open");
        let mut above: Vec<u32> =
            of.depends_on.iter().filter_map(|node| positions.get(node).copied()).collect();
        above.sort_unstable();
        above.dedup();
        let entry = &mut run.members[position as usize];
        entry.depends_on = above.into();
        entry.group = of.group;
        entry.within = of.within.as_ref().and_then(|group| positions.get(group).copied());
        entry.link = of.chain.as_ref().and_then(|chain| {
            let next = chain.next().and_then(|next| positions.get(next).copied());
            Some(Link { index: chain.index, next, host: positions.get(&chain.host).copied()? })
        });
    }

    /// All members are known: who waits for whom, the other way round.
    pub(in crate::engine) fn resume_dependents(&mut self) {
        for run in self.workflows.runs.open.values_mut() {
            let above: Vec<Box<[u32]>> = run.members.iter().map(|member| member.depends_on.clone()).collect();
            let below = dependents(&above);
            run.members.iter_mut().zip(below).for_each(|(member, below)| member.dependents = below);
        }
    }

    /// Since when a member may start, as far as that was before a restart.
    pub(in crate::engine) fn released_at(&self, job: Ix<Job>) -> Option<Wall> {
        let (id, position) = self.workflows.runs.members.get(&job)?;
        self.workflows.runs.open[id].released_at(*position)
    }

    /// The attempt of a member that was open over a restart.
    pub(in crate::engine) fn resume_member_attempt(&mut self, job: Ix<Job>, attempts: u32) {
        let Some(&(id, position)) = self.workflows.runs.members.get(&job) else { return };
        let run = self.workflows.runs.open.get_mut(&id).expect("a member's run is open");
        let was = std::mem::replace(&mut run.members[position as usize].attempts, attempts);
        run.dispatched += u64::from(attempts.saturating_sub(was));
    }
}

impl Engine {
    /// Recounts all runs from their members.
    pub(in crate::engine) fn check_runs(&self) -> Result<(), String> {
        let (mut nodes, mut live) = (0, 0);
        for (id, run) in &self.workflows.runs.open {
            let fault = |what: &str| Err(format!("run {id}: {what}"));
            nodes += run.row.nodes.len();
            if run.roll_up() != run.row.state {
                return fault("its state does not follow from its members");
            }
            if run.members.iter().map(|member| u64::from(member.attempts)).sum::<u64>() != run.dispatched {
                return fault("its attempts are not those of its members");
            }
            for (position, member) in (0u32..).zip(&run.members) {
                if (member.job.is_none()) != member.ended.is_some() {
                    return fault("a member is neither live nor ended");
                }
                let Some(ix) = member.job else { continue };
                let job = &self.jobs[ix];
                live += 1;
                if !job.in_run() || self.workflows.runs.members.get(&ix) != Some(&(*id, position)) {
                    return fault("a member does not know its run");
                }
                if job.id() != member.id || job.attempts() != member.attempts {
                    return fault("a member is another job");
                }
                if member.is_called() {
                    continue;
                }
                let (waits, must_wait) =
                    (job.wake() == Some(Wake::Upstream), run.missing(position).next().is_some());
                if must_wait && !waits {
                    return fault("a member does not wait for what it depends on");
                }
                if waits && !must_wait {
                    return fault("a member waits for nothing");
                }
            }
        }
        if nodes != self.workflows.runs.nodes as usize || live != self.workflows.runs.members.len() {
            return Err(format!("{nodes} nodes and {live} live members of runs were counted otherwise"));
        }
        if !self.workflows.runs.is_settled() {
            return Err("an end of a member is not settled".into());
        }
        Ok(())
    }
}
