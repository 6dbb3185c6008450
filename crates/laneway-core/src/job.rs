//! A job: its spec, its stored row, and its end.

pub mod change;
pub mod session;
pub mod state;

pub use change::{JobPatch, StartAt, StoredJob};
pub use session::{DropPolicy, MergedInto, Session, SessionMode, SessionRow};
pub use state::{JobState, Reason};

use std::sync::LazyLock;

use crate::capacity::CapacityRequest;
use crate::settings::{DEFAULT_AGENT, MAIN_LANE};
use crate::{
    AttemptId, Bytes, Failure, JobId, MemberOf, Name, Placement, RetryPolicy, ScheduleRef, Seq, Span,
    TraceContext, Wall,
};

/// Most keys that a job may hold at once.
pub const KEYS_MAX: usize = 8;
/// Most tags of a job.
pub const TAGS_MAX: usize = 16;
/// Longest URL of a callback in bytes.
pub const CALLBACK_URL_LEN_MAX: usize = 2_048;

/// The spec of a job. Its form is valid; whether a queue has space for the job is the engine's decision.
///
/// `None` means: take the default of the kind, then of the server (see [`crate::Settings`]).
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// The tenant that may see the job.
    pub tenant: Name,
    /// The type of work. Selects the handler and the defaults.
    pub kind: Name,
    /// The agent whose fair share and limits it counts against.
    pub agent: Name,
    /// The lane it runs in. An unknown lane means `main`, unless the submission is strict about lanes.
    pub lane: Name,
    /// Jobs of one session run in order.
    pub session: Option<Session>,
    /// Named resources that it holds while it runs, at most [`KEYS_MAX`].
    pub keys: Vec<Key>,
    /// A lower number runs sooner.
    pub priority: i32,
    /// It does not start before this time.
    pub not_before: Option<Wall>,
    /// It neither starts nor runs after this time.
    pub deadline: Option<Wall>,
    /// How long it may wait before its first start, counted from when it may first start.
    pub queue_timeout: Option<Span>,
    /// How long one attempt may run.
    pub timeout: Option<Span>,
    /// What happens when an attempt fails or is lost.
    pub retry: Option<RetryPolicy>,
    /// Makes a repeated submit return the first job.
    pub idempotency: Option<IdempotencyKey>,
    /// The ended job that this one retries by hand.
    pub retry_of: Option<JobId>,
    /// Free labels for people and for lists, at most [`TAGS_MAX`].
    pub tags: Vec<Name>,
    /// The schedule that created it.
    pub schedule: Option<ScheduleRef>,
    /// Receives a webhook when the job has ended.
    pub callback: Option<Callback>,
    /// What it requests of the machine.
    pub capacity: CapacityRequest,
    /// The run that it is a member of, and its node.
    pub member: Option<Box<MemberOf>>,
    /// What it requires of the worker that runs it. Boxed, because few jobs have constraints.
    pub placement: Option<Box<Placement>>,
    /// The trace context of the caller. The engine only stores it.
    pub trace: Option<Box<TraceContext>>,
}

impl JobSpec {
    /// A job of the default agent in the lane `main`, with an empty or default value in every other field.
    #[inline]
    pub fn new(tenant: Name, kind: Name) -> JobSpec {
        // Submits are frequent: they share the two names instead of allocating them.
        static NAMES: LazyLock<(Name, Name)> =
            LazyLock::new(|| (Name::fixed(DEFAULT_AGENT), Name::fixed(MAIN_LANE)));
        let (agent, lane) = NAMES.clone();
        JobSpec {
            tenant,
            kind,
            agent,
            lane,
            session: None,
            keys: Vec::new(),
            priority: 0,
            not_before: None,
            deadline: None,
            queue_timeout: None,
            timeout: None,
            retry: None,
            idempotency: None,
            retry_of: None,
            tags: Vec::new(),
            schedule: None,
            callback: None,
            capacity: CapacityRequest::default(),
            member: None,
            placement: None,
            trace: None,
        }
    }
}

/// The receiver of a job's webhook. Whether the URL may be called is checked before there is a spec, and again before
/// every call. The engine only stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The URL, at most [`CALLBACK_URL_LEN_MAX`] bytes.
    pub url: Box<str>,
    /// The format of the webhook: a name that the runtime knows.
    pub format: Name,
}

