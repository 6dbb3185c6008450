//! The runs that the world acts out: what really happens at places after an attempt was offered.
//!
//! A run knows only what it was told. An attached one works from the moment it hears of its attempt and dies with the
//! process. A leased one asks before it works, and stops by itself when its lease or its timeout ends by its own clock,
//! so that nothing runs twice at the same time, whatever the house believes.

use laneway_core::effect::Offer;
use laneway_core::lease::Grant;
use laneway_core::{ConnectionId, Fence, JobId, JobState, Name};

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The attempt.
    pub fence: Fence,
    /// Where it runs.
    pub executor: Name,
    /// True: it lives by heartbeats and outlives the house's process.
    pub leased: bool,
    /// What it does.
    pub phase: Phase,
    /// It was told to stop.
    pub told_to_stop: bool,
    /// It does not listen when it is told to stop.
    pub stubborn: bool,
    /// Nobody hears it.
    pub cut: bool,
    /// For one at a worker: over which connection it was told of.
    pub at: Option<At>,
    /// Its time runs since it was told of the attempt: it was given what is left of it.
    pub timed: bool,
    /// For a middleware: what it has called.
    pub caller: Option<Caller>,
    timeout: u64,
    began: u64,
    /// Until when it may work without an answer, by its own clock.
    lease_until: u64,
}

/// What a middleware's run knows of its calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its place in its chain.
    pub index: u32,
    /// Calls it has made.
    pub calls: u32,
    /// It waits for the answer of its latest call.
    pub waits: bool,
}

/// Where a worker's run stands.
#[derive(Clone, Debug)]
pub struct At {
    /// The connection over which it was told of.
    pub connection: ConnectionId,
    /// The worker's process that was told.
    pub process: u64,
    /// Which dispatch of the job it is.
    pub dispatch_seq: u64,
    /// The house heard over this connection that it was taken.
    pub accepted: bool,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It knows of the attempt and has not begun.
    Offered,
    /// It works.
    Working,
    /// It has really ended, but perhaps nobody knows.
    Ended,
}

impl Run {
    /// A run that just heard of its attempt.
    pub fn new(offer: &Offer, leased: bool, at: u64) -> Run {
        Run {
            fence: offer.fence,
            executor: offer.executor.clone(),
            leased,
            phase: if leased { Phase::Offered } else { Phase::Working },
            told_to_stop: false,
            stubborn: false,
            cut: false,
            at: None,
            timed: false,
            caller: None,
            timeout: offer.timeout.map_or(u64::MAX, |timeout| timeout.0),
            began: at,
            lease_until: u64::MAX,
        }
    }

    /// A run that its worker asked for.
    pub fn granted(grant: &Grant, at: u64) -> Run {
        let running = grant.state == JobState::Running;
        Run {
            fence: grant.fence,
            executor: Name::fixed("leases"),
            leased: true,
            phase: if running { Phase::Working } else { Phase::Offered },
            told_to_stop: false,
            stubborn: false,
            cut: false,
            at: None,
            timed: false,
            caller: None,
            timeout: grant.timeout.0,
            began: at,
            lease_until: if running { at.saturating_add(grant.lease.0) } else { u64::MAX },
        }
    }

    /// True until it has really ended.
    pub fn lives(&self) -> bool {
        self.phase != Phase::Ended
    }

    /// True while it really works.
    pub fn works(&self) -> bool {
        self.phase == Phase::Working
    }

    /// It was told that it may work on for this long, counted from when it asked.
    pub fn renewed(&mut self, asked_at: u64, lease: u64) {
        if self.phase == Phase::Offered {
            self.phase = Phase::Working;
            if !self.timed {
                self.began = asked_at;
            }
        }
        self.lease_until = asked_at.saturating_add(lease);
    }

    /// Time passes: a leased run stops by itself when its lease or its timeout ends.
    pub fn looks_at_clock(&mut self, at: u64) {
        if self.leased
            && self.works()
            && (self.lease_until <= at || self.began.saturating_add(self.timeout) <= at)
        {
            self.phase = Phase::Ended;
        }
    }
}

/// Two runs of one job that work at the same time, if there are any.
pub fn doubled(runs: &[Run]) -> Option<JobId> {
    let mut working: Vec<JobId> = runs.iter().filter(|run| run.works()).map(|run| run.fence.job).collect();
    working.sort_unstable();
    working.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
