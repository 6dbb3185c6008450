//! Workflow runs: which member waits for which, and the consequences of a member's end for the others.
//!
//! A run in memory is its members' states; everything else follows from them. A member is released when all its
//! dependencies have succeeded, which is looked up, not counted, so that nothing can be counted twice. The consequences of
//! an end are applied in the same command: a join is released in the commit that ends its last dependency.

use std::collections::BTreeSet;

use crate::call::{NextAnswer, NextCode};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::create::within_hours;
use crate::engine::jobs::ending::JobEnding;
use crate::engine::jobs::submit::{Begins, Extra, reject};
use crate::engine::jobs::{Job, Jobs, Wake};
use crate::engine::numbers::Numbers;
use crate::engine::queue::Queue;
use crate::engine::workflows::Workflows;
use crate::engine::workflows::graph::{Graph, dependents};
use crate::engine::workflows::open_runs::MemberEntry;
use crate::job::TAGS_MAX;
use crate::run::RunLine;
use crate::{
    Change, Effects, EventKind, FailurePolicy, JobId, JobRow, JobState, Member, Name, Now, Origin, PriorRun,
    Reason, Rejection, RejectionCode, Reply, RunId, RunRow, RunState, RunSubmission, RunSubmitted, Seq,
    Submission, Wall,
};

impl Engine {
    /// Admits a run: all its jobs or none.
    pub(in crate::engine) fn submit_run(
        &mut self,
        now: Now,
        submission: RunSubmission,
        effects: &mut Effects,
    ) -> Result<RunSubmitted, Rejection> {
        if let Some(run) = self.workflows.runs.find_existing(&submission)? {
            let state = self.workflows.runs.open.get(&run).map_or(RunState::Succeeded, |open| open.row.state);
            return Ok(RunSubmitted { run, existing: true, jobs: Vec::new(), state });
        }
        let graph = self.check_run(now, &submission)?;
        let RunSubmission { mut spec, members, definition, origin, prior: _, strict_lanes: _ } = submission;
        let lane = self.queue.lane_or_main(&spec.lane);
        spec.lane = self.queue.lane(lane).name().clone();
        let row = RunRow {
            first: self.numbers.seq_to_come(),
            id: RunId(self.numbers.job_id(now.wall).0),
            spec,
            nodes: members.iter().map(|member| member.node.clone()).collect(),
            created_at: now.wall,
            submitted_by: origin.actor.clone(),
            state: RunState::Queued,
            finished_at: None,
        };
        if let Some(key) = &row.spec.idempotency {
            let prior = PriorRun { run: row.id, digest: key.digest };
            self.workflows.runs.fresh_keys.insert(
                self.numbers.batch(),
                (row.spec.tenant.clone(), key.key.clone()),
                prior,
            );
        }
        let (run, first) = (row.id, row.first);
        run_event(now, EventKind::RunSubmitted, &row, Some(&origin), &mut self.numbers, effects);
        effects.changes.push(Change::RunCreated(Box::new(row.clone())));
        let entry = self.workflows.runs.insert(row);
        let below = dependents(&graph.depends_on);
        let (links, within) = (graph.links, graph.within);
        let rest = links.into_iter().zip(within).zip(&members);
        for (((entry, above), below), ((link, within), member)) in
            entry.members.iter_mut().zip(graph.depends_on).zip(below).zip(rest)
        {
            (entry.depends_on, entry.dependents, entry.link) = (above, below, link);
            (entry.group, entry.within) = (member.group, within);
        }
        let jobs = (0..)
            .zip(&members)
            .map(|(at, member)| self.create_member(now, run, at, member, &origin, effects))
            .collect();
        effects.changes.extend(definition.map(|definition| Change::RunDefined { first, definition }));
        Ok(RunSubmitted { run, existing: false, jobs, state: RunState::Queued })
    }

    fn create_member(
        &mut self,
        now: Now,
        run: RunId,
        position: u32,
        member: &Member,
        origin: &Origin,
        effects: &mut Effects,
    ) -> JobId {
        let open = &self.workflows.runs.open[&run];
        let entry = open.member(position);
        let above = entry.depends_on.iter().map(|above| open.row.nodes[*above as usize].clone()).collect();
        let begins = match (entry.is_called(), open.missing(position).next().is_none()) {
            (true, _) => Begins::Called,
            (false, true) => Begins::AtOnce,
            (false, false) => Begins::Upstream,
        };
        let submission = member.submission(run, above, origin);
        let belongs = self.queue.locate(&submission.spec);
        self.create(now, submission, belongs, begins, effects).job
    }

