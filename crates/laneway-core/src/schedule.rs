//! A schedule: creates jobs at a time, in an interval, or by a cron expression.
//!
//! A schedule has a template of a job and a timing. Each moment of the timing is a **slot**; a slot creates at most one job,
//! also after a crash. `schedule/timing.rs` and `schedule/cron.rs` compute slots, `schedule/firing_log.rs` has the log, and
//! `engine/schedules/` the behaviour. The page for users is `docs/schedules.md`.

mod cron;
mod firing_log;
mod timing;

pub use firing_log::{FIRING_TEXT_MAX, FiringLogEntry, FiringStatus, ScheduleLine, cut_text};
pub use timing::{EVERY_MIN, Plan, Timing, TimingError, preview};
pub(crate) use timing::{find_zone, instant_of};

use crate::{Bytes, JobSpec, Name, ScheduleId, Span, Wall};

/// Most bytes of a schedule's payload.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a schedule's note.
pub const NOTE_BYTES_MAX: usize = 8 * 1024;
/// Most slots that `catch_up = all` may make up for.
pub const CATCH_UP_MAX: u32 = 10_000;
/// Longest jitter: a slot must not be spread beyond its day.
pub const JITTER_MAX: Span = Span::hours(24);
/// Most slots that a preview shows.
pub const PREVIEW_MAX: usize = 1_000;
/// Stands for the schedule's own id in the session key of a new schedule's template, because a new schedule has no id
/// yet.
pub const SCHEDULE_SELF: &str = "{schedule}";
/// How many entries of the firing log stay in memory.
pub const RECENT_FIRINGS_MAX: usize = 200;

/// The spec of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSpec {
    /// The tenant that may see it.
    pub tenant: Name,
    /// Its name, unique within its tenant.
    pub name: Name,
    /// When its slots are.
    pub timing: Timing,
    /// The job of each slot. Its tenant is the schedule's; times, idempotency key, `retry_of` and `schedule` are left
    /// out.
    pub job: JobSpec,
    /// The payload for the handler, at most [`PAYLOAD_BYTES_MAX`].
    pub payload: Bytes,
    /// False: no slot fires.
    pub enabled: bool,
    /// True: it is deleted once a firing has ended. `None`: true for [`Timing::At`], false for others. Stored: always
    /// `Some`.
    pub delete_after_run: Option<bool>,
    /// The policy for slots that passed while the server was down.
    pub catch_up: CatchUp,
    /// The policy for a slot that comes while an earlier firing is active.
    pub overlap: Overlap,
    /// Jobs start up to this much after their slot, each slot by an amount of its own. 0 = on time.
    pub jitter: Span,
    /// Bytes that an API keeps with it, at most [`NOTE_BYTES_MAX`]. The engine does not look into them.
    pub note: Bytes,
    /// The owner, by a name that an API chooses.
    pub owner: Option<Name>,
}

/// The policy for slots that passed while the server was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// They are skipped; the next slot is the first one after now.
    #[default]
    Skip,
    /// The newest of them fires, the others are skipped.
    Latest,
    /// Each of them fires, oldest first; where there are more than `max`, the newest `max`.
    All {
        /// How many at most, 1 to [`CATCH_UP_MAX`].
        max: u32,
    },
}

/// The policy for a slot that comes while an earlier firing of its schedule is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip = 0,
    /// It fires beside the active one.
    Allow = 1,
    /// It fires when the active one has ended. At most one slot waits in this way; further ones are skipped.
    Queue = 2,
    /// The active one is canceled. The slot fires when it has really ended.
    CancelRunning = 3,
}

/// A schedule as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Its name for the outside.
    pub id: ScheduleId,
    /// The spec, with every default filled in.
    pub spec: ScheduleSpec,
    /// When it was created.
    pub created_at: Wall,
    /// When a call last changed it.
    pub updated_at: Wall,
    /// The part that changes by itself.
    pub state: ScheduleState,
}

/// The part of a schedule that changes when slots come and firings end.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ScheduleState {
    /// The next slot. `None`: none will come.
    pub next_at: Option<Wall>,
    /// The latest slot. No slot up to this one fires again, whatever the clock says.
    pub last_slot: Option<Wall>,
    /// A slot that waits for a firing to end (see [`Overlap`]).
    pub waiting_slot: Option<Wall>,
    /// When its latest firing ended.
    pub last_ended_at: Option<Wall>,
    /// The status of its latest firing.
    pub last_status: Option<FiringStatus>,
    /// The error of its latest firing, if there was one.
    pub last_error: Option<Box<str>>,
    /// How many jobs it created.
    pub firings: u64,
}

