//! Open runs and their members, as the engine keeps them.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::collections::fresh::Fresh;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::submit::{RETRY_SOON, mismatch, reject};
use crate::engine::queue::shares::Share;
use crate::{
    Bytes, CallRow, JobId, JobState, Name, PriorRun, Rejection, RejectionCode, RunId, RunRow, RunState,
    RunSubmission, Wall,
};

/// All open runs.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) open: BTreeMap<RunId, OpenRun>,
    /// The run and the position of a live member, by its job. A side map: few jobs are members.
    pub(super) members: BTreeMap<Ix<Job>, (RunId, u32)>,
    /// Ended members whose consequences were not applied yet, in order.
    pub(super) ended: VecDeque<(RunId, u32)>,
    /// Called members whose caller may be gone.
    pub(super) abandoned: VecDeque<(RunId, u32)>,
    /// Nodes of all open runs.
    pub(super) nodes: u32,
    /// The same by tenant.
    pub(super) nodes_of: BTreeMap<Name, u32>,
    /// The parts of them that are reserved for tenants.
    pub(super) share: Share,
    /// Idempotency keys that the store does not know yet.
    pub(super) fresh_keys: Fresh<(Name, Name), PriorRun>,
}

impl Runs {
    /// True when the consequences of every ended member were applied.
    pub(super) fn is_settled(&self) -> bool {
        self.ended.is_empty() && self.abandoned.is_empty()
    }

    /// The run of a live member, and the member's position in it.
    pub(super) fn run_of(&self, job: Ix<Job>) -> Option<(&OpenRun, u32)> {
        let &(id, position) = self.members.get(&job)?;
        Some((&self.open[&id], position))
    }

    /// The same, to be changed.
    pub(super) fn run_of_mut(&mut self, job: Ix<Job>) -> Option<(&mut OpenRun, u32)> {
        let &(id, position) = self.members.get(&job)?;
        Some((self.open.get_mut(&id).expect("a member's run is open"), position))
    }

    /// A live member.
    pub(super) fn member_of(&self, job: Ix<Job>) -> Option<&MemberEntry> {
        self.run_of(job).map(|(run, position)| run.member(position))
    }

    pub(super) fn member(&self, id: RunId, position: u32) -> &MemberEntry {
        self.open[&id].member(position)
    }

    pub(super) fn member_mut(&mut self, id: RunId, position: u32) -> &mut MemberEntry {
        &mut self.open.get_mut(&id).expect("a member's run is open").members[position as usize]
    }

    /// Adds an open run, its members not known yet.
    pub(super) fn insert(&mut self, row: RunRow) -> &mut OpenRun {
        let nodes = u32::try_from(row.nodes.len()).unwrap_or(u32::MAX);
        self.nodes += nodes;
        self.count_nodes(&row.spec.tenant, i64::from(nodes));
        self.open.entry(row.id).or_insert(OpenRun::new(row))
    }

    pub(super) fn remove(&mut self, row: &RunRow) {
        self.open.remove(&row.id);
        let nodes = u32::try_from(row.nodes.len()).unwrap_or(u32::MAX);
        self.nodes -= nodes;
        self.count_nodes(&row.spec.tenant, -i64::from(nodes));
    }

    /// The open runs of a tenant have so many nodes more or less.
    fn count_nodes(&mut self, tenant: &Name, change: i64) {
        let nodes = self.nodes_of.entry(tenant.clone()).or_default();
        let before = *nodes;
        *nodes = u32::try_from(i64::from(before) + change).expect("runs that end were counted");
        self.share.moved(before, *nodes);
        if *nodes == 0 {
            self.nodes_of.remove(tenant);
        }
    }

    pub(super) fn find_existing(&self, submission: &RunSubmission) -> Result<Option<RunId>, Rejection> {
        let Some(idempotency) = &submission.spec.idempotency else { return Ok(None) };
        let fresh = self.fresh_keys.get(&(submission.spec.tenant.clone(), idempotency.key.clone()));
        match fresh.copied().or(submission.prior) {
            None => Ok(None),
            Some(prior) if prior.digest == idempotency.digest => Ok(Some(prior.run)),
            Some(_) => Err(mismatch(&idempotency.key)),
        }
    }

