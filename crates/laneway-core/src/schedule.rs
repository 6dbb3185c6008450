//! A schedule: makes jobs at a time, in an interval, or by a cron expression.
//!
//! A schedule is a template of a job and a timing. Each moment that the timing names is a **slot**; a slot makes at most
//! one job, whatever crashes. When slots lie is in `schedule/timing.rs` (and `schedule/cron.rs`), what is kept of runs in
//! `schedule/firing_log.rs`, what the engine does with all of that in `engine/schedules/commands.rs`. What users read about it is
//! `docs/schedules.md`.

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
/// Most runs that a preview shows.
pub const PREVIEW_MAX: usize = 1_000;
/// Stands in the session key of a new schedule's template for the schedule's own id, which nobody knows before it is made.
pub const SCHEDULE_SELF: &str = "{schedule}";
/// How many entries of the run log stay in memory.
pub const RECENT_FIRINGS_MAX: usize = 200;

/// What is asked of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSpec {
    /// Who may see it.
    pub tenant: Name,
    /// Its name, unique within its tenant.
    pub name: Name,
    /// When its slots are.
    pub timing: Timing,
    /// What each slot makes. Its tenant is the schedule's; times, idempotency key, `retry_of` and `schedule` are left out.
    pub job: JobSpec,
    /// What the handler gets, at most [`PAYLOAD_BYTES_MAX`].
    pub payload: Bytes,
    /// False: no slot comes.
    pub enabled: bool,
    /// True: it is deleted once its run has ended. `None`: true for [`Timing::At`], false for others. Stored: always `Some`.
    pub delete_after_run: Option<bool>,
    /// What becomes of slots that passed while nobody was there.
    pub catch_up: CatchUp,
    /// What a slot does that finds an earlier run still going.
    pub overlap: Overlap,
    /// Jobs start up to this much after their slot, each slot by an amount of its own. 0 = on time.
    pub jitter: Span,
    /// Bytes that a surface keeps with it, at most [`NOTE_BYTES_MAX`]. The engine does not look into them.
    pub note: Bytes,
    /// Whose it is, in the words of a surface.
    pub owner: Option<Name>,
}

/// What becomes of slots that passed while nobody was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// They are skipped; the next slot is the first one after now.
    #[default]
    Skip,
    /// The newest of them runs, the others are skipped.
    Latest,
    /// Each of them runs, oldest first; where there are more than `max`, the newest `max`.
    All {
        /// How many at most, 1 to [`CATCH_UP_MAX`].
        max: u32,
    },
}

/// What a slot does that finds an earlier run of its schedule still going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip = 0,
    /// It runs beside it.
    Allow = 1,
    /// It runs when the other one has ended; at most one slot waits so, further ones are skipped.
    Queue = 2,
    /// The other one is canceled; when it has really ended, the slot runs.
    CancelRunning = 3,
}

/// A schedule as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Its name for the outside.
    pub id: ScheduleId,
    /// What was asked for, with every default filled in.
    pub spec: ScheduleSpec,
    /// When it was made.
    pub created_at: Wall,
    /// When somebody changed it last.
    pub updated_at: Wall,
    /// The part that changes by itself.
    pub state: ScheduleState,
}

/// What changes of a schedule when slots come and runs end.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ScheduleState {
    /// The next slot. `None`: none will come.
    pub next_at: Option<Wall>,
    /// The latest slot that came; no slot up to this one ever comes again, whatever the clock says.
    pub last_slot: Option<Wall>,
    /// A slot that waits for a run to end (see [`Overlap`]).
    pub waiting_slot: Option<Wall>,
    /// When its latest run ended.
    pub last_ended_at: Option<Wall>,
    /// How its latest run stands or ended.
    pub last_status: Option<FiringStatus>,
    /// What went wrong in its latest run, if something did.
    pub last_error: Option<Box<str>>,
    /// How many jobs it made.
    pub firings: u64,
}

/// What is to be changed of a schedule; `None` keeps what is there.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct SchedulePatch {
    /// What the patch was made from. Where the schedule is another by now, nothing changes and the answer is `Stale`.
    pub made_from: Option<Box<ScheduleSpec>>,
    /// A new name.
    pub name: Option<Name>,
    /// A new timing. Left-out parts (a zone, an anchor) are kept where the timing stays of its sort.
    pub timing: Option<Timing>,
    /// A new template.
    pub job: Option<Box<JobSpec>>,
    /// A new payload.
    pub payload: Option<Bytes>,
    /// On or off.
    pub enabled: Option<bool>,
    /// Deleted after its run, or not. Where the sort of the timing changes and this says nothing, the new sort's default.
    pub delete_after_run: Option<bool>,
    /// A new policy for missed slots.
    pub catch_up: Option<CatchUp>,
    /// A new policy for slots that meet a run.
    pub overlap: Option<Overlap>,
    /// A new jitter.
    pub jitter: Option<Span>,
    /// A new note.
    pub note: Option<Bytes>,
    /// A new owner; `Some(None)`: nobody.
    pub owner: Option<Option<Name>>,
}

/// Names the schedule and the slot that made a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRef {
    /// The schedule. It may be gone by now.
    pub id: ScheduleId,
    /// Its name when the job was made.
    pub name: Name,
    /// The slot; for a run by hand, when it was asked for.
    pub slot: Wall,
    /// True: somebody asked for this run. It stands for no slot.
    pub by_hand: bool,
}

/// How a run by hand is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FireMode {
    /// Now, whatever the timing says.
    Force,
    /// Only if a slot has come that was not looked at yet.
    Due,
}

/// Why a run by hand did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFired {
    /// No slot has come.
    NotDue,
    /// A run of the schedule has not ended.
    AlreadyRunning,
    /// A run of the schedule has not started: its job waits.
    AlreadyQueued,
}

impl NotFired {
    /// The word users see.
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

    /// True when it is deleted once its run has ended.
    pub fn deletes_itself(&self) -> bool {
        self.delete_after_run.unwrap_or_else(|| self.timing.is_one_shot())
    }
}

impl CatchUp {
    /// Every slot, as far as 100 of them are behind.
    pub const ALL: CatchUp = CatchUp::All { max: 100 };

    /// The word users see.
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

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Overlap::Skip => "skip",
            Overlap::Allow => "allow",
            Overlap::Queue => "queue",
            Overlap::CancelRunning => "cancel_running",
        }
    }

    /// The policy that `word` names.
    pub fn parse(word: &str) -> Option<Overlap> {
        Overlap::ALL.into_iter().find(|overlap| overlap.as_str() == word)
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