/// Changes of a schedule; `None` keeps a field.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct SchedulePatch {
    /// The spec that the patch was made from. Where the schedule has changed since, nothing changes and the answer is
    /// `Stale`.
    pub made_from: Option<Box<ScheduleSpec>>,
    /// A new name.
    pub name: Option<Name>,
    /// A new timing. Missing parts (a zone, an anchor) are kept where the timing stays of its kind.
    pub timing: Option<Timing>,
    /// A new template.
    pub job: Option<Box<JobSpec>>,
    /// A new payload.
    pub payload: Option<Bytes>,
    /// On or off.
    pub enabled: Option<bool>,
    /// Deleted after a firing, or not. Where the kind of the timing changes and this is missing, the default of the
    /// new kind.
    pub delete_after_run: Option<bool>,
    /// A new policy for missed slots.
    pub catch_up: Option<CatchUp>,
    /// A new policy for overlapping slots.
    pub overlap: Option<Overlap>,
    /// A new jitter.
    pub jitter: Option<Span>,
    /// A new note.
    pub note: Option<Bytes>,
    /// A new owner; `Some(None)`: none.
    pub owner: Option<Option<Name>>,
}

/// The schedule and the slot that created a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRef {
    /// The schedule. It may be gone by now.
    pub id: ScheduleId,
    /// Its name when the job was created.
    pub name: Name,
    /// The slot; of a manual fire, the time of the call.
    pub slot: Wall,
    /// True for a manual fire, which stands for no slot.
    pub by_hand: bool,
}

/// When a manual fire happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FireMode {
    /// Always.
    Force,
    /// Only if a slot has come that was not processed yet.
    Due,
}

/// Why a manual fire did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFired {
    /// No slot has come.
    NotDue,
    /// A firing of the schedule has not ended.
    AlreadyRunning,
    /// A firing of the schedule has not started: its job waits.
    AlreadyQueued,
}

impl NotFired {
    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            NotFired::NotDue => "not_due",
            NotFired::AlreadyRunning => "already_running",
            NotFired::AlreadyQueued => "already_queued",
        }
    }
}

impl ScheduleSpec {
    /// An enabled schedule of the job's tenant, without a payload and with the default policies.
    pub fn new(name: Name, timing: Timing, job: JobSpec) -> ScheduleSpec {
        ScheduleSpec {
            tenant: job.tenant.clone(),
            name,
            timing,
            job,
            payload: Bytes::from([]),
            enabled: true,
            delete_after_run: None,
            catch_up: CatchUp::default(),
            overlap: Overlap::default(),
            jitter: Span(0),
            note: Bytes::from([]),
            owner: None,
        }
    }

    /// True when it is deleted once a firing has ended.
    pub fn deletes_itself(&self) -> bool {
        self.delete_after_run.unwrap_or_else(|| self.timing.is_one_shot())
    }
}

impl CatchUp {
    /// Every slot, as far as 100 of them are behind.
    pub const ALL: CatchUp = CatchUp::All { max: 100 };

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            CatchUp::Skip => "skip",
            CatchUp::Latest => "latest",
            CatchUp::All { .. } => "all",
        }
    }
}

impl Overlap {
    /// Every policy, in the order of their codes.
    pub const ALL: [Overlap; 4] = [Overlap::Skip, Overlap::Allow, Overlap::Queue, Overlap::CancelRunning];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Overlap::Skip => "skip",
            Overlap::Allow => "allow",
            Overlap::Queue => "queue",
            Overlap::CancelRunning => "cancel_running",
        }
    }

    /// The policy with this name.
    pub fn parse(name: &str) -> Option<Overlap> {
        Overlap::ALL.into_iter().find(|overlap| overlap.as_str() == name)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The policy of a stored code.
    pub fn from_code(code: u8) -> Option<Overlap> {
        Overlap::ALL.get(usize::from(code)).copied()
    }
}

#[cfg(test)]
mod tests;
