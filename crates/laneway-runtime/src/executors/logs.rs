//! The log lines of one attempt, collected until there is a reason to send them.
//!
//! Everything is bounded: a handler that logs in a tight loop loses lines, its log says so, and it delays no other.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use laneway_core::command::LogLine;
use laneway_core::{Command, Fence, Name, Wall};

use super::context::cut;

/// How long a line may wait for others before it is sent: short for people who watch, long against a commit.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_millis(200);
/// Longest line in bytes; the rest is cut off.
const LINE_LEN_MAX: usize = 8 << 10;
/// Most lines that wait to be sent.
const WAITING_LINES_MAX: usize = 1_000;
/// Most bytes that wait to be sent.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Most lines that one attempt may keep in all.
const LINES_MAX: usize = 10_000;

/// The lines of one run that wait to be sent.
#[derive(Default)]
pub(crate) struct LogBuffer {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<LogLine>,
    bytes: usize,
    lines_ever: usize,
    dropped: usize,
}

impl LogBuffer {
    /// Adds a line. True when it is the first that waits: then the caller must see to it that it is sent.
    pub(crate) fn push(&self, at: Wall, stream: &Name, text: &str) -> bool {
        let text = cut(text, LINE_LEN_MAX);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let full = waiting.lines.len() >= WAITING_LINES_MAX
            || waiting.bytes + text.len() > WAITING_BYTES_MAX
            || waiting.lines_ever >= LINES_MAX;
        if full {
            waiting.dropped += 1;
            return false;
        }
        waiting.bytes += text.len();
        waiting.lines_ever += 1;
        waiting.lines.push(LogLine { at, stream: stream.clone(), text: text.into() });
        waiting.lines.len() == 1
    }

    /// Takes all lines that wait, as the command that keeps them.
    pub(crate) fn take(&self, fence: Fence) -> Option<Command> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = std::mem::take(&mut waiting.lines);
        let at = lines.last()?.at;
        waiting.bytes = 0;
        let dropped = std::mem::take(&mut waiting.dropped);
        if dropped > 0 {
            let text = format!("{dropped} more lines were dropped: too many at once or in all").into();
            lines.push(LogLine { at, stream: Name::fixed("laneway"), text });
        }
        Some(Command::Log(fence, lines))
    }
}

#[cfg(test)]
mod tests {
    use laneway_core::{AttemptId, JobId};

    use super::*;

    fn fence() -> Fence {
        Fence { job: JobId(1), attempt: 1, attempt_id: AttemptId(1), lease_epoch: 0 }
    }

    fn texts(buffer: &LogBuffer) -> Vec<String> {
        match buffer.take(fence()) {
            Some(Command::Log(_, lines)) => lines.iter().map(|line| line.text.to_string()).collect(),
            None => Vec::new(),
            Some(other) => panic!("{other:?} keeps no lines"),
        }
    }

    #[test]
    fn only_the_first_line_that_waits_asks_to_be_sent() {
        let buffer = LogBuffer::default();
        assert!(buffer.push(Wall(1), &Name::fixed("log"), "a"));
        assert!(!buffer.push(Wall(2), &Name::fixed("log"), "b"));
        assert_eq!(texts(&buffer), ["a", "b"]);
        assert!(buffer.push(Wall(3), &Name::fixed("log"), "c"));
    }

    #[test]
    fn lines_over_the_bound_are_counted() {
        let buffer = LogBuffer::default();
        for _ in 0..WAITING_LINES_MAX + 5 {
            buffer.push(Wall(1), &Name::fixed("log"), "x");
        }
        let kept = texts(&buffer);
        assert_eq!(kept.len(), WAITING_LINES_MAX + 1);
        assert!(kept.last().unwrap().starts_with("5 more lines"), "{kept:?}");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let buffer = LogBuffer::default();
        buffer.push(Wall(1), &Name::fixed("log"), &"ä".repeat(LINE_LEN_MAX));
        assert_eq!(texts(&buffer)[0].len(), LINE_LEN_MAX);
    }
}
