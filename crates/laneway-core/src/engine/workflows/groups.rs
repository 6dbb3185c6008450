//! Groups: nodes of a run that stand for other nodes of it.
//!
//! A group runs nothing itself. Its nodes wait for whatever the group depends on, and the group succeeds when all of them
//! have: which is a matter of dependencies, and settled when the run is checked. A group that is the host of a middleware
//! chain starts when it is called: until then its nodes wait, and their end is the answer. When a group does not end well,
//! the nodes in it that have not ended are canceled.

use std::collections::BTreeMap;

use crate::call::{NextAnswer, NextCode};
use crate::engine::Engine;
use crate::engine::jobs::ending::JobEnding;
use crate::engine::workflows::graph::{Graph, invalid};
use crate::engine::workflows::open_runs::{Link, MemberEntry, OpenRun};
use crate::{Effects, JobState, Member, Name, Now, Reason, Rejection, RunId, RunSettings};

/// For each node, the group that it is in.
pub(super) type Within = Vec<Option<u32>>;

/// Reads which node is in which group.
pub(super) fn enclosing(
    members: &[Member],
    positions: &BTreeMap<&Name, u32>,
    links: &[Option<Link>],
) -> Result<Within, Rejection> {
    let fault =
        |member: &Member, what: &str| Err(invalid(format!("node {:?}: {what}", member.node.as_str())));
    let mut within = Vec::with_capacity(members.len());
    for member in members {
        let Some(name) = &member.within else {
            within.push(None);
            continue;
        };
        match positions.get(name) {
            Some(&group) if members[group as usize].group => within.push(Some(group)),
            Some(_) => {
                return fault(member, "within: names a node that is no group; set its `group` to true");
            }
            None => return fault(member, "within: names a node that the run does not have; add that group"),
        }
    }
    for (at, member) in members.iter().enumerate() {
        if ancestors(&within, at).count() > members.len() {
            return fault(member, "within: the group is in itself; take one of these out");
        }
        if let Some(link) = links[at]
            && within[link.host as usize] != within[at]
        {
            return fault(member, "within: a middleware is in the same group as its host");
        }
        if !member.group {
            continue;
        }
        if !within.contains(&Some(at as u32)) {
            return fault(member, "group: no node is in it; name it in the `within` of others");
        }
        if links[at].is_some_and(|link| link.index.is_some()) {
            return fault(member, "group: a middleware cannot be one");
        }
        if !member.bindings.is_empty() {
            return fault(member, "bindings: a group gets no payload; bind to the nodes in it");
        }
    }
    Ok(within)
}

/// The groups around a node, the innermost first. Endless where a group is in itself; bounded by one more than there are.
fn ancestors(within: &[Option<u32>], at: usize) -> impl Iterator<Item = u32> {
    let outer = std::iter::successors(within[at], |group| within[*group as usize]);
    outer.take(within.len() + 1)
}

