//! The record of one worker, and of its registration.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{KeyEntry, Kind};
use crate::engine::workers::pool::Group;
use crate::worker::{Beat, ConnectionId, Orders, Pressure, Standing, WorkerOffer};
use crate::{Mono, Name, Span, Task, Wall};

/// Results whose tasks are remembered for each worker, so that a duplicate is recognized.
const RECENT_MAX: usize = 256;
/// Heartbeats that a worker may miss before it is lost.
pub(super) const MISSES_MAX: u8 = 3;

/// A worker that is registered, holds attempts, or is awaited.
#[derive(Default)]
pub(in crate::engine) struct Worker {
    /// Jobs whose open attempts it holds, claimed ones included.
    pub(super) attempts: BTreeSet<Ix<Job>>,
    /// The boot id of the process that has the pushed attempts. They all belong to one process: attempts of another process
    /// are closed when this one registers.
    pub(super) boot: Option<Name>,
    /// Its registration.
    pub(super) registration: Option<Box<Registration>>,
    /// Different pins of jobs that use a resource of it.
    pub(super) pins: u32,
    /// For one that is not registered and has resources that jobs use: until when it may come back.
    pub(super) awaited_until: Option<Mono>,
    /// Gates on which jobs wait for a free slot of it, by kind or (`None`) for any kind.
    pub(super) gates: BTreeMap<Option<Ix<Kind>>, Ix<KeyEntry>>,
}

/// A registered worker.
pub(super) struct Registration {
    pub(super) offer: WorkerOffer,
    pub(super) group: Ix<Group>,
    /// `None` while it is disconnected.
    pub(super) connection: Option<ConnectionId>,
    pub(super) connected_at: Wall,
    /// The time between two heartbeats.
    pub(super) heartbeat: Span,
    pub(super) heard_at: Mono,
    pub(super) misses: u8,
    /// When it is checked next.
    pub(super) watch_at: Mono,
    /// The longest lease that it was given.
    pub(super) lease: Span,
    /// When its attempts are lost without a heartbeat.
    pub(super) lease_until: Mono,
    pub(super) beat: Beat,
    /// The orders of an operator.
    pub(super) orders: Orders,
    /// Its memory or its disk is too full.
    pub(super) pressed: bool,
    /// Slots that its pushed attempts take, and the same by kind.
    pub(super) used: u32,
    pub(super) used_of: BTreeMap<Ix<Kind>, u32>,
    /// When it last got a task, as a count of starts.
    pub(super) served: u64,
    /// Since when it has no free slot.
    pub(super) full_since: Option<Mono>,
    /// True once there was an event about that.
    pub(super) full_noted: bool,
    /// Its entry in the idle lists of its group.
    pub(super) free_slot: Option<(u64, u64)>,
    /// Affinity keys that are bound to it.
    pub(super) bound: BTreeSet<Name>,
    /// Tasks whose results were accepted, the newest last.
    pub(super) recent: VecDeque<Task>,
}

impl Registration {
    /// True when it can take new tasks, free slots left out.
    pub(super) fn is_willing(&self) -> bool {
        self.connection.is_some()
            && self.misses < MISSES_MAX
            && self.beat.healthy
            && !self.beat.draining
            && !self.orders.drained
            && !self.pressed
    }

    /// Its position among idle workers: the share of its slots that is taken, then when it last got a task.
    pub(super) fn slot_now(&self) -> Option<(u64, u64)> {
        let max = self.offer.max_parallel;
        (self.is_willing() && self.used < max)
            .then(|| ((u64::from(self.used) << 32) / u64::from(max), self.served))
    }

    /// Counts slots that an attempt takes (1) or frees (-1): any slot, and one of its kind, unless its chain has one.
    pub(super) fn change_used(&mut self, kind: Ix<Kind>, (any, of_kind): (bool, bool), by: i32) {
        if any {
            self.used = self.used.saturating_add_signed(by);
        }
        if of_kind {
            let used = self.used_of.entry(kind).or_default();
            *used = used.saturating_add_signed(by);
            if *used == 0 {
                self.used_of.remove(&kind);
            }
        }
    }

    /// Remembers that the result of a task was accepted.
    pub(super) fn remember(&mut self, task: Task) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(task);
    }

    pub(super) fn standing(&self) -> Standing {
        match self.misses {
            _ if self.connection.is_none() => Standing::Away,
            MISSES_MAX.. => Standing::Lost,
            _ if self.orders.drained || self.pressed || self.beat.draining => Standing::Draining,
            _ if !self.beat.healthy => Standing::Unhealthy,
            2 => Standing::Degraded,
            1 => Standing::Late,
            0 => Standing::Ready,
        }
    }

    /// Whether its last heartbeat says that it is too full, with a distance between full and not full.
    pub(super) fn is_pressed_at(&self, at: &Pressure) -> bool {
        let over = |share: Option<u16>, limit: u16| {
            let limit = if self.pressed { limit.saturating_sub(at.relief) } else { limit };
            share.is_some_and(|share| share >= limit)
        };
        over(self.beat.memory, at.memory) || over(self.beat.disk, at.disk)
    }
}
