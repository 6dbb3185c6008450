//! The engine: holds every live job in memory and decides.
//!
//! `apply` takes one command at one time, changes memory, and appends what follows to `Effects`. One file per verb; the
//! structures they share are in `engine/state.rs`, the order of dispatch in `engine/dispatch.rs`.

mod explain;
mod stats;

pub use explain::{Explanation, Hold};
pub use stats::{AgentStats, LaneStats, Stats};

use crate::{Command, Effects, Event, JobId, JobRow, JobState, Mono, Name, Now, OpenAttempt, PlaceOffer, Reply, Settings, TokenRecord, Wall};

/// The engine. One loop owns it.
pub struct Engine {
    settings: Settings,
}

/// When the engine wants to look at the clock again: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wakeup {
    /// On the monotonic clock.
    pub mono: Option<Mono>,
    /// On the wall clock.
    pub wall: Option<Wall>,
}

/// What the store says besides jobs: where its numbers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Head {
    /// Highest job number ever given, purged ones included.
    pub last_seq: u64,
    /// Highest event number ever given, purged ones included.
    pub last_event: u64,
    /// Highest rank time ever given to a job that is still stored.
    pub last_rank_time: u64,
}

/// Why the engine is built from stored rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The process is new: what ran attached died with the old one and is closed as lost.
    Process,
    /// The same process threw its memory away: attached runs still go on.
    Rebuild,
}

/// Builds an engine from stored rows: first every live job, then every open attempt, then `finish`.
pub struct Recovery {}

impl Recovery {
    /// Begins with settings, tokens and where the store's numbers stand. `seed` must differ from boot to boot: ids and
    /// jitter are drawn from it.
    pub fn new(_settings: Settings, _tokens: Vec<TokenRecord>, _head: Head, _seed: u64, _now: Now) -> Recovery {
        panic!()
    }

    /// Takes up a live job.
    pub fn job(&mut self, _row: JobRow) {}

    /// Takes up the open attempt of a live job.
    pub fn open(&mut self, _open: OpenAttempt) {}

    /// Takes up an open attempt whose job has ended already: it holds its gates until its run has ended.
    pub fn lingering(&mut self, _row: JobRow, _open: OpenAttempt) {}

    /// The engine, and what follows from the restart (to be committed before anything else).
    pub fn finish(self, _now: Now, _restart: Restart, _effects: &mut Effects) -> Engine {
        panic!()
    }
}

impl Engine {
    /// An empty engine.
    pub fn new(settings: Settings, seed: u64, now: Now) -> Engine {
        Recovery::new(settings, Vec::new(), Head::default(), seed, now).finish(now, Restart::Process, &mut Effects::default())
    }

    /// Takes one command at one time and runs dispatch to quiescence. Effects are appended.
    pub fn apply(&mut self, _now: Now, _command: Command, _effects: &mut Effects) -> Reply {
        panic!()
    }

    /// Everything so far is durable: the store answers for idempotency keys from here on.
    pub fn committed(&mut self) {}

    /// When to apply `Command::Tick` at the latest.
    pub fn next_wakeup(&self) -> Wakeup {
        panic!()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Every token, revoked ones included, by id.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenRecord> {
        std::iter::empty()
    }

    /// What the places offer now; to be given again to an engine that replaces this one.
    pub fn offers(&self) -> Vec<PlaceOffer> {
        panic!()
    }

    /// The state of a live job.
    pub fn state_of(&self, _job: JobId) -> Option<JobState> {
        panic!()
    }

    /// Why a live job does not run: every closed gate. `None`: no live job of that name for this tenant.
    pub fn explain(&self, _now: Now, _tenant: Option<&Name>, _job: JobId) -> Option<Explanation> {
        panic!()
    }

    /// Figures of now. With a tenant: only what is that tenant's.
    pub fn stats(&self, _tenant: Option<&Name>) -> Stats {
        panic!()
    }

    /// Recounts everything from the jobs and compares; says what does not agree.
    pub fn check_invariants(&self) -> Result<(), String> {
        panic!()
    }
}

const _: fn(Event) = |_| {};
