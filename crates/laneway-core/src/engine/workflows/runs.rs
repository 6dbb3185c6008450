//! Runs: what waits for what, and what the end of one member means for the others.
//!
//! A run in memory is its members' states; everything else follows from them. A member is released when all it waits
//! for have ended well, which is looked up, not counted, so that nothing can be counted twice. What an end means for the
//! rest of its run is settled before the turn is over: the join is released in the commit that ends its last dependency.

use crate::engine::jobs::ending::JobEnding;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::Engine;
use crate::engine::collections::fresh::Fresh;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::{Begins, Extra, RETRY_SOON, mismatch, reject};
use crate::engine::jobs::{Job, Wake};
use crate::engine::queue::shares::Share;
use crate::engine::workflows::graph::{Graph, dependents};
use crate::job::TAGS_MAX;
use crate::run::RunLine;
use crate::{
    AttemptEnd, Bytes, CallRow, Change, Effects, EventKind, FailurePolicy, JobId, JobRow, JobState, Member,
    Name, Now, Origin, PriorRun, Reason, Rejection, RejectionCode, Reply, RunId, RunRow, RunState,
    RunSubmission, RunSubmitted, Seq, Submission, Wall,
};

/// All open runs.
#[derive(Default)]
pub(in crate::engine) struct Runs {
    pub(in crate::engine) open: BTreeMap<RunId, OpenRun>,
    /// Which member of which run a live job is, by its slot. A side map: few jobs are members.
    pub(in crate::engine) members: BTreeMap<Ix<Job>, (RunId, u32)>,
    /// Ends that have not been settled, in order.
    pub(in crate::engine) ended: VecDeque<(RunId, u32)>,
    /// Called members whose caller may be gone.
    pub(in crate::engine) abandoned: VecDeque<(RunId, u32)>,
    /// Nodes of all open runs.
    pub(in crate::engine) nodes: u32,
    /// The same by tenant.
    pub(in crate::engine) nodes_of: BTreeMap<Name, u32>,
    /// What tenants have reserved of them.
    pub(in crate::engine) share: Share,
    /// Idempotency keys that the store does not know yet.
    pub(in crate::engine) fresh_keys: Fresh<(Name, Name), PriorRun>,
}

impl Runs {
    /// True when nothing that ended waits to be settled.
    pub(in crate::engine) fn is_settled(&self) -> bool {
        self.ended.is_empty() && self.abandoned.is_empty()
    }
}

/// A run that has not ended.
pub(in crate::engine) struct OpenRun {
    pub(in crate::engine) row: RunRow,
    /// In the order of its nodes.
    pub(in crate::engine) members: Vec<MemberEntry>,
    /// Attempts opened so far, over all members: the sum of theirs.
    pub(in crate::engine) dispatched: u64,
    /// It is being canceled as one, and ends in this turn.
    pub(in crate::engine) canceled: bool,
}

/// A member of an open run.
#[derive(Clone)]
pub(in crate::engine) struct MemberEntry {
    /// Its job while it is live.
    pub(in crate::engine) job: Option<Ix<Job>>,
    /// Its job's name for the outside.
    pub(in crate::engine) id: JobId,
    /// The positions of those it waits for.
    pub(in crate::engine) depends_on: Box<[u32]>,
    /// The positions of those that wait for it.
    pub(in crate::engine) dependents: Box<[u32]>,
    pub(in crate::engine) not_before: Option<Wall>,
    pub(in crate::engine) ended: Option<JobState>,
    /// When it ended, where that was before a restart.
    pub(in crate::engine) ended_at: Option<Wall>,
    /// Attempts opened so far.
    pub(in crate::engine) attempts: u32,
    /// Its place in a chain.
    pub(in crate::engine) link: Option<Link>,
    /// True for a group.
    pub(in crate::engine) group: bool,
    /// The position of the group that it is in.
    pub(in crate::engine) within: Option<u32>,
    /// Its latest call.
    pub(in crate::engine) call: Option<Box<Call>>,
    /// Its latest result, for one that is called.
    pub(in crate::engine) result: Option<Bytes>,
}

