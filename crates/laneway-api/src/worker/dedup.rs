//! Which frames came over a connection, so that one that comes again does nothing and is answered as before.
//!
//! Known by `(id, corr)`, as a digest: a connection remembers [`SEEN_MAX`] frames in a few kilobytes. Heartbeats are not
//! remembered: each says the same as the one before it, and they would push out what matters.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use laneway_wire::frame::{ErrorCode, Frame};

/// Most frames that a connection remembers; then the oldest are forgotten.
pub const DEDUP_FRAMES_MAX: usize = 512;

/// What a frame was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorAnswer {
    /// Nothing yet: the answer waits for a commit.
    Pending,
    /// It was acknowledged.
    Ack,
    /// It was acknowledged with the lease.
    AckAlive,
    /// It was acknowledged as one whose content had come before.
    AckDuplicate,
    /// It was rejected.
    Error(ErrorCode),
}

/// The frames of one connection.
#[derive(Default)]
pub struct Dedup {
    answers: BTreeMap<u64, PriorAnswer>,
    order: VecDeque<u64>,
}

impl Dedup {
    /// What the frame was answered when it came before. `None`: it comes for the first time, and is remembered now.
    pub fn prior_answer(&mut self, frame: &Frame) -> Option<PriorAnswer> {
        let digest = digest(frame.id.as_str(), frame.corr.as_deref());
        if let Some(answer) = self.answers.get(&digest) {
            return Some(*answer);
        }
        if self.order.len() >= DEDUP_FRAMES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
        self.order.push_back(digest);
        self.answers.insert(digest, PriorAnswer::Pending);
        None
    }

    /// The frame could not be taken now: should it come again, it is looked at again.
    pub fn forget(&mut self, id: &str, corr: Option<&str>) {
        let digest = digest(id, corr);
        if self.answers.remove(&digest).is_some() {
            self.order.retain(|known| *known != digest);
        }
    }

    /// The frame is answered now.
    pub fn record(&mut self, id: &str, corr: Option<&str>, answer: PriorAnswer) {
        if let Some(prior) = self.answers.get_mut(&digest(id, corr)) {
            *prior = answer;
        }
    }
}

/// A worker that finds two frames with one digest has cheated itself only.
fn digest(id: &str, corr: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (id, corr).hash(&mut hasher);
    hasher.finish()
}
