//! What a session asks of the house, and what it is told: the words between the frames and the scheduler.
//!
//! The session decides nothing about jobs. It asks, and each question that owes the worker an answer has a [`Ticket`] by
//! which the answer finds its frame.

use laneway_core::{Name, Outcome, Span, Task};
use laneway_wire::frame::{Feedback, Heartbeat, NextRequest, PackageEvent, Register, Text};

/// By which an answer finds its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Who a worker has shown to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Whose jobs it may run.
    pub tenant: Name,
    /// Its name, unique within the tenant.
    pub worker: Name,
    /// The version of its program.
    pub version: Box<str>,
    /// The machine it runs on.
    pub hostname: Box<str>,
}

/// What a session asks of the house.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// The worker says what it can do.
    Register(Box<Register>),
    /// The worker gives a sign of life.
    Heartbeat(Box<Heartbeat>),
    /// The worker has taken a dispatch.
    Accepted(Task),
    /// The worker has not taken a dispatch: it may run elsewhere, or here later.
    Rejected(Task, Rejection),
    /// A run has ended. It may be one that is not bound to this connection: then the answer says what is known of it.
    Ended(Box<Ended>),
    /// A run that is bound here says how it goes.
    Feedback(Task, Box<Feedback>),
    /// Something became of a package.
    Package(Box<PackageEvent>),
    /// A middleware that is bound here calls the next element of its chain.
    Next(Task, Box<NextRequest>),
}

/// Why a worker does not run what it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The code it gave.
    pub code: Text,
    /// Its words for people.
    pub message: Box<str>,
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The attempt.
    pub task: Task,
    /// How it ended.
    pub outcome: Outcome,
    /// What it made, each as JSON.
    pub artifacts: Vec<Box<str>>,
    /// What else it reported, as a line of the job's log.
    pub reported: Option<Box<str>>,
}

/// What the house answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done, and durable.
    Done,
    /// The worker is registered, or still is; it must be heard of again within the lease.
    Alive {
        /// From when the worker said the word that this answers.
        lease: Span,
    },
    /// The outcome was taken before.
    Duplicate,
    /// The attempt is not this worker's any more, or never was.
    Stale,
    /// Outcomes of the run are missing that come before this one.
    Gap,
    /// The connection is not the worker's any more: another one has taken its place.
    Superseded,
    /// Not done; says why.
    Rejected(Box<str>),
}