/// A member's place in a chain.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Link {
    /// `None` for the host.
    pub(in crate::engine) index: Option<u32>,
    /// The position of the element after it.
    pub(in crate::engine) next: Option<u32>,
    /// The position of the host.
    pub(in crate::engine) host: u32,
}

/// The latest call of a member.
#[derive(Clone)]
pub(in crate::engine) struct Call {
    pub(in crate::engine) row: CallRow,
}

impl MemberEntry {
    /// True for a member that starts only when it is called.
    pub(in crate::engine) fn is_called(&self) -> bool {
        self.link.is_some_and(|link| link.index != Some(0))
    }

    /// True while somebody waits for it to answer.
    pub(in crate::engine) fn is_awaited(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.row.answer.is_none())
    }

    fn unknown() -> MemberEntry {
        MemberEntry {
            job: None,
            id: JobId(0),
            depends_on: Box::default(),
            dependents: Box::default(),
            not_before: None,
            ended: None,
            ended_at: None,
            attempts: 0,
            link: None,
            group: false,
            within: None,
            call: None,
            result: None,
        }
    }
}

impl OpenRun {
    fn new(row: RunRow) -> OpenRun {
        let members = vec![MemberEntry::unknown(); row.nodes.len()];
        OpenRun { row, members, dispatched: 0, canceled: false }
    }

    /// The state that follows from the members.
    pub(in crate::engine) fn roll_up(&self) -> RunState {
        let members = self.members.iter().map(|member| (member.ended, member.attempts > 0));
        RunState::roll_up(members, self.canceled)
    }

    /// The positions of what a member still waits for.
    pub(in crate::engine) fn missing(&self, position: u32) -> impl Iterator<Item = u32> {
        let depends_on = self.members[position as usize].depends_on.iter().copied();
        let missing =
            depends_on.filter(|above| self.members[*above as usize].ended != Some(JobState::Succeeded));
        missing.chain(self.uncalled_around(position))
    }

    /// When the last of what a member waited for ended, as far as that was before a restart.
    pub(in crate::engine) fn released_at(&self, position: u32) -> Option<Wall> {
        let depends_on = self.members[position as usize].depends_on.iter();
        depends_on.filter_map(|above| self.members[*above as usize].ended_at).max()
    }
}

