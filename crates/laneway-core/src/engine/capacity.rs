//! The capacity of the machine: readings, units, and which jobs there is free capacity for.

pub(in crate::engine) mod admission;
mod denials;
mod free;
pub(in crate::engine) mod readings;

pub(in crate::engine) use free::FreeCapacity;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::capacity::LoadReading;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::lease::Decision;
use crate::{Mono, Span};
use denials::Shortage;

/// Units of the machine, its readings, and the latest decisions.
#[derive(Default)]
pub(in crate::engine) struct Capacity {
    /// The latest reading.
    reading: Option<LoadReading>,
    /// Units that open attempts hold.
    used: u32,
    /// Jobs that are next in line because they were bypassed too often, the oldest first.
    next_in_line: BTreeSet<(u64, Ix<Job>)>,
    /// The latest decisions, the newest last.
    decisions: VecDeque<Decision>,
    /// For waiting jobs that were denied, by shortage: the pause before the next event about it, and when it ends.
    denied: BTreeMap<(Ix<Job>, Shortage), (Span, Mono)>,
    /// How often live jobs were denied. A side map: few are.
    denials: BTreeMap<Ix<Job>, u32>,
}

impl Capacity {
    /// An attempt with this cost opened.
    pub(in crate::engine) fn take(&mut self, cost: u32) {
        self.used += cost;
    }

    /// An attempt with this cost closed.
    pub(in crate::engine) fn give_back(&mut self, cost: u32) {
        self.used -= cost;
    }

    /// Units that open attempts hold.
    pub(in crate::engine) fn used(&self) -> u32 {
        self.used
    }
}
