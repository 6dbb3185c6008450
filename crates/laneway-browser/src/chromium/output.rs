//! What Chromium writes to its standard error: the DevTools address, and the reason of a failed start.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ChildStderr;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// Lines that are kept for an error text.
const LINES_MAX: usize = 8;
/// The longest kept part of a line, in bytes.
const LINE_BYTES_MAX: usize = 400;
/// Lines that say nothing about a failed start: a machine without a desktop has no message bus.
const NOISE: [&str; 2] = ["dbus/", "gcm/"];

/// The output of a process.
pub(super) struct Output {
    pipe: pipe::Receiver,
    /// What was read and not returned yet.
    buffer: Vec<u8>,
    last: VecDeque<String>,
    has_ended: bool,
}

impl Output {
    pub(super) fn new(stderr: ChildStderr) -> io::Result<Output> {
        let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?;
        Ok(Output { pipe, buffer: Vec::new(), last: VecDeque::new(), has_ended: false })
    }

    /// The next line. `None`: there will be none.
    pub(super) async fn next_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(self.keep(&line[..end]));
            }
            if self.has_ended {
                let rest = std::mem::take(&mut self.buffer);
                return (!rest.is_empty()).then(|| self.keep(&rest));
            }
            // Without a line break, the beginning of the line is enough.
            self.buffer.truncate(LINE_BYTES_MAX);
            let mut part = [0; 4096];
            match self.pipe.read(&mut part).await {
                Ok(0) | Err(_) => self.has_ended = true,
                Ok(count) => self.buffer.extend_from_slice(&part[..count]),
            }
        }
    }

    fn keep(&mut self, line: &[u8]) -> String {
        let line = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]).into_owned();
        let is_noise = line.trim().is_empty() || NOISE.iter().any(|noise| line.contains(noise));
        if !is_noise {
            if self.last.len() == LINES_MAX {
                self.last.pop_front();
            }
            self.last.push_back(line.clone());
        }
        line
    }

    /// The last lines, each after a line break.
    pub(super) fn last_lines(&self) -> String {
        self.last.iter().map(|line| format!("\n  {line}")).collect()
    }

    /// Reads until the process ends.
    pub(super) async fn drain(mut self) {
        while self.next_line().await.is_some() {}
    }
}
