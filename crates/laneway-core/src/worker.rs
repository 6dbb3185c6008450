//! Workers that are told what to run: what they offer, what jobs want of them, and what is said over their connections.
//!
//! Only words live here. Who gets what is decided in `engine/workers/placement.rs`, what a connection says is judged in
//! `engine/workers/messages.rs`. Nothing of a connection is durable: after a restart a worker is known by the attempts it holds.

use std::collections::BTreeSet;
use std::fmt;

use crate::{AttemptEnd, Fence, JobId, Name, Outcome, Span, Wall};

/// Most entries of each list in an offer: kinds, limits, packages, features, runtimes, labels, lanes.
pub const OFFER_LIST_MAX: usize = 256;
/// Most features or labels that a job may want.
pub const PLACEMENT_LIST_MAX: usize = 16;
/// Most resources that a job may refer to.
pub const RESOURCES_MAX: usize = 16;
/// Most tasks that one worker may run at once.
pub const MAX_PARALLEL_MAX: u32 = 10_000;

/// One connection of a worker. Whoever holds the sockets numbers them; a number is never used again by the same process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// A package in one exact version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Package {
    /// Its name.
    pub name: Name,
    /// Its version, compared letter by letter.
    pub version: Name,
}

/// A worker and what it can do. Each list holds at most [`OFFER_LIST_MAX`] entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerOffer {
    /// Whose jobs it runs.
    pub tenant: Name,
    /// Its name, unique within its tenant.
    pub worker: Name,
    /// Its own version, for people.
    pub version: Box<str>,
    /// The machine it runs on, for people.
    pub hostname: Box<str>,
    /// Most tasks at once, from 1 to [`MAX_PARALLEL_MAX`].
    pub max_parallel: u32,
    /// Most tasks of a kind at once, for some kinds.
    pub kind_limits: Vec<(Name, u32)>,
    /// The kinds that it runs without a package.
    pub kinds: Vec<Name>,
    /// The packages that stand installed.
    pub packages: Vec<Package>,
    /// What it can do besides.
    pub features: Vec<Name>,
    /// What it runs things with.
    pub runtimes: Vec<Name>,
    /// Labels that its operator gave it.
    pub labels: Vec<(Name, Name)>,
    /// The lanes whose jobs it runs. Empty, or none of them a lane: every lane's.
    pub lanes: Vec<Name>,
}

/// What an operator said of a worker. It counts as long as the worker is known, over whichever connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// It is to take nothing new.
    pub drained: bool,
    /// The lanes that it serves, whatever it offers; an empty list: every one.
    pub lanes: Option<Vec<Name>>,
}

/// What a job wants of the worker that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Placement {
    /// The package whose handler runs it. Then the package counts, and not the kinds that a worker names.
    pub package: Option<Package>,
    /// Features that the worker must have, at most [`PLACEMENT_LIST_MAX`].
    pub features: Vec<Name>,
    /// Labels that the worker must carry, at most [`PLACEMENT_LIST_MAX`].
    pub labels: Vec<(Name, Name)>,
    /// Keeps jobs of one key together.
    pub affinity: Option<Affinity>,
    /// Things on a worker that it uses, at most [`RESOURCES_MAX`], all on the same worker: only that one may run it.
    pub resources: Vec<ResourceRef>,
}

/// Keeps jobs of one key on one worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affinity {
    /// The key, unique within its tenant.
    pub key: Name,
    /// How strictly.
    pub mode: AffinityMode,
    /// Until when the worker that ran the first of them is theirs. `None`: as long as that worker is there.
    pub expires_at: Option<Wall>,
}

/// How strictly jobs of one key stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AffinityMode {
    /// Only there.
    Sticky = 0,
    /// There, if it has a free slot.
    Preferred = 1,
}

impl AffinityMode {
    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The mode of a stored code.
    pub fn from_code(code: u8) -> Option<AffinityMode> {
        [AffinityMode::Sticky, AffinityMode::Preferred].get(usize::from(code)).copied()
    }

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            AffinityMode::Sticky => "sticky",
            AffinityMode::Preferred => "preferred",
        }
    }

    /// The mode that `word` names.
    pub fn parse(word: &str) -> Option<AffinityMode> {
        [AffinityMode::Sticky, AffinityMode::Preferred].into_iter().find(|mode| mode.as_str() == word)
    }
}

/// A thing on a worker that a job uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRef {
    /// The thing.
    pub id: Name,
    /// The worker that has it.
    pub worker: Name,
    /// What sort of thing it is.
    pub sort: Name,
    /// How long it is kept there, in the worker's words.
    pub scope: Option<Name>,
    /// When it is gone. A job that has not started by then has failed.
    pub expires_at: Option<Wall>,
}