    /// Checks that the open nodes have space for so many more of a tenant.
    pub(super) fn check_space(
        &self,
        tenant: &Name,
        nodes: usize,
        open_nodes_max: u32,
    ) -> Result<(), Rejection> {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        let own = self.nodes_of.get(tenant).copied().unwrap_or(0);
        // What stays free for others is asked for the last of them.
        let before_last = own.saturating_add(nodes.saturating_sub(1));
        let mut share = self.share;
        share.moved(own, before_last);
        let reserved = share.reserved_from(before_last);
        if self.nodes.saturating_add(nodes) <= open_nodes_max.saturating_sub(reserved) {
            return Ok(());
        }
        let rest = if reserved > 0 { ", and some are reserved for other tenants" } else { "" };
        let message = format!(
            "nodes: {} of {open_nodes_max} nodes of open runs are taken (runs.open_nodes_max){rest}; submit again when runs \
             have ended",
            self.nodes
        );
        Err(Rejection { retry_after: Some(RETRY_SOON), ..reject(RejectionCode::QueueFull, message) })
    }
}

/// A run that has not ended.
pub(super) struct OpenRun {
    pub(super) row: RunRow,
    /// In the order of its nodes.
    pub(super) members: Vec<MemberEntry>,
    /// Attempts opened so far, over all members: the sum of theirs.
    pub(super) dispatched: u64,
    /// It is being canceled as a whole, and ends with this command.
    pub(super) canceled: bool,
}

/// A member of an open run.
#[derive(Clone)]
pub(super) struct MemberEntry {
    /// Its job while it is live.
    pub(super) job: Option<Ix<Job>>,
    /// Its job's id.
    pub(super) id: JobId,
    /// The positions of its dependencies.
    pub(super) depends_on: Box<[u32]>,
    /// The positions of the members that depend on it.
    pub(super) dependents: Box<[u32]>,
    pub(super) not_before: Option<Wall>,
    pub(super) ended: Option<JobState>,
    /// When it ended, where that was before a restart.
    pub(super) ended_at: Option<Wall>,
    /// Attempts opened so far.
    pub(super) attempts: u32,
    /// Its position in a chain.
    pub(super) link: Option<Link>,
    /// True for a group.
    pub(super) group: bool,
    /// The position of the group around it.
    pub(super) within: Option<u32>,
    /// Its latest call.
    pub(super) call: Option<Box<Call>>,
    /// Its latest result, for one that is called.
    pub(super) result: Option<Bytes>,
}

/// A member's position in a chain.
#[derive(Clone, Copy)]
pub(super) struct Link {
    /// `None` for the host.
    pub(super) index: Option<u32>,
    /// The position of the element after it.
    pub(super) next: Option<u32>,
    /// The position of the host.
    pub(super) host: u32,
}

/// The latest call of a member.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) row: CallRow,
}

impl MemberEntry {
    /// True for a member that starts only when it is called.
    pub(super) fn is_called(&self) -> bool {
        self.link.is_some_and(|link| link.index != Some(0))
    }

    /// True while a caller waits for its answer.
    pub(super) fn is_awaited(&self) -> bool {
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

    pub(super) fn member(&self, position: u32) -> &MemberEntry {
        &self.members[position as usize]
    }

    /// The state that follows from the members.
    pub(super) fn roll_up(&self) -> RunState {
        let members = self.members.iter().map(|member| (member.ended, member.attempts > 0));
        RunState::roll_up(members, self.canceled)
    }

    /// The positions of the members that a member still waits for.
    pub(super) fn missing(&self, position: u32) -> impl Iterator<Item = u32> {
        let depends_on = self.members[position as usize].depends_on.iter().copied();
        let missing =
            depends_on.filter(|above| self.members[*above as usize].ended != Some(JobState::Succeeded));
        missing.chain(self.uncalled_around(position))
    }

    /// When the last dependency of a member ended, as far as that was before a restart.
    pub(super) fn released_at(&self, position: u32) -> Option<Wall> {
        let depends_on = self.members[position as usize].depends_on.iter();
        depends_on.filter_map(|above| self.members[*above as usize].ended_at).max()
    }
}