    /// Checks the form of a run, and that all its jobs are admitted.
    fn check_run(&self, now: Now, submission: &RunSubmission) -> Result<Graph, Rejection> {
        let RunSubmission { spec, members, .. } = submission;
        let limits = &self.settings.runs;
        if spec.tags.len() > TAGS_MAX {
            return Err(reject(RejectionCode::Invalid, format!("tags: at most {TAGS_MAX} are allowed")));
        }
        if submission.strict_lanes && !self.queue.has_lane(&spec.lane) {
            self.settings.check_lane(&spec.lane)?;
        }
        let defined = submission.definition.as_ref().map_or(0, |definition| definition.len());
        let graph = Graph::of(members, defined, limits)?;
        self.workflows.runs.check_space(&spec.tenant, members.len(), limits.open_nodes_max)?;
        let mut extra = Extra::default();
        for member in members {
            let named = |rejection: Rejection| Rejection {
                message: format!("node {:?}: {}", member.node.as_str(), rejection.message).into(),
                ..rejection
            };
            check_member(spec.tenant.clone(), member).map_err(named)?;
            let item = member.submission(RunId(0), Vec::new(), &submission.origin);
            let item = Submission { strict_lane: submission.strict_lanes, ..item };
            self.check_item(now, &item, &mut extra).map_err(named)?;
        }
        Ok(graph)
    }

    /// Cancels a run: all its jobs that have not ended. Open attempts are asked to stop.
    pub(in crate::engine) fn cancel_run(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        run: RunId,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(open) = self.workflows.runs.open.get_mut(&run) else { return Reply::NotFound };
        if tenant.is_some_and(|tenant| *tenant != open.row.spec.tenant) {
            return Reply::NotFound;
        }
        open.canceled = true;
        let (first, was) = (open.row.first, open.row.state);
        let canceled = self.cancel_members(now, run, Reason::Requested, Some(origin), effects);
        self.settle_runs(now, effects);
        let moved = effects.changes.iter().rev().find_map(|change| match change {
            Change::RunMoved { first: moved, state, .. } if *moved == first => Some(*state),
            _ => None,
        });
        Reply::RunCanceled { canceled, state: moved.unwrap_or(was) }
    }

    fn cancel_members(
        &mut self,
        now: Now,
        run: RunId,
        reason: Reason,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) -> u32 {
        let live: Vec<Ix<Job>> =
            self.workflows.runs.open[&run].members.iter().filter_map(|member| member.job).collect();
        let mut canceled = 0;
        for job in live {
            self.cancel_job(now, job, reason, origin, effects);
            canceled += 1;
        }
        canceled
    }

    /// Applies the consequences of ended members to the other members of their runs.
    pub(in crate::engine) fn settle_runs(&mut self, now: Now, effects: &mut Effects) {
        if self.workflows.runs.is_settled() {
            return;
        }
        let mut touched = BTreeSet::new();
        loop {
            while let Some((id, position)) = self.workflows.runs.abandoned.pop_front() {
                self.abandon_call(now, id, position, effects);
            }
            let Some((id, position)) = self.workflows.runs.ended.pop_front() else { break };
            touched.insert(id);
            let run = &self.workflows.runs.open[&id];
            let member = run.member(position);
            let below = member.dependents.clone();
            let ended = member.ended.expect("it has ended");
            let failure = run.row.spec.failure;
            if member.is_awaited() {
                let code = if ended == JobState::Failed { NextCode::Failed } else { NextCode::Cancelled };
                self.answer(id, position, NextAnswer::rejected(code), effects);
            }
            match (ended, failure) {
                (JobState::Succeeded, _) => {
                    self.release_members(now, id, &below, effects);
                    self.answer_group(id, position, effects);
                    self.finish_chain(now, id, position, effects);
                }
                (JobState::Failed, FailurePolicy::Stop) => {
                    self.cancel_members(now, id, Reason::RunFailed, None, effects);
                }
                _ => {
                    for position in below {
                        if let Some(job) = self.workflows.runs.member(id, position).job {
                            self.cancel_job(now, job, Reason::UpstreamFailed, None, effects);
                        }
                    }
                    self.break_group(now, id, position, ended, effects);
                }
            }
        }
        for id in touched {
            self.workflows.update_state(now, id, &mut self.queue, &mut self.numbers, effects);
        }
    }

