//! A run: jobs that depend on one another, asked for in one call, rolled up and ended as one.
//!
//! A run has nodes; each node is one job, its member. Which node waits for which is kept with the members themselves, so
//! that what a run does next follows from the states of its members and from nothing else. The engine knows no payloads:
//! how results become parameters (`bindings`) is kept here and carried out by the runtime.

use std::fmt;

use crate::call::Chain;
use crate::job::IdempotencyKey;
use crate::settings::MAIN_LANE;
use crate::{JobEnd, JobId, JobSpec, JobState, Name, Origin, RunId, Seq, Submission, Wall};

/// Most bindings of one node: each is a pointer into a result and one into a payload.
pub const BINDINGS_MAX: usize = 64;
/// Longest pointer of a binding in bytes.
pub const POINTER_LEN_MAX: usize = 512;

/// What a submitter asks for beside the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// Who may see the run. All its jobs are this tenant's.
    pub tenant: Name,
    /// What people call it.
    pub name: Option<Name>,
    /// The lane whose retention it is kept by. Its jobs may run in others.
    pub lane: Name,
    /// What a failed node means for the others.
    pub failure: FailurePolicy,
    /// The client that asked, by a name of its own choice; lists and streams can be cut to it.
    pub client: Option<Name>,
    /// Makes a repeated submit return the first run.
    pub idempotency: Option<IdempotencyKey>,
    /// Free labels for people and lists, at most [`crate::job::TAGS_MAX`].
    pub tags: Vec<Name>,
}

impl RunSpec {
    /// A run without a name, kept by the retention of the lane `main`.
    pub fn new(tenant: Name) -> RunSpec {
        RunSpec {
            tenant,
            name: None,
            lane: Name::fixed(MAIN_LANE),
            failure: FailurePolicy::default(),
            client: None,
            idempotency: None,
            tags: Vec::new(),
        }
    }
}

/// What a failed node means for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum FailurePolicy {
    /// The run has failed: whatever has not ended is canceled.
    #[default]
    Stop = 0,
    /// Nodes that wait for the failed one are canceled; the others go on.
    Continue = 1,
}

impl FailurePolicy {
    /// Every policy, in the order of their codes.
    pub const ALL: [FailurePolicy; 2] = [FailurePolicy::Stop, FailurePolicy::Continue];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            FailurePolicy::Stop => "stop",
            FailurePolicy::Continue => "continue",
        }
    }

    /// The policy that `word` names.
    pub fn parse(word: &str) -> Option<FailurePolicy> {
        FailurePolicy::ALL.into_iter().find(|policy| policy.as_str() == word)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The policy of a stored code.
    pub fn from_code(code: u8) -> Option<FailurePolicy> {
        FailurePolicy::ALL.get(usize::from(code)).copied()
    }
}

/// Where a run stands: rolled up from the states of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RunState {
    /// No member has been started or has ended.
    Queued = 0,
    /// Some member has been started or has ended, and not all have ended.
    Running = 1,
    /// All members have ended, none failed, and the run was not canceled.
    Succeeded = 2,
    /// A member failed, and all have ended.
    Failed = 3,
    /// All members have ended, none failed, and all were canceled or the run was canceled as one.
    Canceled = 4,
}

impl RunState {
    /// Every state, in the order of their codes.
    pub const ALL: [RunState; 5] =
        [RunState::Queued, RunState::Running, RunState::Succeeded, RunState::Failed, RunState::Canceled];

    /// Rolls up the members: for each, how it ended (if it has) and whether it was ever started. `canceled`: somebody
    /// canceled the run as one.
    pub fn roll_up(members: impl Iterator<Item = (Option<JobState>, bool)>, canceled: bool) -> RunState {
        let (mut open, mut touched, mut failed, mut kept) = (false, false, false, false);
        for (ended, started) in members {
            open |= ended.is_none();
            touched |= started || ended.is_some();
            failed |= matches!(ended, Some(JobState::Failed | JobState::Rejected));
            kept |= ended == Some(JobState::Succeeded);
        }
        match (open, touched) {
            (true, false) => RunState::Queued,
            (true, true) => RunState::Running,
            (false, _) if failed => RunState::Failed,
            (false, _) if kept && !canceled => RunState::Succeeded,
            (false, _) => RunState::Canceled,
        }
    }

