//! Recognises duplicate frames of a connection: they have no effect and get the same reply again.
//!
//! Frames are identified by `(id, corr)`, as a digest, so a connection remembers [`DEDUP_FRAMES_MAX`] frames in a few
//! kilobytes. Heartbeats are not remembered: each has the same content, and they would displace other frames.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use laneway_wire::frame::{ErrorCode, Frame};

/// The number of frames that a connection remembers. Beyond it, the oldest are forgotten.
pub const DEDUP_FRAMES_MAX: usize = 512;

/// The reply to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorAnswer {
    /// None yet: the reply waits for a commit.
    Pending,
    /// It was acknowledged.
    Ack,
    /// It was acknowledged with the lease.
    AckAlive,
    /// It was acknowledged as a duplicate of earlier content.
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
    /// The reply to an earlier frame of the same identity. `None` for a new frame, which is remembered.
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

    /// The frame could not be processed now. If it is sent again, it is processed again.
    pub fn forget(&mut self, id: &str, corr: Option<&str>) {
        let digest = digest(id, corr);
        if self.answers.remove(&digest).is_some() {
            self.order.retain(|known| *known != digest);
        }
    }

    /// Records the reply to a frame.
    pub fn record(&mut self, id: &str, corr: Option<&str>, answer: PriorAnswer) {
        if let Some(prior) = self.answers.get_mut(&digest(id, corr)) {
            *prior = answer;
        }
    }
}

/// A worker that sends two frames with the same digest harms only itself.
fn digest(id: &str, corr: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (id, corr).hash(&mut hasher);
    hasher.finish()
}
