//! A job in memory. It holds no strings: a million jobs stay small.

use crate::capacity::Hours;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::attempt::Open;
use crate::engine::jobs::optional_time::{MaybeMono, MaybeWall};
use crate::engine::queue::{AgentQueue, Bin, Class, KeySet};
use crate::engine::sessions::SessionEntry;
use crate::{JobId, JobState, Mono, Now, RetryPolicy, Span, Wall};

/// A live job, or an ended one whose attempt has not ended yet. Holds no strings.
pub(in crate::engine) struct Job {
    pub(super) id: JobId,
    pub(super) seq: u64,
    pub(super) rank_time: u64,
    pub(super) last_event: u64,
    pub(super) created_at: Wall,
    /// `None`: it has none of these times, as most jobs.
    pub(super) times: Option<Box<Times>>,
    pub(super) timeout_ms: u64,
    pub(super) priority: i32,
    pub(super) agent_queue: Ix<AgentQueue>,
    pub(super) class: Ix<Class>,
    pub(super) session: Option<Ix<SessionEntry>>,
    pub(super) keyset: Option<Ix<KeySet>>,
    pub(super) policy: Ix<RetryPolicy>,
    /// The bin in which it waits.
    pub(super) bin: Option<Ix<Bin>>,
    pub(super) session_max: u32,
    /// It ended the jobs of its session that came before it, and waits until the last of their attempts has ended.
    pub(super) interrupts: bool,
    pub(super) attempts: u32,
    pub(super) failures: u32,
    pub(super) losses: u32,
    pub(super) rejections: u32,
    /// The hours in which it starts.
    pub(super) hours: Option<Ix<Hours>>,
    pub(super) state: JobState,
    /// True when its end is sent to a callback.
    pub(super) has_callback: bool,
    /// How often a younger job started while this one waited for units alone.
    pub(super) bypassed: u8,
    /// True once its deadline is near.
    pub(super) near: bool,
    /// True: only for a pull worker that holds nothing else.
    pub(super) unique: bool,
    /// True for a member of a workflow run. `Workflows` knows which one.
    pub(super) in_run: bool,
    /// The open attempt.
    pub(super) open: Option<Ix<Open>>,
    /// Its entries in the timers.
    pub(super) armed: Armed,
}

impl Job {
    pub(in crate::engine) fn id(&self) -> JobId {
        self.id
    }

    /// Its number: jobs are numbered in the order of their submits.
    pub(in crate::engine) fn seq(&self) -> u64 {
        self.seq
    }

    pub(in crate::engine) fn state(&self) -> JobState {
        self.state
    }

    pub(in crate::engine) fn created_at(&self) -> Wall {
        self.created_at
    }

    pub(in crate::engine) fn deadline(&self) -> MaybeWall {
        self.times().deadline
    }

    pub(in crate::engine) fn timeout(&self) -> Span {
        Span(self.timeout_ms)
    }

    pub(in crate::engine) fn priority(&self) -> i32 {
        self.priority
    }

    /// When it might first have started, on the engine's own clock.
    pub(in crate::engine) fn rank_time(&self) -> u64 {
        self.rank_time
    }

    /// What a scheduled job waits for.
    pub(in crate::engine) fn wake(&self) -> Option<Wake> {
        self.times().wake
    }

    /// Its times.
    #[inline]
    pub(super) fn times(&self) -> &Times {
        const NONE: &Times = &Times::NONE;
        self.times.as_deref().unwrap_or(NONE)
    }

    /// Changes its times.
    #[inline]
    pub(super) fn change_times(&mut self, change: impl FnOnce(&mut Times)) {
        let mut times = *self.times();
        change(&mut times);
        match &mut self.times {
            _ if times == Times::NONE => self.times = None,
            Some(kept) => **kept = times,
            None => self.times = Some(Box::new(times)),
        }
    }

    /// It waits for this before it is queued; `None`: for nothing.
    pub(super) fn set_wake(&mut self, wake: Option<Wake>) {
        if self.wake() != wake {
            self.change_times(|times| times.wake = wake);
        }
    }

    /// Its queue timeout does not run any more.
    pub(super) fn end_queue_timeout(&mut self) {
        if self.times().queue_until != MaybeMono::NONE {
            self.change_times(|times| times.queue_until = MaybeMono::NONE);
        }
    }

    /// True once its deadline is near.
    pub(in crate::engine) fn near(&self) -> bool {
        self.near
    }

    pub(in crate::engine) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// True while it has an open attempt.
    pub(in crate::engine) fn has_attempt(&self) -> bool {
        self.open.is_some()
    }

    /// True for a member of a workflow run.
    pub(in crate::engine) fn in_run(&self) -> bool {
        self.in_run
    }

    pub(in crate::engine) fn has_callback(&self) -> bool {
        self.has_callback
    }

    /// True: only for a pull worker that holds nothing else.
    pub(in crate::engine) fn unique(&self) -> bool {
        self.unique
    }

