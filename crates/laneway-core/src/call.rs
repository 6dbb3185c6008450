//! Middleware chains: nodes of a run that call one another, and the answers to their calls.
//!
//! A host with a chain never starts by itself. The chain's first middleware waits for the dependencies of the host
//! and of the chain. While it runs it may call the next element, that one the next, and the last one the host. A called
//! node answers and can be called again. When the first middleware has succeeded, the others end with it.

use crate::{Bytes, Fence, Name, Seq, Span, Wall};

/// Most middlewares of one host.
pub const CHAIN_MAX: usize = 32;
/// Most bytes of the payload of a call. They stay in memory until the call is answered.
pub const CALL_PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// The position of a node in a chain. Workers get it in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The node that the chain is around.
    pub host: Name,
    /// The middlewares, the outermost first.
    pub middlewares: Vec<Name>,
    /// Which of them the node is; `None` for the host itself.
    pub index: Option<u32>,
}

impl Chain {
    /// True for a node that starts only when it is called: all but the outermost middleware.
    pub fn is_called(&self) -> bool {
        self.index != Some(0)
    }

    /// The element after this one; `None` after the host.
    pub fn next(&self) -> Option<&Name> {
        let next = self.index? as usize + 1;
        Some(self.middlewares.get(next).unwrap_or(&self.host))
    }
}

/// Why a call was not answered with a result, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum NextCode {
    /// The caller or its run has ended.
    RunFinalised = 0,
    /// The caller has called with this request already, and waits for the answer.
    Duplicate = 1,
    /// The caller is no middleware.
    NoChain = 2,
    /// The caller is not at that position of its chain.
    InvalidChain = 3,
    /// The next element runs, waits, or has ended.
    TargetNotReady = 4,
    /// The next element did not answer in time.
    Timeout = 5,
    /// The next element or its run was canceled.
    Cancelled = 6,
    /// The caller is being stopped, or the server stops.
    Unavailable = 7,
    /// The next element failed.
    Failed = 8,
    /// The call brings along more than [`CALL_PAYLOAD_BYTES_MAX`].
    TooLarge = 9,
}

impl NextCode {
    /// Every code, in the order of their numbers.
    pub const ALL: [NextCode; 10] = [
        NextCode::RunFinalised,
        NextCode::Duplicate,
        NextCode::NoChain,
        NextCode::InvalidChain,
        NextCode::TargetNotReady,
        NextCode::Timeout,
        NextCode::Cancelled,
        NextCode::Unavailable,
        NextCode::Failed,
        NextCode::TooLarge,
    ];

    /// The name that programs see.
    pub fn as_str(self) -> &'static str {
        match self {
            NextCode::RunFinalised => "next_run_finalised",
            NextCode::Duplicate => "next_duplicate",
            NextCode::NoChain => "next_no_chain",
            NextCode::InvalidChain => "next_invalid_chain",
            NextCode::TargetNotReady => "next_target_not_ready",
            NextCode::Timeout => "next_timeout",
            NextCode::Cancelled => "next_cancelled",
            NextCode::Unavailable => "next_unavailable",
            NextCode::Failed => "next_failed",
            NextCode::TooLarge => "next_payload_too_large",
        }
    }

    /// A sentence for people.
    pub fn message(self) -> &'static str {
        match self {
            NextCode::RunFinalised => "run already in final status",
            NextCode::Duplicate => "duplicate next request",
            NextCode::NoChain => "middleware chain not found",
            NextCode::InvalidChain => "invalid chain index",
            NextCode::TargetNotReady => "target node not ready",
            NextCode::Timeout => "next request timed out",
            NextCode::Cancelled => "next request cancelled",
            NextCode::Unavailable => "next request rejected",
            NextCode::Failed => "target node failed",
            NextCode::TooLarge => {
                "payload of the next request has more than 1 MiB; pass an address instead of data"
            }
        }
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The code of a stored number.
    pub fn from_code(code: u8) -> Option<NextCode> {
        NextCode::ALL.get(usize::from(code)).copied()
    }
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum NextAnswer {
    /// The next element succeeded, with this result.
    Done(Option<Bytes>),
    /// It failed, or was not called. The text has details where there are any.
    Failed(NextCode, Box<str>),
}

impl NextAnswer {
    /// A failure with the code's own message.
    pub fn rejected(code: NextCode) -> NextAnswer {
        NextAnswer::Failed(code, code.message().into())
    }
}

/// A running middleware calls the next element of its chain.
#[derive(Clone, Debug, PartialEq)]
pub struct NextCall {
    /// The attempt that calls.
    pub fence: Fence,
    /// The caller's own name for the call.
    pub request: Name,
    /// The caller's position in its chain.
    pub index: u32,
    /// How long it waits for an answer at most.
    pub timeout: Option<Span>,
    /// The payload for the called element, at most [`CALL_PAYLOAD_BYTES_MAX`].
    pub payload: Option<Bytes>,
}

/// The latest call of a node, as stored: at most one for each called node.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    /// The node that was called.
    pub target: Seq,
    /// The attempt that called it.
    pub caller: Fence,
    /// The caller's own name for the call.
    pub request: Name,
    /// When it was called.
    pub called_at: Wall,
    /// Attempts of the node that had opened by then: they are not for this call.
    pub after: u32,
    /// Until when it must be answered.
    pub until: Option<Wall>,
    /// The payload for the node while it works on this call; `None` once it is answered.
    pub payload: Option<Bytes>,
    /// The answer; `None` while the call waits.
    pub answer: Option<NextAnswer>,
    /// The latest result of the node, for any caller.
    pub result: Option<Bytes>,
}
