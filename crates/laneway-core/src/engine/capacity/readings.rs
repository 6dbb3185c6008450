//! Readings of the machine, and its capacity for people.

use std::collections::BTreeMap;

use crate::capacity::{BUSY_MAX, CapacitySettings, LoadReading, QuietState};
use crate::engine::Engine;
use crate::engine::capacity::Capacity;
use crate::{Name, Now, Reply};

/// The machine and its jobs, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityView {
    /// The busy rating in force.
    pub busy: u8,
    /// The quiet state in force.
    pub quiet: QuietState,
    /// True while the latest reading is fresh, or the machine is not measured.
    pub fresh: bool,
    /// Units of the whole machine.
    pub total: u32,
    /// Units that open attempts may hold.
    pub usable: u32,
    /// Units that open attempts hold.
    pub used: u32,
    /// Of these, units of jobs that are reserved and not claimed yet.
    pub reserved: u32,
    /// Units that no attempt holds.
    pub free: u32,
    /// Open attempts of lanes with pull workers.
    pub leases: u32,
    /// The job that starts next among those with a cost, because it was bypassed too often.
    pub next_in_line: Option<crate::JobId>,
    /// Units by tenant and agent, for agents that hold some.
    pub by_agent: BTreeMap<(Name, Name), u32>,
}

/// The load of the machine and the units of jobs at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSample {
    /// The busy rating in force, 0 to 10.
    pub busy: u8,
    /// Units that open attempts may hold.
    pub usable: u32,
    /// Units that open attempts hold.
    pub used: u32,
}

impl Capacity {
    /// A probe reports how busy the machine is.
    pub(in crate::engine) fn take_reading(&mut self, now: Now, reading: LoadReading) -> Reply {
        let older = |known: LoadReading| reading.at < known.at;
        if !self.reading.is_some_and(older) {
            let at = reading.at.min(now.mono);
            self.reading = Some(LoadReading { busy: reading.busy.min(BUSY_MAX), at, ..reading });
        }
        Reply::Done
    }

    /// The busy rating and the quiet state in force. Without a fresh reading the machine counts as busy.
    pub(super) fn load(&self, now: Now, settings: &CapacitySettings) -> (u8, QuietState) {
        if !settings.measured {
            return (0, QuietState::Quiet);
        }
        match self.fresh_reading(now, settings) {
            Some(reading) => (reading.busy, reading.quiet),
            None => (settings.failclosed_busy, QuietState::Busy),
        }
    }

    fn fresh_reading(&self, now: Now, settings: &CapacitySettings) -> Option<LoadReading> {
        self.reading.filter(|reading| now.mono.since(reading.at) < settings.stale_after)
    }
}

impl Engine {
    /// The latest reading; an engine that replaces this one must get it.
    pub fn reading(&self) -> Option<LoadReading> {
        self.capacity.reading
    }

    /// The load of the machine and the units of jobs now.
    pub fn load_sample(&self, now: Now) -> LoadSample {
        let settings = &self.settings.capacity;
        let (busy, _) = self.capacity.load(now, settings);
        LoadSample { busy, usable: settings.usable(busy), used: self.capacity.used }
    }

    /// The machine and its jobs, for people.
    pub fn capacity(&self, now: Now) -> CapacityView {
        let settings = &self.settings.capacity;
        let (busy, quiet) = self.capacity.load(now, settings);
        let usable = settings.usable(busy);
        let used = self.capacity.used;
        let mut view = CapacityView {
            busy,
            quiet,
            fresh: !settings.measured || self.capacity.fresh_reading(now, settings).is_some(),
            total: settings.total,
            usable,
            used,
            reserved: 0,
            free: usable.saturating_sub(used),
            leases: u32::try_from(self.leases.len()).unwrap_or(u32::MAX),
            next_in_line: self.capacity.next_in_line.first().map(|&(_, job)| self.jobs[job].id()),
            by_agent: BTreeMap::new(),
        };
        for open in self.jobs.open_attempts() {
            let cost = self.queue.cost_of(&self.jobs[open.job()]);
            if cost == 0 {
                continue;
            }
            if open.started_at().is_none() && open.worker().is_none() {
                view.reserved += cost;
            }
            let (_, tenant, agent) = self.queue.agent_queue_key(self.jobs[open.job()].agent_queue());
            *view.by_agent.entry((self.queue.tenant_name(*tenant).clone(), agent.clone())).or_default() +=
                cost;
        }
        view
    }
}