/// A worker registers over a connection, or takes its place again over a new one.
#[derive(Clone, Debug)]
pub struct Register {
    /// The connection.
    pub connection: ConnectionId,
    /// Who it is and what it can do.
    pub offer: WorkerOffer,
    /// How often it gives a sign of life.
    pub heartbeat: Span,
    /// What an operator said of it to an engine that this one replaces. What this engine has heard of it counts more.
    pub orders: Orders,
    /// The process behind the connection, by a name that it chose when it started. `None`: it has none, and every
    /// connection counts as a new process.
    pub boot: Option<Name>,
    /// The tasks that the process still has.
    pub tasks: TasksKept,
}

/// Which tasks a worker's process still has when it registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TasksKept {
    /// These: they run, or their results are not acknowledged yet.
    Listed(BTreeSet<Task>),
    /// All that it was given. Only said again for connections that go on, to an engine that replaces another one.
    All,
}

/// Something that is said over a worker's connection.
#[derive(Clone, Debug)]
pub struct WorkerMessage {
    /// The connection. What a connection says that is not (or no longer) a worker's changes nothing.
    pub connection: ConnectionId,
    /// What is said.
    pub report: WorkerReport,
}

/// What is said over a worker's connection.
#[derive(Clone, Debug)]
pub enum WorkerReport {
    /// A sign of life; the leases of all that it runs start anew. Answered with [`crate::Reply::Alive`].
    Beat(Beat),
    /// It took the task.
    Accepted(Task),
    /// It did not take the task, for this reason: the job waits again, at no cost for now.
    Rejected(Task, Name),
    /// The task has ended.
    Ended {
        /// The task.
        task: Task,
        /// How.
        outcome: Outcome,
        /// How that attempt ended, as far as the store knows; the loop looks it up where the engine may have forgotten it.
        stored: Option<AttemptEnd>,
    },
    /// What it offers has changed: packages came or went. Tenant and name stay what they are.
    Offers(Box<WorkerOffer>),
    /// The connection is gone. The worker may come back as long as its leases last.
    Gone,
}

/// An attempt at a job, as a connection names it: the connection itself is the rest of its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// The job.
    pub job: JobId,
    /// Which dispatch of it.
    pub dispatch_seq: u64,
}

/// The detail of an event about an attempt that a worker was told of: which dispatch, what became of it, and whose it is.
/// The audit list of dispatches is made of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchLine {
    /// Which dispatch of the job, or of its run.
    pub dispatch_seq: u64,
    /// [`DispatchLine::SENT`], [`DispatchLine::TAKEN`], a word of [`AttemptEnd`], or the code of a rejection or a failure.
    pub outcome: Box<str>,
    /// The worker.
    pub worker: Name,
}

impl DispatchLine {
    /// The outcome of a dispatch of which nothing was heard yet.
    pub const SENT: &str = "dispatched";
    /// The outcome of a dispatch that its worker has acknowledged.
    pub const TAKEN: &str = "accepted";
    /// What every such detail begins with.
    pub const ACTION: &str = "cmd.dispatch";

    /// Reads the detail of an event back.
    pub fn parse(detail: &str) -> Option<DispatchLine> {
        let rest = detail.strip_prefix(DispatchLine::ACTION)?.strip_prefix(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        let (outcome, worker) = rest.split_once(" worker ")?;
        let worker = Name::new(worker).ok()?;
        Some(DispatchLine { dispatch_seq: number.parse().ok()?, outcome: outcome.into(), worker })
    }
}

impl fmt::Display for DispatchLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DispatchLine { dispatch_seq, outcome, worker } = self;
        // Codes come from workers and may have any letters; the line is read back by its blanks.
        let outcome = outcome.replace(' ', "_");
        write!(f, "{} {dispatch_seq} {outcome} worker {worker}", DispatchLine::ACTION)
    }
}

/// A sign of life, and how the worker is. Shares are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// False: it wants nothing new.
    pub healthy: bool,
    /// True: it takes nothing new, ends what it runs, and goes.
    pub draining: bool,
    /// Tasks that it runs, by its own count.
    pub inflight: u32,
    /// Memory in use.
    pub memory: Option<u16>,
    /// Disk in use.
    pub disk: Option<u16>,
    /// Processors in use.
    pub cpu: Option<u16>,
    /// How long it last took to be answered.
    pub latency: Option<Span>,
}

