//! The free capacity of the machine at one moment, and which demands it is enough for.

use crate::Now;
use crate::capacity::{CapacitySettings, QuietState};
use crate::engine::capacity::Capacity;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::Demand;
use crate::lease::DenyReason;

/// The free capacity of the machine, for one decision.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct FreeCapacity {
    busy: u8,
    quiet: QuietState,
    /// Units that open attempts may hold.
    usable: u32,
    /// Units that open attempts hold.
    used: u32,
    /// Units that no attempt holds.
    free: u32,
    /// The oldest job that is next in line and that only units block, with its cost.
    next_in_line: Option<(Ix<Job>, u32)>,
}

impl Capacity {
    /// The free capacity, without a job that is next in line.
    pub(in crate::engine) fn free(&self, now: Now, settings: &CapacitySettings) -> FreeCapacity {
        let (busy, quiet) = self.load(now, settings);
        let (usable, used) = (settings.usable(busy), self.used);
        FreeCapacity { busy, quiet, usable, used, free: usable.saturating_sub(used), next_in_line: None }
    }
}

impl FreeCapacity {
    /// The same, with a job that is next in line.
    pub(super) fn reserved_for(self, next_in_line: (Ix<Job>, u32)) -> FreeCapacity {
        FreeCapacity { next_in_line: Some(next_in_line), ..self }
    }

    /// The job that all free units are reserved for, with its cost.
    pub(in crate::engine) fn next_in_line(&self) -> Option<(Ix<Job>, u32)> {
        self.next_in_line
    }

    pub(in crate::engine) fn quiet(&self) -> QuietState {
        self.quiet
    }

    /// Units that open attempts may hold.
    pub(in crate::engine) fn usable(&self) -> u32 {
        self.usable
    }

    /// Units that no attempt holds.
    pub(in crate::engine) fn units(&self) -> u32 {
        self.free
    }

    /// True when a job with this demand may start, as far as the machine is concerned.
    pub(in crate::engine) fn fits(&self, demand: Demand) -> bool {
        self.is_quiet_for(demand) && self.has_units_for(demand.cost())
    }

    pub(in crate::engine) fn is_quiet_for(&self, demand: Demand) -> bool {
        demand.rule().is_none_or(|rule| rule.allows(self.quiet))
    }

    pub(in crate::engine) fn has_units_for(&self, cost: u32) -> bool {
        cost == 0 || (cost <= self.free && self.next_in_line.is_none())
    }

    /// True when only the units of others block this demand.
    pub(super) fn lacks_only_units_for(&self, demand: Demand) -> bool {
        demand.cost() > self.free && demand.cost() <= self.usable && self.is_quiet_for(demand)
    }

    /// Why a job with this demand cannot start now; `None` when it can.
    pub(in crate::engine) fn denial(&self, demand: Demand) -> Option<DenyReason> {
        if !self.is_quiet_for(demand) {
            return Some(match self.quiet {
                QuietState::Panic => DenyReason::Panic,
                state => DenyReason::NotQuiet { state },
            });
        }
        if self.has_units_for(demand.cost()) {
            return None;
        }
        let FreeCapacity { busy, usable, used, .. } = *self;
        Some(match self.free {
            0 => DenyReason::NoCapacity { busy, usable, used },
            free if demand.cost() <= free => DenyReason::Reserved,
            free => DenyReason::NeedsMore { needed: demand.cost(), free },
        })
    }

    /// The text of a denial.
    pub(super) fn denial_text(&self, demand: Demand, reason: &DenyReason) -> Box<str> {
        let FreeCapacity { busy, quiet, usable, used, free, .. } = self;
        let (code, cost, quiet) = (reason.as_str(), demand.cost(), quiet.as_str());
        format!("{code}: needs {cost} of {free} free units ({used} of {usable} in use), busy {busy}, {quiet}")
            .into()
    }
}
