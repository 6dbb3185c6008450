//! A lane and its tree of heads. `tree.rs` keeps the tree up to date.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::collections::slab::Ix;
use crate::engine::collections::tournament::Tournament;
use crate::engine::jobs::Job;
use crate::engine::jobs::recorded_rejections::RejectionWindow;
use crate::engine::queue::agent_queue::{AgentEntry, AgentQueue};
use crate::engine::queue::class::{Class, Demand};
use crate::engine::queue::rank::FairKey;
use crate::engine::queue::shares::Share;
use crate::engine::queue::source::{SourceKey, Sources};
use crate::{LaneSettings, Name};

/// A lane and its tree of heads.
pub(in crate::engine) struct Lane {
    pub(super) name: Name,
    pub(super) settings: LaneSettings,
    pub(super) open: u32,
    pub(super) waiting: u32,
    /// The parts of its queue that are reserved for tenants.
    pub(super) share: Share,
    pub(super) served: u64,
    /// Jobs that ended since the last retention sweep.
    pub(super) ended: u32,
    /// How many rejections it has recorded lately.
    pub(super) rejections: RejectionWindow,
    pub(super) sources: Sources<Source>,
    pub(super) classes: BTreeMap<Ix<Class>, ClassHeads>,
    /// The visible heads of jobs without a capacity request; the first one is next.
    pub(super) heads: BTreeSet<QueueHead>,
    /// The visible heads of all others, by their demands.
    pub(super) by_demand: BTreeMap<Ix<Demand>, BTreeSet<QueueHead>>,
    /// Reserved jobs that no worker has claimed, in the order of their attempts.
    pub(super) reserved: BTreeSet<(u64, Ix<Job>)>,
}

impl Lane {
    pub(super) fn new(name: Name, settings: LaneSettings) -> Lane {
        Lane {
            name,
            settings,
            open: 0,
            waiting: 0,
            share: Share::default(),
            served: 0,
            ended: 0,
            rejections: RejectionWindow::default(),
            sources: Sources::default(),
            classes: BTreeMap::new(),
            heads: BTreeSet::new(),
            by_demand: BTreeMap::new(),
            reserved: BTreeSet::new(),
        }
    }

    pub(in crate::engine) fn name(&self) -> &Name {
        &self.name
    }

    pub(in crate::engine) fn settings(&self) -> &LaneSettings {
        &self.settings
    }

    /// Open attempts.
    pub(in crate::engine) fn open(&self) -> u32 {
        self.open
    }

    /// Waiting jobs.
    pub(in crate::engine) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// True while it has as many open attempts as it may.
    pub(in crate::engine) fn is_full(&self) -> bool {
        self.open >= self.settings.running_max
    }

    /// True while it has no jobs.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting + self.open == 0
    }

    /// Jobs of it have ended: the next retention sweep may delete more rows.
    pub(super) fn count_ended(&mut self, jobs: u32) {
        self.ended = self.ended.saturating_add(jobs);
    }

    /// Does this lane start a job before the other one? The lower share of open attempts goes first, then the lane that was
    /// served longest ago.
    pub(super) fn goes_before(&self, other: &Lane) -> bool {
        let mine = u64::from(self.open) * u64::from(other.settings.running_max);
        let theirs = u64::from(other.open) * u64::from(self.settings.running_max);
        (mine, self.served, &self.name) < (theirs, other.served, &other.name)
    }
}

/// Agents with bins in one source, in fair order.
#[derive(Default)]
pub(in crate::engine) struct Source {
    pub(super) agents: Tournament<AgentEntry>,
    /// What the level above shows of it.
    pub(super) head: Option<AgentEntry>,
}

/// The heads of all sources of one class in a lane.
#[derive(Default)]
pub(in crate::engine) struct ClassHeads {
    pub(super) heads: BTreeSet<QueueHead>,
    /// What the lane shows of it.
    pub(super) head: Option<QueueHead>,
}

/// A head: its position in the fair order, its agent queue, and where its bin hangs.
pub(in crate::engine) type QueueHead = (FairKey, Ix<AgentQueue>, SourceKey);