    /// True for the states that nothing leaves.
    pub fn is_terminal(self) -> bool {
        matches!(self, RunState::Succeeded | RunState::Failed | RunState::Canceled)
    }

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Succeeded => "succeeded",
            RunState::Failed => "failed",
            RunState::Canceled => "canceled",
        }
    }

    /// The state that `word` names.
    pub fn parse(word: &str) -> Option<RunState> {
        RunState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The state of a stored code.
    pub fn from_code(code: u8) -> Option<RunState> {
        RunState::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A run to admit: all of it or nothing.
#[derive(Clone, Debug)]
pub struct RunSubmission {
    /// What is asked for.
    pub spec: RunSpec,
    /// The nodes, in order.
    pub members: Vec<Member>,
    /// What the client itself calls the whole of it, in its own form: kept with the run and given back, never read.
    pub definition: Option<crate::Bytes>,
    /// Who asks.
    pub origin: Origin,
    /// What the store knows of the spec's idempotency key; the loop looks it up before the engine is asked.
    pub prior: Option<PriorRun>,
    /// True: a node whose lane does not exist is rejected. False: it runs in `main`.
    pub strict_lanes: bool,
}

/// A node of a run to admit, and its job.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name, unique within the run.
    pub node: Name,
    /// The job. Its `member` is filled in by the engine; sessions, schedules and keys of its own for a repeated submit
    /// are not for members.
    pub spec: JobSpec,
    /// What the handler gets, before bindings.
    pub payload: crate::Bytes,
    /// Nodes that must have ended well before it may start.
    pub depends_on: Vec<Name>,
    /// Where parts of its payload come from.
    pub bindings: Vec<Binding>,
    /// Its place in a middleware chain.
    pub chain: Option<Chain>,
    /// True for a group: it runs nothing, and succeeds when all nodes in it have. No handler gets its payload.
    pub group: bool,
    /// The group that it is in. It starts when the group may, and ends no later.
    pub within: Option<Name>,
}

impl Member {
    /// A node that depends on no other.
    pub fn new(node: Name, spec: JobSpec, payload: crate::Bytes) -> Member {
        Member {
            node,
            spec,
            payload,
            depends_on: Vec::new(),
            bindings: Vec::new(),
            chain: None,
            group: false,
            within: None,
        }
    }

    /// The job to admit for it.
    pub(crate) fn submission(&self, run: RunId, depends_on: Vec<Name>, origin: &Origin) -> Submission {
        let member = MemberOf {
            run,
            node: self.node.clone(),
            depends_on,
            bindings: self.bindings.clone(),
            chain: self.chain.clone(),
            group: self.group,
            within: self.within.clone(),
        };
        Submission::new(
            JobSpec { member: Some(Box::new(member)), ..self.spec.clone() },
            crate::Bytes::clone(&self.payload),
            origin.clone(),
        )
    }
}

/// Data that goes from one node to another. Pointers are JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The node that it comes from; the node that it goes to depends on it, itself or through others.
    pub from: Name,
    /// `/results/…` or `/parameters/…` of that node.
    pub source: Box<str>,
    /// `/parameters/…` of this node: where in its payload it goes.
    pub target: Box<str>,
}

/// What a job knows of the run that it is a member of. Written once, with the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberOf {
    /// The run.
    pub run: RunId,
    /// The node that the job is.
    pub node: Name,
    /// Nodes that must have ended well before it may start. The outermost middleware of a chain waits for what any node of
    /// the chain was to wait for; the others wait for it, and to be called.
    pub depends_on: Vec<Name>,
    /// Where parts of its payload come from.
    pub bindings: Vec<Binding>,
    /// Its place in a middleware chain.
    pub chain: Option<Chain>,
    /// True for a group. Then it depends on all nodes in it, unless it starts when it is called.
    pub group: bool,
    /// The group that it is in.
    pub within: Option<Name>,
}

/// The run that an idempotency key stands for already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorRun {
    /// The run.
    pub run: RunId,
    /// Digest of the request that made it.
    pub digest: [u8; 32],
}