impl Engine {
    /// Admits a run: all its jobs or none.
    pub(in crate::engine) fn submit_run(
        &mut self,
        now: Now,
        submission: RunSubmission,
        effects: &mut Effects,
    ) -> Result<RunSubmitted, Rejection> {
        if let Some(run) = self.find_existing_run(&submission)? {
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
        self.run_event(now, EventKind::RunSubmitted, &row, Some(&origin), effects);
        effects.changes.push(Change::RunCreated(Box::new(row.clone())));
        self.open_run(row);
        let entry = self.workflows.runs.open.get_mut(&run).expect("it was just opened");
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
        let entry = &open.members[position as usize];
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

    fn find_existing_run(&self, submission: &RunSubmission) -> Result<Option<RunId>, Rejection> {
        let Some(idempotency) = &submission.spec.idempotency else { return Ok(None) };
        let fresh =
            self.workflows.runs.fresh_keys.get(&(submission.spec.tenant.clone(), idempotency.key.clone()));
        match fresh.copied().or(submission.prior) {
            None => Ok(None),
            Some(prior) if prior.digest == idempotency.digest => Ok(Some(prior.run)),
            Some(_) => Err(mismatch(&idempotency.key)),
        }
    }

    /// Is the run right in form, and is there room for all of it?
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
        let nodes = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let own = self.workflows.runs.nodes_of.get(&spec.tenant).copied().unwrap_or(0);
        let reserved = self.workflows.runs.share.reserved_from(own, nodes.saturating_sub(1));
        let most = limits.open_nodes_max.saturating_sub(reserved);
        if self.workflows.runs.nodes.saturating_add(nodes) > most {
            let rest = if reserved > 0 { ", and some are reserved for other tenants" } else { "" };
            let message = format!(
                "nodes: {} of {} nodes of open runs are taken (runs.open_nodes_max){rest}; submit again when runs have ended",
                self.workflows.runs.nodes, limits.open_nodes_max
            );
            return Err(Rejection {
                retry_after: Some(RETRY_SOON),
                ..reject(RejectionCode::QueueFull, message)
            });
        }
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

    /// Ends a run: all its jobs that have not ended. Runs of jobs that are under way are told to stop.
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

    /// An open run in memory, its members not known yet.
    pub(in crate::engine) fn open_run(&mut self, row: RunRow) {
        let nodes = u32::try_from(row.nodes.len()).unwrap_or(u32::MAX);
        self.workflows.runs.nodes += nodes;
        self.count_run_nodes(&row.spec.tenant, i64::from(nodes));
        self.workflows.runs.open.insert(row.id, OpenRun::new(row));
    }

    /// A live job is a member of an open run. An ended one whose run has not ended is one no more.
    pub(in crate::engine) fn join_run(&mut self, job: Ix<Job>, row: &JobRow) {
        let Some(of) = &row.spec.member else { return };
        let Some(run) = self.workflows.runs.open.get_mut(&of.run) else { return };
        let position = row.seq.0.wrapping_sub(run.row.first.0);
        let Some(entry) = run.members.get_mut(position as usize).filter(|entry| entry.ended.is_none()) else {
            return;
        };
        (entry.job, entry.id, entry.not_before) = (Some(job), row.id, row.spec.not_before);
        entry.attempts = row.status.attempts;
        run.dispatched += u64::from(row.status.attempts);
        self.workflows.runs.members.insert(job, (of.run, position as u32));
    }

    /// An attempt of a member opens: gives its number within the run.
    pub(in crate::engine) fn member_starts(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) -> u64 {
        let attempts = self.jobs[job].attempts();
        let Some(&(id, position)) = self.workflows.runs.members.get(&job) else { return attempts.into() };
        let run = self.workflows.runs.open.get_mut(&id).expect("a member's run is open");
        run.dispatched += 1;
        run.members[position as usize].attempts = attempts;
        let number = run.dispatched;
        if run.row.state == RunState::Queued {
            self.move_run(now, id, effects);
        }
        number
    }

    /// A member has ended. What that means is settled at the end of the turn: it ends other jobs.
    pub(in crate::engine) fn member_ended(&mut self, job: Ix<Job>, state: JobState) {
        let Some((id, position)) = self.workflows.runs.members.remove(&job) else { return };
        let run = self.workflows.runs.open.get_mut(&id).expect("a member's run is open");
        let entry = &mut run.members[position as usize];
        entry.job = None;
        entry.ended = Some(state);
        let called = entry.link.and_then(|link| link.next);
        self.workflows.runs.abandoned.extend(called.map(|called| (id, called)));
        self.workflows.runs.ended.push_back((id, position));
    }

    /// What the ends of this turn mean for the other members of their runs, and theirs in turn.
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
            let member = &run.members[position as usize];
            let below = member.dependents.clone();
            let ended = member.ended.expect("it has ended");
            let failure = run.row.spec.failure;
            if member.is_awaited() {
                self.answer_ended(id, position, ended, effects);
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
                        if let Some(job) = self.workflows.runs.open[&id].members[position as usize].job {
                            self.cancel_job(now, job, Reason::UpstreamFailed, None, effects);
                        }
                    }
                    self.break_group(now, id, position, ended, effects);
                }
            }
        }
        for id in touched {
            self.move_run(now, id, effects);
        }
    }

    /// Those of the members that wait for nothing any more may start.
    pub(in crate::engine) fn release_members(
        &mut self,
        now: Now,
        id: RunId,
        members: &[u32],
        effects: &mut Effects,
    ) {
        for &position in members {
            let run = &self.workflows.runs.open[&id];
            let Some(job) = run.members[position as usize].job else { continue };
            if self.jobs[job].wake() != Some(Wake::Upstream) {
                continue;
            }
            let missing = run.missing(position).count();
            let member = &run.members[position as usize];
            match (missing, member.group) {
                (0, true) => {
                    self.end_job(now, job, JobEnding::new(JobState::Succeeded, Reason::Done), effects);
                }
                (0, false) => self.release_member(now, job, member.not_before, effects),
                _ => {}
            }
        }
    }

    /// A member waits for no other any more: from now on it waits for its time and its hours, or may start.
    pub(in crate::engine) fn release_member(
        &mut self,
        now: Now,
        job: Ix<Job>,
        not_before: Option<Wall>,
        effects: &mut Effects,
    ) {
        let at = not_before.map_or(now.wall, |at| at.max(now.wall));
        let at = match self.jobs.hours_of(job) {
            Some(hours) if !hours.holds(at) => hours.next_begin(at),
            _ => at,
        };
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

    /// Brings a run's state up to date with its members; says so if it changed, and lets go of a run that has ended.
    fn move_run(&mut self, now: Now, id: RunId, effects: &mut Effects) {
        let Some(run) = self.workflows.runs.open.get_mut(&id) else { return };
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
            "a run goes on only"
        );
        self.run_event(now, kind, &row, None, effects);
        let (first, finished_at) = (row.first, row.finished_at);
        effects.changes.push(Change::RunMoved { first, state, finished_at });
        if state.is_terminal() {
            self.workflows.runs.open.remove(&id);
            let nodes = u32::try_from(row.nodes.len()).unwrap_or(u32::MAX);
            self.workflows.runs.nodes -= nodes;
            self.count_run_nodes(&row.spec.tenant, -i64::from(nodes));
            let lane = self.queue.lane_or_main(&row.spec.lane);
            self.queue.count_ended(lane, nodes);
        }
    }

    fn run_event(
        &mut self,
        now: Now,
        kind: EventKind,
        row: &RunRow,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        let line = RunLine { id: row.id, name: row.spec.name.clone() };
        let tenant = Some(row.spec.tenant.clone());
        self.numbers.server_event(now, kind, tenant, origin, line.to_string().into(), effects);
    }

    /// A member, to be changed.
    pub(in crate::engine) fn member_mut(&mut self, id: RunId, position: u32) -> &mut MemberEntry {
        &mut self.workflows.runs.open.get_mut(&id).expect("a member's run is open").members[position as usize]
    }

    /// The node that calls a member of a chain.
    pub(in crate::engine) fn caller_of(&self, job: Ix<Job>) -> Option<Name> {
        let (id, position) = self.workflows.runs.members.get(&job)?;
        let run = &self.workflows.runs.open[id];
        let calls = |member: &MemberEntry| member.link.is_some_and(|link| link.next == Some(*position));
        let caller = run.members.iter().position(calls)?;
        Some(run.row.nodes[caller].clone())
    }

    /// True for a called member whose run was told to stop because its caller is gone.
    pub(in crate::engine) fn was_given_up(&self, job: Ix<Job>) -> bool {
        let Some((id, position)) = self.workflows.runs.members.get(&job) else { return false };
        let open = self.jobs.attempt_of(job);
        let given_up = open.is_some_and(|open| matches!(open.stopping(), Some((AttemptEnd::HandedBack, _))));
        given_up && self.workflows.runs.open[id].members[*position as usize].is_called()
    }

    /// The names of the nodes that a live job waits for.
    pub(in crate::engine) fn upstream_of(&self, job: Ix<Job>) -> Vec<Name> {
        let Some((id, position)) = self.workflows.runs.members.get(&job) else { return Vec::new() };
        let run = &self.workflows.runs.open[id];
        run.missing(*position).map(|above| run.row.nodes[above as usize].clone()).collect()
    }
}

/// What a member cannot have.
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
