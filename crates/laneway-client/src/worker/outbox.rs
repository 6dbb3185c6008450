//! Frames that are kept until they are acknowledged, and when each is sent again.
//!
//! Pure: it takes the time and returns frames. Outcomes of tasks survive a broken connection; a greeting is
//! dropped with its connection.

use std::collections::BTreeMap;
use std::time::Duration;

use laneway_wire::frame::{Frame, Text};
use laneway_wire::resend::Resends;

/// Most frames without an acknowledgement. At this limit the worker takes no new tasks.
pub const OUTBOX_LEN_MAX: usize = 4_096;
/// Most bytes without an acknowledgement. At this limit the worker takes no new tasks.
pub const OUTBOX_BYTES_MAX: usize = 64 << 20;

/// One attempt of a task, as the scheduler and the worker name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// The task.
    pub task_id: Text,
    /// The attempt, from the envelope.
    pub seq: u64,
}

/// The type of a kept frame. It decides what happens when no acknowledgement comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The outcome of a task. It is kept until it is acknowledged or rejected, across connections.
    Outcome {
        /// The attempt.
        key: TaskKey,
        /// The workflow run. Its results are sent as one stream.
        run_id: Text,
    },
    /// A report about the worker, not about the end of a task. It is kept as long, but no results wait for
    /// it.
    Report,
    /// Handshake and registration. Only these are sent before the session is up, and they are dropped with
    /// their connection.
    Greeting,
}

struct Entry {
    frame: Frame,
    bytes: usize,
    keep: Keep,
}

/// The frames that wait for an acknowledgement.
#[derive(Default)]
pub struct Outbox {
    /// The frames, in insertion order.
    entries: Resends<Entry>,
    by_id: BTreeMap<Text, u64>,
    next: u64,
    bytes: usize,
}

/// The frames to send now.
pub struct Due {
    /// The frames, oldest first.
    pub frames: Vec<Frame>,
    /// True when a frame was sent as often as allowed. The connection should be closed.
    pub exhausted: bool,
}

impl Outbox {
    /// How many frames wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many outcomes and reports wait.
    pub fn outcomes(&self) -> usize {
        self.kept().filter(|entry| entry.keep != Keep::Greeting).count()
    }

    /// True when no more tasks should be accepted.
    pub fn is_full(&self, running: usize) -> bool {
        self.len() + running >= OUTBOX_LEN_MAX || self.bytes >= OUTBOX_BYTES_MAX
    }

    /// Keeps a frame that was just sent, or that is sent as soon as there is a connection.
    pub fn put(&mut self, now: Duration, frame: Frame, keep: Keep, random: f64) {
        let bytes = frame.encode().len();
        self.bytes += bytes;
        self.by_id.insert(frame.id.clone(), self.next);
        self.entries.insert(now, self.next, Entry { frame, bytes, keep }, random);
        self.next += 1;
    }

    /// Removes a frame that was acknowledged or rejected.
    pub fn remove(&mut self, id: &str) -> Option<Keep> {
        let number = self.by_id.remove(id)?;
        let entry = self.entries.remove(number)?;
        self.bytes -= entry.bytes;
        Some(entry.keep)
    }

    /// Removes every outcome of a task.
    pub fn remove_task(&mut self, task_id: &str) {
        self.remove_where(|keep| matches!(keep, Keep::Outcome { key, .. } if key.task_id == *task_id));
    }

    /// Removes the outcome of an attempt.
    pub fn remove_attempt(&mut self, attempt: &TaskKey) {
        self.remove_where(|keep| matches!(keep, Keep::Outcome { key, .. } if key == attempt));
    }

    /// Removes the frames that belong to a closed connection.
    pub fn forget_session(&mut self) {
        self.remove_where(|keep| *keep == Keep::Greeting);
    }

    fn remove_where(&mut self, which: impl Fn(&Keep) -> bool) {
        let gone = self.kept().filter(|entry| which(&entry.keep));
        let ids: Vec<Text> = gone.map(|entry| entry.frame.id.clone()).collect();
        for id in ids {
            self.remove(&id);
        }
    }

    /// Every attempt whose outcome waits.
    pub fn attempts(&self) -> impl Iterator<Item = &TaskKey> {
        self.kept().filter_map(|entry| match &entry.keep {
            Keep::Outcome { key, .. } => Some(key),
            Keep::Report | Keep::Greeting => None,
        })
    }

    /// True when the outcome of this attempt waits.
    pub fn has(&self, key: &TaskKey) -> bool {
        self.attempts().any(|kept| kept == key)
    }

    /// Makes the frames that `which` selects due at once and resets their resend counts.
    pub fn rewind(&mut self, now: Duration, which: impl Fn(&Keep) -> bool) {
        self.entries.rewind(now, |entry| which(&entry.keep));
    }

    /// The workflow run of a waiting frame, by task or by frame id.
    pub fn run_of(&self, corr: &str) -> Option<Text> {
        self.kept().find_map(|entry| match &entry.keep {
            Keep::Outcome { key, run_id } if key.task_id == *corr || entry.frame.id == *corr => {
                Some(run_id.clone())
            }
            _ => None,
        })
    }

    /// When the next frame is due. Only greetings are sent unless the session `is_up`.
    pub fn next_due(&self, is_up: bool) -> Option<Duration> {
        self.entries.next_due(|entry| is_up || entry.keep == Keep::Greeting)
    }

    /// The frames to send now. Results of a workflow run leave in the order of their `seq`.
    pub fn take_due(&mut self, now: Duration, is_up: bool, random: impl FnMut() -> f64) -> Due {
        let due = self.entries.take_due(now, |entry| is_up || entry.keep == Keep::Greeting, random);
        let mut frames: Vec<Frame> = due.items.iter().map(|(_, entry)| entry.frame.clone()).collect();
        frames.sort_by_key(|frame| frame.seq);
        Due { frames, exhausted: due.exhausted }
    }

    fn kept(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests;