/// A run as stored. Only `state` and `finished_at` change.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// The number of its first job: its members are numbered from here on, in the order of `nodes`, without gaps. The
    /// integer key of its row.
    pub first: Seq,
    /// Its name for the outside.
    pub id: RunId,
    /// What was asked for.
    pub spec: RunSpec,
    /// The nodes, in order.
    pub nodes: Vec<Name>,
    /// When it was submitted.
    pub created_at: Wall,
    /// Who submitted it: a token's id, or a part of the house.
    pub submitted_by: Name,
    /// Where it stands.
    pub state: RunState,
    /// When its last member ended.
    pub finished_at: Option<Wall>,
}

impl RunRow {
    /// The numbers of its jobs.
    pub fn seqs(&self) -> std::ops::Range<u64> {
        self.first.0..self.first.0 + self.nodes.len() as u64
    }

    /// The number of a node's job.
    pub fn seq_of(&self, node: &Name) -> Option<Seq> {
        let position = self.nodes.iter().position(|name| name == node)?;
        Some(Seq(self.first.0 + position as u64))
    }
}

/// A member of an open run that has ended, as a restart needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedMember {
    /// Its job.
    pub seq: Seq,
    /// Its job's name for the outside.
    pub job: JobId,
    /// How it ended.
    pub state: JobState,
    /// Attempts opened.
    pub attempts: u32,
    /// When it ended.
    pub finished_at: Wall,
}

impl EndedMember {
    /// What is kept of `end`.
    pub fn of(job: JobId, end: &JobEnd) -> EndedMember {
        EndedMember {
            seq: end.seq,
            job,
            state: end.state,
            attempts: end.attempts,
            finished_at: end.finished_at,
        }
    }
}

/// An admitted run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSubmitted {
    /// Its id.
    pub run: RunId,
    /// True when an equal submit made it earlier.
    pub existing: bool,
    /// Its jobs, in the order of its nodes; empty for an `existing` one.
    pub jobs: Vec<JobId>,
    /// Where it stands.
    pub state: RunState,
}

/// The detail of an event about a run: which one, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLine {
    /// The run.
    pub id: RunId,
    /// What people call it.
    pub name: Option<Name>,
}

impl RunLine {
    /// Reads the detail of an event back.
    pub fn parse(detail: &str) -> Option<RunLine> {
        let (id, name) = match detail.split_once(' ') {
            Some((id, name)) => (id, Some(Name::new(name).ok()?)),
            None => (detail, None),
        };
        Some(RunLine { id: RunId::parse(id)?, name })
    }
}

impl fmt::Display for RunLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {name}", self.id),
            None => write!(f, "{}", self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RunLine, RunState};
    use crate::{JobState, Name, RunId};

    #[test]
    fn a_roll_up_follows_from_the_members() {
        let (none, ok, failed, canceled) =
            (None, Some(JobState::Succeeded), Some(JobState::Failed), Some(JobState::Canceled));
        for (members, expected) in [
            (vec![(none, false), (none, false)], RunState::Queued),
            (vec![(none, true), (none, false)], RunState::Running),
            (vec![(ok, true), (none, false)], RunState::Running),
            (vec![(canceled, false), (none, false)], RunState::Running),
            (vec![(failed, true), (none, true)], RunState::Running),
            (vec![(failed, true), (canceled, false)], RunState::Failed),
            (vec![(ok, true), (ok, true)], RunState::Succeeded),
            (vec![(ok, true), (canceled, false)], RunState::Succeeded),
            (vec![(canceled, true), (canceled, false)], RunState::Canceled),
        ] {
            assert_eq!(RunState::roll_up(members.clone().into_iter(), false), expected, "{members:?}");
        }
        let canceled = |members: [_; 2]| RunState::roll_up(members.into_iter(), true);
        assert_eq!(canceled([(ok, true), (Some(JobState::Canceled), true)]), RunState::Canceled);
        assert_eq!(canceled([(failed, true), (Some(JobState::Canceled), true)]), RunState::Failed);
    }

    #[test]
    fn the_detail_of_an_event_can_be_read_back() {
        for name in [None, Some(Name::fixed("a nightly report"))] {
            let line = RunLine { id: RunId(7), name };
            assert_eq!(RunLine::parse(&line.to_string()), Some(line));
        }
    }
}
