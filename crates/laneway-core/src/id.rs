//! The ids of jobs, attempts, schedules and runs.

use std::fmt;

/// The public id of a job: a time-ordered UUID (version 7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u128);

/// The id of an attempt: 128 random bits, so that a late report about another attempt cannot pass for one about this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u128);

/// The number of a job inside the server: 1, 2, 3, … in the order of submission. The integer key of its rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seq(pub u64);

/// The id of a schedule: a time-ordered UUID (version 7), written `sch_0190a5b0-…`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(pub u128);

/// The id of a run: a time-ordered UUID (version 7), written `run_0190a5b0-…`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u128);

/// The prefix of a run's id.
const RUN_PREFIX: &str = "run_";

/// The prefix of a schedule's id.
const SCHEDULE_PREFIX: &str = "sch_";

impl ScheduleId {
    /// Reads `sch_` and the hyphenated form, with or without prefix and hyphens.
    pub fn parse(text: &str) -> Option<ScheduleId> {
        parse_hex_128(text.strip_prefix(SCHEDULE_PREFIX).unwrap_or(text)).map(ScheduleId)
    }
}

impl RunId {
    /// Reads `run_` and the hyphenated form, with or without prefix and hyphens.
    pub fn parse(text: &str) -> Option<RunId> {
        parse_hex_128(text.strip_prefix(RUN_PREFIX).unwrap_or(text)).map(RunId)
    }
}

impl JobId {
    /// Reads the hyphenated form (`0190a5b0-…`), with or without hyphens.
    pub fn parse(text: &str) -> Option<JobId> {
        parse_hex_128(text).map(JobId)
    }
}

impl AttemptId {
    /// Reads the hyphenated form, with or without hyphens.
    pub fn parse(text: &str) -> Option<AttemptId> {
        parse_hex_128(text).map(AttemptId)
    }
}

fn parse_hex_128(text: &str) -> Option<u128> {
    let plain = match text.len() {
        32 => text.to_owned(),
        36 => {
            let bytes = text.as_bytes();
            if [8, 13, 18, 23].iter().any(|&at| bytes[at] != b'-') {
                return None;
            }
            text.replace('-', "")
        }
        _ => return None,
    };
    if plain.len() != 32 || !plain.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&plain, 16).ok()
}

fn write_hyphenated(value: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in value.to_be_bytes().into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    f.write_str(std::str::from_utf8(&text).expect("hex digits are ASCII"))
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hyphenated(self.0, f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hyphenated(self.0, f)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hyphenated(self.0, f)
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hyphenated(self.0, f)
    }
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEDULE_PREFIX)?;
        write_hyphenated(self.0, f)
    }
}

impl fmt::Debug for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RUN_PREFIX)?;
        write_hyphenated(self.0, f)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
