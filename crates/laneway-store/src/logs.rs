//! How much of a job's logs is kept. Every store uses this file, so that all of them keep the same lines.

use laneway_core::Name;
use laneway_core::command::LogLine;

/// Most lines kept of one job, the last of which says that later ones were dropped.
pub const LOG_LINES_MAX: u64 = 10_000;
/// Most bytes of text kept of one job.
pub const LOG_BYTES_MAX: u64 = 1024 * 1024;

/// The stream that lists what runs made on workers, one JSON object a line. It is kept however much else is logged.
pub const ARTIFACTS: &str = "artifacts";
/// Most lines of that stream that are kept behind the others.
pub const ARTIFACT_LINES_MAX: u64 = 4_096;

/// The last line of logs that were cut.
const DROPPED: &str = "later lines were dropped: a job keeps 10000 lines or 1 MiB of logs";

/// How much is kept of a job's logs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogTally {
    /// Number of the last line kept.
    pub lines: u64,
    /// Bytes of text kept; more than [`LOG_BYTES_MAX`] once the last line is written.
    pub bytes: u64,
}

impl LogTally {
    /// Counts one more line. Gives the text to keep under number `self.lines`, or `None` when the line is dropped.
    pub fn admit<'a>(&mut self, line: &'a LogLine) -> Option<&'a str> {
        if line.stream.as_str() == ARTIFACTS {
            return self.admit_artifact(line);
        }
        if self.bytes > LOG_BYTES_MAX {
            return None;
        }
        let bytes = self.bytes + line.text.len() as u64;
        self.lines += 1;
        if self.lines >= LOG_LINES_MAX || bytes > LOG_BYTES_MAX {
            self.bytes = LOG_BYTES_MAX + 1;
            return Some(DROPPED);
        }
        self.bytes = bytes;
        Some(&line.text)
    }

    /// Artifacts matter more than log lines: they count towards the limit of the lines, and have a limit of their own beyond it.
    fn admit_artifact<'a>(&mut self, line: &'a LogLine) -> Option<&'a str> {
        if self.lines >= LOG_LINES_MAX + ARTIFACT_LINES_MAX {
            return None;
        }
        self.lines += 1;
        if self.bytes <= LOG_BYTES_MAX {
            self.bytes = LOG_BYTES_MAX.min(self.bytes + line.text.len() as u64);
        }
        Some(&line.text)
    }
}

/// The stream that a kept text belongs to: the line's own, or the server's for the last one.
pub(crate) fn stream_of(line: &LogLine, kept: &str) -> Name {
    if std::ptr::eq(kept, DROPPED) { Name::fixed("laneway") } else { line.stream.clone() }
}