    pub(in crate::engine) fn agent_queue(&self) -> Ix<AgentQueue> {
        self.agent_queue
    }

    pub(in crate::engine) fn class(&self) -> Ix<Class> {
        self.class
    }

    pub(in crate::engine) fn keyset(&self) -> Option<Ix<KeySet>> {
        self.keyset
    }

    /// The bin in which it waits.
    pub(in crate::engine) fn bin(&self) -> Option<Ix<Bin>> {
        self.bin
    }

    pub(in crate::engine) fn session(&self) -> Option<Ix<SessionEntry>> {
        self.session
    }

    /// Most jobs of its session that run at once, as it asked for.
    pub(in crate::engine) fn session_max(&self) -> u32 {
        self.session_max
    }

    /// True: it ended the jobs of its session that came before it.
    pub(in crate::engine) fn interrupts(&self) -> bool {
        self.interrupts
    }

    /// Its open attempt. It must have one.
    pub(super) fn attempt(&self) -> Ix<Open> {
        self.open.expect("the job has an open attempt")
    }

    pub(in crate::engine) fn set_bin(&mut self, bin: Ix<Bin>) {
        self.bin = Some(bin);
    }

    /// It leaves the bin in which it waits.
    pub(in crate::engine) fn take_bin(&mut self) -> Option<Ix<Bin>> {
        self.bin.take()
    }

    pub(in crate::engine) fn set_class(&mut self, class: Ix<Class>) {
        self.class = class;
    }

    /// A scheduled job waits for something. Its queue timeout does not run meanwhile.
    pub(in crate::engine) fn wait_for(&mut self, wake: Wake) {
        self.change_times(|times| {
            times.wake = Some(wake);
            times.queue_until = MaybeMono::NONE;
        });
    }

    /// The job may start from now on, so its queue timeout begins.
    pub(in crate::engine) fn begin_queue_timeout(&mut self, from: Mono) {
        if self.attempts == 0
            && let Some(timeout) = self.times().queue_timeout
        {
            self.change_times(|times| times.queue_until = Some(from + timeout).into());
        }
    }

    /// The queue timeout goes on after a restart: the time before it counts.
    pub(in crate::engine) fn resume_queue_timeout(&mut self, now: Mono, waited: Span) {
        self.begin_queue_timeout(now);
        if self.times().queue_until != MaybeMono::NONE
            && let Some(timeout) = self.times().queue_timeout
        {
            let left = Span(timeout.0.saturating_sub(waited.0));
            self.change_times(|times| times.queue_until = Some(now + left).into());
        }
    }

    /// An attempt from before a restart is open.
    pub(in crate::engine) fn resume_attempt(&mut self, attempt: u32, last_event: u64) {
        self.set_wake(None);
        self.end_queue_timeout();
        self.attempts = attempt;
        self.last_event = self.last_event.max(last_event);
    }

    /// True when the job must not start any more, although no timer has fired yet.
    pub(in crate::engine) fn is_overdue(&self, now: Now) -> bool {
        let times = self.times();
        times.deadline.is_due(now.wall) || times.queue_until.is_due(now.mono)
    }

    /// One more worker did not take it. Returns how many did not.
    pub(in crate::engine) fn count_rejection(&mut self) -> u32 {
        self.rejections = self.rejections.saturating_add(1);
        self.rejections
    }

    /// Failures, losses and rejections are counted from zero again: every call of a node has its own retries.
    pub(in crate::engine) fn reset_retries(&mut self) {
        (self.failures, self.losses, self.rejections) = (0, 0, 0);
    }

    /// A younger job starts while this one waits for units. Returns how often that happened.
    pub(in crate::engine) fn bypass(&mut self) -> u8 {
        self.bypassed = self.bypassed.saturating_add(1);
        self.bypassed
    }

    /// Forgets how often it was bypassed. True when it was.
    pub(in crate::engine) fn clear_bypassed(&mut self) -> bool {
        std::mem::take(&mut self.bypassed) > 0
    }
}

/// The times of a job that few jobs have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Times {
    pub(super) deadline: MaybeWall,
    /// For a scheduled job: when it becomes queued.
    pub(super) wake: Option<Wake>,
    /// How long it may wait for its first attempt.
    pub(super) queue_timeout: Option<Span>,
    /// Until when its first attempt must open.
    pub(super) queue_until: MaybeMono,
    /// When its deadline is near; none once it is, or where that means nothing.
    pub(super) near_at: MaybeWall,
    /// For a queued job: when its hours end.
    pub(super) hours_end: MaybeWall,
}

impl Times {
    /// None of them.
    pub(super) const NONE: Times = Times {
        deadline: MaybeWall::NONE,
        wake: None,
        queue_timeout: None,
        queue_until: MaybeMono::NONE,
        near_at: MaybeWall::NONE,
        hours_end: MaybeWall::NONE,
    };
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
        assert_eq!([size_of::<Job>(), size_of::<Open>()], [144, 160]);
    }
}