    /// Releases those of the members that wait for no other any more.
    pub(in crate::engine) fn release_members(
        &mut self,
        now: Now,
        id: RunId,
        members: &[u32],
        effects: &mut Effects,
    ) {
        for &position in members {
            let run = &self.workflows.runs.open[&id];
            let Some(job) = run.member(position).job else { continue };
            if self.jobs[job].wake() != Some(Wake::Upstream) {
                continue;
            }
            let missing = run.missing(position).count();
            let member = run.member(position);
            match (missing, member.group) {
                (0, true) => {
                    self.end_job(now, job, JobEnding::new(JobState::Succeeded, Reason::Done), effects);
                }
                (0, false) => self.release_member(now, job, member.not_before, effects),
                _ => {}
            }
        }
    }

    /// A member waits for no other any more: from now on it waits for its time and its hours, or is queued.
    pub(in crate::engine) fn release_member(
        &mut self,
        now: Now,
        job: Ix<Job>,
        not_before: Option<Wall>,
        effects: &mut Effects,
    ) {
        let at = not_before.map_or(now.wall, |at| at.max(now.wall));
        let at = within_hours(self.jobs.hours_of(job), at);
        if at > now.wall {
            self.jobs[job].wait_for(Wake::NotBefore(at));
            let status = self.status_of(job, Some(at));
            effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq()), status });
        } else {
            self.become_queued(now, job, Reason::Released, effects);
            self.look_at_needs(now, job, effects);
        }
        self.arm(job);
    }
}

impl Workflows {
    /// A live job is a member of an open run. A canceled job that still runs is a member no more.
    pub(in crate::engine) fn join(&mut self, job: Ix<Job>, row: &JobRow) {
        let Some(of) = &row.spec.member else { return };
        let Some(run) = self.runs.open.get_mut(&of.run) else { return };
        let position = row.seq.0.wrapping_sub(run.row.first.0);
        let Some(entry) = run.members.get_mut(position as usize).filter(|entry| entry.ended.is_none()) else {
            return;
        };
        (entry.job, entry.id, entry.not_before) = (Some(job), row.id, row.spec.not_before);
        entry.attempts = row.status.attempts;
        run.dispatched += u64::from(row.status.attempts);
        self.runs.members.insert(job, (of.run, position as u32));
    }

    /// A member that waits for others starts no sooner than at this time, whenever they end.
    pub(in crate::engine) fn set_not_before(&mut self, job: Ix<Job>, at: Wall) {
        if let Some((run, position)) = self.runs.run_of_mut(job) {
            run.members[position as usize].not_before = Some(at);
        }
    }

    /// True for a member that stands for a group of others.
    pub(in crate::engine) fn is_group(&self, job: Ix<Job>) -> bool {
        self.runs.member_of(job).is_some_and(|member| member.group)
    }

    /// An attempt of a member opens. Returns its number within the run; `None` for a job without an open run.
    pub(in crate::engine) fn member_started(
        &mut self,
        now: Now,
        (job, attempts): (Ix<Job>, u32),
        queue: &mut Queue,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) -> Option<u64> {
        let (run, position) = self.runs.run_of_mut(job)?;
        run.dispatched += 1;
        run.members[position as usize].attempts = attempts;
        let (id, number) = (run.row.id, run.dispatched);
        if run.row.state == RunState::Queued {
            self.update_state(now, id, queue, numbers, effects);
        }
        Some(number)
    }

    /// The dispatch number of a job's latest attempt, counted in its run or else in the job. For a node without an open
    /// attempt it is the latest of the run: earlier messages are stale.
    pub(in crate::engine) fn dispatch_seq(&self, jobs: &Jobs, job: Ix<Job>) -> u64 {
        let entry = &jobs[job];
        if let Some(open) = jobs.attempt_of(job) {
            return open.dispatch_seq();
        }
        let run = if entry.in_run() { self.runs.run_of(job) } else { None };
        run.map_or(entry.attempts().into(), |(run, _)| run.dispatched)
    }