impl Callback {
    /// Host and port of the URL, in lower case. Limits for receivers count by it, whatever the path. It only distinguishes
    /// receivers; it does not decide whether the URL may be called.
    pub fn host(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
        let address = authority.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => (host, port),
            _ => (address.as_str(), ""),
        };
        let port = match port {
            "" if scheme.eq_ignore_ascii_case("http") => "80",
            "" => "443",
            port => port,
        };
        format!("{}:{port}", host.trim_end_matches('.'))
    }
}

/// A named resource: `profile` = `p1`. Its limit is set per name (see [`crate::Settings::keys`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The name of the resource, such as `profile`.
    pub name: Name,
    /// Which one, unique within its tenant.
    pub value: Name,
}

/// The client's key for a submit, with the digest of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The client's key, unique within its tenant.
    pub key: Name,
    /// Digest of the request. The same key with another digest is rejected.
    pub digest: [u8; 32],
}

/// A job as stored. Written at submit. While it is live, `status` changes by itself; a call may change `priority`, `not_before`
/// and `rank_time` (see [`crate::Change::JobRevised`]).
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// Its number inside the server.
    pub seq: Seq,
    /// Its public id.
    pub id: JobId,
    /// The spec, with every default filled in (`timeout`, `retry`, … are all `Some` where a default exists).
    pub spec: JobSpec,
    /// Length of the payload in bytes.
    pub payload_len: u32,
    /// When it was submitted.
    pub created_at: Wall,
    /// Engine time for ordering, in milliseconds. It never goes back, and is kept over retries.
    pub rank_time: u64,
    /// The submitter: a token's id, or a part of the server.
    pub submitted_by: Name,
    /// How many jobs waited in its lane right after it was admitted, itself included. 0: not recorded.
    pub position: u32,
    /// The part that changes.
    pub status: JobStatus,
}

/// The part of a live job that changes while no attempt is open. An open attempt overrides `state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// [`JobState::Scheduled`] or [`JobState::Queued`].
    pub state: JobState,
    /// For a scheduled job: when it becomes queued.
    pub wake_at: Option<Wall>,
    /// Number of the last attempt opened so far; attempts count 1, 2, 3, ….
    pub attempts: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Attempts that were lost.
    pub losses: u32,
    /// Reservations that no worker claimed, and dispatches that a worker rejected.
    pub rejections: u32,
    /// True once its deadline is near: it is boosted.
    pub near_deadline: bool,
    /// Denials for lack of machine capacity while it waited, as recorded in its events.
    pub denials: u32,
    /// After a denial: the next one is recorded no sooner. The job may start sooner.
    pub denied_until: Option<Wall>,
    /// Number of the job's latest event; each event names the one before it.
    pub last_event: u64,
}

impl JobStatus {
    /// The status of a new job.
    pub fn new(state: JobState, wake_at: Option<Wall>) -> JobStatus {
        JobStatus {
            state,
            wake_at,
            attempts: 0,
            failures: 0,
            losses: 0,
            rejections: 0,
            near_deadline: false,
            denials: 0,
            denied_until: None,
            last_event: 0,
        }
    }
}

/// The end of a job. Written once.
#[derive(Clone, Debug, PartialEq)]
pub struct JobEnd {
    /// The job.
    pub seq: Seq,
    /// Its terminal state.
    pub state: JobState,
    /// Why it ended in that state.
    pub reason: Reason,
    /// The last failure, if there was one.
    pub error: Option<Failure>,
    /// The result of the handler.
    pub result: Option<Bytes>,
    /// The attempt that ended it, if one was open.
    pub attempt_id: Option<AttemptId>,
    /// When its last attempt started to run.
    pub started_at: Option<Wall>,
    /// When it ended.
    pub finished_at: Wall,
    /// Attempts opened.
    pub attempts: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Attempts that were lost.
    pub losses: u32,
    /// Number of its last event.
    pub last_event: u64,
    /// For a job that ended as [`Reason::Merged`]: the job that runs for it.
    pub merged_into: Option<MergedInto>,
}
