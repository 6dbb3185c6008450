//! The states of a worker's session, and which may follow which.

use std::fmt;

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerState {
    /// Nothing is said yet.
    New,
    /// `handshake` is sent.
    Handshaking,
    /// The handshake is acknowledged; `register` is sent.
    Registered,
    /// The registration is acknowledged; the worker takes tasks and gives signs of life.
    Heartbeating,
    /// It takes no more tasks and finishes those that run.
    Draining,
    /// It is over.
    Closed,
    /// The connection or the handshake failed; it is tried again after a while.
    Backoff,
}

impl WorkerState {
    /// All of them, in the order of the docs.
    pub const ALL: [WorkerState; 7] = [
        WorkerState::New,
        WorkerState::Handshaking,
        WorkerState::Registered,
        WorkerState::Heartbeating,
        WorkerState::Draining,
        WorkerState::Closed,
        WorkerState::Backoff,
    ];

    /// The state as the docs and the logs write it.
    pub fn word(self) -> &'static str {
        match self {
            WorkerState::New => "NEW",
            WorkerState::Handshaking => "HANDSHAKING",
            WorkerState::Registered => "REGISTERED",
            WorkerState::Heartbeating => "HEARTBEATING",
            WorkerState::Draining => "DRAINING",
            WorkerState::Closed => "CLOSED",
            WorkerState::Backoff => "BACKOFF",
        }
    }

    /// THE table: the states that may follow this one.
    pub fn next(self) -> &'static [WorkerState] {
        use WorkerState::{Backoff, Closed, Draining, Handshaking, Heartbeating, New, Registered};
        match self {
            New => &[Handshaking],
            Handshaking => &[Registered, Backoff],
            Registered => &[Heartbeating, Backoff, Closed],
            Heartbeating => &[Draining, Closed, Backoff],
            Draining => &[Closed, Backoff],
            Closed => &[New, Backoff],
            Backoff => &[New],
        }
    }

    /// True when `to` may follow.
    pub fn allows(self, to: WorkerState) -> bool {
        self.next().contains(&to)
    }

    /// True while tasks may run under this session.
    pub fn is_up(self) -> bool {
        matches!(self, WorkerState::Heartbeating | WorkerState::Draining)
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::WorkerState::{self, *};

    #[test]
    fn only_the_edges_of_the_protocol_are_allowed() {
        let edges = [
            (New, Handshaking),
            (Handshaking, Registered),
            (Handshaking, Backoff),
            (Registered, Heartbeating),
            (Registered, Backoff),
            (Registered, Closed),
            (Heartbeating, Draining),
            (Heartbeating, Closed),
            (Heartbeating, Backoff),
            (Draining, Closed),
            (Draining, Backoff),
            (Closed, New),
            (Closed, Backoff),
            (Backoff, New),
        ];
        for from in WorkerState::ALL {
            for to in WorkerState::ALL {
                assert_eq!(from.allows(to), edges.contains(&(from, to)), "{from} -> {to}");
            }
        }
    }
}
