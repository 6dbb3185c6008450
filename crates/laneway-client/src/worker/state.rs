//! The states of a worker's session, and the transitions between them.

use std::fmt;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerState {
    /// Nothing was sent yet.
    New,
    /// `handshake` is sent.
    Handshaking,
    /// The handshake is acknowledged; `register` is sent.
    Registered,
    /// The registration is acknowledged; the worker takes tasks and sends heartbeats.
    Heartbeating,
    /// The worker takes no more tasks and finishes the running ones.
    Draining,
    /// The session has ended.
    Closed,
    /// The connection or the handshake failed; the worker retries after a wait.
    Backoff,
}

impl WorkerState {
    /// All states, in the order of the documentation.
    pub const ALL: [WorkerState; 7] = [
        WorkerState::New,
        WorkerState::Handshaking,
        WorkerState::Registered,
        WorkerState::Heartbeating,
        WorkerState::Draining,
        WorkerState::Closed,
        WorkerState::Backoff,
    ];

    /// The name of the state in documentation and logs.
    pub fn as_str(self) -> &'static str {
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

    /// The transition table: the states that may follow this one.
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
        f.write_str(self.as_str())
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