/// Makes dependencies of groups those of their nodes. Chains are joined afterwards.
pub(super) fn lower(
    members: &[Member],
    links: &[Option<Link>],
    within: &[Option<u32>],
    depends_on: &mut [Box<[u32]>],
    limits: &RunSettings,
) -> Result<(), Rejection> {
    if within.iter().all(Option::is_none) {
        return Ok(());
    }
    let given: Vec<Box<[u32]>> = depends_on.to_vec();
    // What each group waits for before its nodes may start, those around it included.
    let starts = |group: u32| {
        let around = std::iter::once(group).chain(ancestors(within, group as usize));
        let of_chain = |group: u32| {
            let same = move |link: &Option<Link>| link.is_some_and(|link| link.host == group);
            (0..members.len()).filter(move |&at| at == group as usize || same(&links[at]))
        };
        let mut all: Vec<u32> = around.flat_map(of_chain).flat_map(|at| given[at].iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let mut started: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for at in 0..members.len() {
        let Some(group) = within[at] else { continue };
        let is_inside = |other: u32| ancestors(within, other as usize).any(|around| around == group);
        if members[at].group || given[at].iter().any(|&other| is_inside(other)) {
            continue;
        }
        let first = started.entry(group).or_insert_with(|| starts(group));
        let mut all = given[at].to_vec();
        all.extend(first.iter().copied());
        all.sort_unstable();
        all.dedup();
        depends_on[at] = all.into();
    }
    for at in (0..members.len()).filter(|&at| members[at].group && links[at].is_none()) {
        depends_on[at] = nodes_of(within, at as u32).collect();
    }
    let total: usize = depends_on.iter().map(|above| above.len()).sum();
    let most = limits.dependencies_max as usize + members.len();
    if total > most {
        return Err(invalid(format!(
            "nodes: groups make {total} dependencies of theirs, at most {most} are allowed (runs.dependencies_max); let \
             fewer nodes begin a group, or let the group wait for fewer"
        )));
    }
    Ok(())
}

fn nodes_of(within: &[Option<u32>], group: u32) -> impl Iterator<Item = u32> {
    (0u32..).zip(within).filter(move |(_, of)| **of == Some(group)).map(|(at, _)| at)
}

/// What must have ended before what, chains and groups together: a group that is called ends after its nodes, and so does
/// the middleware that its chain begins with.
pub(super) fn flow(graph: &Graph, members: &[Member]) -> Vec<Box<[u32]>> {
    let mut flow = graph.depends_on.clone();
    for (at, link) in graph.links.iter().enumerate() {
        let Some(link) = link.filter(|_| members[at].group) else { continue };
        let first = graph
            .links
            .iter()
            .position(|other| other.is_some_and(|other| other.host == link.host && other.index == Some(0)));
        for later in [Some(at), first].into_iter().flatten() {
            let mut all = flow[later].to_vec();
            all.extend(nodes_of(&graph.within, at as u32));
            all.sort_unstable();
            all.dedup();
            flow[later] = all.into();
        }
    }
    flow
}

impl MemberEntry {
    /// True for a group that starts when it is called.
    pub(super) fn is_called_group(&self) -> bool {
        self.group && self.is_called()
    }
}

impl OpenRun {
    /// The groups around a member, the innermost first.
    pub(super) fn around(&self, position: u32) -> impl Iterator<Item = u32> {
        let within = |at: &u32| self.members[*at as usize].within;
        std::iter::successors(within(&position), move |group| within(group))
    }

    /// The groups around a member that start when they are called, and have not been.
    pub(super) fn uncalled_around(&self, position: u32) -> impl Iterator<Item = u32> {
        self.around(position).filter(|group| {
            let group = &self.members[*group as usize];
            group.is_called_group() && group.call.is_none()
        })
    }

    /// The live members of a group, those of groups in it included.
    fn live_within(&self, group: u32) -> Vec<u32> {
        let live = (0u32..).zip(&self.members).filter(|(_, member)| member.job.is_some()).map(|(at, _)| at);
        live.filter(|at| self.around(*at).any(|around| around == group)).collect()
    }
}

impl Engine {
    /// A group that starts when it is called has been: what waits for nothing else may start.
    pub(super) fn open_group(&mut self, now: Now, id: RunId, group: u32, effects: &mut Effects) {
        let inside = self.workflows.runs.open[&id].live_within(group);
        self.release_members(now, id, &inside, effects);
    }

    /// A member has ended well: if it was the last of a group that was called, the caller has its answer.
    pub(super) fn answer_group(&mut self, id: RunId, position: u32, effects: &mut Effects) {
        let run = &self.workflows.runs.open[&id];
        let Some(group) = run.members[position as usize].within else { return };
        if run.members[group as usize].is_called_group() && run.live_within(group).is_empty() {
            self.answer(id, group, NextAnswer::Done(None), effects);
        }
    }

    /// A member has not ended well: with a group end the nodes in it, with a node of a called group ends that group.
    pub(super) fn break_group(
        &mut self,
        now: Now,
        id: RunId,
        position: u32,
        ended: JobState,
        effects: &mut Effects,
    ) {
        let run = &self.workflows.runs.open[&id];
        let member = &run.members[position as usize];
        let mut with_it = if member.group { run.live_within(position) } else { Vec::new() };
        let around = member.within.filter(|group| run.members[*group as usize].is_called_group());
        with_it.extend(around);
        if let Some(group) = around.filter(|_| ended == JobState::Failed) {
            self.answer(id, group, NextAnswer::rejected(NextCode::Failed), effects);
        }
        for position in with_it {
            if let Some(job) = self.workflows.runs.member(id, position).job {
                self.cancel_job(now, job, Reason::UpstreamFailed, None, effects);
            }
        }
    }

    /// The chain around a group has ended well: what of the group has not started is skipped, what runs is canceled.
    pub(super) fn close_group(&mut self, now: Now, id: RunId, group: u32, effects: &mut Effects) {
        for position in self.workflows.runs.open[&id].live_within(group) {
            let Some(job) = self.workflows.runs.member(id, position).job else { continue };
            if self.jobs[job].attempts() == 0 {
                if self.jobs[job].state() == JobState::Queued {
                    // It was called with its group, and need not start any more.
                    self.wait_for_call(now, job, None, effects);
                }
                self.end_job(now, job, JobEnding::new(JobState::Succeeded, Reason::Skipped), effects);
            } else {
                self.cancel_job(now, job, Reason::UpstreamFailed, None, effects);
            }
        }
    }
}
