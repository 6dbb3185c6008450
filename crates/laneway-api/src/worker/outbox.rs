//! Frames to a worker that are kept until it acknowledges them, and when each is sent again.
//!
//! Pure: it takes the time and returns frames. All of it ends with the connection: the engine sends open dispatches
//! again on the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use laneway_core::Task;

/// How often a frame is sent again before the connection counts as broken.
pub const RESENDS_MAX: u32 = 6;
/// The most bytes that wait for acknowledgements. A dispatch beyond them is handed back.
pub const OUTBOX_BYTES_MAX: usize = 8 << 20;
/// The most frames that wait for acknowledgements. Beyond them, no more commands are sent to the worker.
pub const OUTBOX_LEN_MAX: usize = 4_096;

/// The first wait, and the longest.
const WAIT_FIRST: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The random part of a wait: a quarter.
const WAIT_JITTER: f64 = 0.25;

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

struct Entry {
    text: Utf8Bytes,
    about: About,
    resends: u32,
    due: Duration,
}

/// The frames that wait, by their number on the connection.
#[derive(Default)]
pub struct Outbox {
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
}

/// The frames to send now.
#[derive(Default)]
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
        self.entries.is_empty()
            || (self.bytes + more <= OUTBOX_BYTES_MAX && self.entries.len() < OUTBOX_LEN_MAX)
    }

    /// Keeps a frame that was just sent.
    pub fn put(&mut self, now: Duration, number: u64, text: Utf8Bytes, about: About, jitter: f64) {
        self.bytes += text.len();
        let due = now + wait(0, jitter);
        self.entries.insert(number, Entry { text, about, resends: 0, due });
    }

    /// Removes a frame that was acknowledged or is not needed any more.
    pub fn remove(&mut self, number: u64) -> Option<About> {
        let entry = self.entries.remove(&number)?;
        self.bytes -= entry.text.len();
        Some(entry.about)
    }

    /// Removes the frames about this attempt.
    pub fn remove_task(&mut self, task: Task) {
        let about_it =
            |entry: &Entry| matches!(entry.about, About::Dispatch(of) | About::Cancel(of) if of == task);
        let numbers: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| about_it(entry)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.remove(number);
        }
    }

    /// When the next frame is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.entries.values().map(|entry| entry.due).min()
    }

    /// The frames that are due.
    pub fn take_due(&mut self, now: Duration, mut jitter: impl FnMut() -> f64) -> Due {
        let mut due = Due::default();
        for (number, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.due <= now) {
            if entry.resends >= RESENDS_MAX {
                due.exhausted = true;
                continue;
            }
            entry.resends += 1;
            entry.due = now + wait(entry.resends, jitter());
            due.frames.push((*number, entry.about, entry.text.clone()));
        }
        due
    }
}

/// How long a frame waits after `resends` resends, with `jitter` from 0 to 1.
fn wait(resends: u32, jitter: f64) -> Duration {
    let full = WAIT_FIRST.saturating_mul(2u32.saturating_pow(resends)).min(WAIT_MAX);
    full.mul_f64(1.0 - WAIT_JITTER * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use laneway_core::JobId;

    use super::*;

    fn task(job: u128) -> Task {
        Task { job: JobId(job), dispatch_seq: 1 }
    }

    #[test]
    fn d7_frames_wait_200_ms_to_5_s_with_jitter() {
        let waits = |jitter| (0..RESENDS_MAX).map(|n| wait(n, jitter).as_millis()).collect::<Vec<_>>();
        assert_eq!(waits(0.0), [200, 400, 800, 1_600, 3_200, 5_000]);
        assert_eq!(waits(1.0), [150, 300, 600, 1_200, 2_400, 3_750]);
    }

    #[test]
    fn d7_a_frame_is_sent_six_times_again_and_then_the_connection_is_closed() {
        let mut outbox = Outbox::default();
        outbox.put(Duration::ZERO, 1, "frame".into(), About::Other, 0.0);
        let mut sent = 0;
        loop {
            let at = outbox.next_due().unwrap();
            let due = outbox.take_due(at, || 0.0);
            if due.exhausted {
                break;
            }
            sent += due.frames.len();
        }
        assert_eq!(sent, 6);
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
        assert_eq!((outbox.entries.len(), outbox.bytes, outbox.next_due()), (0, 0, None));
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
