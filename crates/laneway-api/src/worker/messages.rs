//! The requests of a session to the scheduler, and the answers.
//!
//! The session makes no decisions about jobs. It sends requests, and each request that requires a reply to the worker
//! has a [`Ticket`] that identifies its frame.

use laneway_core::{Name, Outcome, Span, Task};
use laneway_wire::frame::{Feedback, Heartbeat, NextRequest, PackageEvent, Register, Text};

/// Identifies the frame of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// An authenticated worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The tenant whose jobs it may run.
    pub tenant: Name,
    /// Its name, unique within the tenant.
    pub worker: Name,
    /// The version of its program.
    pub version: Box<str>,
    /// The machine it runs on.
    pub hostname: Box<str>,
}

/// A request of a session to the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// The worker registers.
    Register(Box<Register>),
    /// The worker is alive.
    Heartbeat(Box<Heartbeat>),
    /// The worker accepted a dispatch.
    Accepted(Task),
    /// The worker rejected a dispatch. The task may run on another worker, or here later.
    Rejected(Task, Rejection),
    /// An attempt has ended. It may not be bound to this connection; the answer says what the scheduler knows of it.
    Ended(Box<Ended>),
    /// The progress of a bound attempt.
    Feedback(Task, Box<Feedback>),
    /// The outcome of an operation on a package.
    Package(Box<PackageEvent>),
    /// A bound middleware calls the next element of its chain.
    Next(Task, Box<NextRequest>),
}

/// Why a worker rejected a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The code of the worker.
    pub code: Text,
    /// The message of the worker, for people.
    pub message: Box<str>,
}

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The attempt.
    pub task: Task,
    /// The outcome.
    pub outcome: Outcome,
    /// The artifacts, each as JSON.
    pub artifacts: Vec<Box<str>>,
    /// The metadata, as a line of the job's log.
    pub reported: Option<Box<str>>,
}

/// The answer of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done, and durable.
    Done,
    /// The worker is registered; its lease was renewed.
    Alive {
        /// Counted from when the worker sent the frame.
        lease: Span,
    },
    /// The outcome was already accepted.
    Duplicate,
    /// The attempt does not belong to this worker.
    Stale,
    /// Earlier outcomes of the run are missing.
    Gap,
    /// Another connection has replaced this one.
    Superseded,
    /// Rejected, with the reason.
    Rejected(Box<str>),
}
