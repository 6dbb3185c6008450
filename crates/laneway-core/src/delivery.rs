//! A webhook delivery: the obligation to send the end of a job to its callback.
//!
//! When a job with a [`crate::job::Callback`] ends, exactly one delivery is stored in the same commit. It is tried
//! until the receiver accepts it or no try is left. The URL stays in the job's spec. The engine knows only its host,
//! so that deliveries are fair between hosts.

use std::fmt;
use std::sync::Arc;

use crate::{JobId, Name, Seq, Span, Wall};

/// Most tries that are made and kept of one delivery, manual ones included.
pub const DELIVERY_TRIES_MAX: u32 = 100;

/// A delivery as stored: at most one per job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The job; its number is also the delivery's.
    pub seq: Seq,
    /// The job's id, which is also the delivery's.
    pub job: JobId,
    /// The tenant that may see it.
    pub tenant: Name,
    /// The receiver: see [`crate::job::Callback::host`].
    pub host: Arc<str>,
    /// Where it stands.
    pub state: DeliveryState,
    /// Tries that have ended.
    pub tries: u32,
    /// For a waiting one: when it is tried next.
    pub next_at: Option<Wall>,
    /// When the job ended.
    pub created_at: Wall,
    /// When it was delivered, failed or dropped.
    pub ended_at: Option<Wall>,
    /// The HTTP status of the last try, if there was an answer.
    pub last_status: Option<u16>,
    /// The error of the last try, if there was one.
    pub last_error: Option<Box<str>>,
}

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeliveryState {
    /// It is being tried, or waits for its next try.
    Waiting = 0,
    /// The receiver accepted it.
    Delivered = 1,
    /// No try is left.
    Failed = 2,
    /// It was never tried: too many others waited.
    Dropped = 3,
}

impl DeliveryState {
    /// Every state, in the order of their codes.
    pub const ALL: [DeliveryState; 4] =
        [DeliveryState::Waiting, DeliveryState::Delivered, DeliveryState::Failed, DeliveryState::Dropped];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Waiting => "waiting",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
            DeliveryState::Dropped => "dropped",
        }
    }

    /// The state with this name.
    pub fn parse(name: &str) -> Option<DeliveryState> {
        DeliveryState::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The state of a stored code.
    pub fn from_code(code: u8) -> Option<DeliveryState> {
        DeliveryState::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for DeliveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One try at a delivery, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryTry {
    /// The delivery.
    pub seq: Seq,
    /// 1, 2, 3, … within the delivery.
    pub number: u32,
    /// When it ended.
    pub at: Wall,
    /// How long it took.
    pub took: Span,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The error, if there was one.
    pub error: Option<Box<str>>,
}

/// How a try ended, as the sender reports it. The engine decides what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryOutcome {
    /// The receiver answered with this status.
    Answered(u16),
    /// There was no answer; the text says why.
    Unanswered(Box<str>),
    /// It must not be sent, now or ever; the text says why.
    NotAllowed(Box<str>),
}

impl TryOutcome {
    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            TryOutcome::Answered(status) => Some(*status),
            _ => None,
        }
    }

    /// True when the receiver accepted it.
    pub fn is_delivered(&self) -> bool {
        self.status().is_some_and(|status| (200..300).contains(&status))
    }

    /// True when another try cannot succeed: the receiver is gone for good, or must not be called.
    pub fn is_final(&self) -> bool {
        matches!(self, TryOutcome::Answered(410) | TryOutcome::NotAllowed(_))
    }

    /// The error, for people.
    pub fn error(&self) -> Option<Box<str>> {
        match self {
            TryOutcome::Answered(_) if self.is_delivered() => None,
            TryOutcome::Answered(status) => Some(format!("the receiver answered {status}").into()),
            TryOutcome::Unanswered(why) | TryOutcome::NotAllowed(why) => Some(why.clone()),
        }
    }
}
