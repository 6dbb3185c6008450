//! Workflow runs after a restart, and the check of runs.

use std::collections::BTreeMap;

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs, Wake};
use crate::engine::workflows::Workflows;
use crate::engine::workflows::graph::dependents;
use crate::engine::workflows::open_runs::Link;
use crate::{EndedMember, MemberOf, Name, RunRow, Wall};

impl Workflows {
    /// Loads an open run. Its live jobs follow.
    pub(in crate::engine) fn resume(&mut self, row: RunRow, ended: &[EndedMember]) {
        let first = row.first.0;
        let run = self.runs.insert(row);
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

    /// Loads the dependencies of a live member. It does not wait for unknown nodes.
    pub(in crate::engine) fn resume_dependencies(
        &mut self,
        positions: &BTreeMap<Name, u32>,
        of: &MemberOf,
        job: Ix<Job>,
    ) {
        let Some((run, position)) = self.runs.run_of_mut(job) else { return };
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

    /// All members are known: computes the dependents of each.
    pub(in crate::engine) fn resume_dependents(&mut self) {
        for run in self.runs.open.values_mut() {
            let above: Vec<Box<[u32]>> = run.members.iter().map(|member| member.depends_on.clone()).collect();
            let below = dependents(&above);
            run.members.iter_mut().zip(below).for_each(|(member, below)| member.dependents = below);
        }
    }

    /// Since when a member may start, as far as that was before a restart.
    pub(in crate::engine) fn released_at(&self, job: Ix<Job>) -> Option<Wall> {
        let (run, position) = self.runs.run_of(job)?;
        run.released_at(position)
    }

    /// An attempt of a member was open over the restart.
    pub(in crate::engine) fn resume_member_attempt(&mut self, job: Ix<Job>, attempts: u32) {
        let Some((run, position)) = self.runs.run_of_mut(job) else { return };
        let was = std::mem::replace(&mut run.members[position as usize].attempts, attempts);
        run.dispatched += u64::from(attempts.saturating_sub(was));
    }

    /// Recounts all runs from their members.
    pub(in crate::engine) fn check(&self, jobs: &Jobs) -> Result<(), String> {
        let (mut nodes, mut live) = (0, 0);
        for (id, run) in &self.runs.open {
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
                let job = &jobs[ix];
                live += 1;
                if !job.in_run() || self.runs.members.get(&ix) != Some(&(*id, position)) {
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
                    return fault("a member does not wait for its dependencies");
                }
                if waits && !must_wait {
                    return fault("a member waits for nothing");
                }
            }
        }
        let by_tenant: u32 = self.nodes_by_tenant().sum();
        if nodes != self.runs.nodes as usize
            || by_tenant != self.runs.nodes
            || live != self.runs.members.len()
        {
            return Err(format!("{nodes} nodes and {live} live members of runs were counted otherwise"));
        }
        if !self.runs.is_settled() {
            return Err("the consequences of an ended member were not applied".into());
        }
        self.check_chains(jobs)
    }
}
