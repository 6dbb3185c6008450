//! A delivery: the news of a job's end, owed to the address that its submitter named.
//!
//! A job with a [`crate::job::Callback`] that ends is owed exactly one delivery, made durable in the same commit as the
//! end. It is tried until somebody answers well or nobody may be tried any more. The address itself stays in the job's
//! spec: the engine knows its host only, so that hosts can take turns.

use std::fmt;
use std::sync::Arc;

use crate::{JobId, Name, Seq, Span, Wall};

/// Most tries that are made and kept of one delivery, those by hand included.
pub const DELIVERY_TRIES_MAX: u32 = 100;

/// A delivery as stored: at most one per job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The job whose end is told; also the delivery's own number.
    pub seq: Seq,
    /// The job's id; also the delivery's own.
    pub job: JobId,
    /// Who may see it.
    pub tenant: Name,
    /// Whom it goes to: see [`crate::job::Callback::host`]. Empty where that was not kept yet.
    pub host: Arc<str>,
    /// Where it stands.
    pub state: DeliveryState,
    /// Tries that have ended.
    pub tries: u32,
    /// For a waiting one: when it is tried next.
    pub next_at: Option<Wall>,
    /// When the job ended.
    pub created_at: Wall,
    /// When it stopped waiting.
    pub ended_at: Option<Wall>,
    /// What the last try was answered with, if it was answered.
    pub last_status: Option<u16>,
    /// What was wrong with the last try, if something was.
    pub last_error: Option<Box<str>>,
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeliveryState {
    /// It is tried now or later.
    Waiting = 0,
    /// Somebody answered well.
    Delivered = 1,
    /// It is not tried any more.
    Failed = 2,
    /// It was never tried: too many others waited.
    Dropped = 3,
}

impl DeliveryState {
    /// Every state, in the order of their codes.
    pub const ALL: [DeliveryState; 4] =
        [DeliveryState::Waiting, DeliveryState::Delivered, DeliveryState::Failed, DeliveryState::Dropped];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Waiting => "waiting",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
            DeliveryState::Dropped => "dropped",
        }
    }

    /// The state that `word` names.
    pub fn parse(word: &str) -> Option<DeliveryState> {
        DeliveryState::ALL.into_iter().find(|state| state.as_str() == word)
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
    /// What it was answered with, if it was answered.
    pub status: Option<u16>,
    /// What was wrong with it, if something was.
    pub error: Option<Box<str>>,
}

/// How a try ended, in the sender's words. What follows from it is the engine's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryOutcome {
    /// It was answered with this status.
    Answered(u16),
    /// Nobody answered; says why.
    Unanswered(Box<str>),
    /// It must not be sent, now or ever; says why.
    NotAllowed(Box<str>),
}

impl TryOutcome {
    /// The status that it was answered with.
    pub fn status(&self) -> Option<u16> {
        match self {
            TryOutcome::Answered(status) => Some(*status),
            _ => None,
        }
    }

    /// True when the receiver has it.
    pub fn is_delivered(&self) -> bool {
        self.status().is_some_and(|status| (200..300).contains(&status))
    }

    /// True when trying again cannot help: the receiver is gone for good, or must not be called.
    pub fn is_final(&self) -> bool {
        matches!(self, TryOutcome::Answered(410) | TryOutcome::NotAllowed(_))
    }

    /// What was wrong, for people.
    pub fn error(&self) -> Option<Box<str>> {
        match self {
            TryOutcome::Answered(_) if self.is_delivered() => None,
            TryOutcome::Answered(status) => Some(format!("the receiver answered {status}").into()),
            TryOutcome::Unanswered(why) | TryOutcome::NotAllowed(why) => Some(why.clone()),
        }
    }
}
