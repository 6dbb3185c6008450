//! Frames to a worker that are kept until it acknowledges them, and when each is sent again.
//!
//! Pure: it takes the time and returns frames. All of it ends with the connection: the engine sends open dispatches
//! again on the next one.

use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use laneway_core::Task;
use laneway_wire::resend::Resends;

/// The most bytes that wait for acknowledgements. A dispatch beyond them is handed back.
pub const OUTBOX_BYTES_MAX: usize = 8 << 20;
/// The most frames that wait for acknowledgements. Beyond them, no more commands are sent to the worker.
pub const OUTBOX_LEN_MAX: usize = 4_096;

/// The subject of a frame. It decides what happens when no acknowledgement comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Run this attempt.
    Dispatch(Task),
    /// Stop this attempt.
    Cancel(Task),
    /// Anything else.
    Other,
}

/// The frames that wait, by their number on the connection.
#[derive(Default)]
pub struct Outbox {
    frames: Resends<(About, Utf8Bytes)>,
    bytes: usize,
}

/// The frames to send now.
pub struct Due {
    /// The frames, oldest first: their numbers, subjects and texts.
    pub frames: Vec<(u64, About, Utf8Bytes)>,
    /// True when a frame was sent as often as allowed. The connection should be closed.
    pub exhausted: bool,
}

impl Outbox {
    /// True while `more` bytes can be kept.
    pub fn has_capacity(&self, more: usize) -> bool {
        // One frame always fits: its length has its own limit.
        self.frames.is_empty()
            || (self.bytes + more <= OUTBOX_BYTES_MAX && self.frames.len() < OUTBOX_LEN_MAX)
    }

    /// Keeps a frame that was just sent.
    pub fn put(&mut self, now: Duration, number: u64, text: Utf8Bytes, about: About, jitter: f64) {
        self.bytes += text.len();
        self.frames.insert(now, number, (about, text), jitter);
    }

    /// Removes a frame that was acknowledged or is not needed any more.
    pub fn remove(&mut self, number: u64) -> Option<About> {
        let (about, text) = self.frames.remove(number)?;
        self.bytes -= text.len();
        Some(about)
    }

    /// Removes the frames about this attempt.
    pub fn remove_task(&mut self, task: Task) {
        let is_about_it =
            |about: &About| matches!(about, About::Dispatch(of) | About::Cancel(of) if *of == task);
        let frames = self.frames.iter().filter(|(_, (about, _))| is_about_it(about));
        let numbers: Vec<u64> = frames.map(|(number, _)| number).collect();
        for number in numbers {
            self.remove(number);
        }
    }

    /// When the next frame is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.frames.next_due(|_| true)
    }

    /// The frames that are due.
    pub fn take_due(&mut self, now: Duration, jitter: impl FnMut() -> f64) -> Due {
        let due = self.frames.take_due(now, |_| true, jitter);
        let frames = due.items.into_iter().map(|(number, (about, text))| (number, *about, text.clone()));
        Due { frames: frames.collect(), exhausted: due.exhausted }
    }
}

#[cfg(test)]
mod tests {
    use laneway_core::JobId;

    use super::*;

    fn task(job: u128) -> Task {
        Task { job: JobId(job), dispatch_seq: 1 }
    }

    #[test]
    fn acknowledged_and_removed_frames_are_not_sent_again() {
        let mut outbox = Outbox::default();
        outbox.put(Duration::ZERO, 1, "a".into(), About::Dispatch(task(1)), 0.0);
        outbox.put(Duration::ZERO, 2, "b".into(), About::Cancel(task(1)), 0.0);
        outbox.put(Duration::ZERO, 3, "c".into(), About::Dispatch(task(2)), 0.0);
        assert_eq!(outbox.remove(3), Some(About::Dispatch(task(2))));
        assert_eq!(outbox.remove(3), None);
        outbox.remove_task(task(1));
        assert_eq!((outbox.frames.len(), outbox.bytes, outbox.next_due()), (0, 0, None));
    }

    #[test]
    fn waiting_bytes_are_bounded() {
        let mut outbox = Outbox::default();
        assert!(outbox.has_capacity(OUTBOX_BYTES_MAX + 1), "one frame always fits");
        outbox.put(Duration::ZERO, 1, "x".repeat(OUTBOX_BYTES_MAX).into(), About::Other, 0.0);
        assert!(!outbox.has_capacity(1));
        outbox.remove(1);
        assert!(outbox.has_capacity(1));
    }
}
