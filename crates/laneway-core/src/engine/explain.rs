//! Why is my job not running? Every closed gate, with figures.

use crate::{JobState, Name, Span, Wall};

/// Why a job does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its state.
    pub state: JobState,
    /// Everything that holds it back, in the order in which it is looked at. Empty for a job that runs, or whose turn
    /// comes next.
    pub holds: Vec<Hold>,
    /// How many jobs of the same agent, lane and needs go before it.
    pub ahead: u64,
}

/// One thing that holds a job back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The server is stopping.
    Draining,
    /// Its time has not come.
    NotBefore {
        /// When it comes.
        at: Wall,
    },
    /// It failed and waits before it is tried again.
    Backoff {
        /// How long still.
        remaining: Span,
    },
    /// An earlier job of its session goes first.
    SessionOrder {
        /// The session.
        session: Name,
        /// How many jobs of the session go first.
        ahead: u64,
    },
    /// Its session runs as many jobs as it may.
    SessionFull {
        /// The session.
        session: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The lane is paused.
    LanePaused {
        /// The lane.
        lane: Name,
    },
    /// The lane runs as many jobs as it may.
    LaneFull {
        /// The lane.
        lane: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The agent runs as many jobs in this lane as it may.
    AgentFull {
        /// The agent.
        agent: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The server runs as many jobs as it may.
    ServerFull {
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The tenant runs as many jobs as it may.
    TenantFull {
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The kind runs as many jobs as it may.
    KindFull {
        /// The kind.
        kind: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// Nobody offers the kind.
    NoPlace {
        /// The kind.
        kind: Name,
    },
    /// The place that runs the kind is full.
    PlaceFull {
        /// The place.
        place: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// A resource it needs is taken.
    KeyFull {
        /// The key's name.
        name: Name,
        /// The key's value.
        value: Name,
        /// Open attempts that hold it.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// Others go first in the lane: nothing is closed, its turn has not come.
    Turn,
}
