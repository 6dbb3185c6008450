//! Frames that are kept until they are acknowledged, and when each is sent again.
//!
//! Pure: time comes in, frames go out. Outcomes of tasks stay here across connections; a greeting is dropped with the
//! connection that it was sent on.

use std::collections::BTreeMap;
use std::time::Duration;

use laneway_wire::frame::{Frame, Text};

use super::backoff::{Backoff, RESENDS_MAX};

/// Most frames that wait for an acknowledgement. A worker that has so many takes no new tasks.
pub const OUTBOX_LEN_MAX: usize = 4_096;
/// Most bytes that wait for an acknowledgement. A worker that has so many takes no new tasks.
pub const OUTBOX_BYTES_MAX: usize = 64 << 20;

/// One attempt at a task: what the scheduler and the worker both call it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// The task.
    pub task_id: Text,
    /// The attempt, from the envelope.
    pub seq: u64,
}

/// What the frame is, for what becomes of it when nobody acknowledges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The outcome of a task: kept until it is acknowledged or refused, however often the connection breaks.
    Outcome {
        /// The attempt.
        key: TaskKey,
        /// The run, whose results are one stream.
        run_id: Text,
    },
    /// About the worker, not about the end of a task: kept as long, but no run's results wait for it.
    Report,
    /// Handshake and registration: all that may leave before the session stands, and gone with their connection.
    Greeting,
}

struct Entry {
    frame: Frame,
    bytes: usize,
    keep: Keep,
    resends: u32,
    due: Duration,
}

/// The frames that wait.
#[derive(Default)]
pub struct Outbox {
    /// By the order in which they were put in.
    entries: BTreeMap<u64, Entry>,
    by_id: BTreeMap<Text, u64>,
    next: u64,
    bytes: usize,
}

/// What is to be sent now.
pub struct Due {
    /// The frames, oldest first.
    pub frames: Vec<Frame>,
    /// A frame was sent as often as it may: the connection is not worth trusting any more.
    pub exhausted: bool,
}

impl Outbox {
    /// How many frames wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many outcomes and reports wait.
    pub fn outcomes(&self) -> usize {
        self.entries.values().filter(|entry| entry.keep != Keep::Greeting).count()
    }

    /// True when no more tasks should be taken.
    pub fn is_full(&self, running: usize) -> bool {
        self.len() + running >= OUTBOX_LEN_MAX || self.bytes >= OUTBOX_BYTES_MAX
    }

    /// Keeps a frame that was just sent, or that is sent as soon as there is a connection.
    pub fn put(&mut self, now: Duration, frame: Frame, keep: Keep, lot: f64) {
        let bytes = frame.encode().len();
        self.bytes += bytes;
        self.by_id.insert(frame.id.clone(), self.next);
        let due = now + Backoff::FRAMES.wait(0, lot);
        self.entries.insert(self.next, Entry { frame, bytes, keep, resends: 0, due });
        self.next += 1;
    }

    /// Forgets a frame: it was acknowledged or refused.
    pub fn remove(&mut self, id: &str) -> Option<Keep> {
        let number = self.by_id.remove(id)?;
        let entry = self.entries.remove(&number)?;
        self.bytes -= entry.bytes;
        Some(entry.keep)
    }

    /// Forgets every outcome of a task.
    pub fn remove_task(&mut self, task_id: &str) {
        self.remove_where(|keep| matches!(keep, Keep::Outcome { key, .. } if key.task_id == *task_id));
    }

    /// Forgets the outcome of an attempt.
    pub fn remove_attempt(&mut self, attempt: &TaskKey) {
        self.remove_where(|keep| matches!(keep, Keep::Outcome { key, .. } if key == attempt));
    }

    /// Forgets what belongs to the connection that is gone.
    pub fn forget_session(&mut self) {
        self.remove_where(|keep| *keep == Keep::Greeting);
    }

    fn remove_where(&mut self, which: impl Fn(&Keep) -> bool) {
        let ids: Vec<Text> = self
            .entries
            .values()
            .filter(|entry| which(&entry.keep))
            .map(|entry| entry.frame.id.clone())
            .collect();
        for id in ids {
            self.remove(&id);
        }
    }

    /// True when the outcome of this attempt waits.
    pub fn has(&self, key: &TaskKey) -> bool {
        self.entries
            .values()
            .any(|entry| matches!(&entry.keep, Keep::Outcome { key: kept, .. } if kept == key))
    }

    /// Makes frames due at once: those of one run, of one attempt, or all, as `which` says. They begin to count anew.
    pub fn rewind(&mut self, now: Duration, which: impl Fn(&Keep) -> bool) {
        for entry in self.entries.values_mut().filter(|entry| which(&entry.keep)) {
            entry.resends = 0;
            entry.due = now;
        }
    }

    /// The run of a task, or of the frame with this id, that waits.
    pub fn run_of(&self, corr: &str) -> Option<Text> {
        self.entries.values().find_map(|entry| match &entry.keep {
            Keep::Outcome { key, run_id } if key.task_id == *corr || entry.frame.id == *corr => {
                Some(run_id.clone())
            }
            _ => None,
        })
    }

    /// When something is due next. All but greetings leave only when the session `is_up`.
    pub fn next_due(&self, is_up: bool) -> Option<Duration> {
        let entries = self.entries.values().filter(|entry| is_up || entry.keep == Keep::Greeting);
        entries.map(|entry| entry.due).min()
    }

    /// What is due, to be sent now. Results of a run leave in the order of their `seq`.
    pub fn take_due(&mut self, now: Duration, is_up: bool, mut lot: impl FnMut() -> f64) -> Due {
        let mut due = Due { frames: Vec::new(), exhausted: false };
        let is_due = |entry: &Entry| entry.due <= now && (is_up || entry.keep == Keep::Greeting);
        for entry in self.entries.values_mut().filter(|entry| is_due(entry)) {
            if entry.resends >= RESENDS_MAX {
                due.exhausted = true;
                continue;
            }
            entry.resends += 1;
            entry.due = now + Backoff::FRAMES.wait(entry.resends, lot());
            due.frames.push(entry.frame.clone());
        }
        due.frames.sort_by_key(|frame| frame.seq);
        due
    }
}

#[cfg(test)]
mod tests;
