//! What happened last, for people; and a fingerprint of everything, for comparing two runs of one seed.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};

/// The log of one world.
#[derive(Debug)]
pub struct Log {
    lines: VecDeque<String>,
    lines_max: usize,
    print: Option<Fnv>,
}

/// FNV-1a: plain, and the same on every machine.
#[derive(Debug)]
struct Fnv(u64);

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        Ok(())
    }
}

impl Log {
    /// A log that keeps this many lines, and a fingerprint if one is wanted.
    pub fn new(lines_max: usize, fingerprint: bool) -> Log {
        let print = fingerprint.then_some(Fnv(0xCBF2_9CE4_8422_2325));
        Log { lines: VecDeque::new(), lines_max, print }
    }

    /// Keeps a line. It is only made when lines are kept.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if self.lines_max == 0 {
            return;
        }
        if self.lines.len() == self.lines_max {
            self.lines.pop_front();
        }
        self.lines.push_back(line());
    }

    /// Adds something to the fingerprint.
    pub fn mark(&mut self, what: &impl Debug) {
        if let Some(print) = &mut self.print {
            write!(print, "{what:?}").expect("a fingerprint takes everything");
        }
    }

    /// The fingerprint so far.
    pub fn fingerprint(&self) -> u64 {
        self.print.as_ref().map_or(0, |print| print.0)
    }

    /// The lines, oldest first.
    pub fn lines(self) -> Vec<String> {
        Vec::from(self.lines)
    }
}