impl Default for Beat {
    fn default() -> Beat {
        Beat {
            healthy: true,
            draining: false,
            inflight: 0,
            memory: None,
            disk: None,
            cpu: None,
            latency: None,
        }
    }
}

/// A worker is registered.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// How long what it runs lives without a sign of life.
    pub lease: Span,
    /// The connection whose place this one took.
    pub superseded: Option<ConnectionId>,
    /// Attempts that the worker held already and that are this connection's now. They are offered again.
    pub rebound: Vec<Fence>,
}

/// How a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// All is well.
    Ready,
    /// One heartbeat is missing.
    Late,
    /// Two heartbeats are missing.
    Degraded,
    /// It says itself that it is not well.
    Unhealthy,
    /// It takes nothing new.
    Draining,
    /// Three heartbeats are missing.
    Lost,
    /// It has no connection, and still holds attempts.
    Away,
}

impl Standing {
    /// Every standing, from the best to the worst.
    pub const ALL: [Standing; 7] = [
        Standing::Ready,
        Standing::Late,
        Standing::Degraded,
        Standing::Unhealthy,
        Standing::Draining,
        Standing::Lost,
        Standing::Away,
    ];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Ready => "ready",
            Standing::Late => "late",
            Standing::Degraded => "degraded",
            Standing::Unhealthy => "unhealthy",
            Standing::Draining => "draining",
            Standing::Lost => "lost",
            Standing::Away => "away",
        }
    }
}

/// When workers get nothing new, and how many there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Most workers on the whole server.
    pub workers_max: u32,
    /// Most workers of one tenant.
    pub workers_per_tenant_max: u32,
    /// A worker at `max_parallel` for this long is told of.
    pub saturated_after: Span,
    /// How often a job may be rejected or left unanswered by workers; once more, and it has failed.
    pub rejections_max: u32,
    /// Most affinity keys of one tenant whose worker is remembered; those made first are forgotten first.
    pub affinities_per_tenant_max: u32,
    /// Thresholds where the tenant has none of its own.
    pub pressure: Pressure,
    /// Thresholds of tenants.
    pub pressure_of: std::collections::BTreeMap<Name, Pressure>,
}

/// From when on a worker is so full that it gets nothing new, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Memory at which it gets nothing new.
    pub memory: u16,
    /// Disk at which it gets nothing new.
    pub disk: u16,
    /// How far below both must be before it gets something again.
    pub relief: u16,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure { memory: 900, disk: 950, relief: 50 }
    }
}

impl Default for WorkerSettings {
    fn default() -> WorkerSettings {
        WorkerSettings {
            workers_max: 10_000,
            workers_per_tenant_max: 2_000,
            saturated_after: Span::secs(60),
            rejections_max: 5,
            affinities_per_tenant_max: 10_000,
            pressure: Pressure::default(),
            pressure_of: std::collections::BTreeMap::new(),
        }
    }
}

/// A worker, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    /// Who it is and what it offers.
    pub offer: WorkerOffer,
    /// Its connection, if it has one.
    pub connection: Option<ConnectionId>,
    /// How it stands.
    pub standing: Standing,
    /// Attempts that it holds.
    pub open: u32,
    /// Since when it is connected.
    pub connected_at: Wall,
    /// How long nothing was heard of it.
    pub silent: Span,
    /// How often it gives a sign of life.
    pub heartbeat: Span,
    /// What it last said of itself.
    pub beat: Beat,
    /// The lanes that it serves now; empty: every one.
    pub lanes: Vec<Name>,
    /// What an operator said of it.
    pub orders: Orders,
    /// True: its memory or its disk is too full.
    pub pressed: bool,
}

#[cfg(test)]
mod tests {
    use super::DispatchLine;
    use crate::Name;

    #[test]
    fn lines_about_dispatches_are_read_back() {
        for (outcome, worker) in
            [("accepted", "w1"), ("E.CMD.UNKNOWN", "a worker worker x"), ("no paper", "w")]
        {
            let worker = Name::fixed(worker);
            let line = DispatchLine { dispatch_seq: 7, outcome: outcome.into(), worker };
            let read = DispatchLine::parse(&line.to_string()).expect("it was just written");
            let outcome = outcome.replace(' ', "_").into();
            assert_eq!(read, DispatchLine { outcome, ..line });
        }
        for other in ["", "cmd.dispatch", "cmd.dispatch x ok worker w", "pkg.install a 1 asked of worker w"] {
            assert_eq!(DispatchLine::parse(other), None, "{other:?}");
        }
    }
}
