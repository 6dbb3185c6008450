//! A job in memory. It holds no strings: a million jobs stay small.

use crate::capacity::Hours;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::attempt::Open;
use crate::engine::jobs::optional_time::{MaybeMono, MaybeWall};
use crate::engine::queue::{AgentQueue, Bin, Class, KeySet};
use crate::engine::sessions::SessionEntry;
use crate::{JobId, JobState, Mono, RetryPolicy, Wall};

/// A live job, or an ended one whose run has not ended yet. Holds no strings.
pub(in crate::engine) struct Job {
    pub(in crate::engine) id: JobId,
    pub(in crate::engine) seq: u64,
    pub(in crate::engine) rank_time: u64,
    pub(in crate::engine) last_event: u64,
    pub(in crate::engine) created_at: Wall,
    pub(in crate::engine) deadline: MaybeWall,
    /// For a scheduled job: when it becomes queued.
    pub(in crate::engine) wake: Option<Wake>,
    /// Until when its first attempt must open.
    pub(in crate::engine) queue_until: MaybeMono,
    /// When its deadline is near; none once it is, or where that means nothing.
    pub(in crate::engine) near_at: MaybeWall,
    /// For a queued job: when its hours end.
    pub(in crate::engine) hours_end: MaybeWall,
    pub(in crate::engine) timeout_ms: u64,
    pub(in crate::engine) queue_timeout_ms: u64,
    pub(in crate::engine) priority: i32,
    pub(in crate::engine) node: Ix<AgentQueue>,
    pub(in crate::engine) class: Ix<Class>,
    pub(in crate::engine) session: Option<Ix<SessionEntry>>,
    pub(in crate::engine) keyset: Option<Ix<KeySet>>,
    pub(in crate::engine) policy: Ix<RetryPolicy>,
    /// The bin it waits in.
    pub(in crate::engine) bin: Option<Ix<Bin>>,
    pub(in crate::engine) session_max: u32,
    /// It ended the jobs of its session that came before it, and waits for the last of their runs.
    pub(in crate::engine) interrupts: bool,
    pub(in crate::engine) attempts: u32,
    pub(in crate::engine) failures: u32,
    pub(in crate::engine) losses: u32,
    pub(in crate::engine) rejections: u32,
    /// The hours in which it starts.
    pub(in crate::engine) hours: Option<Ix<Hours>>,
    pub(in crate::engine) state: JobState,
    /// True when somebody is owed the news of its end.
    pub(in crate::engine) has_callback: bool,
    /// How often a younger job started while others' units alone held this one back.
    pub(in crate::engine) bypassed: u8,
    /// True once its deadline is near.
    pub(in crate::engine) near: bool,
    /// True: only for a worker that holds nothing else, where workers ask.
    pub(in crate::engine) unique: bool,
    /// True for a member of a run; what its run knows of it is in a map of its own.
    pub(in crate::engine) in_run: bool,
    /// The open attempt.
    pub(in crate::engine) open: Option<Ix<Open>>,
    /// Its entries in the timers.
    pub(in crate::engine) armed: Armed,
}

impl Job {
    /// Its open attempt. It must have one.
    pub(in crate::engine) fn attempt(&self) -> Ix<Open> {
        self.open.expect("the job has an open attempt")
    }
}

/// When a scheduled job becomes queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Wake {
    /// Not before this time.
    NotBefore(Wall),
    /// Not before this backoff has passed.
    Backoff(Mono),
    /// Not before this debounce window has passed; others may still join it.
    Debounce(Mono),
    /// Not before other nodes of its run have ended well.
    Upstream,
    /// Not before another node of its run calls it.
    Called,
}

/// What the timers hold for a job.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::engine) struct Armed {
    pub(in crate::engine) mono: MaybeMono,
    pub(in crate::engine) wall: MaybeWall,
}

#[cfg(test)]
mod tests {
    use super::{Job, Open};

    /// There may be a million of them.
    #[test]
    fn a_job_and_an_attempt_stay_small() {
        assert_eq!([size_of::<Job>(), size_of::<Open>()], [192, 160]);
    }
}
