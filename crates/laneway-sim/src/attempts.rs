//! Simulated attempts: what really happens at executors after an attempt was offered.
//!
//! An attempt knows only what it was sent. An attached one works from the moment it gets its offer and dies with the
//! process. A leased one asks before it works, and stops by itself when its lease or its timeout ends by its own clock,
//! so that no job runs twice at the same time, whatever the state of the server is.

use laneway_core::effect::Offer;
use laneway_core::lease::Grant;
use laneway_core::{ConnectionId, Fence, JobId, JobState, Name};

/// One simulated attempt.
#[derive(Clone, Debug)]
pub struct SimAttempt {
    /// The attempt.
    pub fence: Fence,
    /// Where it runs.
    pub executor: Name,
    /// True: it lives by heartbeats and outlives the server's process.
    pub leased: bool,
    /// What it does.
    pub phase: Phase,
    /// It was asked to stop.
    pub asked_to_stop: bool,
    /// It does not listen when it is asked to stop.
    pub stubborn: bool,
    /// Its reports do not reach the server.
    pub cut: bool,
    /// For one at a worker: over which connection it was offered.
    pub at: Option<At>,
    /// Its time runs since it was offered: it was given what is left of it.
    pub timed: bool,
    /// For a middleware: what it has called.
    pub caller: Option<Caller>,
    timeout: u64,
    began: u64,
    /// Until when it may work without an answer, by its own clock.
    lease_until: u64,
}

/// What an attempt of a middleware knows of its calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its position in its chain.
    pub index: u32,
    /// Calls it has made.
    pub calls: u32,
    /// It waits for the answer of its latest call.
    pub waits: bool,
}

/// The worker's view of an attempt.
#[derive(Clone, Debug)]
pub struct At {
    /// The connection over which it was offered.
    pub connection: ConnectionId,
    /// The worker's process that got the offer.
    pub process: u64,
    /// Which dispatch of the job it is.
    pub dispatch_seq: u64,
    /// It was accepted over this connection.
    pub accepted: bool,
}

/// What an attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It knows of the attempt and has not begun.
    Offered,
    /// It works.
    Working,
    /// It has really ended, perhaps without a report.
    Ended,
}

impl SimAttempt {
    /// An attempt that was just offered.
    pub fn new(offer: &Offer, leased: bool, at: u64) -> SimAttempt {
        SimAttempt {
            fence: offer.fence,
            executor: offer.executor.clone(),
            leased,
            phase: if leased { Phase::Offered } else { Phase::Working },
            asked_to_stop: false,
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

    /// An attempt that its worker requested.
    pub fn granted(grant: &Grant, at: u64) -> SimAttempt {
        let running = grant.state == JobState::Running;
        SimAttempt {
            fence: grant.fence,
            executor: Name::fixed("leases"),
            leased: true,
            phase: if running { Phase::Working } else { Phase::Offered },
            asked_to_stop: false,
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

    /// It may work on for this long, counted from when it asked.
    pub fn renewed(&mut self, asked_at: u64, lease: u64) {
        if self.phase == Phase::Offered {
            self.phase = Phase::Working;
            if !self.timed {
                self.began = asked_at;
            }
        }
        self.lease_until = asked_at.saturating_add(lease);
    }

    /// Time passes: a leased attempt stops by itself when its lease or its timeout ends.
    pub fn looks_at_clock(&mut self, at: u64) {
        if self.leased
            && self.works()
            && (self.lease_until <= at || self.began.saturating_add(self.timeout) <= at)
        {
            self.phase = Phase::Ended;
        }
    }
}

/// A job with two attempts that work at the same time, if there is one.
pub fn doubled(attempts: &[SimAttempt]) -> Option<JobId> {
    let mut working: Vec<JobId> =
        attempts.iter().filter(|attempt| attempt.works()).map(|attempt| attempt.fence.job).collect();
    working.sort_unstable();
    working.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