    /// A member has ended. The consequences are applied at the end of the command: they end other jobs.
    pub(in crate::engine) fn member_ended(&mut self, job: Ix<Job>, state: JobState) {
        let Some((id, position)) = self.runs.members.remove(&job) else { return };
        let entry = self.runs.member_mut(id, position);
        entry.job = None;
        entry.ended = Some(state);
        let called = entry.link.and_then(|link| link.next);
        self.runs.abandoned.extend(called.map(|called| (id, called)));
        self.runs.ended.push_back((id, position));
    }

    /// Computes a run's state from its members; stores a change, and forgets a run that has ended.
    fn update_state(
        &mut self,
        now: Now,
        id: RunId,
        queue: &mut Queue,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) {
        let Some(run) = self.runs.open.get_mut(&id) else { return };
        let state = run.roll_up();
        if state == run.row.state {
            return;
        }
        let from_queued = run.row.state == RunState::Queued;
        run.row.state = state;
        run.row.finished_at = state.is_terminal().then_some(now.wall);
        let row = run.row.clone();
        let kind = match state {
            RunState::Queued | RunState::Running => EventKind::RunStarted,
            RunState::Succeeded => EventKind::RunSucceeded,
            RunState::Failed => EventKind::RunFailed,
            RunState::Canceled => EventKind::RunCanceled,
        };
        debug_assert!(
            state != RunState::Queued && (from_queued || state.is_terminal()),
            "the state of a run never goes back"
        );
        run_event(now, kind, &row, None, numbers, effects);
        let (first, finished_at) = (row.first, row.finished_at);
        effects.changes.push(Change::RunMoved { first, state, finished_at });
        if state.is_terminal() {
            self.runs.remove(&row);
            let nodes = u32::try_from(row.nodes.len()).unwrap_or(u32::MAX);
            queue.count_ended(queue.lane_or_main(&row.spec.lane), nodes);
        }
    }

    /// The node that calls a member of a chain.
    pub(in crate::engine) fn caller_of(&self, job: Ix<Job>) -> Option<&Name> {
        let (run, position) = self.runs.run_of(job)?;
        let calls = |member: &MemberEntry| member.link.is_some_and(|link| link.next == Some(position));
        Some(&run.row.nodes[run.members.iter().position(calls)?])
    }

    /// The names of the nodes that a live job waits for.
    pub(in crate::engine) fn upstream_of(&self, job: Ix<Job>) -> Vec<Name> {
        let Some((run, position)) = self.runs.run_of(job) else { return Vec::new() };
        run.missing(position).map(|above| run.row.nodes[above as usize].clone()).collect()
    }
}

fn run_event(
    now: Now,
    kind: EventKind,
    row: &RunRow,
    origin: Option<&Origin>,
    numbers: &mut Numbers,
    effects: &mut Effects,
) {
    let line = RunLine { id: row.id, name: row.spec.name.clone() }.to_string().into();
    numbers.server_event(now, kind, Some(row.spec.tenant.clone()), origin, line, effects);
}

/// Checks that a member has nothing that only other jobs can have.
fn check_member(tenant: Name, member: &Member) -> Result<(), Rejection> {
    let spec = &member.spec;
    let fault = |message: &str| Err(reject(RejectionCode::Invalid, message));
    if spec.tenant != tenant {
        return fault("tenant: is not the run's; submit it as a run of its own");
    }
    if spec.not_before.is_some() && member.chain.as_ref().is_some_and(crate::Chain::is_called) {
        return fault("not_before: this node of a middleware chain starts when it is called; take it away");
    }
    if spec.session.is_some() {
        return fault("session: nodes of a run have none; order them with depends_on or keys");
    }
    if spec.idempotency.is_some() {
        return fault("idempotency_key: nodes of a run have none; give the run one");
    }
    if spec.schedule.is_some() || spec.retry_of.is_some() || spec.member.is_some() {
        return fault("a job of a schedule, of another run or of a retry cannot be a node");
    }
    Ok(())
}
