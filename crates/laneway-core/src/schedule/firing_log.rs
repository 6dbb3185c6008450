//! What is kept of the runs of schedules: one entry for each run that ended and each slot that passed without one.

use std::fmt;

use crate::{JobId, Name, ScheduleId, Wall};

/// Most bytes of a summary or an error that an entry keeps; longer texts are cut and say so.
pub const FIRING_TEXT_MAX: usize = 16 * 1024;

/// What a cut text ends with.
const TRUNCATED: &str = "...[truncated]";

/// One entry of the run log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiringLogEntry {
    /// Its number: that of the event which says so. Grows without end.
    pub number: u64,
    /// The schedule, which may be gone by now.
    pub schedule: ScheduleId,
    /// Who may see it.
    pub tenant: Name,
    /// The schedule's name when the job was made.
    pub name: Name,
    /// The agent of the job.
    pub agent: Name,
    /// The job. `None`: the slot passed without one.
    pub job: Option<JobId>,
    /// The slot; for a run by hand, when it was asked for; where several slots passed together, the first of them.
    pub slot: Wall,
    /// How it ended.
    pub status: FiringStatus,
    /// What a run that ended well gave back, as text, at most [`FIRING_TEXT_MAX`] bytes and a mark.
    pub summary: Option<Box<str>>,
    /// What went wrong, or why the slot passed, at most [`FIRING_TEXT_MAX`] bytes and a mark.
    pub error: Option<Box<str>>,
    /// Attempts opened.
    pub attempts: u32,
    /// From its first start to its end, attempts and waits between them included, in milliseconds.
    pub duration_ms: u64,
    /// Tokens read, where the runner says so.
    pub input_tokens: u64,
    /// Tokens written, where the runner says so.
    pub output_tokens: u64,
    /// When its first attempt started, or when it was decided that none would.
    pub ran_at: Wall,
    /// When it ended.
    pub ended_at: Wall,
}

/// How a run of a schedule stands or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FiringStatus {
    /// It ended well.
    Ok = 0,
    /// It failed.
    Error = 1,
    /// It has not ended.
    Running = 2,
    /// It was canceled.
    Canceled = 3,
    /// There was none: the slot passed.
    Skipped = 4,
    /// Its runner was lost, and it was not tried again.
    Interrupted = 5,
    /// It ran too long.
    Timeout = 6,
    /// It has not started: its job waits.
    Queued = 7,
}

impl FiringStatus {
    /// Every status, in the order of their codes.
    pub const ALL: [FiringStatus; 8] = [
        FiringStatus::Ok,
        FiringStatus::Error,
        FiringStatus::Running,
        FiringStatus::Canceled,
        FiringStatus::Skipped,
        FiringStatus::Interrupted,
        FiringStatus::Timeout,
        FiringStatus::Queued,
    ];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            FiringStatus::Ok => "ok",
            FiringStatus::Error => "error",
            FiringStatus::Running => "running",
            FiringStatus::Canceled => "canceled",
            FiringStatus::Skipped => "skipped",
            FiringStatus::Interrupted => "interrupted",
            FiringStatus::Timeout => "timeout",
            FiringStatus::Queued => "queued",
        }
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The status of a stored code.
    pub fn from_code(code: u8) -> Option<FiringStatus> {
        FiringStatus::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for FiringStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the detail of a schedule's event says: `sch_… <action> <name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleLine {
    /// The schedule.
    pub id: ScheduleId,
    /// One word: `created`, `enabled`, `fired`, or how a run ended.
    pub action: Box<str>,
    /// The schedule's name.
    pub name: Name,
}

impl ScheduleLine {
    /// Reads the detail of a schedule's event.
    pub fn parse(detail: &str) -> Option<ScheduleLine> {
        let (id, rest) = detail.split_once(' ')?;
        let (action, name) = rest.split_once(' ')?;
        Some(ScheduleLine { id: ScheduleId::parse(id)?, action: action.into(), name: Name::new(name).ok()? })
    }
}

impl fmt::Display for ScheduleLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.id, self.action, self.name)
    }
}

/// The text of these bytes, cut at [`FIRING_TEXT_MAX`] bytes between two characters, with a mark where it was cut.
pub fn cut_text(bytes: &[u8]) -> Box<str> {
    if bytes.len() <= FIRING_TEXT_MAX {
        return String::from_utf8_lossy(bytes).into();
    }
    let mut end = FIRING_TEXT_MAX;
    // A byte that goes on with a character must not be the first one that is cut off; a character has four at most.
    while end + 3 > FIRING_TEXT_MAX && bytes[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    let mut text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    text.push_str(TRUNCATED);
    text.into()
}
